//! A format of this test's own, to show what a format is: a reader of some forty lines, and a table of rules.
//!
//! ```text
//! input x n 2            # of two axes; the first is as long as every other `n`
//! weight w 2 : 1 2       # a constant in the file
//! s = shape x            # a node: its values, its operator, the values that it reads
//! y = affine x * 2 + 1   # with a parameter that is a struct of this format
//! a b = halves y         # of two values
//! d = data : 1 2 3       # of no operand
//! output y
//! ```

use remat_import::{
    Attribute, Cx, Extent, ForeignAttribute, ForeignConstant, ForeignGraph, ForeignModel, ForeignNode, ForeignPort,
    Literal, Model, Row, Rules, Value, ValueType, one,
};
use remat_runtime::Device;
use remat_tensor::Tensor;
use remat_types::{DType, Error, ErrorKind, Fact, HostTensor, Result};

/// The parameter of `affine`.
#[derive(Debug)]
struct Affine {
    scale: f64,
    offset: f64,
}

fn wrong(line: &str) -> Error {
    Error::new(ErrorKind::Format, format!("line `{line}`"))
}

fn numbers(text: &str) -> Option<Vec<f32>> {
    text.split_whitespace().map(|n| n.parse().ok()).collect()
}

/// `2 : 1 2` and `: 1 2`: extents and elements.
fn tensor(text: &str) -> Option<HostTensor> {
    let (dims, elements) = text.split_once(':')?;
    let elements = numbers(elements)?;
    let dims: Vec<usize> = dims.split_whitespace().map(|n| n.parse().ok()).collect::<Option<_>>()?;
    HostTensor::from_slice(&elements, if dims.is_empty() { vec![elements.len()] } else { dims }).ok()
}

fn port(text: &str) -> Option<ForeignPort> {
    let mut words = text.split_whitespace();
    let name = words.next()?.to_owned();
    let extents = words.map(|w| w.parse().map_or_else(|_| Extent::Named(w.to_owned()), Extent::Fixed)).collect();
    Some(ForeignPort { name, ty: ValueType::Tensor(Some(DType::F32), Some(extents)), narrow: None })
}

fn node(values: &str, text: &str) -> Option<ForeignNode> {
    let (op, rest) = text.split_once(' ').unwrap_or((text, ""));
    let all = |names: &str| names.split_whitespace().map(str::to_owned).collect();
    let (reads, name, attribute) = if let Some((reads, parameter)) = rest.split_once('*') {
        let (scale, offset) = parameter.split_once('+')?;
        let affine = Affine { scale: scale.trim().parse().ok()?, offset: offset.trim().parse().ok()? };
        (reads, "affine", Some(Attribute::own(affine)))
    } else if rest.contains(':') {
        ("", "data", Some(Attribute::Tensor(Box::new(Literal::Tensor(tensor(rest)?)))))
    } else {
        (rest, "", None)
    };
    let attributes = attribute.map(|a| (name.to_owned(), ForeignAttribute::Value(a))).into_iter().collect();
    Some(ForeignNode { op: op.to_owned(), inputs: all(reads), outputs: all(values), attributes, ..Default::default() })
}

/// The reader.
fn read(file: &str) -> Result<ForeignModel> {
    let mut graph = ForeignGraph::default();
    for line in file.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (word, rest) = line.split_once(' ').ok_or_else(|| wrong(line))?;
        let is_read = match (word, line.split_once('=')) {
            ("input", _) => port(rest).map(|p| graph.inputs.push(p)),
            ("output", _) => port(rest).map(|p| graph.outputs.push(ForeignPort { ty: ValueType::Unknown, ..p })),
            ("weight", _) => rest.split_once(' ').and_then(|(name, data)| {
                let value = Literal::Tensor(tensor(data)?);
                graph.constants.push(ForeignConstant { name: name.to_owned(), value, narrow: None });
                Some(())
            }),
            (_, Some((values, text))) => node(values, text.trim()).map(|n| graph.nodes.push(n)),
            _ => None,
        };
        is_read.ok_or_else(|| wrong(line))?;
    }
    Ok(ForeignModel { graph, file_bytes: file.len(), ..Default::default() })
}

fn affine(c: &Cx<'_>) -> Result<Vec<Value>> {
    let a: &Affine = c.parameter("affine")?;
    one(c.x(0)?.mul(a.scale)?.add(a.offset)?)
}

fn halves(c: &Cx<'_>) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    let n = x.dims().first().copied().unwrap_or(0);
    Ok(x.split(&[n / 2, n - n / 2], 0)?.into_iter().map(Value::Tensor).collect())
}

fn shape(c: &Cx<'_>) -> Result<Vec<Value>> {
    let dims: Vec<i64> = c.x(0)?.dims().iter().map(|d| *d as i64).collect();
    Ok(vec![c.shape_value(&dims)?])
}

fn reshape(c: &Cx<'_>) -> Result<Vec<Value>> {
    let dims: Vec<isize> = c.numbers(1)?.iter().map(|d| *d as isize).collect();
    one(c.x(0)?.reshape(&dims)?)
}

