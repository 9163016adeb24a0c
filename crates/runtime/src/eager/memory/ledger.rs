//! The holders of bytes, now and at the peak.

use rustc_hash::FxHashMap;

use crate::report::Kind;

/// An op's name with its index in the ledger's table, so that counting bytes needs no lookup.
#[derive(Clone, Copy, Debug)]
pub(in crate::eager) struct Label {
    pub(in crate::eager) text: &'static str,
    at: u32,
}

/// Live and peak bytes by kind and by op.
#[derive(Clone, Default)]
pub(in crate::eager) struct Ledger {
    now: Holders,
    at_peak: Holders,
    snapshot_of: usize,
    labels: Vec<Label>,
    /// By the text's address. Reports join equal texts.
    by_address: FxHashMap<usize, Label>,
    last: Option<Label>,
}

#[derive(Clone, Default)]
struct Holders {
    by_kind: [usize; Kind::ALL.len()],
    by_label: Vec<usize>,
}

impl Ledger {
    /// The label of a text.
    pub(in crate::eager) fn label(&mut self, text: &'static str) -> Label {
        if let Some(last) = self.last.filter(|l| std::ptr::eq(l.text, text)) {
            return last;
        }
        let next = Label { text, at: self.labels.len() as u32 };
        let label = *self.by_address.entry(text.as_ptr() as usize).or_insert(next);
        if label.at == next.at {
            self.labels.push(label);
            self.now.by_label.push(0);
        }
        self.last = Some(label);
        label
    }

    pub(in crate::eager) fn add(&mut self, kind: Kind, label: Label, bytes: usize) {
        self.now.by_kind[kind as usize] += bytes;
        self.now.by_label[label.at as usize] += bytes;
    }

    pub(in crate::eager) fn sub(&mut self, kind: Kind, label: Label, bytes: usize) {
        self.now.by_kind[kind as usize] -= bytes;
        self.now.by_label[label.at as usize] -= bytes;
    }

    /// Call this before bytes are freed. It copies the holders at a new peak.
    pub(in crate::eager) fn note_peak(&mut self, in_use: usize) {
        if in_use > self.snapshot_of {
            self.snapshot_of = in_use;
            self.at_peak.by_kind = self.now.by_kind;
            self.at_peak.by_label.clone_from(&self.now.by_label);
        }
    }

    /// Bytes at the peak by kind and by op.
    pub(in crate::eager) fn at_peak(&self) -> ([usize; Kind::ALL.len()], FxHashMap<&'static str, usize>) {
        let mut by_op: FxHashMap<&'static str, usize> = FxHashMap::default();
        for (label, bytes) in self.labels.iter().zip(&self.at_peak.by_label) {
            *by_op.entry(label.text).or_default() += bytes;
        }
        (self.at_peak.by_kind, by_op)
    }

    pub(in crate::eager) fn reset(&mut self) {
        self.snapshot_of = 0;
    }
}
