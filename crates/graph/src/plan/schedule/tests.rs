use super::*;
use crate::plan::problem::Problem;

const DAG: &str = r#"{ "version": 1, "values": [ { "name": "x", "bytes": 8 } ],
  "ops": [ { "name": "f", "time_ns": 3, "inputs": ["x"], "outputs": [ { "name": "y", "bytes": 4 } ], "workspace": 2 } ],
  "outputs": ["y"] }"#;

fn example() -> (Problem, Schedule) {
    let p = Problem::from_json(DAG).expect("valid");
    let steps = vec![
        Step::Compute { op: 0, at: vec![(1, 8)], workspace_at: Some(12) },
        Step::Spill { storage: 1 },
        Step::Free { storage: 1 },
        Step::Fetch { storage: 1, at: 10 },
    ];
    let s = Schedule {
        budget_bytes: 20,
        arena_bytes: 14,
        time_ns: 3,
        base_time_ns: 3,
        lower_bound_ns: 3,
        plan_seconds: 0.25,
        values: vec![(0, 0)],
        steps,
    };
    (p, s)
}

#[test]
fn what_is_written_reads_back_equal() {
    let (p, s) = example();
    let plan = Plan::Feasible(s);
    assert_eq!(Plan::from_json(&plan.to_json(&p), &p).expect("own output"), plan);
    let none = Plan::Infeasible(Shortfall {
        budget_bytes: 3,
        smallest_feasible_bytes: 14,
        least_bytes: 13,
        limiting_op: Some(0),
    });
    assert_eq!(Plan::from_json(&none.to_json(&p), &p).expect("own output"), none);
    for plan in [plan, none] {
        let text = plan.to_json_with_problem(&p);
        let carried = Problem::in_schedule(&text).expect("own output").expect("it carries its problem");
        assert_eq!(carried.spec(), p.spec());
        assert_eq!(Plan::from_json(&text, &carried).expect("own output"), plan);
        assert!(Problem::in_schedule(&plan.to_json(&p)).expect("own output").is_none());
    }
}

#[test]
fn hostile_schedules_give_an_error_that_names_the_place() {
    let (p, s) = example();
    let text = s.to_json(&p);
    let table = [
        ("\"free\":\"y\"", "\"free\":\"z\"", "steps[2]: free: the problem has no value `z`"),
        ("\"compute\":\"f\"", "\"compute\":\"g\"", "steps[0]: compute: the problem has no operator `g`"),
        ("\"at\":{\"y\":8}", "\"at\":{\"y\":-8}", "`y` must be a whole number"),
        ("\"at\":{\"y\":8}", "\"at\":[8]", "`at` must be an object"),
        ("{\"free\":\"y\"}", "{\"free\":\"y\",\"spill\":\"y\"}", "a step is one of"),
        ("{\"free\":\"y\"}", "{}", "steps[2]: a step is one of"),
        ("{\"free\":\"y\"}", "7", "steps[2]: `element` must be an object"),
        ("{\"at\":10,\"fetch\":\"y\"}", "{\"fetch\":\"y\"}", "steps[3]: field `at` is missing"),
        ("\"workspace_at\":12", "\"workspace_at\":1e99", "`workspace_at`"),
        ("\"arena_bytes\": 14,", "", "`arena_bytes` is missing"),
        ("\"feasible\": true", "\"feasible\": 1", "`feasible`"),
        ("{\"x\":0}", "{\"q\":0}", "values: the problem has no value `q`"),
    ];
    for (from, to, says) in table {
        assert!(text.contains(from), "{from} in {text}");
        let e = Plan::from_json(&text.replacen(from, to, 1), &p).expect_err(to).to_string();
        assert!(e.contains(says), "{from} -> {to}: {e}");
    }
}
