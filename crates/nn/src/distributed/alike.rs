//! Properties that must be equal on all ranks. The ranks compare them on the host before they exchange tensors: a bucket of
//! another rank's gradients often has the same length by chance.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};

use remat_runtime::Device;
use remat_tensor::comm::{Call, Communicator};
use remat_types::{Error, ErrorKind, Result};

use crate::Parameter;

/// This rank's properties, as lines of text.
#[derive(Default)]
pub(super) struct Alike(Vec<String>);

impl Alike {
    /// An option of that name.
    pub(super) fn option(mut self, name: &str, value: impl Display) -> Self {
        self.0.push(format!("the option {name} = {value}"));
        self
    }

    /// Parameters or buffers, in their order.
    pub(super) fn parameters<'p>(mut self, all: impl IntoIterator<Item = (&'p String, &'p Parameter)>) -> Self {
        self.0.extend(all.into_iter().map(|(name, p)| {
            let frozen = if p.is_frozen() { ", frozen" } else { "" };
            format!("`{name}` of {} {}{frozen}", p.dtype(), p.whole_shape())
        }));
        self
    }

    /// Compares the properties with those of all ranks, while no collective waits on these devices. `mine` is this rank's own
    /// error about the call.
    ///
    /// Errors: `mine`; Peer, which names the first that differs and whose it is, if ranks differ, failed, or do not come.
    pub(super) fn check<'d>(
        self,
        call: &'static str,
        group: &Communicator,
        devices: impl IntoIterator<Item = &'d Device>,
        mine: Result<()>,
    ) -> Result<()> {
        if group.size() == 1 {
            return mine;
        }
        // a device's thread makes no call meanwhile
        let mut seen: Vec<&Device> = Vec::new();
        for device in devices {
            if !seen.contains(&device) {
                seen.push(device);
            }
        }
        let mine = mine.and_then(|()| seen.into_iter().try_for_each(|d| d.channel().sync()));
        group.agree(&Call::named(call), mine)?;
        let text = self.0.join("\n");
        let mut hash = DefaultHasher::new();
        text.hash(&mut hash);
        let digest = [(text.len() as u64).to_le_bytes(), hash.finish().to_le_bytes()].concat();
        let mut all = vec![0; digest.len() * group.size()];
        group.all_gather(&Call::named(format!("{call}: a digest")), &digest, &mut all)?;
        if all.chunks_exact(digest.len()).all(|other| other == digest) {
            return Ok(());
        }
        let length = |d: &[u8]| d.iter().take(size_of::<u64>()).rev().fold(0, |n, b| n << 8 | usize::from(*b));
        let mut end = 0;
        let mut part = |d: &[u8]| {
            let start = end;
            end += length(d);
            start..end
        };
        let parts: Vec<_> = all.chunks_exact(digest.len()).map(&mut part).collect();
        let mut texts = vec![0; end];
        group.all_gather_parts(&Call::named(format!("{call}: what differs")), text.as_bytes(), &mut texts, &parts)?;
        let texts: Vec<_> = parts.into_iter().map(|p| String::from_utf8_lossy(&texts[p]).into_owned()).collect();
        Err(differing(call, &texts))
    }
}

/// The first that the first rank and another do not have alike.
fn differing(call: &'static str, texts: &[String]) -> Error {
    let of_first = texts.first().map(String::as_str).unwrap_or_default();
    let other = texts.iter().position(|t| t != of_first).unwrap_or(0);
    let lines = |t: &str| t.lines().map(str::to_owned).collect::<Vec<_>>();
    let (a, b) = (lines(of_first), lines(&texts[other]));
    let at = (0..a.len().max(b.len())).find(|i| a.get(*i) != b.get(*i)).unwrap_or(0);
    let line = |all: &[String]| all.get(at).cloned().unwrap_or_else(|| "nothing more".to_owned());
    let sorted = |all: &[String]| all.iter().cloned().collect::<BTreeSet<_>>();
    let order = if sorted(&a) == sorted(&b) { " (the same in another order)" } else { "" };
    let text = format!(
        "rank {other} has {} where rank 0 has {}{order}: all ranks make it with the same options, of modules that have the same \
         parts in the same order",
        line(&b),
        line(&a)
    );
    Error::new(ErrorKind::Peer, text).with_op(call)
}
