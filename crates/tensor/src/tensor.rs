//! The tensor handle itself: creation, reading, autodiff state.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use remat_ops::OpRef;
use remat_runtime::{Channel, Device, Handle, Kind};
use remat_types::{CallSite, DType, Element, Error, ErrorKind, HostTensor, Result, Shape, SmallVec};

use crate::literal::{self, Literal, NestedLiteral};
use crate::site::InOp;
use crate::tape::{self, Edge, GradHook, Hook, Leaf, Node, NodeKind, RowGrad, TensorSpec, capture_gradient, lock};

/// An n-dimensional array on a device. Cloning is cheap and refers to the same data; data never changes under a
/// tensor, updates make a new version.
#[derive(Clone)]
pub struct Tensor {
    pub(crate) handle: Handle,
    pub(crate) edge: Option<Edge>,
}

impl Tensor {
    /// A tensor of `data` in row-major order, of any element type but f64: literals such as `&[1.0, 2.0]` are f32.
    /// [`Tensor::of`] takes nested arrays, [`Tensor::from_slice`] f64 too. Errors: Shape if the number of elements differs;
    /// Closed.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 3.0, 4.0], [2, 2])?;
    /// assert_eq!(x.dtype(), remat_types::DType::F32);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn new<T: Literal>(device: &Device, data: &[T], shape: impl Into<Shape>) -> Result<Tensor> {
        Tensor::from_host(device, &HostTensor::from_slice(data, shape).in_op("new")?)
    }

    /// A tensor of nested arrays: the shape is theirs. [`tensor!`](crate::tensor!) writes the same with fewer brackets.
    /// Errors: Closed.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::of(&device, [[1.0, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(x.to_string(), "[[1.0, 2.0],\n [3.0, 4.0]]  f32[2, 2]");
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn of(device: &Device, nested: impl NestedLiteral) -> Result<Tensor> {
        Tensor::from_host(device, &literal::host(nested).in_op("of")?)
    }

    /// A tensor of `data` in row-major order, of any element type. Errors: as [`Tensor::new`].
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::from_slice(&device, &[1.0, 2.0], [2])?;
    /// assert_eq!(x.dtype(), remat_types::DType::F64);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn from_slice<T: Element>(device: &Device, data: &[T], shape: impl Into<Shape>) -> Result<Tensor> {
        Tensor::from_host(device, &HostTensor::from_slice(data, shape).in_op("from_slice")?)
    }

    /// A copy of a host tensor. Errors: Closed.
    #[track_caller]
    pub fn from_host(device: &Device, data: &HostTensor) -> Result<Tensor> {
        Ok(Tensor::from_handle(device.channel().put(data)?))
    }

    /// A tensor of rank 0: a literal with a point is f32. Errors: Closed.
    #[track_caller]
    pub fn scalar<T: Literal>(device: &Device, value: T) -> Result<Tensor> {
        Tensor::from_host(device, &HostTensor::scalar(value))
    }

    /// A tensor of a runtime handle, without history.
    pub fn from_handle(handle: Handle) -> Tensor {
        Tensor { handle, edge: None }
    }

    /// The runtime handle.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The runtime handle, taken out: the last one on a tensor lets an op reuse its storage.
    pub fn into_handle(self) -> Handle {
        self.handle
    }

    /// A channel to the tensor's device.
    pub fn channel(&self) -> Channel {
        self.handle.channel()
    }

    /// The tensor's device.
    pub fn device(&self) -> Device {
        self.handle.channel().device()
    }

    /// Extents; never waits.
    pub fn shape(&self) -> &Shape {
        &self.handle.fact().shape
    }

    /// Extents as a slice; never waits.
    pub fn dims(&self) -> &[usize] {
        self.handle.fact().shape.dims()
    }

    /// The extents, if there are `N` axes. Errors (Shape) otherwise.
    #[track_caller]
    pub fn dims_n<const N: usize>(&self) -> Result<[usize; N]> {
        let wrong = |_| Error::new(ErrorKind::Shape, format!("expected rank {N}, got shape {}", self.shape()));
        self.dims().try_into().map_err(wrong).in_op("dims_n")
    }

    /// Number of axes; never waits.
    pub fn rank(&self) -> usize {
        self.shape().rank()
    }

    /// Number of elements; never waits.
    pub fn elems(&self) -> usize {
        self.shape().elems()
    }

    /// Element type; never waits.
    pub fn dtype(&self) -> DType {
        self.handle.fact().dtype
    }

    /// The value on the host; waits for this tensor only. Errors: what made it fail, see [`Channel::value`]; Io if the host
    /// has no memory for it, as of a view that repeats a small storage.
    #[track_caller]
    pub fn to_host(&self) -> Result<HostTensor> {
        self.channel().value(&self.handle)
    }

    /// The elements in row-major order; waits. Errors: DType if they are of another type; as [`Tensor::to_host`].
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.to_host()?.to_vec().in_op("to_vec")
    }

    /// The only element; waits. Errors: Shape if there is not exactly one; as [`Tensor::to_vec`].
    #[track_caller]
    pub fn item<T: Element>(&self) -> Result<T> {
        if self.elems() != 1 {
            // before it is waited for, and its elements, however many, are copied
            let text = format!("shape {} holds not one element", self.shape());
            return Err(Error::new(ErrorKind::Shape, text)).in_op("item");
        }
        self.to_host()?.item().in_op("item")
    }

    /// Frees the bytes now if they can be recomputed; the tensor stays good.
    pub fn drop_value(&self) -> Result<()> {
        self.channel().drop_value(&self.handle)
    }

    /// Counts the bytes as `kind` in memory reports.
    pub fn tag(&self, kind: Kind) -> Result<()> {
        self.channel().tag(&self.handle, kind)
    }

    /// Applies an op to tensors, recording it where a gradient is wanted. Every method goes through here.
    ///
    /// Errors: what inference finds, Arity without inputs.
    #[track_caller]
    pub fn apply(op: impl Into<OpRef>, x: &[&Tensor]) -> Result<SmallVec<[Tensor; 2]>> {
        tape::apply(op.into(), x.iter().map(|t| (*t).clone()).collect(), CallSite::here())
    }

    /// As [`Tensor::apply`] for an op with one output.
    #[track_caller]
    pub fn apply1(op: impl Into<OpRef>, x: &[&Tensor]) -> Result<Tensor> {
        let mut y = tape::apply(op.into(), x.iter().map(|t| (*t).clone()).collect(), CallSite::here())?;
        Ok(y.swap_remove(0))
    }

    /// As [`Tensor::apply1`], taking the inputs: one that dies here may give its storage to the output.
    #[track_caller]
    pub fn apply_owned(op: impl Into<OpRef>, x: impl IntoIterator<Item = Tensor>) -> Result<Tensor> {
        let mut y = tape::apply(op.into(), x.into_iter().collect(), CallSite::here())?;
        Ok(y.swap_remove(0))
    }

    /// The same data without history.
    pub fn detach(&self) -> Tensor {
        Tensor::from_handle(self.handle.clone())
    }

    /// The same data as a new leaf: [`Tensor::backward`] accumulates its gradient. Errors (DType) for other than
    /// floats.
    #[track_caller]
    pub fn requires_grad(&self) -> Result<Tensor> {
        let leaf = self.as_leaf(Arc::default()).in_op("requires_grad")?;
        self.channel().note_leaf(&self.handle)?;
        Ok(leaf)
    }

    fn as_leaf(&self, leaf: Arc<Leaf>) -> Result<Tensor> {
        if !self.dtype().is_float() {
            let text = format!("only float tensors can require a gradient, this one is {}", self.dtype());
            return Err(Error::new(ErrorKind::DType, text));
        }
        let node = Node::leaf(self.handle.id().order(), leaf);
        Ok(Tensor { handle: self.handle.clone(), edge: Some(Edge { node, output: 0 }) })
    }

    pub(crate) fn leaf(&self) -> Option<&Arc<Leaf>> {
        match &self.edge.as_ref()?.node.kind {
            NodeKind::Leaf(l) => Some(l),
            _ => None,
        }
    }

    /// A version of a leaf, or of a tensor without history.
    pub(crate) fn of_version(handle: Handle, leaf: Option<Arc<Leaf>>) -> Result<Tensor> {
        let t = Tensor::from_handle(handle);
        leaf.map_or_else(|| Ok(t.clone()), |leaf| t.as_leaf(leaf))
    }

    /// The next version of this leaf: `update` gets the handle, the last one if this was the last tensor on it, and
    /// returns that of the new data, of the same dtype and shape. The accumulated gradient and the hooks carry over.
    /// Errors: Value if this is no leaf; Shape if dtype or shape differ; those of `update`.
    pub fn update_leaf(self, update: impl FnOnce(Handle) -> Result<Handle>) -> Result<Tensor> {
        let leaf = self.leaf().ok_or_else(|| Error::new(ErrorKind::Value, "only a leaf has versions"))?.clone();
        let old = self.handle.fact().clone();
        let Tensor { handle, edge } = self;
        drop(edge);
        let new = Tensor::from_handle(update(handle)?);
        if !new.handle.fact().same_type(&old) {
            let f = new.handle.fact();
            let text = format!("a version of {} {} cannot be {} {}", old.dtype, old.shape, f.dtype, f.shape);
            return Err(Error::new(ErrorKind::Shape, text));
        }
        new.as_leaf(leaf)
    }

    /// True if gradients flow to or through this tensor.
    pub fn is_tracked(&self) -> bool {
        self.edge.is_some()
    }

    /// True if [`Tensor::backward`] accumulates a gradient here.
    pub fn is_leaf(&self) -> bool {
        self.leaf().is_some()
    }

    /// The gradient accumulated so far.
    pub fn grad(&self) -> Option<Tensor> {
        let leaf = self.whole_grad()?;
        lock(&leaf.grad).clone()
    }

    /// Takes the accumulated gradient out.
    pub fn take_grad(&self) -> Option<Tensor> {
        let leaf = self.whole_grad()?;
        lock(&leaf.grad).take()
    }

    /// The leaf, whose gradient is a tensor from now on. What could fail is a device that was closed: what it had is gone.
    fn whole_grad(&self) -> Option<&Arc<Leaf>> {
        let leaf = self.leaf()?;
        capture_gradient(leaf);
        leaf.fold_rows(self.handle.fact(), CallSite::here()).ok()?;
        Some(leaf)
    }

    /// Takes the accumulated gradient out if it is rows ([`Tensor::embedding_rows`]); nothing, and nothing happens, if it is a tensor or
    /// there is none.
    pub fn take_grad_rows(&self) -> Option<Vec<RowGrad>> {
        let leaf = self.leaf()?;
        capture_gradient(leaf);
        let rows = std::mem::take(&mut *lock(&leaf.rows));
        (!rows.is_empty()).then_some(rows)
    }

    /// Bytes of the accumulated gradient, be it a tensor or rows.
    pub fn grad_bytes(&self) -> usize {
        let Some(leaf) = self.leaf() else { return 0 };
        capture_gradient(leaf);
        let bytes = |t: &Tensor| t.handle.fact().bytes();
        let rows: usize = lock(&leaf.rows).iter().map(|r| bytes(&r.index) + bytes(&r.rows)).sum();
        rows + lock(&leaf.grad).as_ref().map_or(0, bytes)
    }

    /// Replaces the accumulated gradient. Errors: Value if this is no leaf; Shape for another dtype or shape; Device
    /// for a tensor of another device.
    #[track_caller]
    pub fn set_grad(&self, grad: Option<Tensor>) -> Result<()> {
        let leaf = self.leaf().ok_or_else(|| Error::new(ErrorKind::Value, "only a leaf has a gradient"));
        let leaf = leaf.in_op("set_grad")?;
        grad.as_ref().map_or(Ok(()), |g| TensorSpec::of(self).check(g)).in_op("set_grad")?;
        capture_gradient(leaf);
        if grad.is_none() {
            leaf.is_grad_reduced.store(false, Ordering::Relaxed);
        }
        lock(&leaf.rows).clear();
        *lock(&leaf.grad) = grad;
        Ok(())
    }

    /// True if there is a gradient, and it is that of all ranks together: [`Tensor::mark_grad_reduced`] said so.
    pub fn has_reduced_grad(&self) -> bool {
        let Some(leaf) = self.leaf() else { return false };
        capture_gradient(leaf);
        lock(&leaf.grad).is_some() && leaf.is_grad_reduced.load(Ordering::Relaxed)
    }

    /// Says that the gradient here is that of all ranks together. So is what a program puts in its place, clipped or scaled. It ends where
    /// `None` is put there, and where a backward pass begins a new gradient. Does nothing to what is no leaf.
    pub fn mark_grad_reduced(&self) {
        let Some(leaf) = self.leaf() else { return };
        capture_gradient(leaf);
        leaf.is_grad_reduced.store(true, Ordering::Relaxed);
    }

    /// Calls `hook` with this leaf's gradient as soon as it is complete in a backward pass, before accumulation. [`grad`](crate::grad),
    /// which accumulates nothing, does not.
    /// What comes back takes it out again, and may be dropped. Errors: Value if this is no leaf. An error of the hook ends the pass.
    #[track_caller]
    pub fn on_grad(&self, hook: impl Fn(&Tensor) -> Result<()> + Send + Sync + 'static) -> Result<GradHook> {
        self.give_hook("on_grad", false, move |g| hook(g).map(|()| None))
    }

    /// As [`Tensor::on_grad`], for a hook that may give another gradient, of the same dtype and shape, which later hooks see and which is
    /// accumulated, or which [`grad`](crate::grad) gives: it calls this hook, too. Errors: as there; Shape or Device, of the pass, for a
    /// gradient that cannot be this leaf's.
    #[track_caller]
    pub fn map_grad(
        &self,
        hook: impl Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static,
    ) -> Result<GradHook> {
        self.give_hook("map_grad", true, hook)
    }

    /// As [`Tensor::map_grad`], of backward passes alone: for what belongs to accumulation, such as the sum over ranks.
    #[track_caller]
    pub fn map_accumulated_grad(
        &self,
        hook: impl Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static,
    ) -> Result<GradHook> {
        self.give_hook("map_accumulated_grad", false, hook)
    }

    #[track_caller]
    fn give_hook(
        &self,
        method: &'static str,
        is_of_value: bool,
        hook: impl Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static,
    ) -> Result<GradHook> {
        let leaf = self.leaf().ok_or_else(|| Error::new(ErrorKind::Value, "only a leaf has gradient hooks"));
        let leaf = leaf.in_op(method)?;
        let spec = TensorSpec::of(self);
        let checked = move |g: &Tensor| {
            let other = hook(g)?;
            other.as_ref().map_or(Ok(()), |g| spec.check(g)).in_op(method)?;
            Ok(other)
        };
        Ok(GradHook::give(leaf, Hook { f: Arc::new(checked), is_of_value }))
    }
}

