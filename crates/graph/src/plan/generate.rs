//! Benchmark problems: training steps of known networks, chains and random graphs, the same on every machine.
//!
//! Operators, sizes and times are derived from shapes: f32 values, the operators that a framework would launch, and a
//! roofline for times. They stand for a device of 15 Tflop/s and 600 GB/s; none was measured.

mod nets;
mod random;
mod tape;

use remat_types::{Error, ErrorKind, Result};

use super::problem::Spec;

/// The names that [`generate`] takes; `N` is a number.
pub const NAMES: &[&str] = &[
    "chain-N",
    "gpt-N",
    "lstm-N",
    "highway-N",
    "shared-N",
    "resnet50",
    "unet",
    "densenet121",
    "mobilenetv2",
    "random-N",
    "random-N-SEED",
];

/// Nodes or layers beyond this are refused: the problem's text alone would be large.
const LARGEST_COUNT: u64 = 20_000;

/// The problem called `name`.
///
/// # Errors
/// [`ErrorKind::Value`] for a name that is not one of [`NAMES`], or a number outside 1 to 20,000.
pub fn generate(name: &str) -> Result<Spec> {
    let unknown =
        || Error::new(ErrorKind::Value, format!("no problem is called `{name}`; known: {}", NAMES.join(", ")));
    let mut parts = name.split('-');
    let family = parts.next().unwrap_or_default();
    let numbers: Vec<u64> = parts.map(str::parse).collect::<std::result::Result<_, _>>().map_err(|_| unknown())?;
    let spec = match (family, numbers.as_slice()) {
        ("chain", &[n]) => random::chain(count(n)?),
        ("gpt", &[n]) => nets::gpt(count(n)?),
        ("lstm", &[n]) => nets::lstm(count(n)?),
        ("highway", &[n]) => nets::highway(count(n)?),
        ("shared", &[n]) => nets::shared(count(n)?),
        ("resnet50", []) => nets::resnet50(),
        ("unet", []) => nets::unet(),
        ("densenet121", []) => nets::densenet121(),
        ("mobilenetv2", []) => nets::mobilenetv2(),
        ("random", &[n]) => random::layered(count(n)?, 1),
        ("random", &[n, seed]) => random::layered(count(n)?, seed),
        _ => return Err(unknown()),
    };
    Ok(spec)
}

fn count(n: u64) -> Result<usize> {
    if (1..=LARGEST_COUNT).contains(&n) {
        return Ok(n as usize);
    }
    Err(Error::new(ErrorKind::Value, format!("a problem has from 1 to {LARGEST_COUNT} parts, not {n}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::lifetime::lifetimes;
    use crate::plan::problem::Problem;

    #[test]
    fn every_name_gives_a_valid_problem_and_always_the_same() {
        for name in NAMES {
            let name = name.replace("SEED", "3").replace('N', "12");
            let spec = generate(&name).expect(&name);
            assert_eq!(spec, generate(&name).expect(&name));
            let p = Problem::new(spec).expect(&name);
            let all: Vec<usize> = (0..p.ops().len()).collect();
            let peak = lifetimes(&p, &all).expect("own order").peak();
            assert!(peak > p.given_bytes() && p.base_time_ns() > 0, "{name}");
        }
    }

    #[test]
    fn networks_have_the_size_they_are_known_for() {
        // Parameters of the papers, in millions, to within 2 %.
        for (name, millions) in [("resnet50", 25.6), ("densenet121", 8.0), ("mobilenetv2", 3.5), ("gpt-12", 124.0)] {
            let spec = generate(name).expect(name);
            let weights: u64 = spec.values.iter().filter(|(n, _)| n.ends_with(".w")).map(|(_, b)| b / 4).sum();
            let found = weights as f64 / 1e6;
            assert!((found / millions - 1.0).abs() < 0.02, "{name}: {found}");
        }
    }

    #[test]
    fn wrong_names_say_what_is_known() {
        for name in ["", "chain", "chain-0", "chain-x", "resnet50-3", "random-99999999", "gpt--1"] {
            let e = generate(name).expect_err(name).to_string();
            assert!(e.contains("chain-N") || e.contains("20000"), "{name}: {e}");
        }
    }
}
