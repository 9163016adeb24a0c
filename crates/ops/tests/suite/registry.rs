//! Registries of some families.

use remat_ops::linalg::MatMul;
use remat_ops::shape::Contiguous;
use remat_ops::{OpRef, Registry, families};
use remat_types::ErrorKind;

#[test]
fn a_registry_of_some_families_reads_their_ops_and_no_others() {
    let few = Registry::of(&[&families::LINALG, &families::NORM]);
    let names: Vec<&str> = few.families().iter().map(|f| f.name).collect();
    assert_eq!(names, ["linalg", "norm"]);
    let written = |op: OpRef| op.to_json().expect("an op has a serial form");
    assert_eq!(few.load(&written(MatMul {}.into())).expect("of a family"), MatMul {}.into());
    let e = few.load(&written(Contiguous.into())).expect_err("of none");
    assert_eq!((e.kind(), e.message()), (ErrorKind::Format, "unknown op `contiguous`"));
    let more = few.with_family(&families::SHAPE).expect("no name is taken");
    assert!(more.entry("contiguous").is_some());
    let twice = more.with_family(&families::LINALG).err().expect("its names are taken");
    assert_eq!(twice.kind(), ErrorKind::Value);
}

#[test]
fn what_only_the_cpu_has_is_not_portable() {
    let (all, portable) = (Registry::builtin(), Registry::portable());
    assert!(portable.entry("take").is_some() && portable.entry("tree_leaf").is_none());
    let others: Vec<&str> =
        all.families().iter().map(|f| f.name).filter(|f| !portable.families().iter().any(|p| p.name == *f)).collect();
    assert_eq!(others, ["cpu", "trees"]);
}

#[test]
fn every_op_is_in_one_family() {
    let all = Registry::builtin();
    let in_families: usize = all.families().iter().map(|f| f.ops.len()).sum();
    assert_eq!(in_families, all.entries().len());
    assert!(all.families().is_sorted_by_key(|f| f.name), "the book lists them in this order");
}
