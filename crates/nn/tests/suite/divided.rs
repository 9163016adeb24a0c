//! State of an optimiser that is divided among ranks: the bits of whole state, and checkpoints of it.

use std::ops::Range;
use std::path::Path;

use remat_nn::distributed::{Communicator, DataParallel, Sharded, threads};
use remat_nn::{AdafactorOptions, AdamWOptions, Checkpoint, LambOptions, Module, Optimizer, TrainState};
use remat_types::{Error, ErrorKind, HostTensor, Result};

use crate::distributed::{LIMIT, Net, STEPS, accumulated, adam, batch, device};

fn options() -> AdamWOptions {
    AdamWOptions { lr: 0.01, ..Default::default() }
}

/// Bytes of optimiser state and of parameters, and the weights, after some steps with state that is divided.
fn divided(ranks: &Communicator, budget: Option<usize>) -> Result<(usize, Vec<HostTensor>)> {
    let d = device(Some(ranks), budget)?;
    let net = Net::new(&d, 0)?;
    let parallel = DataParallel::new(&net, ranks, Default::default())?;
    let mut optimizer = Sharded::new(net.named_parameters(), ranks, AdamWOptions { lr: 0.01, ..Default::default() })?;
    for step in 0..STEPS {
        parallel.backward(&net.loss(&batch(&d, step, ranks.rank()), true)?)?;
        optimizer.step()?;
    }
    let bits = net.bits()?;
    let state = optimizer.named_state().iter().map(|(_, p)| p.elems() * p.dtype().size_bytes()).sum();
    let report = d.channel().report()?;
    assert!(budget.is_none_or(|b| report.stats.peak_bytes <= b), "{:?}", report.stats);
    Ok((state, bits))
}

#[test]
fn divided_state_has_the_bits_of_whole_state_in_its_share_of_the_bytes() {
    for size in [1, 2, 3] {
        let want = accumulated(size).expect("trains");
        let d = device(None, None).expect("a device");
        let whole = adam(&Net::new(&d, 0).expect("fits")).expect("valid").named_state();
        let whole: usize = whole.iter().map(|(_, p)| p.elems() * p.dtype().size_bytes()).sum();
        let seen = threads::run_within(size, LIMIT, |ranks| divided(&ranks, None)).expect("trains");
        for (rank, (state, bits)) in seen.into_iter().enumerate() {
            assert!(bits == want, "rank {rank} of {size}");
            assert!(state * size <= whole * 102 / 100, "{state} of {whole} bytes on rank {rank} of {size}");
        }
    }
}

#[test]
fn divided_state_goes_on_with_another_number_of_ranks() {
    // two steps on four ranks and two more on two, as on one
    let take = |ranks: &Communicator, steps: std::ops::Range<usize>, from: Option<&Saved>| -> Result<Saved> {
        let d = device(Some(ranks), None)?;
        let net = Net::new(&d, 0)?;
        let parallel = DataParallel::new(&net, ranks, Default::default())?;
        let options = AdamWOptions { lr: 0.01, ..Default::default() };
        let mut optimizer = Sharded::new(net.named_parameters(), ranks, options)?;
        if let Some((model, state)) = from {
            net.load_state_dict(model, true)?;
            optimizer.load_state_dict(state, true)?;
            optimizer.take_parameters()?;
        }
        for step in steps {
            // the same batch on all ranks, so that their number changes nothing
            parallel.backward(&net.loss(&batch(&d, step, 0), true)?)?;
            optimizer.step()?;
        }
        Ok((net.state_dict()?, optimizer.state_dict()?))
    };
    let run = |size: usize, steps: std::ops::Range<usize>, from: Option<&Saved>| {
        let all = threads::run_within(size, LIMIT, |ranks| take(&ranks, steps.clone(), from)).expect("trains");
        assert!(all.iter().all(|one| *one == all[0]), "every rank has gathered the same");
        all.into_iter().next().expect("a rank")
    };
    // powers of two, so that the mean of equal gradients is exact
    let whole = run(1, 0..4, None);
    let half = run(4, 0..2, None);
    assert_eq!(half.1.keys().collect::<Vec<_>>(), whole.1.keys().collect::<Vec<_>>(), "the names of one rank");
    assert!(run(2, 2..4, Some(&half)) == whole);
}

type Saved = (std::collections::BTreeMap<String, HostTensor>, std::collections::BTreeMap<String, HostTensor>);

#[test]
fn rules_that_look_at_whole_parameters_are_not_divided() {
    let d = device(None, None).expect("a device");
    let net = Net::new(&d, 0).expect("fits");
    let alone = Communicator::alone();
    let e = Sharded::new(net.named_parameters(), &alone, LambOptions::default()).err().expect("norms");
    assert!(e.kind() == ErrorKind::Value && e.message().contains("lamb"), "{e}");
    let e = Sharded::new(net.named_parameters(), &alone, AdafactorOptions::default()).err().expect("rows and columns");
    assert_eq!(e.kind(), ErrorKind::Value);
}

