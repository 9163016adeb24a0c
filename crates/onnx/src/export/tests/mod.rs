//! An exported graph means the same when it is imported.

mod models;

use remat_graph::ir::Graph;
use remat_runtime::Device;
use remat_runtime::control_flow::registry;
use remat_tensor::Tensor;
use remat_types::{HostTensor, Result};

use super::*;
use crate::Model;
use crate::export::rules::{LEFT_OUT, rows};

fn device() -> Device {
    Device::cpu(Default::default()).expect("a device")
}

/// The results of a graph after it was exported and imported.
fn imported(device: &Device, g: &Graph, options: &ExportOptions, x: &[HostTensor]) -> Result<Vec<HostTensor>> {
    let network = Model::from_bytes(export(g, options)?.to_bytes()?)?.on(device)?;
    let x = x.iter().map(|h| Tensor::from_host(device, h)).collect::<Result<Vec<_>>>()?;
    network.call(&x)?.iter().map(Tensor::to_host).collect()
}

#[test]
fn every_op_is_written_or_left_out_for_a_reason() {
    for entry in registry().entries() {
        let written = rows().filter(|r| r.name == entry.name).count();
        let left_out = LEFT_OUT.iter().filter(|l| l.name == entry.name).count();
        assert_eq!(written + left_out, 1, "{} is in one of the two tables", entry.name);
    }
    assert_eq!(
        registry().entries().len(),
        rows().count() + LEFT_OUT.len(),
        "a table names an op that is not registered"
    );
    assert!(LEFT_OUT.iter().all(|l| !l.reason.is_empty()));
}
