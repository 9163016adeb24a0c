//! Functions of the table for modules, kernels, streams, events and graphs.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use remat_cuda_sim::LaunchShape;

use super::call::{Here, give, run};
use super::errors::{Failure, INVALID_PTX, INVALID_VALUE, NO_BINARY, Outcome};
use super::registry::Kind;
use crate::driver::table::Raw;
use crate::driver::{NOT_READY, SUCCESS, Status};

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`.
const WITHOUT_TIME: c_uint = 2;
/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const DYNAMIC_SHARED: c_int = 8;

/// A text of the caller's.
///
/// # Safety
///
/// The pointer is null, or that of a text with a zero at its end that lives as long as the result.
unsafe fn text<'a>(pointer: *const c_char) -> Outcome<&'a CStr> {
    if pointer.is_null() {
        return Err(Failure::new(INVALID_VALUE, "a text is missing"));
    }
    // SAFETY: the caller's.
    Ok(unsafe { CStr::from_ptr(pointer) })
}

pub(super) unsafe extern "C" fn load_module(
    module: *mut Raw,
    image: *const c_void,
    count: c_uint,
    _options: *mut c_int,
    _values: *mut Raw,
) -> Status {
    let load = |here: &mut Here<'_>| {
        // SAFETY: the caller's: machine code has a zero soon behind its first four bytes, too.
        let image = unsafe { text(image.cast()) }?;
        if image.to_bytes().starts_with(b"\x7fELF") {
            return Err(Failure::new(NO_BINARY, "software devices execute PTX: compile to PTX, not to machine code"));
        }
        if count != 0 {
            return Err(Failure::new(INVALID_VALUE, "software devices know no options of modules"));
        }
        let ptx = image.to_str().map_err(|e| Failure::new(INVALID_PTX, format!("the PTX is no text: {e}")))?;
        let module = here.state.device.module_load(ptx)?;
        Ok(here.handle(Kind::Module, module.0))
    };
    // SAFETY: the caller's.
    unsafe { give(module, load) }
}

pub(super) extern "C" fn unload_module(module: Raw) -> Status {
    run(|here| {
        let module = here.module(module)?;
        Ok(here.state.device.module_unload(module)?)
    })
}

pub(super) unsafe extern "C" fn function(function: *mut Raw, module: Raw, name: *const c_char) -> Status {
    let find = |here: &mut Here<'_>| {
        let module = here.module(module)?;
        // SAFETY: the caller's.
        let name = unsafe { text(name) }?.to_string_lossy();
        let function = here.state.device.module_get_function(module, &name)?;
        Ok(here.handle(Kind::Function, function.0))
    };
    // SAFETY: the caller's.
    unsafe { give(function, find) }
}

pub(super) unsafe extern "C" fn function_attribute(value: *mut c_int, attribute: c_int, function: Raw) -> Status {
    let find = |here: &mut Here<'_>| {
        let all = here.state.device.function_attributes(here.function(function)?)?;
        let value = match attribute {
            0 => all.most_threads,
            1 => all.shared_bytes,
            3 => all.local_bytes,
            4 => all.registers,
            DYNAMIC_SHARED => all.allowed_shared_bytes,
            _ => return Err(Failure::new(INVALID_VALUE, format!("kernels here have no attribute {attribute}"))),
        };
        Ok(c_int::try_from(value).unwrap_or(c_int::MAX))
    };
    // SAFETY: the caller's.
    unsafe { give(value, find) }
}

pub(super) extern "C" fn set_function_attribute(function: Raw, attribute: c_int, value: c_int) -> Status {
    run(|here| {
        let function = here.function(function)?;
        match u32::try_from(value).ok().filter(|_| attribute == DYNAMIC_SHARED) {
            Some(bytes) => Ok(here.state.device.function_allow_shared(function, bytes)?),
            None => Err(Failure::new(INVALID_VALUE, format!("attribute {attribute} of a kernel cannot be {value}"))),
        }
    })
}

pub(super) unsafe extern "C" fn launch(
    function: Raw,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared_bytes: c_uint,
    stream: Raw,
    parameters: *mut Raw,
    extra: *mut Raw,
) -> Status {
    run(|here| {
        let (function, stream) = (here.function(function)?, here.stream(stream)?);
        if !extra.is_null() {
            return Err(Failure::new(INVALID_VALUE, "software devices take arguments one by one alone"));
        }
        // SAFETY: the caller's.
        let arguments = unsafe { arguments(here, function, parameters) }?;
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let shape = LaunchShape { grid, block, dynamic_shared_bytes: shared_bytes };
        Ok(here.state.device.launch_kernel(function, shape, &arguments, stream)?)
    })
}

/// The bytes of a kernel's arguments.
///
/// # Safety
///
/// There is a pointer for each parameter of the kernel, to a value of its size.
unsafe fn arguments(here: &Here<'_>, function: remat_cuda_sim::Function, pointers: *mut Raw) -> Outcome<Vec<u8>> {
    let parameters = here.state.device.function_params(function)?;
    let mut bytes = vec![0; parameters.last().map_or(0, |p| (p.offset + p.bytes) as usize)];
    if pointers.is_null() && !bytes.is_empty() {
        return Err(Failure::new(INVALID_VALUE, "the kernel takes arguments, and there are none"));
    }
    for (i, p) in parameters.iter().enumerate() {
        // SAFETY: the list has a pointer for each parameter, as the caller says.
        let from = unsafe { pointers.add(i).read() };
        if from.is_null() {
            return Err(Failure::new(INVALID_VALUE, format!("argument {i} of the kernel is missing")));
        }
        let (offset, size) = (p.offset as usize, p.bytes as usize);
        let to = &mut bytes[offset..offset + size];
        // SAFETY: it points to a value of that size, as the caller says.
        unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), to.as_mut_ptr(), size) };
    }
    Ok(bytes)
}

pub(super) unsafe extern "C" fn create_stream(stream: *mut Raw, flags: c_uint) -> Status {
    let create = |here: &mut Here<'_>| {
        let stream = here.state.device.stream_create(flags & NON_BLOCKING == 0)?;
        Ok(here.handle(Kind::Stream, stream.0))
    };
    // SAFETY: the caller's.
    unsafe { give(stream, create) }
}

pub(super) extern "C" fn destroy_stream(stream: Raw) -> Status {
    run(|here| {
        let stream = here.stream(stream)?;
        Ok(here.state.device.stream_destroy(stream)?)
    })
}

pub(super) extern "C" fn synchronize_stream(stream: Raw) -> Status {
    run(|here| {
        let stream = here.stream(stream)?;
        Ok(here.state.device.stream_synchronize(stream)?)
    })
}

pub(super) extern "C" fn wait_event(stream: Raw, event: Raw, _flags: c_uint) -> Status {
    run(|here| {
        let (stream, event) = (here.stream(stream)?, here.event(event)?);
        Ok(here.state.device.stream_wait_event(stream, event)?)
    })
}

pub(super) unsafe extern "C" fn create_event(event: *mut Raw, flags: c_uint) -> Status {
    let create = |here: &mut Here<'_>| {
        let event = here.state.device.event_create_with(flags & WITHOUT_TIME == 0)?;
        Ok(here.handle(Kind::Event, event.0))
    };
    // SAFETY: the caller's.
    unsafe { give(event, create) }
}

pub(super) extern "C" fn destroy_event(event: Raw) -> Status {
    run(|here| {
        let event = here.event(event)?;
        Ok(here.state.device.event_destroy(event)?)
    })
}

pub(super) extern "C" fn record_event(event: Raw, stream: Raw) -> Status {
    run(|here| {
        let (event, stream) = (here.event(event)?, here.stream(stream)?);
        Ok(here.state.device.event_record(event, stream)?)
    })
}

pub(super) extern "C" fn query_event(event: Raw) -> Status {
    let mut is_reached = false;
    let status = run(|here| {
        let event = here.event(event)?;
        is_reached = here.state.device.event_query(event)?;
        Ok(())
    });
    if status == SUCCESS && !is_reached { NOT_READY } else { status }
}

pub(super) extern "C" fn synchronize_event(event: Raw) -> Status {
    run(|here| {
        let event = here.event(event)?;
        Ok(here.state.device.event_synchronize(event)?)
    })
}

pub(super) unsafe extern "C" fn elapsed(milliseconds: *mut f32, start: Raw, end: Raw) -> Status {
    let find = |here: &mut Here<'_>| {
        let (start, end) = (here.event(start)?, here.event(end)?);
        Ok(here.state.device.event_elapsed_ms(start, end)?)
    };
    // SAFETY: the caller's.
    unsafe { give(milliseconds, find) }
}

pub(super) extern "C" fn begin_capture(stream: Raw, _mode: c_int) -> Status {
    run(|here| {
        let stream = here.stream(stream)?;
        Ok(here.state.device.stream_begin_capture(stream)?)
    })
}

pub(super) unsafe extern "C" fn end_capture(stream: Raw, graph: *mut Raw) -> Status {
    let end = |here: &mut Here<'_>| {
        let stream = here.stream(stream)?;
        let graph = here.state.device.stream_end_capture(stream)?;
        Ok(here.handle(Kind::Graph, graph.0))
    };
    // SAFETY: the caller's.
    unsafe { give(graph, end) }
}

pub(super) unsafe extern "C" fn instantiate(to: *mut Raw, graph: Raw, _flags: u64) -> Status {
    let instantiate = |here: &mut Here<'_>| {
        let graph = here.graph(graph)?;
        let run = here.state.device.graph_instantiate(graph)?;
        Ok(here.handle(Kind::Run, run.0))
    };
    // SAFETY: the caller's.
    unsafe { give(to, instantiate) }
}

pub(super) extern "C" fn launch_graph(graph: Raw, stream: Raw) -> Status {
    run(|here| {
        let (graph, stream) = (here.graph_exec(graph)?, here.stream(stream)?);
        Ok(here.state.device.graph_launch(graph, stream)?)
    })
}

pub(super) extern "C" fn destroy_run(graph: Raw) -> Status {
    run(|here| {
        let graph = here.graph_exec(graph)?;
        Ok(here.state.device.graph_exec_destroy(graph)?)
    })
}

pub(super) extern "C" fn destroy_graph(graph: Raw) -> Status {
    run(|here| {
        let graph = here.graph(graph)?;
        Ok(here.state.device.graph_destroy(graph)?)
    })
}
