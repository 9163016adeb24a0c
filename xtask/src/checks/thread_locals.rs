//! State that decides about a call is a part of the thread's context (`types::context`), not a thread-local variable of
//! its own.

use std::path::Path;

use crate::finding::Finding;
use crate::repo::Repo;
use crate::rust_files::rust_files;
use crate::rust_source::find_word;

/// Files whose thread-local variables decide nothing about a call, each with its purpose.
const ALLOWED: &[(&str, &str)] = &[
    ("crates/types/src/context.rs", "the context itself"),
    ("crates/runtime/src/eager/failure.rs", "the number of the thread"),
    ("crates/runtime/src/interrupt.rs", "the lock of a host language, which a thread of the system holds"),
    ("crates/nn/src/statistics.rs", "steps of the thread, which last longer than a context"),
    ("crates/nn/src/draws.rs", "steps of the thread, which last longer than a context"),
    ("crates/tensor/src/tape.rs", "values that are being dropped, so that long chains need no stack"),
    ("crates/tensor/src/tape/recorded.rs", "a cache"),
    ("crates/ops/src/host.rs", "the thread pool of the host's kernels"),
    ("crates/kernels/src/pool.rs", "the thread pool"),
    ("crates/cuda/src/driver/software/call.rs", "the context of the thread, as CUDA's driver has it"),
    ("crates/cuda/src/driver/software/errors.rs", "the last error, as CUDA's driver tells it"),
    ("crates/lite/src/c/status.rs", "the last error, as C asks for it"),
    ("crates/python/src/error.rs", "an exception on its way through the library"),
    ("crates/python/src/frame.rs", "a cache"),
];

const MESSAGE: &str = "a thread-local variable: declare a `Part` of `remat_types::context`, or list the file in this check with its purpose";

/// Looks through the non-test code of every crate.
pub(crate) fn check(repo: &Repo) -> Result<Vec<Finding>, String> {
    let (mut findings, mut found) = (Vec::new(), Vec::new());
    for file in rust_files(repo)?.iter().filter(|f| f.path.starts_with("crates")) {
        let first = find_word(&file.source.code, "thread_local").find(|&at| !file.is_test_at(at));
        let Some(at) = first else { continue };
        match ALLOWED.iter().find(|(path, _)| file.path == Path::new(path)) {
            Some((path, _)) => found.push(*path),
            None => findings.push(Finding::error(&file.path, file.source.line(at), MESSAGE)),
        }
    }
    let idle = ALLOWED.iter().filter(|(path, _)| repo.has(Path::new(path)) && !found.contains(path));
    findings.extend(idle.map(|(path, _)| {
        Finding::error(
            Path::new(file!()),
            0,
            format!("`{path}` has no thread-local variable; take it out of `ALLOWED`"),
        )
    }));
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scratch, places};

    #[test]
    fn a_thread_local_variable_needs_a_reason() {
        let text = "thread_local! {\n    static DEPTH: u8 = 0;\n}\n";
        let documented = format!("//! Doc.\n\n{text}");
        let repo = Scratch::new(&[
            ("crates/nn/Cargo.toml", "[package]\nname = \"remat-nn\""),
            ("crates/nn/src/lib.rs", &documented),
            ("crates/nn/src/draws.rs", "fn none() {}\n"),
            ("crates/kernels/src/pool.rs", text),
            ("crates/nn/tests/suite/main.rs", text),
        ]);
        let found = check(&repo).expect("looked");
        assert_eq!(places(&found), ["crates/nn/src/lib.rs:3", "xtask/src/checks/thread_locals.rs:0"]);
        assert!(found[1].message.contains("draws.rs"), "{}", found[1].message);
    }
}
