//! A crate uses only crates to its left. Dev-dependencies count too: a test that needs a crate to the right belongs
//! there, or in the workspace's `tests/`. ARCHITECTURE.md draws the same order.

use std::collections::BTreeSet;
use std::path::Path;

use crate::finding::Finding;
use crate::layers::{LAYERS, layer, may_use, package_of_role, role_of_package};
use crate::repo::{Crate, Repo};

/// The document with the drawing.
const DOCUMENT: &str = "ARCHITECTURE.md";

/// The most bytes of the document: a reader should reach its end.
const DOCUMENT_MAX_BYTES: usize = 12 * 1024;

/// A crate and one that it uses.
type Edge<'t> = (&'t str, &'t str);

/// Compares each manifest, and the drawing, with the table in `xtask/src/layers.rs`.
pub(crate) fn check(repo: &Repo) -> Result<Vec<Finding>, String> {
    let mut findings: Vec<Finding> = repo.crates()?.iter().flat_map(check_crate).collect();
    if repo.has(Path::new(DOCUMENT)) {
        findings.extend(check_document(&repo.read(Path::new(DOCUMENT))?));
    }
    Ok(findings)
}

fn check_document(text: &str) -> Vec<Finding> {
    let path = Path::new(DOCUMENT);
    let Some(line) = text.lines().position(|l| l.starts_with("```")) else {
        return vec![Finding::error(path, 1, "no block that draws the order of the crates")];
    };
    let mut findings = Vec::new();
    let drawn: BTreeSet<Edge<'_>> =
        text.lines().skip(line + 1).take_while(|l| !l.starts_with("```")).flat_map(edges).collect();
    let public = || LAYERS.iter().filter(|l| l.private_to.is_none());
    let designed: BTreeSet<Edge<'_>> = public().flat_map(|l| l.uses.iter().map(|u| (l.role, *u))).collect();
    for (a, b) in designed.symmetric_difference(&drawn) {
        let (has, lacks) = match designed.contains(&(*a, *b)) {
            true => ("xtask/src/layers.rs", "the drawing"),
            false => ("the drawing", "xtask/src/layers.rs"),
        };
        findings.push(Finding::error(path, line + 1, format!("{has} has `{a} -> {b}`, and {lacks} has not")));
    }
    if text.len() > DOCUMENT_MAX_BYTES {
        let message = format!("{} bytes, and at most {DOCUMENT_MAX_BYTES}: move details to docs/notes", text.len());
        findings.push(Finding::error(path, 1, message));
    }
    findings
}

/// The edges of a line `a, b -> c -> d`.
fn edges(line: &str) -> Vec<Edge<'_>> {
    let groups: Vec<Vec<&str>> = line.split("->").map(|g| g.split(',').map(str::trim).collect()).collect();
    let pairs = groups.windows(2).flat_map(|w| w[0].iter().flat_map(|a| w[1].iter().map(move |b| (*a, *b))));
    pairs.collect()
}

fn check_crate(krate: &Crate) -> Vec<Finding> {
    let path = krate.manifest_path();
    if layer(&krate.role).is_none() {
        let message = format!("`{}` is not in the designed order; give it a row in xtask/src/layers.rs", krate.role);
        return vec![Finding::error(&path, 1, message)];
    }
    let mut findings = Vec::new();
    let package = package_of_role(&krate.role);
    if krate.manifest.package != package {
        let message = format!("the package is `{}`; name it `{package}` after its folder", krate.manifest.package);
        findings.push(Finding::error(&path, 1, message));
    }
    for dependency in &krate.manifest.dependencies {
        // a crate depends on its own features for its tests; cargo refuses any other dependency on itself
        let is_itself = dependency.package == package;
        if !is_itself && role_of_package(&dependency.package).is_some_and(|to| !may_use(&krate.role, to)) {
            let message = format!(
                "`{package}` may not use `{}` ({}): it is not to its left in xtask/src/layers.rs; \
                 move the code to the crate that may use both",
                dependency.package, dependency.section
            );
            findings.push(Finding::error(&path, dependency.line, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scratch, places};

    fn check_manifest(role: &str, tables: &str) -> Vec<String> {
        let path = format!("crates/{role}/Cargo.toml");
        let text = format!("[package]\nname = \"{}\"\n{tables}", package_of_role(role));
        places(&check(&Scratch::new(&[(&path, &text)])).unwrap())
    }

    #[test]
    fn leftward_use_passes() {
        assert!(check_manifest("ops", "[dependencies]\nremat-types.workspace = true\nserde = \"1\"").is_empty());
        assert!(check_manifest("nn", "[dependencies]\nremat-derive.workspace = true").is_empty());
    }

    #[test]
    fn rightward_use_fails_in_every_table() {
        for table in ["dependencies", "dev-dependencies", "build-dependencies", "target.'cfg(unix)'.dependencies"] {
            let found = check_manifest("kernels", &format!("[{table}]\nremat-ops.workspace = true"));
            assert_eq!(found, ["crates/kernels/Cargo.toml:4"], "{table}");
        }
    }

    #[test]
    fn a_renamed_dependency_does_not_slip_through() {
        let found = check_manifest("types", "[dependencies]\nx = { package = \"remat-nn\", path = \"../nn\" }");
        assert_eq!(found, ["crates/types/Cargo.toml:4"]);
    }

    #[test]
    fn a_drawing_that_is_not_the_order_fails_and_so_does_a_long_document() {
        assert_eq!(edges("a, b -> c -> d"), [("a", "c"), ("b", "c"), ("c", "d")]);
        let drawing = |more: &str| {
            let of =
                |l: &crate::layers::Layer| l.uses.iter().map(|u| format!("{} -> {u}\n", l.role)).collect::<String>();
            let lines: String = LAYERS.iter().filter(|l| l.private_to.is_none()).map(of).collect();
            format!("# Architecture\n\n```\n{lines}{more}```\n")
        };
        assert!(check_document(&drawing("")).is_empty());
        assert_eq!(places(&check_document(&drawing("types -> nn\n"))), ["ARCHITECTURE.md:3"]);
        assert_eq!(places(&check_document(&drawing("").replace("nn -> tensor\n", ""))), ["ARCHITECTURE.md:3"]);
        let long = drawing("") + &" ".repeat(DOCUMENT_MAX_BYTES);
        assert_eq!(places(&check_document(&long)), ["ARCHITECTURE.md:1"]);
    }

    #[test]
    fn unknown_crates_and_wrong_names_fail() {
        assert_eq!(check_manifest("misc", ""), ["crates/misc/Cargo.toml:1"]);
        let repo = Scratch::new(&[("crates/ops/Cargo.toml", "[package]\nname = \"operators\"")]);
        assert_eq!(places(&check(&repo).unwrap()), ["crates/ops/Cargo.toml:1"]);
    }
}
