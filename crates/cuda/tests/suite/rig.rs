//! A software device with room for some tensors, and the compiler.

use remat_cuda::device::Cuda;
use remat_cuda::driver::{
    Architecture, Arena, Argument, Code, Compiler, Context, Grid, Kernel, Lane, Module, Search, SoftwareOptions,
    software,
};

/// Bytes between the beginnings of two tensors.
const ROOM: usize = 1 << 20;
const TENSORS: usize = 16;

/// The compiler, where `REMAT_CUDA_LIBRARIES` names the folder of its library.
pub(crate) fn compiler() -> Option<Compiler> {
    let Some(folder) = std::env::var_os("REMAT_CUDA_LIBRARIES") else {
        println!("REMAT_CUDA_LIBRARIES names no folder: no source is compiled");
        return None;
    };
    Some(Compiler::open(&Search::default().first(folder)).expect("the folder has the compiler"))
}

/// A GPU that runs launches in place of the software device: that of `REMAT_CUDA_DEVICE`, such as `cuda:0`. Panics where it cannot
/// be opened, with the reason.
pub(crate) fn named_device() -> Option<Cuda> {
    let name = std::env::var("REMAT_CUDA_DEVICE").ok()?;
    let opened = Cuda::by_name(&name).unwrap_or_else(|e| panic!("REMAT_CUDA_DEVICE: {e}"));
    Some(opened.unwrap_or_else(|| panic!("REMAT_CUDA_DEVICE: `{name}` is no device")))
}

/// The software device, where there is a compiler.
pub(crate) fn software_device() -> Option<Cuda> {
    let compiler = compiler()?;
    let driver = software(SoftwareOptions { threads: 2, ..SoftwareOptions::default() }).expect("a driver");
    Some(Cuda::open(&driver, compiler, 0).expect("opens"))
}

/// The PTX of a source.
pub(crate) fn ptx(compiler: &Compiler, source: &str) -> Code {
    compiler.ptx("test.cu", source, Architecture::OLDEST).unwrap_or_else(|e| panic!("{e}\n{source}"))
}

/// A device, and a tensor at each of some places.
pub(crate) struct Rig {
    context: Context,
    lane: Lane,
    arena: Arena,
}

impl Rig {
    pub(crate) fn new() -> Rig {
        let options = SoftwareOptions { threads: 2, ..SoftwareOptions::default() };
        let context = software(options).expect("a driver").context(0).expect("a device");
        let arena = Arena::whole(&context, TENSORS * ROOM).expect("there is memory");
        Rig { lane: Lane::new(&context).expect("a stream"), arena, context }
    }

    /// The address of a tensor.
    pub(crate) fn at(&self, tensor: usize) -> u64 {
        self.arena.base() + (tensor * ROOM) as u64
    }

    pub(crate) fn load(&self, code: &Code) -> Module {
        Module::load(&self.context, code).unwrap_or_else(|e| panic!("{e}"))
    }

    pub(crate) fn put(&mut self, tensor: usize, bytes: &[u8]) {
        assert!(bytes.len() <= ROOM, "a tensor of {} bytes", bytes.len());
        self.lane.upload(&self.arena, tensor * ROOM, bytes).expect("is queued");
    }

    pub(crate) fn launch(&self, kernel: &Kernel, grid: Grid, arguments: &[Argument]) {
        self.lane.launch(kernel, grid, arguments).expect("is queued");
    }

    /// Waits, and reads a tensor. `of` names the work in a panic.
    pub(crate) fn get(&mut self, tensor: usize, bytes: usize, of: &str) -> Vec<u8> {
        self.lane.download(&self.arena, tensor * ROOM, bytes).unwrap_or_else(|e| panic!("{of}: {e}"))
    }
}
