//! Gives the shared library the name under which programs look for it: that of its interface's version.

fn main() {
    println!("cargo::rerun-if-changed=include/remat.h");
    let header = std::fs::read_to_string("include/remat.h").unwrap_or_default();
    let version = header.lines().find_map(|l| l.strip_prefix("#define REMAT_ABI_VERSION "));
    let is_linux = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux");
    if let Some(version) = version.filter(|_| is_linux) {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libremat_lite.so.{version}");
    }
}
