use std::any::Any;

use remat_ops::schema::Params;
use remat_ops::{Cost, EvalCx, GradCx, Grads, Op, OpDef, OpRef, Sample, Var};
use remat_types::{DType, Error, ErrorKind, Fact, Facts, HostTensor, Result, SmallVec};

use super::body::{Body, plain};
use super::call::{cotangents, given_back, gradient};
use remat_device::host::number;
use remat_device::program::{Flow, branch};

/// One of several graphs, chosen by a value that is known when the op runs: only that one is computed.
///
/// Input 0 is the choice, of rank 0: an I64 that counts the branches from 0, or a Bool if there are two. False chooses
/// the first. The other inputs go to the branch. All branches take and give the same facts.
///
/// Errors: Value for no branch; Shape for branches that differ; DType for another choice; Index, at run time, for a
/// branch that does not exist; those of the branches.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(choice: any, x..: any), gradient(x))]
pub struct Switch {
    /// The branches.
    pub branches: Vec<Body>,
}

impl Op for Switch {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        let Some((choice, x)) = x.split_first() else {
            return Err(Error::new(ErrorKind::Arity, "takes a choice and the inputs of the branches"));
        };
        let Some((first, rest)) = self.branches.split_first() else {
            return Err(Error::new(ErrorKind::Value, "there is no branch to choose"));
        };
        let two = choice.dtype == DType::Bool && self.branches.len() == 2;
        if choice.dtype != DType::I64 && !two {
            let text = format!("{} cannot choose among {} branches", choice.dtype, self.branches.len());
            return Err(Error::new(ErrorKind::DType, text));
        }
        if choice.rank() != 0 {
            return Err(Error::new(ErrorKind::Shape, format!("the choice has shape {}, not rank 0", choice.shape)));
        }
        let y = first.infer(x)?;
        for (k, b) in rest.iter().enumerate() {
            let other = b.infer(x).map_err(|e| e.context(format!("branch {}", k + 1)))?;
            if other.len() != y.len() || !other.iter().zip(&y).all(|(a, b)| a.same_type(b)) {
                let text = format!("branch {} gives other types than branch 0", k + 1);
                return Err(Error::new(ErrorKind::Shape, text));
            }
        }
        Ok(y)
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        // The other branches need no program.
        let choice = number(cx.x[0].element_bytes()?)?;
        let chosen = &self.branches[branch(choice, self.branches.len())?];
        let body = Flow::Call(chosen.program(cx.pool.threads())?);
        let all = cx.x;
        cx.x = &all[1..];
        let done = super::eval_on_host(&body, cx);
        cx.x = all;
        done
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let mut branches = Vec::new();
        for b in &self.branches {
            match gradient(b, cx, 1)? {
                Some(g) => branches.push(g),
                None => return Ok(SmallVec::from_elem(None, cx.x_count())),
            }
        }
        let outputs = self.branches.first().map_or(0, |b| b.y().len());
        let x: SmallVec<[Var; 8]> = (0..cx.x_count()).map(|i| cx.x(i)).chain(cotangents(cx, outputs)).collect();
        let dx = cx.apply_all(Switch { branches }, &x)?;
        Ok(given_back(cx, 1, &dx))
    }

    fn for_each_part(&self, see: &mut dyn FnMut(&dyn Op)) {
        self.branches.iter().for_each(|b| b.for_each_part(see));
    }

    fn workspace(&self, _x: &[&Fact], threads: usize) -> usize {
        self.branches.iter().map(|b| b.workspace(threads)).max().unwrap_or(0)
    }

    /// The cost of the most expensive branch.
    fn cost(&self, _x: &[&Fact], _y: &[Fact]) -> Cost {
        self.branches.iter().map(Body::cost).max_by_key(Cost::prior_ns).unwrap_or_default()
    }

    fn with_input_shapes(&self, x: &[&Fact]) -> Result<Option<OpRef>> {
        let x: Vec<Fact> = x.iter().skip(1).map(|f| plain(f)).collect();
        let fitted = self.branches.iter().map(|b| b.with_input_shapes(&x)).collect::<Result<Vec<_>>>()?;
        if fitted.iter().all(Option::is_none) {
            return Ok(None);
        }
        let branches = self.branches.iter().zip(fitted).map(|(old, new)| new.unwrap_or_else(|| old.clone()));
        Ok(Some(Switch { branches: branches.collect() }.into()))
    }

    fn repeatable(&self) -> bool {
        self.branches.iter().all(Body::repeatable)
    }

    fn may_fail(&self) -> bool {
        self.branches.iter().any(Body::may_fail)
    }

    fn selected_subgraph(&self, x: &[Option<&HostTensor>]) -> Option<(&dyn Any, usize)> {
        let choice = (*x.first()?)?.to_i64_vec();
        let branch = self.branches.get(usize::try_from(*choice.first()?).ok()?)?;
        Some((branch.graph(), 1))
    }
}

impl OpDef for Switch {
    const NAME: &'static str = "switch";

    fn samples() -> Vec<Sample<Self>> {
        super::samples::choices()
    }
}
