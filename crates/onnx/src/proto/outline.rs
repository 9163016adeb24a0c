//! A file without the bytes of its weights.
//!
//! Every message has its length in front, so a reader can step over the bytes of a tensor and note where they are. What is left is small,
//! and is the model as it is decoded; the bytes are read later, each tensor's into memory of its own.
//!
//! So a model takes its weights once while it is read. Mapping the file instead would not do better: tensors lie at any address in it, and
//! kernels read them from aligned memory with huge pages, so they are copied in any case and the pages of the map are resident beside. And
//! a file that another program cuts short while it is mapped ends the process; here it is an error.
//!
//! Only the main graph's initialisers are stepped over, which is where exporters write weights. A file that is not built as they build it
//! (a tensor with its bytes twice, groups) has no outline and is read whole.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read};

use remat_import::Place;

/// Tensors of fewer bytes stay in the outline: reading them by themselves would take longer.
const LEAST_BYTES: u64 = 4096;

/// A length as [`patch`] writes it, with room for any of a file.
const LENGTH_BYTES: usize = 5;

#[derive(Debug)]
pub(crate) struct Outline {
    /// The model without what `places` has.
    pub(crate) bytes: Vec<u8>,
    /// The bytes of tensors by the number of the initialiser.
    pub(crate) places: HashMap<usize, Place>,
}

/// The messages that are looked into, with the numbers of their fields.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Model,
    Graph,
    Tensor,
}

impl Level {
    const RAW_DATA: u64 = 9;

    fn within(self, field: u64) -> Option<Level> {
        match (self, field) {
            (Level::Model, 7) => Some(Level::Graph),
            (Level::Graph, 5) => Some(Level::Tensor),
            _ => None,
        }
    }
}

impl Outline {
    /// The outline of a file of `size` bytes, read from its start; `None` if it is to be read whole. Errors: those of reading.
    pub(crate) fn of(file: &File, size: u64) -> io::Result<Option<Outline>> {
        let mut scan = Scan {
            from: BufReader::with_capacity(1 << 16, file),
            at: 0,
            initialisers: 0,
            raw: 0,
            outline: Outline { bytes: Vec::new(), places: HashMap::new() },
        };
        let is_outlined = scan.message(Level::Model, size)?;
        Ok(Some(scan.outline).filter(|_| is_outlined))
    }
}

struct Scan<'f> {
    from: BufReader<&'f File>,
    at: u64,
    initialisers: usize,
    /// Fields of bytes that the present tensor has had.
    raw: usize,
    outline: Outline,
}

impl Scan<'_> {
    /// Copies a message that ends at `end`. False if there is something in it that is not known here.
    fn message(&mut self, level: Level, end: u64) -> io::Result<bool> {
        while self.at < end {
            let Some(key) = self.varint(end)? else { return Ok(false) };
            let is_good = match key & 7 {
                0 => match self.varint(end)? {
                    Some(value) => {
                        self.put(key);
                        self.put(value);
                        true
                    }
                    None => false,
                },
                1 => self.copy(key, 8, end)?,
                5 => self.copy(key, 4, end)?,
                2 => self.block(level, key, end)?,
                _ => false,
            };
            if !is_good {
                return Ok(false);
            }
        }
        Ok(self.at == end)
    }

    /// Copies a field that has its length in front.
    fn block(&mut self, level: Level, key: u64, end: u64) -> io::Result<bool> {
        let Some(n) = self.varint(end)?.filter(|n| *n <= end - self.at) else { return Ok(false) };
        if level == Level::Tensor && key >> 3 == Level::RAW_DATA {
            self.raw += 1;
            if self.raw > 1 {
                return Ok(false);
            }
            if n >= LEAST_BYTES {
                self.outline.places.insert(self.initialisers - 1, Place { at: self.at, bytes: n });
                return self.skip(n);
            }
        }
        let Some(inner) = level.within(key >> 3) else {
            self.put(key);
            self.put(n);
            return self.append(n);
        };
        if inner == Level::Tensor {
            self.initialisers += 1;
            self.raw = 0;
        }
        self.put(key);
        let hole = self.outline.bytes.len();
        self.outline.bytes.extend([0; LENGTH_BYTES]);
        let is_good = self.message(inner, self.at + n)?;
        Ok(is_good && patch(&mut self.outline.bytes, hole))
    }

    /// A number of at most 64 bits that ends before `end`.
    fn varint(&mut self, end: u64) -> io::Result<Option<u64>> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            if self.at == end {
                return Ok(None);
            }
            let mut byte = [0];
            self.from.read_exact(&mut byte)?;
            self.at += 1;
            let bits = u64::from(byte[0] & 0x7f);
            if shift == 63 && bits > 1 {
                return Ok(None);
            }
            value |= bits << shift;
            if byte[0] < 0x80 {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    fn put(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.outline.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.outline.bytes.push(value as u8);
    }

    /// Copies a field of `n` bytes.
    fn copy(&mut self, key: u64, n: u64, end: u64) -> io::Result<bool> {
        if n > end - self.at {
            return Ok(false);
        }
        self.put(key);
        self.append(n)
    }

    /// False if the file ends before.
    fn append(&mut self, n: u64) -> io::Result<bool> {
        self.at += n;
        // grows by what is read, whatever `n` is
        Ok((&mut self.from).take(n).read_to_end(&mut self.outline.bytes)? as u64 == n)
    }

    fn skip(&mut self, n: u64) -> io::Result<bool> {
        self.at += n;
        let Ok(n) = i64::try_from(n) else { return Ok(false) };
        self.from.seek_relative(n).map(|()| true)
    }
}

