//! A crate uses only crates to its left. Dev-dependencies count too: a test that needs a crate to the right belongs
//! there, or in the workspace's `tests/`.

use crate::finding::Finding;
use crate::layers::{layer, may_use, package_of_role, role_of_package};
use crate::repo::{Crate, Repo};

/// Compares each manifest with the table in `xtask/src/layers.rs`.
pub(crate) fn check(repo: &Repo) -> Result<Vec<Finding>, String> {
    Ok(repo.crates()?.iter().flat_map(check_crate).collect())
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
        // a crate's own features, for its tests; cargo refuses any other dependency on itself
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
    fn unknown_crates_and_wrong_names_fail() {
        assert_eq!(check_manifest("misc", ""), ["crates/misc/Cargo.toml:1"]);
        let repo = Scratch::new(&[("crates/ops/Cargo.toml", "[package]\nname = \"operators\"")]);
        assert_eq!(places(&check(&repo).unwrap()), ["crates/ops/Cargo.toml:1"]);
    }
}
