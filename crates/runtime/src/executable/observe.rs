//! Observation of the values of a run, one after the other, as its calls give them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use remat_graph::ir::{Graph, NodeId, ValueId};
use remat_types::{DType, Error, ErrorKind, Result, write_npy};

use remat_device::program::ValueView;

/// A value that a call of a run gave.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'v> {
    /// The graph of the run.
    pub graph: &'v Graph,
    /// The node that ran.
    pub node: NodeId,
    /// The value that it gave.
    pub value: ValueId,
    /// The index of the value among the node's outputs.
    pub output: usize,
    /// The elements. They are valid until the observer returns.
    pub view: ValueView<'v>,
    /// Nanoseconds that the call took.
    pub ns: u64,
}

impl Observed<'_> {
    /// The name of the value, or its number, with the scope of the node: `block1.conv %12`.
    pub fn label(&self) -> String {
        let own = self.graph.label(self.value);
        match &self.graph.node(self.node).scope {
            Some(scope) => format!("{scope} {own}"),
            None => own,
        }
    }
}

/// Sees every value that a call gives, on the thread that runs the calls; see
/// [`Executable::observe`](super::Executable::observe). Views have no call and are not shown. An error ends the run as
/// an error of the op would. States keep their versions, except for those whose next version was refused or was shown
/// before the error.
pub trait Observer: Send + Sync {
    /// A call gave the value `v`.
    fn value(&self, v: &Observed<'_>) -> Result<()>;
}

impl<F: Fn(&Observed<'_>) -> Result<()> + Send + Sync> Observer for F {
    fn value(&self, v: &Observed<'_>) -> Result<()> {
        self(v)
    }
}

/// An error (Value) at the first value of a float type that is not a number.
#[derive(Clone, Copy, Debug, Default)]
pub struct NanCheck {
    /// Infinities are errors as well.
    pub infinities: bool,
}

impl Observer for NanCheck {
    fn value(&self, v: &Observed<'_>) -> Result<()> {
        let wrong = |x: f64| x.is_nan() || self.infinities && x.is_infinite();
        first(v, wrong).map_or(Ok(()), |(at, x)| Err(at_fault(v, at, x, "")))
    }
}

/// An error (Value) at the first value of a float type whose magnitude exceeds a bound, or that is not a number.
#[derive(Clone, Copy, Debug)]
pub struct RangeCheck {
    /// The largest magnitude that is allowed.
    pub bound: f64,
}

impl Observer for RangeCheck {
    fn value(&self, v: &Observed<'_>) -> Result<()> {
        let wrong = |x: f64| x.is_nan() || x.abs() > self.bound;
        first(v, wrong).map_or(Ok(()), |(at, x)| Err(at_fault(v, at, x, &format!(", beyond {}", self.bound))))
    }
}

/// The first element of a float value for which `wrong` holds, with its index.
fn first(v: &Observed<'_>, wrong: impl Fn(f64) -> bool) -> Option<(usize, f64)> {
    let x = v.view;
    let of = |i: usize, x: f64| wrong(x).then_some((i, x));
    // Half floats are rare in observed runs. Converting the whole value is simple and correct.
    match x.dtype {
        DType::F32 => {
            bytemuck::cast_slice::<u8, f32>(x.bytes).iter().enumerate().find_map(|(i, x)| of(i, f64::from(*x)))
        }
        DType::F64 => bytemuck::cast_slice::<u8, f64>(x.bytes).iter().enumerate().find_map(|(i, x)| of(i, *x)),
        d if d.is_float() => x.to_host().ok()?.to_f64_vec().into_iter().enumerate().find_map(|(i, x)| of(i, x)),
        _ => None,
    }
}

fn at_fault(v: &Observed<'_>, at: usize, x: f64, why: &str) -> Error {
    let mut place = Vec::new();
    let mut rest = at;
    for n in v.view.shape.iter().rev() {
        place.push(rest % n.max(&1));
        rest /= n.max(&1);
    }
    place.reverse();
    Error::new(ErrorKind::Value, format!("{} is {x} at {place:?}{why}", v.label()))
}

/// Writes every value to a folder, one `.npy` file for each, named by order, op and value: `0012_conv2d_h1.npy`. A run
/// overwrites the files of the run before it.
#[derive(Clone, Debug)]
pub struct ValueDump {
    folder: PathBuf,
}

impl ValueDump {
    /// Writes into `folder`, which is created if needed. Errors: Io.
    pub fn new(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref().to_owned();
        std::fs::create_dir_all(&folder)
            .map_err(|e| Error::new(ErrorKind::Io, format!("cannot make the folder {}: {e}", folder.display())))?;
        Ok(ValueDump { folder })
    }
}

impl Observer for ValueDump {
    fn value(&self, v: &Observed<'_>) -> Result<()> {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let name: String = v.label().trim_start_matches('%').chars().map(plain).collect();
        let op = v.graph.node(v.node).op.label();
        let file = self.folder.join(format!("{:04}_{op}_{name}.npy", v.node.index()));
        let failed = |e: &dyn fmt::Display| Error::new(ErrorKind::Io, format!("{}: {e}", file.display()));
        let to = std::fs::File::create(&file).map_err(|e| failed(&e))?;
        write_npy(&v.view.to_host()?, std::io::BufWriter::new(to)).map_err(|e| failed(&e))
    }
}

/// The place of an executable's observer.
#[derive(Default)]
pub(super) struct Slot(RwLock<Option<Arc<dyn Observer>>>);

impl Slot {
    pub(super) fn set(&self, o: Option<Arc<dyn Observer>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = o;
    }

    pub(super) fn get(&self) -> Option<Arc<dyn Observer>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.get().is_some() { "observed" } else { "not observed" })
    }
}
