//! What makes recurrent layers, attention, and the layers with state that are neither convolutions nor norms of one kind.

use pyo3::prelude::*;
use remat::Shape;
use remat::nn::{
    AlphaDropout, AttentionOptions, BagMode, Bilinear, BlockOptions, Conv2dOptions, CrossAttention,
    CrossAttentionOptions, DecoderBlock, DeformConv2d, DropPath, Dropout1d, Dropout2d, Dropout3d, EmbeddingBag,
    EmbeddingBagOptions, EncoderBlock, EncoderDecoder, FeedForwardActivation, GeneralNorm, Gru, GruCell, GruOptions,
    LinearOptions, LocalConv2d, Lstm, LstmCell, LstmOptions, MultiHeadAttention, Nonlinearity, Prelu, RRelu,
    RegionRestrictedConv2d, Rnn, RnnCell, RnnCellOptions, RnnOptions,
};
use serde::Deserialize;

use super::layers::{ConvArgs, Held, Make, array, conv_options, read};

/// Functions by name, as Python gives them.
#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum Function {
    #[default]
    Tanh,
    Relu,
    Gelu,
}

impl Function {
    fn nonlinearity(self) -> Nonlinearity {
        if matches!(self, Function::Relu) { Nonlinearity::Relu } else { Nonlinearity::Tanh }
    }

    fn feed_forward(self) -> FeedForwardActivation {
        if matches!(self, Function::Gelu) { FeedForwardActivation::Gelu } else { FeedForwardActivation::Relu }
    }
}

#[derive(Deserialize)]
struct RecurrentArgs {
    inputs: usize,
    hidden: usize,
    num_layers: usize,
    bias: bool,
    batch_first: bool,
    dropout: f64,
    bidirectional: bool,
    #[serde(default)]
    nonlinearity: Function,
    proj_size: Option<usize>,
}

#[derive(Deserialize)]
struct CellArgs {
    inputs: usize,
    hidden: usize,
    bias: bool,
    #[serde(default)]
    nonlinearity: Function,
}

#[derive(Deserialize)]
struct AttentionArgs {
    d: usize,
    heads: usize,
    bias: bool,
    #[serde(default)]
    dropout: f64,
    kdim: Option<usize>,
    vdim: Option<usize>,
    heads_kv: Option<usize>,
    #[serde(default)]
    add_bias_kv: bool,
    #[serde(default)]
    add_zero_attn: bool,
    #[serde(default)]
    time_first: bool,
}

#[derive(Deserialize)]
struct BlockArgs {
    d: usize,
    heads: usize,
    feedforward: usize,
    dropout: f64,
    activation: Function,
    norm_first: bool,
    eps: f64,
    #[serde(default)]
    layers: [usize; 2],
}

#[derive(Deserialize)]
struct BagArgs {
    count: usize,
    size: usize,
    mode: String,
    padding_idx: Option<isize>,
    include_last_offset: bool,
}

#[derive(Deserialize)]
struct PairArgs {
    inputs: [usize; 2],
    outputs: usize,
    bias: bool,
}

#[derive(Deserialize)]
struct LocalArgs {
    size: [usize; 2],
}

#[derive(Deserialize)]
struct NormArgs {
    axes: Vec<isize>,
    shape: Vec<usize>,
    eps: f64,
    affine: bool,
}

#[derive(Deserialize)]
struct NumberArgs {
    n: usize,
    value: f64,
}

#[derive(Deserialize)]
struct RangeArgs {
    lower: f64,
    upper: f64,
}

#[derive(Deserialize)]
struct DropArgs {
    p: f64,
}

