//! All ops, by their samples.

use remat_ops::Registry;
use remat_ops::testing::{check_entry, check_registry};

/// Checks the ops whose names start with `REMAT_OP`, or all.
#[test]
fn the_registry_passes_every_check_on_every_sample() {
    let only = std::env::var("REMAT_OP").unwrap_or_default();
    let registry = Registry::builtin();
    let failures: Vec<String> = match only.as_str() {
        "" => check_registry(&registry),
        name => registry.entries().iter().filter(|e| e.name.starts_with(name)).flat_map(check_entry).collect(),
    }
    .iter()
    .map(ToString::to_string)
    .collect();
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
