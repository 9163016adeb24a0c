//! The novel that ships with the repository; see `crates/cli/data/README.md` for its source.

use std::io::Read;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::GzDecoder;
use remat::nn::Dataset;
use remat::types::{Error, ErrorKind, HostTensor, Result};

use crate::random::mixed;

static PACKED: &[u8] = include_bytes!("../../data/chars.txt.gz");

/// No text that this task is meant for is larger.
const MAX_BYTES: u64 = 1 << 28;
/// One part of the text in this many, the last, is for validation.
const TEST_SHARE: usize = 10;

/// A text as indices into the characters that occur in it.
pub(super) struct Text {
    tokens: Vec<u8>,
    vocabulary: Vec<u8>,
}

/// The text. Errors (Format) if the file has other contents.
pub(super) fn load() -> Result<Text> {
    parse(PACKED)
}

fn parse(packed: &[u8]) -> Result<Text> {
    let bad = |what: &str| Error::new(ErrorKind::Format, format!("chars: {what}"));
    let mut bytes = Vec::new();
    GzDecoder::new(packed).take(MAX_BYTES).read_to_end(&mut bytes).map_err(|e| bad(&e.to_string()))?;
    if bytes.is_empty() || !bytes.is_ascii() {
        return Err(bad("no ASCII text"));
    }
    Ok(Text::new(&bytes))
}

impl Text {
    fn new(bytes: &[u8]) -> Text {
        let mut vocabulary = bytes.to_vec();
        vocabulary.sort_unstable();
        vocabulary.dedup();
        let mut index = [0u8; 256];
        // At most 256 different bytes: the last index is 255.
        vocabulary.iter().enumerate().for_each(|(i, b)| index[usize::from(*b)] = i as u8);
        Text { tokens: bytes.iter().map(|b| index[usize::from(*b)]).collect(), vocabulary }
    }

    /// The characters, in order; a token is an index into them.
    pub(super) fn vocabulary(&self) -> &[u8] {
        &self.vocabulary
    }

    /// The characters of tokens, which are below the vocabulary's length.
    pub(super) fn decode(&self, tokens: &[u8]) -> String {
        tokens.iter().map(|t| char::from(self.vocabulary[usize::from(*t)])).collect()
    }

    /// The token of a character; 0 if it does not occur.
    pub(super) fn token(&self, c: u8) -> u8 {
        self.vocabulary.iter().position(|v| *v == c).map_or(0, |i| i as u8)
    }
}

/// Windows side by side of a part of a text: examples are a window, and the same moved on by one character.
#[derive(Clone)]
pub(super) struct Windows {
    text: Arc<Text>,
    part: Range<usize>,
    /// Characters of a window.
    places: usize,
    /// Begin each epoch's windows at another character, a function of this epoch.
    shifts: Option<Arc<AtomicU64>>,
}

impl Windows {
    /// The training and the validation windows. Errors (Value) if a part has no window of so many characters.
    pub(super) fn split(text: &Arc<Text>, places: usize) -> Result<(Windows, Windows)> {
        let (len, tested) = (text.tokens.len(), text.tokens.len() / TEST_SHARE);
        let part = |part: Range<usize>| Windows { text: text.clone(), part, places, shifts: None };
        let (train, test) = (part(0..len - tested), part(len - tested..len));
        if places == 0 || test.is_empty() || train.len() < 2 {
            let what = format!("a context of {places} characters does not go with a text of {len}");
            return Err(Error::new(ErrorKind::Value, what));
        }
        Ok((train, test))
    }

    /// The same part, cut into other windows in each epoch; the caller stores the epoch in the value that comes back.
    pub(super) fn shifted(&self) -> (Windows, Arc<AtomicU64>) {
        let epoch = Arc::new(AtomicU64::new(0));
        (Windows { shifts: Some(epoch.clone()), ..self.clone() }, epoch)
    }

    /// Where the first window begins, in `0 .. places`.
    fn shift(&self) -> usize {
        let epoch = self.shifts.as_ref().map(|e| e.load(Ordering::Relaxed));
        epoch.map_or(0, |e| (mixed(e) % self.places as u64) as usize)
    }
}

impl Dataset for Windows {
    /// The last window leaves room for any shift and for the character behind it.
    fn len(&self) -> usize {
        (self.part.len().saturating_sub(1) / self.places.max(1)).saturating_sub(usize::from(self.shifts.is_some()))
    }

    /// Characters `[n, places]` and those that follow them, as u8.
    fn batch(&self, indices: &[usize]) -> Result<Vec<HostTensor>> {
        let (n, shift) = (indices.len(), self.shift());
        let rows = |behind: usize| {
            let mut all = Vec::with_capacity(n * self.places);
            for i in indices {
                let from = self.part.start + shift + i * self.places + behind;
                all.extend_from_slice(&self.text.tokens[from..from + self.places]);
            }
            HostTensor::from_slice(&all, [n, self.places])
        };
        Ok(vec![rows(0)?, rows(1)?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_novel_is_there() {
        let text = load().expect("ships with the repository");
        assert_eq!((text.tokens.len(), text.vocabulary().len()), (682_268, 75));
        assert!(text.decode(&text.tokens).contains("\nIt is a truth universally acknowledged, that a single man"));
        assert_eq!(text.decode(&[text.token(b'q')]), "q");
    }

    #[test]
    fn a_window_is_followed_by_its_next_characters() {
        let text = Arc::new(Text::new(b"abcdefghijklmnopqrstuvwxyzabcdefghijklmn"));
        let (train, test) = Windows::split(&text, 3).expect("fits");
        assert_eq!((train.len(), test.len()), (11, 1), "36 and 4 characters");
        let read = |w: &Windows, i: usize| {
            let b = w.batch(&[i]).expect("in range");
            b.iter().map(|t| text.decode(&t.to_vec::<u8>().expect("u8"))).collect::<Vec<_>>()
        };
        assert_eq!(read(&train, 1), ["def", "efg"]);
        assert_eq!(read(&test, 0), ["klm", "lmn"]);
        let (shifted, epoch) = train.shifted();
        assert_eq!(shifted.len(), 10);
        let mut first = Vec::new();
        for e in 0..20 {
            epoch.store(e, Ordering::Relaxed);
            first.push(read(&shifted, 0)[0].clone());
            let last = read(&shifted, 9)[1].clone();
            assert!(["cde", "def", "efg"].contains(&last.as_str()), "{last}");
        }
        for begin in ["abc", "bcd", "cde"] {
            assert!(first.iter().any(|f| f == begin), "{begin} of {first:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        assert_eq!(parse(b"nothing").err().map(|e| e.kind()), Some(ErrorKind::Format));
        assert_eq!(parse(&PACKED[..PACKED.len() / 2]).err().map(|e| e.kind()), Some(ErrorKind::Format));
        let text = Arc::new(Text::new(&[b'a'; 40]));
        assert_eq!(
            Windows::split(&text, 4).err().map(|e| e.kind()),
            Some(ErrorKind::Value),
            "4 of 4 leave none behind"
        );
        assert_eq!(Windows::split(&text, 0).err().map(|e| e.kind()), Some(ErrorKind::Value));
    }
}
