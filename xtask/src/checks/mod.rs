//! The checks, and the table that lists them.

mod circles;
mod examples;
mod fence;
mod layers;
mod length;
mod names;
mod owed;
mod paths;
mod reasons;
mod thread_locals;
mod turns;
mod unlisted;
mod unwraps;

use std::time::Instant;

use crate::cargo;
use crate::finding::Finding;
use crate::repo::Repo;

/// One check. `run` returns an error only if it could not read its input. The check fails then, too.
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) teaches: &'static str,
    run: fn(&Repo) -> Result<Vec<Finding>, String>,
}

/// All checks, the quick ones first.
pub(crate) const CHECKS: &[Check] = &[
    Check {
        name: "layers",
        teaches: "a crate uses only crates to its left in xtask/src/layers.rs",
        run: layers::check,
    },
    Check {
        name: "fence",
        teaches: "crates outside the unsafe fence say #![forbid(unsafe_code)]; lite has its own in src/c",
        run: fence::check,
    },
    Check { name: "file-length", teaches: "Rust files: warn over 400 lines, fail over 800", run: length::check_files },
    Check {
        name: "fn-length",
        teaches: "functions outside tests: warn over 60 lines, fail over 120",
        run: length::check_functions,
    },
    Check {
        name: "unlisted",
        teaches: "every file under crates/*/src is reached by a `mod` line",
        run: unlisted::check,
    },
    Check {
        name: "circles",
        teaches: "the top-level modules of a crate import one another without circles",
        run: circles::check,
    },
    Check { name: "reasons", teaches: "every outside dependency has a line that says why", run: reasons::check },
    Check { name: "owed", teaches: "no todo!, unimplemented!, FIXME, XXX or #[ignore in crates", run: owed::check },
    Check { name: "unwrap", teaches: "no unwrap() in libraries outside tests", run: unwraps::check },
    Check {
        name: "thread-locals",
        teaches: "state of a thread is a part of types::context, except in files that the check lists",
        run: thread_locals::check,
    },
    Check {
        name: "turns",
        teaches: "comments and pages without `of which`, `that which` and a first word `What`; no `pub fn of`",
        run: turns::check,
    },
    Check {
        name: "paths",
        teaches: "paths named in Markdown exist, hold the names they are said to, and are not of one machine",
        run: paths::check,
    },
    Check {
        name: "examples",
        teaches: "crates/remat/examples are the blocks that README and book show under their names",
        run: examples::check,
    },
    Check {
        name: "catalogue",
        teaches: "crates/remat/src/catalogue.json is what `cargo xtask catalogue` extracts from the sources",
        run: crate::catalogue::check,
    },
    Check { name: "faults", teaches: "every fault of xtask/faults still fits the code", run: crate::faults::unfit },
    Check {
        name: "walk",
        teaches: "the blocks of CONTRIBUTING.md fit the files that they change, at most five for an operator",
        run: crate::walk::unfit,
    },
    Check { name: "fmt", teaches: "cargo fmt --all -- --check", run: cargo::check_format },
    Check {
        name: "clippy",
        teaches: "cargo clippy --workspace --all-targets -- -D warnings",
        run: cargo::check_clippy,
    },
    Check { name: "docs", teaches: "cargo doc --workspace --no-deps, warnings refused", run: cargo::check_docs },
];

/// Runs the named checks, or all; false if any failed.
pub(crate) fn run(repo: &Repo, names: &[String]) -> Result<bool, String> {
    if let Some(unknown) = names.iter().find(|n| CHECKS.iter().all(|c| c.name != n.as_str())) {
        let known: Vec<_> = CHECKS.iter().map(|c| c.name).collect();
        return Err(format!("there is no check `{unknown}`; there are: {}", known.join(", ")));
    }
    let mut failed = Vec::new();
    for check in CHECKS.iter().filter(|c| names.is_empty() || names.iter().any(|n| n == c.name)) {
        if !run_one(repo, check) {
            failed.push(check.name);
        }
    }
    if !failed.is_empty() {
        eprintln!("failed: {}", failed.join(", "));
        eprintln!("run one alone with `cargo xtask check {}`", failed[0]);
    }
    Ok(failed.is_empty())
}

fn run_one(repo: &Repo, check: &Check) -> bool {
    let start = Instant::now();
    let result = (check.run)(repo);
    let findings = result.as_deref().unwrap_or_default();
    for finding in findings {
        eprintln!("{finding}");
    }
    if let Err(message) = &result {
        eprintln!("error: {message}");
    }
    let passed = result.is_ok() && findings.iter().all(|f| f.is_warning);
    let verdict = if passed { "ok" } else { "FAILED" };
    println!("check {:12} {verdict} ({:.1} s)", check.name, start.elapsed().as_secs_f64());
    passed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn an_unknown_check_is_an_error_that_lists_the_known() {
        let error = run(&Scratch::new(&[]), &["lairs".into()]).unwrap_err();
        assert!(error.contains("lairs") && error.contains("layers"));
    }

    #[test]
    fn a_failing_check_does_not_hide_a_later_one() {
        let repo =
            Scratch::new(&[("a.md", "`crates/nowhere/x.rs`"), ("crates/odd/Cargo.toml", "[package]\nname = \"odd\"")]);
        assert_eq!(run(&repo, &["layers".into(), "owed".into()]), Ok(false));
        assert_eq!(run(&repo, &["owed".into()]), Ok(true));
        assert_eq!(run(&repo, &["owed".into(), "paths".into()]), Ok(false));
    }

    #[test]
    fn a_check_that_cannot_look_fails() {
        let repo = Scratch::new(&[("crates/ops/Cargo.toml", "[package")]);
        assert_eq!(run(&repo, &["layers".into()]), Ok(false));
    }
}
