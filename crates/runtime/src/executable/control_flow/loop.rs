use std::sync::Arc;

use remat_ops::schema::Params;
use remat_ops::{Cost, EvalCx, GradCx, Grads, Op, OpDef, OpRef, Sample};
use remat_types::{DType, Error, ErrorKind, Fact, Facts, Result, Shape};

use super::body::{Body, plain};
use remat_device::Alignment;
use remat_device::program::Program;
use remat_device::program::{Flow, LoopProgram, carried_bytes, loop_workspace_bytes};

/// A graph that runs again and again on its own results.
///
/// ```text
/// inputs   carried values . one slice a step . constants . (count)
/// outputs  carried values . one slice a step . (steps made)
/// body     (step: i64[], carried.., slices.., constants..) -> (carried.., slices.., (go on: bool[]))
/// ```
///
/// Each step reads row `step` of the sliced inputs (`[trips, ..]`) and writes that row of the sliced outputs
/// (`[trips, ..]`). Rows of steps that are not made are 0. Carried values keep their types.
///
/// Errors: Value for parameters that contradict each other; Arity, DType and Shape for a body or inputs that do not
/// fit; those of the body.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x..: any), gradient(x))]
pub struct Loop {
    /// The graph of one step.
    pub body: Body,
    /// The number of steps, or the most.
    pub trips: usize,
    /// The number of carried values.
    pub carried: usize,
    /// The number of inputs that are read row by row.
    pub sliced: usize,
    /// Steps go from the last to the first.
    #[param(default = false)]
    pub reverse: bool,
    /// The last input, an I64 of rank 0, says how many steps are made: at least none, at most `trips`.
    #[param(default = false)]
    pub counted: bool,
    /// The last output of the body, a Bool of rank 0, says whether another step follows. The op gives the number of
    /// steps.
    #[param(default = false)]
    pub conditional: bool,
}

impl Loop {
    /// The number of the body's outputs that are stacked.
    pub(super) fn stacked(&self) -> usize {
        self.body.y().len().saturating_sub(self.carried + usize::from(self.conditional))
    }

    /// The number of the body's constants.
    pub(super) fn constants(&self) -> usize {
        self.body.x().len().saturating_sub(1 + self.carried + self.sliced)
    }

    fn check(&self) -> Result<()> {
        let wrong = |kind, text: String| Err(Error::new(kind, text));
        if self.reverse && self.conditional {
            return wrong(ErrorKind::Value, "a loop with a condition runs forward".into());
        }
        let (x, y): (Vec<&Fact>, Vec<&Fact>) = (self.body.x().collect(), self.body.y().collect());
        let least = self.carried.saturating_add(usize::from(self.conditional));
        let given = self.carried.saturating_add(self.sliced).saturating_add(1);
        if x.len() < given || y.len() < least {
            let text = format!("the body takes {} values and gives {}", x.len(), y.len());
            return wrong(ErrorKind::Arity, text);
        }
        if !x[0].same_type(&Fact::new(DType::I64, Shape::scalar())) {
            return wrong(ErrorKind::Shape, "the body's first input is the step: i64[]".into());
        }
        for (i, (a, b)) in x[1..=self.carried].iter().zip(&y).enumerate() {
            if !a.same_type(b) {
                let text = format!(
                    "carried value {i} is {}{} and becomes {}{} in a step; a loop has one place for all of its steps",
                    a.dtype, a.shape, b.dtype, b.shape
                );
                return wrong(ErrorKind::Shape, text);
            }
        }
        let go_on = self.conditional.then(|| y.last()).flatten();
        if go_on.is_some_and(|f| !f.same_type(&Fact::new(DType::Bool, Shape::scalar()))) {
            return wrong(ErrorKind::DType, "the body's last output is the condition: bool[]".into());
        }
        Ok(())
    }

    /// The fact of all rows: one row for each step.
    fn rows(&self, row: &Fact) -> Result<Fact> {
        let mut shape: Shape = [self.trips].into();
        row.shape.iter().for_each(|d| shape.push(*d));
        shape.checked_elems()?;
        Ok(Fact::new(row.dtype, shape))
    }

