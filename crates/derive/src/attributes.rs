//! The `#[module(..)]` attributes.

use syn::{Attribute, LitStr, Path, Result, Token, parse_quote};

/// The contents of a type's `#[module(..)]`.
pub(crate) struct TypeAttributes {
    /// Where `remat-nn` is found.
    pub(crate) krate: Path,
}

impl TypeAttributes {
    pub(crate) fn of(attributes: &[Attribute]) -> Result<Self> {
        let mut krate: Path = parse_quote!(::remat::nn);
        for a in attributes.iter().filter(|a| a.path().is_ident("module")) {
            a.parse_nested_meta(|meta| {
                if !meta.path.is_ident("crate") {
                    return Err(
                        meta.error("a type takes `crate = path` only; `skip`, `flatten`, `rename` go on fields")
                    );
                }
                meta.input.parse::<Token![=]>()?;
                krate = meta.input.call(Path::parse_mod_style)?;
                Ok(())
            })?;
        }
        Ok(TypeAttributes { krate })
    }
}

/// How a field is visited.
pub(crate) enum FieldRole {
    /// Under the field's name, or the given one.
    Visit(Option<String>),
    /// Without a name of its own.
    Flatten,
    /// Not at all.
    Skip,
}

impl FieldRole {
    pub(crate) fn of(attributes: &[Attribute]) -> Result<Self> {
        let mut role = FieldRole::Visit(None);
        for a in attributes.iter().filter(|a| a.path().is_ident("module")) {
            a.parse_nested_meta(|meta| {
                if !matches!(role, FieldRole::Visit(None)) {
                    return Err(meta.error("a field takes one of `skip`, `flatten` and `rename`"));
                }
                role = if meta.path.is_ident("skip") {
                    FieldRole::Skip
                } else if meta.path.is_ident("flatten") {
                    FieldRole::Flatten
                } else if meta.path.is_ident("rename") {
                    FieldRole::Visit(Some(name(&meta.value()?.parse()?)?))
                } else {
                    return Err(meta.error("expected `skip`, `flatten` or `rename = \"name\"`"));
                };
                Ok(())
            })?;
        }
        Ok(role)
    }
}

/// A part of a dotted name.
fn name(text: &LitStr) -> Result<String> {
    let value = text.value();
    if value.is_empty() || value.contains('.') {
        return Err(syn::Error::new(text.span(), "a name is not empty and has no dots: they separate names"));
    }
    Ok(value)
}
