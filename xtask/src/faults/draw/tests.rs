use super::*;
use crate::testing::Scratch;

fn scratch() -> Scratch {
    let file = |n: usize| format!("pub fn f{n}(a: usize) -> usize {{\n    a + {n}\n}}\n");
    let (a, b, c) = (file(1), file(2), file(3));
    Scratch::new(&[
        ("crates/ops/Cargo.toml", "[package]\nname = \"remat-ops\""),
        ("crates/ops/src/lib.rs", "mod one;\nmod two;\nmod samples;\n"),
        ("crates/ops/src/one.rs", &a),
        ("crates/ops/src/two.rs", &b),
        ("crates/ops/src/samples.rs", &c),
    ])
}

fn drawn(repo: &Repo, known: &[Equivalent], seed: u64, count: usize) -> Result<Vec<String>, String> {
    let mut source = Source::new(repo, known, seed)?;
    let mut faults = Vec::new();
    source.fill(&mut faults, count)?;
    Ok(faults.iter().map(Drawn::describe).collect())
}

#[test]
fn a_seed_draws_the_same_faults_one_a_file_and_none_in_samples() {
    let repo = scratch();
    let mut seen = BTreeSet::new();
    for seed in 0..20 {
        let two = drawn(&repo, &[], seed, 2).unwrap();
        assert_eq!(two, drawn(&repo, &[], seed, 2).unwrap());
        assert!(two.iter().any(|f| f.contains("one.rs")) && two.iter().any(|f| f.contains("two.rs")));
        seen.extend(two);
    }
    // both mistakes of both files
    assert_eq!(seen.len(), 4, "{seen:?}");
    let e = drawn(&repo, &[], 1, 3).unwrap_err();
    assert!(e.contains("only 2 faults"), "{e}");
}

#[test]
fn an_equivalent_fault_is_not_drawn() {
    let text = "[[equivalent]]\nfile = \"crates/ops/src/one.rs\"\nfunction = \"f1\"\noriginal = \"a  + 1\"\n\
                faulty = \"a - 1\"\nwhy = \"for the test\"\n";
    let known = equivalent::parse(text).unwrap();
    for seed in 0..20 {
        let all = drawn(&scratch(), &known, seed, 2).unwrap();
        assert!(all.iter().all(|f| !f.contains("a - 1")), "{all:?}");
    }
    let e = equivalent::parse(&text.replace("for the test", "")).err().unwrap();
    assert!(e.starts_with("xtask/faults/drawn/equivalent.toml:1: `why`"), "{e}");
}

#[test]
fn a_refusal_of_the_compiler_names_its_fault() {
    let repo = scratch();
    let mut source = Source::new(&repo, &[], 3).unwrap();
    let mut faults = Vec::new();
    source.fill(&mut faults, 2).unwrap();
    let log = format!(
        "warning: w\n  --> {}:2:5\nerror[E1]: no\n   --> {}:2:5\n",
        faults[0].file.display(),
        faults[1].file.display()
    );
    assert!(!is_refused(&log, &faults[0]) && is_refused(&log, &faults[1]));
}
