//! Cases that are not run, each with its reason.

use std::path::Path;

use remat_onnx::{Model, ValueType};

/// Element types that Remat has not, as they stand in a model's declarations.
const OTHER_TYPES: &str = "element types of 8, 4 or 2 bits that are no integers of a byte, and complex numbers";

/// By what the name of a case says.
const BY_NAME: &[(&str, &str)] = &[
    ("adagrad", TRAINING),
    ("adam", TRAINING),
    ("momentum", TRAINING),
    ("nesterov_momentum", TRAINING),
    ("gradient_of_", TRAINING),
    ("image_decoder", "pictures in files: decoders of formats are no operators of tensors"),
    ("regex_full_match", "strings: regular expressions"),
    ("bernoulli", RANDOM),
    ("training_dropout_default", RANDOM),
    ("training_dropout_mask", RANDOM),
    ("training_dropout", RANDOM),
];

const TRAINING: &str = "the training domain: models are trained with Remat's optimisers and its tape";
const RANDOM: &str = "random numbers: the values expected are those of another generator";

/// Cases whose names begin as one that is left out, and that are run all the same: nothing in them is random.
const RUN: &[&str] = &["training_dropout_zero_ratio"];

/// Why a case is not run.
pub(crate) fn reason(name: &str, model: &Path) -> Option<&'static str> {
    if RUN.iter().any(|r| name.starts_with(r)) {
        return None;
    }
    let named = BY_NAME.iter().find(|(start, _)| name.starts_with(start)).map(|(_, why)| *why);
    named.or_else(|| by_type(model))
}

/// Why a model's element types keep it out. One that cannot be read fails instead.
fn by_type(model: &Path) -> Option<&'static str> {
    match Model::open(model) {
        Ok(model) => {
            let all = model.inputs().into_iter().chain(model.outputs());
            all.map(|p| p.ty).find_map(|ty| of_type(&ty))
        }
        Err(e) if e.kind() == remat_types::ErrorKind::DType => Some(OTHER_TYPES),
        Err(_) => None,
    }
}

fn of_type(ty: &ValueType) -> Option<&'static str> {
    match ty {
        ValueType::Tensor(None, _) => Some(OTHER_TYPES),
        ValueType::Sequence(of) | ValueType::Optional(of) => of_type(of),
        _ => None,
    }
}
