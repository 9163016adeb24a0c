//! A machine for Python's pickles, protocols 0 to 5, that runs nothing.
//!
//! The opcodes are those of Python's `pickletools`. A class or function is a name. A call of one, and a new object with
//! its state, are kept as data: a function and its arguments ([`Call`]). So a hostile pickle can only describe things.
//! There is no list of permitted functions, since no function is called.
//!
//! A file may claim anything, so memory grows only with the bytes that were read, and never by a size or an index in
//! the file. Each opcode makes at most two objects without parts, and takes time in proportion to the items that it
//! takes off the stack.

use std::collections::BTreeMap;
use std::io::{BufRead, Read};

use remat_types::{Error, ErrorKind, Result};

use super::value::{Call, Object, Pickle, Span, Value};

/// Newest protocol that is known.
const PROTOCOL_MAX: u8 = 5;

/// Reads one pickle from where `from` stands, and no byte behind it.
///
/// Errors: Format, with the byte's place, for data that are no pickle, are cut off, or refer to missing objects; Io.
pub(super) fn unpickle(from: &mut impl BufRead) -> Result<Pickle> {
    let mut machine = Machine {
        from,
        at: 0,
        texts: Vec::new(),
        objects: vec![Object::Tuple(Vec::new())],
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Vec::new(),
        far_memo: BTreeMap::new(),
    };
    loop {
        let op = machine.byte()?;
        if op == b'.' {
            let root = machine.pop()?;
            let Machine { at, texts, objects, .. } = machine;
            return Ok(Pickle { texts, objects, root, bytes: at });
        }
        machine.step(op)?;
    }
}

/// The first object: there is one empty tuple.
const EMPTY_TUPLE: Value = Value::Object(0);

struct Machine<'r, R> {
    from: &'r mut R,
    at: u64,
    texts: Vec<u8>,
    objects: Vec<Object>,
    stack: Vec<Value>,
    /// Heights of the stack; what lies below the last is out of reach.
    marks: Vec<usize>,
    /// The values stored under 0, 1 and so on, as all picklers count.
    memo: Vec<Value>,
    /// The values stored under other numbers.
    far_memo: BTreeMap<u64, Value>,
}

