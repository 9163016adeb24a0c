//! The names of published files, a table a network.

use remat_types::{Error, ErrorKind, Result};

use crate::NameMap;

macro_rules! tables {
    ($($name:literal: $file:literal;)*) => { &[$(($name, include_str!($file))),*] };
}

const TABLES: &[(&str, &str)] = tables! {
    "torchvision/resnet": "torchvision_resnet.txt";
    "torchvision/vgg": "torchvision_vgg.txt";
    "torchvision/mobilenet_v2": "torchvision_mobilenet_v2.txt";
    "torchvision/mobilenet_v3": "torchvision_mobilenet_v3.txt";
    "torchvision/efficientnet": "torchvision_efficientnet.txt";
    "torchvision/convnext": "torchvision_convnext.txt";
    "torchvision/densenet": "torchvision_densenet.txt";
    "torchvision/shufflenet_v2": "torchvision_shufflenet_v2.txt";
    "torchvision/vit": "torchvision_vit.txt";
    "timm/resnet": "torchvision_resnet.txt";
    "timm/vit": "timm_vit.txt";
    "huggingface/bert": "huggingface_bert.txt";
    "huggingface/llama": "huggingface_llama.txt";
};

/// The names of a published layout for [`load_weights`](crate::load_weights): `"torchvision/resnet"`; all of them are
/// [`published_names`]. Errors: Value, with the known ones, for another.
///
/// ```
/// # fn main() -> remat_types::Result<()> {
/// let names = remat_zoo::models::names_of("timm/vit")?;
/// assert_eq!(names.name("blocks.3.mlp.fc1.weight").as_deref(), Some("blocks.3.up.weight"));
/// # Ok(())
/// # }
/// ```
pub fn names_of(layout: &str) -> Result<NameMap> {
    match TABLES.iter().find(|(name, _)| *name == layout) {
        Some((_, text)) => NameMap::parse(text),
        None => {
            let known: Vec<&str> = published_names().collect();
            let text = format!("no table of names is called `{layout}`; there are {}", known.join(", "));
            Err(Error::new(ErrorKind::Value, text))
        }
    }
}

/// The tables that [`names_of`] has.
pub fn published_names() -> impl Iterator<Item = &'static str> {
    TABLES.iter().map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_has_valid_rules() {
        for name in published_names() {
            names_of(name).expect(name);
        }
        let e = names_of("torchvision/resnett").expect_err("no such table");
        assert!(e.kind() == ErrorKind::Value && e.to_string().contains("timm/resnet"), "{e}");
    }
}
