//! Networks from the literature, and weights that other frameworks have published for them.
//!
//! The networks of [`models`] are ordinary modules, made of the public layers of crate `remat-nn`; a network of a program's own
//! can do all that they do. [`load_weights`] reads safetensors files and those of PyTorch's `torch.save` into any module, by a
//! [`NameMap`] that says what a name is called here; [`models::names_of`] has the maps of published files.
#![forbid(unsafe_code)]

pub mod models;
mod weights;

pub use weights::{
    NameMap, TorchReader, TorchScalar, is_torch_file, load_state, load_weights, load_weights_partly, read_torch,
};
