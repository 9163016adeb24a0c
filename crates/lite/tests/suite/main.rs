//! Models from files, run as programs run them.

mod affinity;
mod c;
mod files;
mod hooks;
mod memory;
mod models;
mod peak;
mod sharing;

use std::path::{Path, PathBuf};

use remat_lite::{HostTensor, Network, Options, Session, Shapes};

/// Two runtimes add up f32 in other orders: four times the largest difference seen, 6.0e-7 in outputs of up to 3.0, where a unit in the
/// last place is 2.4e-7.
const TOLERANCE: f32 = 2.4e-6;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models").join(name)
}

fn open(name: &str, options: Options) -> Network {
    Network::open(folder(name).join("model.onnx"), options).expect("the model is well formed")
}

/// The recorded inputs of a model, or its outputs.
fn recorded(name: &str, what: &str) -> Vec<HostTensor> {
    let data = folder(name).join("test_data_set_0");
    let paths = (0..).map(|i| data.join(format!("{what}_{i}.pb"))).take_while(|p| p.exists());
    let read = |p: PathBuf| remat_onnx::read_tensor(std::fs::read(p).expect("readable")).expect("a tensor");
    paths.map(read).collect()
}

/// The shapes of the recorded inputs.
fn shapes(network: &Network, inputs: &[HostTensor]) -> Shapes {
    let named = network.inputs().iter().zip(inputs);
    named.fold(Shapes::new(), |all, (port, x)| all.input(&port.name, x.shape().clone()))
}

/// A session with the recorded inputs set.
fn session(network: &Network, name: &str) -> Session {
    let inputs = recorded(name, "input");
    let mut session = network.session(&shapes(network, &inputs)).expect("it can run");
    for (port, x) in network.inputs().iter().zip(&inputs) {
        session.set_input(&port.name, x).expect("the recorded type");
    }
    session
}

fn bits(session: &mut Session, output: &str) -> Vec<u32> {
    let view = session.output(output).expect("an output");
    view.as_slice::<f32>().expect("of f32").iter().map(|v| v.to_bits()).collect()
}
