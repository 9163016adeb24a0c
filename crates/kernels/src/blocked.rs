//! Inference on blocked tensors and packed weights: convolutions, products, reorders and pooling, in f32.
//!
//! A *blocked* image is `[n, blocks, h, w, block]`: channel `c` is lane `c % block` of block `c / block`; what lies in lanes
//! beyond the last channel is never read into a channel. So the lanes of a vector are output channels, and a tile of the output needs a broadcast of each
//! input and a row of weights that lies ready for it.
//!
//! * Weights of convolutions are packed once ([`Blocked::pack`]) in the order in which tiles read them: panels of two
//!   blocks of outputs (the last of three where their number is odd), in each the steps of the sum. Those of products are
//!   packed as the plain product packs its right side at each run ([`Linear::pack`]).
//! * Sums take the bias and what is added (a residual), and are clamped when they end: no pass over the output follows
//!   (module `dense`).
//! * Convolutions of 3x3 taps may go by Winograd's algorithm (module `winograd`), where that is less work.
//! * Depthwise convolutions run along rows with channels in the lanes (module `depthwise`).
//! * An image in the plain layout may be the input of a convolution without groups: the copy with margins that a padded
//!   convolution makes of the rows it reads also brings its channels side by side.
//!
//! Each machine has kernels for blocks of 8 and of 16; [`lanes`] is the one that its vectors fill. The order of a sum
//! follows from the sizes and the block, never from threads. Rejected: padded tensors, whose margins every op would have to
//! keep zero; for the same reason nothing relies on zeros in lanes beyond the last channel.

use remat_types::{Error, ErrorKind, Result};

use crate::geometry::Conv2d;
use crate::pool::Pool;
use crate::simd::{Isa, prefers_wide_tiles};
use kernel::Kernels;

mod dense;
mod depthwise;
mod kernel;
mod linear;
mod reorder;
#[cfg(test)]
mod tests;
pub(crate) mod winograd;

use winograd::{Taps, Winograd};

pub use linear::Linear;
pub use reorder::{from_blocked, max_pool, to_blocked};

/// Channels of a block that fill this machine's vectors: what to choose for speed. A pure function of the machine.
#[must_use]
pub fn lanes() -> usize {
    match Isa::best() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => 16,
        _ => 8,
    }
}

/// Errors (Value) unless there are kernels for blocks of `block` channels.
pub fn check_block(block: usize) -> Result<()> {
    match Kernels::of(block) {
        Some(_) => Ok(()),
        None => Err(Error::new(ErrorKind::Value, format!("blocks have 8 or 16 channels, not {block}"))),
    }
}

/// The start of a sum beside its bias.
pub enum Start<'a> {
    /// Nothing.
    Zero,
    /// These elements, in the layout of `y`.
    Add(&'a [f32]),
    /// The elements that `y` holds.
    AddHeld,
}

impl Start<'_> {
    /// Where they lie; null for nothing. Panics if they are not as many as `y`'s.
    fn place(&self, y: *mut f32, y_len: usize) -> *const f32 {
        match self {
            Start::Zero => std::ptr::null(),
            Start::AddHeld => y,
            Start::Add(x) => {
                assert_eq!(x.len(), y_len, "elements of what is added");
                x.as_ptr()
            }
        }
    }
}

/// A convolution from a blocked (or a plain) to a blocked image, with packed weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blocked {
    conv: Conv2d,
    block: usize,
    planar: bool,
    winograd: bool,
    /// Panels of outputs are wide.
    wide: bool,
}

/// How sums are made.
enum Method {
    Dense,
    Depthwise,
    Winograd(Winograd),
}

/// Most elements of an image: offsets of a few images fit 32 bits.
const IMAGE_ELEMS: usize = 1 << 28;

