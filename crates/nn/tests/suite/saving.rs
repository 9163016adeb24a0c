//! Many who save to one folder, and some who die while they do.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use remat_nn::*;
use remat_types::{HostTensor, Result};

use crate::support::cpu;

/// Tells a child of the tests where to save.
const FOLDER: &str = "REMAT_TEST_SAVES_TO";
const FILE_NAME: &str = "checkpoint.safetensors";

/// Saves states whose numbers are all `n`, for `n` from `first` on.
fn save_on(dir: &Path, first: u64, go_on: impl Fn(u64) -> bool) -> Result<()> {
    let l = Linear::new(&mut InitCx::new(&cpu(), 1), 40, 40)?;
    let mut n = first;
    while go_on(n) {
        for p in l.parameters() {
            p.set_host(&HostTensor::from_f64_slice(&vec![n as f64; p.elems()], p.dtype(), p.shape())?)?;
        }
        Checkpoint::save(dir, &l, None, &TrainState { step: n, ..TrainState::default() })?;
        n += 1;
    }
    Ok(())
}

/// Loads, and checks that all is of one save.
#[track_caller]
fn assert_whole(dir: &Path) {
    let c = Checkpoint::load(dir).expect("always whole");
    for (name, t) in &c.model {
        assert!(t.to_f64_vec().iter().all(|v| *v == c.train.step as f64), "{name} is of another save");
    }
}

fn temporaries(dir: &Path) -> usize {
    fs::read_dir(dir).expect("there").flatten().filter(|e| e.file_name() != FILE_NAME).count()
}

#[test]
fn threads_that_save_to_one_folder_leave_whole_checkpoints() {
    let dir = tempfile::tempdir().expect("a directory");
    save_on(dir.path(), 0, |n| n < 1).expect("written");
    let (saved, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|s| {
        let savers: Vec<_> = (1..4u64)
            .map(|t| {
                let (dir, saved) = (dir.path(), &saved);
                s.spawn(move || {
                    save_on(dir, t * 1000, |n| n < t * 1000 + 25).map(|()| saved.fetch_add(1, Ordering::SeqCst))
                })
            })
            .collect();
        let loader = s.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                assert_whole(dir.path());
            }
        });
        let ended: Vec<_> = savers.into_iter().map(|t| t.join()).collect();
        // first of all, or a save that failed leaves the loader running
        is_over.store(true, Ordering::SeqCst);
        loader.join().expect("every load is whole");
        for save in ended {
            save.expect("no panic").expect("every save succeeds");
        }
    });
    assert_eq!((saved.into_inner(), temporaries(dir.path())), (3, 0));
}

#[test]
fn a_process_that_saves_until_it_is_killed() {
    let Ok(dir) = std::env::var(FOLDER) else { return };
    save_on(Path::new(&dir), u64::from(std::process::id() % 1000) * 1000, |_| true).expect("every save succeeds");
}

fn saver(dir: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "saving::a_process_that_saves_until_it_is_killed"])
        .env(FOLDER, dir)
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts")
}

#[test]
fn processes_killed_while_they_save_leave_whole_checkpoints_and_what_they_left_goes() {
    let dir = tempfile::tempdir().expect("a directory");
    save_on(dir.path(), 0, |n| n < 1).expect("written");
    let mut savers: Vec<Child> = (0..3).map(|_| saver(dir.path())).collect();
    for kill in 0..12u64 {
        for _ in 0..20 {
            assert_whole(dir.path());
            std::thread::sleep(Duration::from_millis(5 + kill));
        }
        let mut dead = std::mem::replace(&mut savers[kill as usize % 3], saver(dir.path()));
        dead.kill().expect("it ran until now");
        assert_eq!(dead.wait().expect("it is dead").code(), None, "no save failed before");
    }
    for mut s in savers {
        s.kill().and_then(|()| s.wait()).expect("it ran until now");
    }
    assert_whole(dir.path());
    assert!(Checkpoint::load(&dir).expect("whole").train.step >= 1, "others have saved");
    // as left behind long ago, and one more, should no kill have hit a save
    fs::write(dir.path().join(format!(".{FILE_NAME}.1")), b"torn").expect("written");
    let then = SystemTime::now() - Duration::from_secs(3600);
    for e in fs::read_dir(dir.path()).expect("there").flatten() {
        fs::File::options().write(true).open(e.path()).and_then(|f| f.set_modified(then)).expect("ours");
    }
    save_on(dir.path(), 7, |n| n < 8).expect("written");
    assert_eq!(temporaries(dir.path()), 0);
    assert_whole(dir.path());
}

#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_refused_unread() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join(FILE_NAME);
    std::os::unix::fs::symlink("/dev/zero", &file).expect("linked");
    let e = Checkpoint::load(&dir).expect_err("it has no end");
    assert!(e.message().contains("not a regular file") && e.message().contains(FILE_NAME), "{e}");
    fs::remove_file(&file).expect("ours");
    assert!(Command::new("mkfifo").arg(&file).status().expect("mkfifo is there").success());
    assert!(Checkpoint::load(&dir).expect_err("nobody writes").message().contains("not a regular file"));
    assert!(Checkpoint::is_in(&dir));
}
