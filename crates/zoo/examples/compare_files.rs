//! Compares networks of published sizes, with their libraries' own weights, with what those libraries compute:
//!
//! ```text
//! VENV/bin/python scripts/make_model_fixtures.py --full FOLDER
//! cargo run --release -p remat-zoo --example compare_files FOLDER
//! ```
//!
//! It ends with an error if an output is further off than 1e-4 of the largest, or the folder has nothing to compare.

use std::path::Path;

use remat_nn::{InitCx, Module};
use remat_runtime::{Device, DeviceOptions};
use remat_tensor::{Tensor, no_grad};
use remat_types::read_safetensors;
use remat_zoo::load_weights;
use remat_zoo::models::{names_of, published_names};

#[path = "../tests/suite/published.rs"]
mod published;

use published::published;

fn main() {
    let folder = std::env::args().nth(1).expect("the folder that scripts/make_model_fixtures.py --full wrote");
    let d = Device::cpu(DeviceOptions::default()).expect("a CPU");
    let families = published_names().filter(|n| n.starts_with("torchvision/")).map(|n| &n["torchvision/".len()..]);
    let families: Vec<&str> = families.collect();
    let mut compared = 0;
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .expect("a folder that the script wrote")
        .map(|e| e.expect("a file").path())
        .collect();
    files.sort();
    for io in files.iter().filter(|p| p.to_string_lossy().ends_with(".io.safetensors")) {
        let name = io.file_name().expect("a file").to_string_lossy().replace(".io.safetensors", "");
        let family = families.iter().filter(|f| name.starts_with(**f)).max_by_key(|f| f.len());
        let family = family.copied().unwrap_or("resnet");
        let (net, _) = published(&name, &mut InitCx::new(&d, 1)).expect("fits");
        net.eval();
        let names = names_of(&format!("torchvision/{family}")).expect("published");
        load_weights(&net, Path::new(&folder).join(format!("{name}.safetensors")), &names).expect(&name);
        let (all, _) = read_safetensors(&std::fs::read(io).expect("a file")).expect("tensors");
        let _quiet = no_grad();
        let y = net.forward(&Tensor::from_host(&d, &all["x"]).expect("fits")).expect(&name);
        let (got, want) = (y.to_host().expect(&name).to_f64_vec(), all["y"].to_f64_vec());
        let worst = got.iter().zip(&want).map(|(g, w)| (g - w).abs()).fold(0.0, f64::max);
        let most = want.iter().fold(0.0f64, |m, w| m.max(w.abs()));
        println!("{name}: {worst:.1e} off, of {most:.2e}");
        assert!(worst <= 1e-4 * most && most > 0.01, "{name}");
        compared += 1;
    }
    assert!(compared > 0, "the folder has no files");
}
