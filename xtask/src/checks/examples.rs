//! A program that a page shows can be run: it equals a program of the repository.
//!
//! `<!-- example: NAME -->` above a fenced block of Markdown says that the block is `crates/remat/examples/NAME.rs`.
//! The comparison skips the lines of the file that begin with `//!`, the `# ` that hides a line of the block, and
//! spaces: a block whose `fn main` is hidden does not indent the body.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::finding::Finding;
use crate::repo::Repo;

const FOLDER: &str = "crates/remat/examples";
const MARKER: &str = "<!-- example: ";

/// A block with the place of its marker.
struct Block {
    page: PathBuf,
    line: usize,
    code: String,
}

/// Compares each example with its block; every marker has its file, and every file one marker.
pub(crate) fn check(repo: &Repo) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    let mut blocks: BTreeMap<PathBuf, Block> = BTreeMap::new();
    for page in repo.files()?.into_iter().filter(|p| p.extension().is_some_and(|e| e == "md")) {
        for (name, block) in marked(&page, &repo.read(&page)?) {
            let file = Path::new(FOLDER).join(format!("{name}.rs"));
            if let Some(first) = blocks.get(&file) {
                let message = format!("`{name}` is shown in {}:{} already", first.page.display(), first.line);
                findings.push(Finding::error(&page, block.line, message));
            } else if !repo.has(&file) {
                findings.push(Finding::error(&page, block.line, format!("there is no {}", file.display())));
            } else {
                blocks.insert(file, block);
            }
        }
    }
    for file in repo.files()?.into_iter().filter(|f| f.starts_with(FOLDER)) {
        let code = repo.read(&file)?;
        let Some(block) = blocks.get(&file) else {
            findings.push(Finding::error(&file, 0, format!("no page shows it under `{MARKER}NAME -->`")));
            continue;
        };
        let code: String = code.lines().filter(|l| !l.starts_with("//!")).map(|l| format!("{l}\n")).collect();
        if let Some((shown, run)) = difference(&block.code, &code) {
            let place = format!("{}:{}", block.page.display(), block.line);
            let message = format!("differs from the block of {place}: `{run}` here, `{shown}` there");
            findings.push(Finding::error(&file, 0, message));
        }
    }
    Ok(findings)
}

/// The marked blocks of a page with their names.
fn marked(page: &Path, text: &str) -> Vec<(String, Block)> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((i, line)) = lines.next() {
        let Some(name) = line.trim().strip_prefix(MARKER).and_then(|l| l.strip_suffix("-->")) else { continue };
        let fenced = lines.by_ref().skip_while(|(_, l)| !l.starts_with("```")).skip(1);
        let code = fenced.take_while(|(_, l)| !l.starts_with("```")).map(|(_, l)| format!("{}\n", unhidden(l)));
        let block = Block { page: page.to_path_buf(), line: i + 1, code: code.collect() };
        found.push((name.trim().to_string(), block));
    }
    found
}

/// A line as documentation tests run it.
fn unhidden(line: &str) -> &str {
    if line == "#" { "" } else { line.strip_prefix("# ").unwrap_or(line) }
}

/// The first words that differ, each with some that follow.
fn difference(a: &str, b: &str) -> Option<(String, String)> {
    const SHOWN: usize = 6;
    let words = |text: &str| text.split_whitespace().map(str::to_string).collect::<Vec<_>>();
    let (a, b) = (words(a), words(b));
    let at = (0..a.len().max(b.len())).find(|&i| a.get(i) != b.get(i))?;
    let told = |words: &[String]| words.iter().skip(at).take(SHOWN).cloned().collect::<Vec<_>>().join(" ");
    Some((told(&a), told(&b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    fn found(page: &str, files: &[(&str, &str)]) -> Vec<String> {
        let repo = Scratch::new(&[&[("docs/a.md", page)], files].concat());
        check(&repo).unwrap().iter().map(ToString::to_string).collect()
    }

    const PAGE: &str =
        "text\n<!-- example: one -->\n```rust\n# fn main() {\nlet x = 1;\n#\n# }\n```\n```rust\nother\n```\n";

    #[test]
    fn the_program_of_a_block_is_the_block_with_its_hidden_lines() {
        let same = "//! One.\n\nfn main() {\n    let x = 1;\n}\n";
        assert_eq!(found(PAGE, &[("crates/remat/examples/one.rs", same)]), Vec::<String>::new());
    }

    #[test]
    fn planted_differences_are_found() {
        let other = found(PAGE, &[("crates/remat/examples/one.rs", "fn main() {\n    let x = 2;\n}\n")]);
        let expected =
            "error: crates/remat/examples/one.rs: differs from the block of docs/a.md:2: `2; }` here, `1; }` there";
        assert_eq!(other, [expected]);
        let longer = found(PAGE, &[("crates/remat/examples/one.rs", "fn main() { let x = 1; } fn more() {}")]);
        assert!(longer[0].contains("`fn more() {}` here, `` there"), "{longer:?}");
    }

    #[test]
    fn neither_a_marker_nor_a_file_stands_alone() {
        assert_eq!(found(PAGE, &[]), ["error: docs/a.md:2: there is no crates/remat/examples/one.rs"]);
        let alone = found("text", &[("crates/remat/examples/two.rs", "")]);
        assert!(alone[0].starts_with("error: crates/remat/examples/two.rs: no page shows it"), "{alone:?}");
        let files = [("crates/remat/examples/one.rs", "fn main() { let x = 1; }")];
        let twice = found(&format!("{PAGE}{PAGE}"), &files);
        assert_eq!(twice, ["error: docs/a.md:13: `one` is shown in docs/a.md:2 already"]);
    }
}
