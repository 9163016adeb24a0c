//! A name that Markdown places in a file must be in that file.
//!
//! Claims have three forms: "`matmul` (`crates/tensor/src/methods/nn.rs`)", "`choose` in
//! `crates/runtime/src/remat/policy.rs`" and `crates/ops/src/apply.rs::Apply`. Several names before a path make one
//! claim each: "`a`, `b` and `c` in `path`". A folder, or a path with a pattern, holds the names of any of its files.

use std::path::{Path, PathBuf};

use super::paths::{code_spans, own_path};
use crate::finding::Finding;
use crate::repo::Repo;
use crate::rust_source::{Source, find_word, line_of};

/// The words that may stand between the names of one claim.
const JOINTS: [&str; 5] = [",", "and", "or", ", and", ", or"];

/// A name, and the path that should hold it.
struct Claim<'t> {
    name: &'t str,
    path: &'t str,
    line: usize,
}

/// The false claims of a Markdown text. Another check finds paths that do not exist.
pub(super) fn wrong(repo: &Repo, file: &Path, text: &str) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for claim in claims(text) {
        let folder = file.parent().unwrap_or(Path::new(""));
        let places = [PathBuf::from(claim.path), folder.join(claim.path)];
        let Some(place) = places.iter().find(|p| repo.has(p)) else { continue };
        if !holds(repo, place, claim.name)? {
            let message = format!("`{}` is not in the code of `{}`; say where it is", claim.name, claim.path);
            findings.push(Finding::error(file, claim.line, message));
        }
    }
    Ok(findings)
}

fn claims(text: &str) -> Vec<Claim<'_>> {
    let mut found = Vec::new();
    for (start, paragraph) in paragraphs(text) {
        let spans: Vec<(usize, &str)> = code_spans(paragraph).collect();
        for (i, (at, span)) in spans.iter().enumerate() {
            let Some(path) = own_path(span) else { continue };
            let line = |at: usize| line_of(text, start + at);
            if let Some(name) = span.split_once("::").and_then(|(_, item)| rust_name(item)) {
                found.push(Claim { name, path, line: line(*at) });
            }
            // goes backwards from the path while the text between shows that the names belong to it
            let mut after = *at;
            for (j, (at, span)) in spans[..i].iter().enumerate().rev() {
                let between =
                    paragraph[at + span.len() + 1..after - 1].split_whitespace().collect::<Vec<_>>().join(" ");
                let belongs = if j + 1 == i { ["(", "in"].contains(&&*between) } else { JOINTS.contains(&&*between) };
                let Some(name) = rust_name(span).filter(|_| belongs) else { break };
                found.push(Claim { name, path, line: line(*at) });
                after = *at;
            }
        }
    }
    found
}

/// The texts between blank lines and fences, with their offsets. Fenced text is left out.
fn paragraphs(text: &str) -> Vec<(usize, &str)> {
    let (mut found, mut start, mut at, mut in_fence) = (Vec::new(), 0, 0, false);
    for line in text.split_inclusive('\n') {
        let is_fence = line.trim_start().starts_with("```");
        if is_fence || in_fence || line.trim().is_empty() {
            found.push((start, &text[start..at]));
            start = at + line.len();
        }
        in_fence ^= is_fence;
        at += line.len();
    }
    found.push((start, &text[start..]));
    found
}

/// The name in `name`, `Type::name`, `name(..)` or `name!`; `None` for anything else.
fn rust_name(span: &str) -> Option<&str> {
    let end = span.find(['(', '!', '<']).unwrap_or(span.len());
    let name = &span[..end];
    let is_name = |s: &str| {
        s.starts_with(|c: char| c.is_alphabetic() || c == '_') && s.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    name.split("::").all(is_name).then_some(name)
}

/// Every part of `Type::name` is a word in one file's code.
fn holds(repo: &Repo, place: &Path, name: &str) -> Result<bool, String> {
    let files = match repo.root().join(place).is_dir() {
        true => repo.files()?.into_iter().filter(|f| f.starts_with(place)).collect(),
        false => vec![place.to_path_buf()],
    };
    for file in files {
        // a file that is not text holds no name
        let Ok(text) = repo.read(&file) else { continue };
        let code = if file.extension().is_some_and(|e| e == "rs") { Source::new(text).code } else { text };
        if name.split("::").all(|part| find_word(&code, part).next().is_some()) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scratch, places};

    fn lines_found(markdown: &str) -> Vec<String> {
        let repo = Scratch::new(&[
            ("docs/a.md", markdown),
            (
                "crates/ops/src/a.rs",
                "struct Table;\nimpl Table { fn choose() {} }\n// matmul\nconst S: &str = \"relu\";",
            ),
            ("crates/ops/src/b/mod.rs", "fn deep() {}"),
            ("scripts/run.py", "def measure(): pass"),
        ]);
        let found = places(&wrong(&repo, Path::new("docs/a.md"), markdown).unwrap());
        found.into_iter().map(|p| p.trim_start_matches("docs/a.md:").to_string()).collect()
    }

    #[test]
    fn names_that_are_there_pass_in_every_form() {
        let text = "`choose` (`crates/ops/src/a.rs`), `Table::choose(x, y)` in `crates/ops/src/a.rs`,\n\
                    `crates/ops/src/a.rs::Table`, `Table` and `choose` in\n`crates/ops/src/a.rs`, `deep` in `crates/ops`,\n\
                    `measure` in `scripts/run.py`, `deep` (`crates/ops/src/b/{mod,other}.rs`)\n";
        assert_eq!(lines_found(text), Vec::<String>::new());
    }

    #[test]
    fn planted_claims_that_are_wrong_are_found_where_they_stand() {
        let text = "`matmul` (`crates/ops/src/a.rs`)\n\n`relu` in `crates/ops/src/a.rs`: a comment and a string are no code\n\
                    `crates/ops/src/b/mod.rs::deeper`\n`Table::deep` in `crates/ops`\n\n`gone`,\n`choose` and `lost`\nin \
                    `crates/ops/src/a.rs`\n\n`deep` in `crates/ops/src/a.rs`\n";
        assert_eq!(lines_found(text), ["1", "3", "4", "5", "8", "7", "11"]);
    }

    #[test]
    fn what_claims_nothing_is_left_alone() {
        let text = "`cargo run` (`crates/ops/src/a.rs`), `x` uses `crates/ops/src/a.rs`; `y` in `some/other.rs`\n\
                    ```\n`z` in `crates/ops/src/a.rs`\n```\n`w`\n\nin `crates/ops/src/a.rs`, `v` in `crates/ops/src/none.rs`\n";
        assert_eq!(lines_found(text), Vec::<String>::new());
    }
}
