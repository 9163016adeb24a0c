//! Chains and random layered graphs, each with its backward pass.

use crate::plan::problem::{Bytes, OpSpec, OutputSpec, Spec, SpillRates};
use crate::plan::rng::Rng;

const MIB: u64 = 1 << 20;

fn op(name: String, time_ns: u64, inputs: Vec<String>, outputs: Vec<(String, u64)>) -> OpSpec {
    let outputs = outputs.into_iter().map(|(name, b)| OutputSpec { name, bytes: Bytes::Own(b) }).collect();
    OpSpec { name, time_ns, inputs, outputs, workspace: 0, repeatable: true }
}

/// `a[i] = f(a[i-1])`, then `d[i-1] = b(d[i], a[i-1], a[i])`; sizes and times vary by a factor of four.
pub(super) fn chain(n: usize) -> Spec {
    let mut rng = Rng(n as u64);
    let sizes: Vec<u64> = (0..=n).map(|_| (1 + rng.below(4) as u64) * MIB).collect();
    let times: Vec<u64> = (0..n).map(|_| 100_000 * (1 + rng.below(4) as u64)).collect();
    let a = |i: usize| format!("a{i}");
    let d = |i: usize| format!("d{i}");
    let mut ops: Vec<OpSpec> =
        (1..=n).map(|i| op(format!("f{i}"), times[i - 1], vec![a(i - 1)], vec![(a(i), sizes[i])])).collect();
    ops.push(op("loss".into(), 10_000, vec![a(n)], vec![(d(n), sizes[n])]));
    for i in (1..=n).rev() {
        let reads = vec![d(i), a(i - 1), a(i)];
        ops.push(op(format!("b{i}"), 2 * times[i - 1], reads, vec![(d(i - 1), sizes[i - 1])]));
    }
    Spec { align: 256, values: vec![(a(0), sizes[0])], ops, outputs: vec![d(0)], spill: SpillRates::default() }
}

/// About half of `n` operators forward, in layers of up to five whose members read one to three of the layers just
/// before; then one gradient operator for each.
pub(super) fn layered(n: usize, seed: u64) -> Spec {
    let mut rng = Rng(seed.wrapping_mul(1_000_003).wrapping_add(n as u64));
    let forward = n.div_ceil(2).max(1);
    let (mut reads, mut layer_starts) = (Vec::<Vec<usize>>::new(), vec![0]);
    while reads.len() < forward {
        let start = reads.len();
        let from = layer_starts[layer_starts.len().saturating_sub(3)];
        for _ in 0..(1 + rng.below(5)).min(forward - start) {
            let wanted = 1 + rng.below(3);
            let mut of: Vec<usize> =
                (0..wanted).filter(|_| start > 0).map(|_| from + rng.below(start - from)).collect();
            of.sort_unstable();
            of.dedup();
            reads.push(of);
        }
        layer_starts.push(start);
    }
    let sizes: Vec<u64> = (0..forward).map(|_| (1 + rng.below(32) as u64) * MIB / 4).collect();
    let times: Vec<u64> = (0..forward).map(|_| 20_000 * (1 + rng.below(30) as u64)).collect();
    layered_spec(&reads, &sizes, &times)
}

fn layered_spec(reads: &[Vec<usize>], sizes: &[u64], times: &[u64]) -> Spec {
    let forward = reads.len();
    let value = |i: usize| format!("v{i}");
    let mut ops = Vec::new();
    for i in 0..forward {
        let inputs = if reads[i].is_empty() { vec!["x".into()] } else { reads[i].iter().map(|&j| value(j)).collect() };
        ops.push(op(format!("f{i}"), times[i], inputs, vec![(value(i), sizes[i])]));
    }
    let readers = |i: usize| (i + 1..forward).filter(move |&j| reads[j].contains(&i));
    // Gradients: node i's reads the node's inputs and output, and the gradients of its readers.
    for i in (0..forward).rev() {
        let mut inputs: Vec<String> = readers(i).map(|j| format!("g{j}")).collect();
        inputs.extend(reads[i].iter().map(|&j| value(j)));
        inputs.push(value(i));
        ops.push(op(format!("b{i}"), 2 * times[i], inputs, vec![(format!("g{i}"), sizes[i])]));
    }
    let outputs = (0..forward).filter(|&i| reads[i].is_empty()).map(|i| format!("g{i}")).collect();
    Spec { align: 256, values: vec![("x".into(), MIB)], ops, outputs, spill: SpillRates::default() }
}
