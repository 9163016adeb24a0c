//! The files that a crate's `mod` lines reach.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::repo::{Crate, Repo};
use crate::rust_source::{Source, closing, find_word};

/// A file that is part of a crate.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Module {
    pub(crate) path: PathBuf,
    /// The module's path in its crate: `["a", "b"]` for `crate::a::b`, empty for the root.
    pub(crate) names: Vec<String>,
    /// True if it, or a parent, is declared under `#[cfg(test)]`.
    pub(crate) is_test: bool,
}

/// A `mod name;` line.
struct Declaration {
    /// Names of the inline modules around it, outermost first.
    inside: Vec<String>,
    name: String,
    /// The value of a `#[path = ".."]` above it.
    path: Option<String>,
    is_test: bool,
}

/// The crate's root files that exist: the library, programs, and targets with a path of their own.
pub(crate) fn roots(repo: &Repo, krate: &Crate) -> Result<Vec<PathBuf>, String> {
    let src = krate.dir.join("src");
    let mut roots: BTreeSet<PathBuf> = krate.manifest.target_paths.iter().map(|p| krate.dir.join(p)).collect();
    roots.extend([src.join("lib.rs"), src.join("main.rs")]);
    let programs = src.join("bin");
    for file in repo.files()? {
        let is_program = file.parent() == Some(&programs) && file.extension().is_some_and(|e| e == "rs");
        let is_folder_program = file.ends_with("main.rs") && file.ancestors().nth(2) == Some(&programs);
        if is_program || is_folder_program {
            roots.insert(file);
        }
    }
    Ok(roots.into_iter().filter(|r| repo.has(r)).collect())
}

/// Every file of the crate that its roots reach, the roots included.
pub(crate) fn reachable(repo: &Repo, krate: &Crate) -> Result<Vec<Module>, String> {
    let mut found = BTreeSet::new();
    for root in roots(repo, krate)? {
        found.extend(reachable_from(repo, &root)?);
    }
    let mut found = without_doubles(found);
    found.dedup_by(|a, b| a.path == b.path);
    Ok(found)
}

/// Every file that one root reaches, the root included.
pub(crate) fn reachable_from(repo: &Repo, root: &Path) -> Result<Vec<Module>, String> {
    let mut found = BTreeSet::new();
    let mut queue = vec![Module { path: root.to_path_buf(), names: Vec::new(), is_test: false }];
    while let Some(module) = queue.pop() {
        if found.contains(&module) {
            continue;
        }
        let source = Source::new(repo.read(&module.path)?);
        for declaration in declarations(&source) {
            let candidates = candidates(&module.path, module.path == root, &declaration);
            if let Some(path) = candidates.into_iter().find(|c| repo.has(c)) {
                let names = [&module.names[..], &declaration.inside, &[declaration.name]].concat();
                queue.push(Module { path, names, is_test: module.is_test || declaration.is_test });
            }
        }
        found.insert(module);
    }
    Ok(without_doubles(found))
}

fn without_doubles(found: BTreeSet<Module>) -> Vec<Module> {
    // a file that is declared twice, inside and outside of tests, is not test code
    let code: BTreeSet<PathBuf> = found.iter().filter(|m| !m.is_test).map(|m| m.path.clone()).collect();
    found.into_iter().filter(|m| !m.is_test || !code.contains(&m.path)).collect()
}

/// The names of the inline modules around `offset`, outermost first.
pub(crate) fn inline_at(source: &Source, offset: usize) -> Vec<String> {
    let around = inline(&source.code).into_iter().filter(|(range, _)| range.contains(&offset));
    around.map(|(_, name)| name).collect()
}

/// The places where rustc looks for a declared module's file.
fn candidates(file: &Path, is_root: bool, declaration: &Declaration) -> Vec<PathBuf> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let owns_folder = is_root || file.ends_with("mod.rs");
    let mut dir = if owns_folder { folder.to_path_buf() } else { file.with_extension("") };
    dir.extend(&declaration.inside);
    match &declaration.path {
        Some(path) if declaration.inside.is_empty() => vec![folder.join(path)],
        Some(path) => vec![dir.join(path)],
        None => vec![dir.join(format!("{}.rs", declaration.name)), dir.join(&declaration.name).join("mod.rs")],
    }
}

