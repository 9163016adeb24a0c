//! `#[derive(Module)]`: the traversal of a network's state, written from its fields.
//!
//! The derive implements two traits of `remat-nn`: `Visit`, which hands every field to the visitor under its name, and
//! `Module`, whose methods are all provided. Every field's type must implement `Visit`; plain numbers, strings, options,
//! vectors, arrays and tuples do. A field that does not, or that must stay out, is marked `#[module(skip)]`: nothing is
//! left out silently, since a parameter that a traversal does not see is a parameter that is never trained or saved.
#![forbid(unsafe_code)]

mod attributes;
mod calc;
mod expand;

use proc_macro::TokenStream;

/// Implements `Visit` and `Module` for a struct or an enum.
///
/// Fields are visited in declaration order under their names (tuple fields under `0`, `1`, ..). Type parameters that
/// occur in visited fields get the bound `Visit`. Of an enum, the fields of the present variant are visited; the
/// variant's name is no part of theirs.
///
/// Attributes: on a field, `#[module(skip)]` leaves it out, `#[module(flatten)]` visits it without a name of its own,
/// `#[module(rename = "name")]` under another. On the type, `#[module(crate = path)]` says where `remat-nn` is found;
/// the default is `::remat::nn`.
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    expand::module(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// A formula of tensors as one writes it on paper: `calc!((x - x.mean()) / (x.std(0) + 1e-5))`.
///
/// Every operator and call in it may fail, and is followed by a `?`; names and fields are borrowed. So it stands in a function
/// that returns a `Result`, and its value is a tensor, or a number if all of it is. Precedence is Rust's: comparisons joined
/// by `&` need parentheses. `<`, `<=`, `>`, `>=`, `==` and `!=` with a
/// tensor on the left compare element by element; `&`, `|`, `^` and `!` combine masks. Arguments of calls are plain Rust.
///
/// It expands to the operators and methods themselves, by paths of the crate `remat`.
#[proc_macro]
pub fn calc(input: TokenStream) -> TokenStream {
    let e = syn::parse_macro_input!(input as syn::Expr);
    calc::operand(&e).unwrap_or_else(syn::Error::into_compile_error).into()
}
