use remat_ops::pointwise::{Unary, UnaryFn};

use super::*;

#[test]
fn a_step_that_writes_what_it_reads_is_not_built() {
    let operand = |place| Operand { place, bytes: 64, dtype: DType::F32, layout: Fact::new(DType::F32, [16]).layout() };
    let slot =
        |place, donated_from| OutputSlot { place, bytes: 64, dtype: DType::F32, shape: [16].into(), donated_from };
    let step = |x: Place, y: Place, donated_from: Option<usize>| Step {
        op: Unary { f: UnaryFn::Tanh }.into(),
        flow: None,
        x: SmallVec::from_iter([operand(x)]),
        y: SmallVec::from_iter([slot(y, donated_from)]),
        workspace: (0, 0),
        node: None,
        site: None,
        scope: None,
    };
    let ok = |s: &Step| s.check(256).is_ok();
    assert!(ok(&step(Place::Arena(0), Place::Arena(64), None)));
    assert!(ok(&step(Place::Arena(0), Place::Arena(0), Some(0))));
    assert!(!ok(&step(Place::Arena(0), Place::Arena(32), None)), "they overlap");
    assert!(!ok(&step(Place::Arena(0), Place::Arena(64), Some(0))), "it does not hold what it says");
    assert!(!ok(&step(Place::Arena(0), Place::Input(0), None)), "inputs are only read");
    assert!(!ok(&step(Place::Arena(0), Place::Constant(0), None)), "constants are only read");
    assert!(!ok(&step(Place::Arena(0), Place::Arena(224), None)), "it leaves the workspace");
    let body = Program::new(ProgramParts { threads: 1, workspace_bytes: 64, ends: vec![0], ..Default::default() });
    let body = Arc::new(body.expect("no step"));
    let runs = |workspace| Step {
        flow: Some(Flow::Call(body.clone())),
        workspace,
        ..step(Place::Arena(0), Place::Arena(64), None)
    };
    assert!(ok(&runs((128, 64))));
    assert!(!ok(&runs((128, 32))), "what it runs leaves the workspace");
    let taking = Step { workspace: (128, 64), ..step(Place::Arena(0), Place::Arena(0), Some(0)) };
    assert!(ok(&taking));
    let flow = runs((128, 64)).flow;
    assert!(!ok(&Step { flow, ..taking }), "what it runs has an input and an output in one place");
}
