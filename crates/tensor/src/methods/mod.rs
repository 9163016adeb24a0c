//! The tensor's methods: thin, fallible fronts of the ops, grouped as users look for them.
//!
//! Names are those of PyTorch, or of NumPy where they differ and say it better. Every method is a call of one op or a short
//! composition, so gradients and recomputation follow by themselves.

mod activation;
mod algebra;
mod attention;
mod collective;
mod conv;
mod conv_transpose;
mod create;
mod device;
mod draws;
mod einsum;
mod embed;
mod factor;
mod grad;
mod index;
mod indexing;
mod join;
mod language;
mod limits;
mod linalg;
mod maths;
mod nn;
mod operators;
mod order;
mod pointwise;
mod recurrent;
mod reduce;
mod scatter;
mod select;
mod sets;
mod shape;
mod span;
mod spectral;
mod tables;
mod vision;

pub use algebra::MatrixNorm;
pub use attention::{Attend, QueryPlace};
pub use embed::{BagMode, Bags};
pub use factor::TriangleOptions;
pub use indexing::{Ellipsis, IndexPart, IntoIndex, NewAxis, Places, by};
pub use language::{Rope, RopePairs};
pub use operators::Settle;
pub use pointwise::IntoOperand;
pub use recurrent::{Nonlinearity, RecurrentSteps, RecurrentWeights};
pub use span::Span;
pub use spectral::{Complex, FftNorm, MelOptions, MelScale, StftOptions, Window};
pub use vision::{
    BatchStatistics, BoxForm, Colour, Correlation, DeformPsRoi, Divisor, Interpolate, InterpolateOptions, PadMode,
    Patches, Pooling, RoiAlign, Sizes, Warp,
};
