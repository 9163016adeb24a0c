//! Machine code on a device, and kernels.

use std::ffi::{CString, c_void};
use std::sync::Arc;

use remat_types::{Error, ErrorKind, Result};

use super::compiler::Code;
use super::context::Context;
use super::lane::Kernel;
use super::stream::Stream;
use super::table::Raw;

/// `CUfunction_attribute` of the CUDA Driver API.
#[derive(Clone, Copy)]
enum Attribute {
    MostThreads = 0,
    LocalBytes = 3,
    Registers = 4,
    MostSharedBytes = 8,
}

/// Shared memory of a block that needs no request.
const SHARED_WITHOUT_REQUEST: u32 = 48 << 10;

/// Machine code that is loaded. Clones are the same.
#[derive(Clone)]
pub struct Module(Arc<OwnedModule>);

struct OwnedModule {
    context: Context,
    raw: Raw,
    code: Code,
}

// SAFETY: the driver allows calls on a module from every thread; the pointer is a handle.
unsafe impl Send for OwnedModule {}
// SAFETY: as above.
unsafe impl Sync for OwnedModule {}

impl Module {
    /// Loads code. Errors (Device): it is not of the context's architecture, or broken.
    pub fn load(context: &Context, code: &Code) -> Result<Module> {
        let mut raw = std::ptr::null_mut();
        let image: *const c_void = code.image().as_ptr().cast();
        let (options, values) = (std::ptr::null_mut(), std::ptr::null_mut());
        context.call("cuModuleLoadDataEx", |t| {
            // SAFETY: the image is machine code, which says its own size, or a text with a zero at its end; there are no options.
            unsafe { (t.load_module)(&mut raw, image, 0, options, values) }
        })?;
        Ok(Module(Arc::new(OwnedModule { context: context.clone(), raw, code: code.clone() })))
    }

    /// A kernel by its name. Errors (Device): the module has none of that name.
    pub fn function(&self, name: &str) -> Result<Function> {
        let text = CString::new(name).map_err(|_| Error::new(ErrorKind::Value, "a kernel's name has a zero byte"))?;
        let mut raw = std::ptr::null_mut();
        let context = &self.0.context;
        // SAFETY: the module is loaded, the text ends with a zero, and the pointer is that of a variable of the right type.
        let found =
            context.call("cuModuleGetFunction", |t| unsafe { (t.function)(&mut raw, self.0.raw, text.as_ptr()) });
        found.map_err(|e| e.context(format!("kernel `{name}`")))?;
        Ok(Function { module: self.clone(), raw, name: name.into() })
    }
}

impl Module {
    /// A kernel by its name, with its parameters. Errors (Device): as [`Module::function`]; a parameter is no number.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        let function = self.function(name)?;
        let unknown = || Error::new(ErrorKind::Device, format!("the parameters of kernel `{name}` are not known"));
        Ok(Kernel { function, parameters: self.0.code.parameters(name).ok_or_else(unknown)?.to_vec() })
    }
}

impl Drop for OwnedModule {
    fn drop(&mut self) {
        // SAFETY: nothing else has the handle; kernels of it hold this value, and the driver waits for those that run.
        let _ = self.context.call("cuModuleUnload", |t| unsafe { (t.unload_module)(self.raw) });
    }
}

/// A kernel.
#[derive(Clone)]
pub struct Function {
    module: Module,
    raw: Raw,
    name: Arc<str>,
}

// SAFETY: as for modules.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// A kernel's argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument {
    /// An address of the device, or a 64-bit integer.
    U64(u64),
    /// A 32-bit integer.
    U32(u32),
    /// A float.
    F32(f32),
    /// A double.
    F64(f64),
}

/// Blocks of a launch, threads of a block, and its shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks along three axes.
    pub blocks: [u32; 3],
    /// Threads of a block along three axes.
    pub threads: [u32; 3],
    /// Bytes of shared memory beside those that the kernel declares.
    pub shared_bytes: u32,
}

impl Function {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Registers of a thread.
    pub fn registers(&self) -> Result<u32> {
        self.attribute(Attribute::Registers)
    }

    /// Bytes of memory that a thread takes for what its registers do not hold: 0 unless registers are spilled.
    pub fn local_bytes(&self) -> Result<u32> {
        self.attribute(Attribute::LocalBytes)
    }

    /// The most threads of a block.
    pub fn most_threads(&self) -> Result<u32> {
        self.attribute(Attribute::MostThreads)
    }

    fn attribute(&self, attribute: Attribute) -> Result<u32> {
        let mut value = 0;
        self.module.0.context.call("cuFuncGetAttribute", |t| {
            // SAFETY: the kernel's module is loaded, and the pointer is that of a variable of the right type.
            unsafe { (t.function_attribute)(&mut value, attribute as i32, self.raw) }
        })?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    /// Lets a launch ask for so much shared memory, where that is more than every kernel may. Errors (Device): the device has not
    /// as much.
    pub fn allow_shared(&self, bytes: u32) -> Result<()> {
        if bytes <= SHARED_WITHOUT_REQUEST {
            return Ok(());
        }
        self.module.0.context.call("cuFuncSetAttribute", |t| {
            // SAFETY: the kernel's module is loaded.
            unsafe { (t.set_function_attribute)(self.raw, Attribute::MostSharedBytes as i32, bytes as i32) }
        })
    }

    /// Queues a launch. Errors (Device): a grid that the device does not allow, and work of the context that failed before.
    ///
    /// # Safety
    ///
    /// The arguments must be those that the kernel declares, in number and size. The memory that it reads and writes must stay
    /// allocated until it is done, and other work on it must be ordered.
    pub unsafe fn launch(&self, grid: Grid, arguments: &[Argument], stream: &Stream) -> Result<()> {
        let mut pointers: Vec<Raw> = arguments.iter().map(Argument::pointer).collect();
        let ([gx, gy, gz], [bx, by, bz]) = (grid.blocks, grid.threads);
        let launched = self.module.0.context.call("cuLaunchKernel", |t| {
            let (parameters, extra) = (pointers.as_mut_ptr(), std::ptr::null_mut());
            // SAFETY: the driver copies the arguments before it returns; they are the kernel's, as the caller says.
            unsafe { (t.launch)(self.raw, gx, gy, gz, bx, by, bz, grid.shared_bytes, stream.raw(), parameters, extra) }
        });
        launched.map_err(|e| e.context(format!("kernel `{}` with {grid:?}", self.name)))
    }
}

impl Argument {
    /// Its bytes.
    pub(super) fn size_bytes(&self) -> usize {
        match self {
            Argument::U64(_) | Argument::F64(_) => 8,
            Argument::U32(_) | Argument::F32(_) => 4,
        }
    }

    /// The place of the value, which the driver only reads.
    fn pointer(&self) -> Raw {
        let place: *const c_void = match self {
            Argument::U64(v) => std::ptr::from_ref(v).cast(),
            Argument::U32(v) => std::ptr::from_ref(v).cast(),
            Argument::F32(v) => std::ptr::from_ref(v).cast(),
            Argument::F64(v) => std::ptr::from_ref(v).cast(),
        };
        place.cast_mut()
    }
}
