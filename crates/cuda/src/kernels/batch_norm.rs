//! Normalisation of the channels of a batch, by its statistics or by given ones, and the gradients.

use remat_ops::Op;
use remat_ops::norm::{BatchNorm, BatchNormGrad, BatchNormInfer};
use remat_types::{DType, Result, Scalar};

use super::norm::sources;
use super::plan::{Builder, Call, Operands, Plan, THREADS, Value};
use super::rows::Team;
use crate::driver::Grid;

/// Elements of a unit, and of a row from which on it is a run by itself.
const SPAN: u64 = 1024;
const LONG_ROW: u64 = 512;
/// Threads of a unit.
const LANES: u64 = 16;
/// Images of a unit of channels with an element each. The CPU has one unit.
const IMAGES: u64 = 1024;
/// The most blocks of a launch; their threads go on to further units.
const MOST_BLOCKS: u64 = 1 << 16;
/// Bytes of a unit's sums, and at most of what is noted of a channel.
const PAIR_BYTES: u64 = 16;
const CHANNEL_BYTES: u64 = 80;

/// See [`super::Family`].
pub(super) fn plan(op: &dyn Op, o: &Operands<'_>) -> Result<Option<Plan>> {
    let any = op.as_any();
    Ok(Some(if let Some(op) = any.downcast_ref::<BatchNorm>() {
        Batch::new(o, op.eps).forward()
    } else if let Some(op) = any.downcast_ref::<BatchNormGrad>() {
        Batch::new(o, op.eps).backward()
    } else if let Some(op) = any.downcast_ref::<BatchNormInfer>() {
        Batch::new(o, op.eps).infer()
    } else {
        return Ok(None);
    }))
}

/// A batch `[n, c, s]`.
struct Batch<'o, 'a> {
    o: &'o Operands<'a>,
    dtype: DType,
    eps: f64,
    n: u64,
    c: u64,
    s: u64,
    /// Images of a run, and units of one.
    images: u64,
    blocks: u64,
}

impl<'o, 'a> Batch<'o, 'a> {
    fn new(o: &'o Operands<'a>, eps: Scalar) -> Batch<'o, 'a> {
        let shape = o.shape(0);
        let (n, c, s) = (shape[0] as u64, shape[1] as u64, shape[2..].iter().product::<usize>() as u64);
        let images = match s {
            1 => IMAGES,
            s if s < LONG_ROW => SPAN / s.max(1),
            _ => 1,
        };
        let blocks = if images == 1 { s.div_ceil(SPAN) } else { 1 };
        Batch { o, dtype: o.x[0].dtype, eps: eps.to_f64(), n, c, s, images, blocks }
    }

    fn elems(&self) -> u64 {
        self.n * self.c * self.s
    }

    /// Units of a channel.
    fn units(&self) -> u64 {
        self.n.div_ceil(self.images) * self.blocks
    }

    /// Where means, what is noted of channels, and the sums of units are in the workspace, and its end.
    fn places(&self) -> [usize; 4] {
        let mut end = 0u64;
        [self.c * 8, self.c * CHANNEL_BYTES, self.units() * self.c * PAIR_BYTES, 0].map(|bytes| {
            let at = end;
            end = (end + bytes).next_multiple_of(256);
            at as usize
        })
    }

    /// A kernel with the sources and the places in the workspace, and the statement that begins it.
    fn builder(&self, name: &'static str) -> (Builder, &'static str) {
        let mut b = Builder::new(name);
        b.functions(&sources(self.dtype));
        b.functions(include_str!("batch_norm.cuh"));
        b.operands(self.o);
        for (name, value) in
            [("images_all", self.n), ("c", self.c), ("s", self.s), ("images", self.images), ("blocks", self.blocks)]
        {
            b.u64(name, value);
        }
        b.parameter("double eps", Value::F64(self.eps));
        let [means, channels, units, _] = self.places();
        b.parameter("double *means", Value::Workspace(means));
        b.parameter("char *noted", Value::Workspace(channels));
        b.parameter("Pair *units", Value::Workspace(units));
        (b, "const Batch d{images_all, c, s, images, blocks};\n")
    }

    /// The sums of units. `terms` are statements that set `v` of element `i`.
    fn units_of(&self, name: &'static str, terms: &str) -> Call {
        let (mut b, begin) = self.builder(name);
        let all = self.units() * self.c;
        b.u64("all", all);
        let (group, number, sums) =
            if self.s == 1 { (1, "double", "column_sums") } else { (LANES, "real", "unit_sums") };
        // neighbouring threads take neighbouring channels where these are neighbours
        let body = format!(
            "{begin}const u64 step = (u64)gridDim.x * blockDim.x / {group};\n\
             for (u64 k = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / {group}; k < all; k += step) {{\n\
             const u64 channel = k % c;\n\
             const Pair sums = {sums}(d, channel, k / c, [&](u64 i, {number}(&v)[2]) {{\n{terms}}});\n\
             if (threadIdx.x % {group} == 0) units[k] = sums;\n}}\n"
        );
        let blocks = (all * group).div_ceil(THREADS.into()).clamp(1, MOST_BLOCKS) as u32;
        b.build(Grid { blocks: [blocks, 1, 1], threads: [THREADS, 1, 1], shared_bytes: 0 }, &body)
    }

