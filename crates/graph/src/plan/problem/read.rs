//! A problem from JSON.

use remat_types::Result;

use super::{Bytes, OpSpec, OutputSpec, Problem, Spec, SpillRates};
use crate::plan::json::{self, Object, format_error};

impl Problem {
    /// Reads the JSON form.
    ///
    /// # Errors
    /// [`remat_types::ErrorKind::Format`], with the place, for anything that is not a well-formed problem.
    pub fn from_json(text: &str) -> Result<Problem> {
        Problem::new(Spec::from_json(text)?)
    }

    /// The problem that a schedule's JSON form carries, if it carries one.
    ///
    /// # Errors
    /// As [`Problem::from_json`].
    pub fn in_schedule(text: &str) -> Result<Option<Problem>> {
        let top = json::document(text)?;
        let Some(value) = top.get("problem") else { return Ok(None) };
        let read = || Problem::new(Spec::from_object(json::to_object("problem", value)?)?);
        read().map(Some).map_err(|e| e.context("problem"))
    }
}

impl Spec {
    /// Reads the JSON form; names are resolved by [`Problem::new`].
    ///
    /// # Errors
    /// [`remat_types::ErrorKind::Format`], with the place: a missing field, one that there is not, a wrong type, a number that is
    /// negative, not whole or too large.
    pub fn from_json(text: &str) -> Result<Spec> {
        Spec::from_object(&json::document(text)?)
    }

    fn from_object(top: &Object) -> Result<Spec> {
        json::only(top, &["version", "align", "values", "ops", "outputs", "spill"])?;
        Ok(Spec {
            align: json::number_or(top, "align", 1)?,
            values: json::objects(top, "values", |v| {
                json::only(v, &["name", "bytes"])?;
                Ok((json::text(v, "name")?.to_owned(), json::number(v, "bytes")?))
            })?,
            ops: json::objects(top, "ops", op)?,
            outputs: json::texts(top, "outputs")?,
            spill: spill(top)?,
        })
    }
}

fn op(o: &Object) -> Result<OpSpec> {
    json::only(o, &["name", "time_ns", "inputs", "outputs", "workspace", "repeatable"])?;
    Ok(OpSpec {
        name: json::text(o, "name")?.to_owned(),
        time_ns: json::number(o, "time_ns")?,
        inputs: json::texts(o, "inputs")?,
        outputs: json::objects(o, "outputs", output)?,
        workspace: json::number_or(o, "workspace", 0)?,
        repeatable: json::bool_or(o, "repeatable", true)?,
    })
}

fn output(o: &Object) -> Result<OutputSpec> {
    json::only(o, &["name", "bytes", "alias_of", "writes", "may_take"])?;
    let name = json::text(o, "name")?.to_owned();
    let of = |key| json::text(o, key).map(str::to_owned);
    let bytes = match (o.contains_key("bytes"), o.contains_key("alias_of"), o.contains_key("writes")) {
        (true, false, false) if o.contains_key("may_take") => {
            Bytes::OwnOr(json::number(o, "bytes")?, json::texts(o, "may_take")?)
        }
        (true, false, false) => Bytes::Own(json::number(o, "bytes")?),
        (_, true, false) => Bytes::AliasOf(of("alias_of")?),
        (_, false, true) => Bytes::Writes(of("writes")?),
        (_, true, true) => return Err(format_error("`alias_of` and `writes` exclude each other")),
        (false, false, false) => {
            return Err(format_error("field `bytes` is missing, and neither `alias_of` nor `writes` is given"));
        }
    };
    Ok(OutputSpec { name, bytes })
}

fn spill(top: &Object) -> Result<SpillRates> {
    let Some(value) = top.get("spill") else { return Ok(SpillRates::default()) };
    let rates = || -> Result<SpillRates> {
        let o = json::to_object("spill", value)?;
        json::only(o, &["write_bytes_per_s", "read_bytes_per_s"])?;
        Ok(SpillRates {
            write_bytes_per_s: json::number_or(o, "write_bytes_per_s", 0)?,
            read_bytes_per_s: json::number_or(o, "read_bytes_per_s", 0)?,
        })
    };
    rates().map_err(|e| e.context("spill"))
}
