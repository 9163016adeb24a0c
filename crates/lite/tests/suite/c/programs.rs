//! Programs in C and C++, compiled against the libraries that this test was built with.
//!
//! What a machine does not have (a compiler, Valgrind, pkg-config, CMake) is said and left out.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use remat_lite::c::REMAT_ABI_VERSION;
use remat_lite::{Network, Options, Session, Shapes};
use tempfile::TempDir;

use crate::{folder, recorded};

/// Exit code of Valgrind for what it found.
const FOUND: i32 = 9;

const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-pedantic", "-Werror"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder to which cargo has put `libremat_lite.so` and `libremat_lite.a`.
fn built() -> PathBuf {
    let exe = std::env::current_exe().expect("a test has a path");
    let deps = exe.parent().expect("in a folder").to_owned();
    for name in ["libremat_lite.so", "libremat_lite.a"] {
        assert!(deps.join(name).exists(), "cargo has put no {name} beside {}", exe.display());
    }
    deps
}

/// A folder in which the linker finds the shared library, and a program finds it by the name that is in it.
fn linked(to: &TempDir) -> PathBuf {
    let folder = to.path().join("lib");
    std::fs::create_dir_all(&folder).expect("it can be made");
    for name in ["libremat_lite.so".to_owned(), format!("libremat_lite.so.{REMAT_ABI_VERSION}")] {
        let link = folder.join(name);
        if !link.exists() {
            std::os::unix::fs::symlink(built().join("libremat_lite.so"), link).expect("a link");
        }
    }
    folder
}

/// True if a program is there.
fn has(program: &str, argument: &str) -> bool {
    let is_there = Command::new(program).arg(argument).output().is_ok_and(|o| o.status.success());
    if !is_there {
        eprintln!("skipped: there is no {program}");
    }
    is_there
}

#[track_caller]
fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// A compiler with the standard's flag.
fn compiler(source: &Path) -> Command {
    let is_c = source.extension() == Some(OsStr::new("c"));
    let (program, standard) = if is_c { ("cc", "-std=c99") } else { ("c++", "-std=c++17") };
    let mut command = Command::new(program);
    command.arg(standard).args(WARNINGS).arg("-pthread").arg("-I").arg(root().join("include"));
    command
}

fn example(name: &str) -> PathBuf {
    root().join("c/examples").join(name)
}

/// Compiles an example against the shared library, or the static one.
fn compiled(name: &str, is_static: bool, to: &TempDir) -> PathBuf {
    let source = example(name);
    let program = to.path().join(format!("{name}.{is_static}"));
    let mut command = compiler(&source);
    command.arg(&source).arg("-o").arg(&program);
    if is_static {
        command.arg(built().join("libremat_lite.a")).args(system_libraries());
    } else {
        command.args(shared(to));
    }
    run(&mut command);
    program
}

/// Arguments to link the shared library.
fn shared(to: &TempDir) -> [OsString; 4] {
    let folder = linked(to);
    let mut rpath = OsString::from("-Wl,-rpath,");
    rpath.push(&folder);
    ["-L".into(), folder.into(), "-lremat_lite".into(), rpath]
}

/// The libraries that `remat.pc` lists for the static library.
fn system_libraries() -> Vec<String> {
    let pc = std::fs::read_to_string(root().join("c/remat.pc.in")).expect("the template is there");
    let line = pc.lines().find_map(|l| l.strip_prefix("Libs.private:")).expect("it lists them");
    line.split_whitespace().map(str::to_owned).collect()
}

/// A session of one image of a model, with its recorded input.
fn session(model: &str, budget: Option<usize>) -> Session {
    let options = Options { threads: 1, memory_budget: budget, ..Options::default() };
    let network = Network::open(folder(model).join("model.onnx"), options).expect("there");
    network.session(&Shapes::new().extent("batch", 1)).expect("it fits")
}

