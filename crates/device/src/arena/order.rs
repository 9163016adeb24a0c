//! The address order: segments as a doubly linked list in a slab, so that a block finds its neighbours without a search.

use super::{End, Owner};

/// Where a segment is kept in the slab.
pub(super) type At = u32;

/// Before the first and after the last segment.
pub(super) const NONE: At = At::MAX;

/// The use of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Used(Owner),
    /// Free and in the size index. Its neighbours are not in this state.
    Free,
    /// Free, and kept as it is for the next block of its size.
    Kept,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) start: usize,
    pub(super) bytes: usize,
    pub(super) before: At,
    pub(super) after: At,
    pub(super) state: State,
    /// The end of the free range that the segment was cut from.
    pub(super) end: End,
}

/// See the module's note.
#[derive(Clone, Debug)]
pub(super) struct Order {
    nodes: Vec<Node>,
    vacant: Vec<At>,
    pub(super) first: At,
    pub(super) last: At,
    /// The segment at which the next look begins; `NONE` for the first one.
    hand: At,
}

impl Default for Order {
    fn default() -> Self {
        Order { nodes: Vec::new(), vacant: Vec::new(), first: NONE, last: NONE, hand: NONE }
    }
}

impl Order {
    pub(super) fn node(&self, at: At) -> &Node {
        &self.nodes[at as usize]
    }

    pub(super) fn node_mut(&mut self, at: At) -> &mut Node {
        &mut self.nodes[at as usize]
    }

    /// Inserts a segment behind `before`, or as the first.
    pub(super) fn insert_after(&mut self, before: At, start: usize, bytes: usize, state: State) -> At {
        let after = if before == NONE { self.first } else { self.node(before).after };
        let node = Node { start, bytes, before, after, state, end: End::Low };
        let at = match self.vacant.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as At - 1
            }
        };
        self.link(before, at);
        self.link(at, after);
        at
    }

    pub(super) fn remove(&mut self, at: At) {
        let Node { before, after, .. } = *self.node(at);
        if self.hand == at {
            self.hand = after;
        }
        self.link(before, after);
        self.vacant.push(at);
    }

    /// Makes two segments neighbours; `NONE` stands for either end.
    fn link(&mut self, before: At, after: At) {
        match before {
            NONE => self.first = after,
            at => self.node_mut(at).after = after,
        }
        match after {
            NONE => self.last = before,
            at => self.node_mut(at).before = before,
        }
    }

    /// A neighbour, if it is free and indexed.
    pub(super) fn free_at(&self, at: At) -> Option<&Node> {
        (at != NONE).then(|| self.node(at)).filter(|n| n.state == State::Free)
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len() - self.vacant.len()
    }

    /// The first of the next `most` neighbours: they follow those of the last call, or are the last segments of all. If
    /// there are at most `most` segments, the first of all.
    pub(super) fn look(&mut self, most: usize) -> At {
        if self.len() <= most {
            return self.first;
        }
        let mut from = if self.hand == NONE { self.first } else { self.hand };
        let (mut end, mut missing) = (from, most);
        while missing > 0 && end != NONE {
            (end, missing) = (self.node(end).after, missing - 1);
        }
        self.hand = end;
        (0..missing).for_each(|_| from = self.node(from).before);
        from
    }

    /// All segments, by address.
    pub(super) fn iter(&self) -> impl Iterator<Item = (At, &Node)> {
        self.iter_from(self.first)
    }

    pub(super) fn iter_from(&self, first: At) -> impl Iterator<Item = (At, &Node)> {
        let some = |at: At| (at != NONE).then_some(at);
        std::iter::successors(some(first), move |at| some(self.node(*at).after)).map(|at| (at, self.node(at)))
    }
}
