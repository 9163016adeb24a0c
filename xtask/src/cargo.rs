//! Running cargo on the workspace.

use std::path::Path;
use std::process::Command;

use crate::finding::Finding;
use crate::mpi;
use crate::repo::Repo;

/// The folders in which tests look for the compiler of CUDA's kernels.
pub(crate) const CUDA_LIBRARIES: &str = "REMAT_CUDA_LIBRARIES";

/// A cargo command in `dir`, with the cargo that runs this program.
pub(crate) fn cargo(dir: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(dir);
    command
}

/// Runs every test, including ranks over MPI if the machine has it. Cargo's closing lines are the last output. Examples
/// are not tests: clippy makes sure that they compile.
pub(crate) fn test(repo: &Repo, rest: &[String], cuda_compiler: Option<&Path>) -> Result<bool, String> {
    let tests = || {
        let mut command = cargo(repo.root());
        command.args(["test", "--workspace", "--no-fail-fast"]);
        if let Some(folder) = cuda_compiler {
            command.env(CUDA_LIBRARIES, folder);
        }
        command
    };
    if !rest.is_empty() {
        return succeeds(tests().args(rest));
    }
    if !mpi::is_here() {
        let why = mpi::missing().map_or_else(|| "REMAT_MPI is 0".to_owned(), |what| format!("there is no {what}"));
        println!(
            "skipped the tests of ranks over MPI ({why}; Debian: apt-get install libopenmpi-dev openmpi-bin libclang-dev)"
        );
    }
    let features = mpi::features(repo);
    // every target whose manifest does not set `test = false`
    let passed = succeeds(tests().args(&features).arg("--tests"))?;
    Ok(succeeds(tests().args(&features).arg("--doc"))? && passed)
}

/// The manifest of the fuzz targets, a workspace of its own.
const FUZZ: &str = "fuzz/Cargo.toml";

/// `cargo fmt --check` on every crate, and on the fuzz targets.
pub(crate) fn check_format(repo: &Repo) -> Result<Vec<Finding>, String> {
    needs_component(repo, "fmt", "rustfmt")?;
    let mut passed = succeeds(cargo(repo.root()).args(["fmt", "--all", "--", "--check"]))?;
    if repo.has(Path::new(FUZZ)) {
        let fuzz = succeeds(cargo(repo.root()).args(["fmt", "--manifest-path", FUZZ, "--", "--check"]))?;
        passed = passed && fuzz;
    }
    Ok(verdict(passed, "some files are not formatted (shown above); run `cargo fmt --all`, in `fuzz` too"))
}

/// `cargo clippy` on every target. Warnings are errors.
pub(crate) fn check_clippy(repo: &Repo) -> Result<Vec<Finding>, String> {
    needs_component(repo, "clippy", "clippy")?;
    let mut command = cargo(repo.root());
    command.args(["clippy", "--quiet", "--workspace", "--all-targets"]).args(mpi::features(repo));
    let passed = succeeds(command.args(["--", "-D", "warnings"]))?;
    Ok(verdict(passed, "clippy or the compiler complains above; mend each place it names"))
}

/// `cargo doc`. Warnings are errors, so that links in doc comments lead somewhere.
pub(crate) fn check_docs(repo: &Repo) -> Result<Vec<Finding>, String> {
    let mut command = cargo(repo.root());
    command
        .args(["doc", "--quiet", "--workspace", "--no-deps"])
        .args(mpi::features(repo))
        .env("RUSTDOCFLAGS", "-D warnings");
    let passed = succeeds(&mut command)?;
    Ok(verdict(passed, "rustdoc complains above; mend the doc comments it names"))
}

fn succeeds(command: &mut Command) -> Result<bool, String> {
    let status = command.status().map_err(|e| format!("cannot run cargo: {e}"))?;
    Ok(status.success())
}

fn needs_component(repo: &Repo, subcommand: &str, component: &str) -> Result<(), String> {
    let output = cargo(repo.root()).args([subcommand, "--version"]).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        _ => Err(format!(
            "`cargo {subcommand}` is missing; install it with `rustup component add {component}` \
             (or your distribution's package of that name)"
        )),
    }
}

/// A finding that says what to do. The tool has already printed each place.
fn verdict(passed: bool, message: &str) -> Vec<Finding> {
    if passed { Vec::new() } else { vec![Finding::error(Path::new("workspace"), 0, message)] }
}
