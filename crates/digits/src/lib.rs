//! Ten thousand handwritten digits that ship with the repository, as a dataset; `data/README.md` says their source and format.
//!
//! The command line and the Python package train on them: one reader, so that both see the same batches bit for bit.
#![forbid(unsafe_code)]

use std::io::Read;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::GzDecoder;
use remat_nn::Dataset;
use remat_types::{DType, Error, ErrorKind, HostTensor, Result};

static PACKED: &[u8] = include_bytes!("../data/digits.bin.gz");

const MAGIC: &[u8; 8] = b"RMDIGITS";
const HEADER_BYTES: usize = 28;
/// Mean and standard deviation of the training pixels, from the data's README.
const MEAN: f32 = 0.1311;
const STD: f32 = 0.3087;
/// No data set that this format is meant for is larger; a wrong header asks for no more than this.
const MAX_BYTES: u64 = 1 << 30;

/// One part of the data: training or test. A batch is images `f32 [n, 1, 28, 28]`, normalised to mean 0 and deviation 1, and
/// labels `i64 [n]`.
///
/// ```
/// use remat_nn::Dataset;
/// let (train, test) = remat_digits::load()?;
/// assert_eq!((train.len(), test.len()), (9000, 1000));
/// assert_eq!(test.batch(&[0, 1])?[0].shape().dims(), [2, 1, 28, 28]);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[derive(Clone)]
pub struct Digits {
    /// The whole unpacked file, shared between the parts.
    file: Arc<Vec<u8>>,
    /// Where this part's labels and pixels lie in it.
    labels: Range<usize>,
    pixels: Range<usize>,
    rows: usize,
    cols: usize,
    /// Shift each image by a few pixels that are a function of this epoch and the image.
    shifts: Option<Arc<AtomicU64>>,
}

/// Training images move by up to this many pixels each way: the network sees another image in every epoch.
const SHIFT_PIXELS: i64 = 2;

/// The training and the test digits. Errors (Format) if the file is not what it claims.
pub fn load() -> Result<(Digits, Digits)> {
    parse(PACKED)
}

fn parse(packed: &[u8]) -> Result<(Digits, Digits)> {
    let bad = |what: &str| Error::new(ErrorKind::Format, format!("digits: {what}"));
    let mut all = Vec::new();
    GzDecoder::new(packed).take(MAX_BYTES).read_to_end(&mut all).map_err(|e| bad(&e.to_string()))?;
    if all.len() < HEADER_BYTES || &all[..8] != MAGIC {
        return Err(bad("no header"));
    }
    let word = |i: usize| {
        let at = 8 + 4 * i;
        u32::from_le_bytes([all[at], all[at + 1], all[at + 2], all[at + 3]]) as usize
    };
    let (version, train, test, rows, cols) = (word(0), word(1), word(2), word(3), word(4));
    if version != 1 {
        return Err(bad(&format!("version {version}, expected 1")));
    }
    let pixels = rows.checked_mul(cols).and_then(|p| p.checked_add(1)?.checked_mul(train.checked_add(test)?));
    if pixels.and_then(|p| p.checked_add(HEADER_BYTES)) != Some(all.len()) {
        return Err(bad("the header's sizes disagree with the length"));
    }
    let images_at = HEADER_BYTES + train + test;
    if let Some(l) = all[HEADER_BYTES..images_at].iter().find(|l| **l > 9) {
        return Err(bad(&format!("label {l}")));
    }
    let file = Arc::new(all);
    let part = |from: usize, to: usize| Digits {
        file: file.clone(),
        labels: HEADER_BYTES + from..HEADER_BYTES + to,
        pixels: images_at + from * rows * cols..images_at + to * rows * cols,
        rows,
        cols,
        shifts: None,
    };
    Ok((part(0, train), part(train, train + test)))
}

impl Digits {
    /// Bytes of an example in a batch: its pixels and its label.
    pub fn example_bytes(&self) -> usize {
        self.rows * self.cols * DType::F32.size_bytes() + DType::I64.size_bytes()
    }

    /// The same digits, shifted anew in each epoch; the caller stores the epoch in the value that comes back.
    pub fn shifted(&self) -> (Digits, Arc<AtomicU64>) {
        let epoch = Arc::new(AtomicU64::new(0));
        (Digits { shifts: Some(epoch.clone()), ..self.clone() }, epoch)
    }

