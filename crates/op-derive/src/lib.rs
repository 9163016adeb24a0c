//! `#[derive(Params)]` and `#[derive(Choice)]`: one description of what an op takes, from which come its schema and its
//! serial form.
//!
//! This crate is a part of `remat-ops` that has to be a crate of its own; use it through there.
#![forbid(unsafe_code)]

mod attributes;
mod choice;
mod params;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Implements `Params`, `ParamValue`, `Serialize` and `Deserialize` for a struct. Each field is a parameter: its name and
/// type are the field's, its text is the doc comment.
///
/// * `#[param(rename = "name")]` on a field: its name in serial forms, where that is an older one.
/// * `#[param(default = expr)]` on a field: what a serial form without it means.
/// * `#[param(since = 2)]`: the version of the op that brought it; 1 where nothing is said.
/// * `#[param(flatten)]`: the field's own parameters stand among these.
/// * `#[op(inputs(x: float, index: int, mask?: bool, rest..: any), gradient(x))]` on the struct: the inputs, their classes of
///   dtypes, and those that have a gradient. `?` marks one that may be left out, `..` any number.
/// * `#[op(default)]` on the struct: a field that is not given is as the struct's `Default` has it.
/// * `#[op(crate = path)]`: where `remat-ops` is found, if not at `::remat_ops`.
#[proc_macro_derive(Params, attributes(param, op))]
pub fn derive_params(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    params::params(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Implements `ParamValue` for an enum that serde writes under the names of its variants: the text of each is its doc
/// comment, the name is serde's (`rename`, `rename_all = "snake_case"`).
#[proc_macro_derive(Choice, attributes(serde, op))]
pub fn derive_choice(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    choice::choice(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
