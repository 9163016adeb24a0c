//! The tape's gradient of each sample agrees with central differences in f64, has the bits of the host tape's, also to
//! second order, and keeps them under budgets.

use remat_kernels::pool::Pool;
use remat_ops::testing::{
    ALIVE, HostTape, TapeVar, bit_differences, checked_inputs, compare_gradient, differences, dot, inputs_in_f64,
    random_cotangent,
};
use remat_ops::{Apply, OpRef, Sample, Tolerance, eval_inline};
use remat_runtime::{Device, DeviceOptions};
use remat_tensor::{Tensor, grad};
use remat_types::{DType, Error, ErrorKind, HostTensor, Result};

use super::budget::{Tally, same_bits_under};
use super::{put, walk_computing};
use crate::support::cpu;

/// A sample with what its gradient is taken of: the sum over float outputs `y[j]` of their product with `dy`.
struct Case<'a> {
    op: &'a OpRef,
    x: Vec<HostTensor>,
    checked: Vec<usize>,
    dy: Vec<(usize, HostTensor)>,
}

/// A case with a cotangent for every output, and where there are several, one for each alone: rules may go another way,
/// and the tape must have kept what they read.
fn cases(s: &Sample<OpRef>) -> Result<Vec<Case<'_>>> {
    let checked = checked_inputs(s);
    if checked.is_empty() {
        return Ok(Vec::new());
    }
    let x = inputs_in_f64(s)?;
    let y = eval_inline(&*s.op, &x)?;
    let floats = y.iter().enumerate().filter(|(_, t)| t.dtype().is_float());
    let all = floats
        .map(|(j, t)| Ok((j, random_cotangent(40 + j as u64, DType::F64, t.shape())?)))
        .collect::<Result<Vec<_>>>()?;
    let mut sets = vec![all.clone()];
    sets.extend(all.iter().filter(|_| all.len() > 1).map(|c| vec![c.clone()]));
    Ok(sets.into_iter().map(|dy| Case { op: &s.op, x: x.clone(), checked: checked.clone(), dy }).collect())
}

fn sum(terms: impl IntoIterator<Item = Tensor>) -> Result<Option<Tensor>> {
    terms.into_iter().try_fold(None, |sum: Option<Tensor>, t| Ok(Some(sum.map_or(Ok(t.clone()), |s| s.add(&t))?)))
}

impl Case<'_> {
    /// The inputs as leaves where they are checked, else as data.
    fn inputs(&self, d: &Device) -> Result<Vec<Tensor>> {
        let leaf = |(i, x): (usize, Tensor)| if self.checked.contains(&i) { x.requires_grad() } else { Ok(x) };
        put(d, &self.x)?.into_iter().enumerate().map(leaf).collect()
    }

    fn loss(&self, d: &Device, x: &[Tensor]) -> Result<Tensor> {
        let y = Tensor::apply(self.op.clone(), &x.iter().collect::<Vec<_>>())?;
        let term = |(j, dy): &(usize, HostTensor)| y[*j].mul(Tensor::from_host(d, dy)?)?.sum();
        let terms = self.dy.iter().map(term).collect::<Result<Vec<_>>>()?;
        Ok(sum(terms)?.expect("a checked sample has a float output"))
    }

    fn loss_on_host(&self, x: &[HostTensor]) -> Result<f64> {
        let y = eval_inline(&**self.op, x)?;
        self.dy.iter().map(|(j, dy)| dot(&y[*j], dy)).sum()
    }

    /// Gradients by [`Tensor::backward`].
    fn backward(&self, d: &Device) -> Result<Vec<Option<HostTensor>>> {
        let x = self.inputs(d)?;
        self.loss(d, &x)?.backward()?;
        self.checked.iter().map(|&i| x[i].grad().map(|g| g.to_host()).transpose()).collect()
    }

    /// As [`Case::backward`] by the tape of `remat_ops::testing`, and the gradients of a projection of these.
    fn on_host(&self, pool: &Pool) -> Result<[Vec<Option<HostTensor>>; 2]> {
        let tape = HostTape::new(pool);
        let vars: Vec<TapeVar> = self.x.iter().map(|t| tape.leaf(t.clone())).collect();
        let y = tape.apply(self.op.clone(), vars.iter().copied().collect())?;
        let roots: Vec<_> = self.dy.iter().map(|(j, dy)| (y[*j], tape.leaf(dy.clone()))).collect();
        let wrt: Vec<TapeVar> = self.checked.iter().map(|&i| vars[i]).collect();
        let first = tape.gradients(&roots, &wrt)?;
        let project = |(k, g): (usize, &Option<TapeVar>)| g.map(|g| Ok((g, tape.leaf(projection(k, &tape.value(g))?))));
        let projected = first.iter().enumerate().filter_map(project).collect::<Result<Vec<_>>>()?;
        let values = |g: &[Option<TapeVar>]| g.iter().map(|g| g.map(|g| tape.value(g))).collect();
        Ok([values(&first), values(&tape.gradients(&projected, &wrt)?)])
    }

    /// As [`Case::on_host`] by [`grad`] with `create_graph`. An empty second list: no gradient depends on the inputs.
    fn twice(&self, d: &Device) -> Result<[Vec<Option<HostTensor>>; 2]> {
        let x = self.inputs(d)?;
        let wrt: Vec<&Tensor> = self.checked.iter().map(|&i| &x[i]).collect();
        let first = grad(&self.loss(d, &x)?, &wrt, true)?;
        let mut terms = Vec::new();
        for (k, g) in first.iter().enumerate() {
            if let Some(g) = g {
                let r = projection(k, &HostTensor::zeros(DType::F64, g.shape())?)?;
                terms.push(g.mul(Tensor::from_host(d, &r)?)?.sum()?);
            }
        }
        let second = match sum(terms)? {
            Some(loss) if loss.is_tracked() => grad(&loss, &wrt, false)?,
            _ => vec![None; wrt.len()],
        };
        let host = |g: &[Option<Tensor>]| -> Result<Vec<Option<HostTensor>>> {
            g.iter().map(|g| g.as_ref().map(Tensor::to_host).transpose()).collect()
        };
        Ok([host(&first)?, host(&second)?])
    }
}

