//! Writes the PTX of all kernels that the samples of the operators need: `cargo xtask ptxas` gives it to NVIDIA's assembler.
//!
//! `REMAT_CUDA_LIBRARIES=<folder of NVRTC> cargo run -p remat-cuda --example kernels -- FOLDER 8.0 9.0` writes FOLDER/80/000.ptx and
//! so on, with many kernels in a file, and the sources beside them. `REMAT_SAMPLES` names one operator.

#[path = "../tests/suite/cases.rs"]
#[allow(dead_code, reason = "the suite runs the cases; here only their kernels are compiled")]
mod cases;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

use remat_cuda::device::search;
use remat_cuda::driver::{Architecture, Compiler};
use remat_cuda::source::PRELUDE;

/// Kernels of a file.
const BATCH: usize = 200;

/// A file to write.
struct File<'s> {
    architecture: Architecture,
    path: PathBuf,
    sources: &'s [String],
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<(), String> {
    let [folder, architectures @ ..] = args else { return Err("usage: kernels FOLDER ARCHITECTURE ...".to_owned()) };
    let compiler = Compiler::open(&search()).map_err(|e| e.to_string())?;
    let sources = sources();
    let mut files = Vec::new();
    for architecture in architectures {
        let architecture = parsed(architecture).ok_or(format!("`{architecture}` is no architecture such as 9.0"))?;
        let folder = Path::new(folder).join(format!("{}{}", architecture.major, architecture.minor));
        std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for (k, sources) in sources.chunks(BATCH).enumerate() {
            files.push(File { architecture, path: folder.join(format!("{k:03}.ptx")), sources });
        }
    }
    write(&compiler, &files)?;
    println!("{} kernels", sources.len());
    Ok(())
}

fn parsed(architecture: &str) -> Option<Architecture> {
    let (major, minor) = architecture.split_once('.')?;
    Some(Architecture { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

/// Every source once, in the order of the kernels' names.
fn sources() -> Vec<String> {
    let (cases, _) = cases::cases();
    let calls = cases.iter().flat_map(|c| &c.plan.calls);
    calls.map(|c| (c.name.clone(), c.source.clone())).collect::<BTreeMap<_, _>>().into_values().collect()
}

/// Compiles each file's sources on one of the processor's threads. Errors: the first of each thread.
fn write(compiler: &Compiler, files: &[File<'_>]) -> Result<(), String> {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let source: String = std::iter::once(PRELUDE).chain(file.sources.iter().map(String::as_str)).collect();
            let name = file.path.display().to_string();
            std::fs::write(file.path.with_extension("cu"), &source).map_err(|e| format!("{name}: {e}"))?;
            let code = compiler.ptx(&name, &source, file.architecture).map_err(|e| e.to_string())?;
            let text = code.image().strip_suffix(b"\0").unwrap_or(code.image());
            std::fs::write(&file.path, text).map_err(|e| format!("{name}: {e}"))?;
        }
        Ok(())
    };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let failed: Vec<String> = std::thread::scope(|s| {
        let workers: Vec<_> = (0..threads).map(|_| s.spawn(work)).collect();
        let ended = workers.into_iter().map(|w| w.join().unwrap_or_else(|_| Err("a thread has panicked".to_owned())));
        ended.filter_map(Result::err).collect()
    });
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}
