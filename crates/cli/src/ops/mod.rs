//! `remat ops`: what a program can call. Operators are shown as their schemas describe them.

mod catalogue;

use std::path::PathBuf;

use remat::ops::schema::{Count, Input, Param, Schema};
use remat::ops::{Entry, Family, Registry};
use remat::types::{Error, ErrorKind, Result};
use serde_json::Value;

use catalogue::{Callable, Catalogue, listed, plural};

use crate::output::{say, write};

/// The options of the list.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  remat ops\n  remat ops softmax\n  remat ops Lstm\n  remat ops conv2d --json\n  \
                        remat ops --json operators.json")]
pub(crate) struct Options {
    /// One operator, method, layer, loss, optimizer or schedule, with its text; all of them if none is named.
    name: Option<String>,
    /// Print as JSON, or write it to FILE. Without a name: `operators`, a list with `name`, `gradient`, `samples` and `fixtures`
    /// of each (and more), and `fixtures_total`.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Print the chapter of the book.
    #[arg(long, hide = true, conflicts_with_all = ["name", "json"])]
    book: bool,
}

/// Prints what `options` ask for. Errors: Value for a name that nothing has; Io for a file that cannot be written.
pub(crate) fn run(options: &Options) -> Result<()> {
    let (registry, catalogue) = (remat::runtime::control_flow::registry(), Catalogue::new()?);
    if options.book {
        say!("{}", chapter(&registry, &catalogue).trim_end());
        return Ok(());
    }
    let found = options.name.as_deref().map(|n| find(&registry, &catalogue, n)).transpose()?;
    if let Some(file) = &options.json {
        let v = match &found {
            None => catalogue.json(&registry),
            Some(Found::Operator(family, entry)) => catalogue.operator_json(family.name, entry),
            Some(Found::Callable(all)) => {
                let mut all: Vec<Value> = all.iter().map(|c| catalogue.callable_json(c, &registry)).collect();
                if all.len() == 1 { all.remove(0) } else { all.into() }
            }
        };
        return write(file, format!("{v:#}\n"));
    }
    let text = match found {
        None => {
            let mut parts: Vec<String> = registry.families().iter().map(family_text).collect();
            parts.extend(catalogue.kinds().into_iter().map(|k| listed(&catalogue, k)));
            parts.join("\n")
        }
        Some(Found::Operator(family, entry)) => op_text(family, &entry.schema()),
        Some(Found::Callable(all)) => all.iter().map(|c| callable_text(c)).collect::<Vec<_>>().join("\n"),
    };
    say!("{}", text.trim_end());
    Ok(())
}

/// The meaning of a name.
enum Found<'a> {
    Operator(&'a Family, &'a Entry),
    /// Never empty.
    Callable(Vec<&'a Callable>),
}

fn find<'a>(registry: &'a Registry, catalogue: &'a Catalogue, name: &str) -> Result<Found<'a>> {
    let all = || registry.families().iter().flat_map(|f| f.ops.iter().map(move |e| (f, e)));
    if let Some((f, e)) = all().find(|(_, e)| e.name == name) {
        return Ok(Found::Operator(f, e));
    }
    let called: Vec<&Callable> = catalogue.callables.iter().filter(|c| c.name.eq_ignore_ascii_case(name)).collect();
    if !called.is_empty() {
        return Ok(Found::Callable(called));
    }
    let names = all().map(|(_, e)| e.name).chain(catalogue.callables.iter().map(|c| c.name.as_str()));
    let lower = name.to_ascii_lowercase();
    let mut near: Vec<&str> = names
        .filter(|n| {
            let n = n.to_ascii_lowercase();
            n.contains(&lower) || (lower.contains(&n) && n.len() > 2)
        })
        .collect();
    near.dedup();
    let hint = if near.is_empty() { String::new() } else { format!("; there are {}", near.join(", ")) };
    Err(Error::new(ErrorKind::Value, format!("nothing is called `{name}`{hint}")))
}

fn callable_text(c: &Callable) -> String {
    format!("{}\n\n{}\n\n{} of {}\n", c.signature, c.text, c.kind, c.family)
}

fn family_text(f: &Family) -> String {
    let lines = f.ops.iter().map(|e| format!("  {}\n", signature(&e.schema())));
    format!("{}: {}\n{}", f.name, f.text, lines.collect::<String>())
}

/// `softmax(x; axis, log = false)`.
fn signature(schema: &Schema) -> String {
    let inputs: Vec<String> = schema.inputs.iter().map(input_name).collect();
    let params: Vec<String> = schema.params.iter().map(param_name).collect();
    let between = if params.is_empty() { "" } else { "; " };
    format!("{}({}{between}{})", schema.name, inputs.join(", "), params.join(", "))
}

fn input_name(i: &Input) -> String {
    let mark = match i.count {
        Count::One => "",
        Count::Optional => "?",
        Count::Many => "..",
    };
    format!("{}{mark}", i.name)
}

fn param_name(p: &Param) -> String {
    match &p.default {
        Some(v) => format!("{} = {}", p.name, short(v)),
        None => p.name.to_owned(),
    }
}

/// A default as a reader writes it: a number without its kind.
fn short(v: &Value) -> String {
    match v {
        Value::Null => "none".to_owned(),
        Value::String(s) => s.clone(),
        Value::Object(o) if o.len() == 1 => o.values().map(short).collect(),
        other => other.to_string(),
    }
}

