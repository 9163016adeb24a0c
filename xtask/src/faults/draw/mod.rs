//! `cargo xtask draw-faults`: random mistakes in random operators.
//!
//! Written faults are those that their author thought of, and often those that already had a test. Here a seed draws
//! files of operators. In each file it draws a function, in that a class of mistake, and for that class a place
//! ([`sites`]).
//!
//! All are built at once. At each place stands a switch with both readings (mutant schemata; Untch, Offutt and Harrold,
//! 1993, "Mutation analysis using mutant schemata"), and an environment variable selects the one that a run makes. One
//! build serves all faults; a build for each would take minutes. The suites of a crate run one after the other until
//! one notices the fault.
//!
//! A mistake that changes no result cannot be noticed, such as another threshold between two ways that agree. A person
//! who has proved that writes it into `xtask/faults/drawn/equivalent.toml`, with the reason. It is not drawn again.

mod equivalent;
mod random;
mod sites;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::run::{Outcome, Suite, Suites};
use super::scratch::Tree;
use super::{build_folder, positive};
use crate::repo::Repo;
use crate::rust_files::rust_files;
use equivalent::Equivalent;
use random::Random;
use sites::Site;

/// The environment variable that names the fault of a run.
const VARIABLE: &str = "PLANTED_FAULT";
/// A function that is appended to a crate with faults. It tells whether a run makes the fault of a number.
fn switch() -> String {
    format!(
        "
pub(crate) fn planted_fault(number: usize) -> bool {{
    static CHOSEN: std::sync::OnceLock<Option<usize>> = std::sync::OnceLock::new();
    *CHOSEN.get_or_init(|| std::env::var(\"{VARIABLE}\").ok()?.parse().ok()) == Some(number)
}}
"
    )
}

/// The operators of a crate, and the suites that test them, the quickest first.
struct Area {
    folder: &'static str,
    package: &'static str,
    suites: &'static [Suite],
}

const SAMPLES: Suite = Suite { package: "remat-ops", test: Some("suite") };
const FIXTURES: Suite = Suite { package: "remat", test: Some("fixtures") };
const TENSORS: Suite = Suite { package: "remat-tensor", test: Some("suite") };
const KERNELS: Suite = Suite { package: "remat-kernels", test: None };
const LAYERS: Suite = Suite { package: "remat-nn", test: Some("suite") };
const NETWORKS: Suite = Suite { package: "remat-zoo", test: Some("suite") };

const AREAS: [Area; 5] = [
    Area { folder: "crates/ops/src", package: "crates/ops", suites: &[SAMPLES, FIXTURES, TENSORS] },
    Area { folder: "crates/kernels/src", package: "crates/kernels", suites: &[KERNELS, SAMPLES, FIXTURES, TENSORS] },
    Area { folder: "crates/tensor/src/methods", package: "crates/tensor", suites: &[FIXTURES, TENSORS] },
    Area { folder: "crates/nn/src", package: "crates/nn", suites: &[LAYERS, FIXTURES, NETWORKS] },
    Area { folder: "crates/zoo/src", package: "crates/zoo", suites: &[NETWORKS] },
];

/// The command line.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    count: usize,
    seed: u64,
    list: bool,
    only: Option<usize>,
    jobs: Option<usize>,
    timeout: Duration,
}

/// A fault that was drawn.
struct Drawn {
    area: &'static Area,
    file: PathBuf,
    line: usize,
    site: Site,
}

impl Drawn {
    fn describe(&self) -> String {
        let one_line = |s: &str| s.split_whitespace().collect::<Vec<_>>().join(" ");
        let Site { function, kind, original, faulty, .. } = &self.site;
        let faulty = if faulty.is_empty() { "nothing".to_string() } else { one_line(faulty) };
        format!("{}:{} `{function}`, {kind}: `{}` is `{faulty}`", self.file.display(), self.line, one_line(original))
    }
}

/// Draws faults, plants them, and prints which were noticed. False if any was not.
pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<bool, String> {
    let options = parse(args)?;
    let known = equivalent::load(repo)?;
    let mut source = Source::new(repo, &known, options.seed)?;
    let mut faults: Vec<Drawn> = Vec::new();
    source.fill(&mut faults, options.count)?;
    if options.list {
        for (i, f) in faults.iter().enumerate() {
            println!("{i:3}  {}", f.describe());
        }
        return Ok(true);
    }
    let folder = build_folder(repo);
    let suites = build(repo, &mut source, &mut faults, &options, &folder)?;
    judge(&faults, &suites, &options)
}

/// The files in which faults may be, and the random numbers that choose among them.
struct Source<'r> {
    repo: &'r Repo,
    known: &'r [Equivalent],
    files: Vec<(&'static Area, PathBuf)>,
    random: Random,
    /// Places where a switch does not compile.
    refused: BTreeSet<(PathBuf, usize)>,
}

impl<'r> Source<'r> {
    fn new(repo: &'r Repo, known: &'r [Equivalent], seed: u64) -> Result<Self, String> {
        let mut files = Vec::new();
        for file in rust_files(repo)? {
            let of_samples = file.path.components().any(|c| {
                let name = c.as_os_str().to_string_lossy();
                name.starts_with("samples") || name == "testing" || name == "tests"
            });
            let area = AREAS.iter().find(|a| file.path.starts_with(a.folder));
            if let Some(area) = area.filter(|_| !file.is_test && !of_samples) {
                files.push((area, file.path));
            }
        }
        if files.is_empty() {
            return Err("there are no operators here".to_string());
        }
        Ok(Self { repo, known, files, random: Random::new(seed), refused: BTreeSet::new() })
    }

    /// Draws faults until there are `count`, each in a file of its own.
    fn fill(&mut self, faults: &mut Vec<Drawn>, count: usize) -> Result<(), String> {
        let mut misses = 0;
        while faults.len() < count {
            // draws an area first: otherwise kernels would be half of all files
            let area = &AREAS[self.random.below(AREAS.len())];
            let of_area: Vec<&PathBuf> =
                self.files.iter().filter(|f| f.0.folder == area.folder).map(|f| &f.1).collect();
            let file = (!of_area.is_empty()).then(|| of_area[self.random.below(of_area.len())].clone());
            let drawn = match file.filter(|file| faults.iter().all(|f| f.file != *file)) {
                Some(file) => self.draw(area, file)?,
                None => None,
            };
            match drawn {
                Some(drawn) => faults.push(drawn),
                None => misses += 1,
            }
            if misses > 100 * count + 1000 {
                return Err(format!("only {} faults can be drawn, one a file", faults.len()));
            }
        }
        Ok(())
    }

    /// Draws a fault in this file: a function, then a class of mistake, then a place.
    fn draw(&mut self, area: &'static Area, file: PathBuf) -> Result<Option<Drawn>, String> {
        let text = self.repo.read(&file)?;
        let mut sites = sites::sites(&text).map_err(|e| format!("{}: {e}", file.display()))?;
        sites.retain(|s| {
            !self.refused.contains(&(file.clone(), s.range.start)) && !self.known.iter().any(|k| k.is(&file, s))
        });
        for of in [|s: &Site| s.function.clone(), |s: &Site| s.kind.to_string()] {
            let names: Vec<String> = sites.iter().map(of).collect::<BTreeSet<_>>().into_iter().collect();
            if names.is_empty() {
                return Ok(None);
            }
            let chosen = &names[self.random.below(names.len())];
            sites.retain(|s| of(s) == *chosen);
        }
        let site = sites.swap_remove(self.random.below(sites.len()));
        let line = crate::rust_source::line_of(&text, site.range.start);
        Ok(Some(Drawn { area, file, line, site }))
    }
}

/// Builds all suites with all switches. A fault that the compiler refuses is replaced by another.
fn build(
    repo: &Repo,
    source: &mut Source<'_>,
    faults: &mut Vec<Drawn>,
    options: &Options,
    folder: &Path,
) -> Result<Suites, String> {
    let mut round = 0;
    loop {
        round += 1;
        let root = folder.join("drawn");
        plant(repo, faults, &root)?;
        eprintln!("building the suites with {} switches ..", faults.len());
        let mut suites = Suites::new(&root, folder, options.jobs, options.timeout);
        let Some(log) = suites.build(&all_suites(faults))? else { return Ok(suites) };
        let text = std::fs::read_to_string(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        let before = faults.len();
        for f in faults.extract_if(.., |f| is_refused(&text, f)) {
            eprintln!("  the compiler refuses {}", f.describe());
            source.refused.insert((f.file.clone(), f.site.range.start));
        }
        if faults.len() == before || round == 20 {
            return Err(format!(
                "the suites do not compile, and not for one of the faults alone; see {}",
                log.display()
            ));
        }
        source.fill(faults, options.count)?;
    }
}

/// True if an error of the compiler is at this fault: on a line from its first to its last.
fn is_refused(log: &str, fault: &Drawn) -> bool {
    let lines =
        fault.line..=fault.line + fault.site.original.lines().count().max(fault.site.faulty.lines().count()) * 2;
    let at = format!("--> {}:", fault.file.display());
    let mut is_error = false;
    for line in log.lines() {
        if line.starts_with("error") || line.starts_with("warning") {
            is_error = line.starts_with("error");
        }
        if let Some(rest) = line.trim_start().strip_prefix(&at).filter(|_| is_error)
            && let Some(Ok(n)) = rest.split(':').next().map(str::parse)
            && lines.contains(&n)
        {
            return true;
        }
    }
    false
}

/// Makes a copy of the tree with all switches. Files with the right content keep their time, so cargo builds little.
fn plant(repo: &Repo, faults: &[Drawn], root: &Path) -> Result<(), String> {
    let mut changed: BTreeMap<PathBuf, String> = BTreeMap::new();
    for (number, f) in faults.iter().enumerate() {
        let mut text = repo.read(&f.file)?;
        text.replace_range(f.site.range.clone(), &f.site.switched(number));
        changed.insert(f.file.clone(), text);
    }
    for package in faults.iter().map(|f| f.area.package).collect::<BTreeSet<_>>() {
        let lib = Path::new(package).join("src/lib.rs");
        let text = match changed.remove(&lib) {
            Some(text) => text,
            None => repo.read(&lib)?,
        };
        changed.insert(lib, text + &switch());
    }
    Tree::sync_with(repo, root, &changed).map(|_| ())
}

fn all_suites(faults: &[Drawn]) -> Vec<Suite> {
    let all: BTreeSet<Suite> = faults.iter().flat_map(|f| f.area.suites).copied().collect();
    all.into_iter().collect()
}

/// Runs the suites with each fault, and prints the outcome.
fn judge(faults: &[Drawn], suites: &Suites, options: &Options) -> Result<bool, String> {
    let mut fine = BTreeSet::new();
    let mut missed = 0;
    for (number, f) in faults.iter().enumerate().filter(|(i, _)| options.only.is_none_or(|o| o == *i)) {
        let start = Instant::now();
        println!("{number:3}  {}", f.describe());
        let mut noticed = None;
        for suite in f.area.suites {
            if fine.insert(*suite) && suites.run(*suite, &[])? != Outcome::Passed {
                return Err(format!("`cargo test {suite}` fails without any fault"));
            }
            match suites.run(*suite, &[(VARIABLE, number.to_string())])? {
                Outcome::Passed => {}
                outcome => {
                    noticed = Some((suite, outcome));
                    break;
                }
            }
        }
        let took = start.elapsed().as_secs();
        match noticed {
            Some((suite, outcome)) => println!("     {outcome} in `{suite}`, {took} s"),
            None => {
                missed += 1;
                println!("     NOT NOTICED, {took} s: add a test, or a reason to {}", equivalent::FILE);
            }
        }
    }
    let count = options.only.map_or(faults.len(), |_| 1);
    println!("{} of {count} faults noticed, seed {}", count - missed, options.seed);
    Ok(missed == 0)
}

fn parse(args: &[String]) -> Result<Options, String> {
    let mut options =
        Options { count: 24, seed: 1, list: false, only: None, jobs: None, timeout: Duration::from_secs(600) };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().cloned().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--list" => options.list = true,
            "--count" => options.count = positive(arg, &value()?)?,
            "--seed" => options.seed = value()?.parse().map_err(|_| format!("{arg} needs a whole number"))?,
            "--only" => options.only = Some(value()?.parse().map_err(|_| format!("{arg} needs a whole number"))?),
            "--jobs" => options.jobs = Some(positive(arg, &value()?)?),
            "--timeout" => options.timeout = Duration::from_secs(positive(arg, &value()?)? as u64),
            other => return Err(format!("unknown argument `{other}`; `cargo xtask help` lists the options")),
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests;
