//! The two faces of an operator.
//!
//! [`Op`] is object-safe, and the runtime uses it. [`OpDef`] adds the parts that need the concrete type: identity, persistence
//! and examples. [`OpRef`] is the shared handle in which ops travel; its equality, hash and serial form come from the derives of
//! the struct ([`Params`] describes the parameters), so no cache ever trusts a hash alone, and no op writes equality by hand.

use std::any::Any;
use std::fmt::{self, Debug};
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use remat_comm::{Call, Communicator};
use remat_types::{DType, Error, ErrorKind, Fact, Facts, HostTensor, Layout, Result, Scalar};

use crate::pointwise::Pointwise;
use crate::schema::{Params, Schema};
use crate::{EvalCx, GradCx, Grads, Sample};

mod entry;

pub use entry::Entry;
pub(crate) use entry::{bad, entries};

/// An op's requirement on the layout of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutReq {
    /// Row-major without gaps; the runtime copies an input that is not.
    Contiguous,
    /// Any strides, zero and negative included.
    Strided,
}

/// An analytic estimate of an op's work: a prior for its time until that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Cost {
    /// Floating-point or integer operations; a fused multiply-add counts two.
    pub flops: u64,
    /// Bytes read and written.
    pub bytes: u64,
}

impl Cost {
    /// Every input read once, every output written once, one operation an output element.
    pub fn bytes(x: &[&Fact], y: &[Fact]) -> Self {
        let read: usize = x.iter().map(|f| f.bytes()).sum();
        let written: usize = y.iter().map(Fact::bytes).sum();
        let flops: usize = y.iter().map(Fact::elems).sum();
        Cost { flops: flops as u64, bytes: (read + written) as u64 }
    }

    /// This cost with another operation count.
    #[must_use]
    pub fn with_flops(self, flops: u64) -> Self {
        Cost { flops, ..self }
    }

    /// A prior in nanoseconds for one core: 20 GFLOP/s, 8 GB/s and 200 ns to start. Only its order of magnitude
    /// matters, since the first execution replaces it.
    pub fn prior_ns(&self) -> u64 {
        200 + self.flops / 20 + self.bytes / 8
    }
}

/// Which input of an op is a weight, and where its channels lie: see [`Op::weight_channels`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightChannels {
    /// The input that is the weight.
    pub input: usize,
    /// The axis of the weight that has an extent for each channel.
    pub weight_axis: usize,
    /// The axis of output 0 that the channels are.
    pub output_axis: usize,
}

/// The kind of an op, as passes see it, beside its facts.
#[derive(Clone, Debug)]
pub enum Class {
    /// A step of a chain of pointwise ops.
    Pointwise(Pointwise),
    /// Output 0 is input 0, repeated along axes that it does not have or has with extent 1.
    Broadcast,
    /// Nothing.
    Other,
}

impl Class {
    /// The range into which an op of one input moves its elements, if that is all it does.
    pub fn clamp_range(&self) -> Option<[Scalar; 2]> {
        let Class::Pointwise(p) = self else { return None };
        p.clamp_range()
    }

    /// The dtype to which an op converts its one input, if that is all it does.
    pub fn casts_to(&self) -> Option<DType> {
        match self {
            Class::Pointwise(Pointwise::Cast(cast)) => Some(cast.dtype),
            _ => None,
        }
    }

    /// True if an input of f32 beside others of 16-bit floats enters as it is.
    pub fn takes_mixed_floats(&self) -> bool {
        matches!(self, Class::Pointwise(Pointwise::Binary(_)))
    }
}

