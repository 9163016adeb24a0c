//! Recording of the command stream, for the simulator.

use remat_types::Layout;
use rustc_hash::FxHashMap;

use super::command::{Apply, Command};
use super::handle::TensorId;
use super::memory::table::StorageId;
use super::simulation::{CommandStream, StreamCommand};
use super::worker::Worker;

impl Worker {
    /// Starts a recording with the tensors that exist.
    pub(super) fn start_recording(&mut self) {
        let mut ids: Vec<TensorId> = self.table.tensors().copied().collect();
        ids.sort_unstable();
        let mut first: FxHashMap<StorageId, u64> = FxHashMap::default();
        let mut stream = CommandStream::default();
        for id in ids {
            let Some(s) = self.table.kept(&id) else { continue };
            let storage = &self.table[s.storage];
            stream.commands.push(match first.get(&s.storage) {
                Some(&x) => StreamCommand::View { x: (x, false), y: id.0 },
                None => StreamCommand::Put { id: id.0, bytes: storage.bytes, kind: storage.kind },
            });
            first.entry(s.storage).or_insert(id.0);
        }
        self.figures.recording = Some(stream);
    }

    pub(super) fn record_command(&mut self, c: &Command) {
        let Some(stream) = &mut self.figures.recording else { return };
        stream.commands.push(match c {
            Command::Delete { id } if self.table.kept(id).is_some() => StreamCommand::Delete { id: id.0 },
            Command::DropValue { id } => StreamCommand::DropValue { id: id.0 },
            Command::NoteLeaf { id } => StreamCommand::NoteLeaf { id: id.0 },
            Command::Commit { id, kind, .. } => StreamCommand::Commit { id: id.0, kind: *kind },
            Command::Fetch { id, .. } | Command::CopyOut { id, .. } | Command::Await { id, .. } => {
                StreamCommand::Fetch { id: id.0 }
            }
            Command::StepMark { .. } => StreamCommand::StepMark,
            _ => return,
        });
    }

    pub(super) fn record_put(&mut self, id: TensorId) {
        let (Some(stream), Some(s)) = (&mut self.figures.recording, self.table.kept(&id)) else { return };
        let storage = &self.table[s.storage];
        stream.commands.push(StreamCommand::Put { id: id.0, bytes: storage.bytes, kind: storage.kind });
    }

    /// Records an application that succeeded, before its dying inputs are deleted.
    pub(super) fn record_apply(&mut self, a: &Apply) {
        if self.figures.recording.is_none() {
            return;
        }
        let Ok(x) = self.inputs_of(a) else { return };
        let of = |id: &TensorId| self.table.kept(id).map(|s| s.storage);
        let command = if let ([s], [y]) = (&x[..], &a.y[..])
            && of(y) == Some(s.storage)
        {
            StreamCommand::View { x: (a.x[0].0.0, a.x[0].1), y: y.0 }
        } else {
            let whole = |&&(i, j): &&(usize, usize)| {
                let f = &a.facts[j];
                x[i].layout == Layout::contiguous(f.shape.clone())
                    && x[i].dtype == f.dtype
                    && self.table[x[i].storage].bytes == f.bytes()
            };
            StreamCommand::Apply {
                op: a.op.label().to_owned(),
                x: a.x.iter().map(|&(id, dies)| (id.0, dies)).collect(),
                y: a.y.iter().zip(&a.facts).map(|(id, f)| (id.0, f.bytes())).collect(),
                overwrite: self.overwrite(&a.op).iter().filter(whole).copied().collect(),
                scratch_bytes: self.scratch_bytes(&a.op, &x, a.workspace_bytes),
                repeatable: !a.makes_leaves(),
                cost_ns: self.running.last_ns,
            }
        };
        if let Some(stream) = &mut self.figures.recording {
            stream.commands.push(command);
        }
    }
}
