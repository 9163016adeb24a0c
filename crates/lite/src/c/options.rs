//! Options of a network.

use std::ffi::{c_char, c_void};
use std::mem::offset_of;
use std::ptr;

use super::border::{Readable, Versioned, checked, elements, is_struct_size, path, read, reference, text, write_sized};
use super::dtype::dtype_of;
use super::hooks::{Hooks, remat_finish, remat_start};
use super::kernels::{registry, remat_kernel};
use super::memory::{allocator, remat_allocate, remat_deallocate, remat_workspace};
use super::status::{Done, Failed, guard, remat_status};
use crate::{Key, Options};

/// How a network is loaded and run. remat_options_init sets all fields to what stands here as "unless set".
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct remat_options {
    /// sizeof(remat_options), set by remat_options_init.
    pub struct_size: usize,
    /// Compute threads of a run. 0, unless set: the processors of the machine.
    pub threads: usize,
    /// Most bytes of a session with the weights that it reads. 0, unless set: no limit.
    pub memory_budget_bytes: usize,
    /// The level of passes, 0 to 3: 0 runs the model as it is written. 2 keeps every bit of that. 3, the default, may change the
    /// last digits, as folding a batch norm into a convolution does.
    pub level: i32,
    /// REMAT_F16 or REMAT_BF16 to store values between operators as; sums stay f32. REMAT_DTYPE_NONE, unless set: as the model says.
    pub half: i32,
    /// Names of the outputs that are computed, in this order. NULL, unless set: all.
    pub outputs: *const *const c_char,
    /// How many names there are at outputs.
    pub output_count: usize,
    /// A folder for a file that plans may copy values to, where that is cheaper than computing them again. NULL, unless set: none.
    pub spill_folder: *const c_char,
    /// Workspace that sessions share. NULL, unless set: each has its own.
    pub workspace: *const remat_workspace,
    /// Where sessions have their memory from, with allocator_user. NULL, unless set: from the system. Both functions are called until
    /// the last network and session with these options are freed. A model that is no single graph has its memory from the system.
    pub allocate: remat_allocate,
    /// Takes back what allocate gave.
    pub deallocate: remat_deallocate,
    /// Passed to allocate and deallocate.
    pub allocator_user: *mut c_void,
    /// The 32 bytes of the key of a file whose weights are encrypted, which are copied. NULL, unless set: none.
    pub key: *const u8,
    /// Called when a run of any session of the network starts, with hook_user, until the last of them is freed. NULL, unless set: none.
    pub start: remat_start,
    /// Called when it has ended. NULL, unless set: none.
    pub finish: remat_finish,
    /// Passed to start and finish.
    pub hook_user: *mut c_void,
    /// The processors that the network computes on, numbered as the system does. The threads that it starts have these for good, and
    /// the thread that calls remat_session_run while it runs. NULL, unless set: any. On Linux only.
    pub processors: *const usize,
    /// How many numbers there are at processors.
    pub processor_count: usize,
    /// The name of the device that computes: "cpu", or another that this build has. It has one arena for all sessions of the network,
    /// within the budget. NULL, unless set: the calling thread computes.
    pub device: *const c_char,
    /// Kernels of the caller's, for networks on the processor: in place of Remat's. Constants that are computed while the model
    /// is read use the operators' own kernels. NULL, the default: none.
    pub kernels: *const remat_kernel,
    /// How many there are at kernels.
    pub kernel_count: usize,
}

// SAFETY: pointers, two numbers of 32 bits side by side, and no padding.
unsafe impl Versioned for remat_options {
    const NAME: &str = "remat_options";
    const FIRST_BYTES: usize = offset_of!(remat_options, allocator_user) + size_of::<usize>();
}

// SAFETY: numbers, pointers, and functions that may be NULL.
unsafe impl Readable for remat_options {}