fn recurrent(kind: &str, text: &str) -> PyResult<Option<Make>> {
    if let "rnn_cell" | "gru_cell" | "lstm_cell" = kind {
        return cell(kind, text).map(Some);
    }
    if !matches!(kind, "rnn" | "gru" | "lstm") {
        return Ok(None);
    }
    let RecurrentArgs {
        inputs,
        hidden,
        num_layers,
        bias,
        batch_first,
        dropout,
        bidirectional,
        nonlinearity,
        proj_size,
    } = read(text)?;
    Ok(Some(match kind {
        "rnn" => Box::new(move |cx| {
            let nonlinearity = nonlinearity.nonlinearity();
            let o = RnnOptions { num_layers, nonlinearity, bias, batch_first, dropout, bidirectional };
            Ok(Held::several(Rnn::with(cx, inputs, hidden, o)?))
        }),
        "gru" => Box::new(move |cx| {
            let o = GruOptions { num_layers, bias, batch_first, dropout, bidirectional };
            Ok(Held::several(Gru::with(cx, inputs, hidden, o)?))
        }),
        _ => Box::new(move |cx| {
            let o = LstmOptions { num_layers, bias, batch_first, dropout, bidirectional, proj_size };
            Ok(Held::several(Lstm::with(cx, inputs, hidden, o)?))
        }),
    }))
}

fn cell(kind: &str, text: &str) -> PyResult<Make> {
    let CellArgs { inputs, hidden, bias, nonlinearity } = read(text)?;
    Ok(match kind {
        "rnn_cell" => Box::new(move |cx| {
            let o = RnnCellOptions { bias, nonlinearity: nonlinearity.nonlinearity() };
            Ok(Held::several(RnnCell::with(cx, inputs, hidden, o)?))
        }),
        "gru_cell" => Box::new(move |cx| Ok(Held::several(GruCell::with(cx, inputs, hidden, bias)?))),
        _ => Box::new(move |cx| Ok(Held::several(LstmCell::with(cx, inputs, hidden, bias)?))),
    })
}

fn attention(kind: &str, text: &str) -> PyResult<Option<Make>> {
    if let "encoder_block" | "decoder_block" | "encoder_decoder" = kind {
        return blocks(kind, text).map(Some);
    }
    if !matches!(kind, "multi_head_attention" | "cross_attention") {
        return Ok(None);
    }
    let o: AttentionArgs = read(text)?;
    let linear = LinearOptions { bias: o.bias, ..LinearOptions::default() };
    Ok(Some(if kind == "multi_head_attention" {
        let options = AttentionOptions { qkv: linear, out: linear };
        Box::new(move |cx| Ok(Held::several(MultiHeadAttention::with(cx, o.d, o.heads, options)?)))
    } else {
        let options = CrossAttentionOptions {
            kdim: o.kdim,
            vdim: o.vdim,
            heads_kv: o.heads_kv,
            dropout: o.dropout,
            add_bias_kv: o.add_bias_kv,
            add_zero_attn: o.add_zero_attn,
            time_first: o.time_first,
            parts: linear,
            out: linear,
        };
        Box::new(move |cx| Ok(Held::several(CrossAttention::with(cx, o.d, o.heads, options)?)))
    }))
}

fn blocks(kind: &str, text: &str) -> PyResult<Make> {
    let o: BlockArgs = read(text)?;
    let options = BlockOptions {
        feedforward: o.feedforward,
        dropout: o.dropout,
        activation: o.activation.feed_forward(),
        norm_first: o.norm_first,
        eps: o.eps,
    };
    Ok(match kind {
        "encoder_block" => Box::new(move |cx| Ok(Held::several(EncoderBlock::new(cx, o.d, o.heads, options)?))),
        "decoder_block" => Box::new(move |cx| Ok(Held::several(DecoderBlock::new(cx, o.d, o.heads, options)?))),
        _ => Box::new(move |cx| Ok(Held::several(EncoderDecoder::new(cx, o.d, o.heads, o.layers, options)?))),
    })
}

