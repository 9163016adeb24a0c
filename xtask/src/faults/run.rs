//! Building and testing the scratch copy.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::cargo::cargo;
use crate::faults::scratch::Tree;
use crate::faults::spec::Fault;
use crate::faults::table::{Row, Verdict};

const POLL: Duration = Duration::from_millis(50);

/// Plants faults in one tree, one after the other.
pub(crate) struct Runner {
    tree: Tree,
    /// The folder of `build` and `logs`.
    folder: PathBuf,
    jobs: Option<usize>,
    /// The limit of one test run. A build has no limit.
    timeout: Duration,
    /// The verdict of each test command without a fault; `None` is a pass.
    baselines: BTreeMap<Vec<String>, Option<Verdict>>,
}

/// The unit tests of a package, or one of its test targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Suite {
    pub(crate) package: &'static str,
    /// `None` for the unit tests.
    pub(crate) test: Option<&'static str>,
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.test {
            Some(test) => write!(f, "-p {} --test {test}", self.package),
            None => write!(f, "-p {} --lib", self.package),
        }
    }
}

/// Suites of one tree that has all faults. A variable of the environment selects one fault.
pub(crate) struct Suites {
    root: PathBuf,
    folder: PathBuf,
    jobs: Option<usize>,
    timeout: Duration,
    built: BTreeMap<Suite, Executable>,
}

/// The executable of a suite.
struct Executable {
    path: PathBuf,
    /// The folder of the package. Cargo runs its tests there.
    package: PathBuf,
}

/// The outcome of a suite with a fault. A fault that ends or stops the process counts as noticed: nobody would land it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed,
    Crashed,
    TimedOut,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Passed => "passed",
            Self::Failed => "a test fails",
            Self::Crashed => "the process crashes",
            Self::TimedOut => "hangs",
        })
    }
}

impl Suites {
    /// Tests of the tree at `root`, with builds and logs in `folder`.
    pub(crate) fn new(root: &Path, folder: &Path, jobs: Option<usize>, timeout: Duration) -> Self {
        let (root, folder) = (root.to_path_buf(), folder.to_path_buf());
        Self { root, folder, jobs, timeout, built: BTreeMap::new() }
    }

    /// Builds suites. Gives the log if they do not compile.
    ///
    /// One command builds all: packages that are built separately have other features, and are compiled once for each
    /// set of features.
    pub(crate) fn build(&mut self, suites: &[Suite]) -> Result<Option<PathBuf>, String> {
        let log = log_path(&self.folder, "drawn", "build")?;
        let messages = log_path(&self.folder, "drawn", "messages")?;
        let mut command = cargo(&self.root);
        command.args(["test", "--no-run", "--message-format=json-render-diagnostics"]);
        command.env("CARGO_TARGET_DIR", self.folder.join("drawn-build"));
        for package in suites.iter().map(|s| s.package).collect::<BTreeSet<_>>() {
            command.args(["-p", package]);
        }
        for test in suites.iter().map(|s| s.test).collect::<BTreeSet<_>>() {
            match test {
                Some(test) => command.args(["--test", test]),
                None => command.arg("--lib"),
            };
        }
        if let Some(jobs) = self.jobs {
            command.env("CARGO_BUILD_JOBS", jobs.to_string());
        }
        match logged_apart(&mut command, &messages, &log, Duration::MAX)? {
            Ended::Done(status) if status.success() => {}
            _ => return Ok(Some(log)),
        }
        let printed = fs::read_to_string(&messages).map_err(|e| format!("{}: {e}", messages.display()))?;
        let found: Vec<(String, Option<String>, Executable)> = printed.lines().filter_map(executable).collect();
        for suite in suites {
            let is = |(package, test, _): &&(String, Option<String>, Executable)| {
                *package == suite.package && test.as_deref() == suite.test
            };
            let (.., e) = found.iter().find(is).ok_or_else(|| format!("cargo built no `{suite}`"))?;
            self.built.insert(*suite, Executable { path: e.path.clone(), package: e.package.clone() });
        }
        Ok(None)
    }

