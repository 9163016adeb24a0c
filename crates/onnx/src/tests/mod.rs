//! Models that are made here: small ones of each structure, and files with false claims.

mod control;
mod files;
mod hostile;
mod rules;
mod versions;

use prost::Message;
use remat_runtime::Device;
use remat_tensor::Tensor;
use remat_types::{HostTensor, Result};

use crate::proto::attribute_proto::AttributeType;
use crate::proto::*;
use crate::{Model, Value};

/// The standard's operators in the version that the tests are written for.
const OPSET: i64 = 21;

fn device() -> Device {
    Device::cpu(Default::default()).expect("a device")
}

fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto {
        op_type: Some(op.into()),
        input: inputs.iter().map(|s| s.to_string()).collect(),
        output: outputs.iter().map(|s| s.to_string()).collect(),
        ..Default::default()
    }
}

trait With {
    fn with(self, name: &str, kind: AttributeType, set: impl FnOnce(&mut AttributeProto)) -> Self;
    fn int(self, name: &str, v: i64) -> Self;
    fn graph(self, name: &str, g: GraphProto) -> Self;
    fn constant(self, t: TensorProto) -> Self;
}

impl With for NodeProto {
    fn with(mut self, name: &str, kind: AttributeType, set: impl FnOnce(&mut AttributeProto)) -> Self {
        let mut a = AttributeProto { name: Some(name.into()), r#type: Some(kind as i32), ..Default::default() };
        set(&mut a);
        self.attribute.push(a);
        self
    }

    fn int(self, name: &str, v: i64) -> Self {
        self.with(name, AttributeType::Int, |a| a.i = Some(v))
    }

    fn graph(self, name: &str, g: GraphProto) -> Self {
        self.with(name, AttributeType::Graph, |a| a.g = Some(Box::new(g)))
    }

    fn constant(self, t: TensorProto) -> Self {
        self.with("value", AttributeType::Tensor, |a| a.t = Some(Box::new(t)))
    }
}

fn value(name: &str) -> ValueInfoProto {
    ValueInfoProto { name: Some(name.into()), ..Default::default() }
}

fn typed_value(name: &str, elem_type: i32, dims: &[i64]) -> ValueInfoProto {
    use tensor_shape_proto::{Dimension, dimension};
    let dim = |d: &i64| Dimension { value: Some(dimension::Value::DimValue(*d)), ..Default::default() };
    let shape = TensorShapeProto { dim: dims.iter().map(dim).collect() };
    let tensor = type_proto::Tensor { elem_type: Some(elem_type), shape: Some(shape) };
    let ty = TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..Default::default() };
    ValueInfoProto { r#type: Some(ty), ..value(name) }
}

fn floats(name: &str, dims: &[i64], data: &[f32]) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        data_type: Some(1),
        dims: dims.to_vec(),
        float_data: data.to_vec(),
        ..Default::default()
    }
}

fn ints(name: &str, dims: &[i64], data: &[i64]) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        data_type: Some(7),
        dims: dims.to_vec(),
        int64_data: data.to_vec(),
        ..Default::default()
    }
}

fn graph(inputs: &[&str], nodes: Vec<NodeProto>, outputs: &[&str]) -> GraphProto {
    GraphProto {
        name: Some("g".into()),
        input: inputs.iter().map(|n| value(n)).collect(),
        node: nodes,
        output: outputs.iter().map(|n| value(n)).collect(),
        ..Default::default()
    }
}

fn model(g: GraphProto) -> ModelProto {
    let opset = |domain: &str, version| OperatorSetIdProto { domain: Some(domain.into()), version: Some(version) };
    ModelProto {
        ir_version: Some(10),
        opset_import: vec![opset("", OPSET), opset("own", 1)],
        graph: Some(g),
        ..Default::default()
    }
}

fn load(m: &ModelProto) -> Result<Model> {
    Model::from_bytes(m.encode_to_vec())
}

/// The outputs of a model for these inputs, eagerly and, with the same bits, compiled.
fn both(m: &ModelProto, inputs: &[HostTensor]) -> Vec<HostTensor> {
    let device = device();
    let network = load(m).and_then(|m| m.on(&device)).expect("a model");
    let x: Vec<Tensor> = inputs.iter().map(|h| Tensor::from_host(&device, h).expect("a tensor")).collect();
    let values: Vec<Value> = x.iter().cloned().map(Value::Tensor).collect();
    let hosts = |all: &[Tensor]| all.iter().map(|t| t.to_host().expect("a value")).collect::<Vec<_>>();
    let eager = network.run(&values).expect("it runs");
    let eager = hosts(&eager.iter().map(|v| v.tensor().expect("a tensor").clone()).collect::<Vec<_>>());
    let mut f = remat_tensor::compile(&device, |x: &[Tensor]| network.call(x));
    let compiled = hosts(&f.call(&x.iter().collect::<Vec<_>>()).expect("it compiles"));
    assert_eq!(eager.len(), compiled.len());
    for (a, b) in eager.iter().zip(&compiled) {
        assert_eq!((a.dtype(), a.shape(), a.bytes()), (b.dtype(), b.shape(), b.bytes()));
    }
    eager
}

fn vector(v: &[f32]) -> HostTensor {
    HostTensor::from_slice(v, [v.len()]).expect("a vector")
}
