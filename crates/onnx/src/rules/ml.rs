//! Classic machine learning: the domain `ai.onnx.ml`.

use std::sync::Arc;

use remat_import::{Cx, Labels, Literal, Text, Value, one, shape_error, size, value_error};
use remat_tensor::Tensor;
use remat_types::{DType, HostTensor, Result, Shape};

use super::trees::Trees;
use super::{Row, of};

const ML: &str = "ai.onnx.ml";

pub(super) const ROWS: &[Row] = &[
    of(ML, "ArrayFeatureExtractor", 1, |c| {
        let index = c.x(1)?.reshape(&[-1])?;
        if let Value::Text(t) = c.needed(0)? {
            // of a list of classes
            return match t.shape.dims() {
                [_] | [1, _] => {
                    let labels = Labels { places: index.unsqueeze(0)?, names: t.data.clone() };
                    Ok(vec![Value::Labels(labels)])
                }
                _ => Err(shape_error(format!("strings of shape {}, must be [n] or [1, n]", t.shape))),
            };
        }
        let x = c.x(0)?;
        let y = x.index_select(-1, &index.cast(DType::I64)?)?;
        one(if y.rank() == 1 { y.unsqueeze(0)? } else { y })
    }),
    of(ML, "Binarizer", 1, |c| {
        let x = c.x(0)?;
        one(x.cast(DType::F64)?.gt(c.real("threshold", 0.0)?)?.cast(x.dtype())?)
    }),
    of(ML, "FeatureVectorizer", 1, |c| {
        let wide = c.all()?.into_iter().map(|t| t.cast(DType::F32)).collect::<Result<Vec<_>>>()?;
        one(Tensor::concat(&wide.iter().collect::<Vec<_>>(), -1)?)
    }),
    of(ML, "Imputer", 1, imputer),
    of(ML, "LabelEncoder", 1, label_encoder),
    of(ML, "LinearClassifier", 1, linear_classifier),
    of(ML, "LinearRegressor", 1, |c| {
        let targets = size(c.int("targets", 1)?)?;
        let y = linear(c, targets)?;
        one(post(c, y)?)
    }),
    of(ML, "Normalizer", 1, normalizer),
    of(ML, "OneHotEncoder", 1, one_hot),
    of(ML, "Scaler", 1, scaler),
    of(ML, "TreeEnsemble", 5, |c| {
        let f = *["AVERAGE", "SUM", "MIN", "MAX"].get(size(c.int("aggregate_function", 1)?)?).unwrap_or(&"?");
        let y = Trees::of_tensors(c)?.apply(c, c.x(0)?, f)?;
        let name = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"];
        one(transform(c, y, name.get(size(c.int("post_transform", 0)?)?).unwrap_or(&"?"))?)
    }),
    of(ML, "TreeEnsembleClassifier", 1, tree_classifier),
    of(ML, "TreeEnsembleRegressor", 1, |c| {
        let trees = Trees::of_lists(c, "target", size(c.int("n_targets", 1)?)?)?;
        let y = trees.apply(c, c.x(0)?, c.string("aggregate_function", "SUM")?)?;
        one(post(c, with_base(c, y)?)?.cast(DType::F32)?)
    }),
    // a map of a sample is a row of the tensor, whose columns are the keys in the order of the attribute
    of(ML, "ZipMap", 1, |c| one(c.x(0)?.clone())),
];

/// A vector of floats as a tensor of the dtype of another.
fn vector(c: &Cx<'_>, name: &str, dtype: DType) -> Result<Option<Tensor>> {
    let of_tensor = c.tensor(&format!("{name}_as_tensor"))?;
    let all: Vec<f64> = match (of_tensor, c.reals(name)?) {
        (Some(t), _) => t.to_f64_vec(),
        (None, Some(v)) => v.iter().map(|v| f64::from(*v)).collect(),
        (None, None) => return Ok(None),
    };
    Tensor::from_slice(c.device(), &all, [all.len()])?.cast(dtype).map(Some)
}

fn with_base(c: &Cx<'_>, y: Tensor) -> Result<Tensor> {
    match vector(c, "base_values", y.dtype())? {
        Some(base) if base.elems() > 0 => y.add(&base),
        _ => Ok(y),
    }
}

fn post(c: &Cx<'_>, y: Tensor) -> Result<Tensor> {
    transform(c, y, c.string("post_transform", "NONE")?)
}

fn transform(c: &Cx<'_>, y: Tensor, name: &str) -> Result<Tensor> {
    match name {
        "NONE" => Ok(y),
        "LOGISTIC" => y.sigmoid(),
        "SOFTMAX" => y.softmax(-1),
        // elements that are 0 stay 0 and take no part
        "SOFTMAX_ZERO" => {
            let zero = y.eq(0.0)?;
            y.masked_fill(&zero, f64::NEG_INFINITY)?.softmax(-1)?.masked_fill(&zero, 0.0)
        }
        "PROBIT" => y.mul(2.0)?.sub(1.0)?.erfinv()?.mul(std::f64::consts::SQRT_2),
        other => Err(c.unknown("post_transform", other)),
    }
}

