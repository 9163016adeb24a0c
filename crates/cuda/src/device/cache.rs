//! Compiled kernels on disk.
//!
//! A file has the code of the kernels that were compiled together, behind a line that says what they are: the SHA-256 of each one's
//! source with the prelude, its parameters, and the SHA-256 of the code. Files of one compiler and one architecture share a folder.
//! A file that is damaged, or that another version wrote, counts as not there. Several processes may use a folder: a file is
//! written under another name and then renamed.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use remat_types::{Error, ErrorKind, Result};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::driver::Code;
use crate::source::PRELUDE;

/// Names the folder for compiled kernels; empty for none.
pub const FOLDER: &str = "REMAT_CUDA_CACHE";

/// The version of the files.
const VERSION: u32 = 1;
/// Bytes of all files of a folder beyond which the oldest are removed.
const MOST_BYTES: u64 = 512 << 20;
/// The most bytes of a first line.
const MOST_HEADER: usize = 16 << 20;

/// The first line of a file.
#[derive(Serialize, Deserialize)]
struct Header {
    version: u32,
    is_machine_code: bool,
    /// SHA-256 of the code.
    code: String,
    /// By the SHA-256 of the source: name and bytes of each parameter.
    kernels: BTreeMap<String, (String, Vec<usize>)>,
}

/// A folder of compiled kernels.
pub struct Cache {
    folder: PathBuf,
    /// The file of each source that is known.
    known: Option<FxHashMap<String, PathBuf>>,
}

/// The hash by which a source is known.
pub(super) fn hash_of(source: &str) -> String {
    hex(Sha256::new().chain_update(PRELUDE).chain_update(source))
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

impl Cache {
    /// A folder, which is made when the first file is written.
    pub fn at(folder: impl Into<PathBuf>) -> Cache {
        Cache { folder: folder.into(), known: None }
    }

    /// The user's folder: that of [`FOLDER`], else `remat/cuda` in the folder that the system has for caches. `None` if the
    /// variable is empty, or there is no such folder.
    pub fn of_user() -> Option<Cache> {
        if let Some(folder) = std::env::var_os(FOLDER) {
            return (!folder.is_empty()).then(|| Cache::at(PathBuf::from(folder)));
        }
        let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let caches = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
        Some(Cache::at(caches.join("remat/cuda")))
    }

    /// The part of the folder for a compiler and an architecture.
    pub(super) fn within(mut self, part: &str) -> Cache {
        self.folder.push(part);
        self
    }

    /// The code that has the kernel of a source, with the sources that it has besides.
    pub(super) fn find(&mut self, source: &str) -> Option<(Code, Vec<String>)> {
        let folder = &self.folder;
        let known = self.known.get_or_insert_with(|| scan(folder));
        let path = known.get(source)?.clone();
        let found = read(&path);
        if found.is_none() {
            // another process removed it, or it is damaged
            known.retain(|_, p| *p != path);
        }
        found
    }

    /// Keeps code with the hash and the name of the source of each kernel. Errors (Io): the folder cannot be written to.
    pub(super) fn keep(&mut self, code: &Code, sources: &[(String, String)]) -> Result<()> {
        let kernel = |(source, name): &(String, String)| {
            let parameters = code.parameters(name).unwrap_or_default().to_vec();
            (source.clone(), (name.clone(), parameters))
        };
        let header = Header {
            version: VERSION,
            is_machine_code: code.is_machine_code(),
            code: hex(Sha256::new().chain_update(code.image())),
            kernels: sources.iter().map(kernel).collect(),
        };
        let line = serde_json::to_string(&header)
            .map_err(|e| Error::new(ErrorKind::Internal, format!("the line of a file of kernels: {e}")))?;
        fs::create_dir_all(&self.folder)?;
        let path = self.folder.join(format!("{}.kernels", hex(Sha256::new().chain_update(&line))));
        let own = self.folder.join(format!(".{}.{}", std::process::id(), header.code));
        let written = fs::File::create(&own)
            .and_then(|mut file| {
                file.write_all(line.as_bytes())?;
                file.write_all(b"\n")?;
                file.write_all(code.image())
            })
            .and_then(|()| fs::rename(&own, &path));
        if let Err(e) = written {
            let _ = fs::remove_file(&own);
            return Err(Error::from(e).context(self.folder.display()));
        }
        if let Some(known) = &mut self.known {
            known.extend(header.kernels.into_keys().map(|source| (source, path.clone())));
        }
        remove_oldest(&self.folder);
        Ok(())
    }
}

/// The file of each source in a folder.
fn scan(folder: &Path) -> FxHashMap<String, PathBuf> {
    let mut known = FxHashMap::default();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|e| e == "kernels")
            && let Some((header, _)) = parts(&fs::read(&path).unwrap_or_default())
        {
            known.extend(header.kernels.into_keys().map(|source| (source, path.clone())));
        }
    }
    known
}

/// The first line and the code of a file. `None` where it is not of this version.
fn parts(bytes: &[u8]) -> Option<(Header, &[u8])> {
    let end = bytes.iter().take(MOST_HEADER).position(|b| *b == b'\n')?;
    let header: Header = serde_json::from_slice(&bytes[..end]).ok()?;
    (header.version == VERSION).then_some((header, &bytes[end + 1..]))
}

fn read(path: &Path) -> Option<(Code, Vec<String>)> {
    let bytes = fs::read(path).ok()?;
    let (header, image) = parts(&bytes)?;
    if hex(Sha256::new().chain_update(image)) != header.code {
        return None;
    }
    let (sources, kernels): (Vec<String>, Vec<_>) = header.kernels.into_iter().unzip();
    Some((Code::of_parts(image.to_vec(), header.is_machine_code, kernels.into_iter().collect()), sources))
}

/// Removes the oldest files of a folder that has too many bytes. What cannot be removed stays.
fn remove_oldest(folder: &Path) {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().filter_map(|entry| {
        let data = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        Some((data.modified().unwrap_or(SystemTime::UNIX_EPOCH), data.len(), entry.path()))
    });
    let mut files: Vec<_> = files.collect();
    files.sort();
    let mut bytes: u64 = files.iter().map(|f| f.1).sum();
    for (_, size, path) in files {
        if bytes <= MOST_BYTES {
            return;
        }
        let _ = fs::remove_file(path);
        bytes -= size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Code {
        let parameters = BTreeMap::from([("twice".to_owned(), vec![8, 4])]);
        Code::of_parts(text.as_bytes().to_vec(), false, parameters)
    }

    #[test]
    fn code_comes_back_unless_the_file_is_damaged() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut cache = Cache::at(folder.path()).within("part");
        let source = hash_of("a source");
        assert!(cache.find(&source).is_none());
        cache.keep(&code("ptx"), &[(source.clone(), "twice".to_owned())]).expect("is written");
        for mut cache in [cache, Cache::at(folder.path().join("part"))] {
            let (found, sources) = cache.find(&source).expect("is there");
            assert_eq!((found.image(), sources), (&b"ptx"[..], vec![source.clone()]));
            assert_eq!(found.parameters("twice"), Some(&[8, 4][..]));
            assert!(cache.find(&hash_of("another")).is_none());
        }
        let path = fs::read_dir(folder.path().join("part")).expect("a folder").flatten().next().expect("a file").path();
        let whole = fs::read(&path).expect("is read");
        for damaged in [&whole[..whole.len() - 1], &[][..], b"{}\n", &[b'x'; 100][..]] {
            fs::write(&path, damaged).expect("is written");
            assert!(Cache::at(folder.path().join("part")).find(&source).is_none());
        }
    }
}
