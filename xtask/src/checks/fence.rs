//! Unsafe code lives in the crates that `xtask/src/layers.rs` names, and nowhere else.

use std::path::{Path, PathBuf};

use crate::finding::Finding;
use crate::layers::layer;
use crate::modules;
use crate::repo::Repo;
use crate::rust_source::Source;

const FORBID: &str = "#![forbid(unsafe_code)]";

/// Each root file of a fenced crate, and of xtask, forbids unsafe code.
pub(crate) fn check(repo: &Repo) -> Result<Vec<Finding>, String> {
    let mut roots = vec![PathBuf::from("xtask/src/main.rs")];
    roots.retain(|r| repo.has(r));
    for krate in repo.crates()? {
        if layer(&krate.role).is_none_or(|l| !l.may_be_unsafe) {
            roots.extend(modules::roots(repo, &krate)?);
        }
    }
    let mut findings = Vec::new();
    for root in roots {
        if !forbids_unsafe(&Source::new(repo.read(&root)?)) {
            findings.push(missing(&root));
        }
    }
    Ok(findings)
}

fn forbids_unsafe(source: &Source) -> bool {
    let dense: String = source.code.chars().filter(|c| !c.is_whitespace()).collect();
    dense.contains(FORBID)
}

fn missing(root: &Path) -> Finding {
    Finding::error(
        root,
        1,
        format!("add `{FORBID}` below the module comment; unsafe code belongs to kernels or runtime"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scratch, places};

    fn check_root(role: &str, text: &str) -> usize {
        let manifest = format!("crates/{role}/Cargo.toml");
        let root = format!("crates/{role}/src/lib.rs");
        let repo = Scratch::new(&[(&manifest, "[package]\nname = \"x\""), (&root, text)]);
        check(&repo).unwrap().len()
    }

    #[test]
    fn only_fenced_crates_need_the_attribute() {
        assert_eq!(check_root("ops", "//! Ops.\n#![forbid(unsafe_code)]\n"), 0);
        assert_eq!(check_root("kernels", "//! Kernels.\n"), 0);
        assert_eq!(check_root("ops", "//! Ops.\n"), 1);
    }

    #[test]
    fn a_comment_or_a_weaker_word_does_not_count() {
        assert_eq!(check_root("types", "// #![forbid(unsafe_code)]\n"), 1);
        assert_eq!(check_root("types", "#![deny(unsafe_code)]\n"), 1);
    }

    #[test]
    fn every_program_of_a_crate_and_xtask_are_looked_at() {
        let repo = Scratch::new(&[
            ("crates/cli/Cargo.toml", "[package]\nname = \"remat-cli\""),
            ("crates/cli/src/bin/tool.rs", "fn main() {}"),
            ("xtask/src/main.rs", "fn main() {}"),
        ]);
        assert_eq!(places(&check(&repo).unwrap()), ["xtask/src/main.rs:1", "crates/cli/src/bin/tool.rs:1"]);
    }
}
