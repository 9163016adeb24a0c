//! The work to measure, as it is written on the command line.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use remat_kernels::conv::Conv2d;

use crate::budget::MemoryBudget;
use crate::networks::{Network, Trained};

/// The forms of a work, for help and errors.
pub(super) const FORMS: &str =
    "  machine                           multiply-adds and memory streams, by number of threads
  matmul:MxKxN[:nt|:tn|:tt]         C[M,N] = A[M,K] B[K,N]; a `t` stores that operand transposed; --batch products
  conv:CxHxW-KkRsSpPdDgG[:dx|:dw]   C channels of HxW to K channels, kernel R, stride S, padding P, dilation D, groups G
                                    (R, S, P and D may be pairs such as k3x5; s1 p0 d1 g1 may be left out); :dx and :dw
                                    are the gradients of the input and of the weight; --batch images
  model:NAME                        a forward pass of mlp, resnet18, resnet50, mobilenetv2, gpt or bert
  train:NAME                        a training step of mlp, resnet18 (images of 64x64), resnet50 or gpt
  allreduce:BYTES                   a sum over ranks, beside MPI's own; under mpirun
  FILE.onnx                         a run of a model; --shape and --extent give extents that it leaves open";

/// A piece of work, and how it was written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Work {
    pub text: String,
    pub kind: Kind,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    Machine,
    /// Of so many bytes.
    AllReduce(usize),
    MatMul(MatMul),
    Conv(Conv),
    Network(Network),
    Model(PathBuf),
}

/// `C[m, n] = A[m, k] B[k, n]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MatMul {
    pub m: usize,
    pub k: usize,
    pub n: usize,
    /// Whether A and B are stored transposed.
    pub transposed: [bool; 2],
}

/// A convolution of one image, and which of its three products.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Conv {
    pub x: [usize; 3],
    pub k: usize,
    pub kernel: [usize; 2],
    pub stride: [usize; 2],
    pub pad: [usize; 2],
    pub dilation: [usize; 2],
    pub groups: usize,
    pub pass: Pass,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pass {
    Forward,
    InputGrad,
    WeightGrad,
}

impl Conv {
    /// The geometry for a batch. Errors as `Conv2d::new`.
    pub(super) fn geometry(&self, batch: usize) -> remat::types::Result<Conv2d> {
        let [c, h, w] = self.x;
        let group_c = if self.groups > 0 && c % self.groups == 0 { c / self.groups } else { c };
        let weight = [self.k, group_c, self.kernel[0], self.kernel[1]];
        Conv2d::new([batch, c, h, w], weight, self.stride, self.pad, self.dilation, self.groups)
    }
}

/// Why a work cannot be read.
#[derive(Debug)]
pub(super) struct Unreadable(String);

impl std::error::Error for Unreadable {}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; a work is one of\n{FORMS}", self.0)
    }
}

impl FromStr for Work {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Work, Unreadable> {
        let (kind, rest) = text.split_once(':').map_or((text, None), |(kind, rest)| (kind, Some(rest)));
        match (kind, rest) {
            ("machine", None) => Ok(Kind::Machine),
            ("allreduce", Some(rest)) => all_reduce(rest).map(Kind::AllReduce),
            ("matmul", Some(rest)) => matmul(rest).map(Kind::MatMul),
            ("conv", Some(rest)) => conv(rest).map(Kind::Conv),
            ("model", Some(name)) => Network::model(name).map(Kind::Network),
            ("train", Some(name)) => Network::step(name).map(Kind::Network).map_err(|e| with_tasks(e, name)),
            ("model" | "train", None) => Err(format!("`{kind}` needs a name after a colon")),
            ("matmul" | "conv" | "allreduce", None) => Err(format!("`{kind}` needs sizes after a colon")),
            _ if Path::new(text).extension().is_some_and(|e| e == "onnx") => Ok(Kind::Model(text.into())),
            _ => Err(format!("there is no work `{text}`")),
        }
        .map(|kind| Work { text: text.to_owned(), kind })
        .map_err(Unreadable)
    }
}

/// A task has a step too, which is timed where it is trained.
fn with_tasks(error: String, name: &str) -> String {
    match name.parse() {
        Ok(Trained::Task(_)) => format!("{error}; `remat train {name}` tells the time of its own"),
        _ => error,
    }
}

fn number(text: &str) -> Result<usize, String> {
    // `parse` would take a plus sign
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| digits).ok_or_else(|| format!("`{text}` is not a whole number"))
}

fn numbers<const N: usize>(text: &str) -> Result<[usize; N], String> {
    let all: Vec<usize> = text.split('x').map(number).collect::<Result<_, _>>()?;
    <[usize; N]>::try_from(all).map_err(|all| format!("`{text}` has {} sizes, it needs {N}", all.len()))
}

/// One number for both axes, or one for each.
fn pair(text: &str) -> Result<[usize; 2], String> {
    if text.contains('x') { numbers(text) } else { Ok([number(text)?; 2]) }
}

/// Bytes of f32.
fn all_reduce(text: &str) -> Result<usize, String> {
    const BYTES: std::ops::RangeInclusive<usize> = 4..=1 << 36;
    match text.parse() {
        Ok(MemoryBudget::Bytes(bytes)) if BYTES.contains(&bytes) => Ok(bytes),
        _ => Err(format!("`{text}` is no size from 4B to 64GiB")),
    }
}

