//! Random keys of a pass that runs twice: the first run notes its keys, and the second gets the same keys.
//!
//! A compiled function draws keys anew before every run, the first pass's before those of the second: so the note is not a key
//! but a place for one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use remat_types::context::Part;
use remat_types::{Error, ErrorKind, Result};

/// The place of the words of a key.
pub(crate) type Key = Arc<Mutex<[u64; 2]>>;

/// Where a key comes from.
pub(crate) enum Source {
    /// Drawn, and put into the place, if there is one, for a pass that is made again.
    Drawn(Option<Key>),
    /// That of an earlier pass.
    Noted(Key),
}

enum Pass {
    /// Notes drawn keys.
    First(Vec<Key>),
    /// Draws the noted keys.
    Again(VecDeque<Key>),
}

/// The passes that a thread is in, the innermost last.
static PASSES: Part<Vec<Pass>> = Part::new();

/// Ends the innermost pass also where that panics.
struct Ends(bool);

impl Ends {
    fn begin(pass: Pass) -> Ends {
        PASSES.with(|p| p.push(pass));
        Ends(true)
    }

    fn end(mut self) -> Option<Pass> {
        self.0 = false;
        PASSES.with(Vec::pop)
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        if self.0 {
            drop(PASSES.with(Vec::pop));
        }
    }
}

/// A pass, and the keys that it draws.
pub(crate) fn noted<T>(f: impl FnOnce() -> Result<T>) -> Result<(T, Vec<Key>)> {
    let ends = Ends::begin(Pass::First(Vec::new()));
    let y = f()?;
    match ends.end() {
        Some(Pass::First(keys)) => Ok((y, keys)),
        _ => Err(Error::new(ErrorKind::Internal, "another pass than the one that began")),
    }
}

/// A pass with the keys of an earlier one. Errors: Internal if it draws more of them.
pub(crate) fn again<T>(keys: &[Key], f: impl FnOnce() -> Result<T>) -> Result<T> {
    let _ends = Ends::begin(Pass::Again(keys.iter().cloned().collect()));
    f()
}

/// Where the next key comes from: the innermost pass that is made again, or a draw; passes within it note it.
pub(crate) fn next() -> Result<Source> {
    PASSES.with(|passes| {
        let is_again = |p: &Pass| matches!(p, Pass::Again(_));
        let from = passes.iter().rposition(is_again);
        let noted = match from.map(|i| &mut passes[i]) {
            Some(Pass::Again(keys)) => {
                let lack = || Error::new(ErrorKind::Internal, "a pass that is made again draws more keys than before");
                Some(keys.pop_front().ok_or_else(lack)?)
            }
            Some(Pass::First(_)) | None => None,
        };
        let within = &mut passes[from.map_or(0, |i| i + 1)..];
        let key = noted.clone().or_else(|| (!within.is_empty()).then(Key::default));
        for p in within {
            if let (Pass::First(keys), Some(key)) = (p, &key) {
                keys.push(key.clone());
            }
        }
        Ok(noted.map_or(Source::Drawn(key), Source::Noted))
    })
}