impl<R: BufRead> Machine<'_, R> {
    fn step(&mut self, op: u8) -> Result<()> {
        match op {
            b'N' => self.push(Value::None),
            0x88 => self.push(Value::Bool(true)),
            0x89 => self.push(Value::Bool(false)),
            b'I' | b'L' | b'J' | b'K' | b'M' | 0x8A | 0x8B => self.integer(op)?,
            b'F' | b'G' => self.float(op)?,
            b'S' | b'T' | b'U' | b'V' | b'X' | b'B' | b'C' | 0x8C..=0x8E | 0x96 => self.string(op)?,
            b'(' => self.marks.push(self.stack.len()),
            b'0' => self.drop_top()?,
            b'1' => drop(self.since_mark()?),
            b'2' => self.push(self.top()?),
            b')' => self.push(EMPTY_TUPLE),
            b']' => self.make(Object::List(Vec::new()))?,
            b'}' => self.make(Object::Dict(Vec::new()))?,
            0x8F => self.make(Object::Set(Vec::new()))?,
            b't' | b'l' | 0x91 | b'd' | 0x85..=0x87 => self.container(op)?,
            b'a' | b'e' | 0x90 => self.add(op)?,
            b's' | b'u' => self.set(op)?,
            b'p' | b'q' | b'r' | 0x94 => self.put(op)?,
            b'g' | b'h' | b'j' => self.get(op)?,
            b'c' | 0x93 => self.global(op)?,
            b'R' | 0x81 | 0x92 | b'o' | b'i' => self.call(op)?,
            b'b' => self.build()?,
            b'Q' => {
                let id = self.pop()?;
                self.make(Object::Outside(id))?;
            }
            0x80 => match self.byte()? {
                version if version > PROTOCOL_MAX => {
                    return Err(self.bad(format!("protocol {version}, and {PROTOCOL_MAX} is the newest that is known")));
                }
                _ => {}
            },
            0x95 => drop(self.fixed::<8>()?),
            0x97 | 0x98 => return Err(self.bad("a buffer that is not in the pickle")),
            b'P' => return Err(self.bad("an outside object named by a line, which PyTorch does not write")),
            0x82..=0x84 => return Err(self.bad("a number of a registry of extensions, which is not in the file")),
            _ => return Err(self.bad(format!("{op:#04x} is no opcode of a pickle"))),
        }
        Ok(())
    }

    fn bad(&self, text: impl std::fmt::Display) -> Error {
        Error::new(ErrorKind::Format, format!("byte {} of the pickle: {text}", self.at.saturating_sub(1)))
    }

    fn read_error(&self, e: std::io::Error) -> Error {
        if e.kind() == std::io::ErrorKind::UnexpectedEof { self.bad("the file ends here") } else { Error::from(e) }
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes).map_err(|e| self.read_error(e))?;
        self.at += N as u64;
        Ok(bytes)
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.fixed::<1>()?[0])
    }

    /// So many bytes of the file, into the texts.
    fn span(&mut self, len: u64) -> Result<Span> {
        let before = self.texts.len();
        let read = self.from.by_ref().take(len).read_to_end(&mut self.texts).map_err(|e| self.read_error(e))?;
        self.at += read as u64;
        if (read as u64) < len {
            return Err(self.bad(format!("the file ends within {len} bytes")));
        }
        self.span_from(before)
    }

    fn span_from(&self, before: usize) -> Result<Span> {
        match (u32::try_from(before), u32::try_from(self.texts.len())) {
            (Ok(at), Ok(end)) => Ok(Span { at, len: end - at }),
            _ => Err(self.bad("texts of more than 4 GiB")),
        }
    }

    /// A line of the file, without its end.
    fn line(&mut self) -> Result<Vec<u8>> {
        let mut line = Vec::new();
        self.from.read_until(b'\n', &mut line).map_err(|e| self.read_error(e))?;
        self.at += line.len() as u64;
        match line.pop() {
            Some(b'\n') => Ok(line),
            _ => Err(self.bad("the file ends within a line")),
        }
    }

    fn number(&mut self) -> Result<String> {
        let line = self.line()?;
        String::from_utf8(line).map_err(|_| self.bad("a line that is no number"))
    }

    fn keep(&mut self, text: &[u8]) -> Result<Span> {
        let before = self.texts.len();
        self.texts.extend_from_slice(text);
        self.span_from(before)
    }

    fn push(&mut self, value: Value) {
        self.stack.push(value);
    }

    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn top(&self) -> Result<Value> {
        match self.stack.last() {
            Some(value) if self.stack.len() > self.floor() => Ok(*value),
            _ => Err(self.bad("it takes more than the stack has")),
        }
    }

    fn pop(&mut self) -> Result<Value> {
        let value = self.top()?;
        self.stack.pop();
        Ok(value)
    }

    /// A mark counts as a dropped item, as in Python.
    fn drop_top(&mut self) -> Result<()> {
        if self.stack.len() == self.floor() && self.marks.pop().is_some() {
            return Ok(());
        }
        self.pop().map(drop)
    }

    fn since_mark(&mut self) -> Result<Vec<Value>> {
        let floor = self.marks.pop().ok_or_else(|| self.bad("it takes what is behind a mark, and there is none"))?;
        Ok(self.stack.drain(floor..).collect())
    }

    fn object(&mut self, object: Object) -> Result<Value> {
        let at = u32::try_from(self.objects.len()).map_err(|_| self.bad("more than 2^32 objects"))?;
        self.objects.push(object);
        Ok(Value::Object(at))
    }

    fn make(&mut self, object: Object) -> Result<()> {
        let value = self.object(object)?;
        self.push(value);
        Ok(())
    }

    fn tuple(&mut self, parts: Vec<Value>) -> Result<Value> {
        if parts.is_empty() { Ok(EMPTY_TUPLE) } else { self.object(Object::Tuple(parts)) }
    }

    fn integer(&mut self, op: u8) -> Result<()> {
        let value = match op {
            b'J' => Value::Int(i32::from_le_bytes(self.fixed()?).into()),
            b'K' => Value::Int(self.byte()?.into()),
            b'M' => Value::Int(u16::from_le_bytes(self.fixed()?).into()),
            b'I' | b'L' => {
                let text = self.number()?;
                match text.trim() {
                    "00" if op == b'I' => Value::Bool(false),
                    "01" if op == b'I' => Value::Bool(true),
                    text => match text.strip_suffix('L').unwrap_or(text).parse() {
                        Ok(number) => Value::Int(number),
                        Err(_) => Value::Big(self.keep(text.as_bytes())?),
                    },
                }
            }
            _ => {
                let len = if op == 0x8A { self.byte()?.into() } else { self.length_i32()? };
                let span = self.span(len)?;
                let bytes = &self.texts[span.at as usize..];
                if bytes.len() > 8 {
                    Value::Big(span)
                } else {
                    // two's complement, little-endian: the sign fills the missing bytes
                    let fill = if bytes.last().is_some_and(|b| *b >= 0x80) { 0xFF } else { 0 };
                    let mut word = [fill; 8];
                    word[..bytes.len()].copy_from_slice(bytes);
                    self.texts.truncate(span.at as usize);
                    Value::Int(i64::from_le_bytes(word))
                }
            }
        };
        self.push(value);
        Ok(())
    }

    fn length_i32(&mut self) -> Result<u64> {
        u64::try_from(i32::from_le_bytes(self.fixed()?)).map_err(|_| self.bad("a length below 0"))
    }

    fn float(&mut self, op: u8) -> Result<()> {
        let value = match op {
            b'G' => f64::from_be_bytes(self.fixed()?),
            _ => {
                let text = self.number()?;
                text.trim().parse().map_err(|_| self.bad("a line that is no number"))?
            }
        };
        self.push(Value::Float(value));
        Ok(())
    }

    fn string(&mut self, op: u8) -> Result<()> {
        let span = match op {
            b'S' | b'V' => {
                let line = self.line()?;
                let before = self.texts.len();
                match op {
                    b'S' => unquoted(&line, &mut self.texts).ok_or_else(|| self.bad("a string without quotes"))?,
                    _ => unescaped(&line, &mut self.texts),
                }
                self.span_from(before)?
            }
            b'U' | b'C' | 0x8C => {
                let len = self.byte()?;
                self.span(len.into())?
            }
            b'T' => {
                let len = self.length_i32()?;
                self.span(len)?
            }
            b'X' | b'B' => {
                let len = u32::from_le_bytes(self.fixed()?);
                self.span(len.into())?
            }
            _ => {
                let len = u64::from_le_bytes(self.fixed()?);
                self.span(len)?
            }
        };
        let is_text = !matches!(op, b'B' | b'C' | 0x8E | 0x96);
        // the strings of Python 2 may be bytes
        let value = match std::str::from_utf8(&self.texts[span.at as usize..]) {
            Ok(_) if is_text => Value::Text(span),
            _ => Value::Bytes(span),
        };
        self.push(value);
        Ok(())
    }

    fn container(&mut self, op: u8) -> Result<()> {
        let parts = match op {
            0x85..=0x87 => {
                let count = usize::from(op - 0x84);
                let from = self.stack.len().checked_sub(count).filter(|from| *from >= self.floor());
                let from = from.ok_or_else(|| self.bad("it takes more than the stack has"))?;
                self.stack.drain(from..).collect()
            }
            _ => self.since_mark()?,
        };
        let value = match op {
            b'l' => self.object(Object::List(parts))?,
            0x91 => self.object(Object::Set(parts))?,
            b'd' => {
                let pairs = self.pairs(&parts)?;
                self.object(Object::Dict(pairs))?
            }
            _ => self.tuple(parts)?,
        };
        self.push(value);
        Ok(())
    }

    fn pairs(&self, parts: &[Value]) -> Result<Vec<(Value, Value)>> {
        let (pairs, rest) = parts.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(self.bad("a key without a value"));
        }
        Ok(pairs.iter().map(|[key, value]| (*key, *value)).collect())
    }

    /// The object on top of the stack.
    fn top_object(&mut self) -> Result<Option<&mut Object>> {
        match self.top()? {
            Value::Object(at) => Ok(self.objects.get_mut(at as usize)),
            _ => Ok(None),
        }
    }

    fn add(&mut self, op: u8) -> Result<()> {
        let parts = if op == b'a' { vec![self.pop()?] } else { self.since_mark()? };
        match self.top_object()? {
            Some(Object::List(all) | Object::Set(all)) => all.extend(parts),
            Some(Object::Call(call)) => call.items.extend(parts),
            _ => return Err(self.bad("items for what is no list")),
        }
        Ok(())
    }

    fn set(&mut self, op: u8) -> Result<()> {
        let pairs = match op {
            b's' => {
                let value = self.pop()?;
                vec![(self.pop()?, value)]
            }
            _ => {
                let parts = self.since_mark()?;
                self.pairs(&parts)?
            }
        };
        match self.top_object()? {
            Some(Object::Dict(all)) => all.extend(pairs),
            Some(Object::Call(call)) => call.pairs.extend(pairs),
            _ => return Err(self.bad("keys for what is no dictionary")),
        }
        Ok(())
    }

    fn index(&mut self) -> Result<u64> {
        let text = self.number()?;
        text.trim().parse().map_err(|_| self.bad("a line that is no number of the memo"))
    }

    fn put(&mut self, op: u8) -> Result<()> {
        let index = match op {
            b'p' => self.index()?,
            b'q' => self.byte()?.into(),
            b'r' => u32::from_le_bytes(self.fixed()?).into(),
            _ => (self.memo.len() + self.far_memo.len()) as u64,
        };
        let value = self.top()?;
        let near = self.memo.len();
        match usize::try_from(index) {
            Ok(index) if index < near => self.memo[index] = value,
            Ok(index) if index == near => self.memo.push(value),
            _ => drop(self.far_memo.insert(index, value)),
        }
        Ok(())
    }

    fn get(&mut self, op: u8) -> Result<()> {
        let index = match op {
            b'g' => self.index()?,
            b'h' => self.byte()?.into(),
            _ => u32::from_le_bytes(self.fixed()?).into(),
        };
        let near = usize::try_from(index).ok().and_then(|i| self.memo.get(i));
        let value = near.or_else(|| self.far_memo.get(&index)).copied();
        let value = value.ok_or_else(|| self.bad(format!("{index} of the memo, which has none")))?;
        self.push(value);
        Ok(())
    }

    fn name_line(&mut self) -> Result<Span> {
        let line = self.line()?;
        if std::str::from_utf8(&line).is_err() {
            return Err(self.bad("a name that is no text"));
        }
        self.keep(&line)
    }

    fn global(&mut self, op: u8) -> Result<()> {
        let (module, name) = match op {
            b'c' => (self.name_line()?, self.name_line()?),
            _ => match (self.pop()?, self.pop()?) {
                (Value::Text(name), Value::Text(module)) => (module, name),
                _ => return Err(self.bad("a class whose name is no text")),
            },
        };
        self.make(Object::Global { module, name })
    }

    fn call(&mut self, op: u8) -> Result<()> {
        let mut call =
            Call { func: Value::None, args: Value::None, state: Value::None, pairs: Vec::new(), items: Vec::new() };
        match op {
            b'i' => {
                let (module, name) = (self.name_line()?, self.name_line()?);
                call.func = self.object(Object::Global { module, name })?;
                let args = self.since_mark()?;
                call.args = self.tuple(args)?;
            }
            b'o' => {
                let mut parts = self.since_mark()?.into_iter();
                call.func = parts.next().ok_or_else(|| self.bad("an object without a class"))?;
                call.args = self.tuple(parts.collect())?;
            }
            _ => {
                if op == 0x92 {
                    // arguments by name
                    call.items.push(self.pop()?);
                }
                call.args = self.pop()?;
                call.func = self.pop()?;
            }
        }
        self.make(Object::Call(Box::new(call)))
    }

    fn build(&mut self) -> Result<()> {
        let state = self.pop()?;
        match self.top_object()? {
            Some(Object::Call(call)) => call.state = state,
            _ => return Err(self.bad("a state for what is no object")),
        }
        Ok(())
    }
}