/// The object-safe face of an operator. Every default is the safe answer; `grad` has none.
pub trait Op: DynIdentity + Debug + Send + Sync + 'static {
    /// Dtype and shape of each output; the check of all arguments. Pure and quick.
    fn infer(&self, x: &[&Fact]) -> Result<Facts>;

    /// Computes the outputs, which are allocated, contiguous and uninitialised. This is the CPU's kernel; tests compare the
    /// kernels of other devices with it.
    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()>;

    /// The gradient of each input, written with ops; `None` for an input along which the op is not differentiable
    /// or whose gradient is not needed ([`GradCx::needs`]).
    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads>;

    /// Inputs whose value, not only their fact, decides an output's shape.
    fn host_inputs(&self) -> &'static [usize] {
        &[]
    }

    /// Inputs whose elements say a shape that the parameters foretell: `eval` fails where they say another.
    fn shape_inputs(&self) -> &'static [usize] {
        &[]
    }

    /// True if `eval` may fail for the values of inputs that are no integers: no state is overwritten before it has run.
    fn may_fail(&self) -> bool {
        !self.shape_inputs().is_empty() || self.ranks().is_some()
    }

    /// For an op that runs one of several graphs, where these values say which: that graph, as the crate of graphs has it,
    /// and the first input that goes to it.
    fn selected_subgraph(&self, _x: &[Option<&HostTensor>]) -> Option<(&dyn Any, usize)> {
        None
    }

    /// For an op that runs others within itself, a compiled graph or a loop: calls `see` with each of them.
    fn for_each_part(&self, _see: &mut dyn FnMut(&dyn Op)) {}

    /// The layout in which an input must come.
    fn layout(&self, _input: usize) -> LayoutReq {
        LayoutReq::Contiguous
    }

    /// Pairs (input, output) that may share storage when the input dies here: an input goes to one output at most, and an
    /// output takes one input at most. They have equal dtype and shape. An `eval` that returns an error other than
    /// Internal has not written them: a failed update leaves the old version behind.
    fn overwrite(&self) -> &[(usize, usize)] {
        &[]
    }

    /// For a metadata-only op: output 0 aliases input 0 under this layout. `None` means that a copy is needed, which
    /// `eval` makes.
    fn view(&self, _x: &Layout) -> Option<Layout> {
        None
    }

    /// Workspace in bytes for a pool of `threads`; a pure function of its arguments, so that a budget can count on it.
    fn workspace(&self, _x: &[&Fact], _threads: usize) -> usize {
        0
    }

    /// Estimated work.
    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        Cost::bytes(x, y)
    }

    /// The op that does the same for inputs of other extents, where its own parameters hold the old ones: for ops that own
    /// graphs. `None` if it is this op.
    ///
    /// Errors: if the graphs that it owns cannot have these inputs.
    fn with_input_shapes(&self, _x: &[&Fact]) -> Result<Option<OpRef>> {
        Ok(None)
    }

    /// The kind of the op, for passes.
    fn class(&self) -> Class {
        Class::Other
    }

    /// True if the op only rearranges, repeats, leaves out or converts the elements of its one input, so that on an `x` which
    /// comes out with the same dtype and shape it might as well not be there: whether it is so for this `x`.
    fn is_identity(&self, _x: &Fact) -> bool {
        false
    }

    /// The op that does at once what `first` does to an `x` and this op to the result of that, bit for bit.
    fn after(&self, _first: &dyn Op, _x: &Fact) -> Option<OpRef> {
        None
    }

    /// For an op that is linear in a weight, if each channel of output 0 reads its own slice of the weight: the axes of
    /// both, for inputs of these facts.
    fn weight_channels(&self, _x: &[&Fact]) -> Option<WeightChannels> {
        None
    }

    /// False for an op that must run exactly once: a collective, a user's callback.
    fn repeatable(&self) -> bool {
        self.ranks().is_none()
    }

    /// The ranks that all make this call, of a collective.
    fn ranks(&self) -> Option<&Communicator> {
        None
    }

    /// Called in place of [`Op::eval`] where the op cannot run, because an input failed or memory is short: a collective tells the other
    /// ranks, who would wait for this one.
    fn abandon(&self, why: &Error) {
        if let Some(ranks) = self.ranks() {
            // what keeps it from telling them is known to all of them alike: they do not come either
            let _ = ranks.fail(&Call::named(self.name()), why);
        }
    }
}

