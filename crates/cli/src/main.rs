//! The `remat` command.
#![forbid(unsafe_code)]
// a reader that goes away must not end a run: everything is printed by `output`
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod budget;
mod chars;
mod check_budget;
mod device;
mod digits;
mod graph;
mod input;
mod interrupt;
mod lifetimes;
mod model;
mod networks;
mod ops;
mod output;
mod plan;
mod process;
mod random;
mod report;
mod scaling;
mod sizes;
mod soak;
mod step_parts;
mod svg;
mod timing;
mod train;
mod workload;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use output::note;
use process::{EXIT_INTERRUPTED, EXIT_USAGE, exit_code};

/// Train and run neural networks within a memory budget.
///
/// Exit codes: 0 done, 1 an error, 2 the memory budget cannot be met, 3 a model that cannot run, 64 a wrong command line, 130 ended by Ctrl-C, SIGTERM or
/// SIGHUP. A reader of the output that goes away changes nothing; an output that fails otherwise is an error at the end.
#[derive(Parser)]
#[command(name = "remat", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train a network that ships with its data.
    #[command(subcommand, arg_required_else_help = true)]
    Train(TrainCommand),
    /// Continue a text with a network that `remat train chars --save` kept, character by character.
    #[command(
        after_help = "The keys and values of the characters so far are kept, so a character costs one place of the network."
    )]
    Generate(Box<chars::generate::Options>),
    /// Run a model from a file, and compare its outputs.
    Run(Box<model::run::Options>),
    /// Compare two models layer by layer: the first value that differs.
    Compare(Box<model::compare::Compare>),
    /// Shows the layers of a model in a file with their operators and parameters, and the nodes that cannot run.
    Inspect(Box<model::inspect::Options>),
    /// Where the milliseconds of a model go: by operator, by layer, as a trace.
    Profile(Box<model::profile::Options>),
    /// Find the options with which a model runs fastest, within a budget and a tolerance.
    Fit(Box<model::fit::Options>),
    /// Write a model as another format: ONNX as .remat, and back.
    Convert(Box<model::convert::Convert>),
    /// Write a model after the passes that sessions run: smaller, and sooner loaded.
    Optimize(Box<model::convert::Optimize>),
    /// Measure the promise: train digits under several budgets and compare with the run without one.
    #[command(alias = "promise")]
    CheckBudget(check_budget::Options),
    /// Train under a budget in a loop whose shapes alternate, branch and sometimes fail, and compare every bit.
    #[command(alias = "endure")]
    Soak(soak::Options),
    /// Plan a training step or any graph under a memory budget: what to compute again, when to free, and where everything lies.
    Plan(Box<plan::Options>),
    /// Shows the operations and the memory of a graph: figures, text, pictures.
    Graph(Box<graph::Options>),
    /// Print a script that completes the command's words in a shell.
    #[command(after_help = COMPLETIONS)]
    Completions {
        /// The shell that the script is for
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// List the operators, or show what one takes.
    Ops(ops::Options),
    /// Time one piece of work and say what share of the machine's speed it reaches.
    Bench(Box<bench::Options>),
    /// Predict a step of data parallel training on 2 to 4,096 ranks from the step of one, over a network that is named.
    Scaling(Box<scaling::Options>),
}

const COMPLETIONS: &str = "\
Examples:
  remat completions bash > ~/.local/share/bash-completion/completions/remat
  remat completions zsh > ~/.zfunc/_remat                with `fpath+=~/.zfunc` before `compinit` in ~/.zshrc
  remat completions fish > ~/.config/fish/completions/remat.fish
  remat completions powershell >> $PROFILE";

/// The script that completes the command's words. Errors: none of its own.
fn completions(shell: clap_complete::Shell) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "remat", &mut script);
    output::print(&String::from_utf8_lossy(&script));
}

#[derive(Subcommand)]
enum TrainCommand {
    /// A residual network on 10,000 handwritten digits: 98 % and more in a minute or two on two cores.
    Digits(Box<digits::Options>),
    /// A small GPT on a novel, character by character: it prints samples of its text as it learns.
    Chars(Box<chars::Options>),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // Failing to print leaves nothing else to do than to exit.
            let _ = e.print();
            return if e.use_stderr() { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS };
        }
    };
    if let Command::Plan(options) = &cli.command
        && let Some(fault) = options.fault()
    {
        note!("error: {fault}\n\n`remat plan --help` shows examples");
        return ExitCode::from(EXIT_USAGE);
    }
    let done = |()| 0;
    let result = match cli.command {
        Command::Train(TrainCommand::Digits(options)) => train::run(&*options).map(done),
        Command::Train(TrainCommand::Chars(options)) => train::run(&*options).map(done),
        Command::Generate(options) => chars::generate::run(&options).map(done),
        Command::Run(options) => model::run::run(&options),
        Command::Compare(options) => model::compare::run(&options),
        Command::Inspect(options) => model::inspect::run(&options),
        Command::Profile(options) => model::profile::run(&options),
        Command::Fit(options) => model::fit::run(&options),
        Command::Convert(options) => model::convert::run(&options),
        Command::Optimize(options) => model::convert::run_optimize(&options),
        Command::CheckBudget(options) => check_budget::run(&options).map(done),
        Command::Soak(options) => soak::run(&options).map(done),
        Command::Plan(options) => plan::run(&options).map(done),
        Command::Graph(options) => graph::run(&options).map(done),
        Command::Completions { shell } => {
            completions(shell);
            Ok(0)
        }
        Command::Ops(options) => ops::run(&options).map(done),
        Command::Bench(options) => bench::run(&options).map(done),
        Command::Scaling(options) => scaling::run(&options).map(done),
    };
    match result.and_then(|code| output::finish().map(|()| code)) {
        Ok(_) if interrupt::requested() => ExitCode::from(EXIT_INTERRUPTED),
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            report::print_error(&e);
            ExitCode::from(exit_code(&e))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn commands_of_the_release_before_still_work_and_are_not_shown() {
        let read = |name| Cli::try_parse_from(["remat", name]).map(|cli| cli.command);
        assert!(
            matches!(read("promise"), Ok(Command::CheckBudget(_))) && matches!(read("endure"), Ok(Command::Soak(_)))
        );
        let help = Cli::command().render_long_help().to_string();
        assert!(help.contains("check-budget") && help.contains("soak"), "{help}");
        assert!(!help.contains("endure") && !help.contains("\n  promise"), "{help}");
    }
}