/// The text of a string of protocol 0: a literal of Python in quotes.
fn unquoted(line: &[u8], to: &mut Vec<u8>) -> Option<()> {
    let line = line.trim_ascii();
    let quote = *line.first().filter(|c| matches!(c, b'\'' | b'"'))?;
    let mut rest = line[1..].strip_suffix(&[quote])?;
    while let Some((&c, tail)) = rest.split_first() {
        rest = tail;
        if c != b'\\' {
            to.push(c);
            continue;
        }
        let (&escaped, tail) = rest.split_first()?;
        rest = tail;
        match escaped {
            b'n' => to.push(b'\n'),
            b'r' => to.push(b'\r'),
            b't' => to.push(b'\t'),
            b'x' => {
                let (digits, tail) = rest.split_at_checked(2)?;
                to.push(u8::try_from(hex(digits)?).ok()?);
                rest = tail;
            }
            other => to.push(other),
        }
    }
    Some(())
}

/// The text of a line in Python's `raw-unicode-escape`: Latin-1, in which `\u` with four hexadecimal digits and `\U` with eight are
/// characters.
fn unescaped(mut line: &[u8], to: &mut Vec<u8>) {
    let mut room = [0; 4];
    while let Some((&c, tail)) = line.split_first() {
        let digits = match line {
            [b'\\', b'u', ..] => 4,
            [b'\\', b'U', ..] => 8,
            _ => 0,
        };
        let escaped = line.get(2..2 + digits).filter(|d| !d.is_empty()).and_then(hex).and_then(char::from_u32);
        to.extend_from_slice(escaped.unwrap_or(char::from(c)).encode_utf8(&mut room).as_bytes());
        line = if escaped.is_some() { &line[2 + digits..] } else { tail };
    }
}

fn hex(digits: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(digits).ok().filter(|t| t.bytes().all(|b| b.is_ascii_hexdigit()))?;
    u32::from_str_radix(text, 16).ok()
}
