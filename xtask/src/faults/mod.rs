//! `cargo xtask plant-faults`: a test suite is judged by the faults it catches.
//!
//! Each fault is a small wrong change to one file, with the test that must notice it. It is planted in a scratch copy
//! of the tree, never in the checkout, so an interrupted run leaves nothing behind. A fault counts as caught only if
//! the test passes without it, the code with it still compiles, and a test then reports failure. A compile error proves
//! nothing about the tests, and neither does a test that fails anyway.
//!
//! One copy and one build folder serve all faults, one after the other, and are kept between runs. So only the changed
//! crate and its dependents are built again. Rejected: a copy per fault in parallel (each builds everything).

pub(crate) mod draw;
mod run;
pub(crate) mod scratch;
mod spec;
mod table;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::finding::Finding;
use crate::repo::Repo;
use run::Runner;
use scratch::Tree;
use spec::Fault;
use table::Row;

/// The folder of the faults.
const FOLDER: &str = "xtask/faults";
/// A test that takes longer hangs: the slowest suite takes a tenth of this.
const TIMEOUT: Duration = Duration::from_secs(600);

/// The command line of `plant-faults`.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    source: PathBuf,
    only: Option<String>,
    from: Option<String>,
    list: bool,
    jobs: Option<usize>,
    timeout: Duration,
}

/// The faults that no longer fit the code, and so can no longer be planted.
pub(crate) fn unfit(repo: &Repo) -> Result<Vec<Finding>, String> {
    if !repo.root().join(FOLDER).is_dir() {
        return Ok(Vec::new());
    }
    let finding = |fault: &Fault| {
        let why = match repo.read(&fault.file) {
            Ok(text) => fault.applied(&text).err()?,
            Err(why) => why,
        };
        let (path, line) = fault.place.rsplit_once(':').unwrap_or((&fault.place, "0"));
        let message = format!("`{}`: {why}; make it fit the code again", fault.name);
        Some(Finding::error(Path::new(path), line.parse().unwrap_or(0), message))
    };
    Ok(spec::load(repo, Path::new(FOLDER))?.iter().filter_map(finding).collect())
}

/// Plants the faults. False if any was not caught.
pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<bool, String> {
    let options = parse(args)?;
    let faults = chosen(spec::load(repo, &options.source)?, &options)?;
    if faults.is_empty() {
        println!("no faults in {}; {FOLDER}/README.md says how to add one", options.source.display());
        return Ok(true);
    }
    if options.list {
        print!("{}", table::listing(&faults));
        return Ok(true);
    }
    let rows = plant_all(repo, &faults, &options, &build_folder(repo))?;
    print!("{}", table::results(&rows));
    Ok(rows.iter().all(|r| r.verdict.is_caught()))
}

/// The fault of `--only`, or the faults from the one of `--from` on.
fn chosen(mut faults: Vec<Fault>, options: &Options) -> Result<Vec<Fault>, String> {
    let Some(name) = options.only.as_ref().or(options.from.as_ref()) else { return Ok(faults) };
    let unknown = || format!("there is no fault `{name}`; `cargo xtask plant-faults --list` names them");
    let mut rest = faults.split_off(faults.iter().position(|f| &f.name == name).ok_or_else(unknown)?);
    if options.only.is_some() {
        rest.truncate(1);
    }
    Ok(rest)
}

fn plant_all(repo: &Repo, faults: &[Fault], options: &Options, folder: &Path) -> Result<Vec<Row>, String> {
    let tree = Tree::sync(repo, &folder.join("tree"))?;
    let mut runner = Runner::new(tree, folder, options.jobs, options.timeout);
    let mut rows = Vec::new();
    for (i, fault) in faults.iter().enumerate() {
        eprintln!("[{}/{}] {}", i + 1, faults.len(), fault.name);
        let row = runner.plant(fault)?;
        // a whole run takes hours: its results so far must not be lost with it
        eprintln!("  {:.0} s, caught: {}", row.took.as_secs_f64(), row.verdict);
        rows.push(row);
    }
    Ok(rows)
}

/// The folder `faults` in cargo's target folder, which git ignores.
fn build_folder(repo: &Repo) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    repo.root().join(target).join("faults")
}

fn parse(args: &[String]) -> Result<Options, String> {
    let mut options =
        Options { source: PathBuf::from(FOLDER), only: None, from: None, list: false, jobs: None, timeout: TIMEOUT };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().cloned().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--list" => options.list = true,
            "--only" => options.only = Some(value()?),
            "--from" => options.from = Some(value()?),
            "--jobs" => options.jobs = Some(positive(arg, &value()?)?),
            "--timeout" => options.timeout = Duration::from_secs(positive(arg, &value()?)? as u64),
            flag if flag.starts_with('-') => {
                return Err(format!("unknown option `{flag}`; `cargo xtask help` lists the options"));
            }
            file => options.source = PathBuf::from(file),
        }
    }
    Ok(options)
}

fn positive(option: &str, text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if n > 0 => Ok(n),
        _ => Err(format!("{option} needs a whole number above 0, not `{text}`")),
    }
}

#[cfg(test)]
mod tests;
