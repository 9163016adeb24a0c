//! The recorded cases: `scripts/record_models.py` writes them, and says what its rules for inputs mean.

use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine;
use remat_lite::{HostTensor, Result};
use serde::Deserialize;

/// A model, with inputs and what ONNX Runtime gives for them.
#[derive(Debug, Deserialize)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// The package that carries the model; none for one that lies beside the cases.
    pub(crate) package: Option<String>,
    /// The model's place in the package.
    #[serde(default)]
    pub(crate) member: String,
    #[serde(default)]
    pub(crate) sha256: String,
    /// The model beside the cases.
    pub(crate) file: Option<String>,
    pub(crate) inputs: Vec<Input>,
    pub(crate) outputs: Vec<Output>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Input {
    pub(crate) name: String,
    rule: String,
    dtype: String,
    pub(crate) shape: Vec<usize>,
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    low: f64,
    #[serde(default)]
    high: f64,
    #[serde(default)]
    values: Vec<i64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Output {
    pub(crate) name: String,
    pub(crate) dtype: String,
    pub(crate) shape: Vec<usize>,
    #[serde(default)]
    pub(crate) stride: usize,
    #[serde(default)]
    pub(crate) sum: f64,
    #[serde(default)]
    pub(crate) absolute: f64,
    #[serde(default)]
    pub(crate) largest: f64,
    sample: Sample,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Sample {
    /// Bytes of numbers, in base64.
    Numbers(String),
    Text(Vec<String>),
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/real")
}

fn unpacked(name: &str) -> Vec<u8> {
    let packed = std::fs::read(folder().join(name)).expect("a file of the repository");
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut bytes).expect("whole");
    bytes
}

pub(crate) fn all() -> Vec<Case> {
    let text = String::from_utf8(unpacked("cases.jsonl.gz")).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("a case")).collect()
}

impl Case {
    /// The bytes of a model that lies beside the cases.
    pub(crate) fn own_file(&self) -> Option<Vec<u8>> {
        self.file.as_ref().map(|name| unpacked(name))
    }
}

/// Sebastiano Vigna's generator: number `i` of a seed.
pub(crate) fn splitmix64(seed: u64, i: usize) -> u64 {
    let mut z = seed.wrapping_add((i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Input {
    /// The tensor that the rule says.
    pub(crate) fn tensor(&self) -> Result<HostTensor> {
        let n: usize = self.shape.iter().product();
        let shape = self.shape.as_slice();
        let unit = |i: usize| (splitmix64(self.seed, i) >> 40) as f32 / (1u32 << 24) as f32;
        let integer = |i: usize| match self.rule.as_str() {
            "values" => self.values[i],
            "below" => (splitmix64(self.seed, i) % self.high as u64) as i64,
            other => panic!("`{other}` makes no integers"),
        };
        let real = |i: usize| match self.rule.as_str() {
            "uniform" => self.low as f32 + (self.high as f32 - self.low as f32) * unit(i),
            "voice" => {
                let period = self.high as usize;
                (i % period) as f32 / period as f32 - 0.5 + (unit(i) - 0.5) / 8.0
            }
            "glyphs" => self.glyphs(i),
            other => panic!("`{other}` makes no floats"),
        };
        match self.dtype.as_str() {
            "i64" => HostTensor::from_slice(&(0..n).map(integer).collect::<Vec<i64>>(), shape),
            "i32" => HostTensor::from_slice(&(0..n).map(|i| integer(i) as i32).collect::<Vec<i32>>(), shape),
            "f32" => HostTensor::from_slice(&(0..n).map(real).collect::<Vec<f32>>(), shape),
            other => panic!("no rule makes {other}"),
        }
    }

    fn glyphs(&self, i: usize) -> f32 {
        let [.., h, w] = self.shape[..] else { panic!("a picture has two axes") };
        let (line, i) = (self.high as usize, i % (h * w));
        let (y, x) = (i / w, i % w);
        let is_line = (line / 4..3 * line / 4).contains(&(y % line));
        let is_ink = is_line && splitmix64(self.seed, (y / 4) * (w / 4 + 1) + x / 4) >> 63 == 1;
        if is_ink { -1.0 } else { 1.0 }
    }
}

impl Output {
    /// The recorded elements: every `stride`-th.
    pub(crate) fn numbers(&self) -> Vec<f64> {
        let Sample::Numbers(text) = &self.sample else { panic!("`{}` is of strings", self.name) };
        let bytes = base64::engine::general_purpose::STANDARD.decode(text).expect("base64");
        match self.dtype.as_str() {
            "f32" => bytes.as_chunks::<4>().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect(),
            "i64" => bytes.as_chunks::<8>().0.iter().map(|b| i64::from_le_bytes(*b) as f64).collect(),
            other => panic!("no output is of {other}"),
        }
    }

    /// The recorded strings, if it is of strings.
    pub(crate) fn text(&self) -> Option<&[String]> {
        match &self.sample {
            Sample::Text(all) => Some(all),
            Sample::Numbers(_) => None,
        }
    }
}
