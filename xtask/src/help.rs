//! The text of `cargo xtask help`.

use crate::checks::CHECKS;

const HEAD: &str = "\
Checks and chores of the Remat repository.

  cargo xtask check [NAME ...]
      Runs every check below, or the named ones. All of them run before it exits, so one run shows every finding. It
      exits with 1 if any failed. `warning:` lines fail nothing.
";

const TAIL: &str = "
  cargo xtask test [ARG ...]
      Runs every unit, integration and documentation test: cargo test --workspace --no-fail-fast, with the dev profile
      (checked arithmetic and debug assertions; kernels, planners and dependencies are optimised). ARGs go to cargo test.
      Without ARGs it also tests ranks over MPI, if the machine has MPI and libclang (REMAT_MPI=0: never). Before
      that, pytest runs over python/, in a virtual environment of the target folder, if there is Python 3.10 or newer
      (REMAT_PYTHON names one). Otherwise it says that it skipped them.

  cargo xtask plant-faults [FILE] [--only NAME] [--from NAME] [--list] [--jobs N]
                           [--timeout SECONDS]
      Proves the tests: plants each fault of xtask/faults/*.toml (or of FILE) in a scratch copy of the tree, one at a
      time, and expects its test to fail. Exits with 1 if a fault survives, does not compile, or no longer fits the
      code. --from continues an interrupted run; --jobs goes to cargo's builds. The format is in xtask/faults/README.md.

  cargo xtask draw-faults [--count N] [--seed S] [--list] [--only K] [--jobs N] [--timeout SECONDS]
      Proves the tests by random faults: the seed S draws N places (24) in operators, kernels, methods and layers, and a
      small mistake at each: a boundary, a sign, a term, an off by one, a tie, a missing check. All are built at once,
      and each run makes one. Exits with 1 if a fault escapes every suite. Mistakes that change no result are listed in
      xtask/faults/drawn/equivalent.toml.

  cargo xtask catalogue
      Extracts from the sources the items that a program can call (methods, layers, losses, optimisers, schedules), with
      signatures and texts, and writes crates/remat/src/catalogue.json, which `remat ops` shows.

  cargo xtask regenerate [--check]
      Brings every generated file up to date after a change of operators, methods or layers: the catalogue, Python's
      functions, layers and types, the book's list of operators, new serial forms. Builds the programs that it needs, and
      prints the files that changed. With --check no file changes, and it exits with 1 if one is stale. Needs Python.

  cargo xtask walk
      Follows the way to a new operator that CONTRIBUTING.md describes, in a scratch copy of the tree. Applies the page's
      blocks to the files that they name. Then it runs `cargo xtask regenerate`, the harness over the new samples, a round
      trip through ONNX and the new examples of Python. Prints the time of each stage, and exits with 1 at the first one
      that fails, with what to mend. Builds the workspace once more, and keeps the build. Needs Python.

  cargo xtask ptxas [--json FILE]
      Compiles the kernels that the samples of all operators need, for an old, a usual and the newest architecture, with
      NVIDIA's compiler and assembler, which it installs as packages of Python. Prints a table of registers, shared memory,
      stack and spilled bytes by family of kernels. Exits with 1 if a kernel spills. Needs Python and no GPU.

  cargo xtask rebuild-times [CRATE ...]
      Touches a file of each crate in turn, or of the crates whose folders are named, builds the tests of the workspace
      again, and prints a table of seconds: the cost of a change in each crate. For a machine that does nothing else.
";

/// The whole help text.
pub(crate) fn text() -> String {
    let width = CHECKS.iter().map(|c| c.name.len()).max().unwrap_or(0);
    let rows: String = CHECKS.iter().map(|c| format!("      {:width$}  {}\n", c.name, c.teaches)).collect();
    format!("{HEAD}\n{rows}{TAIL}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_every_check() {
        let text = text();
        assert!(CHECKS.iter().all(|c| text.contains(c.name) && text.contains(c.teaches)));
    }
}
