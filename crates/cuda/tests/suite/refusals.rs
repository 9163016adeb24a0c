//! Samples that an operator refuses for a value: its kernels say where, and the plan makes the error of it.

use std::collections::BTreeSet;

use remat_cuda::kernels::{Addresses, Input, Operands, plan};
use remat_cuda::source::PRELUDE;
use remat_kernels::pool::Pool;
use remat_ops::{Expect, OpRef, Registry, eval_on_host};
use remat_types::{Error, Fact, HostTensor, Layout};

use crate::rig::{Rig, compiler, ptx};

/// The error that the device's kernels have for these inputs. `None` for an operator that has none.
fn refused(rig: &mut Rig, op: &OpRef, x: &[HostTensor]) -> Option<Error> {
    let facts: Vec<Fact> = x.iter().map(|t| Fact::new(t.dtype(), t.shape().clone())).collect();
    let y = op.infer(&facts.iter().collect::<Vec<_>>()).ok()?;
    let layouts: Vec<Layout> = x.iter().map(|t| Layout::contiguous(t.shape().clone())).collect();
    let operands = Operands {
        x: x.iter().zip(&layouts).map(|(t, layout)| Input { dtype: t.dtype(), layout }).collect(),
        y: y.iter().map(|y| (y.dtype, &y.shape)).collect(),
    };
    let found = plan(&**op, &operands).expect("no fault").filter(|p| !p.calls.is_empty())?;
    let failure = found.failure.unwrap_or_else(|| panic!("{op:?} has a kernel that refuses nothing"));
    let compiler = compiler()?;
    let sources: BTreeSet<&str> = found.calls.iter().map(|c| &*c.source).collect();
    let source: String = std::iter::once(PRELUDE).chain(sources).collect();
    let module = rig.load(&ptx(&compiler, &source));
    let (words, workspace) = (x.len() + y.len(), x.len() + y.len() + 1);
    x.iter().enumerate().for_each(|(i, t)| rig.put(i, t.bytes()));
    rig.put(words, &[0xff; 24]);
    let addresses = |range: std::ops::Range<usize>| range.map(|i| rig.at(i)).collect::<Vec<u64>>();
    let (x_at, y_at) = (addresses(0..x.len()), addresses(x.len()..words));
    let at = Addresses { x: &x_at, y: &y_at, workspace: rig.at(workspace), failure: rig.at(words), gate: 0 };
    for call in &found.calls {
        rig.launch(&module.kernel(&call.name).expect("is there"), call.grid, &call.arguments(&at));
    }
    let words = rig.get(words, 24, &format!("{op:?}"));
    let word = |k: usize| u64::from_le_bytes(words[8 * k..8 * k + 8].try_into().expect("8 bytes"));
    assert_ne!(word(0), u64::MAX, "{op:?} refuses nothing");
    assert_eq!(word(2), u64::MAX, "{op:?} leaves the lock");
    Some(failure(&**op, word(0), word(1) as i64))
}

#[test]
fn what_the_cpu_refuses_the_device_refuses_for_the_same_reason() {
    if compiler().is_none() {
        return;
    }
    let (pool, mut rig, mut count) = (Pool::new(1), Rig::new(), 0);
    for entry in Registry::portable().entries() {
        for s in entry.samples().iter().filter(|s| matches!(s.expect, Expect::Error(_))) {
            let facts: Vec<Fact> = s.x.iter().map(|t| Fact::new(t.dtype(), t.shape().clone())).collect();
            if s.op.infer(&facts.iter().collect::<Vec<_>>()).is_err() {
                continue;
            }
            let want = eval_on_host(&*s.op, &s.x, &pool).expect_err("the sample fails");
            let Some(got) = refused(&mut rig, &s.op, &s.x) else { continue };
            assert_eq!(got.kind(), want.kind(), "{:?}", s.op);
            println!("{}: {got}; on the CPU {want}", entry.name);
            count += 1;
        }
    }
    println!("{count} refusals");
}
