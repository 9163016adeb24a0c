use std::fmt::Debug;
use std::ops::Range;
use std::time::Duration;

use remat_types::{Error, ErrorKind, Result};

/// Moves bytes between ranks. All ranks of it make the same calls in the same order; a [`Communicator`](crate::Communicator) makes
/// sure of that.
///
/// Errors of every method (Peer): a rank is gone, or has not come or not moved its bytes within the limit, where the transport can tell.
pub trait Transport: Send + Sync + Debug {
    /// The number of this rank, from 0.
    fn rank(&self) -> usize;

    /// The number of ranks, at least 1.
    fn size(&self) -> usize;

    /// Waits until all ranks are here, at most as long as `limit`; each word becomes its greatest value over the ranks.
    fn agree(&self, words: &mut [u64; 3], limit: Duration) -> Result<()>;

    /// Range `r` of `send` goes to rank `r`, and lands in range `q` of `recv` from rank `q`. Ranges do not overlap.
    fn all_to_all(
        &self,
        send: &[u8],
        to: &[Range<usize>],
        recv: &mut [u8],
        from: &[Range<usize>],
        limit: Duration,
    ) -> Result<()>;

    /// Copies each rank's `mine` to its range of `all`, on all ranks.
    fn all_gather(&self, mine: &[u8], all: &mut [u8], from: &[Range<usize>], limit: Duration) -> Result<()>;

    /// The bytes of rank `root`, on all ranks.
    fn broadcast(&self, bytes: &mut [u8], root: usize, limit: Duration) -> Result<()>;

    /// Sends to one rank, which receives as many bytes; returns when they may be overwritten.
    fn send(&self, bytes: &[u8], to: usize, limit: Duration) -> Result<()>;

    /// Receives what one rank sends.
    fn receive(&self, bytes: &mut [u8], from: usize, limit: Duration) -> Result<()>;

    /// The ranks of the same `color` as a group of their own, in the order of `key` and then of rank; `None` for a rank without a
    /// color. All ranks call it.
    fn split(&self, color: Option<usize>, key: usize) -> Result<Option<Box<dyn Transport>>>;
}

/// The transport of one rank.
#[derive(Debug)]
pub(crate) struct Alone;

impl Transport for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn agree(&self, _words: &mut [u64; 3], _limit: Duration) -> Result<()> {
        Ok(())
    }

    fn all_to_all(
        &self,
        send: &[u8],
        to: &[Range<usize>],
        recv: &mut [u8],
        from: &[Range<usize>],
        _limit: Duration,
    ) -> Result<()> {
        recv[from[0].clone()].copy_from_slice(&send[to[0].clone()]);
        Ok(())
    }

    fn all_gather(&self, mine: &[u8], all: &mut [u8], from: &[Range<usize>], _limit: Duration) -> Result<()> {
        all[from[0].clone()].copy_from_slice(mine);
        Ok(())
    }

    fn broadcast(&self, _bytes: &mut [u8], _root: usize, _limit: Duration) -> Result<()> {
        Ok(())
    }

    fn send(&self, _bytes: &[u8], to: usize, _limit: Duration) -> Result<()> {
        Err(Error::new(ErrorKind::Value, format!("there is no rank {to} beside this one")))
    }

    fn receive(&self, _bytes: &mut [u8], from: usize, _limit: Duration) -> Result<()> {
        Err(Error::new(ErrorKind::Value, format!("there is no rank {from} beside this one")))
    }

    fn split(&self, color: Option<usize>, _key: usize) -> Result<Option<Box<dyn Transport>>> {
        Ok(color.map(|_| Box::new(Alone) as Box<dyn Transport>))
    }
}