fn imputer(c: &Cx<'_>) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    if x.dtype().is_float() {
        let with = vector(c, "imputed_value_floats", x.dtype())?.ok_or_else(|| c.missing("imputed_value_floats"))?;
        let old = c.real("replaced_value_float", 0.0)?;
        let gone = if old.is_nan() { x.is_nan()? } else { x.eq(old)? };
        return one(gone.where_cond(&with, x)?);
    }
    let with = c.ints("imputed_value_int64s")?.ok_or_else(|| c.missing("imputed_value_int64s"))?;
    let with = Tensor::from_slice(c.device(), with, [with.len()])?.cast(x.dtype())?;
    one(x.eq(c.int("replaced_value_int64", 0)?)?.where_cond(&with, x)?)
}

/// Labels on one side of an encoder.
enum Side {
    Numbers(HostTensor),
    Text(Vec<String>),
}

fn labels(c: &Cx<'_>, side: &str) -> Result<Side> {
    match c.literal(&format!("{side}_tensor"))? {
        Some(Literal::Tensor(t)) => return Ok(Side::Numbers(t.clone())),
        Some(Literal::Text(t)) => return Ok(Side::Text(t.data.to_vec())),
        None => {}
    }
    if let Some(all) = c.strings(&format!("{side}_strings"))? {
        return Ok(Side::Text(all));
    }
    if let Some(all) = c.ints(&format!("{side}_int64s"))? {
        return Ok(Side::Numbers(HostTensor::from_slice(all, [all.len()])?));
    }
    let all = c.reals(&format!("{side}_floats"))?.ok_or_else(|| c.missing(&format!("{side}_int64s")))?;
    Ok(Side::Numbers(HostTensor::from_slice(all, [all.len()])?))
}

/// Replaces labels: on the host, by the text of a label. NaN has a text, too.
fn label_encoder(c: &Cx<'_>) -> Result<Vec<Value>> {
    let name = |t: &HostTensor| -> Vec<String> {
        if t.dtype().is_float() {
            t.to_f64_vec().iter().map(|v| (v + 0.0).to_string()).collect()
        } else {
            t.to_i64_vec().iter().map(ToString::to_string).collect()
        }
    };
    let keys = match labels(c, "keys")? {
        Side::Numbers(t) => name(&t),
        Side::Text(all) => all,
    };
    let (asked, shape) = match c.needed(0)? {
        Value::Text(t) => (t.data.to_vec(), t.shape.clone()),
        v => (name(&c.host(0)?), v.tensor()?.shape().clone()),
    };
    let mut places = std::collections::HashMap::new();
    keys.iter().enumerate().for_each(|(i, k)| {
        places.entry(k.as_str()).or_insert(i);
    });
    let found: Vec<Option<usize>> = asked.iter().map(|k| places.get(k.as_str()).copied()).collect();
    match labels(c, "values")? {
        Side::Text(all) => {
            let other = match c.literal("default_tensor")? {
                Some(Literal::Text(t)) => t.data.first().cloned().unwrap_or_default(),
                _ => c.string("default_string", "_Unused")?.to_owned(),
            };
            let data = found.iter().map(|i| i.and_then(|i| all.get(i)).unwrap_or(&other).clone()).collect();
            Ok(vec![Value::Text(Text { shape, data: Arc::new(data) })])
        }
        Side::Numbers(all) => {
            let (dtype, wide) = (all.dtype(), all.to_f64_vec());
            let other = match c.tensor("default_tensor")? {
                Some(t) => t.to_f64_vec().first().copied().unwrap_or(0.0),
                None if dtype.is_float() => c.real("default_float", -0.0)?,
                None => c.int("default_int64", -1)? as f64,
            };
            let data: Vec<f64> = found.iter().map(|i| i.and_then(|i| wide.get(i)).copied().unwrap_or(other)).collect();
            Ok(vec![c.constant(&HostTensor::from_f64_slice(&data, dtype, shape)?)?])
        }
    }
}

/// `x w^T + b`: coefficients stand target by target.
fn linear(c: &Cx<'_>, targets: usize) -> Result<Tensor> {
    let x = c.x(0)?;
    let x = if x.rank() == 1 { x.unsqueeze(0)?.cast(DType::F32)? } else { x.cast(DType::F32)? };
    let w = vector(c, "coefficients", DType::F32)?.ok_or_else(|| c.missing("coefficients"))?;
    let [_, features] = x.dims_n()?;
    if w.elems() != targets.saturating_mul(features) {
        return Err(shape_error(format!("{} coefficients for {features} features and {targets} targets", w.elems())));
    }
    let y = x.matmul(&w.reshape(&[targets as isize, features as isize])?.t()?)?;
    match vector(c, "intercepts", DType::F32)? {
        Some(b) if b.elems() > 0 => y.add(&b),
        _ => Ok(y),
    }
}

/// The labels of classes: integers, or strings.
enum Classes {
    Ints(Vec<i64>),
    Text(Vec<String>),
}

