//! The top-level modules of a crate import one another without circles. So each of them can be read, tested and moved
//! with the modules below it alone.
//!
//! An edge is a path in non-test code that begins at the root: `crate::x`, or enough `super`s. A name that the root
//! re-exports belongs to its module. The root itself is no module: it lists and names the others, and its own items are
//! for all. Circles that existed before the check are data in `xtask/src/circles.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use crate::finding::Finding;
use crate::modules::{inline_at, reachable_from, roots};
use crate::repo::Repo;
use crate::rust_source::{Source, closing, find_word, line_of};

/// The circles that are known.
const KNOWN: &str = "xtask/src/circles.toml";

/// From each module to others, with the places of the imports.
type Edges = BTreeMap<String, BTreeMap<String, Vec<(PathBuf, usize)>>>;

/// Finds the circles of every crate, and entries of the list that are no longer true.
pub(crate) fn check(repo: &Repo) -> Result<Vec<Finding>, String> {
    let mut known = known(repo)?;
    let mut findings = Vec::new();
    for (role, root) in programs(repo)? {
        let edges = Program::read(repo, &root)?.edges();
        for circle in circles(&edges) {
            match known.iter().position(|k| k.role == role && k.modules == circle) {
                Some(i) => drop(known.remove(i)),
                None => findings.push(told(&root, &edges, &circle)),
            }
        }
    }
    findings.extend(known.iter().map(Known::outlived));
    Ok(findings)
}

/// Each root with its crate. The checks themselves are a crate, too.
fn programs(repo: &Repo) -> Result<Vec<(String, PathBuf)>, String> {
    let mut found = vec![("xtask".to_string(), PathBuf::from("xtask/src/main.rs"))];
    found.retain(|(_, root)| repo.has(root));
    for krate in repo.crates()? {
        found.extend(roots(repo, &krate)?.into_iter().map(|root| (krate.role.clone(), root)));
    }
    Ok(found)
}

/// A crate's files, as one root reaches them.
struct Program {
    root: usize,
    files: Vec<File>,
    /// Names of the modules that the root declares.
    modules: BTreeSet<String>,
}

struct File {
    path: PathBuf,
    names: Vec<String>,
    source: Source,
}

impl Program {
    fn read(repo: &Repo, root: &Path) -> Result<Self, String> {
        let mut files = Vec::new();
        for module in reachable_from(repo, root)?.into_iter().filter(|m| !m.is_test) {
            files.push(File { source: Source::new(repo.read(&module.path)?), path: module.path, names: module.names });
        }
        let at_root = files.iter().position(|f| f.names.is_empty()).ok_or("a root reaches itself")?;
        let source = &files[at_root].source;
        let inline = find_word(&source.code, "mod").filter(|&at| !source.is_test_at(at));
        let inline = inline.filter_map(|at| word(&source.code, at + 3)).map(|(name, _)| name.to_string());
        let modules = files.iter().filter_map(|f| f.names.first().cloned()).chain(inline).collect();
        Ok(Self { root: at_root, files, modules })
    }

    fn edges(&self) -> Edges {
        let exports = self.exports();
        let mut edges = Edges::new();
        for file in &self.files {
            for (from, name, offset) in file.paths_from_the_root() {
                let to = if self.modules.contains(name) { Some(name) } else { self.owner(&exports, name) };
                if let Some(to) = to.filter(|to| *to != from) {
                    let places = edges.entry(from).or_default().entry(to.to_string()).or_default();
                    places.push((file.path.clone(), file.source.line(offset)));
                }
            }
        }
        for places in edges.values_mut().flat_map(BTreeMap::values_mut) {
            places.dedup();
        }
        edges
    }

    /// The names that the root's `use` items export, each with its module; `*` for all names of a module.
    fn exports(&self) -> Vec<(String, String)> {
        let source = &self.files[self.root].source;
        let mut found = Vec::new();
        for at in find_word(&source.code, "use").filter(|&at| inline_at(source, at).is_empty()) {
            let end = source.code[at..].find(';').map_or(source.code.len(), |i| at + i);
            leaves(&source.code[at + 3..end], &mut Vec::new(), &mut found);
        }
        found.retain(|(_, module)| self.modules.contains(module));
        found
    }

