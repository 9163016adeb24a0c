//! Contexts, memory, kernels, streams and graphs on a software device.
//!
//! `cargo test -p remat-cuda --features cuda-sim`; with the folder of NVRTC's library in `REMAT_CUDA_LIBRARIES` a kernel is compiled, too.

use remat_cuda::driver::{
    Architecture, Arena, Argument, Code, Compiler, Context, Driver, Event, Function, Grid, Module, Pinned, Run, Search,
    SoftwareOptions, State, Stream, software,
};
use remat_types::{Error, ErrorKind, Result};

/// The unit in which an arena grows.
const UNIT: usize = 2 << 20;
/// Floats of a tensor, and threads of a launch.
const N: usize = 64;
const BYTES: usize = 4 * N;

/// `twice(x, y)`: y = 2 x.
const PTX: &str = ".version 8.8\n.target sm_80\n.address_size 64\n
.visible .entry twice(.param .u64 x, .param .u64 y) {
.reg .b32 %r<2>;\n.reg .b64 %rd<4>;\n.reg .f32 %f<2>;
ld.param.u64 %rd1, [x];\nld.param.u64 %rd2, [y];
mov.u32 %r1, %tid.x;\nmul.wide.u32 %rd3, %r1, 4;
add.u64 %rd1, %rd1, %rd3;\nadd.u64 %rd2, %rd2, %rd3;
ld.global.f32 %f1, [%rd1];\nadd.rn.f32 %f1, %f1, %f1;\nst.global.f32 [%rd2], %f1;\nret;\n}\n\0";

struct Rig {
    context: Context,
    stream: Stream,
    twice: Function,
    arena: Arena,
}

fn rig(options: SoftwareOptions) -> Rig {
    let context = software(options).expect("a driver").context(0).expect("a device");
    let module = Module::load(&context, &Code::of_ptx(PTX.into())).expect("loads");
    let arena = Arena::whole(&context, 16 * BYTES).expect("there is memory");
    Rig {
        stream: Stream::new(&context).expect("a stream"),
        twice: module.function("twice").expect("is there"),
        arena,
        context,
    }
}

fn seeded(seed: u64) -> Rig {
    rig(SoftwareOptions { seed, memory_bytes: 16 << 20, ..SoftwareOptions::default() })
}

impl Rig {
    /// The address of a tensor of the arena.
    fn at(&self, tensor: usize) -> u64 {
        self.arena.base() + (tensor * BYTES) as u64
    }

    /// Queues y = 2 x.
    fn twice(&self, x: u64, y: u64, stream: &Stream) -> Result<()> {
        let grid = Grid { blocks: [1; 3], threads: [N as u32, 1, 1], shared_bytes: 0 };
        // SAFETY: the arguments are the kernel's, and the device checks its accesses.
        unsafe { self.twice.launch(grid, &[Argument::U64(x), Argument::U64(y)], stream) }
    }

    /// Writes a tensor, and waits.
    fn put(&self, at: u64, values: &[f32]) {
        put(&self.context, &self.stream, at, values);
    }

    fn get(&self, at: u64) -> Result<Vec<f32>> {
        get(&self.context, &self.stream, at, N)
    }

    /// The error of a launch, at the next wait.
    fn fault(&self, x: u64, y: u64) -> Error {
        self.twice(x, y, &self.stream).and_then(|()| self.stream.synchronize()).expect_err("the kernel is wrong")
    }
}

fn put(context: &Context, stream: &Stream, at: u64, values: &[f32]) {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let mut pinned = Pinned::new(context, bytes.len()).expect("the host has memory");
    pinned.bytes_mut().copy_from_slice(&bytes);
    // SAFETY: the copy is waited for.
    unsafe { pinned.copy_in(0, at, bytes.len(), stream) }.expect("is queued");
    stream.synchronize().expect("is copied");
}

fn get(context: &Context, stream: &Stream, at: u64, count: usize) -> Result<Vec<f32>> {
    let mut pinned = Pinned::new(context, 4 * count)?;
    // SAFETY: the copy is waited for.
    unsafe { pinned.copy_out(0, at, 4 * count, stream) }?;
    stream.synchronize()?;
    Ok(pinned.bytes().as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect())
}

