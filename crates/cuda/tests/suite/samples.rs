//! The samples of every operator for which there are kernels, on the software device, beside the CPU's kernels.
//!
//! `REMAT_CUDA_DEVICE=cuda:0` names a GPU that runs them in place of the software device.

use remat_cuda::device::Cuda;
use remat_device::{Backend, Buffer, Event, Launch, OutBuffer, StreamId};
use remat_kernels::pool::Pool;
use remat_ops::testing::differences;
use remat_ops::{OpRef, Tolerance, eval_on_host};
use remat_types::{CallSite, DType, Error, HostTensor, Layout, Shape, SmallVec};

pub(crate) use crate::cases::Case;
use crate::cases::{cases, plan_of};
use crate::rig::{named_device, software_device};

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

/// Operators whose samples run on the host, all or some: factorisations, Fourier transforms, collectives, and functions of f64 from
/// the CPU's library.
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

    /// Output `j` of the CPU.
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
pub(crate) fn run(device: &mut Cuda, case: &Case) -> remat_types::Result<Vec<HostTensor>> {
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

/// Compiles the kernels of all cases, many in one go.
pub(crate) fn prepare(device: &mut Cuda, cases: &[Case]) {
    for batch in cases.iter().flat_map(|c| &c.plan.calls).collect::<Vec<_>>().chunks(BATCH) {
        device.prepare(batch.iter().copied()).unwrap_or_else(|e| panic!("{e}"));
    }
}

/// Fails where a case differs from the CPU.
pub(crate) fn agree(cases: &[Case]) {
    let Some(mut device) = named_device().or_else(software_device) else { return };
    prepare(&mut device, cases);
    let wrong: Vec<String> = cases.iter().filter_map(|case| case.difference(&mut device)).collect();
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    println!("{} cases on {}", cases.len(), device.context().name());
}
