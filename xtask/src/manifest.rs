//! The parts of a `Cargo.toml` that the checks need, with lines.

use toml::de::{DeTable, DeValue};

use crate::rust_source::line_of;

/// A parsed manifest.
pub(crate) struct Manifest {
    /// `package.name`; empty in a manifest that is only a workspace.
    pub(crate) package: String,
    /// Normal, build, dev and target-specific dependencies.
    pub(crate) dependencies: Vec<Dependency>,
    /// Entries of `[workspace.dependencies]`.
    pub(crate) workspace_dependencies: Vec<Dependency>,
    /// `path` of `[lib]` and of each `[[bin]]`.
    pub(crate) target_paths: Vec<String>,
}

/// One entry of a dependency table.
pub(crate) struct Dependency {
    /// The key: the name that code uses.
    pub(crate) key: String,
    /// The package. It equals the key unless the dependency is renamed.
    pub(crate) package: String,
    /// Line of the key, from 1.
    pub(crate) line: usize,
    /// `dependencies`, `build-dependencies` or `dev-dependencies`.
    pub(crate) section: &'static str,
    /// True if it says `workspace = true`.
    pub(crate) inherits: bool,
    /// True if it says `path = ..`.
    pub(crate) is_path: bool,
}

const SECTIONS: [&str; 3] = ["dependencies", "build-dependencies", "dev-dependencies"];

impl Manifest {
    /// Parses a manifest. The error is the parser's message.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let document = DeTable::parse(text).map_err(|e| e.to_string())?;
        let document = document.get_ref();
        let package = table(document, "package").and_then(|p| string(p, "name")).unwrap_or_default();
        let mut dependencies = sections(text, document);
        for (_, platform) in table(document, "target").into_iter().flatten() {
            dependencies.extend(platform.get_ref().as_table().into_iter().flat_map(|t| sections(text, t)));
        }
        let workspace_dependencies = table(document, "workspace")
            .and_then(|w| table(w, "dependencies"))
            .map(|t| entries(text, t, "dependencies"))
            .unwrap_or_default();
        Ok(Self { package, dependencies, workspace_dependencies, target_paths: target_paths(document) })
    }
}

fn table<'t, 'i>(parent: &'t DeTable<'i>, key: &str) -> Option<&'t DeTable<'i>> {
    parent.get(key)?.get_ref().as_table()
}

fn string(parent: &DeTable<'_>, key: &str) -> Option<String> {
    Some(parent.get(key)?.get_ref().as_str()?.to_string())
}

fn sections(text: &str, parent: &DeTable<'_>) -> Vec<Dependency> {
    let found = SECTIONS.iter().filter_map(|s| table(parent, s).map(|t| entries(text, t, s)));
    found.flatten().collect()
}

fn entries(text: &str, entries: &DeTable<'_>, section: &'static str) -> Vec<Dependency> {
    let entry = |(key, value): (&toml::Spanned<toml::de::DeString<'_>>, &toml::Spanned<DeValue<'_>>)| {
        let name = key.get_ref().to_string();
        let fields = value.get_ref().as_table();
        Dependency {
            package: fields.and_then(|f| string(f, "package")).unwrap_or_else(|| name.clone()),
            key: name,
            line: line_of(text, key.span().start),
            section,
            inherits: fields.and_then(|f| f.get("workspace")?.get_ref().as_bool()).unwrap_or(false),
            is_path: fields.is_some_and(|f| f.contains_key("path")),
        }
    };
    entries.iter().map(entry).collect()
}

fn target_paths(document: &DeTable<'_>) -> Vec<String> {
    let library = table(document, "lib").and_then(|l| string(l, "path"));
    let programs = document.get("bin").and_then(|b| b.get_ref().as_array()).into_iter().flat_map(|a| a.iter());
    let programs = programs.filter_map(|b| string(b.get_ref().as_table()?, "path"));
    library.into_iter().chain(programs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
[package]
name = "remat-x"
[[bin]]
name = "x"
path = "src/x.rs"
[dependencies]
a.workspace = true
b = { package = "remat-b", path = "../b" }
[target.'cfg(unix)'.dev-dependencies]
c = "1"
[workspace.dependencies.d]
version = "2"
"#;

    #[test]
    fn every_dependency_table_is_read_with_lines() {
        let manifest = Manifest::parse(TEXT).unwrap();
        let read: Vec<_> = manifest.dependencies.iter().map(|d| (d.package.as_str(), d.line, d.section)).collect();
        assert_eq!(read, [("a", 8, SECTIONS[0]), ("remat-b", 9, SECTIONS[0]), ("c", 11, SECTIONS[2])]);
        assert!(manifest.dependencies[0].inherits && manifest.dependencies[1].is_path);
        assert_eq!((manifest.package.as_str(), manifest.workspace_dependencies[0].line), ("remat-x", 12));
        assert_eq!(manifest.target_paths, ["src/x.rs"]);
    }

    #[test]
    fn a_broken_manifest_is_an_error() {
        assert!(Manifest::parse("[package").is_err());
    }
}
