//! A library does not panic on its input: `unwrap()` is for tests. `expect("why it cannot fail")` states a proven
//! invariant and is allowed.

use crate::finding::Finding;
use crate::layers::layer;
use crate::repo::Repo;
use crate::rust_files::{RustFile, rust_files};
use crate::rust_source::find_word;

/// Looks through the `src` of every library crate.
pub(crate) fn check(repo: &Repo) -> Result<Vec<Finding>, String> {
    let files = rust_files(repo)?;
    Ok(files.iter().filter(|f| is_library_source(f)).flat_map(check_file).collect())
}

fn is_library_source(file: &RustFile) -> bool {
    let parts: Vec<_> = file.path.iter().filter_map(|p| p.to_str()).collect();
    match parts[..] {
        ["crates", role, "src", ..] => layer(role).is_none_or(|l| l.is_library),
        _ => false,
    }
}

fn check_file(file: &RustFile) -> Vec<Finding> {
    let code = &file.source.code;
    let is_use = |&at: &usize| {
        let before = code[..at].trim_end();
        before.ends_with('.') || before.ends_with("::")
    };
    let found = find_word(code, "unwrap").filter(is_use).filter(|&at| !file.is_test_at(at));
    let message = "`unwrap()` in a library: return an error with `?`, or write `expect(\"why it cannot fail\")`";
    found.map(|at| Finding::error(&file.path, file.source.line(at), message)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scratch, places};

    #[test]
    fn libraries_may_not_unwrap_and_tests_may() {
        let text = "/// x.unwrap()\nfn a() { x.unwrap(); y.unwrap_or(1); z.expect(\"w\"); }\nfn b() { v.map(Option::unwrap) }\n\
                    #[cfg(test)]\nmod tests { fn c() { x.unwrap() } }\n";
        let repo = Scratch::new(&[
            ("crates/ops/src/a.rs", text),
            ("crates/ops/Cargo.toml", "[package]\nname = \"remat-ops\""),
            ("crates/ops/src/lib.rs", "mod a;\n#[cfg(test)]\nmod checks;"),
            ("crates/ops/src/checks.rs", text),
            ("crates/ops/benches/a.rs", text),
            ("crates/cli/src/a.rs", text),
            ("xtask/src/a.rs", text),
        ]);
        assert_eq!(places(&check(&repo).unwrap()), ["crates/ops/src/a.rs:2", "crates/ops/src/a.rs:3"]);
    }
}
