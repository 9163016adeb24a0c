//! `remat ops`: the operators, as their schemas describe them.

use remat::ops::schema::{Count, Input, Param, Schema};
use remat::ops::{Entry, Family, Registry};
use remat::types::{Error, ErrorKind, Result};
use serde_json::{Value, json};

use crate::output::say;

/// What is listed.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  remat ops\n  remat ops softmax\n  remat ops conv2d --json")]
pub(crate) struct Options {
    /// One operator, with its text; all of them by family if none is named.
    name: Option<String>,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
    /// Print the chapter of the book.
    #[arg(long, hide = true, conflicts_with_all = ["name", "json"])]
    book: bool,
}

/// Prints what `options` ask for. Errors: Value for a name that no operator has.
pub(crate) fn run(options: &Options) -> Result<()> {
    let registry = remat::runtime::control_flow::registry();
    let text = match &options.name {
        _ if options.book => chapter(&registry),
        None if options.json => pretty(&Value::from_iter(registry.families().iter().map(family_json))),
        None => registry.families().iter().map(family_text).collect::<Vec<_>>().join("\n"),
        Some(name) => {
            let (family, entry) = find(&registry, name)?;
            match options.json {
                true => pretty(&op_json(family, &entry.schema())),
                false => op_text(family, &entry.schema()),
            }
        }
    };
    say!("{}", text.trim_end());
    Ok(())
}

fn pretty(v: &Value) -> String {
    format!("{v:#}")
}

fn find<'a>(registry: &'a Registry, name: &str) -> Result<(&'a Family, &'a Entry)> {
    let all = || registry.families().iter().flat_map(|f| f.ops.iter().map(move |e| (f, e)));
    all().find(|(_, e)| e.name == name).ok_or_else(|| {
        let near: Vec<&str> = all().map(|(_, e)| e.name).filter(|n| n.contains(name) || name.contains(n)).collect();
        let hint = if near.is_empty() { String::new() } else { format!("; there are {}", near.join(", ")) };
        Error::new(ErrorKind::Value, format!("no operator is called `{name}`{hint}"))
    })
}

fn family_json(f: &Family) -> Value {
    let ops = f.ops.iter().map(|e| op_json(f, &e.schema()));
    json!({ "family": f.name, "text": f.text, "ops": Value::from_iter(ops) })
}

fn op_json(f: &Family, schema: &Schema) -> Value {
    let mut v = serde_json::to_value(schema).unwrap_or(Value::Null);
    v["family"] = f.name.into();
    v
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

/// What is said of an input, in a few words.
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
fn chapter(registry: &Registry) -> String {
    let mut page = String::from(
        "# List of operators\n\nMade by `remat ops --book`; a test compares. After the semicolon stand parameters, with what \
         they are where nothing is said. `remat ops NAME` tells all that is known of one.\n",
    );
    for f in registry.families() {
        page += &format!("\n## {}\n\n{}\n\n| operator | | gradient |\n|---|---|---|\n", f.name, f.text);
        for schema in f.ops.iter().map(Entry::schema) {
            let with: Vec<&str> = schema.inputs.iter().filter(|i| i.gradient).map(|i| i.name).collect();
            let summary = without_links(&schema.summary()).replace('|', "\\|");
            page += &format!("| `{}` | {summary} | {} |\n", signature(&schema).replace('|', "\\|"), with.join(", "));
        }
    }
    page
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
        let now = chapter(&remat::runtime::control_flow::registry());
        let book = include_str!("../../../docs/src/operator-list.md");
        assert!(book == now, "`remat ops --book > docs/src/operator-list.md` makes it anew");
    }

    #[test]
    fn an_operator_shows_inputs_parameters_and_gradients() {
        let registry = remat::runtime::control_flow::registry();
        let (family, entry) = find(&registry, "softmax").expect("it is there");
        let text = op_text(family, &entry.schema());
        for part in ["softmax(x; axis, log = false)", "x: float, has a gradient", "axis: size", "family activation"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let e = find(&registry, "softmaxx").err().expect("there is none");
        assert!(e.to_string().contains("there are softmax"), "{e}");
    }
}
