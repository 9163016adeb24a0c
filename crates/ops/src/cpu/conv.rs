use remat_kernels::blocked::Blocked;
use remat_types::{DType, Error, ErrorKind, Fact, Facts, HostTensor, Result, Scalar, smallvec};

use super::{INFERENCE_ONLY, blocked_extents, range, run_packed};
use crate::args::{checked_fact, not_differentiable, want_dtype, want_rank, want_shape};
use crate::conv::{ConvParams, wave};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// `y = clamp(add + bias + conv(x, weight))` on blocked images, with a packed weight.
///
/// `(x, packed, bias) -> y`, or with `adds` `(x, packed, bias, add) -> y`. `x: [n, blocks, h, w, block]`, or plain
/// `[n, c, h, w]` for a single group; `packed` is the weight, packed by [`PackConv`](super::PackConv); `bias` has a number
/// for each lane of `y`; `add` and `y: [n, blocks, oh, ow, block]`. All of f32. Lanes of `x` beyond its last channel are not
/// read; those of `y` hold anything. A sum begins with bias and `add`, and goes by blocks of channels, taps and lanes.
///
/// Errors: Axis, DType; Value for a stride, dilation or group count of 0, a block that is neither 8 nor 16, groups that do
/// not suit it, or an empty range; Shape where sizes do not fit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: float, packed: float, bias: float, add?: float))]
pub struct ConvBlocked {
    /// How the taps lie.
    #[param(flatten)]
    pub taps: ConvParams,
    /// The shape `[k, c / groups, r, s]` of the weight before it was packed.
    pub weight: [usize; 4],
    /// Channels of a block.
    pub block: usize,
    /// Whether sums begin with a fourth input.
    #[param(default = false)]
    pub adds: bool,
    /// The range into which results are moved.
    pub clamp: Option<[Scalar; 2]>,
    /// By Winograd's algorithm: for 3x3 taps of stride, dilation and groups 1 over a blocked image.
    #[param(default = false)]
    pub winograd: bool,
}

impl ConvBlocked {
    /// Whether Winograd's algorithm is expected to be clearly faster for an image of `[n, c, h, w]`. A pure function of sizes.
    #[must_use]
    pub fn winograd_pays(&self, image: [usize; 4]) -> bool {
        let kernel = self.taps.geometry(image, self.weight).and_then(|g| Blocked::new(g, self.block, false));
        kernel.is_ok_and(|k| k.winograd_pays())
    }

    fn kernel(&self, x: &Fact) -> Result<(Blocked, [usize; 5])> {
        let planar = x.rank() == 4;
        let c = self.weight[1].saturating_mul(self.taps.groups);
        let [n, h, w] = if planar {
            want_dtype(x, DType::F32, "x")?;
            want_rank(x, 4, "x")?;
            want_shape(x, &[x.shape[0], c, x.shape[2], x.shape[3]], "x")?;
            [x.shape[0], x.shape[2], x.shape[3]]
        } else {
            let [n, blocks, h, w, block] = blocked_extents(x, "x")?;
            if block != self.block || blocks != c.div_ceil(block) {
                let text = format!("x has shape {}, not that of {c} channels in blocks of {}", x.shape, self.block);
                return Err(Error::new(ErrorKind::Shape, text));
            }
            [n, h, w]
        };
        let g = self.taps.geometry([n, c, h, w], self.weight)?;
        let kernel = Blocked::new(g, self.block, planar)?;
        let kernel = if self.winograd { kernel.winograd()? } else { kernel };
        Ok((kernel, [n, Blocked::blocks(g.k, self.block), g.oh, g.ow, self.block]))
    }
}