fn ramp(count: usize) -> Vec<f32> {
    (0..count).map(|i| i as f32 - 7.5).collect()
}

const SOURCE: &str = r#"
extern "C" __global__ void scale_from_end(const float *x, float *y, unsigned long long n, float by) {
    unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[n - 1 - i] * by;
}"#;

#[test]
fn a_compiled_kernel_runs_over_an_arena_that_grew_twice() {
    let Some(folder) = std::env::var_os("REMAT_CUDA_LIBRARIES") else {
        println!("REMAT_CUDA_LIBRARIES names no folder: no kernel is compiled");
        return;
    };
    let compiler = Compiler::open(&Search::default().first(folder)).expect("the folder has the compiler");
    let code = compiler.ptx("scale.cu", SOURCE, Architecture::OLDEST).expect("compiles");
    let options = SoftwareOptions { seed: 5, memory_bytes: 8 * UNIT as u64, ..SoftwareOptions::default() };
    let context = software(options).expect("a driver").context(0).expect("a device");
    let kernel = Module::load(&context, &code).and_then(|m| m.function("scale_from_end")).expect("loads");
    let stream = Stream::new(&context).expect("a stream");
    let mut arena = Arena::growing(&context).expect("memory can be mapped");
    arena.grow_to(UNIT).expect("there is memory");
    let x = arena.base() + (UNIT - 2000) as u64;
    arena.grow_to(3 * UNIT).expect("there is memory");
    assert_eq!((arena.bytes(), context.memory().expect("alive")), (3 * UNIT, (5 * UNIT, 8 * UNIT)));
    // both tensors lie across a seam of the arena
    let (n, y) = (1000, arena.base() + (2 * UNIT - 2000) as u64);
    put(&context, &stream, x, &ramp(n));
    let grid = Grid { blocks: [8, 1, 1], threads: [128, 1, 1], shared_bytes: 0 };
    let arguments = [Argument::U64(x), Argument::U64(y), Argument::U64(n as u64), Argument::F32(-0.5)];
    // SAFETY: the arguments are the kernel's, and the memory is the arena's, which lives on.
    unsafe { kernel.launch(grid, &arguments, &stream) }.expect("is queued");
    let want: Vec<f32> = ramp(n).iter().rev().map(|v| v * -0.5).collect();
    assert_eq!(get(&context, &stream, y, n).expect("is computed"), want);
    assert!(kernel.registers().expect("known") > 0 && kernel.local_bytes().expect("known") == 0);
    arena.shrink_to(UNIT).expect("nothing uses it");
    assert_eq!(context.memory().expect("alive").0, 7 * UNIT);
}

#[test]
fn an_event_orders_two_streams_in_every_order() {
    for seed in 0..4 {
        let r = seeded(seed);
        let (other, done) =
            (Stream::new(&r.context).expect("a stream"), Event::new(&r.context, false).expect("an event"));
        r.put(r.at(0), &ramp(N));
        r.twice(r.at(0), r.at(1), &r.stream).expect("is queued");
        done.record(&r.stream).expect("recorded");
        other.wait(&done).expect("waits");
        r.twice(r.at(1), r.at(2), &other).expect("is queued");
        other.synchronize().expect("nothing is wrong");
        assert_eq!(done.state().expect("alive"), State::Reached);
        assert_eq!(r.get(r.at(2)).expect("is computed"), ramp(N).iter().map(|v| 4.0 * v).collect::<Vec<_>>());
    }
}

#[test]
fn a_missing_wait_is_an_error_in_every_order() {
    for seed in 0..4 {
        let r = seeded(seed);
        let other = Stream::new(&r.context).expect("a stream");
        for tensor in 0..3 {
            r.put(r.at(tensor), &ramp(N));
        }
        r.twice(r.at(0), r.at(1), &r.stream).expect("is queued");
        r.twice(r.at(1), r.at(2), &other).expect("is queued");
        let e = r.context.synchronize().expect_err("nothing orders the kernels");
        assert!(e.to_string().contains("nothing orders kernel twice"), "{e}");
    }
}

