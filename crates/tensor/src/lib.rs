//! The user's tensor: methods, operators, and reverse-mode automatic differentiation.
//!
//! A [`Tensor`] is a handle on a device's tensor and, while something upstream of it requires a gradient, a node of
//! the tape. Methods never wait for the device; only reading a value does.
#![forbid(unsafe_code)]

mod autodiff;
mod compile;
mod control_flow;
mod gradcheck;
mod literal;
mod methods;
mod site;
mod tape;
mod tensor;

pub use autodiff::{custom, custom_with_kept, grad, grad_with};
pub use compile::{
    CompileOptions, Compiled, Session, StateCell, Symbols, capture_state, captured_version, compile, compile_with,
};
pub use control_flow::{Branch, Collect, ScanOptions, call, cond, fori_loop, scan, switch, while_loop};
pub use gradcheck::{GradCheckReport, gradcheck};
pub use literal::{Literal, NestedLiteral};
pub use methods::{
    Attend, BagMode, Bags, BatchStatistics, BoxForm, Colour, Complex, Correlation, DeformPsRoi, Divisor, Ellipsis,
    FftNorm, IndexPart, Interpolate, InterpolateOptions, IntoIndex, IntoOperand, MatrixNorm, MelOptions, MelScale,
    NewAxis, Nonlinearity, PadMode, Patches, Places, Pooling, QueryPlace, RecurrentSteps, RecurrentWeights, RoiAlign,
    Rope, RopePairs, Settle, Sizes, Span, StftOptions, TriangleOptions, Warp, Window, by,
};
pub use remat_comm as comm;
pub use remat_graph::ir::symbolic::Dim;
pub use remat_ops::conv::ConvParams;
pub use remat_ops::loss::Reduction;
pub use remat_ops::pooling::Windows;
pub use remat_ops::vision::{Between, Beyond};
pub use remat_types::Padding;
pub use tape::{GradHook, Kept, NoGrad, Recording, RowGrad, TapeCx, is_recording, no_grad, recording};
pub use tensor::Tensor;