impl Op for ConvBlocked {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, if self.adds { 4 } else { 3 })?;
        range(self.clamp)?;
        let (kernel, y) = self.kernel(x[0])?;
        for (f, name) in x[1..].iter().zip(["the packed weight", "the bias", "what is added"]) {
            want_dtype(f, DType::F32, name)?;
        }
        want_shape(x[1], &[kernel.packed_len()], "the packed weight")?;
        want_shape(x[2], &[kernel.bias_len()], "the bias")?;
        if self.adds {
            want_shape(x[3], &y, "what is added")?;
        }
        Ok(smallvec![checked_fact(DType::F32, y)?])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (kernel, _) = self.kernel(&Fact::new(cx.x[0].dtype(), cx.x[0].shape()))?;
        let (pool, clamp) = (cx.pool, range(self.clamp)?);
        run_packed(cx, self.adds, |[x, packed, bias], start, y, workspace| {
            kernel.run(pool, x, packed, bias, start, clamp, y, workspace);
        })
    }

    fn grad(&self, _: &mut GradCx<'_>) -> Result<Grads> {
        Err(not_differentiable("a convolution with a packed weight"))
    }

    fn overwrite(&self) -> &[(usize, usize)] {
        if self.adds { &[(3, 0)] } else { &[] }
    }

    fn workspace(&self, x: &[&Fact], threads: usize) -> usize {
        self.kernel(x[0]).map_or(0, |(kernel, _)| kernel.workspace_bytes(threads))
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        Cost::bytes(x, y).with_flops(self.kernel(x[0]).map_or(0, |(kernel, _)| kernel.flops()))
    }
}

/// Inputs for a geometry: `x`, the packed weight, bias, summand.
fn operands(op: &ConvBlocked, x: HostTensor) -> Vec<HostTensor> {
    let n = op.weight.iter().product::<usize>().max(1);
    let (kernel, y) = op.kernel(&Fact::of(&x)).expect("a sample's sizes fit");
    let weight = wave(&[n], 0.5);
    let mut packed = vec![0.0; kernel.packed_len()];
    kernel.pack(weight.as_slice().expect("f32"), &mut packed);
    let mut all = vec![x, t(&packed, [packed.len()]), wave(&[kernel.bias_len()], 0.2)];
    if op.adds {
        all.push(wave(&y, 0.7));
    }
    all
}

impl OpDef for ConvBlocked {
    const NAME: &'static str = "conv_blocked";

