//! Models that were read, run where that is little work.
//!
//! A model is a program: a few bytes may ask for any work and any memory. Reading one is bounded by its bytes, a session by its
//! budget; what takes long when it runs is not run here.

use remat_lite::{ErrorKind, Extent, HostTensor, Network, Options, Port, Shapes, ValueType};

use crate::heap;

/// Of all sessions.
pub const BUDGET_BYTES: usize = 8 << 20;

/// The heap that making and running a session takes beside its budget: graphs, plans and passes for each byte of the file, and
/// threads.
const SESSION_MULTIPLE: usize = 8192;
const SESSION_CONSTANT: usize = 64 << 20;

/// Operations of a model that is run.
const MOST_FLOPS: u64 = 1 << 26;

/// Elements of all inputs.
const MOST_INPUT_ELEMS: usize = 1 << 16;

/// The size of extents that a model leaves open.
const EXTENT: usize = 2;

/// The operator names that mutations exchange.
pub fn words() -> Vec<&'static str> {
    let lines = include_str!("../dictionaries/onnx.dict").lines();
    lines.map(|l| l.trim_matches('"')).filter(|l| !l.is_empty()).collect()
}

/// Options within the budget.
pub fn options(level: u8) -> Options {
    Options { threads: 1, memory_budget: Some(BUDGET_BYTES), level, ..Options::default() }
}

fn elems(port: &Port) -> Option<usize> {
    match &port.ty {
        ValueType::Tensor(_, Some(extents)) => extents.iter().try_fold(1usize, |n, e| match e {
            Extent::Fixed(d) => n.checked_mul(*d),
            _ => n.checked_mul(EXTENT),
        }),
        _ => Some(1),
    }
}

/// Shapes for a session, if that is one of little work.
pub fn small_shapes(network: &Network) -> Option<Shapes> {
    let sum = network.inputs().iter().try_fold(0usize, |sum, p| sum.checked_add(elems(p)?));
    let is_small = sum.is_some_and(|n| n <= MOST_INPUT_ELEMS);
    let loops = network.operators().iter().any(|(_, op, _)| matches!(&**op, "Loop" | "Scan"));
    let shapes = Shapes::new().or_extents(network.inputs(), EXTENT).0;
    let graph = if is_small && !loops { network.graph(&shapes).ok()? } else { return None };
    graph.is_none_or(|g| g.cost().flops <= MOST_FLOPS).then_some(shapes)
}

/// Makes a session of a model of `file_bytes` and runs it, if that is little work.
pub fn run(network: &Network, file_bytes: usize) {
    heap::within("session", SESSION_MULTIPLE, SESSION_CONSTANT + 4 * BUDGET_BYTES, file_bytes, || {
        let Some(shapes) = small_shapes(network) else { return };
        let Ok(mut session) = network.session(&shapes) else { return };
        let memory = session.memory().expect("it does not run");
        assert!(memory.total_bytes() <= BUDGET_BYTES, "{memory:?}");
        for (i, port) in network.inputs().iter().enumerate() {
            let Some(fact) = session.fact(i) else { continue };
            let mut x = HostTensor::zeros(fact.dtype, fact.shape.clone()).expect("small");
            // ones of integers and bools, nearly zeros of floats
            let size = fact.dtype.size_bytes();
            x.try_bytes_mut().expect("its own").iter_mut().step_by(size).for_each(|b| *b = 1);
            session.set_input(&port.name, &x).expect("of the input's type");
        }
        let done = session.run();
        if let Err(e) = &done {
            assert_ne!(e.kind(), ErrorKind::Internal, "{e}");
            return;
        }
        for port in network.outputs() {
            let _ = session.output(&port.name).map(|y| y.bytes.iter().fold(0u8, |sum, b| sum.wrapping_add(*b)));
            let _ = session.output_value(&port.name);
        }
    });
}
