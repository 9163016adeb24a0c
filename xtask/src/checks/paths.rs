//! Markdown names only things that exist, at their places, and no path of a single machine.

use std::path::{Component, Path, PathBuf};

use super::names;
use crate::finding::Finding;
use crate::repo::Repo;

/// A path in backticks belongs to the repository if it starts with one of these.
const OURS: [&str; 8] = ["crates/", "docs/", "xtask/", "scripts/", "tests/", "examples/", "benches/", ".ci/"];
/// A path below one of these folders of the file system belongs to a machine, not to the repository.
const MACHINE: [&str; 7] = ["home", "root", "Users", "mnt", "media", "work", "workspace"];
/// A name that contains one of these is a pattern or a placeholder from there on.
const PATTERN: [char; 6] = ['*', '{', '<', '$', '[', '?'];

/// Looks through every Markdown file.
pub(crate) fn check(repo: &Repo) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for path in repo.files()?.into_iter().filter(|p| p.extension().is_some_and(|e| e == "md")) {
        let text = repo.read(&path)?;
        findings.extend(names::wrong(repo, &path, &text)?);
        let mut in_fence = false;
        for (i, line) in text.lines().enumerate() {
            findings.extend(machine_path(line).map(|found| machine_finding(&path, i + 1, found)));
            let is_fence = line.trim_start().starts_with("```");
            in_fence ^= is_fence;
            if !is_fence && !in_fence {
                findings.extend(missing_in_line(repo, &path, i + 1, line));
            }
        }
    }
    Ok(findings)
}

fn machine_finding(path: &Path, line: usize, found: &str) -> Finding {
    Finding::error(path, line, format!("`{found}` is a path of one machine; name it relative to the repository"))
}

fn missing_in_line(repo: &Repo, file: &Path, line: usize, text: &str) -> Vec<Finding> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let mut findings = Vec::new();
    for name in code_spans(text).filter_map(|(_, span)| own_path(span)) {
        // a crate's README may name its own tests/ and benches/
        if !repo.has(Path::new(name)) && !repo.has(&folder.join(name)) {
            findings.push(missing(file, line, name));
        }
    }
    for target in link_targets(text) {
        let is_elsewhere = target.contains("://") || target.starts_with('#') || target.starts_with("mailto:");
        let name = without_place(target);
        if !is_elsewhere && !name.is_empty() && !repo.has(&resolve(&folder.join(name))) {
            findings.push(missing(file, line, name));
        }
    }
    findings
}

fn missing(file: &Path, line: usize, name: &str) -> Finding {
    Finding::error(file, line, format!("`{name}` does not exist; mend the name or remove the mention"))
}

/// The texts between backticks, with their offsets.
pub(super) fn code_spans(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let ticks: Vec<usize> = text.match_indices('`').map(|(i, _)| i + 1).collect();
    // without its closing backtick the last piece is prose
    let closed = ticks.len() / 2;
    (0..closed).map(move |i| (ticks[2 * i], &text[ticks[2 * i]..ticks[2 * i + 1] - 1]))
}

/// The targets of `[text](target)`, outside code spans.
fn link_targets(line: &str) -> Vec<&str> {
    let prose = line.split('`').step_by(2);
    let targets = prose.flat_map(|p| p.split("](").skip(1)).filter_map(|rest| rest.split([')', ' ']).next());
    targets.collect()
}

/// The part of a code span that is a path of the repository, if it is one.
pub(super) fn own_path(span: &str) -> Option<&str> {
    if !OURS.iter().any(|p| span.starts_with(p)) || span.contains(char::is_whitespace) {
        return None;
    }
    let name = without_place(span);
    let fixed = match name.find(PATTERN) {
        // in `crates/*/src` only `crates/` can be looked up
        Some(at) => &name[..name[..at].rfind('/').map_or(0, |slash| slash + 1)],
        None => name,
    };
    Some(fixed.trim_end_matches(['.', ',', ';', '…'])).filter(|p| !p.is_empty())
}

/// Cuts off `#anchor`, `:line` and `::item`.
fn without_place(name: &str) -> &str {
    name.split(['#', ':']).next().unwrap_or(name)
}

/// Resolves `.` and `..` in a path, so that a link out of a missing folder is still judged by its target.
fn resolve(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

/// The first path in the line that names a folder of a machine.
fn machine_path(line: &str) -> Option<&str> {
    let starts = line.match_indices('/').map(|(i, _)| i);
    let is_start = |&i: &usize| {
        let before = line[..i].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "/.-_~)}>*".contains(c))
    };
    let word_at = |i: usize| line[i..].split([' ', '`', '"', '\'', ')', ',']).next().unwrap_or("");
    let is_machine =
        |word: &&str| MACHINE.iter().any(|m| word[1..].strip_prefix(m).is_some_and(|r| r.starts_with('/')));
    starts.filter(is_start).map(word_at).find(is_machine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scratch, places};

    fn lines_found(markdown: &str) -> Vec<String> {
        let repo = Scratch::new(&[("docs/a.md", markdown), ("crates/ops/src/lib.rs", ""), ("README.md", "")]);
        let found = places(&check(&repo).unwrap());
        found.into_iter().map(|p| p.trim_start_matches("docs/a.md:").to_string()).collect()
    }

    #[test]
    fn existing_paths_pass() {
        let text = "`crates/ops/src/lib.rs`, `crates/ops/src/lib.rs:12`, `crates/*/src`, `crates/<role>/x.rs`\n\
                    [a](../README.md) [b](#c) [d](https://example.org/e) [f](../crates/ops/src/lib.rs#L3)\n\
                    `some/other/path` `cargo run crates/none` 'crates/none'\n```\n`crates/none`\n```\n";
        assert!(lines_found(text).is_empty());
    }

    #[test]
    fn missing_paths_are_found() {
        let text = "ok\n`crates/none/a.rs`\n[x](gone.md)\n`.ci/walk` and `crates/none/*.rs`\n[y](../docs/b.md#z)\n";
        assert_eq!(lines_found(text), ["2", "3", "4", "4", "5"]);
    }

    #[test]
    fn paths_of_a_machine_are_found_also_in_fences() {
        let text =
            "`/home/someone/remat`\n```\ncd /root/x\n```\nhttps://example.org/home/x and docs/home/x and /homely/x\n";
        assert_eq!(lines_found(text), ["1", "3"]);
    }
}