#[test]
fn a_replayed_graph_gives_the_bytes_of_its_launches() {
    let r = seeded(1);
    let chain = |r: &Rig| (0..3).try_for_each(|i| r.twice(r.at(i), r.at(i + 1), &r.stream));
    r.put(r.at(0), &ramp(N));
    chain(&r).expect("is queued");
    let want = r.get(r.at(3)).expect("is computed");
    let run = Run::capture(&r.stream, || chain(&r)).expect("is captured");
    for tensor in 1..4 {
        r.put(r.at(tensor), &[0.0; N]);
    }
    assert_eq!(r.get(r.at(3)).expect("alive"), [0.0; N], "nothing ran in the capture");
    for _ in 0..2 {
        // SAFETY: the arena lives, and all work is in one stream.
        unsafe { run.launch(&r.stream) }.expect("is queued");
        assert_eq!(r.get(r.at(3)).expect("is computed"), want);
    }
    let failed = Run::capture(&r.stream, || r.stream.synchronize());
    assert!(failed.is_err(), "a wait cannot be captured");
    chain(&r).expect("the stream goes on");
    r.stream.synchronize().expect("the stream goes on");
}

#[test]
fn wrong_accesses_are_errors_that_name_the_kernel() {
    type Addresses = fn(&Rig) -> [u64; 2];
    let cases: [(&str, Addresses); 4] = [
        ("behind the allocation", |r| [r.at(0), r.at(15) + 8]),
        ("not allocated", |r| [r.at(0), r.at(4096)]),
        ("misaligned", |r| [r.at(0) + 2, r.at(2)]),
        ("nobody wrote", |r| [r.at(1), r.at(2)]),
    ];
    for (what, addresses) in cases {
        let r = seeded(2);
        r.put(r.at(0), &ramp(N));
        let [x, y] = addresses(&r);
        let e = r.fault(x, y);
        assert_eq!(e.kind(), ErrorKind::Device, "{e}");
        assert!(e.to_string().contains("kernel twice"), "{what}: {e}");
        eprintln!("{what}: {e}");
        assert!(r.context.memory().is_err(), "the failure stays");
    }
}

#[test]
fn reserved_addresses_without_memory_are_named_as_such() {
    let r = seeded(0);
    r.put(r.at(0), &ramp(N));
    let mut arena = Arena::growing(&r.context).expect("memory can be mapped");
    arena.grow_to(UNIT).expect("there is memory");
    let e = r.fault(r.at(0), arena.base() + UNIT as u64);
    assert!(e.to_string().contains("kernel twice") && e.to_string().contains("no memory is mapped"), "{e}");
}

#[test]
fn memory_that_is_short_is_an_error_of_the_budget() {
    let r = seeded(0);
    let is_budget = |e: Option<Error>| assert_eq!(e.expect("too much").kind(), ErrorKind::Budget);
    is_budget(Arena::whole(&r.context, 17 << 20).err());
    let mut arena = Arena::growing(&r.context).expect("memory can be mapped");
    is_budget(arena.grow_to(8 * UNIT).err());
    is_budget(arena.grow_to(9 * UNIT).err());
    arena.grow_to(7 * UNIT).expect("there is memory");
    is_budget(Arena::whole(&r.context, 3 << 20).err());
    is_budget(Pinned::new(&r.context, 1 << 60).err());
    drop(arena);
    Arena::whole(&r.context, 15 << 20).expect("the arena gave its memory back");
}

#[test]
fn bytes_go_both_ways_through_pinned_memory() {
    let r = seeded(3);
    let mut pinned = Pinned::new(&r.context, 3000).expect("the host has memory");
    assert_eq!(pinned.bytes(), [0; 3000]);
    pinned.bytes_mut().iter_mut().enumerate().for_each(|(i, b)| *b = i as u8);
    // SAFETY: all is in one stream, and waited for before the bytes are read.
    unsafe {
        pinned.copy_in(1001, r.at(0) + 1, 500, &r.stream).expect("is queued");
        r.stream.fill(r.at(0) + 3, 0xee, 2).expect("is queued");
        r.stream.copy(r.at(8), r.at(0) + 1, 500).expect("is queued");
        pinned.copy_out(0, r.at(8), 500, &r.stream).expect("is queued");
    }
    assert_eq!(pinned.bytes()[2], 2, "the copy has not run");
    r.stream.synchronize().expect("is copied");
    let want: Vec<u8> = (1001..1501).map(|i| if (1003..1005).contains(&i) { 0xee } else { i as u8 }).collect();
    assert_eq!(pinned.bytes()[..500], want);
}

