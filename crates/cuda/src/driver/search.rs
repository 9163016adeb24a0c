//! The places where CUDA's libraries are looked for.

use std::path::{Path, PathBuf};

use libloading::Library;
use remat_types::{Error, ErrorKind, Result};

/// Names of the driver's library.
const DRIVER: &[&str] = &["libcuda.so.1", "libcuda.so"];

/// Names of the compiler's library, the newest first. A name has the major version, within which results are compatible.
const COMPILER: &[&str] = &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];

/// Folders of a toolkit that is installed for the whole machine.
const TOOLKIT: &[&str] = &["/usr/local/cuda/lib64", "/opt/cuda/lib64"];

/// Folders that are looked into before the loader of the system looks into its own (`LD_LIBRARY_PATH` and the cache).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// The folders, the first one first.
    pub folders: Vec<PathBuf>,
}

impl Search {
    /// Looks into `folder` first.
    pub fn first(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folders.insert(0, folder.into());
        self
    }

    /// Looks into the libraries that packages of NVIDIA have below a folder of Python packages: `nvidia/*/lib`.
    pub fn with_python(mut self, packages: &Path) -> Self {
        let Ok(parts) = std::fs::read_dir(packages.join("nvidia")) else { return self };
        let mut found: Vec<PathBuf> =
            parts.flatten().map(|part| part.path().join("lib")).filter(|p| p.is_dir()).collect();
        found.sort();
        self.folders.extend(found);
        self
    }

    /// Looks into a toolkit that is installed for the whole machine, last.
    pub fn with_toolkit(mut self) -> Self {
        self.folders.extend(TOOLKIT.iter().map(PathBuf::from));
        self
    }

    /// The driver's library, and the name under which it was found.
    pub(super) fn driver(&self) -> Result<(Library, String)> {
        self.open(DRIVER, "the CUDA driver", "install the driver of the graphics card")
    }

    /// The compiler's library, and the name under which it was found.
    pub(super) fn compiler(&self) -> Result<(Library, String)> {
        self.open(
            COMPILER,
            "the CUDA compiler NVRTC",
            "install it, for example by `pip install nvidia-cuda-nvrtc-cu12`",
        )
    }

    /// Every path that is tried, in order. A name alone is left to the loader of the system.
    fn candidates(&self, names: &[&str]) -> Vec<PathBuf> {
        let in_folders = self.folders.iter().flat_map(|folder| names.iter().map(move |name| folder.join(name)));
        in_folders.filter(|path| path.is_file()).chain(names.iter().map(PathBuf::from)).collect()
    }

    /// Errors (Device): no candidate could be loaded, with every folder and what the loader said.
    fn open(&self, names: &[&str], what: &str, advice: &str) -> Result<(Library, String)> {
        let mut said = Vec::new();
        for path in self.candidates(names) {
            // SAFETY: loading runs the initialisers of a library of NVIDIA's, which ask nothing of their caller.
            match unsafe { Library::new(&path) } {
                Ok(library) => return Ok((library, path.display().to_string())),
                Err(e) => said.push(e.to_string()),
            }
        }
        let folders: Vec<String> = self.folders.iter().map(|f| f.display().to_string()).collect();
        let folders = if folders.is_empty() { "no folder".to_owned() } else { folders.join(", ") };
        let text = format!(
            "{what} was not found: looked for {} in {folders} and where the system looks ({}); {advice}",
            names.join(", "),
            said.join("; ")
        );
        Err(Error::new(ErrorKind::Device, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_nowhere_is_an_error_that_names_every_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let packages = folder.path().join("packages");
        let lib = packages.join("nvidia/cuda_nvrtc/lib");
        std::fs::create_dir_all(&lib).expect("made");
        std::fs::write(lib.join("libno_such.so.1"), "no library").expect("written");
        let search = Search::default().with_python(&packages).first(folder.path());
        assert_eq!(search.folders, [folder.path().to_owned(), lib.clone()]);
        let names = ["libno_such.so.1"];
        assert_eq!(search.candidates(&names), [lib.join(names[0]), PathBuf::from(names[0])]);
        let e = search.open(&names, "the library", "install it").expect_err("there is none");
        assert_eq!(e.kind(), ErrorKind::Device);
        let lib = lib.display().to_string();
        for part in ["the library was not found", "libno_such.so.1", lib.as_str(), "file too short", "install it"] {
            assert!(e.to_string().contains(part), "{part}: {e}");
        }
    }
}
