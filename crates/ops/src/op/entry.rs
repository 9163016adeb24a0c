//! The registry's entry for one op type. Each family's module lists its entries, and the registry joins the lists.
//!
//! This module stands below both, so that a family does not know the registry that names it.

use remat_types::{Error, ErrorKind, Result};

use super::{OpDef, OpRef};
#[cfg(feature = "samples")]
use crate::Sample;
use crate::schema::Schema;

/// The registry's entry for one op type.
#[derive(Clone, Copy)]
pub struct Entry {
    /// [`OpDef::NAME`].
    pub name: &'static str,
    /// [`OpDef::VERSION`].
    pub version: u32,
    load: fn(&serde_json::Value) -> serde_json::Result<OpRef>,
    schema: fn() -> Schema,
    #[cfg(feature = "samples")]
    samples: fn() -> Vec<Sample<OpRef>>,
}

impl Entry {
    /// The entry of `T`.
    pub const fn for_op<T: OpDef>() -> Self {
        Entry {
            name: T::NAME,
            version: T::VERSION,
            schema: T::schema,
            load: |params| Ok(OpRef::new(T::deserialize(params)?)),
            #[cfg(feature = "samples")]
            samples: || T::samples().into_iter().map(|s| s.map(OpRef::new)).collect(),
        }
    }

    /// As [`Registry::load`](crate::Registry::load), for a serial form that must be of this op. One of an earlier version is
    /// read if all parameters that came later have defaults.
    pub fn load(&self, v: &serde_json::Value) -> Result<OpRef> {
        let name = self.name;
        if v.get("op").and_then(|n| n.as_str()) != Some(name) {
            return Err(bad(format!("field `op` is not `{name}`")));
        }
        let version = v.get("v").and_then(serde_json::Value::as_u64);
        let is_read = |v| u32::try_from(v).is_ok_and(|v| v == self.version || self.schema().reads(v));
        if !version.is_some_and(is_read) {
            return Err(bad(format!("op `{name}` has version {}, the file says {version:?}", self.version)));
        }
        let params = v.get("params").ok_or_else(|| bad(format!("op `{name}` has no field `params`")))?;
        (self.load)(params).map_err(|e| bad(format!("parameters of op `{name}`: {e}")))
    }

    /// The inputs and parameters of the op.
    pub fn schema(&self) -> Schema {
        (self.schema)()
    }

    /// The op's samples; with the feature `samples`, without which a program does not link them.
    #[cfg(feature = "samples")]
    pub fn samples(&self) -> Vec<Sample<OpRef>> {
        (self.samples)()
    }
}

/// An error of a serial form.
pub(crate) fn bad(what: String) -> Error {
    Error::new(ErrorKind::Format, what)
}

/// The entries of the ops of these types.
macro_rules! entries {
    ($($op:ty),* $(,)?) => { &[$( Entry::for_op::<$op>() ),*] };
}
pub(crate) use entries;
