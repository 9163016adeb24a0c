//! NumPy's indexing, for reading and for assignment: `x.i((.., 2..5, &mask))` and `x.at((.., 0)).set(&y)`.
//!
//! Numbers and ranges are views. Index tensors, and masks, which are the index tensors of their true elements, are one read for
//! all of them; an assignment is one write.

use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use remat_ops::index::PutFn;
use remat_ops::pointwise::Arange;
use remat_ops::{Apply, compose};
use remat_types::{DType, Error, ErrorKind, Result, Shape, SmallVec, axis_of};

use super::{IntoOperand, Span};
use crate::Tensor;
use crate::site::InOp;
use crate::tape::TapeCx;

/// One part of an index: the elements to take from an axis, or from several.
#[derive(Clone, Debug)]
pub enum IndexPart {
    /// One place of an axis, which is gone from the result; it counts from the end if negative.
    At(isize),
    /// A range of an axis, and the step.
    Range(Span, isize),
    /// All of as many axes as the other parts leave: [`Ellipsis`].
    Ellipsis,
    /// A new axis of extent 1: [`NewAxis`].
    NewAxis,
    /// Of integers: the places of an axis, which may count from the end. Of bools: the places of as many axes as it has, where it
    /// is true.
    Tensor(Tensor),
}

/// All axes that the other parts of an index leave: `...` in Python.
#[derive(Clone, Copy, Debug)]
pub struct Ellipsis;

/// A new axis of extent 1: `None` in Python.
#[derive(Clone, Copy, Debug)]
pub struct NewAxis;

/// Every `step`-th element of a range, as `a..b..step` in Python: `by(.., -1)` is an axis reversed.
pub fn by(range: impl Into<Span>, step: isize) -> IndexPart {
    IndexPart::Range(range.into(), step)
}

impl From<Ellipsis> for IndexPart {
    fn from(_: Ellipsis) -> Self {
        IndexPart::Ellipsis
    }
}
impl From<NewAxis> for IndexPart {
    fn from(_: NewAxis) -> Self {
        IndexPart::NewAxis
    }
}
impl From<&Tensor> for IndexPart {
    fn from(t: &Tensor) -> Self {
        IndexPart::Tensor(t.clone())
    }
}
impl From<Tensor> for IndexPart {
    fn from(t: Tensor) -> Self {
        IndexPart::Tensor(t)
    }
}

macro_rules! ranges {
    ($($t:ty),*) => { $(
        impl From<$t> for IndexPart {
            fn from(r: $t) -> Self {
                IndexPart::Range(r.into(), 1)
            }
        }
    )* };
}
ranges!(
    Span,
    RangeFull,
    Range<isize>,
    RangeFrom<isize>,
    RangeTo<isize>,
    RangeInclusive<isize>,
    RangeToInclusive<isize>
);

impl From<isize> for IndexPart {
    fn from(at: isize) -> Self {
        IndexPart::At(at)
    }
}

/// The content of an index's brackets: one part, or a tuple, array or vector of them.
pub trait IntoIndex {
    /// The parts.
    fn parts(self) -> Vec<IndexPart>;
}

impl<P: Into<IndexPart>> IntoIndex for P {
    fn parts(self) -> Vec<IndexPart> {
        vec![self.into()]
    }
}
impl IntoIndex for Vec<IndexPart> {
    fn parts(self) -> Vec<IndexPart> {
        self
    }
}
impl IntoIndex for () {
    fn parts(self) -> Vec<IndexPart> {
        Vec::new()
    }
}

macro_rules! tuples {
    ($(($($p:ident),*))*) => { $(
        impl<$($p: Into<IndexPart>),*> IntoIndex for ($($p,)*) {
            #[allow(non_snake_case, reason = "values named as their types")]
            fn parts(self) -> Vec<IndexPart> {
                let ($($p,)*) = self;
                vec![$($p.into()),*]
            }
        }
    )* };
}
tuples! { (A) (A, B) (A, B, C) (A, B, C, D) (A, B, C, D, E) (A, B, C, D, E, F) (A, B, C, D, E, F, G) (A, B, C, D, E, F, G, H) }

/// The treatment of an axis of the indexed tensor, new axes included.
enum Axis {
    At(usize),
    /// First element, number of elements, step.
    Range(usize, usize, isize),
    Places(Tensor),
}

