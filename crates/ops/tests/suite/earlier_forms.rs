//! Serial forms that were written before an op had all of its parameters.

use remat_ops::attention::{Attention, AttentionGrad};
use remat_ops::optim::{AdamWUpdate, SgdUpdate};
use remat_ops::random::GammaSample;
use remat_ops::{OpRef, Registry};

#[test]
fn forms_that_were_written_before_windows_and_caps_are_read() {
    let registry = Registry::builtin();
    let read = |text: &str| registry.load(&serde_json::from_str(text).expect("JSON")).expect("of version 1");
    let params = r#"{"causal": true, "joined": false, "scale": {"float": 0.7}}"#;
    let of = Attention { causal: true, ..Attention::plain(0.7) };
    let forward = format!(r#"{{"op": "attention", "v": 1, "params": {params}}}"#);
    assert_eq!(read(&forward), OpRef::new(of.clone()));
    let backward = format!(r#"{{"op": "attention_grad", "v": 1, "params": {{"of": {params}}}}}"#);
    assert_eq!(read(&backward), OpRef::new(AttentionGrad { of }));
}

#[test]
fn updates_that_were_written_before_their_last_options_are_read() {
    let registry = Registry::builtin();
    let read = |text: &str| registry.load(&serde_json::from_str(text).expect("JSON")).expect("of version 1");
    let adam = r#"{"op": "adamw_update", "v": 1, "params": {"beta1": {"float": 0.5}, "beta2": {"float": 0.75},
        "eps": {"float": 0.0}, "weight_decay": {"float": 0.5}, "decoupled": true}}"#;
    let [beta1, beta2, eps, weight_decay] = [0.5, 0.75, 0.0, 0.5].map(Into::into);
    let op = AdamWUpdate { beta1, beta2, eps, weight_decay, decoupled: true, amsgrad: false };
    assert_eq!(read(adam), OpRef::new(op));
    let sgd = r#"{"op": "sgd_update", "v": 1, "params": {"momentum": {"float": 0.5}}}"#;
    let (momentum, none) = (0.5.into(), 0.0.into());
    let op = SgdUpdate { momentum, dampening: none, nesterov: false, weight_decay: none, maximize: false };
    assert_eq!(read(sgd), OpRef::new(op));
}

#[test]
fn gamma_numbers_that_were_written_before_their_logarithms_are_read() {
    let form = serde_json::from_str(r#"{"op": "gamma_sample", "v": 1, "params": {}}"#).expect("JSON");
    let op = Registry::builtin().load(&form).expect("of version 1");
    assert_eq!(op, OpRef::new(GammaSample { log: false }));
}
