use super::*;
use crate::plan::schedule::Plan;

const DAG: &str = r#"{ "version": 1, "align": 4,
  "values": [ { "name": "x", "bytes": 8 }, { "name": "w", "bytes": 4 } ],
  "ops": [
    { "name": "f", "time_ns": 30, "inputs": ["x"], "outputs": [ { "name": "a", "bytes": 16 } ], "workspace": 4 },
    { "name": "g", "time_ns": 10, "inputs": ["a"], "outputs": [ { "name": "b", "bytes": 8 } ] },
    { "name": "v", "time_ns": 0, "inputs": ["a"], "outputs": [ { "name": "va", "alias_of": "a" } ] },
    { "name": "h", "time_ns": 20, "inputs": ["va", "b", "w"], "outputs": [ { "name": "c", "bytes": 4 } ], "repeatable": false },
    { "name": "u", "time_ns": 1, "inputs": ["w", "c"], "outputs": [ { "name": "w2", "writes": "w" } ] } ],
  "outputs": ["w2", "c"],
  "spill": { "write_bytes_per_s": 1000000000, "read_bytes_per_s": 2000000000 } }"#;

/// With `a` freed and made again.
const GOOD: &str = r#"{ "version": 1, "feasible": true, "budget_bytes": 44, "arena_bytes": 40, "time_ns": 91,
  "base_time_ns": 61, "lower_bound_ns": 61, "values": { "x": 0, "w": 8 }, "steps": [
    {"compute":"f","at":{"a":16},"workspace_at":12},
    {"compute":"g","at":{"b":32}},
    {"free":"a"},
    {"compute":"f","at":{"a":16},"workspace_at":12},
    {"compute":"v","at":{}},
    {"compute":"h","at":{"c":12}},
    {"free":"b"},
    {"free":"va"},
    {"compute":"u"} ] }"#;

fn run(text: &str) -> Result<Checked> {
    let p = Problem::from_json(DAG)?;
    match Plan::from_json(text, &p)? {
        Plan::Feasible(s) => check(&p, &s),
        Plan::Infeasible(_) => unreachable!("every schedule here is feasible"),
    }
}

#[test]
fn a_valid_schedule_passes() {
    let c = run(GOOD).expect("valid");
    assert_eq!(c, Checked { arena_bytes: 40, time_ns: 91, computes: 6, spilled_bytes: 0 });
}

