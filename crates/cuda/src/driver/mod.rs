//! CUDA's driver and compiler behind safe types. All unsafe code of this crate is here.
//!
//! [`Driver`] is a table of functions ([`DriverTable`]), from the library of the system or from a software device. A [`Context`]
//! is a device that is in use; streams, events, modules, graphs and memory belong to one and keep it open. The driver's functions
//! may be called by any thread that has set the context, which every call here does first.
#![allow(unsafe_code)]

mod compiler;
mod context;
mod graph;
mod lane;
mod memory;
mod module;
mod search;
#[cfg(feature = "cuda-sim")]
mod software;
mod stream;
mod table;

use std::ffi::{CStr, c_char};
use std::sync::Arc;

use remat_types::{Error, ErrorKind, Result};

pub use compiler::{Code, Compiler};
pub use context::{Architecture, Context};
pub use graph::{CaptureError, Run};
pub use lane::{Kernel, Lane};
pub use memory::{Arena, Pinned};
pub use module::{Argument, Function, Grid, Module};
pub use search::Search;
#[cfg(feature = "cuda-sim")]
pub use software::{SoftwareOptions, software};
pub use stream::{Event, State, Stream};
pub use table::{Access, Address, AllocationProperties, CompilerTable, DriverTable, Location, Raw, Status};

/// `CUDA_SUCCESS`.
const SUCCESS: Status = 0;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: Status = 2;
/// `CUDA_ERROR_NOT_READY`.
const NOT_READY: Status = 600;

/// The oldest version of the driver's interface that has everything: 12.0.
const OLDEST: i32 = 12_000;

/// The driver. Clones are the same one.
#[derive(Clone)]
pub struct Driver(Arc<DriverTable>, LoadsMachineCode);

/// False for a device in software, which loads PTX alone.
type LoadsMachineCode = bool;

impl Driver {
    /// The driver of the system. Errors (Device): there is none, with the places where it was looked for; it is too old; it finds
    /// no device that it could use.
    pub fn open(search: &Search) -> Result<Driver> {
        let (library, file) = search.driver()?;
        Driver::with_table(DriverTable::load(library, &file)?)
    }

    /// A driver of these functions, such as those of a software device. Errors: as [`Driver::open`].
    pub fn with_table(table: DriverTable) -> Result<Driver> {
        let driver = Driver(Arc::new(table), true);
        // SAFETY: `cuInit` takes no pointer; its flags must be 0.
        driver.check("cuInit", unsafe { (driver.0.init)(0) })?;
        let version = driver.version()?;
        if version < OLDEST {
            let (have, need) = (shown(version), shown(OLDEST));
            let text = format!("the CUDA driver is of version {have}, and {need} is needed: install a newer one");
            return Err(Error::new(ErrorKind::Device, text));
        }
        Ok(driver)
    }

    /// True if it loads machine code, and not PTX alone.
    pub fn loads_machine_code(&self) -> bool {
        self.1
    }

    /// The newest version of CUDA that the driver knows: 12090 for 12.9.
    pub fn version(&self) -> Result<i32> {
        let mut version = 0;
        // SAFETY: the pointer is that of a variable of the right type.
        self.check("cuDriverGetVersion", unsafe { (self.0.driver_version)(&mut version) })?;
        Ok(version)
    }

    /// The number of devices.
    pub fn devices(&self) -> Result<usize> {
        let mut count = 0;
        // SAFETY: the pointer is that of a variable of the right type.
        self.check("cuDeviceGetCount", unsafe { (self.0.device_count)(&mut count) })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Errors for every status but success: Budget where memory is short, else Device, with the function, and the driver's own
    /// name and text of the error.
    fn check(&self, function: &str, status: Status) -> Result<()> {
        if status == SUCCESS {
            return Ok(());
        }
        let (name, text) = (self.told(self.0.error_name, status), self.told(self.0.error_text, status));
        let kind = if status == OUT_OF_MEMORY { ErrorKind::Budget } else { ErrorKind::Device };
        Err(Error::new(kind, format!("{function} failed: {text} ({name}, {status})")))
    }

    fn told(&self, ask: unsafe extern "C" fn(Status, *mut *const c_char) -> Status, status: Status) -> String {
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: the driver writes a pointer to a text that stays until the thread's next failure, or null for a status that it
        // does not know. The text is copied at once.
        unsafe {
            match ask(status, &mut text) == SUCCESS && !text.is_null() {
                true => CStr::from_ptr(text).to_string_lossy().into_owned(),
                false => "unknown".to_owned(),
            }
        }
    }
}

/// A version as people write it.
fn shown(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}
