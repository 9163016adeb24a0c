//! Rounding to the formats of floats, in integers, so that every mode is exact (PTX ISA 8.7, sections 6.5 and 9.7.9.21).

/// A rounding mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// `.rn`: to nearest, ties to even.
    NearestEven,
    /// `.rna`: to nearest, ties away from zero.
    NearestAway,
    /// `.rz`.
    Zero,
    /// `.rm`: towards minus infinity.
    Down,
    /// `.rp`: towards plus infinity.
    Up,
}

/// A binary format of IEEE 754 or of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    exponent_bits: u32,
    fraction_bits: u32,
}

impl Format {
    pub(crate) const F16: Format = Format { exponent_bits: 5, fraction_bits: 10 };
    pub(crate) const BF16: Format = Format { exponent_bits: 8, fraction_bits: 7 };
    /// The upper 19 bits of an f32.
    pub(crate) const TF32: Format = Format { exponent_bits: 8, fraction_bits: 10 };
    pub(crate) const F32: Format = Format { exponent_bits: 8, fraction_bits: 23 };
    pub(crate) const F64: Format = Format { exponent_bits: 11, fraction_bits: 52 };

    fn infinity(self) -> u64 {
        ((1 << self.exponent_bits) - 1) << self.fraction_bits
    }

    /// The NaN that instructions make. That of f64 is the one that the processor makes.
    pub(crate) fn nan(self) -> u64 {
        if self == Format::F64 {
            return f64::NAN.to_bits();
        }
        self.infinity() | ((1 << self.fraction_bits) - 1)
    }

    fn sign(self, is_negative: bool) -> u64 {
        u64::from(is_negative) << (self.exponent_bits + self.fraction_bits)
    }

    /// The bits of `magnitude * 2^exponent`, rounded once. `is_more` says that the true value is a little larger.
    pub(crate) fn round(self, n: Exact, mode: Rounding) -> u64 {
        let sign = self.sign(n.is_negative);
        if n.magnitude == 0 {
            return sign;
        }
        let bias = (1 << (self.exponent_bits - 1)) - 1;
        let least = 1 - bias;
        let top = n.exponent + 63 - n.magnitude.leading_zeros() as i32;
        let unit = top.max(least) - self.fraction_bits as i32;
        let (kept, guard, rest) = shift_right(n.magnitude, unit - n.exponent);
        let rest = rest || n.is_more;
        let goes_up = match mode {
            Rounding::NearestEven => guard && (rest || kept & 1 == 1),
            Rounding::NearestAway => guard,
            Rounding::Zero => false,
            Rounding::Down => n.is_negative && (guard || rest),
            Rounding::Up => !n.is_negative && (guard || rest),
        };
        // A carry out of the fraction arrives in the exponent, which is right in every case.
        let exponent = if top < least { 0 } else { (top - least) as u64 };
        let bits = (exponent << self.fraction_bits) + kept + u64::from(goes_up);
        sign | self.limit(bits, n.is_negative, mode)
    }

    fn limit(self, bits: u64, is_negative: bool, mode: Rounding) -> u64 {
        let stays_finite = match mode {
            Rounding::NearestEven | Rounding::NearestAway => false,
            Rounding::Zero => true,
            Rounding::Down => !is_negative,
            Rounding::Up => is_negative,
        };
        match bits >= self.infinity() {
            true => self.infinity() - u64::from(stays_finite),
            false => bits,
        }
    }

    /// The bits of an f64 in this format. A NaN becomes the format's own.
    pub(crate) fn encode(self, x: f64, mode: Rounding) -> u64 {
        if x.is_nan() {
            return self.nan();
        }
        if x.is_infinite() {
            return self.sign(x < 0.0) | self.infinity();
        }
        self.round(Exact::float(x), mode)
    }

    /// The value of bits in this format, which f64 has exactly.
    pub(crate) fn decode(self, bits: u64) -> f64 {
        let fraction = bits & ((1 << self.fraction_bits) - 1);
        let exponent = (bits >> self.fraction_bits) & ((1 << self.exponent_bits) - 1);
        let is_negative = bits >> (self.exponent_bits + self.fraction_bits) & 1 == 1;
        let bias = (1i32 << (self.exponent_bits - 1)) - 1;
        let magnitude = match exponent {
            0 => fraction as f64 * power_of_two(1 - bias - self.fraction_bits as i32),
            e if e == (1 << self.exponent_bits) - 1 => {
                if fraction == 0 {
                    f64::INFINITY
                } else {
                    f64::NAN
                }
            }
            e => {
                let whole = fraction | 1 << self.fraction_bits;
                whole as f64 * power_of_two(e as i32 - bias - self.fraction_bits as i32)
            }
        };
        if is_negative { -magnitude } else { magnitude }
    }
}