const UNLESS_SET: remat_options = remat_options {
    struct_size: size_of::<remat_options>(),
    threads: 0,
    memory_budget_bytes: 0,
    level: 3,
    half: 0,
    outputs: ptr::null(),
    output_count: 0,
    spill_folder: ptr::null(),
    workspace: ptr::null(),
    allocate: None,
    deallocate: None,
    allocator_user: ptr::null_mut(),
    key: ptr::null(),
    start: None,
    finish: None,
    hook_user: ptr::null_mut(),
    processors: ptr::null(),
    processor_count: 0,
    device: ptr::null(),
    kernels: ptr::null(),
    kernel_count: 0,
};

/// Options from the caller, and its hooks; those unless set if it is NULL.
///
/// # Safety
///
/// `p` is NULL or points to what the header says.
pub(super) unsafe fn options(p: *const remat_options) -> Done<(Options, Hooks)> {
    let mut options = Options::default();
    if p.is_null() {
        return Ok((options, Hooks::default()));
    }
    // SAFETY: the caller's promise.
    let given = unsafe { read(p, UNLESS_SET) }?;
    if given.threads > 0 {
        options.threads = given.threads;
    }
    options.memory_budget = Some(given.memory_budget_bytes).filter(|b| *b > 0);
    let wrong = |_| Failed::value(format!("option `level` is {}; there are 0 to 3", given.level));
    options.level = u8::try_from(given.level).map_err(wrong)?;
    options.half = dtype_of(given.half)?;
    if !given.outputs.is_null() {
        // SAFETY: the caller's promise: so many pointers to text.
        let names = unsafe { elements(given.outputs, given.output_count, "outputs") }?;
        // SAFETY: as before.
        let name = |n: &*const c_char| unsafe { text(*n, "outputs") }.map(str::to_owned);
        options.outputs = Some(names.iter().map(name).collect::<Done<_>>()?);
    } else if given.output_count > 0 {
        return Err(Failed::value(format!("`outputs` is NULL, and `output_count` is {}", given.output_count)));
    }
    if !given.spill_folder.is_null() {
        // SAFETY: the caller's promise: text.
        options.spill_to = Some(unsafe { path(given.spill_folder, "spill_folder") }?);
    }
    if !given.workspace.is_null() {
        // SAFETY: the caller's promise.
        options.session.workspace = Some(unsafe { reference(given.workspace, "workspace") }?.0.clone());
    }
    // SAFETY: the caller's promise.
    options.session.allocate = unsafe { allocator(given.allocate, given.deallocate, given.allocator_user) }?;
    if !given.key.is_null() {
        // SAFETY: the caller's promise.
        let bytes = unsafe { elements(given.key, Key::BYTES, "key") }?;
        options.key = Some(Key::from_file_bytes(bytes)?);
    }
    if !given.processors.is_null() {
        // SAFETY: the caller's promise: so many numbers.
        options.affinity = Some(unsafe { elements(given.processors, given.processor_count, "processors") }?.to_vec());
    } else if given.processor_count > 0 {
        let text = format!("`processors` is NULL, and `processor_count` is {}", given.processor_count);
        return Err(Failed::value(text));
    }
    if !given.device.is_null() {
        // SAFETY: the caller's promise: text.
        options.device = Some(unsafe { text(given.device, "device") }?.to_owned());
    }
    // SAFETY: the caller's promise.
    options.kernels = unsafe { registry(given.kernels, given.kernel_count) }?;
    Ok((options, Hooks { start: given.start, finish: given.finish, user: given.hook_user }))
}

/// Sets all fields of options to what they are unless set: remat_options_init(&options, sizeof options).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_options_init(options: *mut remat_options, struct_size: usize) -> remat_status {
    guard(|| {
        is_struct_size::<remat_options>(struct_size)?;
        checked(options, "options")?;
        // SAFETY: aligned and not NULL, as just seen; the caller has `struct_size` bytes there.
        unsafe { write_sized(options, UNLESS_SET, struct_size) };
        Ok(())
    })
}
