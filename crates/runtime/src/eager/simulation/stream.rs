//! A command stream as data: the program's requests to the worker, without values.

use remat_types::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::report::Kind;

/// One command. Tensors are numbers, and no number is used twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamCommand {
    /// Data came from the host, or existed when the recording began.
    Put {
        /// The tensor.
        id: u64,
        /// Its bytes.
        bytes: usize,
        /// The kind under which it counts.
        kind: Kind,
    },
    /// An op ran.
    Apply {
        /// Its label.
        op: String,
        /// Inputs, and whether the last handle on each ended with the command.
        x: Vec<(u64, bool)>,
        /// Outputs with their bytes.
        y: Vec<(u64, usize)>,
        /// Pairs (input, output) that may share storage.
        overwrite: Vec<(usize, usize)>,
        /// Scratch memory: workspace and copies of strided inputs.
        scratch_bytes: usize,
        /// False if it must not run again.
        repeatable: bool,
        /// Time of the run.
        cost_ns: u64,
    },
    /// A tensor that shares another's storage.
    View {
        /// The other tensor, and whether the last handle on it ended with the command.
        x: (u64, bool),
        /// The view.
        y: u64,
    },
    /// The last handle ended.
    Delete {
        /// The tensor.
        id: u64,
    },
    /// The user asked for the bytes to be freed.
    DropValue {
        /// The tensor.
        id: u64,
    },
    /// Gradients end at the tensor.
    NoteLeaf {
        /// The tensor.
        id: u64,
    },
    /// The tensor became state.
    Commit {
        /// The tensor.
        id: u64,
        /// The kind under which it counts.
        kind: Kind,
    },
    /// The value was read.
    Fetch {
        /// The tensor.
        id: u64,
    },
    /// A step ended.
    StepMark,
}

/// A recording of the commands to the worker, made by [`Channel::start_recording`](crate::Channel::start_recording).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandStream {
    /// The commands, in order.
    pub commands: Vec<StreamCommand>,
}

impl CommandStream {
    /// Reads the JSON form. Errors: Format.
    pub fn from_json(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|e| Error::new(ErrorKind::Format, format!("no command stream: {e}")))
    }

    /// The JSON form. Errors: Format, which only a lack of memory can cause.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|e| Error::new(ErrorKind::Format, e.to_string()))
    }

    /// Gives each op the least time that it took in any step, for steps that ran the same ops as the first one.
    /// Otherwise the machine's noise would make every step differ. Ops of other steps keep their times.
    pub fn settle_times(&mut self) {
        let mut steps: Vec<Vec<(&str, &mut u64)>> = vec![Vec::new()];
        for c in &mut self.commands {
            match c {
                StreamCommand::StepMark => steps.push(Vec::new()),
                StreamCommand::Apply { op, cost_ns, .. } => {
                    if let Some(step) = steps.last_mut() {
                        step.push((op.as_str(), cost_ns));
                    }
                }
                _ => {}
            }
        }
        let Some(ops) = steps.first().map(|s| s.iter().map(|op| op.0.to_owned()).collect::<Vec<String>>()) else {
            return;
        };
        steps.retain(|s| s.iter().map(|op| op.0).eq(ops.iter().map(String::as_str)));
        for i in 0..ops.len() {
            let least = steps.iter().map(|s| *s[i].1).min().unwrap_or_default();
            steps.iter_mut().for_each(|s| *s[i].1 = least);
        }
    }

    /// Time of all ops, each once.
    pub fn compute_ns(&self) -> u64 {
        let cost = |c: &StreamCommand| if let StreamCommand::Apply { cost_ns, .. } = c { *cost_ns } else { 0 };
        self.commands.iter().map(cost).sum()
    }
}
