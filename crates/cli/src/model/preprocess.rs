//! Preprocessing of image files: resize, centre crop, and normalisation by the mean and the standard deviation of the training set.

use clap::ValueEnum;
use remat::types::{Error, ErrorKind, HostTensor, Result, vec_for};
use remat_lite::{Extent, Port, ValueType};
use serde_json::Value as Json;

use super::picture::Picture;
use super::value::{cast, dtype};

/// A recipe of preprocessing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Preprocess {
    /// Numbers of 0 to 1 of the picture as it is
    None,
    /// Shorter side to 256, the middle of 224x224, less the mean of ImageNet's colours and over their deviation
    Imagenet,
}

/// Mean and standard deviation of ImageNet's red, green and blue, of 0 to 1, as its networks are trained with
/// (<https://docs.pytorch.org/vision/stable/models.html>).
const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const STD: [f32; 3] = [0.229, 0.224, 0.225];
/// Extents of what a network sees, if neither the model nor its metadata say them.
const CROP: usize = 224;
/// The shorter side before the cut, as a share of the cut: 256 of 224.
const SIZE_OF_CROP: f64 = 256.0 / 224.0;
/// Larger extents than any network takes.
const MOST_EXTENT: usize = 1 << 14;

/// The figures: the model's metadata first, then the declaration of its input, then ImageNet's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Figures {
    /// The shorter side after the picture was made smaller or larger.
    size: usize,
    /// Height and width of the part in the middle that is seen.
    crop: [usize; 2],
    mean: [f32; 3],
    std: [f32; 3],
    /// `[1, height, width, colours]`, as exporters of TensorFlow write it.
    colours_last: bool,
}

/// Keys of metadata, as torchvision's, timm's and Transformers' configurations call them.
const MEANS: &[&str] = &["mean", "image_mean"];
const STDS: &[&str] = &["std", "image_std"];
const CROPS: &[&str] = &["crop_size", "input_size"];
const SIZES: &[&str] = &["resize_size", "size"];
const SHARE: &str = "crop_pct";

fn wrong(key: &str, text: &str, must: &str) -> Error {
    Error::new(ErrorKind::Value, format!("the model's metadata has `{key}` as `{text}`, which must be {must}"))
}

/// Parses the numbers of a metadata entry: a JSON number, array or object (`shortest_edge`, or `height` and `width`), or numbers
/// separated by commas or spaces. `None` if it is none of these.
fn numbers(text: &str) -> Option<Vec<f64>> {
    let parsed: Option<Json> = serde_json::from_str(text).ok();
    let all: Option<Vec<f64>> = match &parsed {
        Some(Json::Number(n)) => n.as_f64().map(|n| vec![n]),
        Some(Json::Array(all)) => all.iter().map(Json::as_f64).collect(),
        Some(Json::Object(all)) => {
            let of = |key: &str| all.get(key).and_then(Json::as_f64);
            of("shortest_edge").map(|n| vec![n]).or_else(|| Some(vec![of("height")?, of("width")?]))
        }
        _ => {
            let parts = text.trim_matches(['(', ')', '[', ']']).split([',', ' ']).filter(|t| !t.is_empty());
            parts.map(|t| t.parse().ok()).collect()
        }
    };
    all.filter(|v| !v.is_empty() && v.iter().all(|n| n.is_finite()))
}

/// The first of these keys that there is, and its text.
fn found<'m>(metadata: &'m [(String, String)], keys: &[&str]) -> Option<(&'m str, &'m str)> {
    keys.iter().find_map(|key| metadata.iter().find(|(k, _)| k == key)).map(|(k, v)| (&**k, &**v))
}

fn colours(metadata: &[(String, String)], keys: &[&str], usual: [f32; 3]) -> Result<[f32; 3]> {
    let Some((key, text)) = found(metadata, keys) else { return Ok(usual) };
    let three = numbers(text).and_then(|v| <[f64; 3]>::try_from(v).ok());
    // in f32, since networks were trained with it
    three.map(|v| v.map(|n| n as f32)).ok_or_else(|| wrong(key, text, "three numbers"))
}

