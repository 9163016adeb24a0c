//! Mistakes that change no result.

use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::sites::Site;
use crate::repo::Repo;
use crate::rust_source::line_of;

/// The file that lists them.
pub(super) const FILE: &str = "xtask/faults/drawn/equivalent.toml";

/// A mistake that changes no result.
pub(super) struct Equivalent {
    file: PathBuf,
    function: String,
    original: String,
    faulty: String,
}

impl Equivalent {
    /// True if the site is this one. The layout of the text does not count.
    pub(super) fn is(&self, file: &Path, site: &Site) -> bool {
        let same = |a: &str, b: &str| a.split_whitespace().eq(b.split_whitespace());
        self.file == file
            && self.function == site.function
            && same(&self.original, &site.original)
            && same(&self.faulty, &site.faulty)
    }
}

/// All mistakes of the list.
pub(super) fn load(repo: &Repo) -> Result<Vec<Equivalent>, String> {
    if !repo.root().join(FILE).is_file() {
        return Ok(Vec::new());
    }
    parse(&repo.read(Path::new(FILE))?)
}

pub(super) fn parse(text: &str) -> Result<Vec<Equivalent>, String> {
    let document = DeTable::parse(text).map_err(|e| format!("{FILE}: {e}"))?;
    let Some(entries) = document.get_ref().get("equivalent") else { return Ok(Vec::new()) };
    let entries = entries.get_ref().as_array().ok_or_else(|| format!("{FILE}: write `[[equivalent]]`"))?;
    let entry = |value: &toml::Spanned<DeValue<'_>>| {
        let place = format!("{FILE}:{}", line_of(text, value.span().start));
        let table = value.get_ref().as_table().ok_or_else(|| format!("{place}: write `[[equivalent]]`"))?;
        let field = |key: &str| {
            let text = table.get(key).and_then(|v| v.get_ref().as_str());
            text.map(str::to_string).ok_or_else(|| format!("{place}: `{key}` is missing or not a string"))
        };
        if field("why")?.is_empty() {
            return Err(format!("{place}: `why` says why no result changes"));
        }
        let (file, function) = (PathBuf::from(field("file")?), field("function")?);
        Ok(Equivalent { file, function, original: field("original")?, faulty: field("faulty")? })
    };
    entries.iter().map(entry).collect()
}
