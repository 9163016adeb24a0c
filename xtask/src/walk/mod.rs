//! `cargo xtask walk`: follows the way to a new operator that CONTRIBUTING.md describes.
//!
//! The command applies the page's own blocks to a scratch copy of the tree, runs `cargo xtask regenerate` there, and
//! tests the result: the samples by the harness, the models by a round trip, the functions by their examples. So
//! neither the blocks nor the list of files can promise something untrue. The names of new operators and functions come
//! from the generated files, not from the page. The copy and its build are kept between runs, like those of planted
//! faults.

mod page;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::cargo::cargo;
use crate::faults::scratch::Tree;
use crate::finding::Finding;
use crate::repo::Repo;
use crate::{python, regenerate};

const PAGE: &str = "CONTRIBUTING.md";
const FUNCTIONS: &str = "python/remat/_functions.py";
/// The number of lines of a failed command's output that are shown.
const SHOWN: usize = 40;

/// Runs the examples of functions of the package.
const DOCTEST: &str = "\
import doctest, sys, remat
runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
for name in sys.argv[1:]:
    found = [t for t in doctest.DocTestFinder().find(getattr(remat, name), name, globs={}) if t.examples]
    if not found:
        sys.exit(f'{name} has no example')
    for test in found:
        runner.run(test)
sys.exit(runner.summarize().failed > 0)
";

/// The blocks of the page that fit no file.
pub(crate) fn unfit(repo: &Repo) -> Result<Vec<Finding>, String> {
    let page = Path::new(PAGE);
    if !repo.has(page) {
        return Ok(Vec::new());
    }
    let errors = page::changed(repo, page, &page::edits(&repo.read(page)?)).err().unwrap_or_default();
    Ok(errors.into_iter().map(|(line, why)| Finding::error(page, line, why)).collect())
}

/// A walk in its copy of the tree.
struct Walk {
    tree: Repo,
    /// The folder of the copy, the build and the logs.
    folder: PathBuf,
}

/// Follows the way. An error says at which stage it ended, and what to mend.
pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<bool, String> {
    if !args.is_empty() {
        return Err("`cargo xtask walk` takes no arguments".to_owned());
    }
    let found = unfit(repo)?;
    if !found.is_empty() {
        found.iter().for_each(|f| eprintln!("{f}"));
        return Ok(false);
    }
    let walk = stage("the blocks of the page, in a copy of the tree", || Walk::begin(repo))?;
    let failed = walk.go(repo).err();
    if let Some(why) = &failed {
        eprintln!("{why}");
    }
    Ok(failed.is_none())
}

/// Runs a stage, and prints its time.
fn stage<T>(name: &str, run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let start = Instant::now();
    let result = run();
    let said = if result.is_ok() { "ok" } else { "FAILED" };
    eprintln!("{name}: {said}, {:.1} s", start.elapsed().as_secs_f64());
    result
}

impl Walk {
    fn begin(repo: &Repo) -> Result<Self, String> {
        let edits = page::edits(&repo.read(Path::new(PAGE))?);
        if edits.is_empty() {
            return Err(format!("no block of {PAGE} names the file that it changes"));
        }
        let texts = page::changed(repo, Path::new(PAGE), &edits).map_err(|e| format!("{PAGE}: {e:?}"))?;
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
        let folder = repo.root().join(target).join("walk");
        let tree = Tree::sync_with(repo, &folder.join("tree"), &texts)?;
        fs::create_dir_all(folder.join("logs")).map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok(Self { tree: Repo::at(tree.root()), folder })
    }

    fn go(&self, repo: &Repo) -> Result<(), String> {
        stage("the blocks are formatted", || {
            let mut command = self.built(cargo(self.tree.root()));
            command.args(["fmt", "--all", "--", "--check"]);
            self.logged("fmt", &mut command, "format the blocks of the page as rustfmt does")
        })?;
        stage("cargo xtask regenerate", || {
            let mut command = self.built(cargo(self.tree.root()));
            self.logged(
                "regenerate",
                command.args(["xtask", "regenerate"]),
                "mend the blocks of the page, or the generator",
            )
        })?;
        let ops = new_ops(
            &repo.read(regenerate::SERIAL_FORMS.as_ref())?,
            &self.tree.read(regenerate::SERIAL_FORMS.as_ref())?,
        )?;
        for op in &ops {
            stage(&format!("samples of `{op}`, by the harness"), || {
                let mut command = self.built(regenerate::samples(&self.tree));
                command.arg("the_registry_passes_every_check").env("REMAT_OP", op);
                self.logged("harness", &mut command, "the harness names the sample: mend the op's block")
            })?;
        }
        stage("samples of all operators, exported and imported", || {
            let mut command = self.built(regenerate::samples(&self.tree));
            self.logged("onnx", command.arg("samples_of_all_ops"), "mend the block of the export rule")
        })?;
        let functions = new_functions(&repo.read(FUNCTIONS.as_ref())?, &self.tree.read(FUNCTIONS.as_ref())?)?;
        stage(&format!("examples of Python's {}", functions.join(", ")), || {
            let python = python::find().ok_or("there is no Python that runs the examples")?;
            let mut command = Command::new(python);
            command.current_dir(self.tree.root().join("python")).env("PYTHONPATH", ".");
            command.args(["-c", DOCTEST]).args(&functions);
            self.logged("python", &mut command, "mend the `python` block of the method's documentation")
        })
    }