impl Classes {
    fn of(c: &Cx<'_>, ints: &str) -> Result<Classes> {
        match (c.ints(ints)?, c.strings("classlabels_strings")?) {
            (Some(all), _) if !all.is_empty() => Ok(Classes::Ints(all.to_vec())),
            (_, Some(all)) => Ok(Classes::Text(all)),
            _ => Err(c.missing(ints)),
        }
    }

    fn len(&self) -> usize {
        match self {
            Classes::Ints(all) => all.len(),
            Classes::Text(all) => all.len(),
        }
    }

    /// The labels of places.
    fn take(&self, c: &Cx<'_>, places: &Tensor) -> Result<Value> {
        match self {
            Classes::Ints(all) => Ok(Tensor::from_slice(c.device(), all, [all.len()])?.take(0, places)?.into()),
            Classes::Text(all) => Ok(Value::Labels(Labels { places: places.clone(), names: Arc::new(all.clone()) })),
        }
    }
}

fn linear_classifier(c: &Cx<'_>) -> Result<Vec<Value>> {
    let classes = Classes::of(c, "classlabels_ints")?;
    let rows = c.reals("coefficients")?.map_or(0, <[f32]>::len) / c.x(0)?.dims().last().copied().unwrap_or(1).max(1);
    let scores = linear(c, rows)?;
    if rows == 1 && classes.len() == 2 {
        let both = Tensor::concat(&[&scores.neg()?, &scores], 1)?;
        let label = classes.take(c, &scores.gt(0.0)?.squeeze(&[1])?.cast(DType::I64)?)?;
        return Ok(vec![label, post(c, both)?.into()]);
    }
    let label = classes.take(c, &scores.argmax_over(1, false)?)?;
    Ok(vec![label, post(c, scores)?.into()])
}

fn tree_classifier(c: &Cx<'_>) -> Result<Vec<Value>> {
    let classes = Classes::of(c, "classlabels_int64s")?;
    let trees = Trees::of_lists(c, "class", classes.len())?;
    let (used, positive) = trees.targets_used();
    let scores = trees.apply(c, c.x(0)?, "SUM")?.cast(DType::F32)?;
    // of two classes one may have all weights: the other one has the rest
    if classes.len() == 2 && used <= 1 {
        let one = scores.sum_over(&[1], true)?;
        let one = match vector(c, "base_values", DType::F32)? {
            Some(base) if base.elems() > 0 => one.add(&base.narrow(0, -1, 1)?)?,
            _ => one,
        };
        let logistic = c.string("post_transform", "NONE")? == "LOGISTIC";
        let half = if positive { 0.5 } else { 0.0 };
        let label = classes.take(c, &one.gt(half)?.squeeze(&[1])?.cast(DType::I64)?)?;
        let other = if positive && !logistic { one.neg()?.add(1.0)? } else { one.neg()? };
        return Ok(vec![label, post(c, Tensor::concat(&[&other, &one], 1)?)?.into()]);
    }
    let scores = with_base(c, scores)?;
    let label = classes.take(c, &scores.argmax_over(1, false)?)?;
    Ok(vec![label, post(c, scores)?.into()])
}

fn normalizer(c: &Cx<'_>) -> Result<Vec<Value>> {
    let x = c.x(0)?.cast(DType::F32)?;
    let norm = match c.string("norm", "MAX")? {
        "MAX" => x.max_over(&[-1], true)?,
        "L1" => x.abs()?.sum_over(&[-1], true)?,
        "L2" => x.norm_over(&[-1], true)?,
        other => return Err(c.unknown("norm", other)),
    };
    let safe = norm.eq(0.0)?.where_cond(&norm.ones_like()?, &norm)?;
    one(x.div(&safe)?)
}

fn one_hot(c: &Cx<'_>) -> Result<Vec<Value>> {
    if let Some(all) = c.strings("cats_strings")? {
        let x = c.text(0)?;
        let hot = x.data.iter().flat_map(|s| all.iter().map(move |k| f32::from(u8::from(s == k))));
        let mut shape: Shape = x.shape.clone();
        shape.push(all.len());
        return Ok(vec![c.constant(&HostTensor::from_slice(&hot.collect::<Vec<_>>(), shape)?)?]);
    }
    let all = c.ints("cats_int64s")?.ok_or_else(|| c.missing("cats_int64s"))?;
    let all = Tensor::from_slice(c.device(), all, [all.len()])?;
    if !c.flag("zeros", true)? {
        return Err(value_error("attribute `zeros` is 0: categories that are not listed would be an error"));
    }
    one(c.x(0)?.cast(DType::I64)?.unsqueeze(-1)?.eq(&all)?.cast(DType::F32)?)
}

fn scaler(c: &Cx<'_>) -> Result<Vec<Value>> {
    let mut x = c.x(0)?.cast(DType::F32)?;
    if let Some(offset) = vector(c, "offset", DType::F32)? {
        x = x.sub(&offset)?;
    }
    if let Some(scale) = vector(c, "scale", DType::F32)? {
        x = x.mul(&scale)?;
    }
    one(x)
}