fn extent(n: f64) -> Option<usize> {
    (n.fract() == 0.0 && n >= 1.0 && n <= MOST_EXTENT as f64).then_some(n as usize)
}

impl Figures {
    /// For an input of a model with this metadata. Errors (Value): an input that takes no pictures; metadata that say other than numbers.
    pub(super) fn of(port: &Port, metadata: &[(String, String)]) -> Result<Figures> {
        let no_picture = || {
            let text =
                format!("`--preprocess imagenet` is for pictures of three colours, and the input is {}", port.ty);
            Error::new(ErrorKind::Value, text)
        };
        let ValueType::Tensor(_, declared) = &port.ty else { return Err(no_picture()) };
        let fixed: Vec<Option<usize>> = match declared {
            Some(extents) => extents.iter().map(Extent::fixed).collect(),
            None => vec![None; 4],
        };
        let [_, a, b, c] = fixed[..] else { return Err(no_picture()) };
        let colours_last = a != Some(3) && c == Some(3);
        let [depth, height, width] = if colours_last { [c, a, b] } else { [a, b, c] };
        if depth.is_some_and(|n| n != 3) {
            return Err(no_picture());
        }
        let crop = match found(metadata, CROPS) {
            None => [height.unwrap_or(CROP), width.unwrap_or(CROP)],
            Some((key, text)) => {
                let all = numbers(text).and_then(|v| v.into_iter().map(extent).collect::<Option<Vec<usize>>>());
                match all.as_deref() {
                    Some([n]) => [*n; 2],
                    // a third one in front is the colours
                    Some([.., h, w]) => [*h, *w],
                    _ => return Err(wrong(key, text, "one or two extents")),
                }
            }
        };
        let least = crop[0].min(crop[1]) as f64;
        let size = match (found(metadata, SIZES), found(metadata, &[SHARE])) {
            (Some((key, text)), _) => {
                let all = numbers(text).and_then(|v| v.into_iter().map(extent).collect::<Option<Vec<usize>>>());
                all.and_then(|v| v.into_iter().min()).ok_or_else(|| wrong(key, text, "an extent"))?
            }
            (None, Some((key, text))) => {
                let share = numbers(text).filter(|v| v.len() == 1 && v[0] > 0.0 && v[0] <= 1.0);
                (least / share.ok_or_else(|| wrong(key, text, "a number of 0 to 1"))?[0]).floor() as usize
            }
            (None, None) => (least * SIZE_OF_CROP).round() as usize,
        };
        if size > MOST_EXTENT || crop.iter().any(|n| *n > size) && crop[0] == crop[1] {
            let text = format!("a picture whose shorter side is {size} has no part of {}x{}", crop[0], crop[1]);
            return Err(Error::new(ErrorKind::Value, text));
        }
        Ok(Figures {
            size,
            crop,
            mean: colours(metadata, MEANS, MEAN)?,
            std: colours(metadata, STDS, STD)?,
            colours_last,
        })
    }

    /// In words.
    pub(super) fn text(&self) -> String {
        let [h, w] = self.crop;
        let list = |v: [f32; 3]| v.map(|n| n.to_string()).join(" ");
        format!(
            "shorter side to {}, the middle {h}x{w}, mean {}, deviation {}",
            self.size,
            list(self.mean),
            list(self.std)
        )
    }

