//! Checks and chores of the repository. `cargo xtask help` lists them.
//!
//! A check is a function from the repository to findings. One table in `checks` lists all checks, so the command line,
//! the help text and `cargo xtask check` cannot disagree. The text checks read files only and never need a build. A
//! small scanner masks the comments and strings of their Rust files and does not parse, which is enough for words,
//! braces and `mod` lines. Only `draw-faults`, which writes expressions, parses them.

#![forbid(unsafe_code)]

mod cargo;
mod catalogue;
mod checks;
mod faults;
mod finding;
mod help;
mod layers;
mod manifest;
mod modules;
mod mpi;
mod ptxas;
mod python;
mod rebuild;
mod regenerate;
mod repo;
mod rust_files;
mod rust_source;
#[cfg(test)]
mod testing;
mod walk;

use std::process::ExitCode;

use repo::Repo;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}

/// Runs one command. `Ok(false)` means that it ran and found a problem.
fn dispatch(args: &[String]) -> Result<bool, String> {
    let (command, rest) = match args.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", args),
    };
    match command {
        "help" | "--help" | "-h" => {
            print!("{}", help::text());
            Ok(true)
        }
        "check" => checks::run(&Repo::here()?, rest),
        "test" => test(&Repo::here()?, rest),
        "catalogue" => catalogue::write(&Repo::here()?),
        "regenerate" => regenerate::run(&Repo::here()?, rest),
        "ptxas" => ptxas::run(&Repo::here()?, rest),
        "walk" => walk::run(&Repo::here()?, rest),
        "rebuild-times" => rebuild::run(&Repo::here()?, rest),
        "plant-faults" => faults::run(&Repo::here()?, rest),
        "draw-faults" => faults::draw::run(&Repo::here()?, rest),
        other => Err(format!("unknown command `{other}`; `cargo xtask help` lists the commands")),
    }
}

/// Runs every test. Without arguments the Python package comes first, so that cargo's closing lines are the last ones.
fn test(repo: &Repo, rest: &[String]) -> Result<bool, String> {
    let python = if rest.is_empty() { python::test(repo)? } else { true };
    let compiler = match std::env::var_os(cargo::CUDA_LIBRARIES) {
        Some(folder) => Some(folder.into()),
        None => python::cuda_compiler(repo)?,
    };
    let rust = cargo::test(repo, rest, compiler.as_deref())?;
    if !python {
        eprintln!("the tests of the Python package failed, see above");
    }
    Ok(python && rust)
}
