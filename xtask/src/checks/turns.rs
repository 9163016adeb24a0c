//! Turns of phrase that make a reader begin again are refused.
//!
//! The check reads comments of Rust files, pages of the book and the pages at the root. It joins the lines of a
//! comment, so that it finds a phrase across a line break. It also looks for public functions named `of`: at a call the
//! name says nothing.

use std::ops::Range;
use std::path::Path;

use crate::finding::Finding;
use crate::repo::Repo;
use crate::rust_files::{RustFile, rust_files};
use crate::rust_source::{Source, closing, find_word};

/// Phrases that are refused in comments and in Markdown, each with a way to avoid it.
const PHRASES: [(&str, &str); 2] = [
    ("of which", "write two sentences, or repeat the noun (`two loops. The second ..`)"),
    ("that which", "name the thing"),
];
/// A comment may not begin with this word: it announces a thing and does not name it.
const OPENING: &str = "What ";
/// The pages outside the book.
const PAGES: [&str; 3] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];
/// The notes of released versions are history. Only the section above them is read.
const CHANGELOG: &str = "CHANGELOG.md";

/// Files with a public function `of` that has too many callers for a rename in passing. A file leaves the list with the
/// rename; no file joins it.
const STILL_OF: &[&str] = &[
    "crates/graph/src/plan/lifetime.rs",
    "crates/ops/src/registry.rs",
    "crates/tensor/src/tape.rs",
    "crates/tensor/src/tensor.rs",
    "crates/types/src/fact.rs",
];

/// Looks through comments, Markdown and the names of public functions.
pub(crate) fn check(repo: &Repo) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for file in rust_files(repo)? {
        findings.extend(in_comments(&file));
        findings.extend(functions_of(&file));
    }
    for path in repo.files()?.iter().filter(|p| is_page(p)) {
        findings.extend(in_page(path, &repo.read(path)?));
    }
    let idle = idle_entries(repo, &findings);
    findings.retain(|f| !is_excused(f));
    findings.extend(idle);
    Ok(findings)
}

fn is_page(path: &Path) -> bool {
    let is_book = path.starts_with("docs/src") && path.extension().is_some_and(|e| e == "md");
    is_book || path == Path::new(CHANGELOG) || PAGES.iter().any(|p| path == Path::new(p))
}

/// A finding about a name, not about prose.
fn is_of_function(finding: &Finding) -> bool {
    finding.message.starts_with("`pub fn of`")
}

fn is_excused(finding: &Finding) -> bool {
    is_of_function(finding) && STILL_OF.iter().any(|file| finding.path.starts_with(file))
}

/// Entries of the list that excuse nothing.
fn idle_entries(repo: &Repo, findings: &[Finding]) -> Vec<Finding> {
    let is_idle = |file: &&&str| {
        repo.has(Path::new(file)) && !findings.iter().any(|f| f.path.starts_with(file) && is_of_function(f))
    };
    let finding = |file: &&str| {
        Finding::error(Path::new(file!()), 0, format!("`{file}` has no `pub fn of`; take it out of `STILL_OF`"))
    };
    STILL_OF.iter().filter(is_idle).map(finding).collect()
}

/// A comment's text with its lines joined, and the line on which each part stands.
#[derive(Default)]
struct Prose {
    text: String,
    /// Offset of each line in `text`, and its number.
    lines: Vec<(usize, usize)>,
}

impl Prose {
    fn push(&mut self, line: usize, text: &str) {
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        self.lines.push((self.text.len(), line));
        self.text.push_str(text.trim());
    }

    fn line(&self, offset: usize) -> usize {
        self.lines.iter().rev().find(|(start, _)| *start <= offset).map_or(0, |(_, line)| *line)
    }

    /// The refused phrases of the text.
    fn phrases(&self, path: &Path) -> Vec<Finding> {
        let text = self.text.to_ascii_lowercase();
        let places =
            PHRASES.iter().flat_map(|(phrase, advice)| find_word(&text, phrase).map(move |at| (at, phrase, advice)));
        let finding = |(at, phrase, advice): (usize, &&str, &&str)| {
            Finding::error(path, self.line(at), format!("`{phrase}` makes a riddle of the sentence: {advice}"))
        };
        places.map(finding).collect()
    }
}

fn in_comments(file: &RustFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for prose in comments(&file.source) {
        if prose.text.starts_with(OPENING) {
            let message =
                "a comment begins with `What`: write a sentence with an actor, or a noun (`The meaning of an op`)";
            findings.push(Finding::error(&file.path, prose.line(0), message));
        }
        findings.extend(prose.phrases(&file.path));
    }
    findings
}

/// The comments of a file. Neighbouring lines with the same marker are one comment.
fn comments(source: &Source) -> Vec<Prose> {
    let mut found: Vec<Prose> = Vec::new();
    let mut marker_before = None;
    for (i, (raw, code)) in source.raw.lines().zip(source.code.lines()).enumerate() {
        let comment = comment_in(raw, code);
        let marker = comment.filter(|(_, _, is_alone)| *is_alone).map(|(marker, ..)| marker);
        if let Some((_, text, _)) = comment {
            if marker.is_none() || marker != marker_before {
                found.push(Prose::default());
            }
            found.last_mut().expect("one was pushed for the first line").push(i + 1, text);
        }
        marker_before = marker;
    }
    found
}

