//! From names to indices, with every rule of the format checked on the way.

use remat_types::Result;
use rustc_hash::FxHashMap;

use super::{Bytes, Op, OpSpec, OutputKind, Problem, Spec, Storage, Value, pad};
use crate::plan::json::{LARGEST, format_error};

/// The tables that [`Problem::new`] fills while it walks the operators.
#[derive(Default)]
pub(super) struct Builder {
    values: Vec<Value>,
    storages: Vec<Storage>,
    ops: Vec<Op>,
    by_name: FxHashMap<String, usize>,
    op_by_name: FxHashMap<String, usize>,
    /// For each value, the operator that overwrote it.
    overwritten_by: Vec<Option<usize>>,
    bytes: u64,
    time_ns: u64,
}

/// Larger than any page, and padding cannot overflow.
const LARGEST_ALIGN: u64 = 1 << 30;

impl Builder {
    pub(super) fn build(mut self, spec: Spec) -> Result<Problem> {
        if spec.align == 0 || spec.align > LARGEST_ALIGN {
            return Err(format_error(format!("`align` must be from 1 to {LARGEST_ALIGN}, not {}", spec.align)));
        }
        for (i, (name, bytes)) in spec.values.iter().enumerate() {
            let place = || format!("values[{i}] `{name}`");
            self.storage(name, *bytes, None, spec.align).map_err(|e| e.context(place()))?;
        }
        for (i, op) in spec.ops.iter().enumerate() {
            self.op(i, op, &spec).map_err(|e| e.context(format!("ops[{i}] `{}`", op.name)))?;
        }
        let outputs = self.outputs(&spec)?;
        let Builder { values, storages, ops, by_name, op_by_name, .. } = self;
        Ok(Problem { spec, values, storages, ops, outputs, by_name, op_by_name, floors: Default::default() })
    }

    fn op(&mut self, index: usize, op: &OpSpec, spec: &Spec) -> Result<()> {
        if self.op_by_name.insert(op.name.clone(), index).is_some() {
            return Err(format_error("another operator has this name"));
        }
        self.time_ns = sum(self.time_ns, op.time_ns, "times")?;
        let workspace = self.count(op.workspace, spec.align)?;
        let mut inputs = Vec::with_capacity(op.inputs.len());
        for name in &op.inputs {
            let value = self.readable(name, &spec.ops[index..]).map_err(|e| e.context("input"))?;
            if !inputs.contains(&value) {
                inputs.push(value);
            }
        }
        let (mut outputs, mut written) = (Vec::with_capacity(op.outputs.len()), Vec::new());
        for out in &op.outputs {
            let made = match &out.bytes {
                Bytes::Own(bytes) | Bytes::OwnOr(bytes, _) => self.storage(&out.name, *bytes, Some(index), spec.align),
                Bytes::AliasOf(of) | Bytes::Writes(of) => self.in_place(index, &inputs, &out.name, of),
            };
            let value = made.map_err(|e| e.context(format!("output `{}`", out.name)))?;
            let kind = match &out.bytes {
                Bytes::Own(_) | Bytes::OwnOr(..) => OutputKind::Own,
                Bytes::AliasOf(_) => OutputKind::Alias,
                Bytes::Writes(_) => OutputKind::Writes,
            };
            if kind == OutputKind::Writes {
                written.push(value);
            }
            outputs.push((value, kind));
        }
        self.overwrite(index, &written, &outputs)?;
        let takes = self.takes(op, &inputs, &outputs)?;
        let (name, time_ns, repeatable) = (op.name.clone(), op.time_ns, op.repeatable);
        self.ops.push(Op { name, time_ns, inputs, outputs, takes, workspace, repeatable });
        Ok(())
    }

    /// The inputs that outputs may take over.
    fn takes(&self, op: &OpSpec, inputs: &[usize], outputs: &[(usize, OutputKind)]) -> Result<Vec<(usize, usize)>> {
        let mut takes = Vec::new();
        let storage_of = |v: usize| self.values[v].storage;
        for (out, &(y, _)) in op.outputs.iter().zip(outputs) {
            let Bytes::OwnOr(_, names) = &out.bytes else { continue };
            for name in names {
                let in_output = |text: String| format_error(text).context(format!("output `{}`", out.name));
                let x = self.by_name.get(name).filter(|v| inputs.contains(v)).map(|&v| storage_of(v));
                let x = x.ok_or_else(|| in_output(format!("`may_take` names `{name}`, which is no input")))?;
                let (from, to) = (&self.storages[x], &self.storages[storage_of(y)]);
                if from.producer.is_none() || from.padded != to.padded {
                    let text = format!("`may_take` names `{name}`, which is given or of another size");
                    return Err(in_output(text));
                }
                if outputs.iter().any(|o| storage_of(o.0) == x) {
                    return Err(in_output(format!("`may_take` names `{name}`, in which another output lies")));
                }
                // nothing lies where something else does, which is no sign that it was taken over
                if to.padded > 0 {
                    push_new(&mut takes, (storage_of(y), x));
                }
            }
        }
        Ok(takes)
    }

