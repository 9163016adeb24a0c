//! Safetensors files, changed within their header: its JSON, the text of a graph in it, the bytes behind it.

use serde_json::Value;

use crate::{Plain, Random, changed};

const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "2",
    "3",
    "7",
    "64",
    "65536",
    "2147483648",
    "4294967296",
    "4611686018427387904",
    "9223372036854775807",
    "18446744073709551615",
    "-1",
    "-9223372036854775808",
];

/// Text with words in other places, and other numbers.
fn text(from: &str, random: &mut Random, plain: Plain<'_>) -> String {
    if random.once_in(6) {
        return String::from_utf8_lossy(&changed(from.as_bytes(), plain)).into_owned();
    }
    let lines: Vec<&str> = from.lines().collect();
    if lines.len() > 1 && random.once_in(3) {
        let mut lines = lines;
        let (a, b) = (random.below(lines.len()), random.below(lines.len()));
        match random.below(3) {
            0 => lines.swap(a, b),
            1 => drop(lines.remove(a)),
            _ => lines.insert(b, lines[a]),
        }
        return lines.join("\n");
    }
    // words are runs of letters and digits, or single other characters
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let mut words: Vec<String> = Vec::new();
    let mut within = false;
    for c in from.chars() {
        match words.last_mut().filter(|_| within && is_word(c)) {
            Some(last) => last.push(c),
            None => words.push(c.into()),
        }
        within = is_word(c);
    }
    for _ in 0..1 + random.below(3) {
        if words.is_empty() {
            break;
        }
        // the words that are not spaces or signs, mostly
        let mut at = random.below(words.len());
        for _ in 0..4 {
            if words[at].starts_with(is_word) {
                break;
            }
            at = random.below(words.len());
        }
        let is_number = words[at].starts_with(|c: char| c.is_ascii_digit());
        let other = words[random.below(words.len())].clone();
        match random.below(4) {
            0 => words[at] = other,
            1 if !is_number => drop(words.remove(at)),
            2 if !is_number => words.insert(at, other),
            _ if is_number => words[at] = random.pick(&NUMBERS).map_or(String::new(), |n| (*n).into()),
            _ => words[at] = other,
        }
    }
    words.concat()
}

fn json(v: &mut Value, random: &mut Random, plain: Plain<'_>) {
    match v {
        Value::Object(m) if !m.is_empty() => {
            let keys: Vec<String> = m.keys().cloned().collect();
            let key = &keys[random.below(keys.len())];
            match random.below(12) {
                0 => drop(m.remove(key)),
                1 => {
                    if let Some(v) = m.remove(key) {
                        m.insert(text(key, random, plain), v);
                    }
                }
                2 => {
                    let other = m[&keys[random.below(keys.len())]].clone();
                    m.insert(key.clone(), other);
                }
                _ => json(&mut m[key], random, plain),
            }
        }
        Value::Array(a) if !a.is_empty() => {
            let at = random.below(a.len());
            match random.below(6) {
                0 => drop(a.remove(at)),
                1 => a.insert(at, a[at].clone()),
                _ => json(&mut a[at], random, plain),
            }
        }
        Value::String(s) => {
            // a checkpoint's own text is JSON again
            match serde_json::from_str::<Value>(s).ok().filter(|v| v.is_object() || v.is_array()) {
                Some(mut inner) => {
                    json(&mut inner, random, plain);
                    *s = inner.to_string();
                }
                None => *s = text(s, random, plain),
            }
        }
        _ => {
            let new = random.pick(&NUMBERS).copied().unwrap_or("null");
            *v = serde_json::from_str(new).unwrap_or(Value::Null);
        }
    }
}

/// A safetensors file with some of its header changed, or the bytes changed if it is none. Lengths fit again, mostly.
pub fn mutate(bytes: &[u8], random: &mut Random, plain: Plain<'_>) -> Vec<u8> {
    let parsed = || {
        let (len, rest) = bytes.split_first_chunk()?;
        let (header, data) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
        Some((serde_json::from_slice::<Value>(header).ok()?, data.to_vec()))
    };
    let Some((mut header, mut data)) = parsed().filter(|_| !random.once_in(20)) else { return changed(bytes, plain) };
    for _ in 0..1 + random.below(3) {
        if random.once_in(8) {
            data = changed(&data, plain);
        } else {
            json(&mut header, random, plain);
        }
    }
    if random.once_in(4) {
        lay_out(&mut header, &mut data);
    }
    let header = header.to_string();
    let mut to = (header.len() as u64).to_le_bytes().to_vec();
    to.extend_from_slice(header.as_bytes());
    to.append(&mut data);
    to
}

/// Tensors one behind the other, of as many bytes as their shapes say, if that is not much.
fn lay_out(header: &mut Value, data: &mut Vec<u8>) {
    let Some(all) = header.as_object_mut() else { return };
    let mut end = 0u64;
    for (_, t) in all.iter_mut().filter(|(name, _)| *name != "__metadata__") {
        let bytes = match t["dtype"].as_str() {
            Some("F64" | "I64" | "U64") => 8,
            Some("F16" | "BF16" | "I16" | "U16") => 2,
            Some("I8" | "U8" | "BOOL") => 1,
            _ => 4u64,
        };
        let shape = t["shape"].as_array().into_iter().flatten();
        let n = shape.fold(bytes, |n, d| n.saturating_mul(d.as_u64().unwrap_or(1)));
        if !t.is_object() {
            continue;
        }
        t["data_offsets"] = serde_json::json!([end, end.saturating_add(n)]);
        end = end.saturating_add(n);
    }
    if end <= 1 << 16 {
        data.resize(end as usize, 0);
    }
}
