//! Fault files: the changes, and the tests that must notice them.

use std::path::{Component, Path, PathBuf};

use toml::de::{DeTable, DeValue};

use crate::repo::Repo;
use crate::rust_source::line_of;

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) name: String,
    /// The class of mistake that it stands for, such as `gradient` or `layout`.
    pub(crate) kind: String,
    /// The file to change, relative to the repository root.
    pub(crate) file: PathBuf,
    /// A text that occurs exactly once in the file.
    pub(crate) find: String,
    pub(crate) replace: String,
    /// Arguments of `cargo test`.
    pub(crate) test: Vec<String>,
    /// The place of the fault's entry: `path:line`.
    pub(crate) place: String,
}

impl Fault {
    /// The file's text with the fault in it. Errors with the reason if the fault no longer fits the text.
    pub(crate) fn applied(&self, original: &str) -> Result<String, String> {
        match original.matches(&self.find).count() {
            1 => Ok(original.replacen(&self.find, &self.replace, 1)),
            matches => Err(format!("`find` occurs {matches} times in {}, not once", self.file.display())),
        }
    }
}

const KEYS: [&str; 6] = ["name", "kind", "file", "find", "replace", "test"];

/// Reads a fault file, or every `.toml` of a folder in the order of their names. Names are unique among all.
pub(crate) fn load(repo: &Repo, source: &Path) -> Result<Vec<Fault>, String> {
    let full = repo.root().join(source);
    let mut files = vec![source.to_path_buf()];
    if full.is_dir() {
        let entries = std::fs::read_dir(&full).map_err(|e| format!("{}: {e}", source.display()))?;
        files = entries.filter_map(|e| Some(source.join(e.ok()?.file_name()))).collect();
        files.retain(|f| f.extension().is_some_and(|e| e == "toml"));
        files.sort();
    }
    let mut faults: Vec<Fault> = Vec::new();
    for file in files {
        for fault in parse(&file, &repo.read(&file)?)? {
            if let Some(first) = faults.iter().find(|f| f.name == fault.name) {
                return Err(format!("{}: `{}` is also the name of {}", fault.place, fault.name, first.place));
            }
            faults.push(fault);
        }
    }
    Ok(faults)
}

/// Parses the `[[fault]]` entries of one file.
pub(crate) fn parse(path: &Path, text: &str) -> Result<Vec<Fault>, String> {
    let document = DeTable::parse(text).map_err(|e| format!("{}: {e}", path.display()))?;
    let document = document.get_ref();
    if let Some((key, _)) = document.iter().find(|(k, _)| k.get_ref() != "fault") {
        let line = line_of(text, key.span().start);
        return Err(format!(
            "{}:{line}: unknown key `{}`; faults are `[[fault]]` entries",
            path.display(),
            key.get_ref()
        ));
    }
    let entries = document.get("fault").map(|v| v.get_ref());
    let entries = match entries {
        None => return Ok(Vec::new()),
        Some(value) => value.as_array().ok_or_else(|| format!("{}: write `[[fault]]`", path.display()))?,
    };
    let entry = |value: &toml::Spanned<DeValue<'_>>| {
        let place = format!("{}:{}", path.display(), line_of(text, value.span().start));
        let table = value.get_ref().as_table().ok_or_else(|| format!("{place}: write `[[fault]]`"))?;
        fault(table, place)
    };
    entries.iter().map(entry).collect()
}

fn fault(table: &DeTable<'_>, place: String) -> Result<Fault, String> {
    if let Some((key, _)) = table.iter().find(|(k, _)| !KEYS.contains(&k.get_ref().as_ref())) {
        return Err(format!("{place}: unknown key `{}`; a fault has {}", key.get_ref(), KEYS.join(", ")));
    }
    let text = |key: &str| {
        let value = table.get(key).and_then(|v| v.get_ref().as_str());
        value.map(str::to_string).ok_or_else(|| format!("{place}: `{key}` is missing or not a string"))
    };
    let file = PathBuf::from(text("file")?);
    if !file.components().all(|c| matches!(c, Component::Normal(_))) {
        return Err(format!("{place}: `file` must be relative to the repository root, without `..`"));
    }
    let (name, kind, find, replace) = (text("name")?, text("kind")?, text("find")?, text("replace")?);
    if name.is_empty() || find.is_empty() || find == replace {
        return Err(format!("{place}: `name` and `find` must not be empty, and `replace` must differ from `find`"));
    }
    let test: Vec<String> = text("test")?.split_whitespace().map(str::to_string).collect();
    if !test.iter().any(|a| a == "-p" || a == "--package" || a == "--workspace") {
        return Err(format!("{place}: `test` must name its package: `-p remat-ops ..`"));
    }
    Ok(Fault { name, kind, file, find, replace, test, place })
}