fn declarations(source: &Source) -> Vec<Declaration> {
    let inline = inline(&source.code);
    let mut found = Vec::new();
    for (at, name, after) in mod_lines(&source.code) {
        if source.code[after..].starts_with(';') && !name.is_empty() {
            let inside = inline.iter().filter(|(range, _)| range.contains(&at)).map(|(_, n)| n.clone()).collect();
            let name = name.to_string();
            found.push(Declaration { inside, name, path: path_attribute(source, at), is_test: source.is_test_at(at) });
        }
    }
    found
}

/// The bodies of inline modules with their names, outer ones first.
fn inline(code: &str) -> Vec<(Range<usize>, String)> {
    let bodies = mod_lines(code).filter(|(.., after)| code[*after..].starts_with('{'));
    bodies.map(|(_, name, open)| (open..closing(code, open), name.to_string())).collect()
}

/// Each `mod name` with the offset of its `mod`, and the offset after its name.
fn mod_lines(code: &str) -> impl Iterator<Item = (usize, &str, usize)> {
    find_word(code, "mod").map(move |at| {
        let rest = code[at + 3..].trim_start();
        // the file of a module with a keyword as its name has the keyword's name
        let rest = rest.strip_prefix("r#").unwrap_or(rest);
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        (at, &rest[..end], code.len() - rest[end..].trim_start().len())
    })
}

/// The value of a `#[path = ".."]` among the attributes right before `at`.
fn path_attribute(source: &Source, at: usize) -> Option<String> {
    let start = source.code[..at].rfind(['{', '}', ';']).map_or(0, |i| i + 1);
    let attribute = start + find_word(&source.code[start..at], "path").next()?;
    let value = source.raw[attribute..at].split('"').nth(1)?;
    Some(value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    fn reached(files: &[(&str, &str)]) -> Vec<String> {
        let manifest = ("crates/x/Cargo.toml", "[package]\nname = \"remat-x\"");
        let repo = Scratch::new(&[files, &[manifest]].concat());
        let krate = &repo.crates().unwrap()[0];
        let modules = reachable(&repo, krate).unwrap().into_iter();
        modules.map(|m| format!("{}{}", m.path.display(), if m.is_test { " test" } else { "" })).collect()
    }

    #[test]
    fn nested_files_folders_paths_and_tests_are_followed() {
        let got = reached(&[
            ("crates/x/src/lib.rs", "pub mod a;\nmod inline { mod b; }\n#[path = \"odd.rs\"]\nmod c;\n// mod no;"),
            ("crates/x/src/a.rs", "#[cfg(test)]\nmod tests;\nmod r#loop;"),
            ("crates/x/src/a/loop.rs", ""),
            ("crates/x/src/a/tests.rs", "mod deep;"),
            ("crates/x/src/a/tests/deep.rs", ""),
            ("crates/x/src/inline/b/mod.rs", "mod e;"),
            ("crates/x/src/inline/b/e.rs", ""),
            ("crates/x/src/odd.rs", ""),
            ("crates/x/src/no.rs", ""),
            ("crates/x/src/bin/tool.rs", "mod part;"),
            ("crates/x/src/bin/part.rs", ""),
        ]);
        let short: Vec<_> = got.iter().map(|p| p.trim_start_matches("crates/x/src/")).collect();
        let expected = "a.rs a/loop.rs a/tests.rs_test a/tests/deep.rs_test bin/part.rs bin/tool.rs inline/b/e.rs \
                        inline/b/mod.rs lib.rs odd.rs";
        let mut short: Vec<_> = short.into_iter().map(|s| s.replace(' ', "_")).collect();
        short.sort();
        assert_eq!(short.join(" "), expected);
    }
}
