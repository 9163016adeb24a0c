//! Schedules as JSON.

use serde_json::{Map, Value, json};

use super::{Plan, Schedule, Shortfall, Step};
use crate::plan::problem::Problem;

impl Plan {
    /// The JSON form.
    pub fn to_json(&self, p: &Problem) -> String {
        match self {
            Plan::Feasible(s) => s.to_json(p),
            Plan::Infeasible(s) => s.to_json(p),
        }
    }

    /// The JSON form with the problem in its field `problem`, so that the file can be checked by itself.
    pub fn to_json_with_problem(&self, p: &Problem) -> String {
        let text = self.to_json(p);
        let open = text.trim_end().strip_suffix('}').map(str::trim_end);
        let open = open.expect("both forms are objects");
        format!("{open},\n  \"problem\": {}}}\n", p.spec().to_json())
    }
}

impl Shortfall {
    /// The JSON form.
    pub fn to_json(&self, p: &Problem) -> String {
        let v = json!({
            "version": 1,
            "feasible": false,
            "budget_bytes": self.budget_bytes,
            "smallest_feasible_bytes": self.smallest_feasible_bytes,
            "least_bytes": self.least_bytes,
            "limiting_op": self.limiting_op.map(|o| &p.ops()[o].name),
        });
        format!("{v:#}\n")
    }
}

impl Schedule {
    /// The JSON form, one step a line.
    pub fn to_json(&self, p: &Problem) -> String {
        let steps: Vec<String> = self.steps.iter().map(|s| format!("    {}", step(s, p))).collect();
        format!(
            "{{\n  \"version\": 1,\n  \"feasible\": true,\n  \"budget_bytes\": {},\n  \"arena_bytes\": {},\n  \
             \"time_ns\": {},\n  \"base_time_ns\": {},\n  \"lower_bound_ns\": {},\n  \"plan_seconds\": {},\n  \
             \"values\": {},\n  \"steps\": [\n{}\n  ]\n}}\n",
            self.budget_bytes,
            self.arena_bytes,
            self.time_ns,
            self.base_time_ns,
            self.lower_bound_ns,
            json!(self.plan_seconds),
            offsets(&self.values, p),
            steps.join(",\n"),
        )
    }
}

fn offsets(at: &[(usize, u64)], p: &Problem) -> Value {
    Value::Object(at.iter().map(|&(s, o)| (p.storage_name(s).to_owned(), json!(o))).collect::<Map<_, _>>())
}

fn step(s: &Step, p: &Problem) -> Value {
    match s {
        Step::Compute { op, at, workspace_at } => {
            let mut v = json!({ "compute": p.ops()[*op].name, "at": offsets(at, p) });
            if let Some(at) = workspace_at {
                v["workspace_at"] = json!(at);
            }
            v
        }
        Step::Free { storage } => json!({ "free": p.storage_name(*storage) }),
        Step::Spill { storage } => json!({ "spill": p.storage_name(*storage) }),
        Step::Fetch { storage, at } => json!({ "fetch": p.storage_name(*storage), "at": at }),
    }
}
