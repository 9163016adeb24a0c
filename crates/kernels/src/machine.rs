//! The limits of the machine: multiply-adds from registers, streams from memory, and words between two cores.
//!
//! Kernels are judged by their share of these figures, so the loops are built from the same vectors as the kernels. The
//! caller takes the time: one call is one sample.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::pool::Pool;
use crate::simd::{Isa, Simd, Wide};

/// Independent chains: two units of up to six cycles latency stay busy, and 16 registers suffice.
const CHAINS: usize = 12;
/// Elements that are worth a part of a pool run.
const GRAIN_ELEMS: usize = 1 << 14;

/// The instruction set that kernels use: `avx512`, `avx2`, `neon` or `portable`. It is the widest of the processor, unless
/// the environment variable `REMAT_MAX_ISA` names one of the others.
///
/// # Errors
/// What the variable may say, if it names none that this processor has. Kernels then use the widest.
pub fn instruction_set() -> Result<&'static str, String> {
    Isa::allowed().map(Isa::name)
}

#[inline(always)]
unsafe fn chains<V: Simd<Elem = f32>>(steps: usize) -> f32 {
    // SAFETY: the caller says that the processor has the instruction set; the buffer holds the widest vector.
    unsafe {
        let factor = V::splat(black_box(0.5));
        let mut acc = [V::splat(black_box(1.0)); CHAINS];
        for _ in 0..steps {
            for a in &mut acc {
                *a = a.mul_add(factor, factor);
            }
        }
        let mut out = [0.0; 16];
        for a in acc {
            a.add(V::load(out.as_ptr())).store(out.as_mut_ptr());
        }
        out[0]
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn chains_avx2(steps: usize) -> f32 {
    // SAFETY: the features are enabled here.
    unsafe { chains::<std::arch::x86_64::__m256>(steps) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn chains_avx512(steps: usize) -> f32 {
    // SAFETY: the feature is enabled here.
    unsafe { chains::<std::arch::x86_64::__m512>(steps) }
}

/// Runs `steps` steps of independent f32 multiply-adds on each thread and returns how many floating-point operations
/// that was, two per multiply-add.
pub fn multiply_adds(pool: &Pool, steps: usize) -> u64 {
    let isa = Isa::best();
    pool.run(pool.threads(), &|_| {
        // SAFETY: the portable vector runs everywhere; the others were detected by `Isa::best`.
        black_box(unsafe {
            match isa {
                Isa::Portable => chains::<Wide<f32, 4>>(steps),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => chains_avx2(steps),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => chains_avx512(steps),
                #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
                Isa::Neon => chains::<crate::simd::neon::F32>(steps),
            }
        });
    });
    let lanes: u64 = match isa {
        Isa::Portable => 4,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => 8,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => 16,
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        Isa::Neon => 8,
    };
    2 * lanes * CHAINS as u64 * (steps * pool.threads()) as u64
}

/// `y = a + s b`, the stream benchmark's triad. Moves `12 y.len()` bytes (a cache also reads `y` first: not counted).
///
/// # Panics
/// If lengths differ.
pub fn triad(pool: &Pool, y: &mut [f32], a: &[f32], s: f32, b: &[f32]) {
    assert!(y.len() == a.len() && y.len() == b.len(), "the three arrays of a triad have one length");
    let chunk = y.len().div_ceil(pool.split(y.len(), GRAIN_ELEMS)).max(1);
    pool.chunks_mut(y, chunk, |i, y| {
        let at = i * chunk;
        for ((y, &a), &b) in y.iter_mut().zip(&a[at..]).zip(&b[at..]) {
            *y = a + s * b;
        }
    });
}

/// Reads all of `x`: each thread adds up its part in independent sums, and nothing is written.
pub fn read(pool: &Pool, x: &[f32]) {
    const SUMS: usize = 64;
    pool.ranges(x.len(), GRAIN_ELEMS, |range| {
        let mut sums = [0.0f32; SUMS];
        for block in x[range].chunks_exact(SUMS) {
            for (sum, x) in sums.iter_mut().zip(block) {
                *sum += x;
            }
        }
        black_box(sums);
    });
}

/// The time in which two threads of their own pass a word to and fro, `rounds` times.
///
/// What threads tell each other, and what one reads that another wrote, takes this way: some 50 ns between cores that
/// share a last cache, ten times that between others, and a hypervisor may move a processor from here to there.
pub fn round_trips(rounds: usize) -> Duration {
    pass_to_and_fro(rounds).0
}

/// The time, and how often the word was passed.
fn pass_to_and_fro(rounds: usize) -> (Duration, usize) {
    /// Looks at the word before a thread leaves its core to others.
    const LOOKS: usize = 1 << 8;
    let word = AtomicUsize::new(0);
    let pass = |first: usize| {
        for i in 0..rounds {
            let mut looks = 0;
            while word.load(Ordering::Acquire) != 2 * i + first {
                looks += 1;
                if looks % LOOKS == 0 {
                    std::thread::yield_now();
                }
                std::hint::spin_loop();
            }
            word.store(2 * i + first + 1, Ordering::Release);
        }
    };
    let time = std::thread::scope(|scope| {
        scope.spawn(|| pass(1));
        if rounds == 0 {
            return Duration::ZERO;
        }
        let start = Instant::now();
        pass(0);
        start.elapsed()
    });
    (time, word.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_triad_is_what_its_formula_says() {
        for threads in [1, 2] {
            let (pool, n) = (Pool::new(threads), 100_003);
            let (a, b): (Vec<f32>, Vec<f32>) = (0..n).map(|i| (i as f32, (i % 7) as f32)).unzip();
            let mut y = vec![f32::NAN; n];
            triad(&pool, &mut y, &a, 2.0, &b);
            assert!((0..n).all(|i| y[i] == a[i] + 2.0 * b[i]));
            triad(&pool, &mut [], &[], 2.0, &[]);
            read(&pool, &a);
        }
    }

    #[test]
    fn every_word_is_answered() {
        assert_eq!(pass_to_and_fro(0), (Duration::ZERO, 0));
        let (time, words) = pass_to_and_fro(5000);
        assert!(time > Duration::ZERO && words == 10_000, "{words} in {time:?}");
    }

    #[test]
    fn multiply_adds_are_counted_per_thread() {
        let (one, two) = (Pool::new(1), Pool::new(2));
        assert_eq!(2 * multiply_adds(&one, 10), multiply_adds(&two, 10));
        assert_eq!(multiply_adds(&one, 20), 2 * multiply_adds(&one, 10));
    }
}
