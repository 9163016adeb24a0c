//! The scratch copy of the tree.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::faults::spec::Fault;
use crate::repo::Repo;

/// A copy of the repository's files.
pub(crate) struct Tree {
    root: PathBuf,
}

/// A fault in place; dropping it restores the file.
pub(crate) struct Planted<'t> {
    tree: &'t Tree,
    file: PathBuf,
    original: String,
}

impl Tree {
    /// Makes `root` equal to the repository. Files that are already equal are not touched, so cargo sees no change.
    pub(crate) fn sync(repo: &Repo, root: &Path) -> Result<Self, String> {
        Self::sync_with(repo, root, &BTreeMap::new())
    }

    /// [`Tree::sync`] with these texts: they replace files of the repository, or add files to it.
    pub(crate) fn sync_with(repo: &Repo, root: &Path, texts: &BTreeMap<PathBuf, String>) -> Result<Self, String> {
        fs::create_dir_all(root).map_err(|e| format!("{}: {e}", root.display()))?;
        let files: BTreeSet<PathBuf> = repo.files()?.into_iter().chain(texts.keys().cloned()).collect();
        for file in &files {
            let from = repo.root().join(file);
            let data = match texts.get(file) {
                Some(text) => text.as_bytes().to_vec(),
                None => fs::read(&from).map_err(|e| format!("{}: {e}", file.display()))?,
            };
            let to = root.join(file);
            if fs::read(&to).is_ok_and(|old| old == data) {
                continue;
            }
            let folder = to.parent().unwrap_or(root);
            fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
            fs::write(&to, data).map_err(|e| format!("{}: {e}", to.display()))?;
        }
        remove_others(root, root, &files)?;
        Ok(Self { root: root.to_path_buf() })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Plants a fault. `Ok(Err(why))` means that the fault no longer fits the code.
    pub(crate) fn plant(&self, fault: &Fault) -> Result<Result<Planted<'_>, String>, String> {
        let Ok(original) = fs::read_to_string(self.root.join(&fault.file)) else {
            return Ok(Err(format!("{} does not exist", fault.file.display())));
        };
        let faulty = match fault.applied(&original) {
            Ok(faulty) => faulty,
            Err(why) => return Ok(Err(why)),
        };
        let planted = Planted { tree: self, file: fault.file.clone(), original };
        planted.write(&faulty)?;
        Ok(Ok(planted))
    }
}

impl Planted<'_> {
    /// Always writes: that gives the file a new time. With an old time cargo would keep the faulty build.
    fn write(&self, text: &str) -> Result<(), String> {
        fs::write(self.tree.root.join(&self.file), text).map_err(|e| format!("{}: {e}", self.file.display()))
    }
}

impl Drop for Planted<'_> {
    fn drop(&mut self) {
        if let Err(message) = self.write(&self.original) {
            eprintln!("warning: cannot restore the scratch copy, the next run will: {message}");
        }
    }
}

fn remove_others(root: &Path, dir: &Path, keep: &BTreeSet<PathBuf>) -> Result<(), String> {
    let io = |e: std::io::Error| format!("{}: {e}", dir.display());
    for entry in fs::read_dir(dir).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if path.is_dir() {
            remove_others(root, &path, keep)?;
            // this fails if the folder is not empty, as intended
            let _ = fs::remove_dir(&path);
        } else if path.strip_prefix(root).is_ok_and(|relative| !keep.contains(relative)) {
            fs::remove_file(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        }
    }
    Ok(())
}