/// Takes steps from a checkpoint, if one is given, to another, with state that is whole or divided. The parameters then.
fn take(
    ranks: &Communicator,
    is_divided: bool,
    steps: Range<usize>,
    from: Option<&Path>,
    to: Option<&Path>,
) -> Result<Vec<HostTensor>> {
    let d = device(Some(ranks), None)?;
    let net = Net::new(&d, 0)?;
    let parallel = DataParallel::new(&net, ranks, Default::default())?;
    let mut optimizer: Box<dyn Optimizer> = match is_divided {
        true => Box::new(Sharded::new(net.named_parameters(), ranks, options())?),
        false => Box::new(adam(&net)?),
    };
    if let Some(dir) = from {
        Checkpoint::load(dir)?.restore(&net, Some(&mut *optimizer))?;
    }
    for step in steps {
        parallel.backward(&net.loss(&batch(&d, step, ranks.rank()), true)?)?;
        optimizer.step()?;
    }
    if let Some(dir) = to.filter(|_| is_divided || ranks.rank() == 0) {
        d.channel().sync()?;
        let before = d.channel().stats()?;
        Checkpoint::save(dir, &net, Some(&*optimizer), &TrainState::default())?;
        let after = d.channel().stats()?;
        assert_eq!(after.peak_bytes, before.peak_bytes, "no device has more than its part of the state");
    }
    net.bits()
}

#[test]
fn a_checkpoint_of_divided_state_is_that_of_whole_state() {
    let dir = tempfile::tempdir().expect("a folder");
    for size in [1, 2, 3] {
        let [whole, divided] = [false, true].map(|is_divided| {
            let to = dir.path().join(format!("{size}-{is_divided}"));
            threads::run_within(size, LIMIT, |ranks| take(&ranks, is_divided, 0..2, None, Some(&to))).expect("saves");
            std::fs::read(to.join(remat_nn::FILE_NAME)).expect("is there")
        });
        assert!(whole == divided, "{size} ranks");
    }
}

#[test]
fn a_run_with_divided_state_goes_on_from_its_checkpoint_on_any_number_of_ranks() {
    let dir = tempfile::tempdir().expect("a folder");
    let run = |size: usize, is_divided: bool, steps: Range<usize>, from: Option<&Path>, to: Option<&Path>| {
        let all = threads::run_within(size, LIMIT, |ranks| take(&ranks, is_divided, steps.clone(), from, to));
        all.expect("trains").swap_remove(0)
    };
    let kept = dir.path().join("kept");
    run(2, true, 0..2, None, Some(&kept));
    assert!(run(2, true, 2..4, Some(&kept), None) == run(2, true, 0..4, None, None), "as if it had not stopped");
    for size in [1, 2, 3, 4] {
        let [whole, divided] = [false, true].map(|is_divided| run(size, is_divided, 2..4, Some(&kept), None));
        assert!(whole == divided, "{size} ranks");
    }
}

/// The errors that each rank gets from a save that `spoil` makes impossible, and from the next save.
fn spoilt(dir: &Path, spoil: impl Fn(&Communicator, &remat_runtime::Device) -> Result<()> + Sync) -> Vec<Error> {
    let told = threads::run_within(3, LIMIT, |ranks| {
        let d = device(Some(&ranks), None)?;
        let net = Net::new(&d, 0)?;
        let parallel = DataParallel::new(&net, &ranks, Default::default())?;
        let mut optimizer = Sharded::new(net.named_parameters(), &ranks, options())?;
        let save = |step: u64, dir: &Path, optimizer: &dyn Optimizer| {
            Checkpoint::save(dir, &net, Some(optimizer), &TrainState { step, ..Default::default() })
        };
        parallel.backward(&net.loss(&batch(&d, 0, ranks.rank()), true)?)?;
        optimizer.step()?;
        save(1, &dir.join("old"), &optimizer)?;
        spoil(&ranks, &d)?;
        let told = save(2, &dir.join("old"), &optimizer).expect_err("it is spoilt");
        // and all go on together
        optimizer.skip_step()?;
        save(3, &dir.join("new"), &optimizer)?;
        Ok(told)
    });
    let told = told.unwrap_or_else(|e| panic!("every rank is told: {e}"));
    assert_eq!(Checkpoint::load(dir.join("new")).expect("the next one is whole").train.step, 3);
    let files = std::fs::read_dir(dir.join("old")).expect("a folder").count();
    assert_eq!(files, 1, "what was begun is gone");
    told
}

#[test]
fn a_checkpoint_that_cannot_be_written_is_an_error_on_every_rank() {
    let dir = tempfile::tempdir().expect("a folder");
    let old = dir.path().join("old").join(remat_nn::FILE_NAME);
    let told = spoilt(dir.path(), |ranks, _| {
        // the name is taken by a folder with something in it: all is written, and cannot be put in its place
        if ranks.rank() == 0 {
            std::fs::remove_file(&old)?;
            std::fs::create_dir(&old)?;
            std::fs::write(old.join("kept"), "")?;
        }
        Ok(())
    });
    assert_eq!(told[0].kind(), ErrorKind::Io, "{}", told[0]);
    for e in &told[1..] {
        assert!(e.kind() == ErrorKind::Peer && e.message().contains("rank 0"), "{e}");
    }
}

#[test]
fn what_failed_on_one_rank_is_in_no_checkpoint() {
    let dir = tempfile::tempdir().expect("a folder");
    let told = spoilt(dir.path(), |ranks, d| {
        if ranks.rank() == 1 {
            let held = d.channel().stats()?.in_use_bytes;
            d.channel().set_budget(Some(held + 4096))?;
            drop(remat_tensor::Tensor::ones(d, [1 << 20], remat_types::DType::F32)?.exp()?);
        }
        Ok(())
    });
    assert_eq!(told[1].kind(), ErrorKind::Budget, "{}", told[1]);
    for e in [&told[0], &told[2]] {
        assert!(e.kind() == ErrorKind::Peer && e.message().contains("rank 1"), "{e}");
    }
    assert_eq!(Checkpoint::load(dir.path().join("old")).expect("is as it was").train.step, 1);
}