    /// The picture as the input takes it. Integers are of 0 to 255, whatever mean and deviation. Errors: Value for a part that is larger
    /// than the picture; Io without memory.
    pub(super) fn apply(&self, picture: &Picture, port: &Port) -> Result<HostTensor> {
        let [ch, cw] = self.crop;
        let (short, long) = (picture.height.min(picture.width), picture.height.max(picture.width));
        // as torchvision has it: the longer side is rounded down
        let scaled =
            |n: usize| if n == short { self.size } else { (self.size as u64 * long as u64 / short as u64) as usize };
        let [h, w] = [scaled(picture.height), scaled(picture.width)];
        if h < ch || w < cw || h.max(w) > MOST_EXTENT {
            let text = format!(
                "a picture of {}x{} becomes one of {h}x{w}, which has no part of {ch}x{cw}",
                picture.height, picture.width
            );
            return Err(Error::new(ErrorKind::Value, text));
        }
        let resized = resize(picture, h, w)?;
        let [top, left] = [middle(h, ch), middle(w, cw)];
        let dtype = dtype(port)?;
        let mut numbers: Vec<f32> = vec_for(3 * ch * cw)?;
        let at = |y: usize, x: usize, c: usize| {
            // grey is of all colours the same
            let c = if resized.colours == 1 { 0 } else { c };
            f32::from(resized.points[((top + y) * w + left + x) * resized.colours + c])
        };
        let number = |c: usize, p: f32| if dtype.is_float() { (p / 255.0 - self.mean[c]) / self.std[c] } else { p };
        let shape = if self.colours_last {
            for (y, x) in (0..ch).flat_map(|y| (0..cw).map(move |x| (y, x))) {
                numbers.extend((0..3).map(|c| number(c, at(y, x, c))));
            }
            [1, ch, cw, 3]
        } else {
            for c in 0..3 {
                numbers.extend((0..ch).flat_map(|y| (0..cw).map(move |x| (y, x))).map(|(y, x)| number(c, at(y, x, c))));
            }
            [1, 3, ch, cw]
        };
        cast(&HostTensor::from_slice(&numbers, shape)?, dtype)
    }
}

/// Where a part of `part` places begins in the middle of `n`; a half is rounded to even, as torchvision's `center_crop` has it.
fn middle(n: usize, part: usize) -> usize {
    ((n - part) as f64 / 2.0).round_ties_even() as usize
}

/// For each place of an axis of `n` the first place of the `from` that it is made of, and their shares: a triangle as wide as a place of the
/// result, or as one of the picture if that is wider. That is Pillow's bilinear filter, by which torchvision makes pictures smaller.
fn shares(from: usize, n: usize) -> Vec<(usize, Vec<f32>)> {
    let scale = from as f64 / n as f64;
    let support = scale.max(1.0);
    let of = |i: usize| {
        let centre = (i as f64 + 0.5) * scale;
        let first = (centre - support + 0.5).max(0.0) as usize;
        let end = ((centre + support + 0.5) as usize).min(from);
        let weight = |k: usize| (1.0 - ((k as f64 - centre + 0.5) / support).abs()).max(0.0);
        let all: Vec<f64> = (first..end).map(weight).collect();
        let sum: f64 = all.iter().sum();
        (first, all.into_iter().map(|v| (v / sum) as f32).collect())
    };
    (0..n).map(of).collect()
}

/// The picture in another size, along one axis and then the other, rounded to 8 bits after each as Pillow does.
fn resize(p: &Picture, height: usize, width: usize) -> Result<Picture> {
    let c = p.colours;
    let rounded = |v: f32| (v + 0.5).clamp(0.0, 255.0) as u8;
    let mut wide: Vec<u8> = vec_for(p.height * width * c)?;
    let columns = shares(p.width, width);
    for row in p.points.chunks_exact(p.width * c) {
        for (first, shares) in &columns {
            for k in 0..c {
                let sum = shares.iter().enumerate().map(|(i, s)| s * f32::from(row[(first + i) * c + k])).sum();
                wide.push(rounded(sum));
            }
        }
    }
    let mut points: Vec<u8> = vec_for(height * width * c)?;
    for (first, shares) in shares(p.height, height) {
        for x in 0..width * c {
            let sum = shares.iter().enumerate().map(|(i, s)| s * f32::from(wide[(first + i) * width * c + x])).sum();
            points.push(rounded(sum));
        }
    }
    Ok(Picture { height, width, colours: c, points })
}

#[cfg(test)]
mod tests {
    use remat::types::DType;

    use super::*;

    fn port(dtype: DType, extents: [Option<usize>; 4]) -> Port {
        let extents = extents.map(|n| n.map_or(Extent::Open, Extent::Fixed)).to_vec();
        Port { name: "x".into(), ty: ValueType::Tensor(Some(dtype), Some(extents)), has_default: false }
    }

    fn images() -> Port {
        port(DType::F32, [None, Some(3), Some(224), Some(224)])
    }

