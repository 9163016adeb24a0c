//! The cost of launches, events and copies on a device: `cargo run --release -p remat-cuda --example costs -- cuda:0`.
//!
//! The least of some rounds is told. `cuda-sim` shows that the program works, and its times are those of a processor.

use std::process::ExitCode;
use std::time::Instant;

use remat_cuda::device::{Cuda, search};
use remat_cuda::driver::{Arena, Argument, Compiler, Driver, Event, Grid, Lane, Module};
use remat_types::Result;

const SOURCE: &str = "extern \"C\" __global__ void nothing(unsigned long long *x) { if (x == 0) __trap(); }";
const ROUNDS: usize = 5;
/// Launches or events of a round.
const COUNT: usize = 500;
const BYTES: usize = 64 << 20;

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_else(|| "cuda:0".to_owned());
    match measure(&name) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

/// The least nanoseconds of a round, for each of its `count` pieces.
fn least(count: usize, mut round: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        round()?;
        least = least.min(start.elapsed().as_nanos() as f64 / count as f64);
    }
    Ok(least)
}

fn measure(name: &str) -> Result<()> {
    let compiler = Compiler::open(&search())?;
    let Some(device) = Cuda::by_name(name)? else {
        eprintln!("`{name}` is no CUDA device");
        return Ok(());
    };
    let context = device.context().clone();
    let (major, minor) = compiler.version();
    println!("device          {} of architecture {}", context.name(), context.architecture());
    println!("multiprocessors {}", context.processors());
    println!("compiler        NVRTC {major}.{minor}");
    if let Ok(driver) = Driver::open(&search()) {
        let version = driver.version()?;
        println!("driver          CUDA {}.{}", version / 1000, version % 1000 / 10);
    }
    let arena = Arena::whole(&context, 2 * BYTES)?;
    let mut lane = Lane::new(&context)?;
    let start = Instant::now();
    let module = Module::load(&context, &compiler.ptx("nothing.cu", SOURCE, context.architecture())?)?;
    let kernel = module.kernel("nothing")?;
    println!("compile         {:8.2} ms for a kernel that does nothing", start.elapsed().as_secs_f64() * 1e3);
    let grid = Grid { blocks: [1, 1, 1], threads: [32, 1, 1], shared_bytes: 0 };
    let launch = |lane: &Lane| lane.launch(&kernel, grid, &[Argument::U64(arena.base())]);
    let queued = least(COUNT, || (0..COUNT).try_for_each(|_| launch(&lane)))?;
    lane.stream().synchronize()?;
    println!("launch          {:8.2} us until it is queued", queued / 1e3);
    let run = least(COUNT, || (0..COUNT).try_for_each(|_| launch(&lane)).and_then(|()| lane.stream().synchronize()))?;
    println!("launch          {:8.2} us each, of many in a row", run / 1e3);
    let alone = least(COUNT, || (0..COUNT).try_for_each(|_| launch(&lane).and_then(|()| lane.stream().synchronize())))?;
    println!("launch          {:8.2} us with a wait for it", alone / 1e3);
    let event = Event::new(&context, true)?;
    let recorded = least(COUNT, || (0..COUNT).try_for_each(|_| event.record(lane.stream())))?;
    println!("event           {:8.2} us until it is recorded", recorded / 1e3);
    let waited =
        least(COUNT, || (0..COUNT).try_for_each(|_| event.record(lane.stream()).and_then(|()| event.synchronize())))?;
    println!("event           {:8.2} us with a wait for it", waited / 1e3);
    copies(&arena, &mut lane)
}

fn copies(arena: &Arena, lane: &mut Lane) -> Result<()> {
    let host = vec![1u8; BYTES];
    let gigabytes = |ns: f64| BYTES as f64 / ns;
    let little = least(1, || lane.upload(arena, 0, &host[..4]).and_then(|()| lane.stream().synchronize()))?;
    println!("copy of 4 bytes {:8.2} us to the device", little / 1e3);
    let little = least(1, || lane.download(arena, 0, 4).map(drop))?;
    println!("copy of 4 bytes {:8.2} us from the device", little / 1e3);
    let to = least(1, || lane.upload(arena, 0, &host).and_then(|()| lane.stream().synchronize()))?;
    println!("copy of 64 MiB  {:8.2} GB/s to the device, the copy to pinned memory included", gigabytes(to));
    let from = least(1, || lane.download(arena, 0, BYTES).map(drop))?;
    println!("copy of 64 MiB  {:8.2} GB/s from the device, the copy from pinned memory included", gigabytes(from));
    let within = least(1, || lane.copy(arena, 0, BYTES, BYTES).and_then(|()| lane.stream().synchronize()))?;
    println!("copy of 64 MiB  {:8.2} GB/s within the device", gigabytes(within));
    Ok(())
}
