//! The functions of CUDA's libraries as tables of pointers.
//!
//! A table is filled from a library that is opened at run time, or by a software device in tests. So a program needs no toolkit
//! to be built, and one without a driver gets an error and not a failed start. Names and signatures: CUDA Driver API and NVRTC
//! reference manuals, version 12.9. A symbol's suffix (`_v2`) belongs to its signature.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libloading::Library;
use remat_types::{Error, ErrorKind, Result};

/// The result of a call: `CUresult` or `nvrtcResult`.
pub type Status = c_int;

/// An address in a device's memory: `CUdeviceptr`.
pub type Address = u64;

/// A handle that a library gives: a context, a module, a function, a stream, an event, a graph, a program.
pub type Raw = *mut c_void;

/// The place of a physical allocation: `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Location {
    /// 1 for a device.
    pub kind: c_int,
    /// The device.
    pub id: c_int,
}

/// The properties of a physical allocation: `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AllocationProperties {
    /// 1 for pinned memory, the one kind that there is.
    pub kind: c_int,
    /// 0: other processes get no handle.
    pub handle_kinds: c_int,
    /// The device.
    pub location: Location,
    /// Null outside of Windows.
    pub windows: Raw,
    /// Compression, remote access, usage and four reserved bytes: all 0.
    pub flags: [u8; 8],
}

/// The access of a device to mapped memory: `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The device that may access.
    pub location: Location,
    /// 3 for reading and writing.
    pub flags: c_int,
}

