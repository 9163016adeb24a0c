//! Files and functions stay short enough to read. Generated code is exempt, in a folder named `generated`.

use std::path::Path;

use crate::finding::Finding;
use crate::repo::Repo;
use crate::rust_files::rust_files;

/// Lengths over `warn` are shown, and lengths over `fail` are refused.
struct Limit {
    warn: usize,
    fail: usize,
}

const FILE_LINES: Limit = Limit { warn: 400, fail: 800 };
const FUNCTION_LINES: Limit = Limit { warn: 60, fail: 120 };

impl Limit {
    fn judge(&self, lines: usize, path: &Path, line: usize, message: &str) -> Option<Finding> {
        let finding = if lines > self.fail {
            Finding::error(path, line, format!("{message} {lines} lines, more than {}; split it", self.fail))
        } else if lines > self.warn {
            Finding::warning(path, line, format!("{message} {lines} lines; aim below {}", self.warn))
        } else {
            return None;
        };
        Some(finding)
    }
}

/// Every Rust file of the repository, tests included.
pub(crate) fn check_files(repo: &Repo) -> Result<Vec<Finding>, String> {
    let files = rust_files(repo)?;
    let written = files.iter().filter(|f| !is_generated(&f.path));
    Ok(written.filter_map(|f| FILE_LINES.judge(f.source.raw.lines().count(), &f.path, 0, "this file has")).collect())
}

/// Every function outside tests, from `fn` to its closing brace.
pub(crate) fn check_functions(repo: &Repo) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for file in rust_files(repo)?.iter().filter(|f| !is_generated(&f.path)) {
        for function in file.source.functions().iter().filter(|f| !file.is_test_at(f.offset)) {
            let message = format!("`{}` has", function.name);
            findings.extend(FUNCTION_LINES.judge(function.lines, &file.path, function.line, &message));
        }
    }
    Ok(findings)
}

fn is_generated(path: &Path) -> bool {
    path.iter().any(|part| part == "generated")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scratch, places};

    fn file_of(lines: usize) -> (usize, usize) {
        let text = "//\n".repeat(lines);
        let findings = check_files(&Scratch::new(&[("a.rs", &text), ("generated/b.rs", &text)])).unwrap();
        (findings.len(), places(&findings).len())
    }

    #[test]
    fn file_limits_are_exact() {
        assert_eq!([file_of(400), file_of(401), file_of(800), file_of(801)], [(0, 0), (1, 0), (1, 0), (1, 1)]);
    }

    fn function_of(lines: usize, before: &str) -> (usize, usize) {
        let text = format!("\n{before}fn f() {{\n{}}}\n", "// }\n".repeat(lines - 2));
        let findings = check_functions(&Scratch::new(&[("a.rs", &text)])).unwrap();
        assert!(findings.iter().all(|f| f.line == 2 + before.lines().count()));
        (findings.len(), places(&findings).len())
    }

    #[test]
    fn function_limits_are_exact() {
        let got = [60, 61, 120, 121].map(|n| function_of(n, ""));
        assert_eq!(got, [(0, 0), (1, 0), (1, 0), (1, 1)]);
    }

    #[test]
    fn tests_may_be_long() {
        assert_eq!(function_of(200, "#[test]\n"), (0, 0));
    }
}