/// `2^n` for the exponents of formats below f64.
fn power_of_two(n: i32) -> f64 {
    f64::from_bits(((n + 1023) as u64) << 52)
}

/// A number as sign, magnitude and power of two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exact {
    pub(crate) is_negative: bool,
    pub(crate) magnitude: u64,
    pub(crate) exponent: i32,
    pub(crate) is_more: bool,
}

impl Exact {
    /// A finite float.
    fn float(x: f64) -> Exact {
        let bits = x.to_bits();
        let fraction = bits & ((1 << 52) - 1);
        let (magnitude, exponent) = match (bits >> 52) & 0x7ff {
            0 => (fraction, -1074),
            e => (fraction | 1 << 52, e as i32 - 1075),
        };
        Exact { is_negative: x.is_sign_negative(), magnitude, exponent, is_more: false }
    }

    /// An integer of 64 bits.
    pub(crate) fn integer(bits: u64, is_signed: bool) -> Exact {
        let is_negative = is_signed && (bits as i64) < 0;
        let magnitude = if is_negative { (bits as i64).unsigned_abs() } else { bits };
        Exact { is_negative, magnitude, exponent: 0, is_more: false }
    }
}

/// The bits that are kept, the bit below them, and whether any bit below that is set.
fn shift_right(x: u64, by: i32) -> (u64, bool, bool) {
    match by {
        i32::MIN..=0 => (x << -by, false, false),
        1..=63 => (x >> by, x >> (by - 1) & 1 == 1, x & ((1 << (by - 1)) - 1) != 0),
        64 => (0, x >> 63 == 1, x & (u64::MAX >> 1) != 0),
        _ => (0, false, x != 0),
    }
}

/// `p + c`, where the last bit says whether the sum was inexact: a second rounding to at most 51 bits is then a single one.
pub(crate) fn add_to_odd(p: f64, c: f64) -> f64 {
    let sum = p + c;
    let part = sum - p;
    let error = (p - (sum - part)) + (c - part);
    // NaN, if an operand is no number, is not inexact
    let is_inexact = error.partial_cmp(&0.0).is_some_and(|o| o.is_ne());
    if !is_inexact || sum.to_bits() & 1 == 1 {
        return sum;
    }
    let is_away = (error > 0.0) == (sum > 0.0);
    f64::from_bits(if is_away { sum.to_bits() + 1 } else { sum.to_bits() - 1 })
}

/// `a + b`, rounded once in a mode.
pub(crate) fn add_directed(a: f64, b: f64, mode: Rounding) -> f64 {
    let sum = a + b;
    if !a.is_finite() || !b.is_finite() {
        return sum;
    }
    let is_negative = sum.is_sign_negative();
    if sum.is_infinite() {
        let sign = Format::F64.sign(is_negative);
        return f64::from_bits(sign | Format::F64.limit(sum.to_bits() & !sign, is_negative, mode));
    }
    // a sum of opposites is -0 if it is rounded down
    if sum == 0.0 && mode == Rounding::Down && !(a.is_sign_positive() && b.is_sign_positive()) {
        return -0.0;
    }
    // the part that the sum lacks is a float, and is found exactly from the larger operand (Dekker, 1971)
    let (large, small) = if a.abs() < b.abs() { (b, a) } else { (a, b) };
    let lacking = small - (sum - large);
    match mode {
        Rounding::Down if lacking < 0.0 => sum.next_down(),
        Rounding::Up if lacking > 0.0 => sum.next_up(),
        Rounding::Zero if lacking < 0.0 && !is_negative => sum.next_down(),
        Rounding::Zero if lacking > 0.0 && is_negative => sum.next_up(),
        _ => sum,
    }
}

/// The NaN of single-precision instructions, `0x7fffffff`, in the place of any NaN (PTX ISA 8.7, section 9.7.3).
pub(crate) fn canonical(x: f32) -> f32 {
    // by bits: a compiler may take one NaN for another
    let bits = x.to_bits();
    f32::from_bits(if bits & 0x7fff_ffff > 0x7f80_0000 { 0x7fff_ffff } else { bits })
}

