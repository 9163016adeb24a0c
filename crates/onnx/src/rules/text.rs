//! Strings: on the host, outside of every compiled function.

use std::sync::Arc;

use remat_import::{Cx, Text, Value, shape_error, size, value_error};
use remat_types::{HostTensor, Result, Shape};

use super::{Row, row};

pub(super) const ROWS: &[Row] = &[
    row("StringConcat", 20, concat),
    row("StringNormalizer", 10, normalize),
    row("StringSplit", 20, split),
    row("TfIdfVectorizer", 9, tf_idf),
];

fn text(shape: Shape, data: Vec<String>) -> Value {
    Value::Text(Text { shape, data: Arc::new(data) })
}

fn concat(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (a, b) = (c.text(0)?, c.text(1)?);
    let shape = a.shape.broadcast(&b.shape)?;
    let (a, b) = (super::arithmetic::spread(a, &shape)?, super::arithmetic::spread(b, &shape)?);
    Ok(vec![text(shape, a.into_iter().zip(b).map(|(a, b)| a + &b).collect())])
}

/// Without stop words, and in another case. Nothing left is one empty string.
fn normalize(c: &Cx<'_>) -> Result<Vec<Value>> {
    let x = c.text(0)?;
    let cased = match c.string("case_change_action", "NONE")? {
        "NONE" => |s: &str| s.to_owned(),
        "LOWER" => |s: &str| s.to_lowercase(),
        "UPPER" => |s: &str| s.to_uppercase(),
        other => return Err(c.unknown("case_change_action", other)),
    };
    let exact = c.flag("is_case_sensitive", false)?;
    let key = |s: &str| if exact { s.to_owned() } else { s.to_lowercase() };
    let stop: Vec<String> = c.strings("stopwords")?.unwrap_or_default().iter().map(|s| key(s)).collect();
    let (lead, _) = match x.shape.dims() {
        [n] => (None, *n),
        [1, n] => (Some(1), *n),
        _ => return Err(shape_error(format!("strings of shape {}, must be [n] or [1, n]", x.shape))),
    };
    let mut left: Vec<String> = x.data.iter().filter(|s| !stop.contains(&key(s))).map(|s| cased(s)).collect();
    if left.is_empty() {
        left.push(String::new());
    }
    let shape = lead.into_iter().chain([left.len()]).collect();
    Ok(vec![text(shape, left)])
}

/// Parts of strings, filled up with empty ones along a new last axis, and their numbers.
fn split(c: &Cx<'_>) -> Result<Vec<Value>> {
    let x = c.text(0)?;
    let delimiter = c.string("delimiter", "")?;
    let most = c.opt_int("maxsplit")?.map(size).transpose()?;
    let parts = |s: &String| -> Vec<String> {
        if !delimiter.is_empty() {
            let all: Vec<&str> = match most {
                Some(n) => s.splitn(n + 1, delimiter).collect(),
                None => s.split(delimiter).collect(),
            };
            return if s.is_empty() { Vec::new() } else { all.into_iter().map(str::to_owned).collect() };
        }
        // any number of spaces is one
        let (mut all, mut rest) = (Vec::new(), s.trim_start());
        while !rest.is_empty() {
            if most.is_some_and(|n| all.len() >= n) {
                all.push(rest.trim_end().to_owned());
                break;
            }
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            all.push(rest[..end].to_owned());
            rest = rest[end..].trim_start();
        }
        all
    };
    let all: Vec<Vec<String>> = x.data.iter().map(parts).collect();
    let width = all.iter().map(Vec::len).max().unwrap_or(0);
    let counts: Vec<i64> = all.iter().map(|p| p.len() as i64).collect();
    let mut shape = x.shape.clone();
    shape.push(width);
    let filled = all.into_iter().flat_map(|mut p| {
        p.resize(width, String::new());
        p
    });
    let parts = text(shape, filled.collect());
    Ok(vec![parts, c.constant(&HostTensor::from_slice(&counts, x.shape.clone())?)?])
}

/// How often n-grams of a list are there, weighted.
fn tf_idf(c: &Cx<'_>) -> Result<Vec<Value>> {
    let counts = c.sizes("ngram_counts")?.ok_or_else(|| c.missing("ngram_counts"))?;
    let places = c.sizes("ngram_indexes")?.ok_or_else(|| c.missing("ngram_indexes"))?;
    let weights = c.reals("weights")?;
    let (least, most) = (size(c.int_of("min_gram_length")?)?, size(c.int_of("max_gram_length")?)?);
    let skips = size(c.int_of("max_skip_count")?)?;
    // strings and integers are compared as text
    let (tokens, shape) = match c.needed(0)? {
        Value::Text(t) => (t.data.to_vec(), t.shape.clone()),
        v => (c.host(0)?.to_i64_vec().iter().map(ToString::to_string).collect(), v.tensor()?.shape().clone()),
    };
    let pool: Vec<String> = match (c.strings("pool_strings")?, c.ints("pool_int64s")?) {
        (Some(all), _) => all,
        (None, Some(all)) => all.iter().map(ToString::to_string).collect(),
        (None, None) => return Err(c.missing("pool_int64s")),
    };
    let mut grams: std::collections::HashMap<&[String], usize> = std::collections::HashMap::new();
    for (i, start) in counts.iter().enumerate() {
        let end = counts.get(i + 1).copied().unwrap_or(pool.len());
        let of = pool.get(*start..end).ok_or_else(|| value_error("attribute `ngram_counts` leaves the pool"))?;
        for gram in of.chunks_exact(i + 1) {
            let n = grams.len();
            grams.insert(gram, n);
        }
    }
    let width = places.iter().max().map_or(0, |m| m + 1);
    let (rows, columns) = match shape.dims() {
        [n] => (1, *n),
        [rows, n] => (*rows, *n),
        _ => return Err(shape_error(format!("tokens of shape {shape}, must be [n] or [rows, n]"))),
    };
    let mut y = vec![0f32; remat_types::Shape::from([rows, width]).checked_elems()?];
    for (r, row) in tokens.chunks(columns.max(1)).enumerate().take(rows) {
        for n in least..=most.min(row.len()) {
            for step in 1..=if n == 1 { 1 } else { skips + 1 } {
                let reach = (n - 1).saturating_mul(step);
                for start in 0..row.len().saturating_sub(reach) {
                    let gram: Vec<String> = (0..n).map(|k| row[start + k * step].clone()).collect();
                    if let Some(id) = grams.get(&gram[..])
                        && let Some(place) = places.get(*id)
                    {
                        y[r * width + place] += 1.0;
                    }
                }
            }
        }
    }
    let weight = |id: usize| weights.and_then(|w| w.get(id)).copied().unwrap_or(1.0);
    let of_place = |place: usize| places.iter().position(|p| *p == place).map_or(1.0, weight);
    let mode = c.string("mode", "")?;
    for (i, v) in y.iter_mut().enumerate() {
        let w = of_place(i % width.max(1));
        *v = match mode {
            "TF" => *v,
            "IDF" => {
                if *v > 0.0 {
                    w
                } else {
                    0.0
                }
            }
            "TFIDF" => *v * w,
            other => return Err(c.unknown("mode", other)),
        };
    }
    let shape: Shape = if shape.rank() == 1 { [width].into() } else { [rows, width].into() };
    Ok(vec![c.constant(&HostTensor::from_slice(&y, shape)?)?])
}