/// The direction on which gradient `k` is projected for the second order.
fn projection(k: usize, g: &HostTensor) -> Result<HostTensor> {
    random_cotangent(77 + k as u64, DType::F64, g.shape())
}

fn text(e: Error) -> String {
    format!("{e:?}")
}

/// A missing gradient claims to be zero.
fn or_zeros(g: Option<HostTensor>, like: &HostTensor) -> std::result::Result<HostTensor, String> {
    g.map_or_else(|| HostTensor::zeros(DType::F64, like.shape()).map_err(text), Ok)
}

/// Differences of bits; where a sample says why, of values: the device gives kernels views that the host copies.
fn differ(s: &Sample<OpRef>, got: &[HostTensor], want: &[HostTensor]) -> Option<String> {
    match s.tolerance {
        Tolerance::Loose(..) => differences(got, want, s.tolerance),
        _ => bit_differences(got, want),
    }
}

#[test]
fn the_tape_agrees_with_central_differences() {
    let d = cpu(DeviceOptions::default());
    let (mut alive, mut dead) = (0, 0);
    walk_computing(|s| {
        for c in cases(s).map_err(text)? {
            for (g, &i) in c.backward(&d).map_err(text)?.into_iter().zip(&c.checked) {
                let g = or_zeros(g, &c.x[i])?;
                let largest = compare_gradient(&c.x, i, &g, &|x| c.loss_on_host(x))?;
                *(if largest > ALIVE { &mut alive } else { &mut dead }) += 1;
            }
        }
        Ok(())
    });
    // what is dead is empty, or alive with the cotangent of another output
    assert!(alive > 300 && dead < alive / 5, "{alive} gradients are alive, {dead} are not");
}

#[test]
fn the_tape_has_the_bits_of_the_host_to_second_order() {
    let (d, pool) = (cpu(DeviceOptions::default()), Pool::new(1));
    let (mut compared, mut second_order) = (0, 0);
    walk_computing(|s| {
        for c in cases(s).map_err(text)? {
            let (want, got) = match (c.on_host(&pool), c.twice(&d)) {
                (Ok(want), Ok(got)) => (want, got),
                (Err(a), Err(b)) if a.kind() == ErrorKind::NotDifferentiable && b.kind() == a.kind() => continue,
                (a, b) => return Err(format!("the host gives {a:?}, the tape {b:?}")),
            };
            let plain = c.backward(&d).map_err(text)?;
            for (k, &i) in c.checked.iter().enumerate() {
                let [first, second] = [0, 1].map(|order| or_zeros(want[order][k].clone(), &c.x[i]));
                let (first, second) = ([first?], [second?]);
                let pairs = [(&plain, &first, "first"), (&got[0], &first, "recorded"), (&got[1], &second, "second")];
                for (got, want, what) in pairs {
                    if let Some(d) = differ(s, &[or_zeros(got[k].clone(), &c.x[i])?], want) {
                        return Err(format!("{what} gradient of input {i}: {d}"));
                    }
                }
                compared += 1;
                second_order += usize::from(second[0].to_f64_vec().iter().any(|v| v.abs() > ALIVE));
            }
        }
        Ok(())
    });
    assert!(compared > 300 && second_order > 100, "{compared} gradients, {second_order} of second order are alive");
}

/// Steps of a program: each takes the gradient at a copy of the copy before.
const STEPS: usize = 3;

#[test]
fn budgets_keep_the_bits_of_every_gradient() {
    let mut tally = Tally::default();
    walk_computing(|s| {
        for c in cases(s).map_err(text)?.into_iter().take(1) {
            let program = |d: &Device| -> Result<Vec<Tensor>> {
                let x = c.inputs(d)?;
                let (mut at, mut kept) = (x.clone(), Vec::new());
                for _ in 0..STEPS {
                    at = at.iter().map(Tensor::contiguous).collect::<Result<_>>()?;
                    let loss = c.loss(d, &at)?;
                    loss.backward_with(None, true)?;
                    kept.push(loss);
                    kept.extend(at.iter().map(Tensor::detach));
                    kept.extend(x.iter().filter_map(Tensor::take_grad));
                }
                Ok(kept)
            };
            same_bits_under(&[75, 50, 25], &cpu, &program, &mut tally)?;
        }
        Ok(())
    });
    assert!(tally.programs > 200 && tally.recomputing == tally.programs, "{tally:?}");
}