#[test]
fn a_copy_beside_another_of_the_same_host_memory_is_found() {
    let r = seeded(3);
    let other = Stream::new(&r.context).expect("a stream");
    r.put(r.at(0), &ramp(N));
    let mut pinned = Pinned::new(&r.context, BYTES).expect("the host has memory");
    // SAFETY: this is the fault that is tested; the device runs one copy after the other, on this thread.
    unsafe {
        pinned.copy_out(0, r.at(0), BYTES, &r.stream).expect("is queued");
        pinned.copy_in(0, r.at(1), BYTES, &other).expect("is queued");
    }
    let e = r.context.synchronize().expect_err("nothing orders the copies");
    assert!(e.to_string().contains("nothing orders"), "{e}");
}

#[test]
fn drivers_in_two_threads_do_not_see_one_another() {
    let work = |threads: usize| {
        let options = SoftwareOptions { devices: threads, memory_bytes: 16 << 20, ..SoftwareOptions::default() };
        let r = rig(options);
        for round in 0..20 {
            r.put(r.at(0), &vec![(threads * round) as f32; N]);
            r.twice(r.at(0), r.at(1), &r.stream).expect("is queued");
            assert_eq!(r.get(r.at(1)).expect("is computed"), [(2 * threads * round) as f32; N]);
            assert_eq!(r.context.memory().expect("alive"), ((16 << 20) - 16 * BYTES, 16 << 20));
        }
        r.fault(r.at(0), 64);
        r.context.memory().expect_err("the failure stays");
    };
    let apart = seeded(0);
    std::thread::scope(|s| {
        let workers = [1, 2].map(|n| s.spawn(move || work(n)));
        workers.into_iter().for_each(|w| w.join().expect("nothing is wrong"));
    });
    apart.context.memory().expect("failures of other drivers are theirs");
}

#[test]
fn a_driver_is_used_from_a_thread_that_did_not_make_it() {
    let driver: Driver = software(SoftwareOptions { devices: 3, ..SoftwareOptions::default() }).expect("a driver");
    let name = std::thread::scope(|s| {
        s.spawn(|| {
            assert_eq!(driver.devices().expect("alive"), 3);
            let context = driver.context(2).expect("a device");
            assert!(context.has_virtual_memory() && context.architecture() >= Architecture::OLDEST);
            assert!(!context.enable_peer(&driver.context(0).expect("a device")).expect("alive"));
            context.name().to_owned()
        })
        .join()
        .expect("nothing is wrong")
    });
    assert_eq!(name, "Software device 2");
    let e = driver.context(3).err().expect("there are three");
    assert!(e.to_string().contains("the driver finds 3"), "{e}");
    assert_eq!(
        software(SoftwareOptions { devices: 65, ..SoftwareOptions::default() }).err().map(|e| e.kind()),
        Some(ErrorKind::Value)
    );
}

#[test]
fn time_passes_between_events_around_work() {
    let r = seeded(0);
    let [start, end, untimed] = [true, true, false].map(|t| Event::new(&r.context, t).expect("an event"));
    r.put(r.at(0), &ramp(N));
    start.record(&r.stream).expect("recorded");
    r.twice(r.at(0), r.at(1), &r.stream).expect("is queued");
    end.record(&r.stream).expect("recorded");
    untimed.record(&r.stream).expect("recorded");
    assert_eq!(end.state().expect("alive"), State::Ahead);
    start.nanoseconds_to(&end).expect_err("the kernel has not run");
    end.synchronize().expect("is reached");
    assert!(start.nanoseconds_to(&end).expect("both are reached") > 0);
    start.nanoseconds_to(&untimed).expect_err("it has no time");
}

#[test]
fn machine_code_is_refused_with_advice() {
    let r = seeded(0);
    let e = Module::load(&r.context, &Code::of_parts(b"\x7fELF\x02\x01\x01\0".to_vec(), true, Default::default()))
        .err()
        .expect("not PTX");
    assert!(e.to_string().contains("compile to PTX"), "{e}");
    let e = Module::load(&r.context, &Code::of_ptx(b"nonsense\0".to_vec())).err().expect("not PTX");
    assert!(e.to_string().contains("line 1"), "{e}");
}