    /// Rows and columns that image `i` moves by.
    fn shift_of(&self, i: usize) -> (i64, i64) {
        let Some(epoch) = &self.shifts else { return (0, 0) };
        let r = mixed(epoch.load(Ordering::Relaxed) << 32 | i as u64);
        let span = 2 * SHIFT_PIXELS as u64 + 1;
        ((r % span) as i64 - SHIFT_PIXELS, (r / span % span) as i64 - SHIFT_PIXELS)
    }

    /// Appends image `i`, normalised.
    fn push_image(&self, i: usize, to: &mut Vec<f32>) {
        let (rows, cols) = (self.rows as i64, self.cols as i64);
        let image = &self.pixels()[i * self.rows * self.cols..(i + 1) * self.rows * self.cols];
        let (down, right) = self.shift_of(i);
        for row in 0..rows {
            for col in 0..cols {
                let (r, c) = (row - down, col - right);
                let inside = (0..rows).contains(&r) && (0..cols).contains(&c);
                let p = if inside { image[(r * cols + c) as usize] } else { 0 };
                to.push((f32::from(p) / 255.0 - MEAN) / STD);
            }
        }
    }

    fn labels(&self) -> &[u8] {
        &self.file[self.labels.clone()]
    }

    fn pixels(&self) -> &[u8] {
        &self.file[self.pixels.clone()]
    }
}

impl Dataset for Digits {
    fn len(&self) -> usize {
        self.labels().len()
    }

    /// Images `[n, 1, rows, cols]`, normalised, and labels `[n]` as i64.
    fn batch(&self, indices: &[usize]) -> Result<Vec<HostTensor>> {
        let size = self.rows * self.cols;
        let mut images = Vec::with_capacity(indices.len() * size);
        let mut labels = Vec::with_capacity(indices.len());
        for &i in indices {
            self.push_image(i, &mut images);
            labels.push(i64::from(self.labels()[i]));
        }
        Ok(vec![
            HostTensor::from_slice(&images, [indices.len(), 1, self.rows, self.cols])?,
            HostTensor::from_slice(&labels, [indices.len()])?,
        ])
    }
}

/// A number that is a function of `v`, and looks like chance: the finaliser of SplitMix64 (Steele et al., OOPSLA 2014).
pub fn mixed(v: u64) -> u64 {
    let v = v.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let v = (v ^ (v >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let v = (v ^ (v >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    v ^ (v >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_split_is_fixed() {
        let (train, test) = load().expect("ships with the repository");
        assert_eq!((train.len(), test.len()), (9000, 1000));
        for digit in 0..10 {
            assert_eq!(test.labels().iter().filter(|l| **l == digit).count(), 100, "digit {digit}");
        }
        let batch = train.batch(&[0, 8999]).expect("in range");
        assert_eq!(batch[0].shape().dims(), [2, 1, 28, 28]);
        assert_eq!(batch[1].to_vec::<i64>().expect("i64").len(), 2);
    }

    #[test]
    fn shifts_change_with_the_epoch_and_lose_no_ink_of_a_centred_digit() {
        let (train, _) = load().expect("ships with the repository");
        let (shifted, epoch) = train.shifted();
        let image = |d: &Digits| d.batch(&[5]).expect("in range")[0].clone();
        let first = image(&shifted);
        assert_eq!(first, image(&shifted), "a function of epoch and image");
        let others = (1..10).filter(|e| {
            epoch.store(*e, Ordering::Relaxed);
            image(&shifted) != first
        });
        assert!(others.count() >= 7);
        let ink = |t: &HostTensor| t.to_f64_vec().iter().sum::<f64>();
        assert!((ink(&first) - ink(&image(&train))).abs() < 1e-2, "MNIST digits keep a margin of four pixels");
    }

    #[test]
    fn damaged_files_are_errors() {
        assert_eq!(parse(b"nothing").err().map(|e| e.kind()), Some(ErrorKind::Format));
        assert_eq!(parse(&PACKED[..PACKED.len() / 2]).err().map(|e| e.kind()), Some(ErrorKind::Format));
    }
}