    /// A kernel of a block for each channel; `row` is its number.
    fn channels(&self, name: &'static str, body: &str) -> Call {
        let (b, begin) = self.builder(name);
        let text = format!("{begin}const Pair sums = channel_sums(d, units, row);\n{body}");
        Team::block().each(b, self.c, &text)
    }

    /// A kernel over all elements `i`; `channel` is that of each.
    fn elements(&self, name: &'static str, body: &str) -> Option<Call> {
        let (b, _) = self.builder(name);
        // a division of 64 bits takes longer than all else
        let index = if self.elems() <= u64::from(u32::MAX) { "u32" } else { "u64" };
        b.each(self.elems(), &format!("const {index} channel = ({index})i / ({index})s % ({index})c;\n{body}"))
    }

    /// A plan that writes to the workspace.
    fn plan(&self) -> Plan {
        Plan { workspace: self.places()[3], ..Plan::default() }
    }

    fn forward(&self) -> Plan {
        let mut plan = self.plan();
        if self.elems() == 0 {
            return Plan::default();
        }
        let about = if self.s == 1 { "double about = means[channel]" } else { "real about = (real)means[channel]" };
        let (value, square) = match self.s {
            1 => ("(double)up(x0[i])", "const double u = (double)up(x0[i]) - about;\nv[0] = 0;\nv[1] = u * u;\n"),
            _ => ("up(x0[i])", "const real u = up(x0[i]) - about;\nv[0] = u;\nv[1] = u * u;\n"),
        };
        plan.calls.push(self.units_of("batch_norm_sums", &format!("v[0] = {value};\nv[1] = 0;\n")));
        let mean = "if (threadIdx.x == 0) means[row] = sums.a / (double)d.count();\n";
        plan.calls.push(self.channels("batch_norm_means", mean));
        plan.calls.push(self.units_of("batch_norm_squares", &format!("const {about};\n{square}")));
        plan.calls.push(self.channels(
            "batch_norm_channels",
            "real mean, var;\n\
             const Channel found = channel_of(room, d, row, x0, x1[row], eps, means[row], sums, mean, var);\n\
             if (threadIdx.x == 0) {\n((Channel *)noted)[row] = found;\ny1[row] = mean;\ny2[row] = var;\n}\n",
        ));
        plan.calls.extend(self.normalise());
        plan
    }

    fn normalise(&self) -> Option<Call> {
        let body = "y0[i] = normalised(((const Channel *)noted)[channel], x0[i], x1[channel], x2[channel]);\n";
        self.elements("batch_norm", body)
    }

    fn infer(&self) -> Plan {
        let mut plan = self.plan();
        if self.elems() == 0 {
            return Plan::default();
        }
        let (b, _) = self.builder("batch_norm_slopes");
        let slope = "((Channel *)noted)[i] = Channel{Row{0, 0, 0}, x3[i], slope(x1[i], x4[i], eps)};\n";
        plan.calls.extend(b.each(self.c, slope));
        plan.calls.extend(self.normalise());
        plan
    }

    fn backward(&self) -> Plan {
        let mut plan = self.plan();
        if self.c == 0 {
            return Plan::default();
        }
        let terms = match self.s {
            1 => "v[0] = (double)up(x4[i]);\nv[1] = v[0] * (double)(up(x0[i]) - x2[channel]);\n",
            _ => "v[0] = up(x4[i]);\nv[1] = v[0] * (up(x0[i]) - x2[channel]);\n",
        };
        plan.calls.push(self.units_of("batch_norm_grad_sums", terms));
        plan.calls.push(self.channels(
            "batch_norm_grad_channels",
            "element scale, bias;\n\
             const Terms found = terms_of(room, d, row, x0, x4, x1[row], x2[row], x3[row], eps, sums, scale, bias);\n\
             if (threadIdx.x == 0) {\n((Terms *)noted)[row] = found;\ny1[row] = scale;\ny2[row] = bias;\n}\n",
        ));
        let body = "y0[i] = gradient(((const Terms *)noted)[channel], x0[i], x4[i], x1[channel]);\n";
        plan.calls.extend(self.elements("batch_norm_grad", body));
        plan
    }
}
