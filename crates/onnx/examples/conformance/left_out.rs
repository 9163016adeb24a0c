//! Cases that are not run, each with its reason.

use std::path::Path;

use remat_onnx::{Model, ValueType};

/// Element types that Remat has not.
const SMALL_FLOATS: &str = "floats of 8 and 4 bits, which Remat has not";

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
    named.or_else(|| by_type(model).then_some(SMALL_FLOATS))
}

/// Whether a model's element types keep it out. One that cannot be read for another reason fails instead.
fn by_type(model: &Path) -> bool {
    match Model::open(model) {
        Ok(model) => model.inputs().into_iter().chain(model.outputs()).any(|p| is_other(&p.ty)),
        Err(e) => e.kind() == remat_types::ErrorKind::DType,
    }
}

fn is_other(ty: &ValueType) -> bool {
    match ty {
        ValueType::Tensor(dtype, _) => dtype.is_none(),
        ValueType::Sequence(of) | ValueType::Optional(of) => is_other(of),
        _ => false,
    }
}
