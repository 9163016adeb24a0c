//! Scratch repositories for the tests of the checks.

use std::fs;
use std::ops::Deref;

use crate::finding::Finding;
use crate::repo::Repo;

/// A repository in a temporary folder. The folder is removed when this value is dropped.
pub(crate) struct Scratch {
    repo: Repo,
    _dir: tempfile::TempDir,
}

impl Scratch {
    /// Makes a repository of `(path, text)` files.
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().expect("the system has a folder for temporary files");
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().expect("a file has a folder")).expect("folder is writable");
            fs::write(path, text).expect("folder is writable");
        }
        Self { repo: Repo::at(dir.path()), _dir: dir }
    }
}

impl Deref for Scratch {
    type Target = Repo;

    fn deref(&self) -> &Repo {
        &self.repo
    }
}

/// `path:line` of each finding that fails.
pub(crate) fn places(findings: &[Finding]) -> Vec<String> {
    findings.iter().filter(|f| !f.is_warning).map(|f| format!("{}:{}", f.path.display(), f.line)).collect()
}
