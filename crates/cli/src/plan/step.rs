//! Training steps and forward passes as problems: traced, and timed by a few runs unless estimates will do.

use std::fmt;
use std::str::FromStr;

use remat::runtime::CommandStream;
use remat::types::{Error, ErrorKind, Result};
use remat_graph::plan::problem::Problem;

use crate::bench::Network;
use crate::networks::{Recipe, Trained};
use crate::{chars, digits, train};

/// What the user named.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Work {
    Recipe(Recipe),
    Network(Network),
}

impl FromStr for Work {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.split_once(':') {
            Some(("train", name)) => Ok(match name.parse()? {
                Trained::Recipe(r) => Work::Recipe(r),
                Trained::Network(s) => Work::Network(Network::Train(s)),
            }),
            Some(("model", name)) => Network::model(name).map(Work::Network),
            _ => {
                Err(format!("`{text}` is neither `train:NAME` nor `model:NAME`; a graph in a file is given with --dag"))
            }
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Recipe(r) => write!(f, "train:{}", Trained::Recipe(*r)),
            Work::Network(n) => n.fmt(f),
        }
    }
}

/// Timed runs; the first warms caches, and the least time of each operator counts.
const RUNS: usize = 5;

/// The step as a problem, in which parameters, optimiser state and data count. Errors: those of the network.
pub(super) fn problem(work: Work, batch: Option<usize>, threads: Option<usize>, is_estimated: bool) -> Result<Problem> {
    let runs = if is_estimated { 0 } else { RUNS };
    let executable = match work {
        Work::Recipe(Recipe::Digits) => train::timed::<digits::Options>(batch, threads, runs)?,
        Work::Recipe(Recipe::Chars) => train::timed::<chars::Options>(batch, threads, runs)?,
        Work::Network(network) => network.timed(batch, threads, runs)?,
    };
    if runs > 0 && !executable.is_timed() {
        return Err(Error::new(ErrorKind::Internal, "the step was run and has no times"));
    }
    Problem::new(executable.problem(&executable.fastest_times())?)
}

/// Steps of a recording: foresight plans what it has seen twice, and follows the rest.
const STEPS: usize = 5;

/// What eager steps ask of the runtime. Errors: those of the network.
pub(super) fn stream(
    work: Work,
    batch: Option<usize>,
    threads: Option<usize>,
    is_estimated: bool,
) -> Result<CommandStream> {
    match work {
        Work::Network(network) => network.recorded(batch, threads, STEPS, is_estimated),
        Work::Recipe(Recipe::Digits) => train::recorded::<digits::Options>(batch, threads, STEPS, is_estimated),
        Work::Recipe(Recipe::Chars) => train::recorded::<chars::Options>(batch, threads, STEPS, is_estimated),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn works_read_as_they_print() {
        for text in ["train:digits", "train:chars", "train:resnet50", "train:gpt", "model:mlp"] {
            assert_eq!(text.parse::<Work>().expect("valid").to_string(), text);
        }
        let names = "train:imagenet".parse::<Work>().expect_err("none");
        assert!(names.contains("digits") && names.contains("resnet50"), "{names}");
        assert!("graph.json".parse::<Work>().expect_err("a file").contains("--dag"));
    }

    #[test]
    fn a_measured_step_is_a_problem_whose_states_count() {
        let of = |is_estimated| {
            let mlp = Work::Network(Network::step("mlp").expect("known"));
            problem(mlp, Some(4), Some(1), is_estimated).expect("it runs")
        };
        let (measured, estimated) = (of(false), of(true));
        assert_eq!(measured.ops().len(), estimated.ops().len());
        assert!(measured.base_time_ns() > 0 && estimated.base_time_ns() > 0);
        assert_ne!(measured.base_time_ns(), estimated.base_time_ns(), "one of them was measured");
        // 784-512-512-10 with biases, and the momentum of each
        let numbers = 784 * 512 + 512 + 512 * 512 + 512 + 512 * 10 + 10;
        assert!(measured.given_bytes() >= 2 * 4 * numbers, "{} bytes", measured.given_bytes());
    }
}
