//! The shapes of a session's inputs.

use std::collections::BTreeMap;

use remat_onnx::{Extent, Port, ValueType};
use remat_types::{DType, Error, ErrorKind, Fact, Result, Shape};

/// Shapes for inputs whose model leaves extents open: whole ones by the input's name, and extents by theirs.
///
/// ```
/// use remat_lite::Shapes;
/// let shapes = Shapes::new().input("tokens", [1, 128]).extent("batch", 1);
/// # let _ = shapes;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shapes {
    inputs: BTreeMap<String, Shape>,
    extents: BTreeMap<String, usize>,
}

impl Shapes {
    /// None: for models all of whose extents are fixed.
    pub fn new() -> Shapes {
        Shapes::default()
    }

    /// With the shape of an input.
    pub fn input(mut self, name: &str, shape: impl Into<Shape>) -> Shapes {
        self.inputs.insert(name.to_owned(), shape.into());
        self
    }

    /// With an extent that has a name in the model.
    pub fn extent(mut self, name: &str, n: usize) -> Shapes {
        self.extents.insert(name.to_owned(), n);
        self
    }

    /// With `n` for every extent of these inputs that is open and not given, and the inputs that have one.
    pub fn or_extents(mut self, ports: &[Port], n: usize) -> (Shapes, Vec<&Port>) {
        let mut filled = Vec::new();
        for port in ports.iter().filter(|p| !self.inputs.contains_key(&p.name)) {
            let known: Vec<Option<usize>> = extents(port).iter().map(|e| self.known(e)).collect();
            if known.iter().any(Option::is_none) {
                filled.push((port, known.into_iter().map(|k| k.unwrap_or(n)).collect::<Vec<usize>>()));
            }
        }
        let ports = filled.iter().map(|(port, _)| *port).collect();
        for (port, dims) in filled {
            self = self.input(&port.name, dims);
        }
        (self, ports)
    }

    fn known(&self, e: &Extent) -> Option<usize> {
        match e {
            Extent::Fixed(n) => Some(*n),
            Extent::Named(name) => self.extents.get(name).copied(),
            Extent::Open => None,
        }
    }

    /// The types of these inputs; `None` for one that is no tensor.
    ///
    /// Errors: Value for an input or extent that the model has not, and for one that is open and not given; Shape for a shape that
    /// the model does not take; DType for a type that Remat has not.
    pub(crate) fn facts(&self, ports: &[Port]) -> Result<Vec<Option<Fact>>> {
        for name in self.inputs.keys() {
            if !ports.iter().any(|p| p.name == *name) {
                return Err(unknown("input", name, ports.iter().map(|p| &*p.name)));
            }
        }
        let named: Vec<&str> = ports.iter().flat_map(extents).filter_map(name_of).collect();
        for name in self.extents.keys() {
            if !named.contains(&&**name) {
                return Err(unknown("extent", name, named.iter().copied()));
            }
        }
        let fact = |p: &Port| {
            let fact = self.fact(p)?;
            fact.iter().try_for_each(|f| f.shape.checked_elems().map(|_| ()))?;
            Ok(fact)
        };
        ports.iter().map(|p| fact(p).map_err(|e: Error| e.context(format!("input `{}`", p.name)))).collect()
    }

    fn fact(&self, port: &Port) -> Result<Option<Fact>> {
        let given = self.inputs.get(&port.name);
        let ValueType::Tensor(dtype, declared) = &port.ty else {
            return match given {
                None => Ok(None),
                Some(_) => Err(Error::new(ErrorKind::Value, format!("{}, which has no shape to give", port.ty))),
            };
        };
        let dtype: DType =
            dtype.ok_or_else(|| Error::new(ErrorKind::DType, "of an element type that Remat has not"))?;
        let Some(declared) = declared else {
            let shape =
                given.ok_or_else(|| Error::new(ErrorKind::Value, "the model leaves its shape open: give one"))?;
            return Ok(Some(Fact::new(dtype, shape.clone())));
        };
        let Some(given) = given else {
            let shape: Option<Vec<usize>> = declared.iter().map(|e| self.known(e)).collect();
            let open =
                || Error::new(ErrorKind::Value, format!("{} has extents that are open: give its shape", port.ty));
            return Ok(Some(Fact::new(dtype, shape.ok_or_else(open)?)));
        };
        let fits = declared.len() == given.rank()
            && declared.iter().zip(given.dims()).all(|(e, n)| self.known(e).is_none_or(|e| e == *n));
        if !fits {
            return Err(Error::new(ErrorKind::Shape, format!("shape {given} where the model takes {}", port.ty)));
        }
        Ok(Some(Fact::new(dtype, given.clone())))
    }
}

fn extents(port: &Port) -> &[Extent] {
    match &port.ty {
        ValueType::Tensor(_, Some(extents)) => extents,
        _ => &[],
    }
}

fn name_of(e: &Extent) -> Option<&str> {
    match e {
        Extent::Named(name) => Some(name),
        _ => None,
    }
}

/// The error of a name that is not there, with those that are.
pub(crate) fn unknown<'n>(what: &str, name: &str, there: impl Iterator<Item = &'n str>) -> Error {
    let mut there: Vec<&str> = there.collect();
    there.sort_unstable();
    there.dedup();
    let there = if there.is_empty() { "none".to_owned() } else { format!("`{}`", there.join("`, `")) };
    Error::new(ErrorKind::Value, format!("the model has no {what} `{name}`; it has {there}"))
}