fn dropout(kind: &str, text: &str) -> PyResult<Option<Make>> {
    if !matches!(kind, "alpha_dropout" | "drop_path" | "dropout1d" | "dropout2d" | "dropout3d") {
        return Ok(None);
    }
    let DropArgs { p } = read(text)?;
    Ok(Some(match kind {
        "alpha_dropout" => Box::new(move |cx| Ok(Held::one(AlphaDropout::new(p, &mut cx.rng)?))),
        "drop_path" => Box::new(move |cx| Ok(Held::one(DropPath::new(p, &mut cx.rng)?))),
        "dropout1d" => Box::new(move |cx| Ok(Held::one(Dropout1d::new(p, &mut cx.rng)?))),
        "dropout2d" => Box::new(move |cx| Ok(Held::one(Dropout2d::new(p, &mut cx.rng)?))),
        _ => Box::new(move |cx| Ok(Held::one(Dropout3d::new(p, &mut cx.rng)?))),
    }))
}

/// Convolutions whose taps are chosen place by place.
fn placed(kind: &str, text: &str) -> PyResult<Option<Make>> {
    if !matches!(kind, "deform_conv" | "region_restricted_conv" | "local_conv") {
        return Ok(None);
    }
    let o: ConvArgs = read(text)?;
    let (options, kernel): (Conv2dOptions, [usize; 2]) = (conv_options(&o)?, array(&o.kernel)?);
    let (inputs, outputs) = (o.inputs, o.outputs);
    Ok(Some(match kind {
        "deform_conv" => {
            Box::new(move |cx| Ok(Held::several(DeformConv2d::with(cx, inputs, outputs, kernel, options)?)))
        }
        "local_conv" => {
            let LocalArgs { size } = read(text)?;
            Box::new(move |cx| Ok(Held::one(LocalConv2d::with(cx, inputs, outputs, size, kernel, options)?)))
        }
        _ => Box::new(move |cx| Ok(Held::several(RegionRestrictedConv2d::with(cx, inputs, outputs, kernel, options)?))),
    }))
}

fn bag(text: &str) -> PyResult<Make> {
    let o: BagArgs = read(text)?;
    let mode = match o.mode.as_str() {
        "sum" => BagMode::Sum,
        "mean" => BagMode::Mean,
        "max" => BagMode::Max,
        other => return Err(super::no_such("mode of bags", other)),
    };
    let options = EmbeddingBagOptions {
        mode,
        padding_idx: o.padding_idx,
        include_last_offset: o.include_last_offset,
        ..EmbeddingBagOptions::default()
    };
    Ok(Box::new(move |cx| Ok(Held::several(EmbeddingBag::new(cx, o.count, o.size, options)?))))
}

fn rest(kind: &str, text: &str) -> PyResult<Option<Make>> {
    Ok(Some(match kind {
        "embedding_bag" => bag(text)?,
        "bilinear" => {
            let o: PairArgs = read(text)?;
            Box::new(move |cx| Ok(Held::several(Bilinear::with(cx, o.inputs, o.outputs, o.bias)?)))
        }
        "general_norm" => {
            let o: NormArgs = read(text)?;
            let shape = Shape::from(o.shape.as_slice());
            Box::new(move |cx| Ok(Held::one(GeneralNorm::with(cx, &o.axes, shape, o.eps, o.affine)?)))
        }
        "prelu" => {
            let o: NumberArgs = read(text)?;
            Box::new(move |cx| Ok(Held::one(Prelu::with(cx, o.n, o.value)?)))
        }
        "rrelu" => {
            let o: RangeArgs = read(text)?;
            Box::new(move |cx| Ok(Held::one(RRelu::with(o.lower, o.upper, &mut cx.rng)?)))
        }
        _ => return Ok(None),
    }))
}

/// What makes a layer of this kind, if it is one of these.
pub(super) fn make(kind: &str, text: &str) -> PyResult<Option<Make>> {
    for of in [recurrent, attention, dropout, placed, rest] {
        if let Some(make) = of(kind, text)? {
            return Ok(Some(make));
        }
    }
    Ok(None)
}
