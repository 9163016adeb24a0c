//! Files of tensors: safetensors, and files that PyTorch's `torch.save` wrote.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use remat::nn::{
    self, Module, NameMap, TorchReader, TorchScalar, is_torch_file, load_weights as load_all, load_weights_partly,
};
use remat::types::{TensorsReader, write_safetensors};
use remat::{Error, HostTensor, Result, Tensor};
use tempfile::NamedTempFile;

use crate::call;
use crate::device::PyDevice;
use crate::nn::{State, named_report};
use crate::tensor::{Output, extract_tensor};

/// Writes tensors and text to a file of the safetensors format. The new file replaces an old one only when all of it is
/// on the disk.
///
/// Errors: IoError; the failure of a tensor. The old file then stays.
#[pyfunction]
pub(crate) fn save_tensors(
    py: Python<'_>,
    tensors: Vec<(String, Bound<'_, PyAny>)>,
    text: BTreeMap<String, String>,
    path: PathBuf,
) -> PyResult<()> {
    let not = |name: &str| PyTypeError::new_err(format!("`{name}` is no tensor"));
    let of = |(name, t): &(String, Bound<'_, PyAny>)| Ok((name.clone(), extract_tensor(t)?.ok_or_else(|| not(name))?));
    let tensors: Vec<(String, Tensor)> = tensors.iter().map(of).collect::<PyResult<_>>()?;
    call::run(py, move || {
        let read = |(name, t): &(String, Tensor)| Ok((name.clone(), t.to_host().map_err(|e| e.context(name))?));
        let all: BTreeMap<String, HostTensor> = tensors.iter().map(read).collect::<Result<_>>()?;
        replace(&path, &write_safetensors(&all, &text)?)
            .map_err(|e| Error::from(e).context(format_args!("writing {}", path.display())))
    })
}

/// Replaces a file by these bytes in one step. The folder must exist.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    // with the permissions of any new file, not those of a temporary one; the user's mask still applies
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file: NamedTempFile = builder.prefix(".remat.").tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|e| e.error)?;
    std::fs::File::open(folder)?.sync_all()
}

/// A value that a file has beside its tensors.
enum Said {
    Text(String),
    Scalar(TorchScalar),
}

impl Said {
    fn object(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Said::Text(t) | Said::Scalar(TorchScalar::Text(t)) => t.into_py_any(py),
            Said::Scalar(TorchScalar::Bool(b)) => b.into_py_any(py),
            Said::Scalar(TorchScalar::Int(n)) => n.into_py_any(py),
            Said::Scalar(TorchScalar::Float(x)) => x.into_py_any(py),
        }
    }
}

type Read = (Vec<(String, HostTensor)>, Vec<(String, Said)>);

fn read_safetensors_file(path: &Path) -> Result<Read> {
    let (tensors, text) = TensorsReader::open(path)?.rest().map_err(|e| e.context(path.display()))?;
    Ok((tensors.into_iter().collect(), text.into_iter().map(|(k, v)| (k, Said::Text(v))).collect()))
}

fn read_torch_file(path: &Path) -> Result<Read> {
    let mut reader = TorchReader::open(path)?;
    let told = |e: Error| e.context(path.display());
    let scalars = reader.scalars().map_err(told)?;
    let tensors = reader.all().map_err(told)?;
    Ok((tensors.into_iter().collect(), scalars.into_iter().map(|(k, v)| (k, Said::Scalar(v))).collect()))
}

/// Names with values, as Python has them.
type Items = Vec<(String, Py<PyAny>)>;

/// The tensors of a file on a device, and the other values of the file. `kind` is `safetensors`, `torch`, or `auto`,
/// which looks at the file.
#[pyfunction]
pub(crate) fn load_tensors(
    py: Python<'_>,
    path: PathBuf,
    kind: &str,
    device: &Bound<'_, PyDevice>,
) -> PyResult<(Items, Items)> {
    let device = device.get().0.clone();
    let (tensors, said) = call::run(py, || {
        let is_torch = match kind {
            "torch" => true,
            "safetensors" => false,
            _ => is_torch_file(&path)?,
        };
        let (tensors, said) = if is_torch { read_torch_file(&path)? } else { read_safetensors_file(&path)? };
        let put = |(name, t): (String, HostTensor)| {
            let t =
                Tensor::from_host(&device, &t).map_err(|e| e.context(format_args!("{}: `{name}`", path.display())))?;
            Ok((name, t))
        };
        Ok((tensors.into_iter().map(put).collect::<Result<Vec<_>>>()?, said))
    })?;
    let tensors = tensors.into_iter().map(|(name, t)| Ok((name, t.object(py)?))).collect::<PyResult<_>>()?;
    Ok((tensors, said.into_iter().map(|(name, s)| Ok((name, s.object(py)?))).collect::<PyResult<_>>()?))
}

/// The count of batches that every batch norm of PyTorch keeps. A batch norm here has one only if its momentum is None.
const BATCHES: &str = "num_batches_tracked";

/// Names stay as they are. Counts of batches that the module does not have are left out.
fn as_they_are(module: &State) -> Result<NameMap> {
    let own = module.named_state().into_iter().map(|(name, _)| name).filter(|name| name.ends_with(BATCHES));
    let mut rules: String = own.map(|name| format!("{name} -> {name}\n")).collect();
    rules += &format!("{{x*}}{BATCHES} -> -\n{{x*}} -> {{x}}");
    NameMap::parse(&rules)
}

/// Replaces a module's state by a file's, all of it or nothing, without a second copy of the file on the device.
/// `names` is a published layout, or rules of names; without it names stay as they are.
#[pyfunction]
pub(crate) fn load_weights(
    py: Python<'_>,
    module: &Bound<'_, State>,
    path: PathBuf,
    names: Option<&str>,
    within: &str,
    strict: bool,
) -> PyResult<(Vec<String>, Vec<String>, Vec<String>)> {
    let module = module.get();
    let report = call::run(py, || {
        let names = match names {
            None => as_they_are(module)?,
            Some(layout) if nn::models::published_names().any(|n| n == layout) => nn::models::names_of(layout)?,
            Some(rules) => NameMap::parse(rules)?,
        };
        let names = if within.is_empty() { names } else { names.within(within) };
        if strict { load_all(module, &path, &names) } else { load_weights_partly(module, &path, &names) }
    })?;
    Ok(named_report(report))
}

/// The layouts of published files whose names are known.
#[pyfunction]
pub(crate) fn published_names() -> Vec<&'static str> {
    nn::models::published_names().collect()
}
