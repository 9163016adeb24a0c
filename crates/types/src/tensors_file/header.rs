//! The header's JSON. The format's own library takes the last of two equal names in silence, so it is read here.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use safetensors::tensor::TensorInfo;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use super::TEXT_KEY;

/// The contents of a header.
#[derive(Default)]
pub(super) struct Header {
    pub(super) text: BTreeMap<String, String>,
    /// By the place of their data.
    pub(super) tensors: Vec<(String, TensorInfo)>,
}

/// Errors: the fault of the header.
pub(super) fn parse(json: &[u8]) -> Result<Header, String> {
    let text = std::str::from_utf8(json).map_err(|e| format!("the header is not text: {e}"))?;
    let mut header: Header = serde_json::from_str(text).map_err(|e| format!("the header: {e}"))?;
    header.tensors.sort_by_key(|(_, t)| t.data_offsets);
    Ok(header)
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(HeaderVisitor)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Header;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of tensors by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
        let mut header = Header::default();
        let mut names = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if !names.insert(name.clone()) {
                return Err(twice(&name));
            }
            if name == TEXT_KEY {
                header.text = map.next_value::<Option<Text>>()?.map_or_else(BTreeMap::new, |t| t.0);
            } else {
                header.tensors.push((name, map.next_value()?));
            }
        }
        Ok(header)
    }
}

/// Text by key, each key once.
struct Text(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of text by key")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Text, A::Error> {
        let mut all = BTreeMap::new();
        while let Some((key, value)) = map.next_entry::<String, String>()? {
            if all.contains_key(&key) {
                return Err(twice(&key));
            }
            all.insert(key, value);
        }
        Ok(Text(all))
    }
}

fn twice<E: Error>(name: &str) -> E {
    E::custom(format!("`{name}` comes twice"))
}
