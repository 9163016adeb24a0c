//! Attention, and blocks of encoders and decoders.

use remat::nn::{self, AttentionOptions, BlockOptions, CrossAttentionOptions, LinearOptions};

use super::arguments::{ByName, Places};
use super::{classes, options};

options! {
    MultiHeadAttention { d: usize, heads: usize, bias: bool = true, [flatten] places: Places } => multi_input |o, cx| {
        let linear = LinearOptions { bias: o.bias, ..LinearOptions::default() };
        nn::MultiHeadAttention::with(cx, o.d, o.heads, AttentionOptions { qkv: linear, out: linear })
    };

    CrossAttention {
        d: usize, heads: usize, [flatten] rest: ByName, kdim: Option<usize>, vdim: Option<usize>, heads_kv: Option<usize>, dropout: f64 = 0.0,
        bias: bool = true, add_bias_kv: bool = false, add_zero_attn: bool = false, time_first: bool = false, [flatten] places: Places
    } => multi_input |o, cx| {
        let CrossAttention { kdim, vdim, heads_kv, dropout, add_bias_kv, add_zero_attn, time_first, .. } = o;
        let parts = LinearOptions { bias: o.bias, ..LinearOptions::default() };
        let options = CrossAttentionOptions {
            kdim, vdim, heads_kv, dropout, add_bias_kv, add_zero_attn, time_first, parts, out: parts,
        };
        nn::CrossAttention::with(cx, o.d, o.heads, options)
    };

    EncoderBlock { d: usize, heads: usize, [flatten] options: BlockOptions, [flatten] places: Places }
        => multi_input |o, cx| nn::EncoderBlock::new(cx, o.d, o.heads, o.options);

    DecoderBlock { d: usize, heads: usize, [flatten] options: BlockOptions, [flatten] places: Places }
        => multi_input |o, cx| nn::DecoderBlock::new(cx, o.d, o.heads, o.options);

    EncoderDecoder { d: usize, heads: usize, encoders: usize = 6, decoders: usize = 6, [flatten] options: BlockOptions, [flatten] places: Places }
        => multi_input |o, cx| nn::EncoderDecoder::new(cx, o.d, o.heads, [o.encoders, o.decoders], o.options);
}

classes! {
    /// `softmax(q k^T / sqrt(d / heads)) v` for each of several heads, and a linear layer over all of them (Vaswani et al., 2017), of
    /// a text to itself: `x, y: [n, t, d]`. `q, k, v` are three thirds of one linear layer `qkv`, as PyTorch's `in_proj`; its
    /// weights load with `names="in_proj_{p} -> qkv.{p}\nout_proj.{p} -> out.{p}"`.
    ///
    /// Errors: ArgumentError if `heads` does not divide `d`. At the call: AxisError, ShapeError, DTypeError.
    ///
    /// >>> import remat
    /// >>> attention = remat.nn.MultiHeadAttention(8, 2)
    /// >>> attention(remat.ones(1, 5, 8), causal=True).shape, [n for n, _ in attention.named_parameters()]
    /// ((1, 5, 8), ['qkv.weight', 'qkv.bias', 'out.weight', 'out.bias'])
    MultiHeadAttention: SelfAttentionCall = MultiHeadAttention;

    /// As `MultiHeadAttention`, of three tensors: `q: [n, tq, d]`, `k: [n, tk, kdim]`, `v: [n, tk, vdim]` to `[n, tq, d]`; `k` and `v` are
    /// `q` unless given. `heads_kv` heads of keys and values are each shared by as many heads of queries (Ainslie et al., 2023).
    /// `dropout` drops probabilities while training. `time_first` tensors are `[t, n, ..]`.
    ///
    /// >>> import remat
    /// >>> attention = remat.nn.CrossAttention(8, 4, kdim=6, vdim=6, heads_kv=1)
    /// >>> text, image = remat.ones(1, 3, 8), remat.ones(1, 10, 6)
    /// >>> attention(text, image, image).shape
    /// (1, 3, 8)
    CrossAttention: CrossAttentionCall = CrossAttention;

    /// A block of an encoder: attention of a text to itself and two linear layers, each added to what it gets and normalised:
    /// `x, y: [n, t, d]`. As PyTorch's `TransformerEncoderLayer` with `batch_first`; `norm_first` puts the norms before what they
    /// normalise for.
    ///
    /// >>> import remat
    /// >>> remat.nn.EncoderBlock(8, 2, feedforward=32)(remat.ones(1, 5, 8), causal=True).shape
    /// (1, 5, 8)
    EncoderBlock: EncoderBlockCall = EncoderBlock;

    /// A block of a decoder: attention of a text to itself, to what an encoder gives, and two linear layers: `x, y: [n, t, d]`,
    /// `memory: [n, tk, d]`. As PyTorch's `TransformerDecoderLayer` with `batch_first`.
    ///
    /// >>> import remat
    /// >>> remat.nn.DecoderBlock(8, 2, feedforward=32)(remat.ones(1, 3, 8), remat.ones(1, 5, 8)).shape
    /// (1, 3, 8)
    DecoderBlock: DecoderBlockCall = DecoderBlock;

    /// Blocks of an encoder, blocks of a decoder, and a norm behind each: `source: [n, tk, d]` and `target: [n, t, d]` to `[n, t, d]`
    /// (Vaswani et al., 2017). A place of the target sees itself and what comes before.
    ///
    /// >>> import remat
    /// >>> net = remat.nn.EncoderDecoder(8, 2, encoders=2, decoders=1, feedforward=32)
    /// >>> net(remat.ones(1, 5, 8), remat.ones(1, 3, 8)).shape
    /// (1, 3, 8)
    EncoderDecoder: EncoderDecoderCall = EncoderDecoder;
}
