//! Checks that each op's description is true of its samples.

use std::collections::BTreeSet;

use remat_ops::schema::{Choice, Count, DTypes, Input, ParamType, Params, Schema};
use remat_ops::{Backward, BackwardKey, Entry, EvalCx, Expect, GradCx, Grads, Op, OpDef, OpRef, Registry, Sample};
use remat_types::{DType, ErrorKind, Fact, Facts, Result, SmallVec, smallvec};
use serde::{Deserialize, Serialize};

/// The input that tensor `i` belongs to. A [`Count::Many`] comes last and takes what the others leave.
fn input_of(inputs: &[Input], i: usize) -> Option<Input> {
    inputs.get(i).or(inputs.last().filter(|x| x.count == Count::Many)).copied()
}

fn computes(s: &Sample<OpRef>) -> bool {
    !matches!(s.expect, Expect::Error(_))
}

/// The inputs that a sample has a gradient for.
fn gradients(s: &Sample<OpRef>) -> Vec<usize> {
    let x: SmallVec<[Fact; 4]> = s.x.iter().map(|t| Fact::new(t.dtype(), t.shape().clone())).collect();
    let facts: SmallVec<[&Fact; 4]> = x.iter().collect();
    let Ok(y) = s.op.infer(&facts) else { return Vec::new() };
    let needs = x.iter().map(|f| f.dtype.is_float()).collect();
    let has_dy = y.iter().map(|f| f.dtype.is_float()).collect();
    let key = BackwardKey { op: s.op.clone(), x: x.clone(), needs, has_dy };
    let Ok(b) = Backward::build(&key, &y) else { return Vec::new() };
    b.grads.iter().enumerate().filter(|(_, g)| g.is_some()).map(|(i, _)| i).collect()
}

/// The claims about inputs that are not true.
fn wrong_inputs(schema: &Schema, samples: &[Sample<OpRef>]) -> BTreeSet<String> {
    let name = schema.name;
    let required = schema.inputs.iter().filter(|i| i.count == Count::One).count();
    let most = schema.inputs.iter().all(|i| i.count != Count::Many).then_some(schema.inputs.len());
    let (mut wrong, mut with_gradient) = (BTreeSet::new(), BTreeSet::new());
    for s in samples.iter().filter(|s| computes(s)) {
        let n = s.x.len();
        if n < required || most.is_some_and(|m| n > m) {
            wrong.insert(format!("{name}: {n} inputs"));
            continue;
        }
        for (i, x) in s.x.iter().enumerate() {
            if !input_of(&schema.inputs, i).is_some_and(|input| input.dtypes.has(x.dtype())) {
                wrong.insert(format!("{name}: input {i} is {}", x.dtype()));
            }
        }
        with_gradient.extend(gradients(s).into_iter().filter_map(|i| Some(input_of(&schema.inputs, i)?.name)));
    }
    let said: BTreeSet<&str> = schema.inputs.iter().filter(|i| i.gradient).map(|i| i.name).collect();
    if with_gradient != said {
        wrong.insert(format!("{name}: {with_gradient:?} have a gradient, not {said:?}"));
    }
    wrong
}

