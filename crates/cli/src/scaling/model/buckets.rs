//! The buckets that `DataParallel` makes, by the rule of `crates/nn/src/distributed/data_parallel.rs`; a test compares their number.

use super::Gradient;

/// The usual limit of a bucket.
pub(in crate::scaling) const BUCKET_BYTES: usize = 10 << 20;

/// Buckets that gradients make at least, if they are large enough.
const LEAST_BUCKETS: usize = 8;

/// A smaller limit is not used.
const SMALL_BUCKET_BYTES: usize = 64 << 10;

/// Gradients that are reduced together, by their places, in the order of reduction: from the last parameter to the first, of one
/// dtype each, until a bucket has `limit` bytes or an eighth of all.
pub(in crate::scaling) fn buckets(gradients: &[Gradient], limit: usize) -> Vec<Vec<usize>> {
    let all: usize = gradients.iter().map(|g| g.bytes).sum();
    let limit = limit.min((all / LEAST_BUCKETS).max(SMALL_BUCKET_BYTES));
    let mut whole: Vec<Vec<usize>> = Vec::new();
    let mut open: Vec<(&str, usize, Vec<usize>)> = Vec::new();
    for (i, g) in gradients.iter().enumerate().rev() {
        let at = open.iter().position(|o| o.0 == g.dtype).unwrap_or_else(|| {
            open.push((&g.dtype, 0, Vec::new()));
            open.len() - 1
        });
        open[at].1 += g.bytes;
        open[at].2.push(i);
        if open[at].1 >= limit {
            whole.push(open.remove(at).2);
        }
    }
    whole.extend(open.into_iter().map(|o| o.2));
    whole
}