/// The description of an input, in a few words.
fn input_words(i: &Input) -> String {
    let gradient = if i.gradient { ", has a gradient" } else { "" };
    match i.count {
        Count::One => format!("{}{gradient}", i.dtypes),
        Count::Optional => format!("{}, may be left out{gradient}", i.dtypes),
        Count::Many => format!("{}, any number{gradient}", i.dtypes),
    }
}

fn op_text(f: &Family, schema: &Schema) -> String {
    let mut text = format!("{}\n\n{}\n", signature(schema), schema.text);
    if !schema.inputs.is_empty() {
        text += "\ninputs\n";
        for i in &schema.inputs {
            text += &format!("  {}: {}\n", input_name(i), input_words(i));
        }
    }
    if !schema.params.is_empty() {
        text += "\nparameters\n";
        for p in &schema.params {
            let since = if p.since > 1 { format!(" (since version {})", p.since) } else { String::new() };
            text += &format!("  {}: {}\n      {}{since}\n", param_name(p), p.ty, p.text.replace('\n', " "));
        }
    }
    let gradient = if schema.inputs.iter().any(|i| i.gradient) { "differentiable" } else { "no gradient" };
    text + &format!("\nfamily {}, version {}, {gradient}\n", f.name, schema.version)
}

/// A text without the targets of its links, which are paths of the API documentation.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        let Some((_, behind)) = after.split_once(')') else { break };
        let (head, name) = before.rsplit_once('[').unwrap_or(("", before));
        plain = plain + head + name;
        rest = behind;
    }
    plain + rest
}

/// The chapter `operator-list.md` of the book.
fn chapter(registry: &Registry, catalogue: &Catalogue) -> String {
    let mut page = String::from(
        "# List of operators\n\nAfter this page you know every operator and function of Remat. `remat ops --book` writes the page. In a \
         signature the parameters follow the semicolon, with their defaults. `remat ops NAME` describes one operator.\n",
    );
    for f in registry.families() {
        page += &format!("\n## {}\n\n{}\n\n| operator | | gradient |\n|---|---|---|\n", f.name, f.text);
        for schema in f.ops.iter().map(Entry::schema) {
            let with: Vec<&str> = schema.inputs.iter().filter(|i| i.gradient).map(|i| i.name).collect();
            let summary = without_links(&schema.summary()).replace('|', "\\|");
            page += &format!("| `{}` | {summary} | {} |\n", signature(&schema).replace('|', "\\|"), with.join(", "));
        }
    }
    for kind in catalogue.kinds() {
        page += &format!("\n## {}\n\n| | | gradient | fixtures |\n|---|---|---|---|\n", capital(plural(kind)));
        for c in catalogue.callables.iter().filter(|c| c.kind == kind) {
            let v = catalogue.callable_json(c, registry);
            let (signature, text) = (c.signature.replace('|', "\\|"), c.text.replace('|', "\\|"));
            let gradient = if v["gradient"] == Value::Bool(true) { "yes" } else { "" };
            page += &format!("| `{signature}` | {text} | {gradient} | {} |\n", v["fixtures"]);
        }
    }
    page
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |c| c.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lose_their_targets_and_keep_their_names() {
        let text = "The weight of a [`ConvBlocked`](super::ConvBlocked) and a [`Pool`](crate::Pool), `x[0](1`.";
        assert_eq!(without_links(text), "The weight of a `ConvBlocked` and a `Pool`, `x[0](1`.");
    }

    #[test]
    fn the_book_lists_the_operators_that_there_are() {
        let now = chapter(&remat::runtime::control_flow::registry(), &Catalogue::new().expect("it reads"));
        let book = include_str!("../../../../docs/src/operator-list.md");
        assert!(book == now, "`remat ops --book > docs/src/operator-list.md` makes it anew");
    }

    #[test]
    fn an_operator_shows_inputs_parameters_and_gradients() {
        let (registry, catalogue) = (remat::runtime::control_flow::registry(), Catalogue::new().expect("it reads"));
        let Ok(Found::Operator(family, entry)) = find(&registry, &catalogue, "softmax") else { panic!("it is there") };
        let text = op_text(family, &entry.schema());
        for part in ["softmax(x; axis, log = false)", "x: float, has a gradient", "axis: size", "family activation"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let e = find(&registry, &catalogue, "softmaxx").err().expect("there is none");
        assert!(e.to_string().contains("there are softmax"), "{e}");
    }

    #[test]
    fn everything_is_listed_with_what_tests_it() {
        let (registry, catalogue) = (remat::runtime::control_flow::registry(), Catalogue::new().expect("it reads"));
        let v = catalogue.json(&registry);
        let all = v["operators"].as_array().expect("a list");
        let names: std::collections::BTreeSet<&str> = all.iter().filter_map(|o| o["name"].as_str()).collect();
        assert!(names.len() >= 260, "{}", names.len());
        for name in ["reduce", "cumsum", "Linear", "huber", "AdamW", "Cosine"] {
            assert!(names.contains(name), "{name}");
        }
        let relu = all.iter().find(|o| o["name"] == "relu").expect("it is there");
        assert!(relu["gradient"] == true && relu["fixtures"].as_u64() > Some(5), "{relu}");
        let sums: u64 = all.iter().filter(|o| o["kind"] != "operator").filter_map(|o| o["fixtures"].as_u64()).sum();
        assert!(v["fixtures_total"].as_u64() >= Some(sums.min(1000)), "{}", v["fixtures_total"]);
    }
}
