//! `cargo xtask ptxas`: every kernel that the samples need goes through NVIDIA's assembler, which needs no GPU.
//!
//! An example of crates/cuda writes the kernels as PTX. The assembler says for each one the registers of a thread, the shared
//! memory of a block, and the bytes that are spilled from registers to memory. A kernel that spills is a fault.

mod report;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cargo::{self, cargo};
use crate::python;
use crate::repo::Repo;
use report::Report;

/// An architecture of machine code, and that of the PTX from which it is made.
struct Architecture {
    code: &'static str,
    ptx: &'static str,
}

/// The oldest architecture that devices may have, the one of data centres, and the newest one that the pinned compiler knows.
///
/// The compiler has two parts: an older one up to 9.0, which gives the same instructions for 8.0 and 9.0, and one for later
/// architectures.
const ARCHITECTURES: [Architecture; 3] = [
    Architecture { code: "sm_80", ptx: "8.0" },
    Architecture { code: "sm_90", ptx: "8.0" },
    Architecture { code: "sm_121", ptx: "12.1" },
];

/// A file of kernels for one architecture.
struct Job {
    architecture: usize,
    file: PathBuf,
}

/// The command. False if a kernel spills.
pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<bool, String> {
    let json = match args {
        [] => None,
        [flag, file] if flag == "--json" => Some(file),
        _ => return Err("`cargo xtask ptxas` takes `--json FILE` and nothing else".to_owned()),
    };
    let assembler = python::cuda_assembler(repo)?;
    let folder = python::target(repo.root())?.join("ptxas");
    write_ptx(repo, &folder)?;
    let mut report = Report::new(ARCHITECTURES.map(|a| a.code));
    for (architecture, text) in assemble(&assembler, &jobs(&folder)?)? {
        report.add(architecture, &text)?;
    }
    print!("{}", report.table());
    if let Some(file) = json {
        std::fs::write(file, report.json()).map_err(|e| format!("{file}: {e}"))?;
    }
    let spilled = report.spilled();
    spilled.iter().for_each(|line| eprintln!("spills: {line}"));
    match spilled.len() {
        0 => println!("no kernel spills"),
        n => eprintln!("{n} kernels or functions spill: name fewer values at once, or see `Builder::resident`"),
    }
    Ok(spilled.is_empty())
}

/// Writes the PTX of all kernels, and nothing else, into the folder.
fn write_ptx(repo: &Repo, folder: &Path) -> Result<(), String> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let mut command = cargo(repo.root());
    command.args(["run", "--quiet", "-p", "remat-cuda", "--example", "kernels", "--"]).arg(folder);
    let mut architectures = ARCHITECTURES.map(|a| a.ptx).to_vec();
    architectures.dedup();
    command.args(architectures);
    if std::env::var_os(cargo::CUDA_LIBRARIES).is_none() {
        let compiler = python::cuda_compiler(repo)?.ok_or("there is no compiler of CUDA's kernels")?;
        command.env(cargo::CUDA_LIBRARIES, compiler);
    }
    let status = command.status().map_err(|e| format!("cannot run cargo: {e}"))?;
    if status.success() { Ok(()) } else { Err("the kernels do not compile, see above".to_owned()) }
}

fn jobs(folder: &Path) -> Result<Vec<Job>, String> {
    let mut jobs = Vec::new();
    for (architecture, a) in ARCHITECTURES.iter().enumerate() {
        let folder = folder.join(a.ptx.replace('.', ""));
        let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let files = entries.flatten().map(|e| e.path()).filter(|path| path.extension().is_some_and(|e| e == "ptx"));
        jobs.extend(files.map(|file| Job { architecture, file }));
    }
    // files of the same number have the same kernels: those that take long do not all come last
    jobs.sort_by(|a, b| a.file.file_name().cmp(&b.file.file_name()));
    Ok(jobs)
}

/// The text of the assembler about each file, with the architecture. Errors: it refuses one.
fn assemble(assembler: &Path, jobs: &[Job]) -> Result<Vec<(usize, String)>, String> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut said = Vec::new();
        while let Some(Job { architecture, file }) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut command = Command::new(assembler);
            command.arg("-v").arg(format!("-arch={}", ARCHITECTURES[*architecture].code)).arg(file);
            // the machine code is not needed
            let output = command.args(["-o", "/dev/null"]).output();
            let output = output.map_err(|e| format!("cannot run {}: {e}", assembler.display()))?;
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            if !output.status.success() {
                return Err(format!("{} for {}:\n{text}", file.display(), ARCHITECTURES[*architecture].code));
            }
            said.push((*architecture, text));
        }
        Ok(said)
    };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|s| {
        let workers: Vec<_> = (0..threads).map(|_| s.spawn(work)).collect();
        let ended = workers.into_iter().map(|w| w.join().unwrap_or_else(|_| Err("a thread has panicked".to_owned())));
        ended.collect::<Result<Vec<_>, String>>().map(|said| said.into_iter().flatten().collect())
    })
}