/// Declares a table: a structure with a pointer for each function.
macro_rules! table {
    ($(#[$doc:meta])* $table:ident { $($(#[$of:meta])* $name:ident = $symbol:literal ($($x:ident: $ty:ty),* $(,)?);)* }) => {
        $(#[$doc])*
        pub struct $table {
            $($(#[$of])* pub $name: unsafe extern "C" fn($($x: $ty),*) -> Status,)*
            /// Keeps what the functions belong to: a library that is loaded, or devices in software.
            pub owner: Box<dyn Send + Sync>,
        }

        impl $table {
            /// The symbols of a library that the table needs.
            pub const SYMBOLS: &[&str] = &[$($symbol),*];

            /// Finds every function. `file` names the library in errors. Errors (Device): the functions that it lacks.
            pub(super) fn load(library: Library, file: &str) -> Result<Self> {
                let lacking: Vec<&str> = Self::SYMBOLS.iter().copied().filter(|s| !has_symbol(&library, s)).collect();
                if !lacking.is_empty() {
                    return Err(too_old(file, &lacking));
                }
                Ok($table {
                    $($name: {
                        // SAFETY: the library documents this signature for this symbol, whose suffix names the version of the
                        // signature. The table owns the library, so the code outlives the pointer.
                        *unsafe { library.get($symbol.as_bytes()) }.map_err(|_| too_old(file, &[$symbol]))?
                    },)*
                    owner: Box::new(library),
                })
            }
        }
    };
}

fn has_symbol(library: &Library, symbol: &str) -> bool {
    // SAFETY: the pointer is not used, so that its type does not matter.
    unsafe { library.get::<*const ()>(symbol.as_bytes()) }.is_ok()
}

fn too_old(file: &str, lacking: &[&str]) -> Error {
    let text = format!("{file} has no {}: it is older than CUDA 12", lacking.join(", "));
    Error::new(ErrorKind::Device, text)
}

table! {
    /// The driver, `libcuda.so.1`.
    DriverTable {
        /// The first call of a process.
        init = "cuInit"(flags: c_uint);
        /// The newest CUDA version that the driver knows: 1000 times the major number and 10 times the minor one.
        driver_version = "cuDriverGetVersion"(version: *mut c_int);
        /// The name of an error.
        error_name = "cuGetErrorName"(status: Status, name: *mut *const c_char);
        /// The description of an error.
        error_text = "cuGetErrorString"(status: Status, text: *mut *const c_char);
        /// The number of devices.
        device_count = "cuDeviceGetCount"(count: *mut c_int);
        /// The device of an ordinal.
        device = "cuDeviceGet"(device: *mut c_int, ordinal: c_int);
        /// The name of a device.
        device_name = "cuDeviceGetName"(name: *mut c_char, length: c_int, device: c_int);
        /// The memory of a device.
        device_bytes = "cuDeviceTotalMem_v2"(bytes: *mut usize, device: c_int);
        /// A property of a device.
        device_attribute = "cuDeviceGetAttribute"(value: *mut c_int, attribute: c_int, device: c_int);
        /// The context that all libraries of a process share.
        retain_context = "cuDevicePrimaryCtxRetain"(context: *mut Raw, device: c_int);
        /// The end of a use of that context.
        release_context = "cuDevicePrimaryCtxRelease_v2"(device: c_int);
        /// The context of the calls of a thread.
        set_context = "cuCtxSetCurrent"(context: Raw);
        /// Waits for all work of the context.
        synchronize = "cuCtxSynchronize"();
        /// Free and whole memory of the context's device.
        memory_info = "cuMemGetInfo_v2"(free: *mut usize, total: *mut usize);
        /// Allocates memory of the device.
        allocate = "cuMemAlloc_v2"(address: *mut Address, bytes: usize);
        /// Frees memory of the device.
        free = "cuMemFree_v2"(address: Address);
        /// Reserves addresses without memory.
        reserve_addresses = "cuMemAddressReserve"(address: *mut Address, bytes: usize, alignment: usize, near: Address, flags: u64);
        /// Frees reserved addresses.
        free_addresses = "cuMemAddressFree"(address: Address, bytes: usize);
        /// Allocates physical memory.
        create_memory = "cuMemCreate"(handle: *mut u64, bytes: usize, properties: *const AllocationProperties, flags: u64);
        /// Lets go of physical memory; it is freed once it is not mapped.
        release_memory = "cuMemRelease"(handle: u64);
        /// Maps physical memory at reserved addresses.
        map_memory = "cuMemMap"(address: Address, bytes: usize, offset: usize, handle: u64, flags: u64);
        /// Ends a mapping.
        unmap_memory = "cuMemUnmap"(address: Address, bytes: usize);
        /// Allows accesses to mapped memory.
        set_access = "cuMemSetAccess"(address: Address, bytes: usize, access: *const Access, count: usize);
        /// The unit of physical memory.
        memory_granularity = "cuMemGetAllocationGranularity"(bytes: *mut usize, properties: *const AllocationProperties, kind: c_int);
        /// Allocates pinned memory of the host.
        allocate_host = "cuMemHostAlloc"(pointer: *mut Raw, bytes: usize, flags: c_uint);
        /// Frees pinned memory of the host.
        free_host = "cuMemFreeHost"(pointer: Raw);
        /// Queues a copy to the device.
        copy_in = "cuMemcpyHtoDAsync_v2"(to: Address, from: *const c_void, bytes: usize, stream: Raw);
        /// Queues a copy to the host.
        copy_out = "cuMemcpyDtoHAsync_v2"(to: *mut c_void, from: Address, bytes: usize, stream: Raw);
        /// Queues a copy within the device.
        copy = "cuMemcpyDtoDAsync_v2"(to: Address, from: Address, bytes: usize, stream: Raw);
        /// Queues a copy between devices.
        copy_peer = "cuMemcpyPeerAsync"(to: Address, to_context: Raw, from: Address, from_context: Raw, bytes: usize, stream: Raw);
        /// Queues a fill with one byte.
        fill = "cuMemsetD8Async"(to: Address, byte: u8, count: usize, stream: Raw);
        /// True if a device can reach another's memory.
        can_access_peer = "cuDeviceCanAccessPeer"(can: *mut c_int, device: c_int, peer: c_int);
        /// Lets the current context reach another's memory.
        enable_peer_access = "cuCtxEnablePeerAccess"(peer: Raw, flags: c_uint);
        /// Loads machine code or PTX.
        load_module = "cuModuleLoadDataEx"(
            module: *mut Raw, image: *const c_void, count: c_uint, options: *mut c_int, values: *mut Raw,
        );
        /// Unloads a module.
        unload_module = "cuModuleUnload"(module: Raw);
        /// A kernel of a module.
        function = "cuModuleGetFunction"(function: *mut Raw, module: Raw, name: *const c_char);
        /// A property of a kernel, such as its registers.
        function_attribute = "cuFuncGetAttribute"(value: *mut c_int, attribute: c_int, function: Raw);
        /// Sets a property of a kernel, such as the shared memory that it may have.
        set_function_attribute = "cuFuncSetAttribute"(function: Raw, attribute: c_int, value: c_int);
        /// Queues a kernel.
        launch = "cuLaunchKernel"(
            function: Raw, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint,
            shared_bytes: c_uint, stream: Raw, parameters: *mut Raw, extra: *mut Raw,
        );
        /// Makes a stream.
        create_stream = "cuStreamCreate"(stream: *mut Raw, flags: c_uint);
        /// Ends a stream once its work is done.
        destroy_stream = "cuStreamDestroy_v2"(stream: Raw);
        /// Waits for the work of a stream.
        synchronize_stream = "cuStreamSynchronize"(stream: Raw);
        /// Lets later work of a stream wait for an event.
        wait_event = "cuStreamWaitEvent"(stream: Raw, event: Raw, flags: c_uint);
        /// Makes an event.
        create_event = "cuEventCreate"(event: *mut Raw, flags: c_uint);
        /// Ends an event.
        destroy_event = "cuEventDestroy_v2"(event: Raw);
        /// Marks a place in a stream.
        record_event = "cuEventRecord"(event: Raw, stream: Raw);
        /// The state of an event.
        query_event = "cuEventQuery"(event: Raw);
        /// Waits for an event.
        synchronize_event = "cuEventSynchronize"(event: Raw);
        /// Milliseconds between two events.
        elapsed = "cuEventElapsedTime"(milliseconds: *mut f32, start: Raw, end: Raw);
        /// Work of a stream goes into a graph from here on.
        begin_capture = "cuStreamBeginCapture_v2"(stream: Raw, mode: c_int);
        /// The graph of the work since then.
        end_capture = "cuStreamEndCapture"(stream: Raw, graph: *mut Raw);
        /// Makes a graph ready to run.
        instantiate = "cuGraphInstantiateWithFlags"(run: *mut Raw, graph: Raw, flags: u64);
        /// Queues a graph.
        launch_graph = "cuGraphLaunch"(run: Raw, stream: Raw);
        /// Ends a graph that is ready to run.
        destroy_run = "cuGraphExecDestroy"(run: Raw);
        /// Ends a graph.
        destroy_graph = "cuGraphDestroy"(graph: Raw);
    }
}

table! {
    /// The compiler, `libnvrtc.so`.
    CompilerTable {
        /// Its version.
        version = "nvrtcVersion"(major: *mut c_int, minor: *mut c_int);
        /// Makes a program of a source.
        create = "nvrtcCreateProgram"(
            program: *mut Raw, source: *const c_char, name: *const c_char, headers: c_int, contents: *const *const c_char,
            names: *const *const c_char,
        );
        /// Ends a program.
        destroy = "nvrtcDestroyProgram"(program: *mut Raw);
        /// Compiles it.
        compile = "nvrtcCompileProgram"(program: Raw, count: c_int, options: *const *const c_char);
        /// The bytes of its PTX.
        ptx_bytes = "nvrtcGetPTXSize"(program: Raw, bytes: *mut usize);
        /// Its PTX.
        ptx = "nvrtcGetPTX"(program: Raw, text: *mut c_char);
        /// The bytes of its machine code.
        code_bytes = "nvrtcGetCUBINSize"(program: Raw, bytes: *mut usize);
        /// Its machine code.
        code = "nvrtcGetCUBIN"(program: Raw, code: *mut c_char);
        /// The bytes of the compiler's messages.
        log_bytes = "nvrtcGetProgramLogSize"(program: Raw, bytes: *mut usize);
        /// The compiler's messages.
        log = "nvrtcGetProgramLog"(program: Raw, text: *mut c_char);
    }
}