/// `a b + c` for the lanes of a row, rounded once.
///
/// Without instructions for it, the function of the library is called for each lane. In f64 the product is exact, and rounding
/// the sum twice is wrong only where the first result lies halfway between two numbers of f32, or where f32 has fewer bits
/// because the result is subnormal. So a row is computed in f64, and again by the library if one of its lanes is such.
pub(crate) fn fused_row<const N: usize>(a: &[u32; N], b: &[u32; N], c: &[u32; N]) -> [f32; N] {
    const BELOW_F32: u64 = (1 << 29) - 1;
    const HALFWAY: u64 = 1 << 28;
    let mut out = [0.0; N];
    let mut doubt = 0u64;
    for lane in 0..N {
        let (x, y, z) = (f32::from_bits(a[lane]), f32::from_bits(b[lane]), f32::from_bits(c[lane]));
        let sum = f64::from(x) * f64::from(y) + f64::from(z);
        let is_tie = u64::from(sum.to_bits() & BELOW_F32 == HALFWAY);
        let is_small = u64::from(sum.abs() < f64::from(f32::MIN_POSITIVE)) & u64::from(sum != 0.0);
        doubt |= is_tie | is_small;
        out[lane] = canonical(sum as f32);
    }
    if doubt != 0 {
        for lane in 0..N {
            let (x, y, z) = (f32::from_bits(a[lane]), f32::from_bits(b[lane]), f32::from_bits(c[lane]));
            out[lane] = canonical(x.mul_add(y, z));
        }
    }
    out
}

/// An f16 as it lies in a register.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct F16(pub(crate) u16);

/// A bf16 as it lies in a register.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bf16(pub(crate) u16);

/// A float of 16 bits. Sums, products, quotients and roots of two such numbers, rounded to f64 and then to 16 bits, are
/// rounded correctly: f64 has more than twice the bits and a larger range.
pub(crate) trait Half: Copy + Default + Send + Sync + 'static {
    const FORMAT: Format;
    fn from_bits(bits: u16) -> Self;
    fn bits(self) -> u16;

    fn value(self) -> f64 {
        Self::FORMAT.decode(u64::from(self.bits()))
    }

    fn nearest(x: f64) -> Self {
        Self::from_bits(Self::FORMAT.encode(x, Rounding::NearestEven) as u16)
    }
}

impl Half for F16 {
    const FORMAT: Format = Format::F16;
    fn from_bits(bits: u16) -> Self {
        F16(bits)
    }
    fn bits(self) -> u16 {
        self.0
    }
}

impl Half for Bf16 {
    const FORMAT: Format = Format::BF16;
    fn from_bits(bits: u16) -> Self {
        Bf16(bits)
    }
    fn bits(self) -> u16 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_survives_a_round_trip() {
        for bits in 0..=u16::MAX {
            let x = F16(bits);
            let is_nan = bits & 0x7fff > 0x7c00;
            assert_eq!(F16::nearest(x.value()).0, if is_nan { 0x7fff } else { bits });
        }
    }

