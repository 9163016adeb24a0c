//! The implementations for a struct of parameters.

use proc_macro2::TokenStream;
use quote::quote;
use syn::visit::Visit;
use syn::{Data, DeriveInput, Field, Fields, Generics, Ident, Path, Result, Type, parse_quote};

use crate::attributes::{FieldAttributes, TypeAttributes, text};

/// `Params`, `ParamValue`, `Serialize` and `Deserialize` for `input`.
pub(crate) fn params(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        return Err(syn::Error::new(input.ident.span(), "Params is derived for structs; an enum is a Choice"));
    };
    if let Fields::Unnamed(_) = data.fields {
        return Err(syn::Error::new(input.ident.span(), "a parameter needs a name: give the fields names"));
    }
    let attributes = TypeAttributes::of(&input.attrs)?;
    let (krate, inputs, about) = (&attributes.krate, attributes.inputs()?, text(&input.attrs));
    let fields = data.fields.iter().map(|f| field(f, &attributes)).collect::<Result<Vec<_>>>()?;
    let (describe, write, read) =
        (fields.iter().map(|f| &f.describe), fields.iter().map(|f| &f.write), fields.iter().map(|f| &f.read));
    let (name, generics) = (&input.ident, bounded(&input.generics, &data.fields, krate));
    let (impl_generics, type_generics, bounds) = generics.split_for_impl();
    let serial = serial(name, &generics, matches!(data.fields, Fields::Unit), krate);
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics #krate::schema::Params for #name #type_generics #bounds {
            const TEXT: &'static str = #about;
            fn inputs() -> ::std::vec::Vec<#krate::schema::Input> {
                ::std::vec![#(#inputs),*]
            }
            fn params() -> ::std::vec::Vec<#krate::schema::Param> {
                let mut all = ::std::vec::Vec::new();
                #(#describe)*
                all
            }
        }
        #[automatically_derived]
        impl #impl_generics #krate::schema::ParamFields for #name #type_generics #bounds {
            fn write<__M: #krate::schema::SerializeMap>(&self, to: &mut __M) -> ::core::result::Result<(), __M::Error> {
                let _ = &to;
                #(#write)*
                ::core::result::Result::Ok(())
            }
            fn read<__E: #krate::schema::ReadError>(from: &mut #krate::schema::Given) -> ::core::result::Result<Self, __E> {
                let _ = &from;
                ::core::result::Result::Ok(Self { #(#read),* })
            }
        }
        #[automatically_derived]
        impl #impl_generics #krate::schema::ParamValue for #name #type_generics #bounds {
            fn param_type() -> #krate::schema::ParamType {
                #krate::schema::ParamType::Record(<Self as #krate::schema::Params>::params())
            }
        }
        #serial
    })
}

/// `Serialize` and `Deserialize`: a map of the parameters, or null for a struct that has no braces.
fn serial(name: &Ident, generics: &Generics, is_unit: bool, krate: &Path) -> TokenStream {
    let mut reading = generics.clone();
    reading.params.insert(0, parse_quote!('de));
    let (impl_generics, type_generics, bounds) = generics.split_for_impl();
    let (reading_generics, _, _) = reading.split_for_impl();
    let text = name.to_string();
    let (write, read) = if is_unit {
        (
            quote!(#krate::schema::Serializer::serialize_unit_struct(to, #text)),
            quote!(<() as #krate::schema::Deserialize>::deserialize(from).map(|()| Self {})),
        )
    } else {
        (quote!(#krate::schema::write(self, to)), quote!(#krate::schema::read(from)))
    };
    quote! {
        #[automatically_derived]
        impl #impl_generics #krate::schema::Serialize for #name #type_generics #bounds {
            fn serialize<__S: #krate::schema::Serializer>(&self, to: __S) -> ::core::result::Result<__S::Ok, __S::Error> {
                #write
            }
        }
        #[automatically_derived]
        impl #reading_generics #krate::schema::Deserialize<'de> for #name #type_generics #bounds {
            fn deserialize<__D: #krate::schema::Deserializer<'de>>(from: __D) -> ::core::result::Result<Self, __D::Error> {
                #read
            }
        }
    }
}

/// The code for one field in the three implementations.
struct FieldCode {
    describe: TokenStream,
    write: TokenStream,
    read: TokenStream,
}

fn field(field: &Field, of: &TypeAttributes) -> Result<FieldCode> {
    let krate = &of.krate;
    let (name, ty) = (field.ident.as_ref().expect("fields without names were refused"), &field.ty);
    let attributes = FieldAttributes::of(&field.attrs)?;
    if attributes.flatten {
        return Ok(FieldCode {
            describe: quote!(all.extend(<#ty as #krate::schema::Params>::params());),
            write: quote!(#krate::schema::ParamFields::write(&self.#name, to)?;),
            read: quote!(#name: #krate::schema::ParamFields::read(from)?),
        });
    }
    let own = name.to_string();
    let key = attributes.rename.map_or(own.clone(), |name| name.value());
    let about = text(&field.attrs);
    let since = attributes.since.map_or(quote!(1), |s| quote!(#s));
    let default = match attributes.default {
        Some(value) => quote!(::core::option::Option::Some(|| -> #ty { #value })),
        None if of.has_default => {
            quote!(::core::option::Option::Some(|| -> #ty { <Self as ::core::default::Default>::default().#name }))
        }
        None => quote!(<#ty as #krate::schema::ParamValue>::DEFAULT),
    };
    Ok(FieldCode {
        describe: quote! {
            all.push(#krate::schema::Param::new::<#ty>(#key, #about, #default, #since).in_field(#own));
        },
        write: quote!(#krate::schema::SerializeMap::serialize_entry(to, #key, &self.#name)?;),
        read: quote!(#name: from.take::<#ty, __E>(#key, #default)?),
    })
}

/// `generics` where every field whose type depends on a parameter of the struct is a value of a parameter.
fn bounded(generics: &Generics, fields: &Fields, krate: &Path) -> Generics {
    let names: Vec<Ident> = generics
        .type_params()
        .map(|p| p.ident.clone())
        .chain(generics.const_params().map(|p| p.ident.clone()))
        .collect();
    let mut generics = generics.clone();
    for ty in fields.iter().map(|f| &f.ty).filter(|ty| mentions(ty, &names)) {
        generics.make_where_clause().predicates.push(parse_quote!(#ty: #krate::schema::ParamValue));
    }
    generics
}

/// True if one of `names` occurs in `ty`.
fn mentions(ty: &Type, names: &[Ident]) -> bool {
    struct Search<'a>(&'a [Ident], bool);
    impl<'ast> Visit<'ast> for Search<'_> {
        fn visit_ident(&mut self, name: &'ast Ident) {
            self.1 |= self.0.contains(name);
        }
    }
    let mut search = Search(names, false);
    search.visit_type(ty);
    search.1
}
