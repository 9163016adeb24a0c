use remat_comm::{Call, Communicator};
use remat_types::{DType, Error, ErrorKind, Fact, Facts, Result, Shape, smallvec};

use super::call;
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// The name of both sides' call.
const MESSAGE: &str = "message";

/// Tells rank `peer` that this rank gives up the next message between both.
fn abandon(group: &Communicator, peer: usize, why: &Error) {
    let _ = group.fail_message(&Call::named(MESSAGE), peer, why);
}

/// Sends `x` to rank `to`, which [receives](Receive) it. `y` has no elements, `[0]`: an op that must run afterwards takes it as
/// an input. Its gradient receives the gradient of the other rank.
///
/// Returns when the other rank has it: two ranks that both send, or both receive, get an error (Peer).
///
/// Errors: Value for this rank, or one that does not exist; Peer if that rank failed, does not come, or receives something else.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any), gradient(x))]
pub struct Send {
    /// The rank that receives it.
    pub to: usize,
    /// The ranks.
    pub group: Communicator,
}

impl Op for Send {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        self.group.check_peer(self.to)?;
        Ok(smallvec![Fact::new(x[0].dtype, [0])])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let x = &cx.x[0];
        let call = call(MESSAGE, "", &Fact::new(x.dtype(), x.shape().clone()));
        self.group.send(&call, self.to, x.element_bytes()?)
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None]) };
        let x = cx.fact(cx.x(0));
        let back = Receive { from: self.to, dtype: x.dtype, shape: x.shape, group: self.group.clone() };
        Ok(smallvec![Some(cx.apply(back, &[dy])?)])
    }

    fn ranks(&self) -> Option<&Communicator> {
        Some(&self.group)
    }

    fn abandon(&self, why: &Error) {
        abandon(&self.group, self.to, why);
    }
}

impl OpDef for Send {
    const NAME: &'static str = "send";

    fn samples() -> Vec<Sample<Self>> {
        let op = |to| Send { to, group: Communicator::alone() };
        let x = || t(&[1.0f32, -2., 3., 4.], [2, 2]);
        vec![
            Sample::new(op(0), vec![x()]).fails(ErrorKind::Value),
            Sample::new(op(1), vec![x()]).fails(ErrorKind::Value),
            Sample::new(op(1), vec![]).fails(ErrorKind::Arity),
        ]
    }
}

/// `y` is the tensor that rank `from` [sends](Send), of this dtype and shape. `x` has no elements, `[0]` of that dtype: it is an
/// output of an op that must run before.
///
/// Errors: DType and Shape for another `x`; Value for this rank, or one that does not exist; Peer if that rank failed, does not come,
/// or sends something else.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any), gradient(x))]
pub struct Receive {
    /// The rank that sends it.
    pub from: usize,
    /// Its element type.
    pub dtype: DType,
    /// Its extents.
    pub shape: Shape,
    /// The ranks.
    pub group: Communicator,
}

impl Op for Receive {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        crate::args::want_dtype(x[0], self.dtype, "x")?;
        crate::args::want_shape(x[0], &[0], "x")?;
        self.group.check_peer(self.from)?;
        self.shape.checked_elems()?;
        Ok(smallvec![Fact::new(self.dtype, self.shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let call = call(MESSAGE, "", &Fact::new(self.dtype, self.shape.clone()));
        self.group.receive(&call, self.from, cx.y[0].bytes_mut())
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None]) };
        Ok(smallvec![Some(cx.apply(Send { to: self.from, group: self.group.clone() }, &[dy])?)])
    }

    fn ranks(&self) -> Option<&Communicator> {
        Some(&self.group)
    }

    fn abandon(&self, why: &Error) {
        abandon(&self.group, self.from, why);
    }
}

impl OpDef for Receive {
    const NAME: &'static str = "receive";

    fn samples() -> Vec<Sample<Self>> {
        let op = |from, shape: &[usize]| Receive {
            from,
            dtype: DType::F32,
            shape: Shape::from(shape),
            group: Communicator::alone(),
        };
        let token = || t::<f32>(&[], [0]);
        vec![
            Sample::new(op(0, &[2, 2]), vec![token()]).fails(ErrorKind::Value),
            Sample::new(op(1, &[3]), vec![token()]).fails(ErrorKind::Value),
            Sample::new(op(1, &[3]), vec![t::<f64>(&[], [0])]).fails(ErrorKind::DType),
            Sample::new(op(1, &[3]), vec![t(&[1.0f32], [1])]).fails(ErrorKind::Shape),
            Sample::new(op(1, &[3]), vec![]).fails(ErrorKind::Arity),
        ]
    }
}