/// An index, fitted to a tensor.
struct Plan {
    /// For each axis of the tensor.
    axes: Vec<Axis>,
    /// Where new axes are put in: before so many axes of the tensor.
    new: Vec<usize>,
    /// Before which axis of the tensor an ellipsis stands.
    ellipsis: Option<usize>,
}

fn places_of(mask: &Tensor) -> Result<Vec<Tensor>> {
    let places = mask.nonzero()?;
    (0..mask.rank()).map(|a| places.select(1, a as isize)).collect()
}

impl Plan {
    /// Errors: Axis for more parts than axes, or several ellipses; Index for a place outside its axis; Shape for a mask of other
    /// extents; DType for an index tensor of floats; Value for a step of 0; those of reading a mask's count.
    fn new(shape: &Shape, parts: Vec<IndexPart>) -> Result<Plan> {
        let taken = |p: &IndexPart| match p {
            IndexPart::Ellipsis | IndexPart::NewAxis => 0,
            IndexPart::Tensor(t) if t.dtype() == DType::Bool => t.rank(),
            _ => 1,
        };
        let named: usize = parts.iter().map(taken).sum();
        if named > shape.rank() {
            let text = format!("the index names {named} axes, and shape {shape} has {}", shape.rank());
            return Err(Error::new(ErrorKind::Axis, text));
        }
        if parts.iter().filter(|p| matches!(p, IndexPart::Ellipsis)).count() > 1 {
            return Err(Error::new(ErrorKind::Axis, "an index has one ellipsis at most"));
        }
        let rest = shape.rank() - named;
        let mut plan = Plan { axes: Vec::new(), new: Vec::new(), ellipsis: None };
        let ends = !parts.iter().any(|p| matches!(p, IndexPart::Ellipsis));
        for part in parts.into_iter().chain(ends.then_some(IndexPart::Ellipsis)) {
            let axis = plan.axes.len();
            match part {
                IndexPart::Ellipsis => {
                    plan.ellipsis = (!ends).then_some(axis);
                    plan.axes.extend(shape[axis..axis + rest].iter().map(|&d| Axis::Range(0, d, 1)));
                }
                IndexPart::NewAxis => plan.new.push(axis),
                IndexPart::At(at) => {
                    let outside = |_| {
                        let text = format!("index {at} is outside axis {axis} of extent {}", shape[axis]);
                        Error::new(ErrorKind::Index, text)
                    };
                    plan.axes.push(Axis::At(axis_of(at, shape[axis]).map_err(outside)?));
                }
                IndexPart::Range(span, step) => {
                    let (start, len) = span.resolve(shape[axis], step)?;
                    plan.axes.push(Axis::Range(start, len, step));
                }
                IndexPart::Tensor(t) if t.dtype() == DType::Bool => {
                    let of = &shape[axis..axis + t.rank()];
                    if t.dims() != of {
                        let text = format!("a mask of shape {} for axes {axis} .. of shape {shape}", t.shape());
                        return Err(Error::new(ErrorKind::Shape, text));
                    }
                    if t.rank() == 0 {
                        return Err(Error::new(ErrorKind::Axis, "a mask of rank 0 names no axis"));
                    }
                    plan.axes.extend(places_of(&t)?.into_iter().map(Axis::Places));
                }
                IndexPart::Tensor(t) if !t.dtype().is_int() => {
                    let text = format!("an index tensor is of integers or bools, not {}", t.dtype());
                    return Err(Error::new(ErrorKind::DType, text));
                }
                IndexPart::Tensor(t) => plan.axes.push(Axis::Places(t)),
            }
        }
        Ok(plan)
    }

    fn has_tensors(&self) -> bool {
        self.axes.iter().any(|a| matches!(a, Axis::Places(_)))
    }

    /// The shape to which the index tensors broadcast. Errors: Shape.
    fn places(&self) -> Result<Shape> {
        let mut tensors = self.axes.iter().filter_map(|a| if let Axis::Places(t) = a { Some(t) } else { None });
        tensors.try_fold(Shape::scalar(), |s, t| s.broadcast(t.shape()))
    }