impl Blocked {
    /// The convolution `conv` from `x: [n, blocks, h, w, block]`, or from `x: [n, c, h, w]` if `planar`, to
    /// `y: [n, blocks, oh, ow, block]`.
    ///
    /// # Errors
    /// [`ErrorKind::Value`] for a block without kernels, and for groups that are neither one, nor one a channel with as many
    /// outputs, nor of whole blocks, or a plain input of more than one group; [`ErrorKind::Shape`] for images too large.
    pub fn new(conv: Conv2d, block: usize, planar: bool) -> Result<Blocked> {
        check_block(block)?;
        let Conv2d { c, k, groups, .. } = conv;
        let whole = (c / groups).is_multiple_of(block) && (k / groups).is_multiple_of(block);
        let depthwise = groups == c && groups == k;
        if groups > 1 && (planar || !(depthwise || whole)) {
            let text = format!(
                "{groups} groups from {c} to {k} channels (plain input: {planar}) do not suit blocks of {block}"
            );
            return Err(Error::new(ErrorKind::Value, text));
        }
        let wide = block == 16 && prefers_wide_tiles();
        let b = Blocked { conv, block, planar, winograd: false, wide };
        if b.x_image() > IMAGE_ELEMS || b.y_image() > IMAGE_ELEMS {
            return Err(Error::new(ErrorKind::Shape, format!("an image has more than {IMAGE_ELEMS} elements")));
        }
        Ok(b)
    }

    /// The same convolution by Winograd's algorithm F(4x4, 3x3): a quarter of the multiply-adds, besides transforms.
    /// Its error is about that of plain sums; what an infinity or NaN touches becomes NaN in its tile of 4x4 outputs.
    ///
    /// # Errors
    /// [`ErrorKind::Value`] unless the taps are 3x3 of stride, dilation and groups 1, and the input is blocked.
    pub fn winograd(self) -> Result<Blocked> {
        match self.as_winograd() {
            Some(_) => Ok(Blocked { winograd: true, ..self }),
            None => {
                let text = "Winograd's algorithm is for 3x3 taps of stride, dilation and groups 1 over a blocked image";
                Err(Error::new(ErrorKind::Value, text))
            }
        }
    }

    /// Whether Winograd's algorithm is expected to be clearly faster here. A pure function of the sizes.
    #[must_use]
    pub fn winograd_pays(&self) -> bool {
        self.as_winograd().is_some_and(|w| w.pays())
    }

    /// Floating-point operations. A multiply-add counts two, and transforms are left out.
    #[must_use]
    pub fn flops(&self) -> u64 {
        match self.method() {
            Method::Winograd(w) => w.flops(),
            _ => self.conv.flops(),
        }
    }

    /// Blocks of `channels` channels, the last one perhaps not full.
    #[must_use]
    pub fn blocks(channels: usize, block: usize) -> usize {
        channels.div_ceil(block)
    }

    fn method(&self) -> Method {
        let Conv2d { c, k, groups, .. } = self.conv;
        match self.as_winograd().filter(|_| self.winograd) {
            Some(w) => Method::Winograd(w),
            None if groups > 1 && groups == c && groups == k => Method::Depthwise,
            None => Method::Dense,
        }
    }

    fn as_winograd(&self) -> Option<Winograd> {
        Winograd::new(self.conv, self.block, false).filter(|_| !self.planar)
    }

    /// Elements of an image of `x`.
    fn x_image(&self) -> usize {
        let Conv2d { c, h, w, .. } = self.conv;
        h * w * if self.planar { c } else { c.next_multiple_of(self.block) }
    }

    /// Elements of an image of `y`.
    fn y_image(&self) -> usize {
        self.conv.k.next_multiple_of(self.block) * self.conv.oh * self.conv.ow
    }

    /// Elements of `x`.
    #[must_use]
    pub fn x_len(&self) -> usize {
        self.conv.n * self.x_image()
    }

    /// Elements of `y`.
    #[must_use]
    pub fn y_len(&self) -> usize {
        self.conv.n * self.y_image()
    }

    /// Elements of the bias: one for each lane of `y`'s blocks.
    #[must_use]
    pub fn bias_len(&self) -> usize {
        self.conv.k.next_multiple_of(self.block)
    }