fn data(c: &Cx<'_>) -> Result<Vec<Value>> {
    let data = c.tensor("data")?.ok_or_else(|| c.missing("data"))?;
    Ok(vec![c.constant(data)?])
}

const fn row(op: &'static str, rule: remat_import::Rule) -> Row {
    Row { domain: "", op, since: 0, rule, folds: true }
}

const ROWS: &[Row] = &[
    row("add", |c| one(c.x(0)?.add(c.x(1)?)?)),
    row("affine", affine),
    row("data", data),
    row("halves", halves),
    row("product", |c| one(c.x(0)?.prod()?.reshape(&[1])?)),
    row("reshape", reshape),
    row("shape", shape),
];

fn load(file: &str) -> Result<Model> {
    Model::new(read(file)?, &Rules::new(&[ROWS]))
}

fn device() -> Device {
    Device::cpu(Default::default()).expect("a device")
}

/// The outputs for an input of two columns.
fn run(file: &str, x: &[f32]) -> Result<Vec<Vec<f32>>> {
    let device = device();
    let x = Tensor::new(&device, x, [x.len() / 2, 2])?;
    load(file)?.on(&device)?.call(&[x])?.iter().map(Tensor::to_vec::<f32>).collect()
}

const SUM: &str = "
    input x n 2
    weight w 2 : 10 20
    y = affine x * 2 + 1
    z = add y w
    output z
";

#[test]
fn a_model_runs_with_its_weights_and_parameters_of_the_formats_own() {
    assert_eq!(run(SUM, &[1.0, 2.0, 3.0, 4.0]).expect("it runs"), [[13.0, 25.0, 17.0, 29.0]]);
}

#[test]
fn a_node_may_have_no_operand_and_several_values() {
    let file = "
        input x n 2
        d = data : 5 6
        y = add x d
        top rest = halves y
        output rest
        output top
    ";
    assert_eq!(run(file, &[0.0, 0.0, 1.0, 1.0]).expect("it runs"), [[6.0, 7.0], [5.0, 6.0]]);
}

#[test]
fn an_extent_with_a_name_is_any_and_the_others_are_as_declared() {
    let model = load(SUM).expect("a model");
    let inputs = model.inputs();
    assert_eq!((inputs.len(), &*inputs[0].name, inputs[0].ty.to_string()), (1, "x", "f32[n, 2]".to_owned()));
    assert_eq!(run(SUM, &[0.0; 2]).expect("one row")[0].len(), 2);
    assert_eq!(run(SUM, &[0.0; 6]).expect("three rows")[0].len(), 6);
    let device = device();
    let x = Tensor::zeros(&device, [2, 3], DType::F32).expect("a tensor");
    let e = model.on(&device).and_then(|n| n.call(&[x])).expect_err("three columns");
    assert!(e.kind() == ErrorKind::Shape && e.message().contains("input `x`"), "{e}");
}

const FLAT: &str = "
    input x n 2
    s = shape x
    p = product s
    y = reshape x p
    output y
";

#[test]
fn sizes_that_follow_from_shapes_leave_no_nodes_in_a_trace() {
    let model = load(FLAT).expect("a model");
    for rows in [1, 3] {
        let trace = model.trace(&[Fact::new(DType::F32, [rows, 2])]).expect("it can be traced").expect("one graph");
        assert_eq!(trace.graph.nodes().len(), 1);
        let y = &trace.graph.outputs()[0];
        assert_eq!((&*y.name, trace.graph.value(y.value).fact.shape.dims()), ("y", &[rows * 2][..]));
    }
    assert_eq!(run(FLAT, &[1.0, 2.0]).expect("it runs"), [[1.0, 2.0]]);
}

#[test]
fn an_error_names_the_node_and_no_version_where_there_is_none() {
    let error = |file: &str| run(file, &[0.0; 4]).expect_err("it cannot run").message().to_owned();
    let e = error("input x n 2\n d = data : 1 2 3\n y = add x d\n output y");
    assert!(e.starts_with("node `y` (add): "), "{e}");
    let e = error("input x n 2\n y = add x later\n output y");
    assert_eq!(e, "node `y` (add): `later` is read before it is computed");
    let e = error("input x n 2\n y = affine x\n output y");
    assert_eq!(e, "node `y` (affine): attribute `affine` is missing");
    let e = error("input x n 2\n y = afine x\n output y");
    assert_eq!(e, "node `y`: afine is not supported (the nearest name is affine)");
    let e = error("input x n 2\n output y");
    assert_eq!(e, "output `y` is not computed");
}

#[test]
fn a_parameter_of_another_type_is_an_error() {
    #[derive(Debug)]
    struct Other;
    let mut foreign = read(SUM).expect("a model");
    foreign.graph.nodes[0].attributes[0].1 = ForeignAttribute::Value(Attribute::own(Other));
    let device = device();
    let network = Model::new(foreign, &Rules::new(&[ROWS])).and_then(|m| m.on(&device)).expect("a model");
    let e = network.call(&[Tensor::zeros(&device, [1, 2], DType::F32).expect("a tensor")]).expect_err("no affine");
    assert!(e.kind() == ErrorKind::Format && e.message().contains("attribute `affine`"), "{e}");
}
