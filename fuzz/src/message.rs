//! Protobuf messages without their schema: fields and what is in them, changed and written again.

use crate::{Plain, Random, changed};

/// Messages in messages; ONNX files of exporters have some ten.
const MOST_DEPTH: usize = 40;

/// Numbers at which sizes, axes and counts go wrong.
const NUMBERS: [u64; 24] = [
    0,
    1,
    2,
    3,
    4,
    7,
    16,
    64,
    255,
    1 << 10,
    1 << 16,
    1 << 20,
    (1 << 31) - 1,
    1 << 31,
    1 << 32,
    1 << 40,
    1 << 62,
    i64::MAX as u64,
    i64::MIN as u64,
    -1i64 as u64,
    -2i64 as u64,
    -3i64 as u64,
    i32::MIN as i64 as u64,
    -(1i64 << 40) as u64,
];

const FLOATS: [f64; 10] = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];

#[derive(Clone, Debug, PartialEq)]
struct Field {
    number: u64,
    value: Value,
}

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Number(u64),
    Eight([u8; 8]),
    Four([u8; 4]),
    Bytes(Vec<u8>),
    Message(Vec<Field>),
}

fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut n = 0u64;
    for k in 0..10 {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        n |= u64::from(first & 0x7f) << (7 * k).min(63);
        if first & 0x80 == 0 {
            return Some(n);
        }
    }
    None
}

fn message(mut bytes: &[u8], depth: usize) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = number(&mut bytes)?;
        let value = match key & 7 {
            0 => Value::Number(number(&mut bytes)?),
            1 => {
                let (now, rest) = bytes.split_first_chunk()?;
                bytes = rest;
                Value::Eight(*now)
            }
            2 => {
                let n = usize::try_from(number(&mut bytes)?).ok()?;
                let (now, rest) = bytes.split_at_checked(n)?;
                bytes = rest;
                let inner = if now.is_empty() || depth == MOST_DEPTH { None } else { message(now, depth + 1) };
                inner.map_or_else(|| Value::Bytes(now.to_vec()), Value::Message)
            }
            5 => {
                let (now, rest) = bytes.split_first_chunk()?;
                bytes = rest;
                Value::Four(*now)
            }
            _ => return None,
        };
        // a file of ONNX has no larger one, and text is seldom taken for a message
        if !(1..=100).contains(&(key >> 3)) {
            return None;
        }
        fields.push(Field { number: key >> 3, value });
    }
    Some(fields)
}

fn put_number(mut n: u64, to: &mut Vec<u8>) {
    while n >= 0x80 {
        to.push(n as u8 | 0x80);
        n >>= 7;
    }
    to.push(n as u8);
}

fn put(fields: &[Field], to: &mut Vec<u8>) {
    for f in fields {
        let mut inner = Vec::new();
        let (kind, bytes): (u64, &[u8]) = match &f.value {
            Value::Number(n) => {
                put_number(*n, &mut inner);
                (0, &inner)
            }
            Value::Eight(b) => (1, b),
            Value::Four(b) => (5, b),
            Value::Bytes(b) => (2, b),
            Value::Message(m) => {
                put(m, &mut inner);
                (2, &inner)
            }
        };
        put_number(f.number << 3 | kind, to);
        if kind == 2 {
            put_number(bytes.len() as u64, to);
        }
        to.extend_from_slice(bytes);
    }
}

fn count(fields: &[Field]) -> usize {
    fields.iter().map(|f| 1 + if let Value::Message(m) = &f.value { count(m) } else { 0 }).sum()
}

/// The list that has field `k`, in the order of the file, and its place there.
fn find<'f>(fields: &'f mut Vec<Field>, k: &mut usize) -> Option<(&'f mut Vec<Field>, usize)> {
    let at = {
        let mut left = *k;
        fields.iter().position(|f| {
            let n = 1 + if let Value::Message(m) = &f.value { count(m) } else { 0 };
            if left < n {
                return true;
            }
            left -= n;
            *k = left;
            false
        })?
    };
    if *k == 0 {
        return Some((fields, at));
    }
    *k -= 1;
    match &mut fields[at].value {
        Value::Message(m) => find(m, k),
        _ => None,
    }
}

fn random_field(fields: &mut Vec<Field>, random: &mut Random) -> Option<Field> {
    let n = count(fields);
    let mut k = if n == 0 { return None } else { random.below(n) };
    let (list, at) = find(fields, &mut k)?;
    Some(list[at].clone())
}

fn change(value: &mut Value, words: &[&str], random: &mut Random, plain: Plain<'_>) {
    match value {
        Value::Number(n) => {
            *n = match random.below(4) {
                0 => n.wrapping_add(1),
                1 => n.wrapping_sub(1),
                _ => random.pick(&NUMBERS).copied().unwrap_or(0),
            }
        }
        Value::Eight(b) => *b = random.pick(&FLOATS).copied().unwrap_or(0.0).to_le_bytes(),
        Value::Four(b) => *b = (random.pick(&FLOATS).copied().unwrap_or(0.0) as f32).to_le_bytes(),
        Value::Bytes(b) => match random.below(3) {
            // the name of an operator or an attribute for another one
            0 if words.iter().any(|w| w.as_bytes() == b) => {
                *b = random.pick(words).map_or(Vec::new(), |w| w.as_bytes().to_vec());
            }
            1 if b.len() >= 8 && b.len() % 8 == 0 => {
                let at = random.below(b.len() / 8) * 8;
                b[at..at + 8].copy_from_slice(&random.pick(&NUMBERS).copied().unwrap_or(0).to_le_bytes());
            }
            _ => *b = changed(b, plain),
        },
        Value::Message(m) => {
            let mut bytes = Vec::new();
            put(m, &mut bytes);
            *value = Value::Bytes(changed(&bytes, plain));
        }
    }
}

fn step(fields: &mut Vec<Field>, words: &[&str], random: &mut Random, plain: Plain<'_>) {
    let other = random_field(fields, random);
    let n = count(fields);
    let mut k = if n == 0 { return } else { random.below(n) };
    let Some((list, at)) = find(fields, &mut k) else { return };
    match random.below(10) {
        0 => drop(list.remove(at)),
        1 => {
            let again = list[at].clone();
            list.insert(random.below(list.len() + 1), again);
        }
        2 => {
            let with = random.below(list.len());
            list.swap(at, with);
        }
        3 => list.extend(other),
        4..6 => {
            if let Some(other) =
                other.filter(|o| std::mem::discriminant(&o.value) == std::mem::discriminant(&list[at].value))
            {
                list[at].value = other.value;
            }
        }
        6 if random.once_in(4) => list[at].number = 1 + random.below(30) as u64,
        _ => {
            // whole messages are broken seldom
            if !matches!(list[at].value, Value::Message(_)) || random.once_in(8) {
                change(&mut list[at].value, words, random, plain);
            }
        }
    }
}

/// A message with some fields changed, or the bytes changed if they are none. `words` stand for one another.
pub fn mutate(bytes: &[u8], words: &[&str], random: &mut Random, plain: Plain<'_>) -> Vec<u8> {
    let Some(mut fields) = message(bytes, 0).filter(|_| !random.once_in(20)) else { return changed(bytes, plain) };
    for _ in 0..1 + random.below(4) {
        step(&mut fields, words, random, plain);
    }
    let mut to = Vec::new();
    put(&fields, &mut to);
    to
}
