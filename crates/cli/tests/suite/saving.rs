//! `--save`: where it may write, and what happens when it cannot.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::{OK, USAGE, assert_code, err, remat};

const ERROR: i32 = 1;

#[test]
fn the_checkpoint_of_another_run_is_not_replaced_without_a_word() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let run = |steps: &str, more: &[&str]| {
        remat(dir.path(), &[&["train", "digits", "--batch-size", "64", "--steps", steps][..], more].concat())
    };
    assert_code(&run("1", &["--save", "kept"]), OK);
    let file = dir.path().join("kept/checkpoint.safetensors");
    let first = std::fs::read(&file).expect("saved");
    for more in [&["--save", "kept"][..], &["--save", "./kept/", "--seed", "2"]] {
        let o = run("1", more);
        assert_code(&o, ERROR);
        assert!(err(&o).contains("--resume") && err(&o).contains("--overwrite"), "{}", err(&o));
        assert_eq!(std::fs::read(&file).expect("there"), first);
    }
    assert_code(&run("2", &["--resume", "kept", "--save", "./kept"]), OK);
    assert_ne!(std::fs::read(&file).expect("there"), first, "a run goes on in its own folder");
    assert_code(&run("1", &["--resume", "kept", "--save", "other"]), OK);
    assert_code(&run("1", &["--save", "other", "--overwrite"]), OK);
    assert_code(&run("1", &["--overwrite"]), USAGE);
}

#[test]
fn a_place_that_cannot_be_written_to_is_an_error_before_the_work() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(dir.path().join("file"), b"x").expect("written");
    for place in ["file", "file/below", "/proc/none"] {
        let o = remat(dir.path(), &["train", "digits", "--save", place]);
        assert_code(&o, ERROR);
        assert!(err(&o).contains(place) && !err(&o).contains("memory budget"), "{}", err(&o));
    }
}

/// Trains with checkpoints that cannot be written from the first epoch on, until they can if `there_is_room`.
fn with_a_folder_that_fails(there_is_room: bool) -> (Option<i32>, String, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let kept = dir.path().join("kept");
    let mut child = Command::new(env!("CARGO_BIN_EXE_remat"))
        .args(["train", "digits", "--batch-size", "2000", "--epochs", "1", "--save", "kept"])
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert!(lines.any(|l| l.expect("text").starts_with("memory budget")), "the place was checked");
    // a file where the folder was: the kind of failure that root meets, too
    std::fs::remove_dir(&kept).expect("it is empty");
    std::fs::write(&kept, b"in the way").expect("written");
    let mut told = String::new();
    for line in BufReader::new(child.stderr.take().expect("piped")).lines() {
        let line = line.expect("text");
        if there_is_room && line.contains("next try") && kept.is_file() {
            std::fs::remove_file(&kept).expect("ours");
        }
        told += &format!("{line}\n");
    }
    lines.for_each(drop);
    (child.wait().expect("it ends").code(), told, dir)
}

#[test]
fn a_disk_that_fails_does_not_end_the_run_and_is_tried_again() {
    let (code, told, dir) = with_a_folder_that_fails(true);
    assert_eq!(code, Some(OK), "{told}");
    assert!(told.contains("training goes on in memory") && told.contains("written now"), "{told}");
    assert_code(&remat(dir.path(), &["train", "digits", "--resume", "kept", "--steps", "1"]), OK);
}

#[test]
fn weights_that_cannot_be_saved_at_last_are_an_error_that_says_so() {
    let (code, told, _) = with_a_folder_that_fails(false);
    assert_eq!(code, Some(ERROR), "{told}");
    assert!(told.contains("error:") && told.contains("weights are lost"), "{told}");
}
