//! The functions for C, declared in `include/remat.h`. A Rust program has [`Network`](crate::Network) and
//! [`Session`](crate::Session) instead.
//!
//! Names here are those of C, and the comments are those of the header, which a test makes anew from these files. Every function
//! takes pointers that are NULL or point to what the header says; the rest is checked: sizes of structs, text, names, types, who
//! uses a session. A wrong call gives a status and a text, and a panic ends at the border.
//!
//! Handles are `Arc`s: a call that is under way, a run in the background and a session hold what they read, so the order in which
//! handles are freed does not matter.
#![allow(unsafe_code)]
// the names of C
#![allow(non_camel_case_types)]
// what all of them ask of the caller is said above, and once in the header
#![allow(clippy::missing_safety_doc)]

mod border;
mod calls;
mod dtype;
mod gate;
mod hooks;
mod kernels;
mod load;
mod memory;
mod network;
mod options;
mod output;
mod ports;
mod runner;
mod session;
mod shapes;
mod status;

pub use calls::{
    remat_done, remat_session_is_planned, remat_session_release_workspace, remat_session_run, remat_session_run_async,
    remat_session_run_into, remat_session_wait,
};
pub use dtype::{remat_dtype, remat_dtype_name, remat_dtype_size};
pub use hooks::{remat_finish, remat_start};
pub use kernels::{remat_kernel, remat_kernel_run, remat_operand};
pub use load::{
    remat_network_from_borrowed, remat_network_from_bytes, remat_network_from_reader, remat_network_open, remat_read,
    remat_release,
};
pub use memory::{remat_allocate, remat_deallocate, remat_workspace, remat_workspace_free, remat_workspace_new};
pub use network::{
    remat_network, remat_network_free, remat_network_input, remat_network_input_count, remat_network_metadata,
    remat_network_name, remat_network_output, remat_network_output_count, remat_network_producer,
    remat_network_unsupported, remat_network_unsupported_count,
};
pub use options::{remat_options, remat_options_init};
pub use output::{remat_memory, remat_session_memory, remat_session_output, remat_session_output_type, remat_tensor};
pub use ports::{remat_kind, remat_port};
pub use session::{
    remat_session, remat_session_free, remat_session_input_data, remat_session_new, remat_session_set_input,
};
pub use shapes::{remat_shapes, remat_shapes_extent, remat_shapes_free, remat_shapes_input, remat_shapes_new};
pub use status::{
    REMAT_ABI_VERSION, remat_abi_version, remat_last_error, remat_last_shortfall, remat_shortfall, remat_status,
    remat_status_name, remat_version,
};