impl fmt::Debug for Tensor {
    /// Dtype and shape, and the first elements of a small constant, which are known. Never waits for a value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.handle.fact().value {
            Some(v) => write!(f, "Tensor({v:?})"),
            None => write!(f, "Tensor({}{})", self.dtype(), self.shape()),
        }
    }
}

impl fmt::Display for Tensor {
    /// The value as [`HostTensor`] shows it: nested rows, aligned, dtype and shape behind; precision and width count. Waits
    /// for it. An error is shown in its place.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_host() {
            Ok(v) => fmt::Display::fmt(&v, f),
            Err(e) => write!(f, "{self:?}: {e}"),
        }
    }
}

/// A tensor on a device, written out: `tensor![&device; 1.0, 2.0]` is a vector, `tensor![&device; [1, 2], [3, 4]]` a matrix.
/// Floats are f32. Gives a [`Result`](remat_types::Result); rows of unequal length do not compile.
///
/// ```
/// use remat_tensor::tensor;
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// let w = tensor![&device; [1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]?;
/// assert_eq!((w.dims(), w.dtype().name()), (&[2, 3][..], "f32"));
/// let labels = tensor![&device; 3, 1, 2]?;
/// assert_eq!(labels.to_vec::<i32>()?, [3, 1, 2]);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[macro_export]
macro_rules! tensor {
    ($device:expr; $($row:expr),* $(,)?) => {
        $crate::Tensor::of($device, [$($row),*])
    };
}
