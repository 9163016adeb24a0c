//! The list of all ops.
//!
//! Explicit static arrays, one in each family's module, so that nothing depends on link order. A host program adds entries of its
//! own with [`Registry::with`]: custom ops use the same door. A program that is deployed makes a registry of the families that its
//! graphs need, [`Registry::of`]: a value of that program, so nothing is switched on or off for the whole process.

use remat_types::{Error, ErrorKind, Result};

use crate::op::{Entry, bad};
use crate::{OpDef, OpRef};

/// A set of ops by name, and the families that they are of.
#[derive(Clone)]
pub struct Registry {
    entries: Vec<Entry>,
    families: Vec<Family>,
}

impl Registry {
    /// The ops of this crate.
    pub fn builtin() -> Self {
        let mut all = families::ALL.to_vec();
        all.sort_unstable_by_key(|f| f.name);
        Registry::of(&all)
    }

    /// The ops that a device other than the CPU may be asked for: all but blocked layouts and trees.
    pub fn portable() -> Self {
        Registry::of(families::PORTABLE)
    }

    /// The ops of these families and no others: for a program that reads graphs which contain nothing else. What a
    /// registry does not name is not linked because of it.
    pub fn of(families: &[&Family]) -> Self {
        let families: Vec<Family> = families.iter().map(|f| **f).collect();
        Registry { entries: families.iter().flat_map(|f| f.ops).copied().collect(), families }
    }

    /// Adds a family. Errors: Value if the name of one of its ops is taken.
    pub fn with_family(mut self, family: &Family) -> Result<Self> {
        for op in family.ops {
            self = self.with_entry(*op)?;
        }
        self.families.push(*family);
        Ok(self)
    }

    /// Adds an op. Errors: Value if the name is taken.
    pub fn with<T: OpDef>(self) -> Result<Self> {
        self.with_entry(Entry::for_op::<T>())
    }

    fn with_entry(mut self, entry: Entry) -> Result<Self> {
        let name = entry.name;
        if self.entry(name).is_some() {
            return Err(Error::new(ErrorKind::Value, format!("an op named {name} is registered already")));
        }
        self.entries.push(entry);
        Ok(self)
    }

    /// The families that were given. Ops that came alone are in none.
    pub fn families(&self) -> &[Family] {
        &self.families
    }

    /// All entries.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry of that name.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.name == name)
    }

    /// Reads the serial form of [`crate::DynIdentity::to_json`]. Errors (Format): a missing field, an unknown op or
    /// version, or parameters that do not fit.
    pub fn load(&self, v: &serde_json::Value) -> Result<OpRef> {
        let name = v.get("op").and_then(|n| n.as_str()).ok_or_else(|| bad("no string field `op`".into()))?;
        let entry = self.entry(name).ok_or_else(|| bad(format!("unknown op `{name}`")))?;
        entry.load(v)
    }
}

/// A group of ops that a program takes or leaves as a whole.
#[derive(Clone, Copy)]
pub struct Family {
    /// Its name: that of the module.
    pub name: &'static str,
    /// The purpose of its ops.
    pub text: &'static str,
    /// Its ops.
    pub ops: &'static [Entry],
}

/// The families of this crate, each with the ops that its module lists. A program that names some of them only, and not
/// [`families::ALL`] or [`Registry::builtin`], links the others' ops only where it uses them.
pub mod families {
    use super::Family;

    macro_rules! families {
        (portable { $($name:ident, $module:ident = $text:literal;)* }
         of_the_cpu { $($cpu:ident, $cpu_module:ident = $cpu_text:literal;)* }) => {
            families! { @each $($name, $module = $text;)* $($cpu, $cpu_module = $cpu_text;)* }

            /// Those that a device has kernels for or may want: programs are written with them.
            pub static PORTABLE: &[&Family] = &[$( &$name ),*];

            /// All of them: those, and what only the CPU has.
            pub static ALL: &[&Family] = &[$( &$name, )* $( &$cpu ),*];
        };
        (@each $($name:ident, $module:ident = $text:literal;)*) => {
            $(
                #[doc = $text]
                pub static $name: Family = Family {
                    name: stringify!($module),
                    text: $text,
                    ops: crate::$module::OPS,
                };
            )*
        };
    }

    families! {
        portable {
        ACTIVATION, activation = "Functions that make outputs of numbers, along an axis.";
        ATTENTION, attention = "Attention and its gradients.";
        COLLECTIVE, collective = "Collectives: calls that all ranks of a group make.";
        CONV, conv = "Convolution and its gradients.";
        FACTOR, factor = "Factorisations of matrices, and solutions by them.";
        INDEX, index = "By index tensors.";
        LINALG, linalg = "Products of matrices.";
        LOSS, loss = "Losses, and what their gradients need.";
        NORM, norm = "Normalisation.";
        OPTIM, optim = "Updates of parameters.";
        ORDER, order = "Along an axis, in order.";
        POINTWISE, pointwise = "Element by element, what is made of nothing, and chains of such in one op.";
        POOLING, pooling = "Pooling of windows.";
        RANDOM, random = "Random numbers: functions of a key.";
        RECURRENT, recurrent = "Recurrent layers and their gradients.";
        REDUCE, reduce = "Over axes.";
        SHAPE, shape = "Other shapes and parts of a tensor.";
        SPECTRAL, spectral = "Fourier transforms.";
        VISION, vision = "Images between their pixels, windows and regions, boxes.";
        }
        of_the_cpu {
        CPU, cpu = "Operators that passes make for the CPU: weights packed for a kernel, images in blocks of channels.";
        TREES, trees = "Decision trees, for the models of ONNX-ML.";
        }
    }
}
