//! The header is what the generator makes of the functions.

use std::path::Path;

use cbindgen::{Builder, Config, DocumentationStyle, EnumConfig, Language, Style};

/// In the order of the header.
const FILES: [&str; 13] = [
    "status.rs",
    "dtype.rs",
    "memory.rs",
    "hooks.rs",
    "kernels.rs",
    "options.rs",
    "ports.rs",
    "load.rs",
    "network.rs",
    "shapes.rs",
    "session.rs",
    "calls.rs",
    "output.rs",
];

const PREAMBLE: &str = "\
/* Remat: models from files, run within a memory budget.
 *
 * Made from crates/lite/src/c by `REMAT_RECORD=1 cargo test -p remat-lite --test suite c::header`.
 *
 * Status. A function that can fail gives a remat_status; remat_last_error has the text, for the thread that called. What a function
 * writes through a pointer is only there if it gave REMAT_OK.
 *
 * Memory. A handle (remat_network, remat_shapes, remat_session) is freed once with its function, in any order, and not used
 * afterwards. Every other pointer that a function gives belongs to a handle. Pointers that a program gives are read during the call
 * only, unless their function says otherwise.
 *
 * Threads. Networks may be used by many threads at once, shapes too. A session is used by one thread at a time, whichever: a second
 * one gets REMAT_BUSY. Nothing may be freed while another thread is in a call with it.
 *
 * Versions. Structs begin with struct_size, which the program sets to sizeof the struct: fields are only ever added at the end, so a
 * program keeps working with a newer library. Text is UTF-8, and ends with a zero byte. Enumerators keep their numbers; new ones may
 * come. */";

fn generated() -> String {
    let config = Config {
        language: Language::C,
        cpp_compat: true,
        header: Some(PREAMBLE.into()),
        include_guard: Some("REMAT_H".into()),
        no_includes: true,
        sys_includes: vec!["stddef.h".into(), "stdint.h".into()],
        documentation_style: DocumentationStyle::Doxy,
        style: Style::Both,
        usize_is_size_t: true,
        line_length: 130,
        tab_width: 4,
        enumeration: EnumConfig::default(),
        ..Config::default()
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/c");
    let builder = FILES.iter().fold(Builder::new().with_config(config), |b, f| b.with_src(folder.join(f)));
    let mut text = Vec::new();
    builder.generate().expect("the files are Rust").write(&mut text);
    String::from_utf8(text).expect("UTF-8")
}

/// With `REMAT_RECORD` set, writes it.
#[test]
fn it_is_the_one_that_is_checked_in() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/remat.h");
    let now = generated();
    if std::env::var_os("REMAT_RECORD").is_some() {
        std::fs::write(&path, &now).expect("the header can be written");
    }
    let recorded = std::fs::read_to_string(&path).expect("the header is there");
    let differs = recorded.lines().zip(now.lines()).position(|(a, b)| a != b);
    assert!(
        recorded == now,
        "include/remat.h differs from line {:?} on: make it anew as it says",
        differs.map(|i| i + 1)
    );
}

#[test]
fn every_function_of_the_library_is_declared() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/c");
    let header = generated();
    let mut functions = 0;
    for file in std::fs::read_dir(folder).expect("there").map(|f| f.expect("there").path()) {
        let text = std::fs::read_to_string(&file).expect("readable");
        for part in text.split("extern \"C\" fn remat_").skip(1) {
            let name = part.split('(').next().expect("a name");
            assert!(header.contains(&format!("remat_{name}(")), "remat_{name} of {}", file.display());
            functions += 1;
        }
    }
    assert!(functions >= 38, "{functions}");
}
