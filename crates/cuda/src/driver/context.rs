//! A device that is in use.

use std::ffi::{CStr, c_char, c_int};
use std::sync::Arc;

use remat_types::{Error, ErrorKind, Result};

use super::Driver;
use super::table::{DriverTable, Raw};

/// Bytes for a device's name, its final zero included.
const NAME_BYTES: usize = 256;

/// `CUdevice_attribute` of the CUDA Driver API.
#[derive(Clone, Copy)]
enum Attribute {
    SharedBytesOfBlock = 97,
    Processors = 16,
    Major = 75,
    Minor = 76,
    VirtualMemory = 102,
}

/// The architecture of a device: its compute capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Architecture {
    /// 9 of 9.0.
    pub major: u32,
    /// 0 of 9.0.
    pub minor: u32,
}

impl Architecture {
    /// The oldest one with everything that kernels here use: 8.0, with `mma.sync` of bf16 and `cp.async`.
    pub const OLDEST: Architecture = Architecture { major: 8, minor: 0 };

    /// The compiler's name of its machine code: `sm_90`.
    pub fn name(self) -> String {
        format!("sm_{}{}", self.major, self.minor)
    }
}

impl std::fmt::Display for Architecture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The primary context of a device, which other libraries of the process share. Clones are the same one.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    driver: Driver,
    device: c_int,
    raw: Raw,
    name: String,
    architecture: Architecture,
    processors: u32,
    shared_bytes: u32,
    has_virtual_memory: bool,
}

// SAFETY: a context may be used by any thread that sets it first, as every call here does (CUDA Driver API, "Context
// Management"). The pointer is a handle and nothing is read through it.
unsafe impl Send for Inner {}
// SAFETY: as above; the driver locks what its functions share.
unsafe impl Sync for Inner {}

impl Context {
    /// Its driver.
    pub fn driver(&self) -> &Driver {
        &self.0.driver
    }
}

impl Driver {
    /// The context of a device. Errors (Device): there is no device of that ordinal, with the number of those that are there; its
    /// architecture is older than [`Architecture::OLDEST`]; what the driver says.
    pub fn context(&self, ordinal: usize) -> Result<Context> {
        let count = self.devices()?;
        if ordinal >= count {
            let text = format!("there is no CUDA device {ordinal}: the driver finds {count}");
            return Err(Error::new(ErrorKind::Device, text));
        }
        let (mut device, mut raw) = (0, std::ptr::null_mut());
        // SAFETY: the pointer is that of a variable of the right type.
        self.check("cuDeviceGet", unsafe { (self.0.device)(&mut device, ordinal as c_int) })?;
        let name = self.device_name(device)?;
        let attribute = |a: Attribute| self.attribute(device, a);
        let architecture = Architecture { major: attribute(Attribute::Major)?, minor: attribute(Attribute::Minor)? };
        if architecture < Architecture::OLDEST {
            let oldest = Architecture::OLDEST;
            let text = format!("{name} is of compute capability {architecture}, and {oldest} is needed");
            return Err(Error::new(ErrorKind::Device, text));
        }
        let (processors, shared_bytes) = (attribute(Attribute::Processors)?, attribute(Attribute::SharedBytesOfBlock)?);
        let has_virtual_memory = attribute(Attribute::VirtualMemory)? != 0;
        // SAFETY: the pointer is that of a variable of the right type.
        self.check("cuDevicePrimaryCtxRetain", unsafe { (self.0.retain_context)(&mut raw, device) })?;
        let driver = self.clone();
        let inner = Inner { driver, device, raw, name, architecture, processors, shared_bytes, has_virtual_memory };
        Ok(Context(Arc::new(inner)))
    }

    fn device_name(&self, device: c_int) -> Result<String> {
        let mut name = [0 as c_char; NAME_BYTES];
        // SAFETY: the driver writes at most that many bytes, with a zero at their end.
        self.check("cuDeviceGetName", unsafe { (self.0.device_name)(name.as_mut_ptr(), NAME_BYTES as c_int, device) })?;
        // SAFETY: the text ends within the array, as above.
        Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
    }