    /// The module whose item the root re-exports under `name`; `None` for an item of the root itself.
    fn owner<'a>(&self, exports: &'a [(String, String)], name: &str) -> Option<&'a str> {
        let named = exports.iter().find(|(n, _)| n == name);
        let all = exports.iter().filter(|(n, _)| n == "*").find(|(_, module)| self.defines(module, name));
        named.or(all).map(|(_, module)| module.as_str())
    }

    /// True if some file of the module has an item of that name.
    fn defines(&self, module: &str, name: &str) -> bool {
        const ITEMS: [&str; 7] = ["struct", "enum", "trait", "fn", "type", "const", "static"];
        let files = self.files.iter().filter(|f| f.names.first().is_some_and(|n| n == module));
        files.into_iter().any(|f| {
            let before = |at: usize| f.source.code[..at].split_whitespace().next_back().unwrap_or_default();
            find_word(&f.source.code, name).any(|at| ITEMS.contains(&before(at)))
        })
    }
}

impl File {
    /// Every path that begins at the root: the module that contains it, its first name, and the offset of that name.
    fn paths_from_the_root(&self) -> Vec<(String, &str, usize)> {
        let code = &self.source.code;
        let mut found = Vec::new();
        let starts =
            find_word(code, "crate").map(|at| (at, at + 5)).chain(find_word(code, "super").map(|at| (at, at + 5)));
        for (at, mut end) in starts.filter(|(at, _)| !self.source.is_test_at(*at)) {
            let module = [&self.names[..], &inline_at(&self.source, at)].concat();
            let Some(top) = module.first() else { continue };
            if code[at..].starts_with("super") {
                // the first of several stands for all
                let is_first =
                    !code[..at].trim_end().strip_suffix("::").is_some_and(|b| b.trim_end().ends_with("super"));
                let mut supers = 1;
                while let Some(("super", next)) = after_colons(code, end).and_then(|i| word(code, i)) {
                    (supers, end) = (supers + 1, next);
                }
                if !is_first || supers < module.len() {
                    continue;
                }
            }
            for (name, offset) in after_colons(code, end).map(|i| heads(code, i)).unwrap_or_default() {
                found.push((top.clone(), name, offset));
            }
        }
        found
    }
}

/// The word at `from`, or after the spaces there, and its end.
fn word(code: &str, from: usize) -> Option<(&str, usize)> {
    let rest = code[from..].trim_start();
    let start = code.len() - rest.len();
    let len = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    (len > 0).then(|| (&code[start..start + len], start + len))
}

/// The offset after a `::` at `from`.
fn after_colons(code: &str, from: usize) -> Option<usize> {
    let rest = code[from..].trim_start().strip_prefix("::")?;
    Some(code.len() - rest.len())
}

/// The first names after a `::`, with their offsets: one name, or those of a group.
fn heads(code: &str, from: usize) -> Vec<(&str, usize)> {
    let rest = code[from..].trim_start();
    let open = code.len() - rest.len();
    if !rest.starts_with('{') {
        return word(code, from).map(|(name, end)| (name, end - name.len())).into_iter().collect();
    }
    let end = closing(code, open) - 1;
    let starts = std::iter::once(open + 1).chain(commas(&code[open + 1..end]).map(|i| open + 2 + i));
    starts.flat_map(|at| heads(&code[..end], at)).collect()
}

/// Offsets of the commas outside of braces.
fn commas(text: &str) -> impl Iterator<Item = usize> {
    let mut depth = 0i32;
    text.char_indices().filter_map(move |(i, c)| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        (c == ',' && depth == 0).then_some(i)
    })
}

/// The names that a `use` tree gives, each with the first segment of its path, without `crate` and `self`.
fn leaves(tree: &str, path: &mut Vec<String>, found: &mut Vec<(String, String)>) {
    let tree = tree.trim();
    if let Some(group) = tree.strip_prefix('{') {
        let group = group.strip_suffix('}').unwrap_or(group);
        let ends: Vec<usize> = commas(group).chain([group.len()]).collect();
        let mut start = 0;
        for end in ends {
            leaves(&group[start..end], path, found);
            start = (end + 1).min(group.len());
        }
        return;
    }
    if let Some((head, rest)) = tree.split_once("::") {
        path.push(head.trim().to_string());
        leaves(rest, path, found);
        path.pop();
        return;
    }
    let (name, alias) = tree.split_once(" as ").unwrap_or((tree, tree));
    let alias = if alias.trim() == "self" { path.last().map_or("", String::as_str) } else { alias.trim() };
    let first = path.iter().map(String::as_str).chain([name.trim()]).find(|s| !["crate", "self"].contains(s));
    found.extend(first.filter(|_| !alias.is_empty()).map(|first| (alias.to_string(), first.to_string())));
}