#[test]
fn what_is_said_of_inputs_is_true_of_samples() {
    let registry = Registry::builtin();
    let wrong = registry.entries().iter().flat_map(|e| wrong_inputs(&e.schema(), &e.samples()));
    assert_eq!(wrong.collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn every_op_and_parameter_has_a_text_and_serial_forms_hold_the_parameters() {
    for entry in Registry::builtin().entries() {
        let schema = entry.schema();
        assert!(!schema.text.is_empty(), "{} has no text", schema.name);
        for p in &schema.params {
            assert!(!p.text.is_empty(), "{} of {} has no text", p.name, schema.name);
        }
        let named: BTreeSet<&str> = schema.params.iter().map(|p| p.name).collect();
        for s in entry.samples() {
            let json = s.op.to_json().expect("an op has a serial form");
            let written = json["params"].as_object();
            let written: BTreeSet<&str> = written.iter().flat_map(|p| p.keys()).map(String::as_str).collect();
            assert_eq!(written, named, "{}", schema.name);
        }
    }
}

#[test]
fn a_parameter_with_a_default_may_be_left_out() {
    let registry = Registry::builtin();
    let mut tried = 0;
    for entry in registry.entries() {
        let schema = entry.schema();
        for s in entry.samples() {
            let json = s.op.to_json().expect("an op has a serial form");
            for p in &schema.params {
                let mut without = json.clone();
                without["params"].as_object_mut().expect("parameters by name").remove(p.name);
                let Some(default) = &p.default else {
                    let e = registry.load(&without).expect_err("it is missing");
                    assert_eq!(e.kind(), ErrorKind::Format, "{e}");
                    continue;
                };
                let read = registry.load(&without).expect("it has a default").to_json().expect("written again");
                assert_eq!(read["params"][p.name], *default, "{} of {}", p.name, schema.name);
                tried += 1;
            }
        }
    }
    assert!(tried > 0);
}

/// How a [`Second`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Choice, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Way {
    /// One by one.
    OneByOne,
    /// All at once.
    AtOnce {
        /// How many.
        n: usize,
    },
}

/// An op in its second version. It is there for the test.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: float, mask?: bool))]
struct Second {
    /// From the beginning.
    axis: usize,
    /// Came later.
    #[param(since = 2, default = Way::OneByOne)]
    way: Way,
}

impl Op for Second {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        Ok(smallvec![x[0].clone()])
    }

    fn eval(&self, _: &mut EvalCx<'_>) -> Result<()> {
        Ok(())
    }

    fn grad(&self, _: &mut GradCx<'_>) -> Result<Grads> {
        Ok(smallvec![None])
    }
}

impl OpDef for Second {
    const NAME: &'static str = "second";
    const VERSION: u32 = 2;

    fn samples() -> Vec<Sample<Self>> {
        Vec::new()
    }
}

#[test]
fn a_schema_is_read_off_the_struct() {
    let schema = Second::schema();
    assert_eq!(schema.summary(), "An op in its second version.");
    let input = |name, count, dtypes| Input { name, count, dtypes, gradient: false };
    let inputs = [input("x", Count::One, DTypes::Float), input("mask", Count::Optional, DTypes::Bool)];
    assert_eq!(schema.inputs, inputs);
    let [axis, way] = &schema.params[..] else { panic!("two parameters") };
    assert_eq!((axis.name, axis.text, axis.since), ("axis", "From the beginning.", 1));
    assert_eq!((axis.ty.clone(), axis.default.clone()), (ParamType::Size, None));
    assert_eq!((way.since, way.default.clone()), (2, Some("one_by_one".into())));
    assert_eq!(way.ty.to_string(), "one_by_one | at_once");
    let ParamType::OneOf(variants) = &way.ty else { panic!("a choice") };
    assert_eq!(variants[1].holds.as_ref().map(ToString::to_string), Some("{n: size}".to_owned()));
    assert!(!DTypes::Number.has(DType::Bool));
}

/// Options whose `Default` says what is not given.
#[derive(Debug, PartialEq, Params)]
#[op(default)]
struct Options {
    eps: f64,
    bias: bool,
    #[param(default = 3, rename = "w")]
    width: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { eps: 0.5, bias: true, width: 7 }
    }
}

#[test]
fn what_is_not_given_is_what_the_default_of_the_struct_has() {
    let defaults: Vec<_> = Options::params().into_iter().map(|p| p.default).collect();
    assert_eq!(defaults, [Some(0.5.into()), Some(true.into()), Some(3.into())], "a field's own default comes first");
    let read: Options = serde_json::from_str(r#"{"bias": false}"#).expect("the rest has defaults");
    assert_eq!(read, Options { eps: 0.5, bias: false, width: 3 });
    assert_eq!(Options::params()[0].ty.to_string(), "float");
    let width = &Options::params()[2];
    assert_eq!((width.name, width.field), ("w", "width"));
}

#[test]
fn an_earlier_version_is_read_where_what_came_later_has_a_default() {
    let entry = Entry::for_op::<Second>();
    let of = |v: u32| serde_json::json!({ "op": "second", "v": v, "params": { "axis": 3 } });
    let second = entry.load(&of(1)).expect("an earlier version");
    assert_eq!(second.downcast(), Some(&Second { axis: 3, way: Way::OneByOne }));
    let meaning_changed = Schema { version: 3, ..Second::schema() };
    assert!(meaning_changed.reads(3) && !meaning_changed.reads(2) && !meaning_changed.reads(1));
    assert_eq!(entry.load(&of(3)).expect_err("a later version").kind(), ErrorKind::Format);
    assert_eq!(entry.load(&of(0)).expect_err("no version").kind(), ErrorKind::Format);
}
