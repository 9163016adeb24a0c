//! Shared parts of the fuzz targets: a heap that refuses more bytes than a file accounts for, mutations that keep a file's
//! form, and runs of small models.

pub mod archive;
pub mod header;
pub mod heap;
pub mod message;
pub mod model;
mod random;

pub use random::Random;

/// A fuzzer's own mutation of `size` bytes in a longer slice; gives the new size. The targets pass libFuzzer's.
pub type Plain<'f> = &'f mut dyn FnMut(&mut [u8], usize) -> usize;

/// Bytes changed by the fuzzer's own mutation, which may make them longer.
pub fn changed(bytes: &[u8], plain: Plain<'_>) -> Vec<u8> {
    let mut room = bytes.to_vec();
    room.resize(bytes.len() + 64, 0);
    let n = plain(&mut room, bytes.len());
    room.truncate(n);
    room
}

/// Puts a mutated input where libFuzzer wants it; one that is too long stays as it was.
pub fn give(data: &mut [u8], size: usize, new: &[u8]) -> usize {
    match data.get_mut(..new.len()) {
        Some(to) if !new.is_empty() => {
            to.copy_from_slice(new);
            new.len()
        }
        _ => size,
    }
}