/// The comment of a line: its marker, its text, and whether it stands alone.
fn comment_in<'l>(raw: &'l str, code: &str) -> Option<(&'l str, &'l str, bool)> {
    // the scanner blanks comments and strings: a comment begins after the last visible character
    let visible = code.trim_end().len();
    let rest = raw[visible..].trim_start();
    let slashes = rest.len() - rest.trim_start_matches('/').len();
    if slashes < 2 {
        return None;
    }
    let end = if slashes == 2 && rest[2..].starts_with('!') { 3 } else { slashes };
    Some((&rest[..end], &rest[end..], visible == 0))
}

fn in_page(path: &Path, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut prose = Prose::default();
    let (mut in_fence, mut released) = (false, false);
    for (i, line) in text.lines().enumerate() {
        released |= path == Path::new(CHANGELOG) && line.starts_with("## ") && line != "## Unreleased";
        let is_fence = line.trim_start().starts_with("```");
        in_fence ^= is_fence;
        if released || in_fence || is_fence || line.trim().is_empty() {
            findings.extend(std::mem::take(&mut prose).phrases(path));
        } else {
            prose.push(i + 1, line);
        }
    }
    findings.extend(prose.phrases(path));
    findings
}

/// Public functions and methods of public traits that are named `of`.
fn functions_of(file: &RustFile) -> Vec<Finding> {
    let code = &file.source.code;
    let traits: Vec<Range<usize>> = public_traits(code);
    let is_named_of = |at: &usize| {
        let name = code[at + 2..].trim_start();
        name.strip_prefix("of").is_some_and(|rest| rest.trim_start().starts_with(['(', '<']))
    };
    let is_public = |at: &usize| is_pub(&code[..*at]) || traits.iter().any(|t| t.contains(at));
    let found = find_word(code, "fn").filter(is_named_of).filter(is_public).filter(|&at| !file.is_test_at(at));
    let message =
        "`pub fn of` says nothing where it is called: name the result or its source (`from_pairs`, `with_axis`)";
    found.map(|at| Finding::error(&file.path, file.source.line(at), message)).collect()
}

/// True if the text ends with `pub` and words that may stand between `pub` and `fn`.
fn is_pub(before: &str) -> bool {
    let mut words = before.split_whitespace().rev().skip_while(|w| ["const", "async", "unsafe"].contains(w));
    words.next() == Some("pub")
}

/// The bodies of public traits.
fn public_traits(code: &str) -> Vec<Range<usize>> {
    let heads = find_word(code, "trait").filter(|&at| is_pub(&code[..at]));
    heads.filter_map(|at| code[at..].find('{').map(|open| at + open..closing(code, at + open))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scratch, places};

    fn found(path: &str, text: &str) -> Vec<String> {
        let places = places(&check(&Scratch::new(&[(path, text)])).unwrap());
        places.into_iter().map(|p| p.replace(path, "").trim_start_matches(':').into()).collect()
    }

    #[test]
    fn a_comment_that_begins_with_what_is_found_and_a_question_within_one_is_not() {
        let text = "//! What it is.\n\n/// A sum.\n/// What follows is fine.\nfn a() {} // What is left\n//! Whatever\n\
                    // A list:\n/// What it holds.\nconst S: &str = \"// What\";\n";
        assert_eq!(found("crates/ops/src/a.rs", text), ["1", "5", "8"]);
    }

    #[test]
    fn phrases_are_found_across_lines_and_not_in_code() {
        let text = "/// Two loops, of\n/// which one ends.\nconst S: &str = \"of which\";\n// That which is.\nfn of_which() {}\n\
                    // a list of whichever\n";
        assert_eq!(found("crates/ops/src/a.rs", text), ["1", "4"]);
    }

    #[test]
    fn pages_are_read_without_their_programs_and_the_changelog_without_its_history() {
        let page = "Two, one\nof which ends.\n\n```\nof which\n```\n\n| a | of which |\n";
        assert_eq!(found("docs/src/a.md", page), ["2", "8"]);
        assert_eq!(found("README.md", page), ["2", "8"]);
        assert_eq!(found("docs/notes/a.md", page), [""; 0]);
        let log = "# Changelog\n\n## Unreleased\n\n- one of which\n\n## 0.1.0\n\n- one of which\n";
        assert_eq!(found("CHANGELOG.md", log), ["5"]);
    }

    #[test]
    fn public_functions_named_of_are_found_and_private_ones_are_not() {
        let text = "impl A {\n    pub fn of(x: u8) {}\n    pub const fn of<T>() {}\n    fn of() {}\n    pub(crate) fn of() {}\n\
                    pub fn offset() {}\n}\npub trait B {\n    fn of(&self);\n}\ntrait C {\n    fn of(&self);\n}\n\
                    #[cfg(test)]\nmod tests { pub fn of() {} }\n";
        assert_eq!(found("crates/ops/src/a.rs", text), ["2", "3", "9"]);
    }

    #[test]
    fn a_file_on_the_list_keeps_its_function_and_leaves_the_list_without_it() {
        let findings = |text: &str| check(&Scratch::new(&[(STILL_OF[0], text)])).unwrap();
        assert!(findings("impl A {\n    pub fn of() {}\n}\n").is_empty());
        let prose = findings("// What it is.\nimpl A {\n    pub fn of() {}\n}\n");
        assert_eq!(places(&prose), [format!("{}:1", STILL_OF[0])]);
        let idle = findings("// A sum.\n");
        assert!(idle.len() == 1 && idle[0].message.contains(STILL_OF[0]), "{idle:?}");
    }
}
