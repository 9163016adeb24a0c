//! Devices by name.

use std::path::Path;
use std::sync::Arc;

use remat_device::KernelSet;
use remat_types::{Error, ErrorKind, Result};

use super::{Cache, Cuda};
use crate::driver::{Compiler, Driver, Search};
use crate::kernels::CudaKernels;

/// The folders in which CUDA's libraries are looked for first, as `PATH` has folders.
pub const FOLDERS: &str = "REMAT_CUDA_LIBRARIES";

/// Where to look for the libraries: the folders of [`FOLDERS`], those that packages of Python have in the environment that is active, and the
/// toolkit of the machine.
pub fn search() -> Search {
    let mut search = Search::default();
    if let Some(folders) = std::env::var_os(FOLDERS) {
        search.folders.extend(std::env::split_paths(&folders));
    }
    if let Some(environment) = std::env::var_os("VIRTUAL_ENV") {
        let versions = std::fs::read_dir(Path::new(&environment).join("lib")).into_iter().flatten().flatten();
        for version in versions.filter(|v| v.file_name().to_string_lossy().starts_with("python")) {
            search = search.with_python(&version.path().join("site-packages"));
        }
    }
    search.with_toolkit()
}

/// The ordinal that a device's name has: 0 of `cuda` and `cuda:0`. `None` for a name of another kind. Errors (Value): what stands
/// behind the colon is no number.
fn ordinal(name: &str, kind: &str) -> Result<Option<usize>> {
    let Some(rest) = name.strip_prefix(kind) else { return Ok(None) };
    if rest.is_empty() {
        return Ok(Some(0));
    }
    let Some(number) = rest.strip_prefix(':') else { return Ok(None) };
    let wrong = || Error::new(ErrorKind::Value, format!("device `{name}`: `{number}` is no number of a device"));
    number.parse().map(Some).map_err(|_| wrong())
}

impl Cuda {
    /// True if [`Cuda::by_name`] knows a device of this name, whether there is one or not. Errors (Value): the number in it is none.
    pub fn is_name(name: &str) -> Result<bool> {
        let is_software = cfg!(feature = "cuda-sim") && ordinal(name, "cuda-sim")?.is_some();
        Ok(is_software || ordinal(name, "cuda")?.is_some())
    }

    /// The kernels of the device of a name, for work that needs no device. `None` for another name. Errors (Value): the number in it
    /// is none.
    pub fn kernels_of(name: &str) -> Result<Option<Arc<dyn KernelSet>>> {
        let kernels = || Arc::new(CudaKernels::dry(name.to_owned())) as Arc<dyn KernelSet>;
        Ok(Cuda::is_name(name)?.then(kernels))
    }

    /// The device of a name: `cuda` and `cuda:0` for the first GPU, `cuda:1` for the second. With the feature `cuda-sim` also
    /// `cuda-sim`, a device in software that runs the same kernels on the CPU's threads, for tests without a GPU. `None` for
    /// another name.
    ///
    /// Errors: Value for a number that is none; Device: a library was not found, with the places where it was looked for, or is
    /// too old; there is no such device, or one that is too old.
    pub fn by_name(name: &str) -> Result<Option<Cuda>> {
        #[cfg(feature = "cuda-sim")]
        if let Some(ordinal) = ordinal(name, "cuda-sim")? {
            return software(ordinal).map(Some);
        }
        let Some(ordinal) = ordinal(name, "cuda")? else { return Ok(None) };
        let search = search();
        let driver = Driver::open(&search)?;
        let device = Cuda::open(&driver, Compiler::open(&search)?, ordinal)?;
        Ok(Some(device.named(format!("cuda:{ordinal}")).with_cache(Cache::of_user())))
    }
}

/// Devices in software whose memory is not checked for races, which a test asks for with options of its own.
#[cfg(feature = "cuda-sim")]
fn software(ordinal: usize) -> Result<Cuda> {
    use crate::driver::{SoftwareOptions, software};

    /// Bytes of a device, as many GPUs have.
    const MEMORY_BYTES: u64 = 8 << 30;
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let options = SoftwareOptions {
        devices: ordinal + 1,
        memory_bytes: MEMORY_BYTES,
        is_checked: false,
        threads,
        ..SoftwareOptions::default()
    };
    let device = Cuda::open(&software(options)?, Compiler::open(&search())?, ordinal)?;
    Ok(device.named(format!("cuda-sim:{ordinal}")).with_cache(Cache::of_user()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_a_kind_and_a_number() {
        for (name, want) in
            [("cuda", Some(0)), ("cuda:0", Some(0)), ("cuda:12", Some(12)), ("cudart", None), ("cpu", None)]
        {
            assert_eq!(ordinal(name, "cuda").expect("a name"), want, "{name}");
        }
        for name in ["cuda:", "cuda:x", "cuda:-1", "cuda:99999999999999999999999"] {
            let e = ordinal(name, "cuda").expect_err("no number");
            assert!(e.kind() == ErrorKind::Value && e.to_string().contains(name), "{e}");
        }
    }
}