    /// Runs a suite that was built, with these environment variables.
    pub(crate) fn run(&self, suite: Suite, variables: &[(&str, String)]) -> Result<Outcome, String> {
        let log = log_path(&self.folder, "drawn", "test")?;
        let built = self.built.get(&suite).ok_or_else(|| format!("`{suite}` was not built"))?;
        let mut command = Command::new(&built.path);
        command.current_dir(&built.package).env("CARGO_MANIFEST_DIR", &built.package);
        command.envs(variables.iter().map(|(k, v)| (k, v)));
        let Ended::Done(status) = logged(&mut command, &log, self.timeout)? else { return Ok(Outcome::TimedOut) };
        let printed = fs::read(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        match read_outcome(status.success(), &String::from_utf8_lossy(&printed), &log) {
            Verdict::Survived => Ok(Outcome::Passed),
            Verdict::Caught => Ok(Outcome::Failed),
            Verdict::Crashed(_) => Ok(Outcome::Crashed),
            other => Err(format!("`cargo test {suite}`: {other}")),
        }
    }
}

/// The test executable in a line of cargo's messages: its package, its name (`None` for unit tests), and its path.
fn executable(line: &str) -> Option<(String, Option<String>, Executable)> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let path = message["executable"].as_str()?.into();
    let target = &message["target"];
    let test = match target["kind"].as_array()?.first()?.as_str()? {
        "test" => Some(target["name"].as_str()?.to_string()),
        "lib" => None,
        _ => return None,
    };
    let package = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
    // the form is `path+file:///folder#name@version`, without the name if the folder has it
    let id = message["package_id"].as_str()?;
    let (place, name) = id.rsplit_once('#')?;
    let name = name.split_once('@').map_or_else(|| place.rsplit('/').next(), |(name, _)| Some(name))?;
    Some((name.to_string(), test, Executable { path, package }))
}

/// How a cargo command ended.
enum Ended {
    Done(ExitStatus),
    TimedOut,
}

impl Runner {
    pub(crate) fn new(tree: Tree, folder: &Path, jobs: Option<usize>, timeout: Duration) -> Self {
        Self { tree, folder: folder.to_path_buf(), jobs, timeout, baselines: BTreeMap::new() }
    }

    /// Plants one fault, runs its test, and restores the file.
    pub(crate) fn plant(&mut self, fault: &Fault) -> Result<Row, String> {
        let start = Instant::now();
        let verdict = self.judge(fault)?;
        Ok(Row { fault: fault.clone(), verdict, took: start.elapsed() })
    }

    fn judge(&mut self, fault: &Fault) -> Result<Verdict, String> {
        // this comes before the baseline, because it costs nothing
        if let Err(why) = self.tree.plant(fault)? {
            return Ok(Verdict::Stale(why));
        }
        if let Some(verdict) = self.baseline(&fault.test)? {
            return Ok(verdict);
        }
        let planted = match self.tree.plant(fault)? {
            Ok(planted) => planted,
            Err(why) => return Ok(Verdict::Stale(why)),
        };
        let verdict = self.test(&fault.test, &log_name(&fault.name))?;
        drop(planted);
        Ok(verdict)
    }

    /// Runs a test command without a fault, once. It must pass, and run a test, or its failure would mean nothing.
    fn baseline(&mut self, test: &[String]) -> Result<Option<Verdict>, String> {
        if let Some(known) = self.baselines.get(test) {
            return Ok(known.clone());
        }
        let name = format!("baseline-{}", self.baselines.len());
        let problem = match self.test(test, &name)? {
            Verdict::Survived => None,
            Verdict::Caught => Some(Verdict::BadTest("it fails without the fault".into())),
            Verdict::DoesNotCompile(log) => {
                Some(Verdict::BadTest(format!("without the fault it does not compile, or cargo refuses it; see {log}")))
            }
            other => Some(other),
        };
        self.baselines.insert(test.to_vec(), problem.clone());
        Ok(problem)
    }

    /// Builds the test, runs it, and reads the outcome. `Survived` is a pass.
    fn test(&self, test: &[String], name: &str) -> Result<Verdict, String> {
        let build_log = log_path(&self.folder, name, "build")?;
        let mut build = vec!["--no-run".to_string()];
        build.extend_from_slice(test);
        match self.cargo_test(&build, &build_log, Duration::MAX)? {
            Ended::Done(status) if status.success() => {}
            Ended::Done(_) => return Ok(Verdict::DoesNotCompile(build_log.display().to_string())),
            Ended::TimedOut => return Ok(Verdict::TimedOut),
        }
        let test_log = log_path(&self.folder, name, "test")?;
        match self.cargo_test(test, &test_log, self.timeout)? {
            Ended::Done(status) => {
                let printed = fs::read(&test_log).map_err(|e| format!("{}: {e}", test_log.display()))?;
                Ok(read_outcome(status.success(), &String::from_utf8_lossy(&printed), &test_log))
            }
            Ended::TimedOut => Ok(Verdict::TimedOut),
        }
    }