    fn samples() -> Vec<Sample<Self>> {
        let op = |weight: [usize; 4], stride, padding: [usize; 2], groups, adds, clamp: Option<[f64; 2]>| ConvBlocked {
            taps: ConvParams { stride, padding: padding.into(), dilation: [1, 1], groups },
            weight,
            block: 8,
            adds,
            clamp: clamp.map(|c| c.map(Scalar::from)),
            winograd: false,
        };
        let uneven = |op: ConvBlocked, padding: [[usize; 2]; 2]| ConvBlocked {
            taps: ConvParams { padding: padding.into(), ..op.taps },
            ..op
        };
        let winograd = |op: ConvBlocked| ConvBlocked { winograd: true, ..op };
        // one channel to one: y = clamp(add + bias + 2 x), the other lanes clamp(add + bias + 0 x)
        let one = op([1, 1, 1, 1], [1, 1], [0, 0], 1, true, Some([-1.0, 7.0]));
        let mut packed = [0.0f32; 8];
        packed[0] = 2.0;
        let bias = t(&[0.5f32, 0., 0., 0., 0., 0., 0., 9.], [8]);
        let add = t(&[[1.0f32; 8], [-9.0; 8]].concat(), [1, 1, 1, 2, 8]);
        let x = t(&[2.0f32, f32::NAN], [1, 1, 1, 2]);
        let (a, b) = ([5.5f32, 1., 1., 1., 1., 1., 1., 7.], [f32::NAN; 8]);
        let y = t(&[a, b].concat(), [1, 1, 1, 2, 8]);
        let packed = t(&packed, [8]);
        let three = |op: ConvBlocked, x: HostTensor| {
            let x = operands(&op, x);
            Sample::new(op, x).no_grad(INFERENCE_ONLY)
        };
        let image = |shape: &[usize]| wave(shape, 0.0);
        let wide = ConvBlocked { block: 16, ..op([20, 17, 3, 3], [1, 1], [1, 1], 1, true, None) };
        let dilated = ConvBlocked {
            taps: ConvParams { dilation: [1, 2], ..ConvParams::PLAIN },
            ..op([8, 8, 2, 3], [1, 1], [0, 0], 1, false, None)
        };
        let plain = || op([40, 3, 7, 7], [2, 2], [3, 3], 1, false, Some([0.0, f64::INFINITY]));
        let bad = |op: ConvBlocked, kind| Sample::new(op, operands(&plain(), image(&[1, 3, 16, 16]))).fails(kind);
        vec![
            Sample::new(one.clone(), vec![x.clone(), packed.clone(), bias.clone(), add])
                .gives(vec![y])
                .no_grad(INFERENCE_ONLY),
            three(plain(), image(&[2, 3, 20, 17])),
            three(op([24, 20, 1, 1], [1, 1], [0, 0], 1, true, Some([0.0, 6.0])), image(&[2, 3, 5, 6, 8])),
            three(op([16, 8, 3, 3], [2, 2], [1, 1], 1, false, None), image(&[1, 1, 9, 8, 8])),
            three(op([16, 8, 3, 3], [1, 1], [1, 1], 2, true, None), image(&[1, 2, 4, 5, 8])),
            three(op([19, 1, 3, 3], [2, 2], [1, 1], 19, true, Some([0.0, 6.0])), image(&[2, 3, 9, 11, 8])),
            three(op([8, 1, 5, 4], [1, 1], [2, 2], 8, false, None), image(&[1, 1, 6, 12, 8])),
            three(wide.clone(), image(&[1, 2, 6, 7, 16])),
            three(uneven(wide.clone(), [[0, 1], [2, 0]]), image(&[1, 2, 6, 7, 16])),
            three(winograd(uneven(wide.clone(), [[0, 1], [2, 0]])), image(&[1, 2, 6, 7, 16])),
            three(winograd(wide), image(&[1, 2, 6, 7, 16])),
            // padding at the end alone, and of single channels
            three(uneven(op([9, 8, 1, 1], [1, 1], [0, 0], 1, false, None), [[0, 1], [0, 2]]), image(&[1, 1, 4, 5, 8])),
            three(
                uneven(op([19, 1, 3, 3], [2, 2], [0, 0], 19, true, None), [[0, 1], [2, 1]]),
                image(&[2, 3, 9, 11, 8]),
            ),
            three(winograd(op([24, 20, 3, 3], [1, 1], [1, 1], 1, false, Some([0.0, 6.0]))), image(&[2, 3, 9, 10, 8])),
            three(dilated, image(&[1, 1, 4, 9, 8])),
            bad(op([40, 3, 7, 7], [2, 2], [3, 3], 1, false, Some([1.0, 0.0])), ErrorKind::Value),
            bad(op([40, 3, 7, 7], [0, 2], [3, 3], 1, false, None), ErrorKind::Value),
            bad(op([40, 4, 7, 7], [2, 2], [3, 3], 1, false, None), ErrorKind::Shape),
            bad(op([48, 3, 7, 7], [2, 2], [3, 3], 1, false, None), ErrorKind::Shape),
            bad(op([40, 3, 7, 7], [2, 2], [3, 3], 1, true, None), ErrorKind::Arity),
            bad(ConvBlocked { block: 4, ..plain() }, ErrorKind::Value),
            bad(winograd(plain()), ErrorKind::Value),
            Sample::new(one.clone(), vec![x.clone(), packed.clone(), bias.clone(), x]).fails(ErrorKind::Shape),
            Sample::new(one, vec![t(&[1i32], [1, 1, 1, 1]), packed, bias.clone(), bias]).fails(ErrorKind::DType),
        ]
    }
}