    /// A cargo command in the copy, with the copy's build folder.
    fn built(&self, mut command: Command) -> Command {
        command.env("CARGO_TARGET_DIR", self.folder.join("build")).env("CARGO_TERM_COLOR", "never");
        command
    }

    /// Runs a command with its output in a file. If it fails, the error is the end of the output and what to mend.
    fn logged(&self, name: &str, command: &mut Command, mend: &str) -> Result<(), String> {
        let path = self.folder.join("logs").join(format!("{name}.log"));
        let io = |e: std::io::Error| format!("{}: {e}", path.display());
        let log = File::create(&path).map_err(io)?;
        let status = command.stdout(log.try_clone().map_err(io)?).stderr(log).status();
        if status.map_err(|e| format!("cannot run {command:?}: {e}"))?.success() {
            return Ok(());
        }
        let text = fs::read(&path).map_err(io)?;
        Err(format!("{}\n{mend}; all of it is in {}", tail(&String::from_utf8_lossy(&text)), path.display()))
    }
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN)..].join("\n")
}

/// The operators with a new serial form. Errors if there is none, since then nothing was tested.
fn new_ops(old: &str, new: &str) -> Result<BTreeSet<String>, String> {
    let recorded: BTreeSet<&str> = old.lines().collect();
    let name = |line: &str| -> Result<String, String> {
        let form: serde_json::Value = serde_json::from_str(line).map_err(|e| format!("{line}: {e}"))?;
        Ok(form["op"].as_str().ok_or_else(|| format!("{line} names no op"))?.to_owned())
    };
    let ops: BTreeSet<String> =
        new.lines().filter(|line| !recorded.contains(line)).map(name).collect::<Result<_, String>>()?;
    if ops.is_empty() {
        Err("no operator is new: its samples are missing, or its row in the family".to_owned())
    } else {
        Ok(ops)
    }
}

/// The new functions of Python. Errors if there is none.
fn new_functions(old: &str, new: &str) -> Result<Vec<String>, String> {
    let names = |text: &str| -> BTreeSet<String> {
        let defined = text.lines().filter_map(|l| l.strip_prefix("def ")?.split_once('('));
        defined.map(|(name, _)| name.to_owned()).collect()
    };
    let found: Vec<String> = names(new).difference(&names(old)).cloned().collect();
    if found.is_empty() {
        Err("no function of Python is new: the method of `Tensor` is missing".to_owned())
    } else {
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scratch, places};

    #[test]
    fn what_is_new_is_read_off_the_generated_files() {
        let (square, cube) = (r#"{"op":"unary","params":{"f":"square"}}"#, r#"{"op":"unary","params":{"f":"cube"}}"#);
        assert_eq!(new_ops(square, &format!("{cube}\n{square}\n")), Ok(BTreeSet::from(["unary".to_owned()])));
        assert!(new_ops(square, square).is_err() && new_ops("", "{}").is_err());
        let old = "def exp(x: Tensor) -> Tensor:\n    pass\n";
        assert_eq!(new_functions(old, &format!("{old}def cube(x):\n")), Ok(vec!["cube".to_owned()]));
        assert!(new_functions(old, old).is_err());
    }

    #[test]
    fn a_block_that_fits_no_file_is_a_finding_of_its_line() {
        let page = "# A\n\n```diff\n+++ a.rs\n fn a() {}\n+fn b() {}\n```\n";
        assert!(unfit(&Scratch::new(&[(PAGE, page), ("a.rs", "fn a() {}\n")])).unwrap().is_empty());
        assert_eq!(places(&unfit(&Scratch::new(&[(PAGE, page), ("a.rs", "")])).unwrap()), ["CONTRIBUTING.md:3"]);
        assert!(unfit(&Scratch::new(&[])).unwrap().is_empty());
    }

    #[test]
    fn a_command_that_fails_shows_its_end_and_what_to_mend() {
        let repo = Scratch::new(&[("logs/x", "")]);
        let walk = Walk { tree: Repo::at(repo.root()), folder: repo.root().to_path_buf() };
        let print = |n: usize, code: usize| {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("seq {n}; exit {code}")]);
            walk.logged("seq", &mut command, "mend it")
        };
        assert_eq!(print(3, 0), Ok(()));
        let e = print(50, 1).unwrap_err();
        assert!(e.starts_with("11\n") && e.contains("50\nmend it; all of it is in "), "{e}");
    }
}
