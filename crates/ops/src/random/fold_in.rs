use remat_types::{DType, ErrorKind, Fact, Facts, Result, Shape, smallvec};

use super::{stream, want_key};
use crate::args::{want_dtype, want_shape};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// `(key, n) -> key`: the `n`-th of the keys that follow from a key, for what draws again and again with one key.
///
/// `key: u64 [2]`, `n: i64 []`. The result is block `2^63 + n` of the key's Philox stream, which no tensor drawn with the
/// key itself reaches; a key for each `n`, negative ones included.
///
/// Errors: DType or Shape for a wrong key or number.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(key: key, n: i64))]
pub struct FoldIn {}

impl Op for FoldIn {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 2)?;
        want_key(x[0])?;
        want_dtype(x[1], DType::I64, "the number")?;
        want_shape(x[1], &Shape::scalar(), "the number")?;
        Ok(smallvec![Fact::new(DType::U64, [2])])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        const BEYOND: u64 = 1 << 63;
        let n = cx.x[1].slice::<i64>()?[0];
        let [a, b, c, d] = stream(&cx.x[0])?.block(BEYOND.wrapping_add_signed(n)).map(u64::from);
        cx.y[0].slice_mut::<u64>()?.copy_from_slice(&[a | b << 32, c | d << 32]);
        Ok(())
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Ok(smallvec![None, None])
    }
}

impl OpDef for FoldIn {
    const NAME: &'static str = "fold_in";

    fn samples() -> Vec<Sample<Self>> {
        const WHY: &str = "a function of integers";
        let (key, n) = (|| t(&[7u64, 3], [2]), |n: i64| t(&[n], []));
        // by an independent implementation of Philox
        let gives = |n: i64, key_of: [u64; 2]| {
            Sample::new(FoldIn {}, vec![key(), t(&[n], [])]).gives(vec![t(&key_of, [2])]).no_grad(WHY)
        };
        vec![
            gives(5, [0x7479_a783_38b1_7867, 0xfccf_c11d_4b58_0d08]),
            gives(6, [0x6b54_04e1_3106_5c59, 0xc940_c031_b1bc_2119]),
            gives(-1, [0xf87d_e1b0_b866_dcab, 0xf49b_1eeb_010f_47a4]),
            Sample::new(FoldIn {}, vec![key()]).fails(ErrorKind::Arity),
            Sample::new(FoldIn {}, vec![key(), t(&[1u64], [])]).fails(ErrorKind::DType),
            Sample::new(FoldIn {}, vec![key(), t(&[1i64], [1])]).fails(ErrorKind::Shape),
            Sample::new(FoldIn {}, vec![t(&[1u64], [1]), n(0)]).fails(ErrorKind::Shape),
        ]
    }
}
