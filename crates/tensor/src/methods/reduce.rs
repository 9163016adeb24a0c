//! Over axes. Axes may count from the end; no axes means all of them.

use remat_ops::reduce::{ArgReduce, ArgReduceFn, LogSumExp, Reduce, ReduceFn, Std, Var};
use remat_ops::{OpDef, compose};
use remat_types::{DType, Result, SmallVec, axes_of, axis_of};

use crate::Tensor;
use crate::site::InOp;
use crate::tape::TapeCx;

macro_rules! reduce_methods {
    ($($(#[$doc:meta])* $all:ident, $over:ident => $f:ident: [$($x:expr),*] => $t:ident $y:expr, [$($z:expr),*];)*) => {
        impl Tensor { $(
            $(#[$doc])*
            /// Over all elements; rank 0. Errors: DType.
            ///
            #[doc = concat!(
                "```\n# use remat_tensor::Tensor;\n# let device = remat_runtime::Device::cpu(Default::default())?;\n",
                "let x = Tensor::new(&device, &[", stringify!($($x),*), "], [2, 2])?;\n",
                "assert_eq!(x.", stringify!($all), "()?.item::<", stringify!($t), ">()?, ", stringify!($y), ");",
                "\n# Ok::<(), remat_types::Error>(())\n```"
            )]
            #[track_caller]
            pub fn $all(&self) -> Result<Tensor> {
                self.reduce(ReduceFn::$f, &[], false)
            }

            $(#[$doc])*
            /// Over `axes`, which stay with extent 1 if `keepdims`. Errors: Axis, DType.
            ///
            #[doc = concat!(
                "```\n# use remat_tensor::Tensor;\n# let device = remat_runtime::Device::cpu(Default::default())?;\n",
                "let x = Tensor::new(&device, &[", stringify!($($x),*), "], [2, 2])?;\n",
                "let y = x.", stringify!($over), "(&[1], true)?;\n",
                "assert_eq!(y.dims(), [2, 1]);\n",
                "assert_eq!(y.to_vec::<", stringify!($t), ">()?, [", stringify!($($z),*), "]);",
                "\n# Ok::<(), remat_types::Error>(())\n```"
            )]
            #[track_caller]
            pub fn $over(&self, axes: &[isize], keepdims: bool) -> Result<Tensor> {
                self.reduce(ReduceFn::$f, axes, keepdims)
            }
        )* }
    };
}

reduce_methods! {
    /// The sum. Integers are added up as i64, unsigned ones as u64; bools are counted, as i64.
    sum, sum_over => Sum: [1.0, 2.0, 3.0, 4.0] => f32 10.0, [3.0, 7.0];
    /// The mean; that of integers and bools is f32.
    mean, mean_over => Mean: [1.0, 2.0, 3.0, 4.0] => f32 2.5, [1.5, 3.5];
    /// The product. Integers are multiplied as i64, unsigned ones as u64.
    prod, prod_over => Prod: [1.0, 2.0, 3.0, 4.0] => f32 24.0, [2.0, 12.0];
    /// The largest; ties share the gradient.
    max, max_over => Max: [1.0, 2.0, 3.0, 4.0] => f32 4.0, [2.0, 4.0];
    /// The smallest; ties share the gradient.
    min, min_over => Min: [1.0, 2.0, 3.0, 4.0] => f32 1.0, [1.0, 3.0];
    /// Whether any is true.
    any, any_over => Any: [false, false, true, false] => bool true, [false, true];
    /// Whether all are true.
    all, all_over => All: [true, true, true, false] => bool false, [true, false];
    /// The sum of squares.
    sum_sqr, sum_sqr_over => SumSqr: [1.0, 2.0, 3.0, 4.0] => f32 30.0, [5.0, 25.0];
}

impl Tensor {
    #[track_caller]
    fn axes(&self, axes: &[isize], op: &str) -> Result<SmallVec<[usize; 4]>> {
        if axes.is_empty() { Ok((0..self.rank()).collect()) } else { axes_of(axes, self.rank()).in_op(op) }
    }

    #[track_caller]
    fn reduce(&self, f: ReduceFn, axes: &[isize], keepdims: bool) -> Result<Tensor> {
        let widened = self.dtype().is_int();
        let f = match f {
            ReduceFn::Sum if widened => ReduceFn::SumWide,
            ReduceFn::Prod if widened => ReduceFn::ProdWide,
            f => f,
        };
        let mut op = Reduce { f, axes: SmallVec::new(), keepdims };
        op.axes = self.axes(axes, OpDef::label(&op))?;
        if f == ReduceFn::Mean && !self.dtype().is_float() {
            return Tensor::apply1(op, &[&self.cast(DType::F32)?]);
        }
        Tensor::apply1(op, &[self])
    }

    /// `ln sum e^x` over all elements. Errors: DType.
    #[track_caller]
    pub fn log_sum_exp(&self) -> Result<Tensor> {
        self.log_sum_exp_over(&[], false)
    }

