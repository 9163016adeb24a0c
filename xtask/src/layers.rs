//! The designed order of all crates, including those that are not written yet.
//!
//! A crate may use the crates that its row names, and the crates that those may use. The check reads manifests only:
//! code cannot use a crate that its manifest does not name.

/// One crate of the design.
pub(crate) struct Layer {
    /// Folder under `crates/`.
    pub(crate) role: &'static str,
    /// The crates directly to its left.
    pub(crate) uses: &'static [&'static str],
    /// Set for a part of one other crate. Only that crate may use it, and a user of that crate does not reach it.
    pub(crate) private_to: Option<&'static str>,
    /// Unsafe code may be in this crate. Everywhere else the crate roots forbid it.
    pub(crate) may_be_unsafe: bool,
    /// The one folder under `src` for unsafe code; `None` for anywhere in the crate.
    pub(crate) unsafe_folder: Option<&'static str>,
    /// Other programs link it, so it must not panic on their input: no `unwrap()`.
    pub(crate) is_library: bool,
}

const fn library(role: &'static str, uses: &'static [&'static str]) -> Layer {
    Layer { role, uses, private_to: None, may_be_unsafe: false, unsafe_folder: None, is_library: true }
}

const fn unsafe_library(role: &'static str, uses: &'static [&'static str]) -> Layer {
    Layer { may_be_unsafe: true, ..library(role, uses) }
}

/// `{types <- kernels, comm; linalg} <- ops <- graph <- device <- cpu <- runtime <- tensor <- nn <- zoo <- remat;
/// comm <- mpi <- nn <- digits; tensor <- import <- onnx <- lite; {remat, digits, lite} <- cli, python`, and `derive` inside `nn`.
/// A model of ONNX is a function of tensors: the compositions that its operators are exist as methods of tensors, and a second set
/// over graphs would be a second vocabulary.
pub(crate) const LAYERS: &[Layer] = &[
    library("types", &[]),
    unsafe_library("kernels", &["types"]),
    Layer { private_to: Some("ops"), is_library: false, ..library("op-derive", &[]) },
    unsafe_library("linalg", &[]),
    library("comm", &["types"]),
    unsafe_library("mpi", &["comm"]),
    library("ops", &["kernels", "linalg", "comm"]),
    library("graph", &["ops"]),
    unsafe_library("device", &["graph"]),
    unsafe_library("cpu", &["device"]),
    unsafe_library("emulated", &["device"]),
    library("cuda-sim", &[]),
    Layer { unsafe_folder: Some("driver"), ..unsafe_library("cuda", &["device", "emulated", "cuda-sim"]) },
    unsafe_library("runtime", &["cpu", "emulated", "cuda"]),
    library("tensor", &["runtime"]),
    Layer { private_to: Some("nn"), is_library: false, ..library("derive", &[]) },
    library("nn", &["tensor", "mpi"]),
    library("zoo", &["nn"]),
    library("remat", &["zoo"]),
    library("digits", &["nn"]),
    library("import", &["tensor"]),
    library("onnx", &["import"]),
    Layer { unsafe_folder: Some("c"), ..unsafe_library("lite", &["onnx"]) },
    Layer { is_library: false, ..library("cli", &["remat", "lite", "digits"]) },
    Layer {
        is_library: false,
        unsafe_folder: Some("dlpack"),
        ..unsafe_library("python", &["remat", "lite", "digits"])
    },
];

/// The row of a role.
pub(crate) fn layer(role: &str) -> Option<&'static Layer> {
    LAYERS.iter().find(|l| l.role == role)
}

/// The role of a package of this workspace: `remat-ops` is `ops`, `remat` is itself; `None` for outside packages.
pub(crate) fn role_of_package(package: &str) -> Option<&str> {
    if package == "remat" { Some(package) } else { package.strip_prefix("remat-") }
}

/// The package of a role.
pub(crate) fn package_of_role(role: &str) -> String {
    if role == "remat" { role.to_string() } else { format!("remat-{role}") }
}

/// True if crate `from` may use crate `to`.
pub(crate) fn may_use(from: &str, to: &str) -> bool {
    match layer(to).and_then(|l| l.private_to) {
        Some(owner) => from == owner,
        None => layer(from).is_some_and(|l| l.uses.iter().any(|&left| left == to || may_use(left, to))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_only_use_rows_above_them() {
        for (i, row) in LAYERS.iter().enumerate() {
            for used in row.uses {
                assert!(LAYERS[..i].iter().any(|l| l.role == *used), "{} uses {used}", row.role);
            }
        }
    }

    #[test]
    fn the_order_is_transitive_and_never_points_right() {
        assert!(may_use("nn", "types") && may_use("cli", "onnx") && may_use("lite", "kernels"));
        assert!(
            !may_use("types", "kernels")
                && !may_use("onnx", "nn")
                && !may_use("nn", "zoo")
                && !may_use("remat", "lite")
        );
        assert!(!may_use("ops", "ops") && !may_use("nn", "unknown"));
        assert!(may_use("onnx", "import") && may_use("import", "tensor") && !may_use("import", "onnx"));
    }

    #[test]
    fn what_is_deployed_needs_no_mpi() {
        assert!(may_use("nn", "mpi") && may_use("lite", "comm"));
        assert!(!may_use("lite", "mpi") && !may_use("comm", "mpi"));
    }

    #[test]
    fn derive_belongs_to_nn_alone() {
        assert!(may_use("nn", "derive"));
        assert!(!may_use("remat", "derive") && !may_use("types", "derive") && !may_use("derive", "types"));
    }
}
