//! Writes what the fuzzer begins with into `corpus`, of the files that the tests of the crates have and of a folder of ONNX
//! models: `cargo run --bin seeds [FOLDER]`, in this folder.

use std::error::Error;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine;
use remat_lite::{Dim, Extent, Key, Network, Options, Shapes, ValueType};

/// Larger files are mutated too seldom where it matters.
const MOST_BYTES: usize = 64 << 10;

struct Corpus(PathBuf);

impl Corpus {
    fn put(&self, target: &str, name: &str, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
        if bytes.len() <= MOST_BYTES {
            let folder = self.0.join(target);
            fs::create_dir_all(&folder)?;
            fs::write(folder.join(name), bytes)?;
        }
        Ok(())
    }
}

/// Calls that load a model, make a session, run it and read an output, in several ways.
const SCRIPTS: [&[u8]; 4] = [
    &[0, 9, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 9, 0, 2, 0, 0, 6, 0, 0, 10, 0, 16, 3, 9, 0, 10, 0, 17, 3, 9, 3, 9, 0, 9, 0],
    &[
        8, 0, 9, 0, 0, 0, 4, 0, 0, 0, 1, 0, 1, 0, 0, 0, 9, 0, 0, 8, 4, 0, 0, 3, 9, 0, 6, 0, 1, 0, 10, 0, 16, 3, 9, 7,
        1, 8,
    ],
    &[
        4, 0, 0, 3, 6, 6, 6, 6, 0, 0, 0, 9, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 9, 0, 2, 0, 0, 6, 0, 1, 0, 11, 0, 17, 3, 9,
        9, 1,
    ],
    &[3, 0, 9, 0, 0, 16, 0, 7, 7, 9, 2, 9, 1, 0],
];

/// A model as a file of a graph: with the extents that it names open, if that can be.
fn graph_files(model: &[u8]) -> remat_lite::Result<Vec<Vec<u8>>> {
    let network = Network::from_bytes(model, Options { threads: 1, ..Options::default() })?;
    let mut names: Vec<String> = Vec::new();
    for port in network.inputs() {
        if let ValueType::Tensor(_, Some(extents)) = &port.ty {
            for e in extents {
                if let Extent::Named(n) = e
                    && !names.contains(n)
                {
                    names.push(n.clone());
                }
            }
        }
    }
    let symbols: Vec<Dim> = names.iter().map(|n| Dim::new(n, 1, 8)).collect();
    let file = network.graph_file(&Shapes::new(), &symbols)?;
    Ok(vec![unchecked(&file.to_bytes(None)?)?, file.to_bytes(Some(&Key::new([7; Key::BYTES])))?])
}

/// The file as releases wrote it that had no checksums: a reader would refuse every mutation of one that has.
fn unchecked(bytes: &[u8]) -> remat_lite::Result<Vec<u8>> {
    let (tensors, mut text) = remat_types::read_safetensors(bytes)?;
    text.remove("remat.checksum");
    text.insert("remat.version".to_owned(), "1".to_owned());
    remat_types::write_safetensors(&tensors, &text)
}

fn model(corpus: &Corpus, name: &str, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    corpus.put("onnx", name, bytes)?;
    let mut files = vec![bytes.to_vec()];
    let graphs = graph_files(bytes).unwrap_or_default();
    for (i, file) in graphs.iter().enumerate() {
        corpus.put("remat_file", &format!("{name}.{i}"), file)?;
    }
    files.extend(graphs.into_iter().take(1));
    for (k, script) in SCRIPTS.iter().enumerate() {
        for (i, file) in files.iter().enumerate() {
            let input = [&[script.len() as u8], *script, file].concat();
            corpus.put("c_face", &format!("{name}.{k}.{i}"), &input)?;
        }
    }
    Ok(())
}

fn models(corpus: &Corpus, folder: &Path) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "onnx") {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            model(corpus, &name, &fs::read(&path)?)?;
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (corpus, crates) = (Corpus(own.join("corpus")), own.join("../crates"));
    for folder in fs::read_dir(crates.join("lite/tests/models"))? {
        let folder = folder?.path();
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Ok(bytes) = fs::read(folder.join("model.onnx")) {
            model(&corpus, &name, &bytes)?;
        }
    }
    corpus.put("remat_file", "kept", &fs::read(crates.join("lite/tests/models/cnn-version-1.remat"))?)?;
    let hostile = crates.join("onnx/tests/hostile");
    if hostile.is_dir() {
        models(&corpus, &hostile)?;
    }
    if let Some(folder) = std::env::args().nth(1) {
        models(&corpus, Path::new(&folder))?;
    }
    let mut lines = String::new();
    let packed = fs::read(crates.join("zoo/tests/data/torch.jsonl.gz"))?;
    flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut lines)?;
    for line in lines.lines() {
        let case: serde_json::Value = serde_json::from_str(line)?;
        let (Some(name), Some(file)) = (case["name"].as_str(), case["file"].as_str()) else { continue };
        let file = base64::engine::general_purpose::STANDARD.decode(file)?;
        corpus.put("checkpoint", name, &[&[0], &file[..]].concat())?;
        corpus.put("checkpoint", &format!("{name}.weights"), &[&[4], &file[..]].concat())?;
        // the pickle of an archive is its first member, stored
        if let Some(data) = pickle(&file) {
            corpus.put("checkpoint", &format!("{name}.pickle"), &[&[1], data].concat())?;
        }
    }
    let saved = fs::read(crates.join("nn/tests/data/checkpoint-v1.safetensors"))?;
    for kind in 2..5u8 {
        corpus.put("checkpoint", &format!("saved.{kind}"), &[&[kind], &saved[..]].concat())?;
    }
    Ok(())
}

fn pickle(archive: &[u8]) -> Option<&[u8]> {
    let header = archive.get(..30).filter(|h| h.starts_with(b"PK\x03\x04"))?;
    let two = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
    let at = 30 + two(26) + two(28);
    let bytes = archive.get(at..)?;
    // sizes may follow the data: a pickle ends at its stop, before the next member or its descriptor
    let end = bytes.windows(4).position(|w| w == b"PK\x07\x08" || w == b"PK\x03\x04")?;
    bytes.get(..end)
}