/// The least budget, of a few, that makes calls again.
fn tight(model: &str) -> usize {
    let whole = session(model, None).memory().expect("idle").total_bytes();
    let fits = |budget: &usize| {
        let options = Options { threads: 1, memory_budget: Some(*budget), ..Options::default() };
        let network = Network::open(folder(model).join("model.onnx"), options).expect("there");
        network.session(&Shapes::new().extent("batch", 1)).is_ok()
    };
    (20..=100).step_by(5).map(|percent| whole * percent / 100).find(fits).expect("one fits")
}

/// Input of a model as a file of floats, the arguments of a program, and what it prints.
fn task(model: &str, budget: usize, to: &TempDir) -> (Vec<String>, String) {
    let mut s = session(model, Some(budget).filter(|b| *b > 0));
    let name = s.inputs()[0].name.clone();
    let x = s.input_as_mut::<f32>(&name).expect("f32");
    let given = recorded(model, "input");
    let n = x.len();
    x.copy_from_slice(&given[0].as_slice::<f32>().expect("f32")[..n]);
    let file = to.path().join(format!("{model}.f32"));
    std::fs::write(&file, bytemuck::cast_slice::<f32, u8>(x)).expect("the file can be written");
    s.run().expect("it runs");
    let output = s.outputs()[0].clone();
    let mut printed = String::new();
    for (i, v) in s.output(&output).expect("there").as_slice::<f32>().expect("f32").iter().enumerate() {
        writeln!(printed, "{i} {v:?}").expect("text");
    }
    let path = |p: PathBuf| p.to_str().expect("UTF-8").to_owned();
    (vec![path(folder(model).join("model.onnx")), path(file), "3".into(), budget.to_string()], printed)
}

/// The values that a program prints, with the digits that tell all floats apart.
#[track_caller]
fn values(command: &mut Command) -> String {
    let output = String::from_utf8(run(command).stdout).expect("UTF-8");
    let mut all = String::new();
    for line in output.lines().filter_map(|l| l.strip_prefix("class ")) {
        let (i, v) = line.split_once(": ").expect("a value");
        writeln!(all, "{i} {:?}", v.parse::<f32>().expect("a float")).expect("text");
    }
    assert!(output.contains("threads give the same"), "{output}");
    all
}

#[test]
fn the_header_compiles_without_warnings_in_both_languages() {
    let to = TempDir::new().expect("a folder");
    for (name, program, standards) in
        [("c", "cc", &["-std=c99", "-std=c11"][..]), ("cpp", "c++", &["-std=c++11", "-std=c++17"][..])]
    {
        if !has(program, "--version") {
            continue;
        }
        let source = to.path().join(format!("header.{name}"));
        std::fs::write(&source, "#include <remat.h>\n#include <remat.h>\nint main(void) { return 0; }\n")
            .expect("written");
        for standard in standards {
            run(compiler(&source).arg(standard).arg("-fsyntax-only").arg(&source));
        }
    }
}

#[test]
fn the_program_of_the_page_compiles() {
    if !has("cc", "--version") {
        return;
    }
    let page = std::fs::read_to_string(root().join("../../docs/src/deployment.md")).expect("the page is there");
    let program =
        page.split("```c\n").nth(1).and_then(|after| after.split("```").next()).expect("it has a program in C");
    let to = TempDir::new().expect("a folder");
    let source = to.path().join("page.c");
    std::fs::write(&source, program).expect("written");
    run(compiler(&source).arg("-fsyntax-only").arg(&source));
}