    fn attribute(&self, device: c_int, attribute: Attribute) -> Result<u32> {
        let mut value = 0;
        // SAFETY: the pointer is that of a variable of the right type.
        let status = unsafe { (self.0.device_attribute)(&mut value, attribute as c_int, device) };
        self.check("cuDeviceGetAttribute", status)?;
        Ok(u32::try_from(value).unwrap_or(0))
    }
}

impl Context {
    /// The name of the device, as its maker gives it.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The architecture of the device.
    pub fn architecture(&self) -> Architecture {
        self.0.architecture
    }

    /// Its multiprocessors.
    pub fn processors(&self) -> u32 {
        self.0.processors
    }

    /// Bytes of shared memory that a block may ask for.
    pub fn shared_bytes(&self) -> u32 {
        self.0.shared_bytes
    }

    /// True if memory can be mapped at reserved addresses, so that an arena can grow where it lies.
    pub fn has_virtual_memory(&self) -> bool {
        self.0.has_virtual_memory
    }

    /// Free and whole bytes of the device's memory. Other processes have their part in them.
    pub fn memory(&self) -> Result<(usize, usize)> {
        let (mut free, mut total) = (0, 0);
        self.call("cuMemGetInfo", |t| {
            // SAFETY: the pointers are those of variables of the right type.
            unsafe { (t.memory_info)(&mut free, &mut total) }
        })?;
        Ok((free, total))
    }

    /// Waits for all work of the context. Errors: that of the first work that failed, of any stream.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: no arguments.
        self.call("cuCtxSynchronize", |t| unsafe { (t.synchronize)() })
    }

    /// Lets kernels and copies of this context reach the memory of another. False if the devices cannot.
    pub fn enable_peer(&self, peer: &Context) -> Result<bool> {
        /// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`.
        const ENABLED: c_int = 704;
        let mut can = 0;
        self.call("cuDeviceCanAccessPeer", |t| {
            // SAFETY: the pointer is that of a variable of the right type.
            unsafe { (t.can_access_peer)(&mut can, self.0.device, peer.0.device) }
        })?;
        if can == 0 {
            return Ok(false);
        }
        self.call("cuCtxEnablePeerAccess", |t| {
            // SAFETY: the peer is open, and its handle is one of the driver's.
            match unsafe { (t.enable_peer_access)(peer.raw(), 0) } {
                ENABLED => super::SUCCESS,
                status => status,
            }
        })?;
        Ok(true)
    }

    pub(super) fn raw(&self) -> Raw {
        self.0.raw
    }

    pub(super) fn ordinal(&self) -> c_int {
        self.0.device
    }

    /// Calls a function of the driver for this context. Errors: what it gives, with its name.
    pub(super) fn call(&self, function: &str, f: impl FnOnce(&DriverTable) -> super::Status) -> Result<()> {
        self.0.driver.check(function, self.status(f)?)
    }

    /// As [`Context::call`], with the status for a caller who distinguishes several.
    pub(super) fn status(&self, f: impl FnOnce(&DriverTable) -> super::Status) -> Result<super::Status> {
        let table = &self.0.driver.0;
        // SAFETY: the context is open as long as this value is.
        self.0.driver.check("cuCtxSetCurrent", unsafe { (table.set_context)(self.0.raw) })?;
        Ok(f(table))
    }

    /// The error of a status.
    pub(super) fn check(&self, function: &str, status: super::Status) -> Result<()> {
        self.0.driver.check(function, status)
    }
}

impl PartialEq for Context {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the context was retained once, and everything of it holds this value. An error is one of work that was told
        // before, or of a driver that is gone.
        let _ = unsafe { (self.driver.0.release_context)(self.device) };
    }
}