    /// Marks what the operator's writes make unreadable.
    fn overwrite(&mut self, op: usize, written: &[usize], outputs: &[(usize, OutputKind)]) -> Result<()> {
        for &new in written {
            let storage = self.values[new].storage;
            if let Some(other) = outputs.iter().find(|o| o.0 != new && self.values[o.0].storage == storage) {
                let (a, b) = (&self.values[new].name, &self.values[other.0].name);
                return Err(format_error(format!("outputs `{a}` and `{b}` cannot share an overwritten storage")));
            }
            for &old in &self.storages[storage].values {
                if old != new {
                    self.overwritten_by[old].get_or_insert(op);
                }
            }
        }
        Ok(())
    }

    /// The value called `name`, if it can be read now; `later` are the operators that have not run.
    fn readable(&self, name: &str, later: &[OpSpec]) -> Result<usize> {
        let Some(&value) = self.by_name.get(name) else {
            let maker = later.iter().find(|o| o.outputs.iter().any(|out| out.name == name));
            return Err(format_error(match maker {
                Some(o) => {
                    format!("`{name}` is made only by `{}`, which does not come before (or there is a cycle)", o.name)
                }
                None => format!("`{name}` is not known"),
            }));
        };
        match self.overwritten_by[value] {
            Some(op) => Err(format_error(format!("`{name}` was overwritten by `{}`", self.op_name(op)))),
            None => Ok(value),
        }
    }

    fn op_name(&self, op: usize) -> &str {
        self.ops.get(op).map_or("this operator", |o| &o.name)
    }

    fn outputs(&self, spec: &Spec) -> Result<Vec<usize>> {
        let mut outputs = Vec::new();
        for (i, name) in spec.outputs.iter().enumerate() {
            let value = self.readable(name, &[]).map_err(|e| e.context(format!("outputs[{i}]")))?;
            if !outputs.contains(&value) {
                outputs.push(value);
            }
        }
        Ok(outputs)
    }

    fn storage(&mut self, name: &str, bytes: u64, producer: Option<usize>, align: u64) -> Result<usize> {
        let padded = self.count(bytes, align)?;
        let storage = self.storages.len();
        let value = self.value(name, storage, producer)?;
        self.storages.push(Storage { root: value, bytes, padded, producer, values: vec![value] });
        Ok(value)
    }

    fn in_place(&mut self, op: usize, inputs: &[usize], name: &str, of: &str) -> Result<usize> {
        let of = self.by_name.get(of).filter(|v| inputs.contains(v)).copied();
        let of = of.ok_or_else(|| format_error("`alias_of` and `writes` must name an input of the operator"))?;
        let storage = self.values[of].storage;
        let value = self.value(name, storage, Some(op))?;
        self.storages[storage].values.push(value);
        Ok(value)
    }

    fn value(&mut self, name: &str, storage: usize, producer: Option<usize>) -> Result<usize> {
        let value = self.values.len();
        if self.by_name.insert(name.to_owned(), value).is_some() {
            return Err(format_error("another value has this name"));
        }
        self.values.push(Value { name: name.to_owned(), storage, producer });
        self.overwritten_by.push(None);
        Ok(value)
    }

    /// Pads, and counts towards the limit of all sizes together.
    fn count(&mut self, bytes: u64, align: u64) -> Result<u64> {
        if bytes > LARGEST {
            return Err(format_error(format!("{bytes} bytes are beyond the limit of {LARGEST}")));
        }
        let padded = pad(bytes, align);
        self.bytes = sum(self.bytes, padded, "sizes")?;
        Ok(padded)
    }
}

fn push_new<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

fn sum(so_far: u64, more: u64, what: &str) -> Result<u64> {
    let total = so_far.checked_add(more).filter(|t| *t <= LARGEST);
    total.ok_or_else(|| format_error(format!("the {what} together are beyond the limit of {LARGEST}")))
}
