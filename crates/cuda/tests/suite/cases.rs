//! The samples of every operator as cases: with inputs of every dtype that the operator takes, strided, and in place.
//!
//! The suite runs them, and the example `kernels` compiles their kernels.

use std::collections::BTreeSet;

use remat_cuda::kernels::{Input, Operands, Plan, plan};
use remat_kernels::pool::Pool;
use remat_ops::{LayoutReq, OpRef, Registry, Sample, Tolerance, eval_on_host};
use remat_types::{DType, Error, Fact, HostTensor, Layout};

/// An operator on inputs, as it is launched.
pub(crate) struct Case {
    pub(crate) what: String,
    pub(crate) name: &'static str,
    pub(crate) op: OpRef,
    /// Each input's storage and the layout of its elements therein.
    pub(crate) x: Vec<(Layout, HostTensor)>,
    pub(crate) want: Vec<HostTensor>,
    /// The error that the CPU's kernel gives for it; `want` then has zeros.
    pub(crate) error: Option<Error>,
    /// Input and output that share storage.
    pub(crate) donated: Option<(usize, usize)>,
    pub(crate) plan: Plan,
    /// How far from the CPU, unless its name says.
    pub(crate) tolerance: Tolerance,
}

/// A storage in which the axes of `t` lie in the opposite order, backwards and two elements apart.
fn scattered(t: &HostTensor) -> (Layout, HostTensor) {
    let (shape, size) = (t.shape(), t.dtype().size_bytes());
    let (mut strides, mut step, mut offset) = (vec![0isize; shape.rank()], 2, 3);
    for axis in 0..shape.rank() {
        strides[axis] = -(step as isize);
        offset += step * shape[axis].saturating_sub(1);
        step *= shape[axis].max(1);
    }
    let layout = Layout::new(shape.clone(), &strides, offset).expect("a stride for each axis");
    let mut storage = HostTensor::zeros(t.dtype(), [offset + 1]).expect("there is memory");
    for (from, at) in t.bytes().chunks_exact(size).zip(layout.indices()) {
        storage.bytes_mut()[at * size..(at + 1) * size].copy_from_slice(from);
    }
    (layout, storage)
}

pub(crate) fn plan_of(op: &OpRef, x: &[(Layout, HostTensor)], want: &[HostTensor]) -> Option<Plan> {
    let operands = Operands {
        x: x.iter().map(|(layout, t)| Input { dtype: t.dtype(), layout }).collect(),
        y: want.iter().map(|y| (y.dtype(), y.shape())).collect(),
    };
    plan(&**op, &operands).unwrap_or_else(|e| panic!("{op:?}: {e}"))
}

/// The inputs of a sample in every dtype that the operator takes for its floats.
fn in_other_dtypes(s: &Sample<OpRef>) -> Vec<Vec<HostTensor>> {
    let mut all = vec![s.x.clone()];
    let Some(first) = s.x.iter().map(HostTensor::dtype).find(|d| d.is_float()) else { return all };
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16].into_iter().filter(|d| *d != first) {
        let cast = |t: &HostTensor| match t.dtype() == first {
            true => HostTensor::from_f64_slice(&t.to_f64_vec(), dtype, t.shape().clone()).expect("a float"),
            false => t.clone(),
        };
        all.push(s.x.iter().map(cast).collect());
    }
    all
}

/// The cases of all samples, or of the operator that `REMAT_SAMPLES` names, and the operators that lack a kernel for some
/// sample.
pub(crate) fn cases() -> (Vec<Case>, BTreeSet<&'static str>) {
    let only = std::env::var("REMAT_SAMPLES").ok();
    let (pool, mut cases, mut lacking) = (Pool::new(1), Vec::new(), BTreeSet::new());
    for entry in Registry::portable().entries().iter().filter(|e| only.as_deref().is_none_or(|only| only == e.name)) {
        for (k, sample) in entry.samples().iter().enumerate() {
            for x in in_other_dtypes(sample) {
                if let Some(x) = Given::new(entry.name, k, sample, x, &pool)
                    && !x.add_to(&mut cases)
                {
                    lacking.insert(entry.name);
                }
            }
        }
    }
    (cases, lacking)
}

/// A sample with inputs of some dtypes, and the CPU's outputs.
struct Given<'s> {
    what: String,
    name: &'static str,
    op: &'s OpRef,
    x: Vec<HostTensor>,
    want: Vec<HostTensor>,
    error: Option<Error>,
}

fn dense(t: &HostTensor) -> (Layout, HostTensor) {
    (Layout::contiguous(t.shape().clone()), t.clone())
}

impl<'s> Given<'s> {
    /// Sample `k` of an operator. `None` where the operator does not take such inputs, and where it launches nothing.
    fn new(name: &'static str, k: usize, s: &'s Sample<OpRef>, x: Vec<HostTensor>, pool: &Pool) -> Option<Given<'s>> {
        let facts: Vec<Fact> = x.iter().map(Fact::of).collect();
        // not every operator takes every dtype
        let y = s.op.infer(&facts.iter().collect::<Vec<_>>()).ok()?;
        if matches!(&*x, [one] if s.op.view(&Layout::contiguous(one.shape().clone())).is_some()) {
            return None;
        }
        let zeros = |f: &Fact| HostTensor::zeros(f.dtype, f.shape.clone()).expect("there is memory");
        let (want, error) = match eval_on_host(&*s.op, &x, pool) {
            Ok(want) => (want, None),
            Err(e) => (y.iter().map(zeros).collect(), Some(e)),
        };
        let dtypes: Vec<DType> = x.iter().map(HostTensor::dtype).collect();
        let what = format!("{name} sample {k} of {dtypes:?}");
        Some(Given { what, name, op: &s.op, x, want, error })
    }

    fn case(&self, how: &str, x: Vec<(Layout, HostTensor)>, donated: Option<(usize, usize)>, plan: Plan) -> Case {
        Case {
            what: format!("{}{how}", self.what),
            name: self.name,
            op: self.op.clone(),
            x,
            want: self.want.clone(),
            error: self.error.clone(),
            donated,
            plan,
            tolerance: Tolerance::Exact,
        }
    }

    /// Adds the cases in place, with contiguous inputs, and with strided ones. False if there is no kernel.
    fn add_to(&self, cases: &mut Vec<Case>) -> bool {
        let contiguous: Vec<_> = self.x.iter().map(dense).collect();
        let Some(found) = plan_of(self.op, &contiguous, &self.want) else { return false };
        let fits = |(i, j): &(usize, usize)| {
            let given = self.x.get(*i).map(|t| (t.dtype(), t.shape()));
            given == self.want.get(*j).map(|y| (y.dtype(), y.shape()))
        };
        for pair in self.op.overwrite().iter().filter(|p| fits(p)) {
            cases.push(self.case(&format!(" in place {pair:?}"), contiguous.clone(), Some(*pair), found.clone()));
        }
        cases.push(self.case("", contiguous, None, found));
        let is_strided = |i: usize| self.op.layout(i) == LayoutReq::Strided && self.x[i].elems() > 0;
        if (0..self.x.len()).any(is_strided) {
            let place = |(i, t)| if is_strided(i) { scattered(t) } else { dense(t) };
            let strided: Vec<_> = self.x.iter().enumerate().map(place).collect();
            match plan_of(self.op, &strided, &self.want) {
                Some(plan) => cases.push(self.case(" strided", strided, None, plan)),
                None => panic!("{} has a kernel, but none for strided inputs", self.what),
            }
        }
        true
    }
}
