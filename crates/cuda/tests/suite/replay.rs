//! The same launches on a GPU and on the software device, byte by byte: `REMAT_CUDA_DEVICE=cuda:0` names the GPU.
//!
//! The suite compares the software device with the CPU. This compares it with hardware, so that what holds for one holds for the other.

use std::collections::{BTreeMap, BTreeSet};

use remat_types::HostTensor;

use crate::cases::{Case, cases};
use crate::rig::{named_device, software_device};
use crate::samples::{prepare, run};

/// Differences that are told one by one.
const SHOWN: usize = 20;
/// Runs of each launch on the GPU, which must give the same bits.
const RUNS: usize = 3;

type Outcome = remat_types::Result<Vec<HostTensor>>;

/// How the outcomes of a case differ, if they do: the first byte, or that one was refused.
fn difference(got: &Outcome, want: &Outcome) -> Option<String> {
    match (got, want) {
        (Ok(got), Ok(want)) => got.iter().zip(want).enumerate().find_map(|(j, (g, w))| {
            let at = g.bytes().iter().zip(w.bytes()).position(|(g, w)| g != w)?;
            let count = g.bytes().iter().zip(w.bytes()).filter(|(g, w)| g != w).count();
            Some(format!("{count} of {} bytes of output {j} differ, the first is {at}", w.bytes().len()))
        }),
        (Err(got), Err(want)) if got.message() == want.message() => None,
        (got, want) => Some(format!("{:?} and not {:?}", got.as_ref().err(), want.as_ref().err())),
    }
}

#[test]
fn launches_on_a_gpu_have_the_bits_of_the_software_device() {
    let Some(mut gpu) = named_device() else {
        println!("REMAT_CUDA_DEVICE names no device: nothing is replayed");
        return;
    };
    let mut simulated = software_device().expect("REMAT_CUDA_LIBRARIES names the folder of the compiler");
    let (cases, _) = cases();
    prepare(&mut gpu, &cases);
    prepare(&mut simulated, &cases);
    let (mut apart, mut kernels, mut changing) = (Vec::<(&Case, String)>::new(), BTreeSet::new(), 0);
    for case in &cases {
        let [want, got] = [run(&mut simulated, case), run(&mut gpu, case)];
        kernels.extend(case.plan.calls.iter().map(|c| &c.name));
        apart.extend(difference(&got, &want).map(|d| (case, d)));
        changing += usize::from((1..RUNS).any(|_| difference(&run(&mut gpu, case), &got).is_some()));
    }
    let mut by_name = BTreeMap::new();
    apart.iter().for_each(|(case, _)| *by_name.entry(case.name).or_insert(0) += 1);
    let wrong: BTreeSet<_> = apart.iter().flat_map(|(case, _)| case.plan.calls.iter().map(|c| &c.name)).collect();
    apart.iter().take(SHOWN).for_each(|(case, d)| println!("{}: {d}", case.what));
    println!("differences by operator: {by_name:?}");
    println!(
        "replayed {} launches: {} of {} kernels differ from the software device, {} launches give other bits when repeated",
        cases.len(),
        wrong.len(),
        kernels.len(),
        changing
    );
    assert!(apart.is_empty() && changing == 0, "the devices differ, see above");
}
