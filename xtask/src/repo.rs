//! The files of the repository, as the checks see them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::manifest::Manifest;

/// A checkout. All paths that it gives are relative to `root`.
pub(crate) struct Repo {
    root: PathBuf,
}

/// A crate of the workspace: a folder of `crates/`.
pub(crate) struct Crate {
    /// The folder's name: the crate's role, such as `types` or `kernels`.
    pub(crate) role: String,
    pub(crate) dir: PathBuf,
    pub(crate) manifest: Manifest,
}

impl Crate {
    /// Path of the manifest.
    pub(crate) fn manifest_path(&self) -> PathBuf {
        self.dir.join("Cargo.toml")
    }
}

impl Repo {
    /// The repository that this xtask was built from.
    pub(crate) fn here() -> Result<Self, String> {
        // Cargo sets the variable. Clones that share a target folder share the program, so its own path could be
        // another clone's.
        let xtask = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        let xtask = Path::new(&xtask);
        let root = xtask.parent().ok_or("xtask has no parent folder")?;
        Ok(Self::at(root))
    }

    /// A repository at `root`.
    pub(crate) fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Reads a text file.
    pub(crate) fn read(&self, path: &Path) -> Result<String, String> {
        fs::read_to_string(self.root.join(path)).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// Writes a file unless it has that text already: a new time would make cargo rebuild its users.
    pub(crate) fn write_changed(&self, path: &str, text: &[u8]) -> Result<(), String> {
        let file = self.root.join(path);
        if fs::read(&file).is_ok_and(|old| old == text) {
            return Ok(());
        }
        fs::write(&file, text).map_err(|e| format!("{path}: {e}"))
    }

    /// True if `path` exists, as a file or a folder.
    pub(crate) fn has(&self, path: &Path) -> bool {
        self.root.join(path).exists()
    }

    /// Every file that git tracks or would add, sorted. Without git, every file outside `target` and hidden folders.
    pub(crate) fn files(&self) -> Result<Vec<PathBuf>, String> {
        let mut files = if self.root.join(".git").exists() { self.git_files()? } else { walk(&self.root, &self.root)? };
        // git still lists a file that was deleted and not yet committed
        files.retain(|f| self.root.join(f).is_file());
        files.sort();
        files.dedup();
        Ok(files)
    }

    fn git_files(&self) -> Result<Vec<PathBuf>, String> {
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(&self.root)
            .output()
            .map_err(|e| format!("cannot run git: {e}; install git"))?;
        if !output.status.success() {
            return Err(format!("git ls-files failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        let names = String::from_utf8(output.stdout).map_err(|e| format!("a file name is not UTF-8: {e}"))?;
        Ok(names.split('\0').filter(|n| !n.is_empty()).map(PathBuf::from).collect())
    }

    /// The crates under `crates/`, sorted by role.
    pub(crate) fn crates(&self) -> Result<Vec<Crate>, String> {
        let mut crates = Vec::new();
        for path in self.files()? {
            let parts: Vec<_> = path.iter().filter_map(|p| p.to_str()).collect();
            if let ["crates", role, "Cargo.toml"] = parts[..] {
                let manifest = Manifest::parse(&self.read(&path)?).map_err(|e| format!("{}: {e}", path.display()))?;
                let dir = PathBuf::from("crates").join(role);
                crates.push(Crate { role: role.to_string(), dir, manifest });
            }
        }
        Ok(crates)
    }
}

fn walk(root: &Path, dir: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))? {
        let path = entry.map_err(|e| format!("{}: {e}", dir.display()))?.path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        if path.is_dir() {
            if name != "target" && (!name.starts_with('.') || name == ".ci") {
                found.extend(walk(root, &path)?);
            }
        } else if let Ok(relative) = path.strip_prefix(root) {
            found.push(relative.to_path_buf());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn without_git_hidden_and_target_folders_are_left_out() {
        let repo = Scratch::new(&[("a.md", ""), ("target/b.md", ""), (".hidden/c.md", ""), (".ci/run", "")]);
        assert_eq!(repo.files().unwrap(), [PathBuf::from(".ci/run"), PathBuf::from("a.md")]);
    }
}
