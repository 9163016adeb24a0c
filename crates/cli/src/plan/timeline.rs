//! The contents of the arena at any time.

use remat_graph::plan::problem::Problem;
use remat_graph::plan::schedule::{Schedule, Step};

/// The contents of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Given,
    First,
    /// Made again or fetched.
    Again,
    Workspace,
}

/// A block: its range of time and its range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) kind: Kind,
    /// Index of the storage, or of the operator whose workspace it is.
    pub(super) owner: usize,
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    pub(super) at: u64,
    pub(super) bytes: u64,
}

/// The blocks of a valid schedule, without those that are empty. Waits for copies are left out of the times.
pub(super) fn blocks(p: &Problem, s: &Schedule) -> Vec<Block> {
    let storages = p.storages();
    let mut open: Vec<Option<Block>> = vec![None; storages.len()];
    let mut was_made = vec![false; storages.len()];
    let (mut done, mut now) = (Vec::new(), 0);
    let block = |kind, owner, at, bytes, from_ns| Block { kind, owner, from_ns, to_ns: from_ns, at, bytes };
    for &(i, at) in &s.values {
        open[i] = Some(block(Kind::Given, i, at, storages[i].padded, 0));
    }
    for step in &s.steps {
        match step {
            Step::Compute { op, at, workspace_at } => {
                let o = &p.ops()[*op];
                for &(i, at) in at {
                    let is_there = |from: usize| open[from].is_some_and(|b: Block| b.at == at);
                    if let Some(&(_, from)) = o.takes.iter().find(|(to, from)| *to == i && is_there(*from)) {
                        done.extend(open[from].take().map(|b| Block { to_ns: now, ..b }));
                    }
                    let kind = if std::mem::replace(&mut was_made[i], true) { Kind::Again } else { Kind::First };
                    open[i].get_or_insert(block(kind, i, at, storages[i].padded, now));
                }
                let scratch = workspace_at.map(|at| block(Kind::Workspace, *op, at, o.workspace, now));
                now += o.time_ns;
                done.extend(scratch.map(|b| Block { to_ns: now, ..b }));
            }
            Step::Free { storage } => done.extend(open[*storage].take().map(|b| Block { to_ns: now, ..b })),
            Step::Spill { .. } => {}
            Step::Fetch { storage, at } => {
                open[*storage] = Some(block(Kind::Again, *storage, *at, storages[*storage].padded, now));
            }
        }
    }
    done.extend(open.into_iter().flatten().map(|b| Block { to_ns: now, ..b }));
    done.retain(|b| b.bytes > 0);
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use remat_graph::plan::schedule::Plan;

    #[test]
    fn blocks_last_from_the_step_that_makes_them_to_their_free() {
        let dag = r#"{ "version": 1, "values": [ { "name": "x", "bytes": 4 } ], "ops": [
            { "name": "f", "time_ns": 5, "inputs": ["x"], "outputs": [ { "name": "a", "bytes": 2 } ], "workspace": 3 } ],
            "outputs": ["a"] }"#;
        let schedule = r#"{ "version": 1, "budget_bytes": 9, "arena_bytes": 9, "time_ns": 10, "base_time_ns": 5,
            "values": { "x": 0 }, "steps": [ { "compute": "f", "at": { "a": 4 }, "workspace_at": 6 }, { "free": "a" },
            { "compute": "f", "at": { "a": 4 }, "workspace_at": 6 } ] }"#;
        let p = Problem::from_json(dag).expect("valid");
        let Plan::Feasible(s) = Plan::from_json(schedule, &p).expect("valid") else { panic!("it is feasible") };
        let found: Vec<_> =
            blocks(&p, &s).iter().map(|b| (b.kind, b.owner, b.from_ns, b.to_ns, b.at, b.bytes)).collect();
        let expected = [
            (Kind::Workspace, 0, 0, 5, 6, 3),
            (Kind::First, 1, 0, 5, 4, 2),
            (Kind::Workspace, 0, 5, 10, 6, 3),
            (Kind::Given, 0, 0, 10, 0, 4),
            (Kind::Again, 1, 5, 10, 4, 2),
        ];
        assert_eq!(found, expected);
    }
}
