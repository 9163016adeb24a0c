//! The share of the memory's speed that kernels reach on large arrays.
//!
//! `cargo run --release -p remat-kernels --example bandwidth -- [SECONDS [NAME]] [--write FILE]` times each kernel whose
//! name has NAME in it for about SECONDS (1) on one thread and on two, prints a table, and puts it between the markers of
//! FILE. It takes 1 GiB of memory.
//!
//! Kernel and bound take turns. The bound is a stream: `machine::triad` for kernels that write, `machine::read` for those
//! that only read. A cache reads a line before it writes a part of it, so an array that is written without being read
//! moves twice; that is counted on both sides of the share, or a kernel that mostly writes would look slow. GB/s are of
//! what the kernel itself has to read and write, each array once.
//!
//! The same kernel on arrays that stay in the cache says what its arithmetic allows: `compute` binds where as many such
//! threads would be slower than the stream from memory.

mod kernels;

use kernels::{Kernel, all};
use remat_kernels::machine::{read, triad};
use remat_kernels::pool::Pool;

#[path = "../support/repeats.rs"]
mod repeats;
#[path = "../support/table.rs"]
mod table;
#[path = "../support/turns.rs"]
mod turns;

use repeats::repeats;
use turns::{median, turns};

const MARKS: [&str; 2] = ["<!-- bandwidth-table -->", "<!-- /bandwidth-table -->"];
/// Elements of the small arrays, 147 KiB of f32: four of them stay in a second cache.
const SMALL: usize = kernels::UNIT;
/// Elements of the large arrays, 128 MiB of f32: more than last caches hold.
const LARGE: usize = 896 * kernels::UNIT;
/// Seconds of a round of a kernel on small arrays.
const SMALL_ROUND: f64 = 2e-3;

/// The arrays of the streams.
struct Streams {
    a: Vec<f32>,
    b: Vec<f32>,
    y: Vec<f32>,
}

impl Streams {
    /// Runs the bound of `kernel`.
    fn run(&mut self, pool: &Pool, kernel: &Kernel) {
        if kernel.writes() {
            triad(pool, &mut self.y, &self.a, 0.5, &self.b);
        } else {
            read(pool, &self.a);
        }
    }

    /// Bytes that the bound moves: two arrays read, and one that is read and written.
    fn moved_bytes(kernel: &Kernel) -> f64 {
        (if kernel.writes() { 16 * LARGE } else { 4 * LARGE }) as f64
    }
}

/// GB/s of both streams on one thread and on two, each array counted once.
fn stream_speeds(streams: &mut Streams, seconds: f64) -> String {
    let Streams { a, b, y } = streams;
    let mut line = |threads| {
        let pool = Pool::new(threads);
        let (mut triad, mut read) = (|| triad(&pool, y, a, 0.5, b), || read(&pool, a));
        let rounds = turns(seconds, [&mut triad, &mut read]);
        let speed = |arrays: usize, i: usize| (4 * arrays * LARGE) as f64 / median(rounds.iter().map(|r| r[i])) / 1e9;
        (speed(3, 0), speed(1, 1))
    };
    let ((triad, read), (triads, reads)) = (line(1), line(2));
    format!(
        "The stream that writes has {triad:.1} GB/s on one thread and {triads:.1} on two, the other {read:.1} and {reads:.1}"
    )
}

/// Times a kernel on some numbers of threads: the lines of the table.
fn lines(kernel: &Kernel, streams: &mut Streams, seconds: f64) -> String {
    let (mut work, mut small_work) = ((kernel.make)(LARGE), (kernel.make)(SMALL));
    let one = Pool::new(1);
    let times = repeats(SMALL_ROUND, || small_work(&one));
    let line = |threads: usize| {
        let pool = Pool::new(threads);
        let mut large = || work(&pool);
        let mut small = || (0..times).for_each(|_| small_work(&one));
        let streams = std::cell::RefCell::new(&mut *streams);
        let bound = || streams.borrow_mut().run(&pool, kernel);
        let (mut before, mut after) = (bound, bound);
        let rounds = turns(seconds, [&mut before, &mut large, &mut after, &mut small]);
        let bound = |[before, _, after, _]: &[f64; 4]| Streams::moved_bytes(kernel) / before.min(*after);
        let share = median(rounds.iter().map(|round| kernel.moved_bytes(LARGE) / round[1] / bound(round)));
        let in_cache = |round: &[f64; 4]| (times * SMALL) as f64 / round[3];
        let cached =
            median(rounds.iter().map(|round| {
                in_cache(round) * threads as f64 * kernel.moved_bytes(LARGE) / LARGE as f64 / bound(round)
            }));
        format!(
            "| {} | {threads} | {:.1} | {share:.2} | {:.1} | {} |\n",
            kernel.name,
            median(rounds.iter().map(|round| kernel.bytes(LARGE) / round[1])) / 1e9,
            median(rounds.iter().map(in_cache)) * kernel.bytes(LARGE) / LARGE as f64 / 1e9,
            if cached < 1.0 { "compute" } else { "memory" },
        )
    };
    [1, 2].map(line).concat()
}

/// The processor's name and what else it does, where the system tells.
fn conditions() -> String {
    let text = |file| std::fs::read_to_string(file).unwrap_or_default();
    let info = text("/proc/cpuinfo");
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let load = text("/proc/loadavg");
    let load = load.split(' ').next().filter(|load| !load.is_empty());
    let name = name.map_or("unknown processor", |(_, name)| name);
    format!("{name}{}", load.map_or(String::new(), |load| format!(", load average {load} at the end")))
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).take_while(|arg| !arg.starts_with("--")).collect();
    let seconds = args.first().map_or(1.0, |s| s.parse().expect("SECONDS is a number"));
    let name = args.get(1).map_or("", String::as_str);
    let filled = || kernels::values(LARGE);
    let mut streams = Streams { a: filled(), b: filled(), y: filled() };
    let mut text = String::from(
        "| kernel | threads | GB/s | of the stream | in cache GB/s, one thread | bound |\n|---|--:|--:|--:|--:|---|\n",
    );
    print!("{text}");
    for kernel in all().iter().filter(|kernel| kernel.name.contains(name)) {
        let lines = lines(kernel, &mut streams, seconds);
        print!("{lines}");
        text += &lines;
    }
    let (speeds, on) = (stream_speeds(&mut streams, seconds), conditions());
    let note = format!("\n{speeds}. Arrays of {} MiB; medians of turns of {seconds} s on {on}.\n", LARGE >> 18);
    print!("{note}");
    table::write(MARKS, &(text + &note));
}
