//! A file that no `mod` line names is never compiled, and rots.

use std::collections::BTreeSet;

use crate::finding::Finding;
use crate::modules;
use crate::repo::Repo;

/// Every Rust file under `crates/*/src` is a crate root or reached from one.
pub(crate) fn check(repo: &Repo) -> Result<Vec<Finding>, String> {
    let files = repo.files()?;
    let mut findings = Vec::new();
    for krate in repo.crates()? {
        let reached: BTreeSet<_> = modules::reachable(repo, &krate)?.into_iter().map(|m| m.path).collect();
        let src = krate.dir.join("src");
        let sources = files.iter().filter(|f| f.starts_with(&src) && f.extension().is_some_and(|e| e == "rs"));
        for file in sources.filter(|f| !reached.contains(*f)) {
            findings.push(Finding::error(
                file,
                1,
                "no `mod` line reaches this file; declare it in its parent or delete it",
            ));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scratch, places};

    #[test]
    fn a_forgotten_file_and_its_children_are_found() {
        let repo = Scratch::new(&[
            ("crates/ops/Cargo.toml", "[package]\nname = \"remat-ops\""),
            (
                "crates/ops/src/lib.rs",
                "mod listed;\nmod r#loop;\n// mod forgotten;\nconst S: &str = \"mod forgotten;\";",
            ),
            ("crates/ops/src/listed.rs", ""),
            ("crates/ops/src/loop.rs", ""),
            ("crates/ops/src/forgotten.rs", "mod child;"),
            ("crates/ops/src/forgotten/child.rs", ""),
            ("crates/ops/tests/story.rs", ""),
        ]);
        let found = places(&check(&repo).unwrap());
        assert_eq!(found, ["crates/ops/src/forgotten/child.rs:1", "crates/ops/src/forgotten.rs:1"]);
    }
}
