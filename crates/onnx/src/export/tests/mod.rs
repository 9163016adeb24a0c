//! An exported graph means the same when it is imported.

mod models;
mod samples;

use remat_graph::ir::{Builder, Graph};
use remat_runtime::Device;
use remat_tensor::Tensor;
use remat_types::{HostTensor, Result};

use super::*;
use crate::Model;

fn device() -> Device {
    Device::cpu(Default::default()).expect("a device")
}

/// The results of a graph after it was exported and imported.
fn imported(device: &Device, g: &Graph, options: &ExportOptions, x: &[HostTensor]) -> Result<Vec<HostTensor>> {
    let network = Model::from_bytes(export(g, options)?.to_bytes()?)?.on(device)?;
    let x = x.iter().map(|h| Tensor::from_host(device, h)).collect::<Result<Vec<_>>>()?;
    network.call(&x)?.iter().map(Tensor::to_host).collect()
}
