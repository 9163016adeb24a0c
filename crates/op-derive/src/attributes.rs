//! The contents of `#[op(..)]`, `#[param(..)]` and doc comments.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Expr, ExprLit, Ident, Lit, LitInt, LitStr, Meta, Path, Result, Token, parenthesized, parse_quote,
};

/// The doc comment, without the space before each line.
pub(crate) fn text(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|a| match &a.meta {
        Meta::NameValue(m) if m.path.is_ident("doc") => match &m.value {
            Expr::Lit(ExprLit { lit: Lit::Str(line), .. }) => Some(line.value()),
            _ => None,
        },
        _ => None,
    });
    let lines: Vec<String> = lines.map(|l| l.strip_prefix(' ').unwrap_or(&l).trim_end().to_owned()).collect();
    lines.join("\n").trim().to_owned()
}

/// How many tensors an input stands for.
enum Count {
    One,
    Optional,
    Many,
}

struct Input {
    name: Ident,
    count: Count,
    dtypes: Ident,
}

impl Input {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name = input.parse()?;
        let count = if input.parse::<Option<Token![?]>>()?.is_some() {
            Count::Optional
        } else if input.parse::<Option<Token![..]>>()?.is_some() {
            Count::Many
        } else {
            Count::One
        };
        input.parse::<Token![:]>()?;
        Ok(Input { name, count, dtypes: input.parse()? })
    }

    /// The expression of the value that describes it.
    fn tokens(&self, krate: &Path, gradient: bool) -> Result<TokenStream> {
        let name = self.name.to_string();
        let count = match self.count {
            Count::One => quote!(One),
            Count::Optional => quote!(Optional),
            Count::Many => quote!(Many),
        };
        let dtypes = match self.dtypes.to_string().as_str() {
            "any" => quote!(Any),
            "float" => quote!(Float),
            "int" => quote!(Int),
            "number" => quote!(Number),
            "bool" => quote!(Bool),
            "key" => quote!(Key),
            "i64" => quote!(I64),
            other => {
                let known = "any, float, int, number, bool, key, i64";
                return Err(syn::Error::new(
                    self.dtypes.span(),
                    format!("no class `{other}` of dtypes; there are {known}"),
                ));
            }
        };
        Ok(quote!(#krate::schema::Input {
            name: #name,
            count: #krate::schema::Count::#count,
            dtypes: #krate::schema::DTypes::#dtypes,
            gradient: #gradient,
        }))
    }
}

/// The contents of a type's `#[op(..)]`.
pub(crate) struct TypeAttributes {
    /// Where `remat-ops` is found.
    pub(crate) krate: Path,
    /// A field that is not given is as the type's `Default` has it.
    pub(crate) has_default: bool,
    inputs: Vec<Input>,
    gradient: Vec<Ident>,
}

impl TypeAttributes {
    pub(crate) fn of(attributes: &[Attribute]) -> Result<Self> {
        let mut all = TypeAttributes {
            krate: parse_quote!(::remat_ops),
            has_default: false,
            inputs: Vec::new(),
            gradient: Vec::new(),
        };
        for a in attributes.iter().filter(|a| a.path().is_ident("op")) {
            a.parse_nested_meta(|meta| {
                if meta.path.is_ident("crate") {
                    meta.input.parse::<Token![=]>()?;
                    all.krate = meta.input.call(Path::parse_mod_style)?;
                    return Ok(());
                }
                if meta.path.is_ident("default") {
                    all.has_default = true;
                    return Ok(());
                }
                let list;
                parenthesized!(list in meta.input);
                if meta.path.is_ident("inputs") {
                    all.inputs.extend(Punctuated::<Input, Token![,]>::parse_terminated_with(&list, Input::parse)?);
                } else if meta.path.is_ident("gradient") {
                    all.gradient.extend(Punctuated::<Ident, Token![,]>::parse_terminated(&list)?);
                } else {
                    return Err(meta.error("expected `inputs(..)`, `gradient(..)`, `default` or `crate = path`"));
                }
                Ok(())
            })?;
        }
        Ok(all)
    }

    /// The list of inputs as expressions.
    pub(crate) fn inputs(&self) -> Result<Vec<TokenStream>> {
        if let Some(unknown) = self.gradient.iter().find(|g| self.inputs.iter().all(|i| i.name != **g)) {
            return Err(syn::Error::new(unknown.span(), "no input has this name"));
        }
        let before_last = self.inputs.split_last().map_or(&[][..], |(_, before)| before);
        if let Some(many) = before_last.iter().find(|i| matches!(i.count, Count::Many)) {
            return Err(syn::Error::new(many.name.span(), "an input of any number of tensors comes last"));
        }
        self.inputs.iter().map(|i| i.tokens(&self.krate, self.gradient.contains(&i.name))).collect()
    }
}

/// The contents of a field's `#[param(..)]`.
#[derive(Default)]
pub(crate) struct FieldAttributes {
    pub(crate) rename: Option<LitStr>,
    pub(crate) default: Option<Expr>,
    pub(crate) since: Option<LitInt>,
    pub(crate) flatten: bool,
}

impl FieldAttributes {
    pub(crate) fn of(attributes: &[Attribute]) -> Result<Self> {
        let mut all = FieldAttributes::default();
        for a in attributes.iter().filter(|a| a.path().is_ident("param")) {
            a.parse_nested_meta(|meta| {
                if meta.path.is_ident("rename") {
                    all.rename = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("default") {
                    all.default = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("since") {
                    all.since = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("flatten") {
                    all.flatten = true;
                } else {
                    return Err(
                        meta.error("expected `rename = \"name\"`, `default = expr`, `since = version` or `flatten`")
                    );
                }
                Ok(())
            })?;
        }
        Ok(all)
    }
}
