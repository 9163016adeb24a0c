//! Ranks as processes: the parts that are built and tested only on machines with MPI.
//!
//! The features are part of the one build, so ranks over MPI are tested and linted with everything else. A second build
//! for them would compile `crates/nn` and its dependents once more.

use std::path::{Path, PathBuf};

use crate::repo::Repo;

/// The variable that says whether the machine has MPI (`1`), or counts as one without it (`0`).
const NAMED: &str = "REMAT_MPI";
/// The programs that must be on the path: the compiler of MPI programs, and the launcher of ranks.
const PROGRAMS: [&str; 2] = ["mpicc", "mpirun"];
/// The features that test ranks as processes, and that no other test needs.
const FEATURES: &str = "remat-mpi/mpi,remat-nn/mpi";

/// Arguments for a cargo command over the workspace: the features that this machine can build besides the default ones.
pub(crate) fn features(repo: &Repo) -> Vec<&'static str> {
    // the checks' own tests run in small workspaces without these crates
    let has_crates = ["crates/mpi", "crates/nn"].iter().all(|c| repo.has(Path::new(c)));
    if has_crates && is_here() { vec!["--features", FEATURES] } else { Vec::new() }
}

/// True if ranks over MPI can be built and run here.
pub(crate) fn is_here() -> bool {
    match std::env::var(NAMED).as_deref() {
        Ok("0") => false,
        Ok("1") => true,
        _ => missing().is_none(),
    }
}

/// The program that the machine lacks for ranks over MPI, if any.
pub(crate) fn missing() -> Option<&'static str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let lacks = PROGRAMS.into_iter().find(|program| !folders.iter().any(|f| f.join(program).is_file()));
    lacks.or_else(|| (!has_libclang()).then_some("libclang"))
}

/// True if libclang is installed: it reads the declarations of the MPI library during the build.
fn has_libclang() -> bool {
    if std::env::var_os("LIBCLANG_PATH").is_some() {
        return true;
    }
    let mut folders: Vec<PathBuf> =
        ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/lib/x86_64-linux-gnu"].map(PathBuf::from).into();
    folders.push(PathBuf::from("/usr/lib/aarch64-linux-gnu"));
    let inside = |folder: &str| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    folders.extend(inside("/usr/lib").filter(|p| p.to_string_lossy().contains("llvm")).map(|p| p.join("lib")));
    folders.iter().any(|folder| {
        let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
        // not libclang-cpp, which other packages install
        files.map(|f| f.file_name()).any(|name| {
            let name = name.to_string_lossy();
            name == "libclang.so" || name.starts_with("libclang.so.") || is_versioned(&name)
        })
    })
}

/// True for `libclang-14.so.1` and the like.
fn is_versioned(name: &str) -> bool {
    let rest = name.strip_prefix("libclang-").unwrap_or_default();
    rest.starts_with(|c: char| c.is_ascii_digit()) && rest.contains(".so")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn a_library_with_a_version_is_told_from_that_of_cpp() {
        let names = ["libclang-14.so.13", "libclang-cpp.so.14", "libclang.so", "libclang-15.a"];
        assert_eq!(names.map(is_versioned), [true, false, false, false]);
    }

    #[test]
    fn a_workspace_without_ranks_has_no_such_features() {
        assert!(features(&Scratch::new(&[("Cargo.toml", "")])).is_empty());
    }
}
