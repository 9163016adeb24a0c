//! Remat: a deep-learning framework in which a memory budget is a contract.
//!
//! This crate is the only one a program names. [`prelude`] brings in what most programs use; the layers below are here
//! under their own names: [`types`], [`ops`], [`runtime`], [`mod@tensor`], [`nn`]. The book in the repository's `docs`
//! folder explains them one after the other; this page is the short tour.
//!
//! # Devices and tensors
//!
//! A [`Device`] is a value: an arena of bytes, a worker thread, compute threads. Options such as the budget open it. A
//! [`Tensor`] is a cheap handle on data of one device. Methods and operators are fallible and return at once; reading a
//! value waits for that value.
//!
//! ```
//! use remat::prelude::*;
//!
//! # fn main() -> Result<()> {
//! let device = Device::cpu(DeviceOptions::with_budget(1 << 20))?;
//! let x = Tensor::new(&device, &[1.0f32, -2.0, 3.0, -4.0], [2, 2])?;
//! let w = Tensor::ones(&device, [2, 3], DType::F32)?;
//! let y = x.matmul(&w)?.relu()?;
//! assert_eq!(y.dims(), [2, 3]); // known at once
//! assert_eq!(y.to_vec::<f32>()?, [0.0; 6]); // waits
//! # Ok(())
//! # }
//! ```
//!
//! # Formulas
//!
//! Every operation may fail, so each gives a `Result`. [`calc!`] writes the question marks of a formula, and
//! [`tensor!`](crate::tensor!) the shapes of literals, whose floats are f32.
//!
//! ```
//! # use remat::prelude::*;
//! # fn main() -> Result<()> {
//! # let device = Device::cpu(DeviceOptions::default())?;
//! let x = tensor![&device; [1.0, 2.0], [3.0, 6.0]]?;
//! let eps = 1e-5;
//! let plain = ((&x - x.mean()?)? / (x.std(0)? + eps)?)?;
//! let short = calc!((x - x.mean()) / (x.std(0) + eps));
//! assert_eq!(plain.to_host()?, short.to_host()?);
//! let mask = calc!((x > 1.5) & !(x == 3.0));
//! assert_eq!(mask.to_string(), "[[false,  true],\n [false,  true]]  bool[2, 2]");
//! # Ok(())
//! # }
//! ```
//!
//! # Gradients
//!
//! ```
//! # use remat::prelude::*;
//! # fn main() -> Result<()> {
//! # let device = Device::cpu(DeviceOptions::default())?;
//! let x = Tensor::new(&device, &[1.0, 2.0, 3.0], [3])?.requires_grad()?;
//! let y = x.square()?.sum()?;
//! y.backward()?;
//! let dx = x.grad().expect("y depends on x");
//! assert_eq!(dx.to_vec::<f32>()?, [2.0, 4.0, 6.0]);
//! # Ok(())
//! # }
//! ```
//!
//! # Budgets
//!
//! Everything a program puts on a device lives in its arena, and the arena never grows past the budget. What does not
//! fit is made again when it is needed; what cannot be made to fit is an error with figures.
//!
//! ```
//! # use remat::prelude::*;
//! # fn main() -> Result<()> {
//! let device = Device::cpu(DeviceOptions::with_budget(64 << 10))?;
//! let big = Tensor::zeros(&device, [1 << 20], DType::F32)?;
//! let error = big.to_vec::<f32>().expect_err("4 MiB in 64 KiB");
//! assert_eq!(error.kind(), ErrorKind::Budget);
//! let shortfall = error.shortfall().expect("an error of kind Budget has figures");
//! assert!(shortfall.smallest_feasible_bytes >= 4 << 20);
//!
//! // The device goes on.
//! assert_eq!(Tensor::scalar(&device, 2.0f32)?.square()?.item::<f32>()?, 4.0);
//! # Ok(())
//! # }
//! ```
//!
//! # Networks
//!
//! ```
//! # use remat::prelude::*;
//! # fn main() -> Result<()> {
//! # let device = Device::cpu(DeviceOptions::default())?;
//! #[derive(Module)]
//! struct Net {
//!     hidden: nn::Linear,
//!     head: nn::Linear,
//! }
//!
//! impl Layer for Net {
//!     fn forward(&self, x: &Tensor) -> Result<Tensor> {
//!         self.head.forward(&self.hidden.forward(x)?.relu()?)
//!     }
//! }
//!
//! let mut cx = nn::InitCx::new(&device, 7);
//! let net = Net { hidden: nn::Linear::new(&mut cx, 4, 8)?, head: nn::Linear::new(&mut cx, 8, 2)? };
//! let names: Vec<String> = net.named_parameters().into_iter().map(|(name, _)| name).collect();
//! assert_eq!(names, ["hidden.weight", "hidden.bias", "head.weight", "head.bias"]);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod catalogue;
pub mod nn;

#[doc(inline)]
pub use remat_graph as graph;
#[doc(inline)]
pub use remat_ops as ops;
#[doc(inline)]
pub use remat_runtime as runtime;
#[doc(inline)]
pub use remat_tensor as tensor;
#[doc(inline)]
pub use remat_types as types;

// Inlined, so that the links of this page also work if the other crates are not documented beside it.
#[doc(inline)]
pub use remat_nn::calc;
#[doc(inline)]
pub use remat_runtime::{
    AsyncLevel, Channel, Device, DeviceOptions, Kind, MemoryReport, NanCheck, Observer, RangeCheck, SessionOptions,
    Stats, ValueDump, Workspace,
};
#[doc(inline)]
pub use remat_tensor::tensor;
#[doc(inline)]
pub use remat_tensor::{
    Attend, BatchStatistics, Between, Beyond, BoxForm, Collect, Colour, CompileOptions, Compiled, Complex, ConvParams,
    Correlation, DeformPsRoi, Dim, Divisor, Ellipsis, FftNorm, GradCheckReport, GradHook, Interpolate,
    InterpolateOptions, IntoOperand, MatrixNorm, MelOptions, MelScale, NewAxis, PadMode, Patches, Pooling, QueryPlace,
    Reduction, RoiAlign, Rope, RopePairs, ScanOptions, Session, Settle, Sizes, StftOptions, Symbols, Tensor,
    TriangleOptions, Warp, Window, Windows, by, call, compile, compile_with, cond, custom, fori_loop, grad, grad_with,
    gradcheck, no_grad, scan, switch, while_loop,
};
#[doc(inline)]
pub use remat_types::{CallSite, DType, Error, ErrorKind, HostTensor, Padding, Scope, Shape, bf16, f16};

#[cfg(doctest)]
mod book;

/// `std::result::Result` whose error is [`Error`] unless said otherwise, so that importing it hides nothing.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The names that most programs use: `use remat::prelude::*`.
pub mod prelude {
    pub use crate::nn::{self, Layer, Module, Optimizer};
    pub use crate::{DType, Device, DeviceOptions, Error, ErrorKind, HostTensor, Kind, Result, Shape, Tensor, no_grad};
    pub use crate::{calc, tensor};
}
