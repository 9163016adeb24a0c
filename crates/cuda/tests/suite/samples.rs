//! The samples of every operator for which there are kernels, on the software device, beside the CPU's kernels.

use std::collections::BTreeSet;

use remat_cuda::device::Cuda;
use remat_cuda::driver::{SoftwareOptions, software};
use remat_cuda::kernels::{Input, Operands, Plan, plan};
use remat_device::{Backend, Buffer, Event, Launch, OutBuffer, StreamId};
use remat_kernels::pool::Pool;
use remat_ops::testing::differences;
use remat_ops::{LayoutReq, OpRef, Registry, Sample, Tolerance, eval_on_host};
use remat_types::{CallSite, DType, Error, Fact, HostTensor, Layout, Shape, SmallVec};

use crate::rig::compiler;

/// Operators whose sums are taken in another order than the CPU's. They agree within the tolerance of their dtype.
const SUMS: &[&str] = &[
    "matmul",
    "matmul_wide",
    "fused_matmul",
    "lamb_update",
    "adafactor_update",
    "conv2d",
    "conv2d_input_grad",
    "conv2d_weight_grad",
    "attention",
    "attention_grad",
    "ctc_loss",
    "ctc_loss_grad",
    "recurrent",
    "recurrent_grad",
];

/// Operators whose f64 agrees within its tolerance: exponentials and logarithms are of the CPU's C library there, and losses are
/// summed up in another order. In other dtypes they have the CPU's bits.
const FUNCTIONS_OF_F64: &[&str] = &["cross_entropy", "cross_entropy_grad", "log_sum_exp", "softmax", "softmax_grad"];

/// Operators of which some or all samples run on the host: factorisations, Fourier transforms, collectives, and what takes functions
/// of f64 from the CPU's library.
const ON_THE_HOST: &[&str] = &[
    "all_gather",
    "all_reduce",
    "all_to_all",
    "binary",
    "broadcast_from",
    "cholesky",
    "cumulate",
    "eigh",
    "fft",
    "fused",
    "fused_matmul",
    "fused_reduce",
    "gamma_sample",
    "gather_shards",
    "gather_to",
    "irfft",
    "normal",
    "pinv",
    "poisson_sample",
    "qr",
    "reduce_scatter",
    "reduce_to",
    "rfft",
    "scatter_from",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "unary",
];

/// Kernels that are compiled in one go.
const BATCH: usize = 200;

/// An operator on inputs, as it is launched.
pub(crate) struct Case {
    what: String,
    name: &'static str,
    op: OpRef,
    /// Each input's storage and the layout of its elements therein.
    x: Vec<(Layout, HostTensor)>,
    want: Vec<HostTensor>,
    /// The error that the CPU's kernel gives for it; `want` then has zeros.
    error: Option<Error>,
    /// Input and output that share storage.
    donated: Option<(usize, usize)>,
    plan: Plan,
    /// How far from the CPU, unless its name says.
    tolerance: Tolerance,
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

fn plan_of(op: &OpRef, x: &[(Layout, HostTensor)], want: &[HostTensor]) -> Option<Plan> {
    let operands = Operands {
        x: x.iter().map(|(layout, t)| Input { dtype: t.dtype(), layout }).collect(),
        y: want.iter().map(|y| (y.dtype(), y.shape())).collect(),
    };
    plan(&**op, &operands).unwrap_or_else(|e| panic!("{op:?}: {e}"))
}

impl Case {
    /// An operator on contiguous inputs. `None` where there is no kernel or the operator does not take them.
    pub(crate) fn dense(name: &'static str, op: OpRef, x: Vec<HostTensor>) -> Option<Case> {
        let want = eval_on_host(&*op, &x, &Pool::new(1)).ok()?;
        let of: Vec<String> = x.iter().map(|x| format!("{} {}", x.dtype(), x.shape())).collect();
        let what = format!("{op:?} of {}", of.join(", "));
        let x: Vec<_> = x.into_iter().map(|t| (Layout::contiguous(t.shape().clone()), t)).collect();
        let plan = plan_of(&op, &x, &want)?;
        Some(Case { what, name, op, x, want, error: None, donated: None, plan, tolerance: Tolerance::Exact })
    }

    /// An operator on contiguous inputs that has a kernel.
    pub(crate) fn of(name: &'static str, op: OpRef, x: Vec<HostTensor>) -> Case {
        Case::dense(name, op, x).unwrap_or_else(|| panic!("{name} has no kernel"))
    }