    /// `ln sum e^x` over `axes` without overflow. Errors: Axis, DType.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1000.0, 1000.0], [2])?;
    /// assert_eq!(x.log_sum_exp_over(&[0], false)?.item::<f32>()?, 1000.0 + 2f32.ln());
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "logsumexp")]
    #[track_caller]
    pub fn log_sum_exp_over(&self, axes: &[isize], keepdims: bool) -> Result<Tensor> {
        Tensor::apply1(LogSumExp { axes: self.axes(axes, "log_sum_exp")?, keepdims }, &[self])
    }

    /// The variance of all elements, with the sum of squares divided by the count less `correction`. Errors: DType.
    #[track_caller]
    pub fn var(&self, correction: usize) -> Result<Tensor> {
        self.var_over(&[], false, correction)
    }

    /// The variance over `axes`, with the sum of squares divided by the count less `correction`: 1 is PyTorch's default,
    /// 0 NumPy's. Errors: Axis, DType.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 3.0, 10.0, 30.0], [2, 2])?;
    /// assert_eq!(x.var_over(&[1], false, 0)?.to_vec::<f32>()?, [1.0, 100.0]);
    /// assert_eq!(x.var_over(&[1], false, 1)?.to_vec::<f32>()?, [2.0, 200.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn var_over(&self, axes: &[isize], keepdims: bool, correction: usize) -> Result<Tensor> {
        Tensor::apply1(Var { axes: self.axes(axes, "var")?, keepdims, correction }, &[self])
    }

    /// The standard deviation of all elements: the root of [`Tensor::var`]. Errors: DType.
    #[track_caller]
    pub fn std(&self, correction: usize) -> Result<Tensor> {
        self.std_over(&[], false, correction)
    }

    /// The standard deviation over `axes`: the root of [`Tensor::var_over`], of squares that overflow in no dtype. Equal
    /// elements give 0, and a gradient of 0. Errors: Axis, DType.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 3.0, 10.0, 30.0], [2, 2])?;
    /// assert_eq!(x.std_over(&[1], false, 0)?.to_vec::<f32>()?, [1.0, 10.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn std_over(&self, axes: &[isize], keepdims: bool, correction: usize) -> Result<Tensor> {
        Tensor::apply1(Std { axes: self.axes(axes, "std")?, keepdims, correction }, &[self])
    }

    /// The Euclidean norm of all elements. Errors: DType.
    #[track_caller]
    pub fn norm(&self) -> Result<Tensor> {
        self.norm_over(&[], false)
    }

    /// The Euclidean norm over `axes`: the root of the sum of squares, which overflow in no dtype. Where it is 0 its gradient
    /// is 0. Errors: Axis, DType.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[3.0, 4.0, 0.0, -2.0], [2, 2])?;
    /// assert_eq!(x.norm_over(&[1], false)?.to_vec::<f32>()?, [5.0, 2.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn norm_over(&self, axes: &[isize], keepdims: bool) -> Result<Tensor> {
        compose::norm(&TapeCx::of(self), self.clone(), &self.axes(axes, "norm")?, keepdims)
    }

    /// Index of the first largest of all elements in row-major order, as i64. Errors: Shape for an empty tensor.
    #[track_caller]
    pub fn argmax(&self) -> Result<Tensor> {
        self.flatten_from(0)?.argmax_over(0, false).called("argmax")
    }

    /// Index of the first largest along `axis`, as i64. Errors: Axis; Shape along an empty axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 5.0, 5.0, 7.0, 2.0, 0.0], [2, 3])?;
    /// assert_eq!(x.argmax_over(1, false)?.to_vec::<i64>()?, [1, 0]);
    /// assert_eq!(x.argmax()?.item::<i64>()?, 3);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn argmax_over(&self, axis: isize, keepdims: bool) -> Result<Tensor> {
        let axis = axis_of(axis, self.rank()).in_op("argmax")?;
        Tensor::apply1(ArgReduce { f: ArgReduceFn::Argmax, axis, keepdims }, &[self]).called("argmax")
    }

    /// Index of the first smallest of all elements in row-major order, as i64. Errors: Shape for an empty tensor.
    #[track_caller]
    pub fn argmin(&self) -> Result<Tensor> {
        self.flatten_from(0)?.argmin_over(0, false).called("argmin")
    }

    /// Index of the first smallest along `axis`, as i64. Errors: Axis; Shape along an empty axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 5.0, 5.0, 7.0, 2.0, 0.0], [2, 3])?;
    /// assert_eq!(x.argmin_over(0, true)?.to_vec::<i64>()?, [0, 1, 1]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn argmin_over(&self, axis: isize, keepdims: bool) -> Result<Tensor> {
        let axis = axis_of(axis, self.rank()).in_op("argmin")?;
        Tensor::apply1(ArgReduce { f: ArgReduceFn::Argmin, axis, keepdims }, &[self]).called("argmin")
    }
}
