//! The type of a parameter that is one of several things.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, Data, DeriveInput, Fields, LitStr, Path, Result, Variant};

use crate::attributes::{TypeAttributes, text};

/// `ParamValue` for `input`.
pub(crate) fn choice(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Enum(data) = &input.data else {
        return Err(syn::Error::new(input.ident.span(), "Choice is derived for enums; a struct has Params"));
    };
    let krate = TypeAttributes::of(&input.attrs)?.krate;
    let names = SerdeNames::of(&input.attrs)?;
    let variants = data.variants.iter().map(|v| variant(v, &names, &krate)).collect::<Result<Vec<_>>>()?;
    let name = &input.ident;
    Ok(quote! {
        #[automatically_derived]
        impl #krate::schema::ParamValue for #name {
            fn param_type() -> #krate::schema::ParamType {
                #krate::schema::ParamType::OneOf(::std::vec![#(#variants),*])
            }
        }
    })
}

fn variant(v: &Variant, names: &SerdeNames, krate: &Path) -> Result<TokenStream> {
    let own = SerdeNames::of(&v.attrs)?.rename;
    let plain = v.ident.to_string();
    let name = own.unwrap_or(if names.snake_case { snake_case(&plain) } else { plain });
    let about = text(&v.attrs);
    let holds = match &v.fields {
        Fields::Unit => quote!(::core::option::Option::None),
        Fields::Unnamed(f) if f.unnamed.len() == 1 => {
            let ty = &f.unnamed[0].ty;
            quote!(::core::option::Option::Some(<#ty as #krate::schema::ParamValue>::param_type()))
        }
        Fields::Named(f) => {
            let params = f.named.iter().map(|f| {
                let (ty, key, about) = (&f.ty, f.ident.as_ref().map(ToString::to_string), text(&f.attrs));
                quote!(#krate::schema::Param::new::<#ty>(#key, #about, ::core::option::Option::None, 1))
            });
            quote!(::core::option::Option::Some(#krate::schema::ParamType::Record(::std::vec![#(#params),*])))
        }
        Fields::Unnamed(_) => {
            return Err(syn::Error::new(v.ident.span(), "a variant holds one value or fields with names"));
        }
    };
    Ok(quote!(#krate::schema::Variant { name: #name, text: #about, holds: #holds }))
}

/// The names that `#[serde(..)]` gives.
#[derive(Default)]
struct SerdeNames {
    rename: Option<String>,
    snake_case: bool,
}

impl SerdeNames {
    fn of(attributes: &[Attribute]) -> Result<Self> {
        let mut names = SerdeNames::default();
        for a in attributes.iter().filter(|a| a.path().is_ident("serde")) {
            a.parse_nested_meta(|meta| {
                if meta.path.is_ident("rename") {
                    names.rename = Some(meta.value()?.parse::<LitStr>()?.value());
                } else if meta.path.is_ident("rename_all") {
                    let rule = meta.value()?.parse::<LitStr>()?;
                    if rule.value() != "snake_case" {
                        return Err(syn::Error::new(rule.span(), "a Choice knows the rule `snake_case`"));
                    }
                    names.snake_case = true;
                } else {
                    return Err(meta.error("a Choice knows `rename` and `rename_all`"));
                }
                Ok(())
            })?;
        }
        Ok(names)
    }
}

/// Serde's rule: an underscore before each capital but the first.
fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for (i, c) in name.char_indices() {
        if i > 0 && c.is_uppercase() {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake
}
