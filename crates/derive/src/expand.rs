//! The implementations themselves.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Fields, Ident, Member, Path, Result, parse_quote};

use crate::attributes::{FieldRole, TypeAttributes};

/// `Visit` and `Module` for `input`.
pub(crate) fn module(input: &DeriveInput) -> Result<TokenStream> {
    let krate = TypeAttributes::of(&input.attrs)?.krate;
    let mut used = BTreeSet::new();
    let body = match &input.data {
        Data::Struct(s) => {
            let (pattern, visits) = fields(&s.fields, &krate, &mut used)?;
            quote!(let Self #pattern = self; #visits)
        }
        Data::Enum(e) if e.variants.is_empty() => quote!(let _ = at; match *self {}),
        Data::Enum(e) => {
            let arms = e.variants.iter().map(|v| {
                let (pattern, visits) = fields(&v.fields, &krate, &mut used)?;
                let name = &v.ident;
                Ok(quote!(Self::#name #pattern => { #visits }))
            });
            let arms = arms.collect::<Result<Vec<_>>>()?;
            quote!(match self { #(#arms)* })
        }
        Data::Union(_) => {
            let text = "Module cannot be derived for a union: which of its fields is present is not known";
            return Err(syn::Error::new(input.ident.span(), text));
        }
    };
    let mut generics = input.generics.clone();
    for p in generics.type_params_mut().filter(|p| used.contains(&p.ident.to_string())) {
        p.bounds.push(parse_quote!(#krate::Visit));
    }
    let mut shared = generics.clone();
    for p in shared.type_params_mut() {
        p.bounds.push(parse_quote!(::core::marker::Send));
        p.bounds.push(parse_quote!(::core::marker::Sync));
    }
    let name = &input.ident;
    let (impl_generics, type_generics, bounds) = generics.split_for_impl();
    let (shared_generics, _, _) = shared.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics #krate::Visit for #name #type_generics #bounds {
            fn visit(&self, at: &mut #krate::Walk<'_>) {
                let _ = &at;
                #body
            }
        }
        #[automatically_derived]
        impl #shared_generics #krate::Module for #name #type_generics #bounds {}
    })
}

/// A pattern that binds the visited fields, and their visits. Names of types that they mention go into `used`.
fn fields(fields: &Fields, krate: &Path, used: &mut BTreeSet<String>) -> Result<(TokenStream, TokenStream)> {
    let (mut bindings, mut visits) = (Vec::new(), Vec::new());
    for (member, field) in fields.members().zip(fields) {
        let (binding, own) = match &member {
            Member::Named(n) => (format_ident!("field_{}", n.unraw()), n.unraw().to_string()),
            Member::Unnamed(i) => (format_ident!("field_{}", i.index), i.index.to_string()),
        };
        let span = field.ty.span();
        visits.push(match FieldRole::of(&field.attrs)? {
            FieldRole::Skip => continue,
            FieldRole::Flatten => quote_spanned!(span=> #krate::Visit::visit(#binding, at);),
            FieldRole::Visit(name) => {
                let name = name.unwrap_or(own);
                quote_spanned!(span=> at.field(#name, #binding);)
            }
        });
        bindings.push(quote!(#member: #binding));
        let ty = &field.ty;
        idents(quote!(#ty), used);
    }
    Ok((quote!({ #(#bindings,)* .. }), quote!(#(#visits)*)))
}

/// Every identifier in `tokens`.
fn idents(tokens: TokenStream, out: &mut BTreeSet<String>) {
    for t in tokens {
        match t {
            TokenTree::Ident(i) => {
                out.insert(Ident::to_string(&i));
            }
            TokenTree::Group(g) => idents(g.stream(), out),
            _ => {}
        }
    }
}
