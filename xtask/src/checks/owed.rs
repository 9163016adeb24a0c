//! Unfinished work stays on a branch. A debt has an issue number.

use crate::finding::Finding;
use crate::repo::Repo;
use crate::rust_files::{RustFile, rust_files};
use crate::rust_source::find_word;

/// Words that are refused in code, but not in comments and strings.
const IN_CODE: [&str; 3] = ["todo!", "unimplemented!", "#[ignore"];
/// Words that are refused anywhere, comments included.
const ANYWHERE: [&str; 2] = ["FIXME", "XXX"];

/// Looks through every Rust file of `crates/`.
pub(crate) fn check(repo: &Repo) -> Result<Vec<Finding>, String> {
    let files = rust_files(repo)?;
    Ok(files.iter().filter(|f| f.path.starts_with("crates")).flat_map(check_file).collect())
}

fn check_file(file: &RustFile) -> Vec<Finding> {
    let in_code = IN_CODE.iter().flat_map(|w| find_word(&file.source.code, w).map(move |at| (at, w)));
    let anywhere = ANYWHERE.iter().flat_map(|w| find_word(&file.source.raw, w).map(move |at| (at, w)));
    let mut found: Vec<_> = in_code.chain(anywhere).map(|(at, w)| (file.source.line(at), w)).collect();
    found.sort();
    let finding = |(line, word)| {
        let message = format!("`{word}` is unfinished work: finish it, return a typed error, or name an issue number");
        Finding::error(&file.path, line, message)
    };
    found.into_iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scratch, places};

    #[test]
    fn each_word_is_found_and_mentions_are_not() {
        let text = "// FIXME later\nfn a() { todo!() }\nfn b() { unimplemented!(\"x\") }\n#[ignore = \"slow\"]\nfn c() {}\n\
                    // XXX\n// todo! in prose\nconst S: &str = \"todo!()\";\nfn todo() {}\nconst XXXX: u8 = 0;\n";
        let repo = Scratch::new(&[("crates/ops/src/a.rs", text), ("xtask/src/b.rs", text)]);
        let expected = [1, 2, 3, 4, 6].map(|line| format!("crates/ops/src/a.rs:{line}"));
        assert_eq!(places(&check(&repo).unwrap()), expected);
    }
}
