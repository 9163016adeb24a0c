//! Kernels from outside, by kind of device and name of the op.
//!
//! What an op means is the op's; how a device computes it is a kernel's. The reference kernel of an op is beside it
//! ([`Op::eval`]); a device has others of its own. This registry adds to them: kernels that a program brings along, for ops of its own or
//! in place of those that are there. It is a value that options hold, so that two devices of one process may have different ones.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::sync::Arc;

use remat_ops::{EvalCx, LayoutReq, Op};
use remat_types::{Error, ErrorKind, Fact, Result};

/// A sort of kernels: what a kind of device asks of each.
pub trait KernelKind: Send + Sync + 'static {
    /// The kind of device, which is the first part of the name by which one is opened: `cpu`.
    const DEVICE: &'static str;
}

/// A kernel on host memory.
pub trait HostKernel: Debug + Send + Sync + 'static {
    /// Computes the outputs, which are contiguous and uninitialised but where they hold a donated input. It may leave parameters or
    /// types that it does not know to [`Op::eval`], if it gives what that needs: workspace, layouts and donations are then the op's.
    /// Errors: as those of [`Op::eval`], which has not written a donated input unless the error is Internal.
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
    fn overwrite<'o>(&'o self, _op: &'o dyn Op) -> &'o [(usize, usize)] {
        &[]
    }
}

impl KernelKind for dyn HostKernel {
    const DEVICE: &'static str = "cpu";
}

/// See the module's note. Clones share what was added before.
#[derive(Clone, Default)]
pub struct KernelRegistry(Option<Arc<Kernels>>);

type Kernels = BTreeMap<(&'static str, String), Arc<dyn Any + Send + Sync>>;

impl KernelRegistry {
    /// Adds the kernel of an op for the devices of a kind. Ops have the name of [`OpDef::NAME`](remat_ops::OpDef::NAME), which for the
    /// rows of a table is the table's: `unary`. A fused op is one of its own, so a chain that contains the op does not come here.
    /// Errors (Value): the op has a kernel there already.
    pub fn with<K: KernelKind + ?Sized>(mut self, op: &str, kernel: Arc<K>) -> Result<KernelRegistry> {
        let key = (K::DEVICE, op.to_owned());
        let kernels = Arc::make_mut(self.0.get_or_insert_default());
        if kernels.contains_key(&key) {
            let text = format!("op `{op}` has a kernel of its own for {} already", K::DEVICE);
            return Err(Error::new(ErrorKind::Value, text));
        }
        kernels.insert(key, Arc::new(kernel));
        Ok(self)
    }

    /// The kernel of an op for a kind of device.
    pub fn get<K: KernelKind + ?Sized>(&self, op: &dyn Op) -> Option<&Arc<K>> {
        self.0.as_ref()?.get(&(K::DEVICE, op.name().to_owned()))?.downcast_ref()
    }

    /// True without any kernel.
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
        f.debug_set().entries(self.0.iter().flat_map(|kernels| kernels.keys())).finish()
    }
}