/// The strongly connected components of more than one module.
fn circles(edges: &Edges) -> Vec<BTreeSet<String>> {
    let reached = |from: &String| {
        let (mut seen, mut queue) = (BTreeSet::new(), vec![from]);
        while let Some(module) = queue.pop() {
            queue
                .extend(edges.get(module).into_iter().flat_map(BTreeMap::keys).filter(|to| seen.insert((*to).clone())));
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> = edges.keys().map(|from| (from, reached(from))).collect();
    let circle = |(from, to): (&&String, &BTreeSet<String>)| {
        let back = |m: &&String| reached.get(m).is_some_and(|r| r.contains(*from));
        to.iter().filter(back).cloned().collect::<BTreeSet<String>>()
    };
    let found: BTreeSet<BTreeSet<String>> = reached.iter().map(circle).filter(|c| c.len() > 1).collect();
    found.into_iter().collect()
}

/// Each edge of the circle with its places, at the first of them.
fn told(root: &Path, edges: &Edges, circle: &BTreeSet<String>) -> Finding {
    let names: Vec<&str> = circle.iter().map(String::as_str).collect();
    let mut message = format!(
        "the modules {} import one another in a circle; move what they share into a module that they all use:",
        names.join(", ")
    );
    let within = edges.iter().filter(|(from, _)| circle.contains(*from));
    let within = within.flat_map(|(from, to)| to.iter().map(move |(to, places)| (from, to, places)));
    let mut first = None;
    for (from, to, places) in within.filter(|(_, to, _)| circle.contains(*to)) {
        let written: Vec<String> = places.iter().map(|(path, line)| format!("{}:{line}", path.display())).collect();
        message += &format!("\n  {from} -> {to}: {}", written.join(", "));
        first = first.or(places.first());
    }
    let (path, line) = first.map_or((root, 0), |(path, line)| (path.as_path(), *line));
    Finding::error(path, line, message)
}

/// A circle of the list.
struct Known {
    role: String,
    modules: BTreeSet<String>,
    line: usize,
}

impl Known {
    fn outlived(&self) -> Finding {
        let names: Vec<&str> = self.modules.iter().map(String::as_str).collect();
        let message = format!(
            "crate `{}` no longer has the circle {}; delete the entry, or write what is left of it",
            self.role,
            names.join(", ")
        );
        Finding::error(Path::new(KNOWN), self.line, message)
    }
}

/// Reads the `[[circle]]` entries; a repository without the file has none.
fn known(repo: &Repo) -> Result<Vec<Known>, String> {
    if !repo.has(Path::new(KNOWN)) {
        return Ok(Vec::new());
    }
    let text = repo.read(Path::new(KNOWN))?;
    let document = DeTable::parse(&text).map_err(|e| format!("{KNOWN}: {e}"))?;
    let entries = document.get_ref().get("circle").and_then(|v| v.get_ref().as_array());
    let entry = |value: &toml::Spanned<DeValue<'_>>| {
        let line = line_of(&text, value.span().start);
        let wrong = || format!("{KNOWN}:{line}: a circle has `crate` and a list `modules`");
        let table = value.get_ref().as_table().ok_or_else(wrong)?;
        let role = table.get("crate").and_then(|v| v.get_ref().as_str()).ok_or_else(wrong)?;
        let modules = table.get("modules").and_then(|v| v.get_ref().as_array()).ok_or_else(wrong)?;
        let modules = modules.iter().map(|m| m.get_ref().as_str().map(str::to_string)).collect::<Option<_>>();
        Ok(Known { role: role.to_string(), modules: modules.ok_or_else(wrong)?, line })
    };
    entries.into_iter().flat_map(|a| a.iter()).map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    const MANIFEST: (&str, &str) = ("crates/x/Cargo.toml", "[package]\nname = \"remat-x\"");

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let repo = Scratch::new(&[files, &[MANIFEST]].concat());
        check(&repo).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn imports_downwards_are_no_circle() {
        let all = found(&[
            ("crates/x/src/lib.rs", "mod a;\nmod b;\nmod c;\nfn f() { a::f(); b::f(); }"),
            ("crates/x/src/a.rs", "use crate::{b::{self, f}, c};\nuse crate::a::own;"),
            ("crates/x/src/b.rs", "fn f() { super::c::g() }\n// crate::a\nconst S: &str = \"crate::a\";"),
            ("crates/x/src/c.rs", "#[cfg(test)]\nmod tests { use crate::a; use super::super::b; }"),
        ]);
        assert_eq!(all, Vec::<String>::new());
    }

    #[test]
    fn a_planted_circle_is_named_with_each_of_its_lines() {
        let all = found(&[
            ("crates/x/src/lib.rs", "mod a;\nmod b;\nmod c;\nmod d;"),
            ("crates/x/src/a/mod.rs", "mod deep;\nuse crate::d;"),
            ("crates/x/src/a/deep.rs", "\nuse super::super::{d, b::{f, g}};"),
            ("crates/x/src/b.rs", "fn f() {\n    crate::c::f(crate::d::X);\n    super::c::g();\n}"),
            ("crates/x/src/c.rs", "mod inner { fn f() { super::super::a::f() } }"),
            ("crates/x/src/d.rs", ""),
        ]);
        assert_eq!(all.len(), 1, "{all:?}");
        let edges = [
            "error: crates/x/src/a/deep.rs:2: the modules a, b, c import",
            "\n  a -> b: crates/x/src/a/deep.rs:2\n",
            "\n  b -> c: crates/x/src/b.rs:2, crates/x/src/b.rs:3\n",
            "\n  c -> a: crates/x/src/c.rs:1",
        ];
        edges.iter().for_each(|edge| assert!(all[0].contains(edge), "{edge} in {}", all[0]));
        assert!(!all[0].contains("-> d"), "{}", all[0]);
    }

    #[test]
    fn what_the_root_gives_another_name_is_its_modules() {
        let root = "mod a;\nmod b;\nmod c;\npub use a::{self as first, A as B};\npub use self::c::*;\nfn own() {}";
        let of = |b: &str| {
            let a = "use crate::b::B;\npub struct A;";
            let c = "use crate::b;\npub enum C {}";
            let files = [("crates/x/src/lib.rs", root), ("crates/x/src/a.rs", a), ("crates/x/src/b.rs", b)];
            found(&[&files[..], &[("crates/x/src/c.rs", c)]].concat()).concat()
        };
        assert!(of("use crate::B;").contains("a, b import"));
        assert!(of("use crate::first;").contains("a, b import"));
        assert!(of("fn f(_: super::C) {}").contains("b, c import"));
        assert_eq!(of("use crate::{own, A, D};"), "", "the root's own, and what nobody re-exports");
    }

    #[test]
    fn the_list_excuses_what_it_names_exactly_and_only_shrinks() {
        let circle = [
            ("crates/x/src/lib.rs", "mod a;\nmod b;\nmod c;"),
            ("crates/x/src/a.rs", "use crate::b;"),
            ("crates/x/src/b.rs", "use crate::a;"),
            ("crates/x/src/c.rs", ""),
        ];
        let with = |list: &str| found(&[&circle[..], &[(KNOWN, list)]].concat()).join("\n");
        assert_eq!(with("[[circle]]\ncrate = \"x\"\nmodules = [\"b\", \"a\"]"), "");
        let larger = with("\n[[circle]]\ncrate = \"x\"\nmodules = [\"a\", \"b\", \"c\"]");
        assert!(larger.contains("xtask/src/circles.toml:2: crate `x` no longer has the circle a, b, c"), "{larger}");
        assert!(larger.contains("a, b import"), "{larger}");
        let other = with("[[circle]]\ncrate = \"y\"\nmodules = [\"a\", \"b\"]");
        assert!(other.contains("crate `y` no longer has"), "{other}");
        let repo = Scratch::new(&[(KNOWN, "[[circle]]\ncrate = \"x\"")]);
        assert!(check(&repo).unwrap_err().contains("circles.toml:1"), "an entry without modules");
    }

    #[test]
    fn a_program_and_a_library_are_two() {
        let all = found(&[
            ("crates/x/src/lib.rs", "mod a;"),
            ("crates/x/src/main.rs", "mod b;"),
            ("crates/x/src/a.rs", "use crate::b;"),
            ("crates/x/src/b.rs", "use crate::a;"),
        ]);
        assert_eq!(all, Vec::<String>::new());
    }
}
