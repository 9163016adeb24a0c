//! Messages between two ranks, who first agree on the call.

use std::time::Instant;

use remat_types::{Error, ErrorKind, Result};

use super::{Call, Communicator, TEXT_BYTES, put_text, text_of};

/// The role of a rank in a call between two: the first byte of its message to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Role {
    Sends = 1,
    Receives = 2,
    Fails = 3,
}

impl Communicator {
    /// Sends `x` to rank `to`, which receives it with an equal call; returns when it has arrived.
    ///
    /// Errors: Value for this rank, or one that does not exist; Peer if that rank receives something else, sends, too, failed, or does not
    /// come.
    pub fn send(&self, call: &Call, to: usize, x: &[u8]) -> Result<()> {
        self.meet(call, to, x.len(), Role::Sends, None)?;
        self.move_bytes(|t, limit| t.send(x, to, limit))
    }

    /// Receives what rank `from` sends with an equal call. Errors: as [`Communicator::send`].
    pub fn receive(&self, call: &Call, from: usize, y: &mut [u8]) -> Result<()> {
        self.meet(call, from, y.len(), Role::Receives, None)?;
        self.move_bytes(|t, limit| t.receive(y, from, limit))
    }

    /// Tells rank `peer` that this one cannot send or receive the next message between both. Errors: Value as
    /// [`Communicator::send`], Peer if that rank does not come.
    pub fn fail_message(&self, call: &Call, peer: usize, why: &Error) -> Result<()> {
        self.meet(call, peer, 0, Role::Fails, Some(why))
    }

    /// Agrees with one rank on a call between both. Errors: as [`Communicator::enter`]; none if this rank failed.
    fn meet(&self, call: &Call, peer: usize, bytes: usize, role: Role, failure: Option<&Error>) -> Result<()> {
        self.check_peer(peer)?;
        let number = self.0.counters.call(bytes);
        let start = Instant::now();
        let (mut mine, mut other) = ([0; TEXT_BYTES], [0; TEXT_BYTES]);
        mine[0] = role as u8;
        put_text(&mut mine[1..], &failure.map_or_else(|| call.0.clone(), Error::to_string));
        let (t, limit) = (&self.0.transport, self.0.limit);
        // the lower rank speaks first
        let met = match self.rank() < peer {
            true => t.send(&mine, peer, limit).and_then(|()| t.receive(&mut other, peer, limit)),
            false => t.receive(&mut other, peer, limit).and_then(|()| t.send(&mine, peer, limit)),
        };
        self.0.counters.waited(start.elapsed().as_nanos());
        met.map_err(|e| e.context(format!("{call}, call {number}")))?;
        let told = text_of(&other[1..]);
        if failure.is_some() {
            Ok(())
        } else if other[0] == Role::Fails as u8 {
            Err(Error::new(ErrorKind::Peer, format!("rank {peer} has no part in {call}: {told}")))
        } else if told != text_of(&mine[1..]) {
            let text = format!("rank {} calls {call}, while rank {peer} calls {told}", self.rank());
            Err(Error::new(ErrorKind::Peer, text))
        } else if other[0] == role as u8 {
            let does = if role == Role::Sends { "sends to" } else { "receives from" };
            let instead = if role == Role::Sends { "receive" } else { "send" };
            let text = format!(
                "rank {} {does} rank {peer}, which {does} rank {0} in the same place ({call}): one of the two must {instead} first",
                self.rank()
            );
            Err(Error::new(ErrorKind::Peer, text))
        } else {
            Ok(())
        }
    }
}