    /// [`Case::of`] whose outputs are to be these, bit for bit.
    pub(crate) fn giving(op: OpRef, x: Vec<HostTensor>, want: Vec<HostTensor>) -> Case {
        let x: Vec<_> = x.into_iter().map(|t| (Layout::contiguous(t.shape().clone()), t)).collect();
        let plan = plan_of(&op, &x, &want).unwrap_or_else(|| panic!("{op:?} has no kernel"));
        Case {
            what: format!("{op:?}"),
            name: "",
            op,
            x,
            want,
            error: None,
            donated: None,
            plan,
            tolerance: Tolerance::Exact,
        }
    }

    /// The same within a tolerance.
    pub(crate) fn within(self, tolerance: Tolerance) -> Case {
        Case { tolerance, ..self }
    }

    /// What the CPU gives for output `j`.
    pub(crate) fn want(&self, j: usize) -> HostTensor {
        self.want[j].clone()
    }

    /// How the device differs from the CPU, if it does.
    fn difference(&self, device: &mut Cuda) -> Option<String> {
        let has_f64 = || self.x.iter().any(|x| x.1.dtype() == DType::F64);
        let difference = match run(device, self) {
            Err(e) if self.error.is_some() => refused(self, &e).or_else(|| replaced(device, self)),
            Ok(_) if self.error.is_some() => Some(format!("is not refused: {:?}", self.error)),
            Ok(got) if SUMS.contains(&self.name) || FUNCTIONS_OF_F64.contains(&self.name) && has_f64() => {
                differences(&got, &self.want, Tolerance::Float)
            }
            // a device has NaNs of its own
            Ok(got) => differences(&got, &self.want, self.tolerance),
            // the context has failed, and so will every later call
            Err(e) => panic!("{}: {e}", self.what),
        };
        difference.map(|d| format!("{}: {d}", self.what))
    }
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

/// The cases of all samples, and the operators of which some sample has no kernel.
fn cases() -> (Vec<Case>, BTreeSet<&'static str>) {
    let only = std::env::var("REMAT_SAMPLES").ok();
    let (pool, mut cases, mut lacking) = (Pool::new(1), Vec::new(), BTreeSet::new());
    for entry in Registry::portable().entries() {
        if only.as_deref().is_some_and(|only| only != entry.name) {
            continue;
        }
        for (k, s) in entry.samples().iter().enumerate() {
            for x in in_other_dtypes(s) {
                let facts: Vec<Fact> = x.iter().map(Fact::of).collect();
                // not every operator takes every dtype
                let Ok(y) = s.op.infer(&facts.iter().collect::<Vec<_>>()) else { continue };
                let (want, error) = match eval_on_host(&*s.op, &x, &pool) {
                    Ok(want) => (want, None),
                    Err(e) => {
                        let zeros = |f: &Fact| HostTensor::zeros(f.dtype, f.shape.clone()).expect("there is memory");
                        (y.iter().map(zeros).collect(), Some(e))
                    }
                };
                let dense: Vec<_> = x.iter().map(|t| (Layout::contiguous(t.shape().clone()), t.clone())).collect();
                if matches!(&*dense, [one] if s.op.view(&one.0).is_some()) {
                    continue;
                }
                let Some(found) = plan_of(&s.op, &dense, &want) else {
                    lacking.insert(entry.name);
                    continue;
                };
                let dtypes: Vec<DType> = x.iter().map(HostTensor::dtype).collect();
                let what = format!("{} sample {k} of {dtypes:?}", entry.name);
                let case = |what: String, x: Vec<(Layout, HostTensor)>, donated, plan| Case {
                    what,
                    name: entry.name,
                    op: s.op.clone(),
                    x,
                    want: want.clone(),
                    error: error.clone(),
                    donated,
                    plan,
                    tolerance: Tolerance::Exact,
                };
                let fits = |(i, j): &(usize, usize)| {
                    let given = x.get(*i).map(|t| (t.dtype(), t.shape()));
                    given == want.get(*j).map(|y| (y.dtype(), y.shape()))
                };
                for pair in s.op.overwrite().iter().filter(|p| fits(p)) {
                    cases.push(case(format!("{what} in place {pair:?}"), dense.clone(), Some(*pair), found.clone()));
                }
                cases.push(case(what.clone(), dense, None, found));
                let is_strided = |i: usize| s.op.layout(i) == LayoutReq::Strided && x[i].elems() > 0;
                if (0..x.len()).any(is_strided) {
                    let strided: Vec<_> = (x.iter().enumerate())
                        .map(|(i, t)| match is_strided(i) {
                            true => scattered(t),
                            false => (Layout::contiguous(t.shape().clone()), t.clone()),
                        })
                        .collect();
                    match plan_of(&s.op, &strided, &want) {
                        Some(plan) => cases.push(case(format!("{what} strided"), strided, None, plan)),
                        None => panic!("{what} has a kernel, but none for strided inputs"),
                    }
                }
            }
        }
    }
    (cases, lacking)
}

/// Offsets of outputs, inputs and workspace of a case, and their end.
struct Places {
    y: Vec<usize>,
    x: Vec<usize>,
    workspace: usize,
    end: usize,
}

fn places(case: &Case) -> Places {
    let mut end = 0;
    let mut place = |bytes: usize| {
        let at = end;
        end = (at + bytes).next_multiple_of(256);
        at
    };
    let y: Vec<usize> = case.want.iter().map(|y| place(y.bytes().len())).collect();
    let x = (case.x.iter().enumerate())
        .map(|(i, (_, t))| match case.donated {
            Some((from, to)) if from == i => y[to],
            _ => place(t.bytes().len()),
        })
        .collect();
    let workspace = place(case.plan.workspace);
    Places { y, x, workspace, end }
}

/// How an input that a refused launch was to replace differs from what it was.
fn replaced(device: &mut Cuda, case: &Case) -> Option<String> {
    let (from, _) = case.donated?;
    let (layout, t) = &case.x[from];
    let buffer = Buffer { dtype: t.dtype(), layout, at: places(case).x[from], bytes: t.bytes().len() };
    match device.download(&buffer, &[]) {
        Ok(now) if now.bytes() == t.bytes() => None,
        other => Some(format!("was refused, and input {from} became {other:?}")),
    }
}

/// The outputs of a case.
fn run(device: &mut Cuda, case: &Case) -> remat_types::Result<Vec<HostTensor>> {
    let Places { y: y_at, x: x_at, workspace, end } = places(case);
    let workspace = (workspace, case.plan.workspace);
    device.reserve(end)?;
    let mut garbage = HostTensor::zeros(DType::U8, [end])?;
    garbage.bytes_mut().fill(0xa5);
    device.upload(StreamId(0), 0, &garbage)?;
    for ((_, t), at) in case.x.iter().zip(&x_at) {
        device.upload(StreamId(0), *at, t)?;
    }
    let buffer = |i: usize| {
        let (layout, t) = &case.x[i];
        Buffer { dtype: t.dtype(), layout, at: x_at[i], bytes: t.bytes().len() }
    };
    let out = |(j, y): (usize, &'_ HostTensor)| (y.dtype(), y.shape().clone(), y_at[j], y.bytes().len());
    let outs: Vec<(DType, Shape, usize, usize)> = case.want.iter().enumerate().map(out).collect();
    let launch = Launch {
        op: &case.op,
        stream: StreamId(0),
        x: (0..case.x.len()).map(buffer).collect(),
        y: (outs.iter().enumerate())
            .map(|(j, (dtype, shape, at, bytes))| OutBuffer {
                dtype: *dtype,
                shape,
                at: *at,
                bytes: *bytes,
                donated_from: case.donated.filter(|d| d.1 == j).map(|d| d.0),
            })
            .collect(),
        workspace,
        after: SmallVec::new(),
        site: CallSite::here(),
    };
    let event: Event = device.launch(&launch)?;
    device.synchronize(event)?;
    (outs.iter())
        .map(|(dtype, shape, at, bytes)| {
            let layout = Layout::contiguous(shape.clone());
            device.download(&Buffer { dtype: *dtype, layout: &layout, at: *at, bytes: *bytes }, &[])
        })
        .collect()
}

/// How an error differs from that of the CPU's kernel.
fn refused(case: &Case, e: &Error) -> Option<String> {
    let want = case.error.as_ref()?;
    let is_same = e.kind() == want.kind() && e.message() == want.message();
    (!is_same).then(|| format!("is refused by {e:?}, not {want:?}"))
}

#[test]
fn samples_agree_with_the_cpu() {
    let (cases, lacking) = cases();
    agree(&cases);
    if std::env::var_os("REMAT_SAMPLES").is_none() {
        assert_eq!(lacking.into_iter().collect::<Vec<_>>(), ON_THE_HOST);
    }
}

/// Fails where a case differs from the CPU.
pub(crate) fn agree(cases: &[Case]) {
    let Some(compiler) = compiler() else { return };
    let driver = software(SoftwareOptions { threads: 2, ..SoftwareOptions::default() }).expect("a driver");
    let mut device = Cuda::open(&driver, compiler, 0).expect("opens");
    for batch in cases.iter().flat_map(|c| &c.plan.calls).collect::<Vec<_>>().chunks(BATCH) {
        device.prepare(batch.iter().copied()).unwrap_or_else(|e| panic!("{e}"));
    }
    let wrong: Vec<String> = cases.iter().filter_map(|case| case.difference(&mut device)).collect();
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    println!("{} cases", cases.len());
}