    /// Where the axes of the index tensors stand among the others that stay, ranges and new axes: NumPy's rule, by which a number
    /// beside index tensors is one of them, and an ellipsis parts them even if no axis is left for it.
    fn places_at(&self) -> usize {
        let mut stay = 0;
        let (mut first, mut last) = (None, None);
        let names = |axes: &[Axis]| axes.iter().any(|a| !matches!(a, Axis::Range(..)));
        if self.ellipsis.is_some_and(|e| names(&self.axes[..e]) && names(&self.axes[e..])) {
            return 0;
        }
        for (k, axis) in self.axes.iter().enumerate() {
            stay += self.new.iter().filter(|n| **n == k).count();
            match axis {
                Axis::Range(..) => stay += 1,
                Axis::At(_) | Axis::Places(_) => {
                    first.get_or_insert(stay);
                    last = Some(stay);
                }
            }
        }
        if first == last { first.unwrap_or(0) } else { 0 }
    }
}

/// The axes with those from `from`, `n` of them, moved so that they begin at `to` among the others.
fn moved(rank: usize, from: usize, n: usize, to: usize) -> Vec<isize> {
    let group: Vec<isize> = (from..from + n).map(|a| a as isize).collect();
    let mut order: Vec<isize> = (0..rank as isize).filter(|a| !group.contains(a)).collect();
    let behind = order.split_off(to);
    order.into_iter().chain(group).chain(behind).collect()
}

impl Tensor {
    /// The part of the tensor that an index names, by NumPy's rules. Parts of the index, for one axis after the other, are
    ///
    /// * a number: the axis is gone; it counts from the end if negative,
    /// * a range `a..b`, `..b`, `a..=b`, `..`, with a step by [`by`]: bounds count from the end if negative, and are cut,
    /// * [`Ellipsis`] for as many axes as the others leave, [`NewAxis`] for one more of extent 1,
    /// * a tensor of integers: several broadcast together, and their axes stand where the tensors stood side by side, else first,
    /// * a mask of bools for as many axes as it has: reads how many are true, see [`Tensor::as_size`].
    ///
    /// Without tensors the result is a view. Gradients go to the elements that were named, as often as they were.
    ///
    /// Errors: Axis for more parts than axes; Index for a number outside its axis, and at run time for such an element of an index
    /// tensor; Shape for index tensors that do not broadcast, or a mask of other extents; DType; Value for a step of 0.
    ///
    /// ```
    /// # use remat_tensor::{Ellipsis, NewAxis, Tensor, by, tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = tensor![&device; [1, 2, 3], [4, 5, 6]]?;
    /// assert_eq!(x.i(-1)?.to_vec::<i32>()?, [4, 5, 6]);
    /// assert_eq!(x.i((.., 1..))?.to_vec::<i32>()?, [2, 3, 5, 6]);
    /// assert_eq!(x.i((Ellipsis, by(.., -2)))?.to_vec::<i32>()?, [3, 1, 6, 4]);
    /// assert_eq!(x.i((0, NewAxis))?.dims(), [1, 3]);
    /// let (rows, columns) = (tensor![&device; 0, 1, 1]?, tensor![&device; 2, 0, -1]?);
    /// assert_eq!(x.i((&rows, &columns))?.to_vec::<i32>()?, [3, 4, 6]);
    /// assert_eq!(x.i(x.gt(3)?)?.to_vec::<i32>()?, [4, 5, 6]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "getitem")]
    #[track_caller]
    pub fn i(&self, index: impl IntoIndex) -> Result<Tensor> {
        let plan = Plan::new(self.shape(), index.parts()).in_op("i")?;
        let (mut y, mut axis) = (self.clone(), 0);
        let (mut axes, mut tensors): (Vec<usize>, Vec<Tensor>) = Default::default();
        for (k, part) in plan.axes.iter().enumerate() {
            for _ in plan.new.iter().filter(|n| **n == k) {
                y = y.unsqueeze(axis as isize)?;
                axis += 1;
            }
            match part {
                Axis::At(at) => {
                    y = compose::select(&TapeCx::of(self), y, axis, *at)?;
                    continue;
                }
                Axis::Range(start, len, step) if (*start, *len, *step) != (0, y.dims()[axis], 1) => {
                    let op = remat_ops::shape::Slice { axis, start: *start, len: *len, step: *step };
                    y = Tensor::apply_owned(op, [y])?;
                }
                Axis::Range(..) => {}
                Axis::Places(t) => {
                    axes.push(axis);
                    tensors.push(t.clone());
                }
            }
            axis += 1;
        }
        for _ in plan.new.iter().filter(|n| **n == plan.axes.len()) {
            y = y.unsqueeze(axis as isize)?;
            axis += 1;
        }
        if axes.is_empty() {
            return Ok(y);
        }
        let places = plan.places().in_op("i")?.rank();
        let side_by_side = axes.windows(2).all(|w| w[0] + 1 == w[1]);
        let stands = if side_by_side { axes[0] } else { 0 };
        let y = compose::index(&TapeCx::of(self), y, &axes, tensors).called("i")?;
        match plan.places_at() {
            to if to == stands => Ok(y),
            to => y.permute(&moved(y.rank(), stands, places, to)),
        }
    }

