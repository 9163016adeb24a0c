use remat_ops::schema::Params;
use remat_ops::{Cost, EvalCx, GradCx, Grads, Op, OpDef, OpRef, Sample, Var};
use remat_types::{Fact, Facts, Result, SmallVec};

use super::body::{Body, plain};
use remat_device::program::Flow;

/// A graph as one op: its inputs are the graph's inputs, its outputs the graph's outputs.
///
/// Errors: Arity and Shape for inputs that are not as the graph's; those of its ops.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x..: any), gradient(x))]
pub struct Call {
    /// The graph that is called.
    pub body: Body,
}

impl Op for Call {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        self.body.infer(x)
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        super::eval_on_host(&Flow::Call(self.body.program(cx.pool.threads())?), cx)
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(g) = gradient(&self.body, cx, 0)? else { return Ok(SmallVec::from_elem(None, cx.x_count())) };
        let x: SmallVec<[Var; 8]> =
            (0..cx.x_count()).map(|i| cx.x(i)).chain(cotangents(cx, self.body.y().len())).collect();
        let dx = cx.apply_all(Call { body: g }, &x)?;
        Ok(given_back(cx, 0, &dx))
    }

    fn for_each_part(&self, see: &mut dyn FnMut(&dyn Op)) {
        self.body.for_each_part(see);
    }

    fn workspace(&self, _x: &[&Fact], threads: usize) -> usize {
        self.body.workspace(threads)
    }

    fn cost(&self, _x: &[&Fact], _y: &[Fact]) -> Cost {
        self.body.cost()
    }

    fn with_input_shapes(&self, x: &[&Fact]) -> Result<Option<OpRef>> {
        let x: Vec<Fact> = x.iter().map(|f| plain(f)).collect();
        Ok(self.body.with_input_shapes(&x)?.map(|body| Call { body }.into()))
    }

    fn repeatable(&self) -> bool {
        self.body.repeatable()
    }

    fn may_fail(&self) -> bool {
        self.body.may_fail()
    }
}

/// For each input from `first` on, true if its gradient is needed and exists.
fn needs(body: &Body, cx: &GradCx<'_>, first: usize) -> Vec<bool> {
    body.x().enumerate().map(|(i, f)| f.dtype.is_float() && cx.needs(first + i)).collect()
}

fn has_dy(body: &Body, cx: &GradCx<'_>) -> Vec<bool> {
    body.y().enumerate().map(|(j, f)| f.dtype.is_float() && cx.dy(j).is_some()).collect()
}

/// The cotangents that exist, in order.
pub(super) fn cotangents<'a>(cx: &'a GradCx<'_>, outputs: usize) -> impl Iterator<Item = Var> + 'a {
    (0..outputs).filter_map(|j| cx.dy(j).filter(|dy| cx.fact(*dy).dtype.is_float()))
}

/// The body of the gradient of an op that runs `body` on its inputs from `first` on. `None` if no gradient is needed.
pub(super) fn gradient(body: &Body, cx: &GradCx<'_>, first: usize) -> Result<Option<Body>> {
    let (needs, has_dy) = (needs(body, cx, first), has_dy(body, cx));
    if !needs.contains(&true) || !has_dy.contains(&true) {
        return Ok(None);
    }
    Body::new(body.graph().gradient(&needs, &has_dy)?).map(Some)
}

/// One gradient for each input of an op whose body begins at input `first`.
pub(super) fn given_back(cx: &GradCx<'_>, first: usize, dx: &[Var]) -> Grads {
    let mut dx = dx.iter().copied();
    (0..cx.x_count())
        .map(|i| {
            let wanted = i >= first && cx.needs(i) && cx.fact(cx.x(i)).dtype.is_float();
            if wanted { dx.next() } else { None }
        })
        .collect()
}

impl OpDef for Call {
    const NAME: &'static str = "call";

    fn samples() -> Vec<Sample<Self>> {
        super::samples::calls()
    }
}
