//! `cargo xtask regenerate`: brings every generated file up to date, in the order of their dependencies.
//!
//! The catalogue is extracted from the sources, and Python's operators are generated from the catalogue. Both are
//! compiled in. The built programs then generate Python's layers, the book's list and the serial forms. Each generator
//! stays at its own place, and this is the only list of them. With `--check` they run as well, since a file may be
//! stale only because an earlier one is. All files are restored then.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::cargo::cargo;
use crate::repo::Repo;
use crate::{catalogue, mpi, python};

/// The generated files.
const FILES: &[&str] = &[
    catalogue::FILE,
    "crates/python/src/ops/table.rs",
    "python/remat/_functions.py",
    "python/remat/_remat.pyi",
    "python/remat/nn/_layers.py",
    BOOK,
    SERIAL_FORMS,
];
const BOOK: &str = "docs/src/operator-list.md";
/// The file with every serial form of a sample of an op.
pub(crate) const SERIAL_FORMS: &str = "crates/ops/tests/samples/serial_forms.txt";

/// A step that generates some of the files.
struct Stage {
    name: &'static str,
    run: fn(&Repo) -> Result<(), String>,
}

const STAGES: &[Stage] = &[
    Stage { name: "catalogue of methods and layers", run: |repo| catalogue::write(repo).map(drop) },
    Stage { name: "functions of Python", run: |repo| script(repo, "scripts/make_python_operators.py") },
    Stage { name: "build", run: build },
    Stage { name: "layers of Python", run: layers },
    Stage { name: "list of the book", run: book },
    Stage { name: "serial forms", run: serial_forms },
];

/// The command. False if `--check` found a stale file.
pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<bool, String> {
    let check = match args {
        [] => false,
        [one] if one == "--check" => true,
        _ => return Err("`cargo xtask regenerate` takes `--check` and nothing else".to_owned()),
    };
    let changed = regenerate(repo, STAGES, FILES, check)?;
    let said = if check { "stale" } else { "changed" };
    changed.iter().for_each(|file| println!("{said}: {file}"));
    match (changed.len(), check) {
        (0, _) => println!("all {} generated files are up to date", FILES.len()),
        (_, true) => eprintln!("`cargo xtask regenerate` brings them up to date"),
        (n, false) => println!("{n} of {} generated files changed", FILES.len()),
    }
    Ok(changed.is_empty() || !check)
}

/// Runs the stages, and gives the files that they changed. A check restores their old texts, after a failure too.
fn regenerate<'f>(repo: &Repo, stages: &[Stage], files: &[&'f str], check: bool) -> Result<Vec<&'f str>, String> {
    let before: Vec<Option<String>> = files.iter().map(|file| repo.read(Path::new(file)).ok()).collect();
    let ran = stages.iter().try_for_each(|stage| {
        let start = Instant::now();
        (stage.run)(repo).map_err(|e| format!("{}: {e}", stage.name))?;
        eprintln!("{}: {:.1} s", stage.name, start.elapsed().as_secs_f64());
        Ok::<(), String>(())
    });
    let mut changed = Vec::new();
    for (file, old) in files.iter().zip(before) {
        if repo.read(Path::new(file)).ok() == old {
            continue;
        }
        changed.push(*file);
        let path = repo.root().join(file);
        match old {
            Some(old) if check => fs::write(&path, old).map_err(|e| format!("{file}: {e}"))?,
            None if check => fs::remove_file(&path).map_err(|e| format!("{file}: {e}"))?,
            _ => {}
        }
    }
    ran.map(|()| changed)
}

/// Runs a script of the repository.
fn script(repo: &Repo, path: &str) -> Result<(), String> {
    let python =
        python::find().ok_or("there is no Python that makes the files of its package; REMAT_PYTHON names one")?;
    succeed(Command::new(python).current_dir(repo.root()).arg(path))
}

/// The test target that records serial forms, in every crate that tests samples.
pub(crate) const SAMPLES: [&str; 2] = ["--test", "samples"];

/// Builds the programs for the later stages. A test target is among them so that dependencies have the same features as
/// in `cargo xtask test`, and nothing is compiled for this alone.
fn build(repo: &Repo) -> Result<(), String> {
    let mut build = cargo(repo.root());
    build.args(["build", "--quiet", "--workspace", "--lib", "--bins"]).args(SAMPLES).args(mpi::features(repo));
    succeed(&mut build)
}

fn layers(repo: &Repo) -> Result<(), String> {
    python::place_compiled(repo)?;
    script(repo, "scripts/make_python_layers.py")
}

fn book(repo: &Repo) -> Result<(), String> {
    let command = python::target(repo.root())?.join("debug/remat");
    let output = Command::new(&command).args(["ops", "--book"]).output();
    let output = output.map_err(|e| format!("cannot run {}: {e}", command.display()))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    repo.write_changed(BOOK, &output.stdout)
}

/// Adds new forms. Fails if an op no longer writes a recorded form: files contain it.
fn serial_forms(repo: &Repo) -> Result<(), String> {
    let mut record = samples(repo);
    succeed(record.args(["serial_forms"]).env("REMAT_RECORD", "1"))
}

/// Runs the tests of samples. The caller may add a filter.
pub(crate) fn samples(repo: &Repo) -> Command {
    let mut test = cargo(repo.root());
    test.args(["test", "--quiet", "--workspace"]).args(SAMPLES).args(mpi::features(repo)).arg("--");
    test
}

/// Runs a command. Its output is the error.
fn succeed(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|e| format!("cannot run {command:?}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].map(|t| String::from_utf8_lossy(&t).trim().to_owned());
    Err(text.join("\n").trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    const MADE: [&str; 2] = ["made.txt", "new.txt"];

    fn write(repo: &Repo, file: &str, text: &str) -> Result<(), String> {
        repo.write_changed(file, text.as_bytes())
    }

    const COPY: Stage = Stage { name: "copy", run: |r| write(r, "made.txt", &r.read(Path::new("source.txt"))?) };
    const NEW: Stage = Stage { name: "new", run: |r| write(r, "new.txt", "there") };
    const FAIL: Stage = Stage { name: "bad", run: |_| Err("no".to_owned()) };

    #[test]
    fn what_changed_is_told_once() {
        let repo = Scratch::new(&[("source.txt", "now"), ("made.txt", "before")]);
        assert_eq!(regenerate(&repo, &[COPY, NEW], &MADE, false).unwrap(), MADE);
        assert_eq!(repo.read(Path::new("made.txt")).unwrap(), "now");
        assert!(regenerate(&repo, &[COPY, NEW], &MADE, false).unwrap().is_empty(), "it is idempotent");
    }

    #[test]
    fn a_check_names_what_is_stale_and_changes_nothing() {
        let repo = Scratch::new(&[("source.txt", "now"), ("made.txt", "before")]);
        assert_eq!(regenerate(&repo, &[COPY, NEW], &MADE, true).unwrap(), MADE);
        assert_eq!(repo.read(Path::new("made.txt")).unwrap(), "before");
        assert!(!repo.has(Path::new("new.txt")));
        let e = regenerate(&repo, &[COPY, FAIL], &MADE, true).unwrap_err();
        assert_eq!((e.as_str(), repo.read(Path::new("made.txt")).unwrap().as_str()), ("bad: no", "before"));
    }

    #[test]
    fn what_a_command_prints_is_the_error() {
        let e = succeed(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 1"])).unwrap_err();
        assert_eq!(e, "out\nerr");
        assert!(run(&Scratch::new(&[]), &["--chek".to_owned()]).is_err());
    }
}