/// The static face of an operator: identity, description, persistence, examples.
pub trait OpDef: Op + Clone + Eq + Hash + Params {
    /// The name in serial forms, reports and errors. It is a contract: it never changes.
    const NAME: &'static str;

    /// The version of the meaning of the parameters.
    const VERSION: u32 = 1;

    /// The name shown to people where one struct serves many functions: `add`, `relu`.
    fn label(&self) -> &'static str {
        Self::NAME
    }

    /// The inputs and parameters of the op, as data.
    fn schema() -> Schema {
        Schema {
            name: Self::NAME,
            version: Self::VERSION,
            text: Self::TEXT,
            inputs: Self::inputs(),
            params: Self::params(),
        }
    }

    /// Examples that the harness runs; between them they cover each parameter, dtype class, tie, kink and error.
    fn samples() -> Vec<Sample<Self>>;
}

/// Identity of an op behind `dyn Op`; there is one implementation, for all [`OpDef`].
pub trait DynIdentity {
    /// [`OpDef::NAME`].
    fn name(&self) -> &'static str;
    /// [`OpDef::label`].
    fn label(&self) -> &'static str;
    /// Equality of type and parameters.
    fn dyn_eq(&self, other: &dyn Op) -> bool;
    /// Hash of name and parameters.
    fn dyn_hash(&self, state: &mut dyn Hasher);
    /// The serial form `{ "op": NAME, "v": VERSION, "params": .. }`.
    fn to_json(&self) -> Result<serde_json::Value>;
    /// For a typed downcast.
    fn as_any(&self) -> &dyn Any;
}

impl<T: OpDef> DynIdentity for T {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn label(&self) -> &'static str {
        OpDef::label(self)
    }

    fn dyn_eq(&self, other: &dyn Op) -> bool {
        other.as_any().downcast_ref::<T>().is_some_and(|o| o == self)
    }

    fn dyn_hash(&self, mut state: &mut dyn Hasher) {
        T::NAME.hash(&mut state);
        self.hash(&mut state);
    }

    fn to_json(&self) -> Result<serde_json::Value> {
        let params = serde_json::to_value(self)
            .map_err(|e| Error::new(ErrorKind::Format, format!("parameters do not serialise: {e}")).with_op(T::NAME))?;
        Ok(serde_json::json!({ "op": T::NAME, "v": T::VERSION, "params": params }))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A shared operator.
#[derive(Clone)]
pub struct OpRef(Arc<dyn Op>);

impl OpRef {
    /// Shares `op`.
    pub fn new(op: impl OpDef) -> Self {
        OpRef(Arc::new(op))
    }

    /// Shares an op that is no [`OpDef`]: one without a serial form, such as a compiled graph.
    pub fn from_shared(op: Arc<dyn Op>) -> Self {
        OpRef(op)
    }

    /// The concrete op, if it is a `T`.
    pub fn downcast<T: OpDef>(&self) -> Option<&T> {
        self.0.as_any().downcast_ref()
    }

    /// `infer`, with the op's label put into an error.
    pub fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        self.0.infer(x).map_err(|e| e.with_op(self.0.label()))
    }
}

impl<T: OpDef> From<T> for OpRef {
    fn from(op: T) -> Self {
        OpRef::new(op)
    }
}
impl Deref for OpRef {
    type Target = dyn Op;
    fn deref(&self) -> &(dyn Op + 'static) {
        &*self.0
    }
}
impl PartialEq for OpRef {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.dyn_eq(&*other.0)
    }
}
impl Eq for OpRef {}
impl Hash for OpRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.dyn_hash(state);
    }
}
impl Debug for OpRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Debug::fmt(&*self.0, f)
    }
}