    /// The loop as a step of a program runs it.
    pub(super) fn runs(&self, body: Arc<Program>) -> LoopProgram {
        let Loop { trips, carried, sliced, reverse, counted, conditional, .. } = *self;
        LoopProgram { body, trips, carried, sliced, reverse, counted, conditional }
    }
}

impl Op for Loop {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        self.check()?;
        let own: Vec<&Fact> = self.body.x().collect();
        let count = Fact::new(DType::I64, Shape::scalar());
        let mut wanted = Vec::with_capacity(x.len());
        for (i, f) in own[1..].iter().enumerate() {
            let sliced = (self.carried..self.carried + self.sliced).contains(&i);
            wanted.push(if sliced { self.rows(f)? } else { (*f).clone() });
        }
        if self.counted {
            wanted.push(count.clone());
        }
        if wanted.len() != x.len() {
            return Err(Error::new(ErrorKind::Arity, format!("takes {} inputs, got {}", wanted.len(), x.len())));
        }
        for (i, (a, b)) in wanted.iter().zip(x).enumerate() {
            if !a.same_type(b) {
                let text = format!("input {i} is {}{}, not {}{}", b.dtype, b.shape, a.dtype, a.shape);
                return Err(Error::new(ErrorKind::Shape, text));
            }
        }
        let mut y = Facts::new();
        for (j, f) in self.body.y().take(self.carried + self.stacked()).enumerate() {
            y.push(if j < self.carried { Fact::new(f.dtype, f.shape.clone()) } else { self.rows(f)? });
        }
        if self.conditional {
            y.push(count);
        }
        Ok(y)
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        super::eval_on_host(&Flow::Loop(self.runs(self.body.program(cx.pool.threads())?)), cx)
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        super::reverse::grad(self, cx)
    }

    fn for_each_part(&self, see: &mut dyn FnMut(&dyn Op)) {
        self.body.for_each_part(see);
    }

    fn workspace(&self, _x: &[&Fact], threads: usize) -> usize {
        let unit = Alignment::HOST;
        loop_workspace_bytes(self.body.workspace(threads), carried_bytes(self.body.y().take(self.carried), unit), unit)
    }

    /// The cost of all steps, and of the copies from the inputs and to the outputs.
    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        let (once, n) = (self.body.cost(), self.trips as u64);
        let copies = Cost::bytes(x, y).bytes;
        Cost { flops: once.flops.saturating_mul(n), bytes: once.bytes.saturating_mul(n).saturating_add(copies) }
    }

    /// The number of steps follows the inputs that are read row by row. Without such inputs it stays.
    fn with_input_shapes(&self, x: &[&Fact]) -> Result<Option<OpRef>> {
        let rows = self.carried..self.carried + self.sliced;
        let given = x.len().checked_sub(usize::from(self.counted)).ok_or_else(short)?;
        let mut own: Vec<Fact> = self.body.x().take(1).map(plain).collect();
        let mut trips = self.trips;
        for (i, f) in x[..given].iter().enumerate() {
            if !rows.contains(&i) {
                own.push(plain(f));
                continue;
            }
            let (first, rest) = f.shape.split_first().ok_or_else(|| {
                Error::new(ErrorKind::Shape, format!("input {i} of a loop is read row by row and has rank 0"))
            })?;
            trips = *first;
            own.push(Fact::new(f.dtype, rest));
        }
        let body = self.body.with_input_shapes(&own)?;
        if body.is_none() && trips == self.trips {
            return Ok(None);
        }
        Ok(Some(Loop { body: body.unwrap_or_else(|| self.body.clone()), trips, ..self.clone() }.into()))
    }

    fn repeatable(&self) -> bool {
        self.body.repeatable()
    }

    fn may_fail(&self) -> bool {
        self.body.may_fail()
    }
}

fn short() -> Error {
    Error::new(ErrorKind::Internal, "an operand of a loop is smaller than its fact says")
}

impl OpDef for Loop {
    const NAME: &'static str = "loop";

    fn samples() -> Vec<Sample<Self>> {
        super::samples::loops()
    }
}
