//! The Rust files of the repository, and which of them are tests.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::modules;
use crate::repo::Repo;
use crate::rust_source::Source;

/// A Rust file with its masked text.
pub(crate) struct RustFile {
    pub(crate) path: PathBuf,
    pub(crate) source: Source,
    /// The whole file is test code, by its folder or by the `#[cfg(test)]` of its `mod` line.
    pub(crate) is_test: bool,
}

impl RustFile {
    /// True where `offset` lies in test code.
    pub(crate) fn is_test_at(&self, offset: usize) -> bool {
        self.is_test || self.source.is_test_at(offset)
    }
}

/// Every Rust file, masked, with its test flag.
pub(crate) fn rust_files(repo: &Repo) -> Result<Vec<RustFile>, String> {
    let mut test_modules = BTreeSet::new();
    for krate in repo.crates()? {
        test_modules.extend(modules::reachable(repo, &krate)?.into_iter().filter(|m| m.is_test).map(|m| m.path));
    }
    let mut files = Vec::new();
    for path in repo.files()? {
        if path.extension().is_some_and(|e| e == "rs") {
            let in_tests = path.parent().is_some_and(|p| p.iter().any(|part| part == "tests"));
            let is_test = in_tests || test_modules.contains(&path);
            files.push(RustFile { source: Source::new(repo.read(&path)?), path, is_test });
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn a_file_declared_under_cfg_test_is_test_code() {
        let repo = Scratch::new(&[
            ("crates/ops/Cargo.toml", "[package]\nname = \"remat-ops\""),
            ("crates/ops/src/lib.rs", "mod a;\n#[cfg(test)]\nmod b;"),
            ("crates/ops/src/a.rs", ""),
            ("crates/ops/src/b.rs", ""),
            ("crates/ops/tests/c.rs", ""),
        ]);
        let tests: Vec<_> = rust_files(&repo).unwrap().into_iter().filter(|f| f.is_test).map(|f| f.path).collect();
        assert_eq!(tests, [PathBuf::from("crates/ops/src/b.rs"), PathBuf::from("crates/ops/tests/c.rs")]);
    }
}
