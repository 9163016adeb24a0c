//! The contents of a pickle: tensors and single values, by names that join keys and places.
//!
//! Objects form a graph. An object that several places name is found at each of them, as tied weights are, and a path that
//! returns to an earlier object ends there. So few bytes can describe very many places. The number of visited places is
//! bounded by the pickle's length. This bound is far above the need of a checkpoint, in which a tensor takes some sixty
//! bytes.

use std::collections::BTreeMap;

use remat_types::{Error, ErrorKind, Result};

use super::TorchScalar;
use super::globals::Known;
use super::value::{Call, Object, Pickle, Value};

/// Places visited for each byte of the pickle, and in any case.
const VISITS_PER_BYTE: u64 = 2;
const VISITS_ALWAYS: u64 = 4096;
/// Bytes of names for each byte of the pickle, and in any case.
const NAME_BYTES_PER_BYTE: u64 = 64;
const NAME_BYTES_ALWAYS: u64 = 1 << 16;

/// Parts of an object of a module's class that its names do not have in a state dict.
const MODULE_PARTS: [&str; 3] = ["_parameters", "_buffers", "_modules"];

/// The relation of an object to its children.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Plain,
    /// The attributes of an object.
    State,
    /// The arguments of a dictionary's class: perhaps a list of pairs, as Python 2 writes it.
    DictArgs,
    Pairs,
}

/// The part of the name that a child adds.
enum Part {
    Nothing,
    Word(&'static str),
    Index(usize),
    Key(Value, usize),
}

struct Frame {
    object: u32,
    next: usize,
    kind: Kind,
    name_bytes: usize,
}

impl Pickle {
    /// Every tensor by name. Errors: Format for two of one name, or more places than the pickle's length allows.
    pub(super) fn tensors(&self) -> Result<BTreeMap<String, Value>> {
        let mut all = BTreeMap::new();
        self.walk(|name, value| match self.tensor_call(value) {
            Some(_) if all.insert(name.to_owned(), value).is_some() => {
                Err(Error::new(ErrorKind::Format, format!("two tensors are called `{name}`")))
            }
            found => Ok(found.is_some()),
        })?;
        Ok(all)
    }

    /// Every number and text by name; of two of one name, the later.
    pub(super) fn scalars(&self) -> Result<BTreeMap<String, TorchScalar>> {
        let mut all = BTreeMap::new();
        self.walk(|name, value| {
            let scalar = self.scalar(value);
            let is_scalar = scalar.is_some();
            all.extend(scalar.map(|s| (name.to_owned(), s)));
            Ok(is_scalar)
        })?;
        Ok(all)
    }

    /// Calls `visit` with the name and the value of each place without parts. `visit` returns whether it keeps the name.
    fn walk(&self, mut visit: impl FnMut(&str, Value) -> Result<bool>) -> Result<()> {
        let mut visits = self.bytes.saturating_mul(VISITS_PER_BYTE).saturating_add(VISITS_ALWAYS);
        let mut name_bytes = self.bytes.saturating_mul(NAME_BYTES_PER_BYTE).saturating_add(NAME_BYTES_ALWAYS);
        let too_many = |of: &str| {
            let text = format!("the pickle of {} bytes names too many {of}: its objects hold one another", self.bytes);
            Error::new(ErrorKind::Format, text)
        };
        let mut name = String::new();
        let Some(root) = self.inner(self.root) else { return visit(&name, self.root).map(drop) };
        let mut on_way = vec![false; self.objects.len()];
        let mut way = vec![Frame { object: root, next: 0, kind: Kind::Plain, name_bytes: 0 }];
        on_way[root as usize] = true;
        while let Some(frame) = way.last_mut() {
            name.truncate(frame.name_bytes);
            let Some((part, value, kind)) = self.child(frame.object, frame.next, frame.kind) else {
                on_way[frame.object as usize] = false;
                way.pop();
                continue;
            };
            frame.next += 1;
            let frame_bytes = frame.name_bytes;
            visits = visits.checked_sub(1).ok_or_else(|| too_many("places"))?;
            self.add(&mut name, part);
            let mut kept = name.len() - frame_bytes;
            match self.inner(value) {
                Some(object) if on_way[object as usize] => {}
                Some(object) => {
                    on_way[object as usize] = true;
                    way.push(Frame { object, next: 0, kind, name_bytes: name.len() });
                }
                None if visit(&name, value)? => kept += name.len(),
                None => {}
            }
            name_bytes = name_bytes.checked_sub(kept as u64).ok_or_else(|| too_many("long names"))?;
        }
        Ok(())
    }

    /// The object that `value` is, if its parts are looked at.
    fn inner(&self, value: Value) -> Option<u32> {
        let Value::Object(at) = value else { return None };
        match self.object(value)? {
            Object::Global { .. } | Object::Outside(_) => None,
            Object::Call(call) if self.known(call.func) == Known::Scalar => None,
            Object::Call(_) if self.tensor_call(value).is_some() => None,
            _ => Some(at),
        }
    }

    /// The child of an object at `i`: its name, its value, and its relation to its own children.
    fn child(&self, object: u32, i: usize, kind: Kind) -> Option<(Part, Value, Kind)> {
        match &self.objects[object as usize] {
            Object::Tuple(all) | Object::List(all) => {
                let value = *all.get(i)?;
                Some(match (kind, self.parts(value)) {
                    (Kind::State, _) if self.are_attributes(all) => (Part::Nothing, value, Kind::State),
                    (Kind::DictArgs, _) => (Part::Nothing, value, Kind::Pairs),
                    (Kind::Pairs, Some(&[key, value])) => (Part::Key(key, i), value, Kind::Plain),
                    _ => (Part::Index(i), value, Kind::Plain),
                })
            }
            Object::Set(all) => Some((Part::Index(i), *all.get(i)?, Kind::Plain)),
            Object::Dict(pairs) => {
                let (key, value) = *pairs.get(i)?;
                let is_module = kind == Kind::State && self.text_of(key).is_some_and(|k| MODULE_PARTS.contains(&k));
                Some((if is_module { Part::Nothing } else { Part::Key(key, i) }, value, Kind::Plain))
            }
            Object::Call(call) => self.child_of_call(call, i),
            Object::Global { .. } | Object::Outside(_) => None,
        }
    }

