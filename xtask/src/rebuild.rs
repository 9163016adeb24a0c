//! The time that a change in each crate makes its author wait.
//!
//! The root file of one crate after the other gets a new time, with its text unchanged, and the tests of the workspace
//! are built again. So a row is the cost of a change in that crate: its own build and that of all crates to its right.
//! The times are meaningful on a machine that does nothing else.

use std::fs::File;
use std::path::Path;
use std::time::{Instant, SystemTime};

use crate::cargo::cargo;
use crate::modules;
use crate::mpi;
use crate::repo::{Crate, Repo};

/// A crate's folder under `crates/`, and the seconds of the build after a change.
type Row = (String, f64);

/// Builds everything, then builds again for each crate, or for the named ones, and prints a table. False if a build
/// fails.
pub(crate) fn run(repo: &Repo, names: &[String]) -> Result<bool, String> {
    let crates = chosen(repo.crates()?, names)?;
    eprintln!("building the tests of the workspace");
    if seconds_to_build(repo, None)?.is_none() {
        return Ok(false);
    }
    let mut rows = Vec::new();
    for krate in &crates {
        touch(repo, krate)?;
        let Some(seconds) = seconds_to_build(repo, None)? else { return Ok(false) };
        eprintln!("{}: {seconds:.1} s", krate.role);
        rows.push((krate.role.clone(), seconds));
    }
    print!("{}", table(&rows));
    Ok(true)
}

/// The named crates, in the order of the repository; all crates if none is named.
fn chosen(crates: Vec<Crate>, names: &[String]) -> Result<Vec<Crate>, String> {
    if let Some(unknown) = names.iter().find(|n| crates.iter().all(|c| c.role != n.as_str())) {
        let known: Vec<&str> = crates.iter().map(|c| c.role.as_str()).collect();
        return Err(format!("there is no crate `{unknown}`; there are: {}", known.join(", ")));
    }
    Ok(crates.into_iter().filter(|c| names.is_empty() || names.contains(&c.role)).collect())
}

/// Makes the first root of the crate newer than its build.
fn touch(repo: &Repo, krate: &Crate) -> Result<(), String> {
    let roots = modules::roots(repo, krate)?;
    let root = roots.first().ok_or_else(|| format!("crate `{}` has no root file", krate.role))?;
    let file = File::options().append(true).open(repo.root().join(root));
    let touched = file.and_then(|f| f.set_modified(SystemTime::now()));
    touched.map_err(|e| format!("{}: {e}", root.display()))
}

/// The time of a build of all tests, in the usual target folder or in another. `None` if it fails.
fn seconds_to_build(repo: &Repo, target: Option<&Path>) -> Result<Option<f64>, String> {
    let mut command = cargo(repo.root());
    command.args(["test", "--workspace", "--no-run", "--quiet"]).args(mpi::features(repo));
    if let Some(target) = target {
        command.env("CARGO_TARGET_DIR", target);
    }
    let start = Instant::now();
    let status = command.status().map_err(|e| format!("cannot run cargo: {e}"))?;
    Ok(status.success().then(|| start.elapsed().as_secs_f64()))
}

/// The table as Markdown, with the slowest crate first.
fn table(rows: &[Row]) -> String {
    let mut rows: Vec<&Row> = rows.iter().collect();
    rows.sort_by(|a, b| b.1.total_cmp(&a.1));
    let lines: String = rows.iter().map(|(role, seconds)| format!("| `{role}` | {seconds:.1} |\n")).collect();
    format!("| a change in | seconds until the tests are built |\n|---|--:|\n{lines}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    const FILES: &[(&str, &str)] = &[
        ("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]"),
        ("crates/ops/Cargo.toml", "[package]\nname = \"scratch-ops\"\nedition = \"2024\""),
        ("crates/ops/src/lib.rs", "//! Nothing.\n"),
        ("crates/types/Cargo.toml", "[package]\nname = \"scratch-types\"\nedition = \"2024\""),
        ("crates/types/src/main.rs", "fn main() {}\n"),
    ];

    #[test]
    fn what_was_touched_is_built_again_and_has_the_text_that_it_had() {
        let repo = Scratch::new(FILES);
        let target = repo.root().join("target");
        let built = || {
            let files = std::fs::read_dir(target.join("debug/deps")).expect("it was built");
            let time = |f: std::io::Result<std::fs::DirEntry>| f.ok()?.metadata().ok()?.modified().ok();
            files.filter_map(time).max()
        };
        assert!(seconds_to_build(&repo, Some(&target)).unwrap().is_some());
        let first = built();
        assert!(seconds_to_build(&repo, Some(&target)).unwrap().is_some());
        assert_eq!(built(), first, "nothing to do");
        touch(&repo, &repo.crates().unwrap()[1]).unwrap();
        assert!(seconds_to_build(&repo, Some(&target)).unwrap().is_some());
        assert!(built() > first);
        assert_eq!(repo.read(Path::new("crates/types/src/main.rs")).unwrap(), "fn main() {}\n");
        std::fs::write(repo.root().join("crates/ops/src/lib.rs"), "fn f( {").unwrap();
        assert_eq!(seconds_to_build(&repo, Some(&target)).unwrap(), None, "a build that fails has no time");
    }

    #[test]
    fn crates_are_chosen_by_name_and_the_slowest_is_told_first() {
        let repo = Scratch::new(FILES);
        let names = |names: &[String]| {
            chosen(repo.crates().unwrap(), names).map(|c| c.into_iter().map(|c| c.role).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]).unwrap(), ["ops", "types"]);
        assert_eq!(names(&["types".into()]).unwrap(), ["types"]);
        assert!(names(&["tipes".into()]).unwrap_err().contains("ops, types"));
        let table = table(&[("ops".into(), 1.0), ("types".into(), 60.04)]);
        assert!(table.ends_with("|--:|\n| `types` | 60.0 |\n| `ops` | 1.0 |\n"), "{table}");
    }
}
