//! The order in which a stage of a pipeline computes and exchanges messages.
//!
//! Sender and receiver of a message wait for each other. So the two ends of a link must agree on the order of all messages in
//! both directions, and ranks must not wait in a circle. One forward and one backward in turn, written down as the papers do,
//! deadlocks: a stage would send an output to a stage that is about to send a gradient back. Here a stage first receives the
//! gradient and then sends the output. The order of every link is `F0 .. Fw B0 Fw+1 B1 ..`: the later stage receives each output
//! one step before it sends a gradient. A test plays all small pipelines through.

/// In which order a [`Pipeline`](super::Pipeline) takes the passes of its micro-batches. Both give the same bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PipelineSchedule {
    /// All forward passes, then all backward passes (Huang et al., GPipe, 2019): a stage holds what all micro-batches keep for their
    /// backward passes.
    GPipe,
    /// As soon as a stage can, one forward pass and one backward pass in turn (Narayanan et al., PipeDream, 2019; with all updates at
    /// the end of a batch, PipeDream-Flush, 2021): stage `s` of `n` holds what `n - s` micro-batches keep, whatever their number.
    #[default]
    OneForwardOneBackward,
}

/// An action of a stage for micro-batch `i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// Takes its input from the stage before.
    ReceiveInput(usize),
    Forward(usize),
    /// Gives its output to the stage behind.
    SendOutput(usize),
    /// Takes the gradient of its output from the stage behind.
    ReceiveGradient(usize),
    Backward(usize),
    /// Gives the gradient of its input to the stage before.
    SendGradient(usize),
}

impl PipelineSchedule {
    /// All moves of stage `stage` of `stages`, for so many micro-batches.
    pub(super) fn moves(self, stage: usize, stages: usize, batches: usize) -> Vec<Move> {
        let mut moves = Moves { is_first: stage == 0, is_last: stage + 1 == stages, list: Vec::new() };
        // forward passes before the first backward one
        let ahead = match self {
            PipelineSchedule::GPipe => batches,
            PipelineSchedule::OneForwardOneBackward => batches.min(stages - 1 - stage),
        };
        (0..ahead).for_each(|i| moves.forward(i));
        (ahead..batches).for_each(|i| moves.both(i, i - ahead));
        (batches - ahead..batches).for_each(|i| moves.backward(i));
        moves.list
    }

    /// The moves without backward passes.
    pub(super) fn forward_moves(stage: usize, stages: usize, batches: usize) -> Vec<Move> {
        let mut moves = Moves { is_first: stage == 0, is_last: stage + 1 == stages, list: Vec::new() };
        (0..batches).for_each(|i| moves.forward(i));
        moves.list
    }
}

struct Moves {
    is_first: bool,
    is_last: bool,
    list: Vec<Move>,
}

impl Moves {
    fn push(&mut self, moves: [Move; 3]) {
        moves.into_iter().for_each(|m| self.push_one(m));
    }

    /// Adds a move, unless it is a message to or from a stage that does not exist.
    fn push_one(&mut self, m: Move) {
        let is_made = match m {
            Move::Forward(_) | Move::Backward(_) => true,
            Move::ReceiveInput(_) | Move::SendGradient(_) => !self.is_first,
            Move::SendOutput(_) | Move::ReceiveGradient(_) => !self.is_last,
        };
        if is_made {
            self.list.push(m);
        }
    }

    fn forward(&mut self, i: usize) {
        self.push([Move::ReceiveInput(i), Move::Forward(i), Move::SendOutput(i)]);
    }

    fn backward(&mut self, i: usize) {
        self.push([Move::ReceiveGradient(i), Move::Backward(i), Move::SendGradient(i)]);
    }

    /// The forward pass of `i` and the backward pass of `j`.
    fn both(&mut self, i: usize, j: usize) {
        self.push([Move::ReceiveInput(i), Move::Forward(i), Move::ReceiveGradient(j)]);
        self.push([Move::SendOutput(i), Move::Backward(j), Move::SendGradient(j)]);
    }
}

#[cfg(test)]
mod tests {
    use super::{Move, PipelineSchedule};

    const BOTH: [PipelineSchedule; 2] = [PipelineSchedule::GPipe, PipelineSchedule::OneForwardOneBackward];

    /// The message that a move is, as sender, receiver, micro-batch.
    fn message(m: Move, stage: usize) -> Option<(usize, usize, usize)> {
        match m {
            Move::ReceiveInput(i) => Some((stage - 1, stage, i)),
            Move::SendOutput(i) => Some((stage, stage + 1, i)),
            Move::ReceiveGradient(i) => Some((stage + 1, stage, i)),
            Move::SendGradient(i) => Some((stage, stage - 1, i)),
            Move::Forward(_) | Move::Backward(_) => None,
        }
    }

    /// Plays all stages through, where sender and receiver wait for each other. Returns the number of moves left when no stage
    /// could go on.
    fn left_over(all: &[Vec<Move>]) -> usize {
        let mut at = vec![0; all.len()];
        loop {
            let next: Vec<Option<Move>> = all.iter().zip(&at).map(|(moves, at)| moves.get(*at).copied()).collect();
            let meets = |s: usize, m: Move| match message(m, s) {
                None => true,
                Some((from, to, _)) => {
                    let peer = from + to - s;
                    next[peer].and_then(|p| message(p, peer)) == message(m, s)
                }
            };
            let able: Vec<usize> = (0..all.len()).filter(|s| next[*s].is_some_and(|m| meets(*s, m))).collect();
            if able.is_empty() {
                return all.iter().zip(&at).map(|(moves, at)| moves.len() - at).sum();
            }
            able.into_iter().for_each(|s| at[s] += 1);
        }
    }

    #[test]
    fn no_pipeline_deadlocks() {
        for schedule in BOTH {
            for stages in 1..7 {
                for batches in 0..10 {
                    let all: Vec<_> = (0..stages).map(|s| schedule.moves(s, stages, batches)).collect();
                    assert_eq!(left_over(&all), 0, "{schedule:?}, {stages} stages, {batches} micro-batches: {all:?}");
                    let forward: Vec<_> =
                        (0..stages).map(|s| PipelineSchedule::forward_moves(s, stages, batches)).collect();
                    assert_eq!(left_over(&forward), 0, "{stages} stages, {batches} micro-batches: {forward:?}");
                }
            }
        }
    }

    #[test]
    fn passes_come_once_and_in_order_and_few_are_held() {
        for (stages, batches) in [(1, 3), (2, 1), (3, 2), (4, 9), (5, 4)] {
            for schedule in BOTH {
                for stage in 0..stages {
                    let moves = schedule.moves(stage, stages, batches);
                    let forward = moves.iter().filter_map(|m| if let Move::Forward(i) = m { Some(*i) } else { None });
                    let backward = moves.iter().filter_map(|m| if let Move::Backward(i) = m { Some(*i) } else { None });
                    assert!(forward.eq(0..batches) && backward.eq(0..batches), "{moves:?}");
                    let (mut held, mut most) = (0usize, 0);
                    for m in &moves {
                        match m {
                            Move::Forward(_) => held += 1,
                            Move::Backward(_) => held -= 1,
                            _ => {}
                        }
                        most = most.max(held);
                    }
                    let want = match schedule {
                        PipelineSchedule::GPipe => batches,
                        PipelineSchedule::OneForwardOneBackward => batches.min(stages - stage),
                    };
                    assert_eq!(most, want, "stage {stage} of {stages}: {moves:?}");
                }
            }
        }
    }
}