    /// `(7 y + 3 x + 50 c) % 256`.
    fn pattern(height: usize, width: usize) -> Picture {
        let at = |i: usize| ((7 * (i / 3 / width) + 3 * (i / 3 % width) + 50 * (i % 3)) % 256) as u8;
        Picture { height, width, colours: 3, points: (0..height * width * 3).map(at).collect() }
    }

    fn metadata(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn figures_are_the_metadata_s_where_there_are_some() {
        let of = |pairs: &[(&str, &str)]| Figures::of(&images(), &metadata(pairs));
        let usual = of(&[]).expect("ImageNet's");
        assert_eq!((usual.size, usual.crop, usual.mean, usual.std), (256, [224, 224], MEAN, STD));
        let own =
            of(&[("mean", "[0.5, 0.5, 0.5]"), ("image_std", "0.25 0.5 0.75"), ("crop_pct", "0.95")]).expect("own");
        assert_eq!((own.size, own.mean, own.std), (235, [0.5; 3], [0.25, 0.5, 0.75]));
        let own = of(&[("input_size", "(3, 288, 288)"), ("size", r#"{"shortest_edge": 320}"#)]).expect("own");
        assert_eq!((own.size, own.crop), (320, [288, 288]));
        let last = Figures::of(&port(DType::F32, [None, Some(299), Some(299), Some(3)]), &[]).expect("colours last");
        assert!(last.colours_last && last.crop == [299, 299] && last.size == 342);
        for (key, value) in [("mean", "0.5"), ("std", "a b c"), ("crop_size", "0"), ("size", "1e9"), ("crop_pct", "2")]
        {
            let e = of(&[(key, value)]).expect_err(key);
            assert!(e.kind() == ErrorKind::Value && e.message().contains(key), "{e}");
        }
        assert!(Figures::of(&port(DType::F32, [None, Some(1), Some(28), Some(28)]), &[]).is_err());
    }

    #[test]
    fn a_picture_becomes_what_torchvision_makes_of_it() {
        // scripts/preprocess_reference.py made these: mean of each colour, and five numbers on a diagonal
        let t = Figures::of(&images(), &[]).and_then(|f| f.apply(&pattern(300, 400), &images())).expect("a tensor");
        assert_eq!(t.shape().dims(), [1, 3, 224, 224]);
        let v = t.as_slice::<f32>().expect("f32");
        for (c, (mean, diagonal)) in REFERENCE.iter().enumerate() {
            let plane = &v[c * 224 * 224..(c + 1) * 224 * 224];
            let got = plane.iter().sum::<f32>() / plane.len() as f32;
            assert!((got - mean).abs() < 2e-3, "colour {c}: {got}, not {mean}");
            // a step of 8 bits is 0.0175
            for (i, want) in diagonal.iter().enumerate() {
                let got = plane[i * 50 * 225];
                assert!((got - want).abs() < 0.018, "colour {c} at {i}: {got}, not {want}");
            }
        }
    }

    #[test]
    fn integers_are_cut_and_not_moved_and_grey_is_of_three_colours() {
        let bytes = port(DType::U8, [Some(1), Some(4), Some(4), Some(3)]);
        let figures = Figures::of(&bytes, &metadata(&[("size", "4")])).expect("figures");
        let grey = Picture { height: 4, width: 6, colours: 1, points: (0..24).collect() };
        let t = figures.apply(&grey, &bytes).expect("a tensor");
        assert_eq!(t.shape().dims(), [1, 4, 4, 3]);
        let v = t.as_slice::<u8>().expect("u8");
        assert_eq!(v[..6], [1, 1, 1, 2, 2, 2]);
        assert_eq!(v[47], 22);
    }

    /// See above.
    const REFERENCE: &[(f32, [f32; 5])] = &[
        (0.06535, [-0.7479, 0.5193, 1.7865, -1.3302, -0.0458]),
        (0.19683, [0.2402, 1.5357, -1.6506, -0.3550, 0.9580]),
        (0.41872, [1.3328, 0.6356, -0.5495, 0.7402, 2.0474]),
    ];
}
