//! The time of some operators on a device, with the sizes that `scripts/gpu_torch.py` gives PyTorch:
//! `cargo run --release -p remat-cuda --example operators -- cuda:0`.
//!
//! With `--small` the sizes are those that a device in software can do.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use remat_cuda::device::Cuda;
use remat_device::{Backend, Buffer, Launch, OutBuffer, StreamId};
use remat_ops::OpRef;
use remat_ops::attention::Attention;
use remat_ops::conv::{Conv2d, ConvParams};
use remat_ops::linalg::MatMul;
use remat_types::{CallSite, DType, Fact, HostTensor, Layout, Result, SmallVec};

/// Time to repeat an operator.
const LONG_ENOUGH: Duration = Duration::from_millis(500);

/// An operator, its inputs, and its multiply-adds.
struct Work {
    name: &'static str,
    op: OpRef,
    x: Vec<Fact>,
    muls: usize,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let is_small = args.iter().any(|a| a == "--small");
    let name = args.iter().find(|a| !a.starts_with("--")).map_or("cuda:0", String::as_str);
    let measured = Cuda::by_name(name).and_then(|device| {
        let Some(mut device) = device else {
            println!("`{name}` is no CUDA device");
            return Ok(());
        };
        works(is_small).iter().try_for_each(|w| measure(&mut device, w))
    });
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

fn works(is_small: bool) -> Vec<Work> {
    let (n, images, channels, side, heads, t) =
        if is_small { (64, 1, 8, 8, 2, 32) } else { (4096, 32, 64, 56, 16, 1024) };
    let d = 64;
    let product = |name, dtype| Work {
        name,
        op: MatMul {}.into(),
        x: vec![Fact::new(dtype, [n, n]), Fact::new(dtype, [n, n])],
        muls: n * n * n,
    };
    let taps = ConvParams { stride: [1, 1], padding: [1, 1].into(), dilation: [1, 1], groups: 1 };
    let conv = |name, dtype| Work {
        name,
        op: Conv2d { taps }.into(),
        x: vec![Fact::new(dtype, [images, channels, side, side]), Fact::new(dtype, [channels, channels, 3, 3])],
        muls: images * side * side * channels * channels * 9,
    };
    let attention = |name, dtype| Work {
        name,
        op: Attention {
            scale: 0.125.into(),
            causal: false,
            packed_qkv: false,
            offset: 0,
            left: None,
            right: None,
            cap: 0.0.into(),
            dropout: 0.0.into(),
        }
        .into(),
        x: vec![Fact::new(dtype, [8, t, heads, d]); 3],
        muls: 2 * 8 * heads * t * t * d,
    };
    vec![
        product("matmul f32", DType::F32),
        product("matmul bf16", DType::BF16),
        conv("conv2d f32", DType::F32),
        conv("conv2d bf16", DType::BF16),
        attention("attention f32", DType::F32),
        attention("attention bf16", DType::BF16),
    ]
}

/// Numbers between -1 and 1 without a pattern.
fn noise(fact: &Fact) -> Result<HostTensor> {
    let mut state = 1u32;
    let values = (0..fact.shape.elems()).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(state >> 8) / f64::from(1 << 23) - 1.0
    });
    HostTensor::from_f64_slice(&values.collect::<Vec<_>>(), fact.dtype, fact.shape.clone())
}

/// Launches an operator again and again, and tells the mean time.
fn measure(device: &mut Cuda, w: &Work) -> Result<()> {
    let y = w.op.infer(&w.x.iter().collect::<Vec<_>>())?;
    let facts: Vec<&Fact> = w.x.iter().collect();
    let workspace = device.kernels().workspace(&*w.op, &facts);
    let mut end = 0;
    let mut place = |bytes: usize| {
        let at = end;
        end = (at + bytes).next_multiple_of(256);
        at
    };
    let x_at: Vec<usize> = w.x.iter().map(|f| place(f.bytes())).collect();
    let y_at: Vec<usize> = y.iter().map(|f| place(f.bytes())).collect();
    let scratch = place(workspace);
    device.reserve(end)?;
    for (fact, at) in w.x.iter().zip(&x_at) {
        device.upload(StreamId(0), *at, &noise(fact)?)?;
    }
    let layouts: Vec<Layout> = w.x.iter().map(|f| Layout::contiguous(f.shape.clone())).collect();
    let buffer = |i: usize| Buffer { dtype: w.x[i].dtype, layout: &layouts[i], at: x_at[i], bytes: w.x[i].bytes() };
    let launch = Launch {
        op: &w.op,
        stream: StreamId(0),
        x: (0..w.x.len()).map(buffer).collect(),
        y: (y.iter().zip(&y_at))
            .map(|(f, at)| OutBuffer { dtype: f.dtype, shape: &f.shape, at: *at, bytes: f.bytes(), donated_from: None })
            .collect(),
        workspace: (scratch, workspace),
        after: SmallVec::new(),
        site: CallSite::here(),
    };
    let mut round = |count: u32| -> Result<Duration> {
        let start = Instant::now();
        for _ in 1..count {
            device.launch(&launch)?;
        }
        let last = device.launch(&launch)?;
        device.synchronize(last)?;
        Ok(start.elapsed())
    };
    // the first launch compiles
    round(1)?;
    let once = round(1)?;
    let count = (LONG_ENOUGH.as_nanos() / once.as_nanos().max(1)).clamp(1, 200) as u32;
    let ms = round(count)?.as_secs_f64() * 1e3 / f64::from(count);
    println!("remat   {:16} {ms:10.3} ms {:8.2} TFLOP/s", w.name, 2.0 * w.muls as f64 / ms / 1e9);
    Ok(())
}
