//! Unsafe code lives in the crates that `xtask/src/layers.rs` names, and nowhere else.

use std::path::{Path, PathBuf};

use crate::finding::Finding;
use crate::layers::layer;
use crate::modules;
use crate::repo::Repo;
use crate::rust_source::Source;

const FORBID: &str = "#![forbid(unsafe_code)]";

/// The attribute of a crate that has unsafe code in one folder, where a module may allow it.
const DENY: &str = "#![deny(unsafe_code)]";

/// Each root file of a fenced crate, and of xtask, forbids unsafe code. A crate that may have it in one folder denies
/// it, and allows it there.
pub(crate) fn check(repo: &Repo) -> Result<Vec<Finding>, String> {
    let mut fenced = vec![PathBuf::from("xtask/src/main.rs")];
    fenced.retain(|r| repo.has(r));
    let mut findings = Vec::new();
    for krate in repo.crates()? {
        match layer(&krate.role).filter(|l| l.may_be_unsafe).map(|l| l.unsafe_folder) {
            None => fenced.extend(modules::roots(repo, &krate)?),
            Some(None) => {}
            Some(Some(folder)) => {
                for root in modules::roots(repo, &krate)? {
                    if !says(repo, &root, DENY)? {
                        findings.push(missing(&root, DENY));
                    }
                }
                findings.extend(outside(repo, &krate.dir.join("src"), folder)?);
            }
        }
    }
    for root in fenced {
        if !says(repo, &root, FORBID)? {
            findings.push(missing(&root, FORBID));
        }
    }
    Ok(findings)
}

/// Files of a crate's sources that allow unsafe code outside the folder for it.
fn outside(repo: &Repo, src: &Path, folder: &str) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for file in repo.files()?.into_iter().filter(|f| f.starts_with(src) && !f.starts_with(src.join(folder))) {
        if file.extension().is_some_and(|e| e == "rs") && says(repo, &file, "allow(unsafe_code)")? {
            let message = format!("unsafe code of this crate belongs to `{}`", src.join(folder).display());
            findings.push(Finding::error(&file, 1, message));
        }
    }
    Ok(findings)
}

fn says(repo: &Repo, file: &Path, attribute: &str) -> Result<bool, String> {
    let source = Source::new(repo.read(file)?);
    let dense: String = source.code.chars().filter(|c| !c.is_whitespace()).collect();
    Ok(dense.contains(attribute))
}

fn missing(root: &Path, attribute: &str) -> Finding {
    let places = "kernels, linalg, runtime, mpi or the functions for C in lite";
    Finding::error(root, 1, format!("add `{attribute}` below the module comment; unsafe code belongs to {places}"))
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
    fn a_crate_with_a_folder_for_it_denies_it_elsewhere() {
        let found = |lib: &str, network: &str| {
            let repo = Scratch::new(&[
                ("crates/lite/Cargo.toml", "[package]\nname = \"remat-lite\""),
                ("crates/lite/src/lib.rs", lib),
                ("crates/lite/src/network.rs", network),
                ("crates/lite/src/c/mod.rs", "#![allow(unsafe_code)]"),
            ]);
            places(&check(&repo).unwrap())
        };
        assert!(found("#![deny(unsafe_code)]\n", "").is_empty());
        assert_eq!(found("//! Lite.\n", ""), ["crates/lite/src/lib.rs:1"]);
        assert_eq!(
            found("#![deny(unsafe_code)]\n", "#[allow(unsafe_code)]\nfn f() {}"),
            ["crates/lite/src/network.rs:1"]
        );
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
