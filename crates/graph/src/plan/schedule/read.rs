//! Schedules from JSON; names are resolved against the problem.

use remat_types::Result;

use super::{Plan, Schedule, Shortfall, Step};
use crate::plan::json::{self, Object, format_error};
use crate::plan::problem::Problem;

impl Plan {
    /// Reads the JSON form of a schedule for `p`.
    ///
    /// # Errors
    /// [`remat_types::ErrorKind::Format`], with the place: a missing field, a wrong type or number, a name that `p` does
    /// not have. Whether the steps are valid is for [`crate::plan::check::check`] to say.
    pub fn from_json(text: &str, p: &Problem) -> Result<Plan> {
        let top = json::document(text)?;
        if !json::bool_or(&top, "feasible", true)? {
            let op = top.get("limiting_op").filter(|v| !v.is_null()).map(|v| {
                let found = op_named(p, json::to_text("limiting_op", v)?);
                found.map_err(|e| e.context("limiting_op"))
            });
            return Ok(Plan::Infeasible(Shortfall {
                budget_bytes: json::number(&top, "budget_bytes")?,
                smallest_feasible_bytes: json::number(&top, "smallest_feasible_bytes")?,
                least_bytes: json::number_or(&top, "least_bytes", 0)?,
                limiting_op: op.transpose()?,
            }));
        }
        let none = Object::new();
        let values = top.get("values").map_or(Ok(&none), |v| json::to_object("values", v))?;
        Ok(Plan::Feasible(Schedule {
            budget_bytes: json::number(&top, "budget_bytes")?,
            arena_bytes: json::number(&top, "arena_bytes")?,
            time_ns: json::number(&top, "time_ns")?,
            base_time_ns: json::number(&top, "base_time_ns")?,
            lower_bound_ns: json::number_or(&top, "lower_bound_ns", 0)?,
            plan_seconds: top.get("plan_seconds").and_then(serde_json::Value::as_f64).unwrap_or(0.0),
            values: offsets(values, p).map_err(|e| e.context("values"))?,
            steps: json::objects(&top, "steps", |o| step(o, p))?,
        }))
    }
}

fn op_named(p: &Problem, name: &str) -> Result<usize> {
    p.op_named(name).ok_or_else(|| format_error(format!("the problem has no operator `{name}`")))
}

fn storage_named(p: &Problem, name: &str) -> Result<usize> {
    let value = p.value_named(name).ok_or_else(|| format_error(format!("the problem has no value `{name}`")))?;
    Ok(p.values()[value].storage)
}

fn offsets(at: &Object, p: &Problem) -> Result<Vec<(usize, u64)>> {
    let mut offsets = Vec::with_capacity(at.len());
    for (name, offset) in at {
        let storage = storage_named(p, name)?;
        if p.storage_name(storage) != name {
            return Err(format_error(format!("`{name}` has no storage of its own")));
        }
        offsets.push((storage, json::to_number(name, offset)?));
    }
    Ok(offsets)
}

fn step(o: &Object, p: &Problem) -> Result<Step> {
    let verbs: Vec<&str> = ["compute", "free", "spill", "fetch"].into_iter().filter(|v| o.contains_key(*v)).collect();
    let &[verb] = verbs.as_slice() else {
        return Err(format_error("a step is one of `compute`, `free`, `spill` and `fetch`"));
    };
    let name = json::text(o, verb)?;
    let storage = || storage_named(p, name).map_err(|e| e.context(verb));
    Ok(match verb {
        "compute" => {
            let op = op_named(p, name).map_err(|e| e.context(verb))?;
            let none = Object::new();
            let at = o.get("at").map_or(Ok(&none), |v| json::to_object("at", v))?;
            let at = offsets(at, p).map_err(|e| e.context(format!("compute `{name}`: at")))?;
            let workspace_at = o.get("workspace_at").map(|v| json::to_number("workspace_at", v)).transpose()?;
            Step::Compute { op, at, workspace_at }
        }
        "free" => Step::Free { storage: storage()? },
        "spill" => Step::Spill { storage: storage()? },
        _ => Step::Fetch { storage: storage()?, at: json::number(o, "at")? },
    })
}
