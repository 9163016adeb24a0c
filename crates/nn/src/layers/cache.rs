use std::sync::atomic::{AtomicUsize, Ordering};

use remat_ops::index::{IndexPut, PutFn};
use remat_tensor::Tensor;
use remat_types::{DType, Error, ErrorKind, Result};

use crate::{Arg, Init, InitCx, Module, Parameter, update};

/// The keys and values of one attention over a text that grows. The cache has room for `places` of them, and the first
/// [`KvCache::len`] are there. New ones are written in place, and attention reads views. So the cost of a step depends only
/// on the places that it adds.
///
/// Both lie in the device's arena under its budget from the beginning, `2 n places heads d` numbers.
///
/// ```
/// use remat_nn::{InitCx, KvCache};
/// # use remat_runtime::Device;
/// # use remat_tensor::Tensor;
/// # fn main() -> remat_types::Result<()> {
/// # let device = Device::cpu(Default::default())?;
/// let cache = KvCache::new(&mut InitCx::new(&device, 1), 1, 8, 2, 4)?;
/// let step = Tensor::ones(&device, [1, 3, 2, 4], remat_types::DType::F32)?;
/// let (k, _) = cache.append(&step, &step)?;
/// assert_eq!((k.dims(), cache.len()), (&[1, 3, 2, 4][..], 3));
/// assert_eq!(cache.append(&step, &step)?.0.dims(), [1, 6, 2, 4]);
/// # Ok(())
/// # }
/// ```
#[derive(Module)]
#[module(crate = crate)]
pub struct KvCache {
    keys: Parameter,
    values: Parameter,
    #[module(skip)]
    len: AtomicUsize,
}

impl KvCache {
    /// For `n` texts of at most `places` tokens, with `heads` heads of `d` numbers each. Errors: Budget if it does not fit.
    pub fn new(cx: &mut InitCx, n: usize, places: usize, heads: usize, d: usize) -> Result<Self> {
        let dtype = cx.dtype;
        let mut room = || cx.buffer([n, places, heads, d], dtype, Init::Zeros);
        Ok(KvCache { keys: room()?, values: room()?, len: AtomicUsize::new(0) })
    }

    /// How many tokens are there.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// True if no token is there.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many tokens there is room for.
    pub fn places(&self) -> usize {
        self.keys.shape()[1]
    }

    /// Forgets all tokens but the first `len`. Errors: Value for more than are there.
    pub fn truncate(&self, len: usize) -> Result<()> {
        if len > self.len() {
            let text = format!("the first {len} of {} tokens", self.len());
            return Err(Error::new(ErrorKind::Value, text).with_op("kv_cache"));
        }
        self.len.store(len, Ordering::Relaxed);
        Ok(())
    }

    /// Forgets all tokens.
    pub fn clear(&self) {
        self.len.store(0, Ordering::Relaxed);
    }

    /// Puts the keys and values of `t` more tokens behind those that are there, `k, v: [n, t, heads, d]`, and gives all of them,
    /// `[n, len, heads, d]`. Nothing is recorded for gradients. Errors: Shape for other extents, or more tokens than there is room
    /// for; DType. After an error the cache is as before.
    #[track_caller]
    pub fn append(&self, k: &Tensor, v: &Tensor) -> Result<(Tensor, Tensor)> {
        let (len, room) = (self.len(), self.keys.shape().clone());
        let t = match (k.dims(), v.dims()) {
            ([n, t, h, d], of_v) if *of_v == *k.dims() && [*n, *h, *d] == [room[0], room[2], room[3]] => *t,
            _ => {
                let text = format!("keys of shape {} and values of shape {} for room of {room}", k.shape(), v.shape());
                return Err(Error::new(ErrorKind::Shape, text).with_op("kv_cache"));
            }
        };
        let all = len + t;
        if all > room[1] {
            let text = format!("{t} tokens behind {len}: there is room for {}", room[1]);
            return Err(Error::new(ErrorKind::Shape, text).with_op("kv_cache"));
        }
        let at = Tensor::arange(self.keys.device(), len as i64, all as i64, 1, DType::I64)?;
        for (to, new) in [(&self.keys, k), (&self.values, v)] {
            let op = IndexPut { f: PutFn::Set, axes: [1].into_iter().collect(), negative: false };
            update(op, vec![Arg::State(to), Arg::Value(new.detach()), Arg::Value(at.clone())])?;
        }
        self.len.store(all, Ordering::Relaxed);
        Ok((self.keys.get()?.narrow(1, 0, all)?, self.values.get()?.narrow(1, 0, all)?))
    }
}