#[test]
fn an_output_may_lie_where_the_input_did_that_it_takes_over() {
    let dag = |takes: &str| {
        format!(
            r#"{{ "version": 1, "values": [], "ops": [
            {{ "name": "f", "time_ns": 1, "inputs": [], "outputs": [ {{ "name": "a", "bytes": 8 }} ] }},
            {{ "name": "g", "time_ns": 1, "inputs": ["a"], "outputs": [ {{ "name": "b", "bytes": 8 {takes} }} ] }},
            {{ "name": "h", "time_ns": 1, "inputs": ["b"], "outputs": [ {{ "name": "c", "bytes": 1 }} ] }} ],
            "outputs": ["c"] }}"#
        )
    };
    let run = |takes: &str, more: &str| {
        let p = Problem::from_json(&dag(takes))?;
        let text = format!(
            r#"{{ "version": 1, "budget_bytes": 9, "arena_bytes": 9, "time_ns": 3, "base_time_ns": 3, "values": {{}},
            "steps": [ {{"compute":"f","at":{{"a":0}}}}, {{"compute":"g","at":{{"b":0}}}}, {more}
            {{"compute":"h","at":{{"c":8}}}} ] }}"#
        );
        match Plan::from_json(&text, &p)? {
            Plan::Feasible(s) => check(&p, &s),
            Plan::Infeasible(_) => unreachable!("it is feasible"),
        }
    };
    let takes = r#", "may_take": ["a"]"#;
    assert_eq!(run(takes, "").expect("valid").arena_bytes, 9);
    assert!(run("", "").expect_err("it may not").to_string().contains("overlaps `a`"));
    let e = run(takes, r#"{"free":"a"},"#).expect_err("it is gone").to_string();
    assert!(e.contains("`a` is not resident"), "{e}");
    let e = run(takes, r#"{"compute":"g","at":{"b":0}},"#).expect_err("it cannot be read").to_string();
    assert!(e.contains("`a` is not resident"), "{e}");
}

/// A fault planted into the good schedule, and the verdict.
const FAULTS: &[(&str, &str, &str)] = &[
    (
        r#""workspace_at":12},
    {"compute":"g""#,
        r#""workspace_at":16},
    {"compute":"g""#,
        "`workspace` at 16..20 overlaps `a`",
    ),
    (r#""b":32"#, r#""b":28"#, "steps[1]: compute `g`: `b` at 28..36 overlaps `a`"),
    (r#""b":32"#, r#""b":33"#, "not a multiple of 4"),
    (r#""b":32"#, r#""a":32"#, "`at` lacks `b`"),
    (r#""b":32"#, r#""b":32,"c":60"#, "names `c`, which it does not make"),
    (r#""x": 0,"#, "", "values: `x` has no offset"),
    (r#""x": 0,"#, r#""x": 4,"#, "overlaps"),
    (r#"{"free":"b"},"#, r#"{"free":"b"},{"free":"b"},"#, "steps[7]: free: `b` is not resident"),
    (r#"{"free":"b"},"#, r#"{"free":"x"},"#, "`x` is given and cannot be freed"),
    (r#"{"compute":"v","at":{}},"#, "", "`va` cannot be read"),
    (r#"{"free":"a"},"#, r#"{"free":"a"},{"compute":"v"},"#, "`a` is not resident"),
    (r#"{"free":"b"},"#, r#"{"compute":"h","at":{"c":12}},{"free":"b"},"#, "it may run once only"),
    (r#"{"compute":"u"}"#, r#"{"compute":"u"},{"compute":"u"}"#, "`w` cannot be read"),
    (r#"{"compute":"u"}"#, r#"{"free":"c"}"#, "at the end: `w2` cannot be read"),
    (r#"{"compute":"u"}"#, r#"{"compute":"u"},{"free":"c"}"#, "at the end: `c` is not resident"),
    (r#""arena_bytes": 40"#, r#""arena_bytes": 36"#, "`arena_bytes` is 40, not 36"),
    (r#""arena_bytes": 40"#, r#""arena_bytes": 44"#, "`arena_bytes` is 40, not 44"),
    (r#""budget_bytes": 44"#, r#""budget_bytes": 39"#, "exceeds the budget"),
    (r#""time_ns": 91"#, r#""time_ns": 90"#, "`time_ns` is 91"),
    (r#""base_time_ns": 61"#, r#""base_time_ns": 60"#, "`base_time_ns` is 61"),
    (r#""lower_bound_ns": 61"#, r#""lower_bound_ns": 92"#, "below its bound"),
    (r#"{"free":"a"},"#, r#"{"fetch":"a","at":16},"#, "`a` was not spilled"),
    (
        r#"{"free":"a"},
    {"compute":"f","at":{"a":16}"#,
        r#"{"compute":"f","at":{"a":20}"#,
        "resident at 16 and cannot be made at 20",
    ),
];

#[test]
fn planted_faults_are_found() {
    for (from, to, says) in FAULTS {
        assert!(GOOD.contains(from), "{from}");
        let e = run(&GOOD.replacen(from, to, 1)).expect_err(to).to_string();
        assert!(e.contains(says), "{from} -> {to}: {e}");
    }
}

#[test]
fn an_output_may_be_made_again_where_it_lies() {
    assert!(run(&GOOD.replacen(r#"{"free":"a"},"#, "", 1)).is_ok());
}

#[test]
fn an_operator_that_never_runs_is_found() {
    let text = GOOD.replace(r#"{"compute":"u"} ]"#, "{\"free\":\"c\"} ]");
    assert!(run(&text).is_err());
}

#[test]
fn spilling_is_timed_and_only_its_waits_count() {
    let spilled = GOOD.replace(r#"{"free":"a"},"#, r#"{"spill":"a"},{"free":"a"},"#).replace(
        r#"{"compute":"f","at":{"a":16},"workspace_at":12},
    {"compute":"v""#,
        r#"{"fetch":"a","at":16},
    {"compute":"v""#,
    );
    // The copy out takes 16 ns from 40 on, the copy in 8 ns; nothing runs beside them.
    let p = Problem::from_json(DAG).expect("valid");
    let text = spilled.replace("\"time_ns\": 91", "\"time_ns\": 85");
    let c = run(&text).expect("valid");
    assert_eq!((c.time_ns, c.spilled_bytes), (30 + 10 + 16 + 8 + 20 + 1, 32));
    let early = text.replace(r#"{"spill":"a"},"#, "").replace(r#"{"compute":"g""#, r#"{"spill":"a"},{"compute":"g""#);
    // Begun before `g`, which takes 10 of its 16 ns.
    let c = run(&early.replace("\"time_ns\": 85", "\"time_ns\": 75")).expect("valid");
    assert_eq!(c.time_ns, 75);
    assert!(p.spill().is_possible());
}
