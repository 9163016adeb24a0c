//! Kernels that programs add, by kind of device and name of the op.
//!
//! An op defines the result, and a kernel computes it on a device. The file of each op contains its reference kernel ([`Op::eval`]), and
//! each device has further kernels. A program can add kernels to a device: for ops that the program defines, or instead of the device's
//! own. Device options hold the registry, so two devices of one process can have different kernels.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::sync::Arc;

use remat_ops::{EvalCx, LayoutReq, Op, Registry};
use remat_types::{DType, Error, ErrorKind, Fact, Result};

/// The interface that a kind of device asks of its kernels.
pub trait KernelKind: Send + Sync + 'static {
    /// The kind of device. It is the first part of the name by which a device is opened: `cpu`.
    const DEVICE: &'static str;
}

/// A kernel on host memory.
pub trait HostKernel: Debug + Send + Sync + 'static {
    /// Computes the outputs. They are contiguous and, unless they hold a donated input, uninitialised. For parameters
    /// or types that it does not know it may call [`Op::eval`], if it declares the workspace, the layouts and the
    /// donations of the op. Errors: as [`Op::eval`]: unless the error is Internal, no donated input was written.
    fn run(&self, op: &dyn Op, cx: &mut EvalCx<'_>) -> Result<()>;

    /// Scratch memory in bytes: a pure function of its arguments. Default: none.
    fn workspace(&self, _op: &dyn Op, _x: &[&Fact], _threads: usize) -> usize {
        0
    }

    /// The layout in which an input must come. Default: rows without gaps.
    fn layout(&self, _op: &dyn Op, _input: usize) -> LayoutReq {
        LayoutReq::Contiguous
    }

    /// Pairs (input, output) that may share storage. Default: none.
    fn overwrite<'o>(&self, _op: &'o dyn Op) -> &'o [(usize, usize)] {
        &[]
    }
}

impl KernelKind for dyn HostKernel {
    const DEVICE: &'static str = "cpu";
}

/// Errors (Value): an output of bools with another byte than 0 or 1. Rust code reads these bytes as `bool`, so a kernel
/// from another language must not write others.
pub fn check_written_bools(cx: &mut EvalCx<'_>) -> Result<()> {
    for (j, out) in cx.y.iter_mut().enumerate() {
        if out.dtype() == DType::Bool && out.bytes_mut().iter().any(|b| *b > 1) {
            let text = format!("the kernel wrote another byte than 0 or 1 to output {j}, of bools");
            return Err(Error::new(ErrorKind::Value, text));
        }
    }
    Ok(())
}

/// See the module's note. Clones share what was added before.
#[derive(Clone, Default)]
pub struct KernelRegistry(Option<Arc<Kernels>>);

/// By the name of the op: each kind of device with its kernel.
type Kernels = BTreeMap<String, Vec<(&'static str, Arc<dyn Any + Send + Sync>)>>;

impl KernelRegistry {
    /// Adds the kernel of an op for the devices of a kind. `op` is the op's [`OpDef::NAME`](remat_ops::OpDef::NAME).
    /// The rows of a table have the table's name: `unary`. A fused op is an op of its own, so a fused chain that
    /// contains `op` does not use this kernel. Errors (Value): the op has a kernel there already.
    pub fn with<K: KernelKind + ?Sized>(mut self, op: &str, kernel: Arc<K>) -> Result<KernelRegistry> {
        let of_op = Arc::make_mut(self.0.get_or_insert_default()).entry(op.to_owned()).or_default();
        if of_op.iter().any(|k| k.0 == K::DEVICE) {
            let text = format!("op `{op}` has a kernel of its own for {} already", K::DEVICE);
            return Err(Error::new(ErrorKind::Value, text));
        }
        of_op.push((K::DEVICE, Arc::new(kernel)));
        Ok(self)
    }

    /// [`KernelRegistry::with`] for a kernel from another language, whose op must be built in. Errors (Value): also a name that no
    /// built-in op has.
    pub fn with_foreign(self, op: &str, kernel: Arc<dyn HostKernel>) -> Result<KernelRegistry> {
        if Registry::builtin().entry(op).is_none() {
            let text = format!("there is no operator `{op}`; `remat ops` lists their names");
            return Err(Error::new(ErrorKind::Value, text));
        }
        self.with(op, kernel)
    }

    /// The kernel of an op for a kind of device.
    pub fn get<K: KernelKind + ?Sized>(&self, op: &dyn Op) -> Option<&Arc<K>> {
        let of_op = self.0.as_ref()?.get(op.name())?;
        of_op.iter().find(|k| k.0 == K::DEVICE)?.1.downcast_ref()
    }

    /// True if no kernel was added.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

/// Equal if they are clones of each other.
impl PartialEq for KernelRegistry {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        }
    }
}
impl Eq for KernelRegistry {}

impl Debug for KernelRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_op = |(op, kernels): (&String, &Vec<(&'static str, _)>)| {
            kernels.iter().map(|k| format!("{op} for {}", k.0)).collect::<Vec<_>>()
        };
        f.debug_set().entries(self.0.iter().flat_map(|all| all.iter().flat_map(of_op))).finish()
    }
}
