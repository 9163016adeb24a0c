//! The blocks of a page that change files, and the files with those changes.
//!
//! A block ` ```diff ` whose first line is `+++ PATH` changes that file. Its other lines begin with `
//! ` or `-` if the file has them, and with `+` if they are new; `@@` separates two places. A block ` ```rust ` whose
//! first line is `// PATH` is a whole new file. Everything else on a page is for the reader alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::repo::Repo;

/// A change of one file, as a block shows it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    /// The line of the page on which the block begins, counted from 1.
    pub(crate) line: usize,
    /// The heading above it.
    pub(crate) heading: String,
    pub(crate) file: PathBuf,
    change: Change,
}

#[derive(Debug, PartialEq, Eq)]
enum Change {
    New(String),
    /// For each place, its present lines and its new lines.
    Places(Vec<(String, String)>),
}

/// The changes that a page shows.
pub(crate) fn edits(page: &str) -> Vec<Edit> {
    let (mut found, mut heading) = (Vec::new(), String::new());
    let mut lines = page.lines().enumerate();
    while let Some((i, line)) = lines.next() {
        if let Some(text) = line.strip_prefix('#') {
            heading = text.trim_start_matches('#').trim().to_owned();
        }
        // a block in a list is indented, and so are its lines
        let indent = line.len() - line.trim_start().len();
        let Some(language) = line.trim_start().strip_prefix("```") else { continue };
        let block: Vec<&str> = lines
            .by_ref()
            .map(|(_, l)| l.get(indent..).unwrap_or_default())
            .take_while(|l| !l.starts_with("```"))
            .collect();
        let Some((first, rest)) = block.split_first() else { continue };
        let (file, change) = match (language, first.strip_prefix("+++ "), first.strip_prefix("// ")) {
            ("diff", Some(file), _) => (file, Change::Places(places(rest))),
            ("rust", _, Some(file)) if file.ends_with(".rs") => (file, Change::New(joined(rest.iter().copied()))),
            _ => continue,
        };
        found.push(Edit { line: i + 1, heading: heading.clone(), file: file.into(), change });
    }
    found
}

fn joined<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    lines.flat_map(|l| [l, "\n"]).collect()
}

/// The places of a `diff`, each with its lines before and after.
fn places(lines: &[&str]) -> Vec<(String, String)> {
    let side = |place: &[&str], other: char| {
        let kept = place.iter().filter(|l| !l.starts_with(other));
        joined(kept.map(|l| l.get(1..).unwrap_or_default()))
    };
    lines.split(|l| *l == "@@").map(|place| (side(place, '+'), side(place, '-'))).collect()
}

impl Edit {
    /// The file with the change. Errors if the change does not fit.
    fn applied(&self, old: Option<&str>) -> Result<String, String> {
        match (&self.change, old) {
            (Change::New(text), None) => Ok(text.clone()),
            (Change::New(_), Some(_)) => Err("the file exists already".to_owned()),
            (Change::Places(_), None) => Err("there is no such file".to_owned()),
            (Change::Places(places), Some(old)) => {
                places.iter().try_fold(old.to_owned(), |text, (before, after)| replaced(&text, before, after))
            }
        }
    }
}

/// Replaces lines that the text must contain exactly once.
fn replaced(text: &str, before: &str, after: &str) -> Result<String, String> {
    let (lines, sought): (Vec<&str>, Vec<&str>) = (text.lines().collect(), before.lines().collect());
    let first = *sought.first().ok_or("a place shows no line of the present file")?;
    let found: Vec<usize> = (0..lines.len()).filter(|&i| lines[i..].starts_with(&sought)).collect();
    let [at] = found[..] else {
        return Err(format!("the lines from `{}` on are there {} times, not once", first.trim(), found.len()));
    };
    Ok(joined(lines[..at].iter().copied()) + after + &joined(lines[at + sought.len()..].iter().copied()))
}

/// The files of a repository with all changes. Errors with each change that does not fit, by its line in `page`.
pub(crate) fn changed(
    repo: &Repo,
    page: &Path,
    edits: &[Edit],
) -> Result<BTreeMap<PathBuf, String>, Vec<(usize, String)>> {
    let (mut texts, mut errors) = (BTreeMap::<PathBuf, String>::new(), Vec::new());
    for edit in edits {
        let old = texts.get(&edit.file).cloned().or_else(|| repo.read(&edit.file).ok());
        match edit.applied(old.as_deref()) {
            Ok(text) => drop(texts.insert(edit.file.clone(), text)),
            Err(why) => errors.push((edit.line, format!("{}: {why}; mend the block", edit.file.display()))),
        }
    }
    for heading in edits.iter().map(|e| &e.heading).collect::<BTreeSet<_>>() {
        let under = || edits.iter().filter(|e| e.heading == *heading);
        let files: BTreeSet<&PathBuf> = under().map(|e| &e.file).collect();
        if files.len() > MOST_FILES {
            let line = under().map(|e| e.line).next().unwrap_or_default();
            errors.push((
                line,
                format!("{} files change for one operator; {} promises {MOST_FILES}", files.len(), page.display()),
            ));
        }
    }
    if errors.is_empty() { Ok(texts) } else { Err(errors) }
}

/// The most files that a person writes for one operator, including one for a kernel.
const MOST_FILES: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    const PAGE: &str = "\
## Rows

```diff
+++ a.rs
 fn first() {}
+fn second() {}
@@
-fn last() {}
+fn end() {}
```

```rust
let shown = 1;
```

## Files

1. In a list:

   ```rust
   // b.rs
   fn b() {

   }
   ```
";

    #[test]
    fn blocks_that_name_a_file_change_it() {
        let repo = Scratch::new(&[("a.rs", "fn first() {}\n\nfn last() {}\n")]);
        let found = edits(PAGE);
        assert_eq!(
            found.iter().map(|e| (e.line, e.heading.as_str())).collect::<Vec<_>>(),
            [(3, "Rows"), (20, "Files")]
        );
        let texts = changed(&repo, Path::new("P.md"), &found).unwrap();
        assert_eq!(texts[Path::new("a.rs")], "fn first() {}\nfn second() {}\n\nfn end() {}\n");
        assert_eq!(texts[Path::new("b.rs")], "fn b() {\n\n}\n");
    }

    #[test]
    fn blocks_that_do_not_fit_are_told_by_their_lines() {
        let wrong =
            |files: &[(&str, &str)]| changed(&Scratch::new(files), Path::new("P.md"), &edits(PAGE)).unwrap_err();
        let twice = "fn first() {}\nfn first() {}\nfn last() {}\n";
        assert_eq!(
            wrong(&[("a.rs", twice), ("b.rs", "")]),
            [
                (3, "a.rs: the lines from `fn first() {}` on are there 2 times, not once; mend the block".to_owned()),
                (20, "b.rs: the file exists already; mend the block".to_owned()),
            ]
        );
        assert!(wrong(&[]).iter().any(|(line, text)| *line == 3 && text.contains("no such file")));
        assert!(wrong(&[("a.rs", "fn last() {}\n")])[0].1.contains("0 times"), "a part of a line is no place");
    }

    #[test]
    fn a_sixth_file_breaks_the_promise() {
        let page: String = (0..6).map(|i| format!("```rust\n// f{i}.rs\n```\n")).collect();
        let e = changed(&Scratch::new(&[]), Path::new("P.md"), &edits(&page)).unwrap_err();
        assert_eq!(e, [(1, "6 files change for one operator; P.md promises 5".to_owned())]);
    }
}
