//! Standard output that is closed or full, and files that are none: nothing panics, and no work is lost.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::{OK, assert_code, err, remat};

const ERROR: i32 = 1;

/// Runs `remat` with a standard output that nobody reads, and the same as standard error if `both`.
fn unread(dir: &Path, args: &[&str], both: bool) -> Output {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_remat"));
    command.args(args).current_dir(dir).stderr(Stdio::piped());
    if both {
        command.stderr(writer.try_clone().expect("a second end"));
    }
    command.stdout(writer).output().expect("the program starts")
}

#[test]
fn every_command_survives_a_reader_that_went_away() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    for args in [
        &["--help"][..],
        &["graph", "model:mlp"],
        &["graph", "model:mlp", "--text"],
        &["graph", "model:mlp", "--dot", "-"],
        &["plan", "--generate", "chain-40", "--budget", "70%", "--time-limit", "0.1"],
        &["plan", "--generate", "chain-40", "--curve", "--percents", "80", "--time-limit", "0.1"],
        &["bench", "matmul:8x8x8", "--seconds", "0.01"],
        &["bench", "matmul:8x8x8", "--seconds", "0.01", "--json", "-"],
        &["soak", "--seconds", "0.5"],
    ] {
        // a soak trains as much again; what it prints it prints as the others do
        let streams = if args[0] == "soak" { &[true][..] } else { &[false, true] };
        for both in streams {
            let o = unread(dir.path(), args, *both);
            assert_code(&o, OK);
            assert!(!err(&o).contains("panicked"), "{args:?}: {}", err(&o));
        }
    }
}

#[test]
fn training_goes_on_when_nobody_reads_and_saves_what_it_learnt() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let args = ["train", "digits", "--batch-size", "64", "--steps", "3", "--json", "-", "--save"];
    for (name, both) in [("one", false), ("two", true)] {
        let o = unread(dir.path(), &[&args[..], &[name]].concat(), both);
        assert_code(&o, OK);
        assert!(!err(&o).contains("panicked"), "{}", err(&o));
        let o = remat(dir.path(), &["train", "digits", "--resume", name, "--steps", "3"]);
        assert_code(&o, OK);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_standard_output_is_an_error_after_the_work() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let full = || File::options().write(true).open("/dev/full").expect("Linux has it");
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_remat"));
        command.args(args).current_dir(dir.path()).stdout(full()).stderr(Stdio::piped()).output().expect("it starts")
    };
    let o = run(&["train", "digits", "--batch-size", "64", "--steps", "3", "--save", "kept"]);
    assert_code(&o, ERROR);
    assert!(err(&o).contains("standard output: No space left"), "{}", err(&o));
    assert_code(&remat(dir.path(), &["train", "digits", "--resume", "kept", "--steps", "3"]), OK);
    let o = run(&["graph", "model:mlp"]);
    assert_code(&o, ERROR);
    assert!(err(&o).contains("standard output"), "{}", err(&o));
}

#[cfg(unix)]
#[test]
fn what_is_no_file_is_refused_at_once() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    assert!(Command::new("mkfifo").arg(dir.path().join("pipe")).status().expect("mkfifo is there").success());
    std::fs::create_dir(dir.path().join("kept")).expect("made");
    std::os::unix::fs::symlink("/dev/zero", dir.path().join("kept/checkpoint.safetensors")).expect("linked");
    let hole = File::create(dir.path().join("hole")).expect("made");
    hole.set_len(1 << 40).expect("a hole takes no room");
    let began = Instant::now();
    for (args, says) in [
        (&["graph", "/dev/zero"][..], "not a regular file"),
        (&["graph", "pipe"], "not a regular file"),
        (&["graph", "hole"], "hole"),
        (&["plan", "--dag", "/dev/zero", "--budget", "50%"], "not a regular file"),
        (&["plan", "--dag", "pipe", "--budget", "50%"], "not a regular file"),
        (&["plan", "--dag", "hole", "--budget", "50%"], "at most"),
        (&["plan", "--check", "/dev/zero"], "not a regular file"),
        (&["train", "digits", "--resume", "kept"], "not a regular file"),
    ] {
        let o = remat(dir.path(), args);
        assert_code(&o, ERROR);
        assert!(err(&o).contains(says), "{args:?}: {}", err(&o));
    }
    assert!(began.elapsed() < Duration::from_secs(30), "nothing was read");
}