    #[test]
    fn rounding_to_f32_is_the_processors() {
        let mut state = 1u64;
        for _ in 0..200_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // exponents around those of f32, so that subnormals and overflow occur
            let exponent = 1023 - 160 + (state >> 40) % 300;
            let x = f64::from_bits((state << 63) | exponent << 52 | (state >> 11) & ((1 << 52) - 1));
            assert_eq!(Format::F32.encode(x, Rounding::NearestEven) as u32, (x as f32).to_bits(), "{x:e}");
            let (down, up) = (Format::F32.encode(x, Rounding::Down), Format::F32.encode(x, Rounding::Up));
            let (down, up) = (f32::from_bits(down as u32), f32::from_bits(up as u32));
            assert!(f64::from(down) <= x && x <= f64::from(up) && (down == up || down.next_up() == up));
        }
    }

    #[test]
    fn modes_differ_at_ties_and_ends() {
        let encode = |x, mode| Format::F16.encode(x, mode);
        let tie = 1.0 + f64::powi(2.0, -11);
        assert_eq!(encode(tie, Rounding::NearestEven), 0x3c00);
        assert_eq!(encode(tie, Rounding::NearestAway), 0x3c01);
        assert_eq!(encode(65520.0, Rounding::NearestEven), 0x7c00);
        assert_eq!(encode(65520.0, Rounding::Zero), 0x7bff);
        assert_eq!(encode(-65520.0, Rounding::Up), 0xfbff);
        assert_eq!(encode(-65520.0, Rounding::Down), 0xfc00);
        assert_eq!(encode(1e-30, Rounding::Up), 1);
        assert_eq!(encode(-1e-30, Rounding::Up), 0x8000);
        assert_eq!(encode(f64::powi(2.0, -25), Rounding::NearestEven), 0);
        assert_eq!(encode(f64::powi(2.0, -25), Rounding::NearestAway), 1);
    }

    #[test]
    fn integers_round_once() {
        let exact = Exact::integer(0xffff_ff7f_ffff_ffff, false);
        assert_eq!(Format::F32.round(exact, Rounding::NearestEven) as u32, (0xffff_ff7f_ffff_ffffu64 as f32).to_bits());
        let least = Exact::integer(i64::MIN as u64, true);
        assert_eq!(Format::F32.round(least, Rounding::Zero) as u32, (i64::MIN as f32).to_bits());
        assert_eq!(Format::F32.round(Exact::integer(0, true), Rounding::Down), 0);
    }

    #[test]
    fn sums_of_f64_are_rounded_once_in_every_mode() {
        let (tiny, max) = (f64::from_bits(1), f64::MAX);
        let all = |a, b| [Rounding::Zero, Rounding::Down, Rounding::Up].map(|mode| add_directed(a, b, mode).to_bits());
        let bits = |x: [f64; 3]| x.map(f64::to_bits);
        let (below, above) = (1f64.next_down(), 1f64.next_up());
        assert_eq!(all(1.0, tiny), bits([1.0, 1.0, above]));
        assert_eq!(all(-tiny, 1.0), bits([below, below, 1.0]));
        assert_eq!(all(-1.0, -tiny), bits([-1.0, -above, -1.0]));
        assert_eq!(all(0.5f64.next_down(), 0.5), bits([below, below, 1.0]));
        assert_eq!(all(max, max), bits([max, max, f64::INFINITY]));
        assert_eq!(all(-max, -max), bits([-max, f64::NEG_INFINITY, -max]));
        assert_eq!(all(max, tiny), bits([max, max, f64::INFINITY]));
        assert_eq!(all(2.5, -2.5), bits([0.0, -0.0, 0.0]));
        assert_eq!(all(0.0, 0.0), bits([0.0; 3]));
        assert_eq!(all(f64::INFINITY, -max), bits([f64::INFINITY; 3]));
        assert_eq!(all(tiny, tiny), bits([2.0 * tiny; 3]));
    }

    #[test]
    fn a_sum_to_odd_is_rounded_once() {
        // 2048 + 1 is a tie of f16; a little more must round up, which a first rounding to f64 would lose
        let sum = add_to_odd(2049.0, f64::powi(2.0, -48));
        assert_eq!(F16::nearest(sum).value(), 2050.0);
        assert_eq!(F16::nearest(add_to_odd(2049.0, 0.0)).value(), 2048.0);
        assert_eq!(F16::nearest(add_to_odd(2049.0, -f64::powi(2.0, -48))).value(), 2048.0);
        assert!(add_to_odd(f64::INFINITY, f64::NEG_INFINITY).is_nan());
    }

    #[test]
    fn a_row_without_instructions_for_it_is_the_librarys() {
        let mut state = 1u64;
        let mut drawn = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // few bits, so that ties occur, and few exponents, so that sums cancel and some are subnormal
            let exponent = [0, 1, 63, 64, 126, 127, 139, 255][(state >> 60) as usize % 8] << 23;
            (state >> 33) as u32 & 0x8000_0000 | exponent | (state >> 40) as u32 & 0x0070_0801
        };
        for _ in 0..20_000 {
            let [a, b, c]: [[u32; 8]; 3] = std::array::from_fn(|_| std::array::from_fn(|_| drawn()));
            let found = fused_row(&a, &b, &c).map(f32::to_bits);
            let value = f32::from_bits;
            let wanted = std::array::from_fn(|k| canonical(value(a[k]).mul_add(value(b[k]), value(c[k]))).to_bits());
            assert_eq!(found, wanted, "{a:x?} {b:x?} {c:x?}");
        }
    }
}
