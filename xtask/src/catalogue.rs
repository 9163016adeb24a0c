//! The catalogue of the functions that a program can call: methods, layers, losses, optimisers and schedules, with
//! their docs.
//!
//! `remat ops` shows it beside the operators, which describe themselves. It is extracted from lines of formatted code:
//! documented items at the first indentation of the blocks named in [`PARTS`], and rows of the macros that make methods
//! and layers.

use std::path::{Path, PathBuf};

use crate::finding::Finding;
use crate::repo::Repo;

/// The catalogue's file.
pub(crate) const FILE: &str = "crates/remat/src/catalogue.json";

/// An item that a program can call.
#[derive(Debug, PartialEq)]
struct Entry {
    name: String,
    kind: &'static str,
    /// The file's name without its ending. The item is listed under it.
    family: String,
    signature: String,
    text: String,
    /// Examples in its documentation, which the tests run.
    examples: usize,
    /// Lines of its example in Python, which pytest runs. They are the `python` block of its documentation.
    python: Vec<String>,
}

/// A folder or file whose items are listed, with their kind and the rule that selects them.
struct Part {
    path: &'static str,
    kind: &'static str,
    items: Items,
}

/// The rule for lines that begin an item.
#[derive(Clone, Copy, PartialEq)]
enum Items {
    /// `pub fn` in `impl Tensor`, and rows of macros.
    Methods,
    /// `pub struct`, and rows of macros, except for options.
    Structs,
    /// `pub fn` outside of all blocks.
    Functions,
    /// The `X` of each `pub struct XOptions`.
    Options,
    /// Variants of the enum with this name, and structs except for options.
    Variants(&'static str),
}

const PARTS: &[Part] = &[
    Part { path: "crates/tensor/src/methods", kind: "method", items: Items::Methods },
    Part { path: "crates/nn/src/layers", kind: "layer", items: Items::Structs },
    Part { path: "crates/nn/src/loss", kind: "loss", items: Items::Functions },
    Part { path: "crates/nn/src/optim", kind: "optimizer", items: Items::Options },
    Part { path: "crates/nn/src/schedule", kind: "schedule", items: Items::Variants("Schedule") },
    Part { path: "crates/nn/src/init.rs", kind: "initializer", items: Items::Variants("Init") },
    Part { path: "crates/zoo/src/models", kind: "model", items: Items::Structs },
];

/// The block that the present line is in.
#[derive(Clone, Copy, PartialEq)]
enum Within {
    Nothing,
    Tensor,
    Macro,
    Enum,
    Other,
}

fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// The summary: the text before the first empty line, without links.
fn summary(docs: &[&str]) -> String {
    let lines: Vec<&str> =
        docs.iter().map(|d| d.trim()).take_while(|d| !d.is_empty() && !d.starts_with("```")).collect();
    let text = lines.join(" ");
    let mut plain = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("](") {
        let Some((_, behind)) = after.split_once(')') else { break };
        let (head, name) = before.rsplit_once('[').unwrap_or(("", before));
        plain = plain + head + name;
        rest = behind;
    }
    (plain + rest).replace("[`", "`").replace("`]", "`")
}

/// The lines of the `python` block.
fn python_example(docs: &[&str]) -> Vec<String> {
    let lines = docs.iter().map(|d| d.strip_prefix(' ').unwrap_or(d));
    let behind = lines.skip_while(|l| *l != "```python").skip(1);
    behind.take_while(|l| *l != "```").map(str::to_owned).collect()
}

/// The items of a file.
fn entries(part: &Part, family: &str, text: &str) -> Vec<Entry> {
    let mut found = Vec::new();
    let (mut within, mut macro_name, mut docs) = (Within::Nothing, "", Vec::new());
    let lines: Vec<&str> = text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        if *line == "#[cfg(test)]" {
            break;
        }
        let trimmed = line.trim_start();
        if let Some(doc) = trimmed.strip_prefix("///") {
            docs.push(doc);
            continue;
        }
        if trimmed.starts_with("#[") || trimmed.ends_with(")]") {
            continue;
        }
        let documented = std::mem::take(&mut docs);
        let outside = within == Within::Nothing;
        let add = |found: &mut Vec<Entry>, name: &str, signature: String| {
            let fences = documented.iter().filter(|d| d.trim_start().starts_with("```")).count();
            let python = python_example(&documented);
            let examples = fences / 2 - usize::from(!python.is_empty());
            let (name, text) = (name.to_owned(), summary(&documented));
            found.push(Entry { name, kind: part.kind, family: family.to_owned(), signature, text, examples, python });
        };
        if outside && !documented.is_empty() {
            match part.items {
                Items::Functions if line.starts_with("pub fn ") => {
                    add(&mut found, identifier(&line[7..]), signature(&lines[at..]));
                }
                Items::Structs | Items::Options | Items::Variants(_) if line.starts_with("pub struct ") => {
                    let name = identifier(&line["pub struct ".len()..]);
                    match (part.items, name.strip_suffix("Options")) {
                        (Items::Options, Some(rule)) => add(&mut found, rule, format!("{name} {{ .. }}")),
                        (Items::Structs | Items::Variants(_), None) => add(&mut found, name, name.to_owned()),
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        let indented = line.starts_with("    ") && !line.starts_with("     ");
        if indented && !documented.is_empty() {
            match within {
                Within::Tensor if part.items == Items::Methods && trimmed.starts_with("pub fn ") => {
                    add(&mut found, identifier(&trimmed[7..]), signature(&lines[at..]));
                }
                Within::Macro if trimmed.contains("=>") => {
                    let names = trimmed.split("=>").next().unwrap_or_default();
                    for (i, name) in names.split(',').map(str::trim).enumerate() {
                        let (name, signature) = row(macro_name, name, i);
                        add(&mut found, &name, signature);
                    }
                }
                Within::Enum => add(&mut found, identifier(trimmed), variant(&lines[at..])),
                _ => {}
            }
        }
        within = match line {
            l if l.starts_with('}') => Within::Nothing,
            l if !outside || !l.ends_with('{') => within,
            l if l.starts_with("impl Tensor ") => Within::Tensor,
            l if l.starts_with("macro_rules!") => Within::Other,
            l if l.ends_with("! {") => {
                macro_name = l.trim_end_matches("! {");
                Within::Macro
            }
            l => match part.items {
                Items::Variants(name) if *l == format!("pub enum {name} {{") => Within::Enum,
                _ => Within::Other,
            },
        };
    }
    found
}

/// Name and signature of the `i`th name in a row of a macro.
fn row(macro_name: &str, name: &str, i: usize) -> (String, String) {
    let takes = match (macro_name, i) {
        ("unary_methods", _) => "(&self)",
        ("binary_methods" | "compare_methods", _) => "(&self, b: impl IntoOperand)",
        ("reduce_methods", 0) => "(&self)",
        ("reduce_methods", _) => "(&self, axes: &[isize], keepdims: bool)",
        ("assignments", _) => return (format!("at.{name}"), format!("x.at(index).{name}(value) -> Result<Tensor>")),
        _ => return (name.to_owned(), name.to_owned()),
    };
    (name.to_owned(), format!("{name}{takes} -> Result<Tensor>"))
}

/// The signature of the function that begins here: the text before its body.
fn signature(lines: &[&str]) -> String {
    let mut text = String::new();
    for line in lines {
        let line = line.trim();
        let spaced = !text.is_empty() && !text.ends_with('(') && !line.starts_with(')');
        text = text + if spaced { " " } else { "" } + line;
        if line.ends_with('{') || line.ends_with(';') {
            break;
        }
    }
    let text = text.trim_start_matches("pub fn ").trim_end_matches('{').trim_end();
    text.replace(",)", ")")
}

/// The signature of a variant: `Step { lr, every, gamma }`.
fn variant(lines: &[&str]) -> String {
    let name = identifier(lines[0].trim_start());
    if !lines[0].ends_with('{') {
        return lines[0].trim().trim_end_matches(',').to_owned();
    }
    let inner = lines[1..].iter().take_while(|l| l.starts_with("        "));
    let fields = inner.map(|l| l.trim()).filter(|l| !l.starts_with('/') && !l.starts_with('#'));
    let fields: Vec<&str> = fields.map(identifier).filter(|f| !f.is_empty()).collect();
    format!("{name} {{ {} }}", fields.join(", "))
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out + "\""
}

/// The catalogue that the sources give.
fn text(repo: &Repo) -> Result<String, String> {
    let mut all: Vec<Entry> = Vec::new();
    let files = repo.files()?;
    for part in PARTS {
        let own: Vec<_> =
            files.iter().filter(|p| p.starts_with(part.path) && p.extension().is_some_and(|e| e == "rs")).collect();
        if own.is_empty() {
            return Err(format!("{}: the catalogue reads this path, and there is no Rust file; see PARTS", part.path));
        }
        for path in own {
            if path.iter().any(|p| p == "tests") || path.ends_with("tests.rs") {
                continue;
            }
            for e in entries(part, &family(path), &repo.read(path)?) {
                if all.iter().all(|o| (o.kind, &o.name) != (e.kind, &e.name)) {
                    all.push(e);
                }
            }
        }
    }
    let line = |e: &Entry| {
        let Entry { name, kind, family, signature, text, examples, python } = e;
        let python: Vec<String> = python.iter().map(|l| quoted(l)).collect();
        // most methods have no example of their own yet
        let python =
            if python.is_empty() { String::new() } else { format!(",\n    \"python\": [{}]", python.join(", ")) };
        let [name, family, signature, text] = [name, family, signature, text].map(|t| quoted(t));
        format!(
            "  {{ \"name\": {name}, \"kind\": \"{kind}\", \"family\": {family}, \"examples\": {examples},\n    \
             \"signature\": {signature},\n    \"text\": {text}{python} }}"
        )
    };
    Ok(format!("[\n{}\n]\n", all.iter().map(line).collect::<Vec<_>>().join(",\n")))
}

/// The file's name, or its folder's for `mod.rs`.
fn family(path: &Path) -> String {
    let named = if path.ends_with("mod.rs") { path.parent() } else { Some(path) };
    named.and_then(Path::file_stem).unwrap_or_default().to_string_lossy().into_owned()
}

/// Writes the catalogue.
pub(crate) fn write(repo: &Repo) -> Result<bool, String> {
    let now = text(repo)?;
    repo.write_changed(FILE, now.as_bytes())?;
    println!("{FILE}: {} entries", now.matches("\"kind\"").count());
    Ok(true)
}

/// Checks that the catalogue is that of the sources.
pub(crate) fn check(repo: &Repo) -> Result<Vec<Finding>, String> {
    let file = PathBuf::from(FILE);
    if !repo.has(&file) || repo.read(&file)? == text(repo)? {
        return Ok(Vec::new());
    }
    Ok(vec![Finding::error(&file, 1, "differs from the sources; `cargo xtask catalogue` writes it anew")])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    const METHODS: &str = "\
macro_rules! unary_methods { () => {} }
unary_methods! {
    /// `max(x, 0)`, see [`Tensor::x`](crate::x).
    ///
    /// ```python
    /// >>> remat.tensor([-1.0]).relu()
    /// tensor([0.0])
    /// ```
    relu => Relu: [1.0] => f32 [1.0];
}

impl Tensor {
    /// Sorted \\ so.
    ///
    /// ```
    /// x
    /// ```
    #[track_caller]
    pub fn sort(
        &self,
        axis: isize,
    ) -> Result<Tensor> {
        /// Not one.
        fn inner() {}
    }

    /// Hidden.
    pub(crate) fn hidden(&self) {}
}
";

    #[test]
    fn methods_come_from_tensors_and_rows() {
        let found = entries(&PARTS[0], "order", METHODS);
        let names: Vec<_> = found.iter().map(|e| (e.name.as_str(), e.signature.as_str(), e.examples)).collect();
        assert_eq!(
            names,
            [("relu", "relu(&self) -> Result<Tensor>", 0), ("sort", "sort(&self, axis: isize) -> Result<Tensor>", 1)]
        );
        assert_eq!(found[0].text, "`max(x, 0)`, see `Tensor::x`.");
        assert_eq!(found[0].python, [">>> remat.tensor([-1.0]).relu()", "tensor([0.0])"]);
        assert!(found[1].python.is_empty());
    }

    #[test]
    fn structs_options_and_variants_are_found() {
        let code = "/// A.\npub struct Linear {\n    /// Not.\n    pub x: u8,\n}\n/// Opts.\npub struct LinearOptions {\n}\n\
                    /// E.\npub enum Schedule {\n    /// One.\n    Step {\n        /// F.\n        lr: f64,\n        at: u64,\n    },\n    /// Two.\n    Flat,\n}\n";
        let names = |items| -> Vec<String> {
            let part = Part { path: "", kind: "k", items };
            entries(&part, "f", code).into_iter().map(|e| e.signature).collect()
        };
        assert_eq!(names(Items::Structs), ["Linear"]);
        assert_eq!(names(Items::Options), ["LinearOptions { .. }"]);
        assert_eq!(names(Items::Variants("Schedule")), ["Linear", "Step { lr, at }", "Flat"]);
    }

    #[test]
    fn a_catalogue_that_is_behind_its_sources_is_found() {
        let others: Vec<String> = PARTS
            .iter()
            .map(|p| if p.path.ends_with(".rs") { p.path.to_owned() } else { format!("{}/other.rs", p.path) })
            .collect();
        let mut files: Vec<(&str, &str)> = others.iter().map(|path| (path.as_str(), "")).collect();
        files.extend([("crates/tensor/src/methods/order.rs", METHODS), (FILE, "[]\n")]);
        let repo = Scratch::new(&files);
        assert_eq!(check(&repo).unwrap().len(), 1);
        write(&repo).unwrap();
        assert!(check(&repo).unwrap().is_empty());
        files.remove(1);
        let lacking = check(&Scratch::new(&files)).unwrap_err();
        assert!(lacking.contains(PARTS[1].path), "{lacking}");
    }
}