    /// True for the state of a class with slots: attributes, or none, and those of slots.
    fn are_attributes(&self, state: &[Value]) -> bool {
        let is_one = |v: &Value| *v == Value::None || matches!(self.object(*v), Some(Object::Dict(_)));
        state.len() == 2 && state.iter().all(is_one)
    }

    fn child_of_call(&self, call: &Call, i: usize) -> Option<(Part, Value, Kind)> {
        if let Some((key, value)) = call.pairs.get(i) {
            return Some((Part::Key(*key, i), *value, Kind::Plain));
        }
        let i = i - call.pairs.len();
        if let Some(value) = call.items.get(i) {
            return Some((Part::Index(i), *value, Kind::Plain));
        }
        let is_dict = self.known(call.func) == Known::Dict;
        match i - call.items.len() {
            0 if is_dict => Some((Part::Nothing, call.args, Kind::DictArgs)),
            0 => Some((Part::Word("args"), call.args, Kind::Plain)),
            // the attributes of a dictionary are versions of modules
            1 if !is_dict => Some((Part::Nothing, call.state, Kind::State)),
            _ => None,
        }
    }

    fn add(&self, name: &mut String, part: Part) {
        if !name.is_empty() && !matches!(part, Part::Nothing) {
            name.push('.');
        }
        match part {
            Part::Nothing => {}
            Part::Word(word) => name.push_str(word),
            Part::Index(i) => name.push_str(&i.to_string()),
            Part::Key(key, i) => match key {
                Value::Text(span) => name.push_str(self.text(span)),
                Value::Bytes(span) | Value::Big(span) => name.push_str(&String::from_utf8_lossy(self.span(span))),
                Value::Int(n) => name.push_str(&n.to_string()),
                Value::Float(x) => name.push_str(&x.to_string()),
                Value::Bool(true) => name.push_str("True"),
                Value::Bool(false) => name.push_str("False"),
                Value::None => name.push_str("None"),
                Value::Object(_) => name.push_str(&format!("#{i}")),
            },
        }
    }

    fn scalar(&self, value: Value) -> Option<TorchScalar> {
        Some(match value {
            Value::Bool(b) => TorchScalar::Bool(b),
            Value::Int(n) => TorchScalar::Int(n),
            Value::Float(x) => TorchScalar::Float(x),
            Value::Text(span) => TorchScalar::Text(self.text(span).to_owned()),
            Value::Object(_) => return self.numpy_scalar(value),
            Value::None | Value::Bytes(_) | Value::Big(_) => return None,
        })
    }

    /// `scalar(dtype("f8", ..), bytes)`.
    fn numpy_scalar(&self, value: Value) -> Option<TorchScalar> {
        let Some(Object::Call(call)) = self.object(value) else { return None };
        let &[dtype, bytes] = self.parts(call.args)? else { return None };
        let Some(Object::Call(dtype)) = self.object(dtype) else { return None };
        if self.known(call.func) != Known::Scalar || self.known(dtype.func) != Known::NumpyType {
            return None;
        }
        let kind = self.text_of(*self.parts(dtype.args)?.first()?)?;
        let is_big = self.parts(dtype.state).and_then(|s| s.get(1)).and_then(|o| self.text_of(*o)) == Some(">");
        let mut bytes = self.bytes_of(bytes)?;
        if is_big {
            bytes.reverse();
        }
        macro_rules! number {
            ($t:ty) => {
                <$t>::from_le_bytes(bytes.try_into().ok()?)
            };
        }
        Some(match kind {
            "f8" => TorchScalar::Float(number!(f64)),
            "f4" => TorchScalar::Float(number!(f32).into()),
            "f2" => TorchScalar::Float(remat_types::f16::from_bits(number!(u16)).into()),
            "i8" => TorchScalar::Int(number!(i64)),
            "i4" => TorchScalar::Int(number!(i32).into()),
            "i2" => TorchScalar::Int(number!(i16).into()),
            "i1" => TorchScalar::Int(number!(i8).into()),
            "u8" => TorchScalar::Int(i64::try_from(number!(u64)).ok()?),
            "u4" => TorchScalar::Int(number!(u32).into()),
            "u2" => TorchScalar::Int(number!(u16).into()),
            "u1" => TorchScalar::Int(number!(u8).into()),
            "b1" => TorchScalar::Bool(number!(u8) != 0),
            _ => return None,
        })
    }

    /// The bytes that a value is, also as the text that protocols before 3 write them as. At most 8.
    fn bytes_of(&self, value: Value) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(8);
        match value {
            Value::Bytes(span) | Value::Text(span) if span.len <= 8 => bytes.extend_from_slice(self.span(span)),
            _ => {
                let Some(Object::Call(call)) = self.object(value) else { return None };
                let &[text, coding] = self.parts(call.args)? else { return None };
                if self.known(call.func) != Known::Encode || self.text_of(coding) != Some("latin1") {
                    return None;
                }
                for c in self.text_of(text)?.chars().take(8) {
                    bytes.push(u8::try_from(u32::from(c)).ok()?);
                }
            }
        }
        Some(bytes)
    }
}
