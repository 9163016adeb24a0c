//! How a file becomes the checkpoint of a folder: written whole under a name of its own, then renamed.
//!
//! Any number of threads, processes and containers may save to one folder. Each writes to a file that it alone made, under
//! a random name, and a rename puts it in the place of whatever is there: the last one wins, and each is whole. A writer
//! holds a lock on its file, which the system lets go when it dies; what lies there without a lock and was not written to
//! for a while is removed by the next save. The age is for the moment between making a file and locking it, and for systems
//! whose locks fail: nothing is removed there.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use tempfile::NamedTempFile;

use super::FILE_NAME;

/// A file of a dead writer stays at least so long.
const STALE_AFTER: Duration = Duration::from_secs(600);
/// Random characters of a name.
const RANDOM: usize = 16;

fn prefix() -> String {
    format!(".{FILE_NAME}.")
}

/// A new file in `dir`, which is made if it is not there, to write a checkpoint to. Files of dead writers go.
pub(super) fn begin(dir: &Path) -> io::Result<NamedTempFile> {
    make(dir)?;
    let mut builder = tempfile::Builder::new();
    let prefix = prefix();
    builder.prefix(&prefix).rand_bytes(RANDOM);
    // as any file that a program makes, not for its owner alone; the user's mask still applies
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let file = builder.tempfile_in(dir)?;
    // a system without locks removes no file, and the file is written all the same
    let _ = file.as_file().try_lock();
    // housekeeping: a failure harms no checkpoint
    let _ = sweep(dir, file.as_file().metadata()?.modified()?);
    Ok(file)
}

/// Makes the written file the checkpoint of `dir`, in one step. Then the file and its name are on the disk.
pub(super) fn publish(file: NamedTempFile, dir: &Path) -> io::Result<()> {
    file.as_file().sync_all()?;
    file.persist(dir.join(FILE_NAME)).map_err(|e| e.error)?;
    File::open(dir)?.sync_all()
}

fn make(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(dir)?;
    match dir.parent().filter(|p| !p.as_os_str().is_empty()) {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// Removes files of writers that died. `now` is by the file system's own clock.
fn sweep(dir: &Path, now: SystemTime) -> io::Result<()> {
    for entry in fs::read_dir(dir)?.flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|n| n.starts_with(&prefix()));
        // a link is no file: its target is not looked at
        if !is_ours || !entry.file_type().is_ok_and(|t| t.is_file()) {
            continue;
        }
        let age = entry.metadata()?.modified().map(|then| now.duration_since(then).unwrap_or_default());
        if age.is_ok_and(|age| age >= STALE_AFTER) && is_abandoned(&entry.path()) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// True if nobody holds the lock on a file; false on a system without locks.
fn is_abandoned(path: &Path) -> bool {
    match File::open(path).map(|f| f.try_lock()) {
        Ok(Ok(())) => true,
        Ok(Err(TryLockError::WouldBlock | TryLockError::Error(_))) | Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let all = fs::read_dir(dir).expect("a folder").flatten();
        let mut all: Vec<String> = all.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        all.sort();
        all
    }

    fn age(path: &Path, by: Duration) {
        let then = SystemTime::now() - by;
        File::options().write(true).open(path).and_then(|f| f.set_modified(then)).expect("ours");
    }

    #[test]
    fn files_of_dead_writers_go_and_those_of_living_ones_stay() {
        let dir = tempfile::tempdir().expect("a folder");
        let living = begin(dir.path()).expect("writable");
        let old = STALE_AFTER + Duration::from_secs(1);
        age(living.path(), old);
        let dead = dir.path().join(format!("{}123", prefix()));
        let young = dir.path().join(format!("{}124", prefix()));
        let other = dir.path().join("notes");
        for (path, by) in [(&dead, old), (&young, Duration::from_secs(9)), (&other, old)] {
            fs::write(path, b"x").expect("written");
            age(path, by);
        }
        drop(begin(dir.path()).expect("writable"));
        assert!(
            !dead.exists() && young.exists() && other.exists() && living.path().exists(),
            "{:?}",
            names(dir.path())
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_link_at_the_name_of_a_temporary_is_neither_followed_nor_removed() {
        let dir = tempfile::tempdir().expect("a folder");
        let outside = tempfile::NamedTempFile::new().expect("a file");
        age(outside.path(), STALE_AFTER * 2);
        let link = dir.path().join(format!("{}{}", prefix(), std::process::id()));
        std::os::unix::fs::symlink(outside.path(), &link).expect("linked");
        let file = begin(dir.path()).expect("writable");
        assert_ne!(file.path(), link);
        assert!(link.is_symlink() && outside.path().exists());
    }

    #[cfg(unix)]
    #[test]
    fn what_is_published_can_be_read_by_others_as_any_file() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a folder");
        publish(begin(dir.path()).expect("writable"), dir.path()).expect("published");
        File::create(dir.path().join("plain")).expect("made");
        let mode = |n: &str| fs::metadata(dir.path().join(n)).expect("there").permissions().mode();
        assert_eq!(mode(FILE_NAME), mode("plain"));
        assert_eq!(names(dir.path()), [FILE_NAME, "plain"]);
    }
}
