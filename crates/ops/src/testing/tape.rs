//! Running ops and fragments on the host: an [`Apply`] without a device, and one that records.

use std::cell::RefCell;

use remat_kernels::pool::Pool;
use remat_types::{DType, Error, ErrorKind, Fact, HostTensor, Result, SmallVec, smallvec};

use crate::pointwise::{Binary, BinaryFn};
use crate::{Apply, Backward, BackwardKey, OpRef, eval_on_host};

/// The plain evaluator: every op runs at once on host tensors.
#[derive(Debug)]
pub struct HostApply<'a> {
    /// The threads to compute with.
    pub pool: &'a Pool,
}

impl Apply for HostApply<'_> {
    type Value = HostTensor;

    fn apply(&self, op: OpRef, x: SmallVec<[HostTensor; 4]>) -> Result<SmallVec<[HostTensor; 2]>> {
        Ok(eval_on_host(&*op, &x, self.pool)?.into())
    }

    fn fact(&self, v: &HostTensor) -> Fact {
        Fact::of(v)
    }
}

/// A value of a [`HostTape`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TapeVar(usize);

struct Step {
    op: OpRef,
    x: SmallVec<[TapeVar; 4]>,
    y: SmallVec<[TapeVar; 2]>,
}

/// An evaluator that remembers the ops that it applied, so that results can be differentiated, any number of times.
pub struct HostTape<'a> {
    pool: &'a Pool,
    values: RefCell<Vec<HostTensor>>,
    steps: RefCell<Vec<Step>>,
}

impl<'a> HostTape<'a> {
    /// An empty tape.
    pub fn new(pool: &'a Pool) -> Self {
        HostTape { pool, values: RefCell::default(), steps: RefCell::default() }
    }

    /// Puts a value on the tape.
    pub fn leaf(&self, t: HostTensor) -> TapeVar {
        let mut values = self.values.borrow_mut();
        values.push(t);
        TapeVar(values.len() - 1)
    }

    /// The value of a variable.
    pub fn value(&self, v: TapeVar) -> HostTensor {
        self.values.borrow()[v.0].clone()
    }

    /// Gradients with respect to `wrt` of the sum over `roots` of root times cotangent. The gradient's own ops are
    /// recorded too. `None` where nothing that is differentiable connects them.
    pub fn gradients(&self, roots: &[(TapeVar, TapeVar)], wrt: &[TapeVar]) -> Result<Vec<Option<TapeVar>>> {
        let count = self.steps.borrow().len();
        let mut cotangent: Vec<Option<TapeVar>> = vec![None; self.values.borrow().len()];
        for &(v, dv) in roots {
            self.accumulate(&mut cotangent, v, dv)?;
        }
        let mut active = vec![false; cotangent.len()];
        wrt.iter().for_each(|v| active[v.0] = true);
        for s in self.steps.borrow().iter() {
            if s.x.iter().any(|v| active[v.0]) {
                s.y.iter().for_each(|v| active[v.0] = true);
            }
        }
        for at in (0..count).rev() {
            let (op, x, y) = {
                let s = &self.steps.borrow()[at];
                (s.op.clone(), s.x.clone(), s.y.clone())
            };
            let is_float = |v: &TapeVar| self.fact(v).dtype.is_float();
            let needs: SmallVec<[bool; 4]> = x.iter().map(|v| active[v.0] && is_float(v)).collect();
            let has_dy: SmallVec<[bool; 2]> = y.iter().map(|v| cotangent[v.0].is_some()).collect();
            if !needs.contains(&true) || !has_dy.contains(&true) {
                continue;
            }
            let y_facts: SmallVec<[Fact; 2]> = y.iter().map(|v| self.fact(v)).collect();
            let key = BackwardKey { op, x: x.iter().map(|v| self.fact(v)).collect(), needs, has_dy };
            let b = Backward::build(&key, &y_facts)?;
            let mut given: Vec<Option<TapeVar>> = x.iter().chain(&y).map(|v| Some(*v)).collect();
            given.extend(y.iter().filter_map(|v| cotangent[v.0]).map(Some));
            let grads = b.fragment.run(self, given, &b.grads)?;
            for (v, g) in x.iter().zip(grads) {
                if let Some(g) = g {
                    self.accumulate(&mut cotangent, *v, g)?;
                }
            }
        }
        Ok(wrt.iter().map(|v| cotangent[v.0]).collect())
    }

    fn accumulate(&self, into: &mut [Option<TapeVar>], v: TapeVar, g: TapeVar) -> Result<()> {
        into[v.0] = Some(match into[v.0] {
            Some(have) => self.apply(Binary { f: BinaryFn::Add }.into(), smallvec![have, g])?[0],
            None => g,
        });
        Ok(())
    }
}

impl Apply for HostTape<'_> {
    type Value = TapeVar;

    fn apply(&self, op: OpRef, x: SmallVec<[TapeVar; 4]>) -> Result<SmallVec<[TapeVar; 2]>> {
        let values: Vec<HostTensor> = x.iter().map(|v| self.value(*v)).collect();
        let y: SmallVec<[TapeVar; 2]> =
            eval_on_host(&*op, &values, self.pool)?.into_iter().map(|t| self.leaf(t)).collect();
        self.steps.borrow_mut().push(Step { op, x, y: y.clone() });
        Ok(y)
    }

    fn fact(&self, v: &TapeVar) -> Fact {
        Fact::of(&self.values.borrow()[v.0])
    }
}

/// The sum over elements of `a * b`, in f64. Errors (Shape) if they differ in size.
pub fn dot(a: &HostTensor, b: &HostTensor) -> Result<f64> {
    if a.elems() != b.elems() {
        let text = format!("a product of {} with {}", a.shape(), b.shape());
        return Err(Error::new(ErrorKind::Shape, text));
    }
    Ok(a.to_f64_vec().iter().zip(b.to_f64_vec()).map(|(a, b)| a * b).sum())
}

/// A tensor of seeded values of magnitude 0.5 to 1.5, of both signs: nothing that an all-ones cotangent would hide.
pub fn random_cotangent(seed: u64, dtype: DType, shape: &remat_types::Shape) -> Result<HostTensor> {
    let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
    let values: Vec<f64> = (0..shape.elems())
        .map(|_| {
            // splitmix64 (Steele, Lea and Flood, OOPSLA 2014)
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^= z >> 31;
            let unit = (z >> 11) as f64 / (1u64 << 53) as f64;
            let magnitude = 0.5 + unit;
            if z & 1 == 0 { magnitude } else { -magnitude }
        })
        .collect();
    HostTensor::from_f64_slice(&values, dtype, shape.clone())
}