    /// Elements of the packed weight.
    #[must_use]
    pub fn packed_len(&self) -> usize {
        let taps = self.conv.r * self.conv.s;
        match self.method() {
            Method::Depthwise => self.bias_len() * taps,
            Method::Winograd(w) => w.packed_len(),
            Method::Dense => dense::Sums::of(self).packed_len(),
        }
    }

    /// Packs `weight: [k, c / groups, r, s]`; overwrites all of `packed`.
    ///
    /// # Panics
    /// If a slice has another length than it should.
    pub fn pack(&self, weight: &[f32], packed: &mut [f32]) {
        assert_eq!(weight.len(), self.conv.weight_len(), "elements of the weight for {self:?}");
        assert_eq!(packed.len(), self.packed_len(), "elements of the packed weight for {self:?}");
        packed.fill(0.0);
        match self.method() {
            Method::Depthwise => depthwise::pack(self, weight, packed),
            Method::Winograd(w) => w.pack(&Pool::new(1), Taps::Forward, weight, packed),
            Method::Dense => dense::pack(self, weight, packed),
        }
    }

    /// Bytes of workspace that [`Blocked::run`] needs: a pure function of its arguments.
    #[must_use]
    pub fn workspace_bytes(&self, threads: usize) -> usize {
        match self.method() {
            Method::Depthwise => 0,
            Method::Winograd(w) => w.workspace_bytes(threads.max(1)),
            Method::Dense => dense::workspace_bytes(self, threads.max(1)),
        }
    }

    /// `y = clamp(start + bias + x * weight)`, overwriting `y`.
    ///
    /// # Panics
    /// If a slice has another length than it should, or the workspace is too small.
    pub fn run(
        &self,
        pool: &Pool,
        x: &[f32],
        packed: &[f32],
        bias: &[f32],
        start: &Start<'_>,
        clamp: Option<[f32; 2]>,
        y: &mut [f32],
        workspace: &mut [u8],
    ) {
        assert_eq!(x.len(), self.x_len(), "elements of x for {self:?}");
        assert_eq!(packed.len(), self.packed_len(), "elements of the packed weight for {self:?}");
        assert_eq!(bias.len(), self.bias_len(), "elements of the bias for {self:?}");
        assert_eq!(y.len(), self.y_len(), "elements of y for {self:?}");
        let operands = Operands::new(x, packed, bias, start, clamp, y);
        // SAFETY: the lengths were checked just above; `conv` and `block` are what `new` established.
        unsafe {
            match self.method() {
                Method::Depthwise => depthwise::run(self, pool, &operands),
                Method::Winograd(w) => w.run(pool, &operands, workspace),
                Method::Dense => dense::run(self, pool, &operands, workspace),
            }
        }
    }

    fn kernels(&self) -> &'static Kernels {
        Kernels::of(self.block).expect("`new` has checked the block")
    }
}

/// The operands of a run, of the lengths that its geometry says. Parts write disjoint elements of `y`, and read of `add` only
/// what they write.
struct Operands {
    x: *const f32,
    w: *const f32,
    bias: *const f32,
    add: *const f32,
    y: *mut f32,
    clamp: Option<[f32; 2]>,
}

// SAFETY: threads only read through the constant pointers, and write disjoint elements of `y`.
unsafe impl Sync for Operands {}

impl Operands {
    /// To be used while the slices are borrowed. Panics if `start` has not as many elements as `y`.
    fn new(
        x: &[f32],
        packed: &[f32],
        bias: &[f32],
        start: &Start<'_>,
        clamp: Option<[f32; 2]>,
        y: &mut [f32],
    ) -> Operands {
        let (y, y_len) = (y.as_mut_ptr(), y.len());
        let add = start.place(y, y_len);
        Operands { x: x.as_ptr(), w: packed.as_ptr(), bias: bias.as_ptr(), add, y, clamp }
    }
}
