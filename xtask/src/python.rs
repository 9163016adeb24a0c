//! The tests of the Python package: a virtual environment in the target folder, the compiled part, pytest.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo::cargo;
use crate::mpi;
use crate::repo::Repo;

/// The oldest Python that can run the package.
const OLDEST: &str = "3.10";
/// The packages that the tests need besides the tested one.
const PACKAGES: [&str; 2] = ["pytest>=8", "numpy>=1.23"];
/// The compiler of CUDA's kernels, for the tests of the software device; pinned, since another one makes other PTX.
const NVRTC: &str = "nvidia-cuda-nvrtc-cu12==12.9.86";
/// The folder of its library in the packages of an environment.
const NVRTC_FOLDER: &str = "nvidia/cuda_nvrtc/lib";
/// The assembler of the same release.
const ASSEMBLER: &str = "nvidia-cuda-nvcc-cu12==12.9.86";
/// Its place in the packages of an environment.
const ASSEMBLER_FILE: &str = "nvidia/cuda_nvcc/bin/ptxas";
/// The compiled part, where the package imports it. It is not part of the repository.
const COMPILED: &str = "python/remat/_remat.abi3.so";

/// Runs pytest over the package. True, with a note, if there is no suitable Python.
pub(crate) fn test(repo: &Repo) -> Result<bool, String> {
    let Some(python) = find() else {
        println!(
            "skipped the tests of the Python package: there is no Python {OLDEST} or newer that makes virtual environments \
             (Debian: apt-get install python3-venv; `REMAT_PYTHON` names another)"
        );
        return Ok(true);
    };
    let target = target(repo.root())?;
    let python = environment(&python, &target.join("python"))?;
    // Builds the command, too: one test compares with it. The build includes tests so that dependencies get the same
    // features as in the tests of Rust. Otherwise everything would be built once more for those.
    let mut build = cargo(repo.root());
    build.args(["build", "--workspace", "--lib", "--bins", "--tests"]).args(mpi::features(repo));
    let built = build.status();
    if !built.map_err(|e| format!("cannot run cargo: {e}"))?.success() {
        return Ok(false);
    }
    place_compiled(repo)?;
    let mut pytest = Command::new(python);
    pytest.current_dir(repo.root().join("python")).args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]);
    pytest.env("PYTHONPATH", ".").env("REMAT_COMMAND", target.join("debug/remat"));
    let status = pytest.status().map_err(|e| format!("cannot run pytest: {e}"))?;
    Ok(status.success())
}

/// Puts the compiled part where the package imports it.
pub(crate) fn place_compiled(repo: &Repo) -> Result<(), String> {
    let library = target(repo.root())?.join("debug/lib_remat.so");
    let copied = std::fs::copy(&library, repo.root().join(COMPILED));
    copied.map(drop).map_err(|e| format!("cannot copy {}: {e}", library.display()))
}

/// The folder of the compiler of CUDA's kernels, which is installed as a package of Python if it is not there. `None`, with a
/// note, where it cannot be: tests of those kernels then say that they are left out.
pub(crate) fn cuda_compiler(repo: &Repo) -> Result<Option<PathBuf>, String> {
    match package_part(repo, NVRTC, NVRTC_FOLDER)? {
        Ok(folder) => Ok(Some(folder)),
        Err(why) => {
            println!("skipped the tests of CUDA's kernels: {why}; `REMAT_CUDA_LIBRARIES` names the folder of NVRTC");
            Ok(None)
        }
    }
}

/// NVIDIA's assembler, which is installed as a package of Python if it is not there. Errors where it cannot be.
pub(crate) fn cuda_assembler(repo: &Repo) -> Result<PathBuf, String> {
    package_part(repo, ASSEMBLER, ASSEMBLER_FILE)?.map_err(|why| format!("there is no ptxas: {why}"))
}

/// A file or folder of a package of Python's, which is installed into the environment of the tests if it is not there. The inner
/// error is that it cannot be.
fn package_part(repo: &Repo, package: &str, part: &str) -> Result<Result<PathBuf, String>, String> {
    let Some(python) = find() else { return Ok(Err("there is no Python that could install it".to_owned())) };
    let folder = target(repo.root())?.join("python");
    let own = environment(&python, &folder)?;
    let here = || {
        let versions = std::fs::read_dir(folder.join("lib")).ok()?.flatten();
        versions.map(|v| v.path().join("site-packages").join(part)).find(|path| path.exists())
    };
    if let Some(found) = here() {
        return Ok(Ok(found));
    }
    let installed = Command::new(own).args(["-m", "pip", "install", "--quiet", package]).status();
    let found = here().filter(|_| installed.is_ok_and(|s| s.success()));
    Ok(found.ok_or_else(|| format!("pip cannot install {package}")))
}

/// A Python that is new enough.
pub(crate) fn find() -> Option<PathBuf> {
    let named = std::env::var_os("REMAT_PYTHON").map(PathBuf::from);
    let all = named.into_iter().chain(["python3", "python"].map(PathBuf::from));
    all.into_iter().find(|python| {
        let (major, minor) = OLDEST.split_once('.').unwrap_or((OLDEST, "0"));
        // Debian can have Python without the modules that make a virtual environment
        let question = format!("import sys, venv, ensurepip; sys.exit(sys.version_info < ({major}, {minor}))");
        Command::new(python).args(["-c", &question]).output().is_ok_and(|o| o.status.success())
    })
}

/// The folder in which cargo builds.
pub(crate) fn target(root: &Path) -> Result<PathBuf, String> {
    let output = cargo(root).args(["metadata", "--no-deps", "--format-version", "1"]).output();
    let output = output.map_err(|e| format!("cannot run cargo: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text.split("\"target_directory\":\"").nth(1).and_then(|t| t.split('"').next());
    found.map(PathBuf::from).ok_or_else(|| "cargo metadata names no target folder".to_owned())
}

/// The Python of a virtual environment with the packages that the tests need. Errors if it cannot be made, such as on
/// the first run without a network.
fn environment(python: &Path, folder: &Path) -> Result<PathBuf, String> {
    let own = folder.join("bin/python");
    let ready =
        |own: &Path| Command::new(own).args(["-c", "import pytest, numpy"]).output().is_ok_and(|o| o.status.success());
    if ready(&own) {
        return Ok(own);
    }
    let run = |command: &mut Command, what: &str| match command.status() {
        Ok(s) if s.success() => Ok(()),
        _ => Err(format!("cannot {what} in {}", folder.display())),
    };
    run(Command::new(python).args(["-m", "venv"]).arg(folder), "make a virtual environment")?;
    run(Command::new(&own).args(["-m", "pip", "install", "--quiet"]).args(PACKAGES), "install pytest and numpy")?;
    Ok(own)
}