    fn cargo_test(&self, arguments: &[String], log: &Path, limit: Duration) -> Result<Ended, String> {
        let mut command = cargo(self.tree.root());
        command.arg("test").env("CARGO_TARGET_DIR", self.folder.join("build"));
        // every fault compiles the package under test again, which takes far longer than its tests
        if let Some(package) = package_of(arguments) {
            command.args(["--config", &format!("profile.dev.package.{package}.opt-level=0")]);
        }
        command.args(arguments);
        if let Some(jobs) = self.jobs {
            command.env("CARGO_BUILD_JOBS", jobs.to_string());
        }
        logged(&mut command, log, limit)
    }
}

fn log_path(folder: &Path, name: &str, stage: &str) -> Result<PathBuf, String> {
    let folder = folder.join("logs");
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    Ok(folder.join(format!("{name}-{stage}.log")))
}

/// Runs a command with its output in a file.
fn logged(command: &mut Command, log: &Path, limit: Duration) -> Result<Ended, String> {
    let out = File::create(log).map_err(|e| format!("{}: {e}", log.display()))?;
    spawned(command.stdout(out.try_clone().map_err(|e| format!("{}: {e}", log.display()))?).stderr(out), limit)
}

/// As [`logged`], with the two streams in files of their own.
fn logged_apart(command: &mut Command, out: &Path, errors: &Path, limit: Duration) -> Result<Ended, String> {
    let file = |path: &Path| File::create(path).map_err(|e| format!("{}: {e}", path.display()));
    spawned(command.stdout(file(out)?).stderr(file(errors)?), limit)
}

fn spawned(command: &mut Command, limit: Duration) -> Result<Ended, String> {
    command.env("CARGO_TERM_COLOR", "never").env("RUST_BACKTRACE", "0").stdin(Stdio::null());
    wait(own_group(command).spawn().map_err(|e| format!("cannot run {command:?}: {e}"))?, limit)
}

/// The package that a test command names.
fn package_of(arguments: &[String]) -> Option<&str> {
    let at = arguments.iter().position(|a| a == "-p" || a == "--package")?;
    arguments.get(at + 1).map(String::as_str)
}

/// Reads the output of a test run. Only a test that reports failure has caught a fault.
fn read_outcome(success: bool, printed: &str, log: &Path) -> Verdict {
    let ran = printed.lines().filter_map(|l| l.strip_prefix("running ")?.split(' ').next()?.parse::<u64>().ok());
    if ran.sum::<u64>() == 0 {
        return Verdict::BadTest("its filter matches no test".into());
    }
    // documentation tests compile only when they run
    if printed.contains("Couldn't compile the test") {
        return Verdict::DoesNotCompile(log.display().to_string());
    }
    match (success, printed.contains("test result: FAILED")) {
        (true, _) => Verdict::Survived,
        (false, true) => Verdict::Caught,
        (false, false) => Verdict::Crashed(log.display().to_string()),
    }
}

/// A file name for a fault's name.
fn log_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect()
}

/// Gives the command a process group, so that a hanging test dies with the cargo that started it.
fn own_group(command: &mut Command) -> &mut Command {
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    command
}

fn wait(mut child: Child, limit: Duration) -> Result<Ended, String> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(|e| format!("cannot wait for cargo: {e}"))? {
            return Ok(Ended::Done(status));
        }
        if start.elapsed() > limit {
            kill_group(&mut child);
            return Ok(Ended::TimedOut);
        }
        std::thread::sleep(POLL);
    }
}

/// Ends the process group that `own_group` made for this child.
fn kill_group(child: &mut Child) {
    if cfg!(unix) {
        let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).status();
    }
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_found_by_package_and_target() {
        let line = |id: &str, kind: &str, name: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"{id}","manifest_path":"/w/{name}/Cargo.toml",
                    "target":{{"kind":["{kind}"],"name":"{name}"}},"executable":"/t/{name}-1"}}"#
            )
        };
        let found = |id: &str, kind: &str, name: &str| {
            executable(&line(id, kind, name)).map(|(package, test, e)| {
                assert_eq!((e.path, e.package), (format!("/t/{name}-1").into(), format!("/w/{name}").into()));
                (package, test)
            })
        };
        let ops = "path+file:///w/crates/ops#remat-ops@0.1.0";
        assert_eq!(found(ops, "test", "suite"), Some(("remat-ops".into(), Some("suite".into()))));
        assert_eq!(found(ops, "lib", "remat_ops"), Some(("remat-ops".into(), None)));
        // the folder has the name
        assert_eq!(found("path+file:///w/crates/remat#0.1.0", "lib", "remat"), Some(("remat".into(), None)));
        assert_eq!(found(ops, "example", "time"), None);
        assert!(executable(r#"{"reason":"build-finished","success":true}"#).is_none());
    }
}
