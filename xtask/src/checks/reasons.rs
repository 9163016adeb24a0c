//! Every outside dependency is named once, in the root manifest, right below a comment with its reason. The fuzz
//! targets are a workspace of their own. Their manifest has the reasons of the dependencies that only they have.

use std::path::Path;

use crate::finding::Finding;
use crate::manifest::{Dependency, Manifest};
use crate::repo::Repo;

/// The manifest that inherits from no other manifest.
const FUZZ: &str = "fuzz/Cargo.toml";

/// Reads the root manifest for reasons, and every crate's manifest for dependencies that bypass it.
pub(crate) fn check(repo: &Repo) -> Result<Vec<Finding>, String> {
    let root = Path::new("Cargo.toml");
    let text = repo.read(root)?;
    let manifest = Manifest::parse(&text).map_err(|e| format!("Cargo.toml: {e}"))?;
    let mut findings = without_reason(root, &text, &manifest.workspace_dependencies);
    let fuzz = Path::new(FUZZ);
    if repo.has(fuzz) {
        let text = repo.read(fuzz)?;
        let manifest = Manifest::parse(&text).map_err(|e| format!("{FUZZ}: {e}"))?;
        findings.extend(without_reason(fuzz, &text, &manifest.dependencies));
    }
    for path in crate_manifests(repo)? {
        let manifest = Manifest::parse(&repo.read(&path)?).map_err(|e| format!("{}: {e}", path.display()))?;
        for dependency in manifest.dependencies.iter().filter(|d| !d.inherits && d.package != manifest.package) {
            let message = format!(
                "write `{0}.workspace = true` and give `{0}` its version and reason in the root Cargo.toml",
                dependency.key
            );
            findings.push(Finding::error(&path, dependency.line, message));
        }
    }
    Ok(findings)
}

/// Outside dependencies of a manifest without a comment above them.
fn without_reason(path: &Path, text: &str, dependencies: &[Dependency]) -> Vec<Finding> {
    let lines: Vec<&str> = text.lines().collect();
    let mut findings = Vec::new();
    for dependency in dependencies.iter().filter(|d| !d.is_path) {
        let above = dependency.line.checked_sub(2).and_then(|i| lines.get(i)).unwrap_or(&"").trim();
        if above.trim_start_matches('#').trim().is_empty() || !above.starts_with('#') {
            let message = format!("say in a `#` comment right above why `{}` is needed", dependency.key);
            findings.push(Finding::error(path, dependency.line, message));
        }
    }
    findings
}

fn crate_manifests(repo: &Repo) -> Result<Vec<std::path::PathBuf>, String> {
    let mut paths: Vec<_> = repo.crates()?.iter().map(|c| c.manifest_path()).collect();
    paths.push("xtask/Cargo.toml".into());
    paths.retain(|p| repo.has(p));
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scratch, places};

    #[test]
    fn each_entry_needs_its_own_reason() {
        let text = "[workspace.dependencies]\nremat = { path = \"crates/remat\" }\n# why\na = \"1\"\nb = \"1\"\n#\nc = \"1\"\n";
        let found = check(&Scratch::new(&[("Cargo.toml", text)])).unwrap();
        assert_eq!(places(&found), ["Cargo.toml:5", "Cargo.toml:7"]);
    }

    #[test]
    fn the_fuzz_targets_say_why_they_need_what_they_need() {
        let fuzz = "[dependencies]\nremat-onnx = { path = \"../crates/onnx\" }\n# why\na = \"1\"\nb = \"1\"\n";
        let repo = Scratch::new(&[("Cargo.toml", ""), ("fuzz/Cargo.toml", fuzz)]);
        assert_eq!(places(&check(&repo).unwrap()), ["fuzz/Cargo.toml:5"]);
    }

    #[test]
    fn a_crate_may_ask_for_features_of_its_own() {
        let krate = "[package]\nname = \"remat-ops\"\n[dev-dependencies]\nremat-ops = { path = \".\" }\na = \"1\"";
        let root = "[workspace]\nmembers = [\"crates/ops\"]\n";
        let found = check(&Scratch::new(&[("Cargo.toml", root), ("crates/ops/Cargo.toml", krate)])).unwrap();
        assert_eq!(places(&found), ["crates/ops/Cargo.toml:5"]);
    }

    #[test]
    fn a_crate_may_not_go_around_the_root() {
        let krate = "[package]\nname = \"remat-ops\"\n[dependencies]\na = \"1\"\nb.workspace = true";
        let repo = Scratch::new(&[("Cargo.toml", ""), ("crates/ops/Cargo.toml", krate)]);
        assert_eq!(places(&check(&repo).unwrap()), ["crates/ops/Cargo.toml:4"]);
    }
}