#[test]
fn every_function_that_is_declared_is_in_the_library() {
    if !has("cc", "--version") {
        return;
    }
    let header = std::fs::read_to_string(root().join("include/remat.h")).expect("the header is there");
    let declared = header.lines().filter(|l| !l.starts_with([' ', '/', '#', 't'])).filter_map(|l| l.split_once('('));
    let names: Vec<&str> = declared.filter_map(|(before, _)| before.rsplit([' ', '*']).next()).collect();
    assert!(names.len() >= 38 && names.iter().all(|n| n.starts_with("remat_")), "{names:?}");
    let pointers: Vec<String> = names.iter().map(|n| format!("(void (*)(void)){n}")).collect();
    let text = format!(
        "#include <remat.h>\nstatic void (*const all[])(void) = {{ {} }};\nint main(void) {{ return all[0] == 0; }}\n",
        pointers.join(", ")
    );
    let to = TempDir::new().expect("a folder");
    let source = to.path().join("all.c");
    std::fs::write(&source, text).expect("written");
    let program = to.path().join("all");
    run(compiler(&source).arg("-O0").arg(&source).args(shared(&to)).arg("-o").arg(&program));
    run(&mut Command::new(program));
}

#[test]
fn a_program_gives_what_rust_gives_with_either_library_and_under_a_budget() {
    let to = TempDir::new().expect("a folder");
    let budget = tight("skip");
    let (arguments, want) = task("skip", budget, &to);
    for (name, program) in [("classify.c", "cc"), ("classify.cpp", "c++")] {
        if !has(program, "--version") {
            continue;
        }
        let programs = [false, true].map(|is_static| compiled(name, is_static, &to));
        for program in &programs {
            assert_eq!(values(Command::new(program).args(&arguments)), want, "{}", program.display());
        }
        let refused = Command::new(&programs[0]).args(&arguments[..3]).arg("1000").output().expect("it starts");
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && text.contains("budget error: "), "{text}");
    }
}

#[test]
fn valgrind_finds_nothing() {
    if !has("valgrind", "--version") || !has("cc", "--version") {
        return;
    }
    let to = TempDir::new().expect("a folder");
    let (arguments, want) = task("cnn", 0, &to);
    let program = compiled("classify.c", false, &to);
    let mut command = Command::new("valgrind");
    command.args(["--quiet", &format!("--error-exitcode={FOUND}"), "--leak-check=full", "--num-callers=30"]);
    command.arg(format!("--suppressions={}", root().join("c/valgrind.supp").display()));
    // where the processor has AVX-512, Valgrind says that it has not
    assert_eq!(values(command.arg(program).args(arguments)).lines().count(), want.lines().count());
}

#[test]
fn an_installed_library_is_found_by_pkg_config_and_cmake() {
    if !has("cc", "--version") || !has("c++", "--version") {
        return;
    }
    let to = TempDir::new().expect("a folder");
    let prefix = to.path().join("prefix");
    run(Command::new("sh").arg(root().join("c/install.sh")).arg(&prefix).arg(built()));
    let (arguments, want) = task("cnn", 0, &to);
    if has("pkg-config", "--version") {
        let ask = |what: &str| {
            let mut command = Command::new("pkg-config");
            let answer = run(command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).args([what, "remat"]));
            let words = String::from_utf8(answer.stdout).expect("UTF-8");
            words.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(ask("--modversion"), [env!("CARGO_PKG_VERSION")]);
        let program = to.path().join("installed");
        let mut command = Command::new("cc");
        command.arg("-pthread").args(ask("--cflags")).arg(example("classify.c"));
        run(command.args(ask("--libs")).arg("-o").arg(&program));
        let installed = &mut Command::new(&program);
        assert_eq!(values(installed.env("LD_LIBRARY_PATH", prefix.join("lib")).args(&arguments)), want);
    }
    if has("cmake", "--version") {
        let build = to.path().join("build");
        let mut prefix_path = OsString::from("-DCMAKE_PREFIX_PATH=");
        prefix_path.push(&prefix);
        run(Command::new("cmake").arg("-S").arg(root().join("c/examples")).arg("-B").arg(&build).arg(prefix_path));
        run(Command::new("cmake").arg("--build").arg(&build));
        for name in ["classify", "classify_cpp"] {
            let installed = &mut Command::new(build.join(name));
            assert_eq!(values(installed.env("LD_LIBRARY_PATH", prefix.join("lib")).args(&arguments)), want);
        }
    }
}
