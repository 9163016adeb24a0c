//! Attention as one operator, so that no matrix of scores is ever a tensor: neither written nor kept for the gradient.

mod attend;
mod grad;
mod samples;

pub use attend::Attention;
pub use grad::AttentionGrad;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpRef, Registry};

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
}
