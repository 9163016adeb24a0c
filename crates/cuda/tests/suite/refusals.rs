//! Elements that kernels refuse for their values.

use remat_cuda::kernels::plan::Addresses;
use remat_cuda::kernels::{Input, Operands, plan};
use remat_cuda::source::PRELUDE;
use remat_kernels::pool::Pool;
use remat_ops::loss::{CrossEntropy, CrossEntropyGrad, Reduction};
use remat_ops::{Op, eval_on_host};
use remat_types::{ErrorKind, Fact, HostTensor, Layout, SmallVec};

use crate::rig::{Rig, compiler, ptx};

/// Where the words of a failure are, and the workspace.
const FAILURE: usize = 6;
const WORKSPACE: usize = 7;

/// The words that the launches of an op leave: the least position that was refused, and the value there.
fn refused(op: &dyn Op, x: &[HostTensor]) -> Option<(u64, i64)> {
    let compiler = compiler()?;
    let facts: Vec<Fact> = x.iter().map(|x| Fact::new(x.dtype(), x.shape().clone())).collect();
    let y = op.infer(&facts.iter().collect::<Vec<_>>()).expect("takes them");
    let layouts: Vec<Layout> = x.iter().map(|x| Layout::contiguous(x.shape().clone())).collect();
    let operands = Operands {
        x: x.iter().zip(&layouts).map(|(x, layout)| Input { dtype: x.dtype(), layout }).collect(),
        y: y.iter().map(|y| (y.dtype, &y.shape)).collect(),
    };
    let plan = plan(op, &operands).expect("no fault").expect("a kernel");
    assert!(plan.failure.is_some());
    let mut rig = Rig::new();
    x.iter().enumerate().for_each(|(i, x)| rig.put(i, x.bytes()));
    rig.put(FAILURE, &[0xff; 24]);
    let x_at: Vec<u64> = (0..x.len()).map(|i| rig.at(i)).collect();
    let y_at = [rig.at(x.len())];
    let (workspace, failure) = (rig.at(WORKSPACE), rig.at(FAILURE));
    for call in &plan.calls {
        let module = rig.load(&ptx(&compiler, &(PRELUDE.to_owned() + &call.source)));
        let kernel = module.kernel(&call.name).expect("is there");
        rig.launch(&kernel, call.grid, &call.arguments(&Addresses { x: &x_at, y: &y_at, workspace, gate: 0, failure }));
    }
    let words: SmallVec<[u64; 3]> = (rig.get(FAILURE, 24, "the words").chunks_exact(8))
        .map(|b| u64::from_le_bytes(b.try_into().expect("eight bytes")))
        .collect();
    Some((words[0], words[1] as i64))
}

#[test]
fn the_first_label_that_is_no_class_is_refused() {
    let tensor = |v: Vec<f32>, shape: &[usize]| HostTensor::from_slice(&v, shape).expect("numbers");
    // along rows by teams of either size, and along columns
    for (classes, inner) in [(4, 1), (300, 1), (3, 2)] {
        let shape: &[usize] = if inner == 1 { &[6, classes] } else { &[3, classes, 2] };
        let labels = HostTensor::from_slice(&[1i32, 7, 0, -3, 1000, 2], if inner == 1 { &[6][..] } else { &[3, 2] });
        let labels = labels.expect("integers");
        let logits = tensor((0..6 * classes).map(|i| (i % 7) as f32).collect(), shape);
        let (reduction, smoothing, ignore_index) = (Reduction::Mean, 0.0.into(), Some(7));
        let forward = CrossEntropy { reduction, smoothing, ignore_index };
        let x = [logits.clone(), labels.clone()];
        let error = eval_on_host(&forward, &x, &Pool::new(1)).expect_err("a label is no class");
        assert_eq!(error.kind(), ErrorKind::Index);
        let Some(found) = refused(&forward, &x) else { return };
        assert_eq!(found, (3, -3), "{error}");
        let backward = CrossEntropyGrad { reduction, smoothing, ignore_index };
        assert_eq!(refused(&backward, &[logits, labels, tensor(vec![1.0], &[])]), Some((3, -3)));
    }
}