/// Writes the length of all that follows `hole` there, in a form longer than it has to be. False if it has no room.
fn patch(bytes: &mut [u8], hole: usize) -> bool {
    let mut n = (bytes.len() - hole - LENGTH_BYTES) as u64;
    for (i, byte) in bytes[hole..hole + LENGTH_BYTES].iter_mut().enumerate() {
        *byte = n as u8 & 0x7f | if i + 1 < LENGTH_BYTES { 0x80 } else { 0 };
        n >>= 7;
    }
    n == 0
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use prost::Message;

    use super::*;
    use crate::proto::{GraphProto, ModelProto, TensorProto};

    fn tensor(name: &str, bytes: usize) -> TensorProto {
        let raw = (0..bytes).map(|i| (i % 251) as u8).collect::<Vec<_>>();
        TensorProto {
            name: Some(name.into()),
            dims: vec![bytes as i64],
            raw_data: Some(raw.into()),
            ..Default::default()
        }
    }

    fn model(initializer: Vec<TensorProto>) -> ModelProto {
        let graph = GraphProto { name: Some("g".into()), initializer, ..Default::default() };
        ModelProto { ir_version: Some(10), producer_name: Some("p".into()), graph: Some(graph), ..Default::default() }
    }

    fn outline(bytes: &[u8]) -> Option<Outline> {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(bytes).expect("written");
        io::Seek::rewind(&mut file).expect("a file");
        Outline::of(&file, bytes.len() as u64).expect("readable")
    }

    #[test]
    fn it_is_the_model_without_the_bytes_of_large_tensors() {
        let mut m = model(vec![tensor("a", 10), tensor("b", 5000), tensor("c", 4096), tensor("d", 4095)]);
        let file = m.encode_to_vec();
        let o = outline(&file).expect("as exporters write it");
        for (i, place) in &o.places {
            let t = &mut m.graph.as_mut().expect("a graph").initializer[*i];
            let raw = t.raw_data.take().expect("bytes");
            assert_eq!(file[place.at as usize..][..place.bytes as usize], raw);
        }
        let mut found: Vec<usize> = o.places.into_keys().collect();
        found.sort_unstable();
        assert_eq!(found, [1, 2]);
        assert!(o.bytes.len() < 4400, "{}", o.bytes.len());
        assert_eq!(ModelProto::decode(&o.bytes[..]).expect("a model"), m);
    }

    #[test]
    fn graphs_of_a_file_in_two_pieces_are_one() {
        let mut file = model(vec![tensor("a", 5000)]).encode_to_vec();
        file.extend(model(vec![tensor("b", 10), tensor("c", 6000)]).encode_to_vec());
        let o = outline(&file).expect("messages may come in pieces");
        let mut found: Vec<(usize, u64)> = o.places.into_iter().map(|(i, p)| (i, p.bytes)).collect();
        found.sort_unstable();
        assert_eq!(found, [(0, 5000), (2, 6000)]);
        let m = ModelProto::decode(&o.bytes[..]).expect("a model");
        assert_eq!(m.graph.expect("a graph").initializer.len(), 3);
    }

    #[test]
    fn what_is_not_known_is_read_whole() {
        let whole = model(vec![tensor("a", 5000)]).encode_to_vec();
        assert!(outline(&whole[..whole.len() - 1]).is_none(), "cut short");
        let twice = [tensor("a", 5000).encode_to_vec(), tensor("a", 10).encode_to_vec()].concat();
        let mut graph = vec![5 << 3 | 2];
        prost::encoding::encode_varint(twice.len() as u64, &mut graph);
        graph.extend(twice);
        let mut file = vec![7 << 3 | 2];
        prost::encoding::encode_varint(graph.len() as u64, &mut file);
        file.extend(graph);
        assert!(outline(&file).is_none(), "bytes twice: the last ones hold");
        assert!(outline(&[0x0b]).is_none(), "a group");
        assert!(outline(&[0x08]).is_none(), "a number without its bytes");
        assert!(outline(&[0x12, 0xff, 0xff, 0xff, 0xff, 0x7f, 1]).is_none(), "a length beyond the end");
        assert!(outline(&[0x80; 12]).is_none(), "a number without an end");
        assert!(outline(b"").expect("nothing").bytes.is_empty());
    }
}