    /// The places that an index names, for assignment: `x.at((0, ..)).set(&row)?` is `x` with another first row, as JAX's `at`. An
    /// index is that of [`Tensor::i`]. The tensor itself stays as it is; if it dies, its memory becomes the result's.
    #[doc(alias = "setitem")]
    pub fn at(self, index: impl IntoIndex) -> Places {
        Places { x: self, parts: index.parts() }
    }
}

/// Places of a tensor. A method writes to them and returns a new tensor: see [`Tensor::at`].
#[must_use = "assignment is by one of its methods"]
#[derive(Clone, Debug)]
pub struct Places {
    x: Tensor,
    parts: Vec<IndexPart>,
}

macro_rules! assignments {
    ($($(#[$doc:meta])* $name:ident => $f:ident;)*) => {
        // by names of JAX's `at`: they name the action at the places, and are no arithmetic
        #[expect(clippy::should_implement_trait, reason = "the index stands between")]
        impl Places { $(
            $(#[$doc])*
            /// The value is a number, or a tensor that broadcasts to what [`Tensor::i`] gives. Gradients go to tensor and value.
            /// Errors: those of [`Tensor::i`]; Shape for a value that does not broadcast; DType for one of another dtype.
            #[track_caller]
            pub fn $name(self, value: impl IntoOperand) -> Result<Tensor> {
                self.put(PutFn::$f, value, concat!("at.", stringify!($name)))
            }
        )* }
    };
}
assignments! {
    /// The tensor with `value` at the places; if several elements go to one place, the last one stays.
    ///
    /// ```
    /// # use remat_tensor::{Tensor, tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = tensor![&device; [1, 2, 3], [4, 5, 6]]?;
    /// let y = x.clone().at((.., 1..)).set(0)?;
    /// assert_eq!(y.to_vec::<i32>()?, [1, 0, 0, 4, 0, 0]);
    /// let y = x.clone().at(x.lt(3)?).set(9)?;
    /// assert_eq!(y.to_vec::<i32>()?, [9, 9, 3, 4, 5, 6]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    set => Set;
    /// The tensor with `value` added at the places, as often as a place is named.
    ///
    /// ```
    /// # use remat_tensor::{Tensor, tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = tensor![&device; 1.0, 2.0, 3.0]?;
    /// let y = x.at(tensor![&device; 0, 0, -1]?).add(tensor![&device; 10.0, 20.0, 30.0]?)?;
    /// assert_eq!(y.to_vec::<f32>()?, [31.0, 2.0, 33.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    add => Add;
    /// The tensor multiplied by `value` at the places.
    mul => Mul;
    /// The tensor with the larger of its element and `value` at the places.
    max => Max;
    /// The tensor with the smaller of its element and `value` at the places.
    min => Min;
}

impl Places {
    #[track_caller]
    fn put(self, f: PutFn, value: impl IntoOperand, name: &str) -> Result<Tensor> {
        let Places { x, parts } = self;
        let value = value.operand(&x).called(name)?;
        let plan = Plan::new(x.shape(), parts).in_op(name)?;
        let places = plan.places().in_op(name)?;
        // the result of reading: its extents, and for each the axis of `x` that it is a range of
        let mut ranges: Vec<(usize, Option<usize>)> = Vec::new();
        for (k, axis) in plan.axes.iter().enumerate() {
            ranges.extend(plan.new.iter().filter(|n| **n == k).map(|_| (1, None)));
            if let Axis::Range(_, len, _) = axis {
                ranges.push((*len, Some(k)));
            }
        }
        ranges.extend(plan.new.iter().filter(|n| **n == plan.axes.len()).map(|_| (1, None)));
        let at = if plan.has_tensors() { plan.places_at() } else { 0 };
        let n = places.rank();
        let mut read: Vec<usize> = ranges.iter().map(|r| r.0).collect();
        read.splice(at..at, places.iter().copied());
        // the value as it is read, without the new axes, the axes of the index tensors first
        let mut value = value.broadcast_to(read.as_slice()).called(name)?;
        let new = ranges.iter().enumerate().filter(|(_, r)| r.1.is_none());
        let new: Vec<isize> = new.map(|(i, _)| (if i < at { i } else { i + n }) as isize).collect();
        let before = ranges[..at].iter().filter(|r| r.1.is_some()).count();
        if !new.is_empty() {
            value = value.squeeze(&new)?;
        }
        let kept: Vec<usize> = ranges.iter().filter_map(|r| r.1).collect();
        let whole = |k: usize| matches!(plan.axes[k], Axis::Range(0, len, 1) if len == x.dims()[k]);
        // axes that are written in part are named by index tensors, which broadcast in this order: those given, then the ranges
        let part: Vec<usize> = kept.iter().copied().filter(|&k| !whole(k)).collect();
        let named: Vec<usize> = (0..x.rank()).filter(|&k| !whole(k)).collect();
        if named.is_empty() {
            // all of it: one index tensor that says so
            let all = count(&x, 0, 1, x.elems())?;
            let flat = [x.reshape(&[-1])?, value.contiguous()?.reshape(&[-1])?];
            let shape: Vec<isize> = x.dims().iter().map(|d| *d as isize).collect();
            let [x, value] = flat;
            let y = compose::put_at(&TapeCx::of(&x), f, x.clone(), &[0], vec![all], value).called(name)?;
            return y.reshape(&shape);
        }
        let mut indices = Vec::with_capacity(named.len());
        for &k in &named {
            indices.push(match &plan.axes[k] {
                Axis::At(at) => Tensor::full(&x.device(), Shape::scalar(), DType::I64, *at as i64)?,
                Axis::Places(t) => spread(t, part.len())?,
                Axis::Range(start, len, step) => {
                    let all = count(&x, *start, *step, *len)?;
                    let behind = part.iter().skip_while(|p| **p != k).count() - 1;
                    spread(&all, behind)?
                }
            });
        }
        // axes of `value` now: ranges before, index tensors, ranges behind
        let axis_in_value = |k: usize| {
            let i = kept.iter().position(|r| *r == k).unwrap_or(0);
            if i < before { i } else { i + n }
        };
        let group: Vec<usize> = (before..before + n).chain(part.iter().map(|&k| axis_in_value(k))).collect();
        let others: Vec<usize> = kept.iter().copied().filter(|&k| whole(k)).map(axis_in_value).collect();
        let side_by_side = named.windows(2).all(|w| w[0] + 1 == w[1]);
        let stands = if side_by_side { named[0] } else { 0 };
        let order: SmallVec<[isize; 8]> =
            others[..stands].iter().chain(&group).chain(&others[stands..]).map(|a| *a as isize).collect();
        let value = value.permute(&order)?;
        compose::put_at(&TapeCx::of(&x), f, x, &named, indices, value).called(name)
    }
}

/// `len` places from `start` on.
#[track_caller]
fn count(like: &Tensor, start: usize, step: isize, len: usize) -> Result<Tensor> {
    let op = Arange { dtype: DType::I64, start: (start as i64).into(), step: (step as i64).into(), len };
    TapeCx::of(like).apply1(op, [])
}

/// An index tensor with `behind` axes of extent 1 after its own.
#[track_caller]
fn spread(t: &Tensor, behind: usize) -> Result<Tensor> {
    let shape: Vec<isize> = t.dims().iter().map(|d| *d as isize).chain(std::iter::repeat_n(1, behind)).collect();
    t.reshape(&shape)
}