fn matmul(text: &str) -> Result<MatMul, String> {
    let (sizes, form) = text.split_once(':').unwrap_or((text, "nn"));
    let [m, k, n] = numbers(sizes)?;
    if [m, k, n].contains(&0) {
        return Err(format!("a size of `{sizes}` is 0"));
    }
    let transposed = match form {
        "nn" => [false, false],
        "nt" => [false, true],
        "tn" => [true, false],
        "tt" => [true, true],
        _ => return Err(format!("`{form}` is none of nn, nt, tn, tt")),
    };
    Ok(MatMul { m, k, n, transposed })
}

fn conv(text: &str) -> Result<Conv, String> {
    let (sizes, pass) = text.split_once(':').unwrap_or((text, "forward"));
    let pass = match pass {
        "forward" => Pass::Forward,
        "dx" => Pass::InputGrad,
        "dw" => Pass::WeightGrad,
        _ => return Err(format!("`{pass}` is none of forward, dx, dw")),
    };
    let (x, taps) = sizes.split_once('-').ok_or_else(|| format!("`{sizes}` has no `-` before the output channels"))?;
    let end = taps.find(|c: char| !c.is_ascii_digit()).unwrap_or(taps.len());
    let (k, mut rest) = taps.split_at(end);
    let mut conv = Conv {
        x: numbers(x)?,
        k: number(k).map_err(|_| format!("`{taps}` does not begin with the output channels"))?,
        kernel: [0; 2],
        stride: [1; 2],
        pad: [0; 2],
        dilation: [1; 2],
        groups: 1,
        pass,
    };
    let mut seen = String::new();
    while let Some(letter) = rest.chars().next() {
        let value = &rest[letter.len_utf8()..];
        let end = value.find(|c: char| c != 'x' && !c.is_ascii_digit()).unwrap_or(value.len());
        let (value, after) = value.split_at(end);
        if seen.contains(letter) {
            return Err(format!("`{letter}` comes twice in `{taps}`"));
        }
        let in_words = |e| format!("{e}, after `{letter}` in `{taps}`");
        match letter {
            'k' => conv.kernel = pair(value).map_err(in_words)?,
            's' => conv.stride = pair(value).map_err(in_words)?,
            'p' => conv.pad = pair(value).map_err(in_words)?,
            'd' => conv.dilation = pair(value).map_err(in_words)?,
            'g' => conv.groups = number(value).map_err(in_words)?,
            _ => return Err(format!("`{letter}` in `{taps}` is none of k, s, p, d, g")),
        }
        seen.push(letter);
        rest = after;
    }
    if !seen.contains('k') {
        return Err(format!("`{taps}` names no kernel, such as k3"));
    }
    conv.geometry(1).map_err(|e| e.to_string())?;
    Ok(conv)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn works_are_read_as_they_are_written() {
        let read = |text: &str| text.parse::<Work>().expect("a work").kind;
        assert_eq!(read("machine"), Kind::Machine);
        assert_eq!(read("allreduce:16MiB"), Kind::AllReduce(16 << 20));
        assert_eq!(read("matmul:2x3x4:nt"), Kind::MatMul(MatMul { m: 2, k: 3, n: 4, transposed: [false, true] }));
        let Kind::Conv(conv) = read("conv:64x56x57-128k3x5s2p1x2d1g2:dw") else { panic!("not a convolution") };
        assert_eq!((conv.x, conv.k, conv.kernel), ([64, 56, 57], 128, [3, 5]));
        assert_eq!((conv.stride, conv.pad, conv.dilation, conv.groups), ([2, 2], [1, 2], [1, 1], 2));
        assert_eq!(conv.pass, Pass::WeightGrad);
        let Kind::Conv(conv) = read("conv:8x4x4-16k1") else { panic!("not a convolution") };
        assert_eq!((conv.stride, conv.pad, conv.groups, conv.pass), ([1, 1], [0, 0], 1, Pass::Forward));
        assert_eq!(read("a/b.onnx"), Kind::Model("a/b.onnx".into()));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let cases = [
            ("", "no work"),
            ("machine:2", "no work"),
            ("matmul", "needs sizes"),
            ("matmul:2x3", "has 2 sizes"),
            ("matmul:2x+3x4", "`+3`"),
            ("matmul:2x0x4", "is 0"),
            ("matmul:2x3x4:xy", "none of nn"),
            ("matmul:2x3x99999999999999999999", "not a whole number"),
            ("conv:64x56x56", "no `-`"),
            ("conv:64x56-64k3", "has 2 sizes"),
            ("conv:64x56x56-k3", "output channels"),
            ("conv:64x56x56-64", "names no kernel"),
            ("conv:64x56x56-64k3k3", "twice"),
            ("conv:64x56x56-64k3q1", "none of k"),
            ("conv:64x56x56-64k3s", "after `s`"),
            ("conv:64x56x56-64k3s0", "stride"),
            ("conv:64x56x56-64k3g5", "groups"),
            ("conv:64x2x2-64k3", "reaches"),
            ("conv:64x56x56-64k3:up", "none of forward"),
            ("conv:64x56x56-64k3é1", "none of k"),
        ];
        for (text, reason) in cases {
            let error = text.parse::<Work>().expect_err(text).to_string();
            assert!(error.contains(reason) && error.contains("conv:CxHxW"), "{text}: {error}");
        }
    }
}
