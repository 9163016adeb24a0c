//! Programs that were compiled with an older or a newer header.

use std::mem::{offset_of, size_of};
use std::ptr;

use remat_lite::c::remat_status::*;
use remat_lite::c::*;

use super::*;

/// As a header of some other version has it.
#[repr(C)]
struct Newer {
    known: remat_options,
    more: [u64; 2],
}

#[test]
fn the_first_version_of_each_struct_is_as_it_was() {
    // what programs that exist have compiled in; fields are only added behind these
    let p = size_of::<usize>();
    assert_eq!(offset_of!(remat_options, level), 3 * p);
    assert_eq!(offset_of!(remat_options, spill_folder), 5 * p + 8);
    assert_eq!(offset_of!(remat_options, allocator_user), 9 * p + 8);
    assert_eq!(offset_of!(remat_port, rank), 5 * p);
    assert_eq!(offset_of!(remat_port, dtype), 5 * p + 12);
    assert_eq!(offset_of!(remat_tensor, dtype), 5 * p);
    assert_eq!(offset_of!(remat_memory, recomputed_calls), 5 * p);
    assert_eq!(offset_of!(remat_shortfall, smallest_feasible_bytes), 4 * p);
    assert_eq!(remat_abi_version(), REMAT_ABI_VERSION);
    assert_eq!(text(remat_version()), env!("CARGO_PKG_VERSION"));
}

#[test]
fn options_of_a_newer_header_are_taken_while_their_new_fields_are_unset() {
    let mut newer = Newer { known: options(), more: [7; 2] };
    let path = CString::new(folder("cnn").join("model.onnx").to_str().expect("UTF-8")).expect("no zero");
    unsafe {
        ok(remat_options_init(&mut newer.known, size_of::<Newer>()));
        assert_eq!((newer.known.struct_size, newer.known.level, newer.more), (size_of::<Newer>(), 3, [0; 2]));
        let mut p = ptr::null_mut();
        ok(remat_network_open(path.as_ptr(), (&raw const newer).cast(), &mut p));
        remat_network_free(p);
        newer.more[1] = 1;
        let status = remat_network_open(path.as_ptr(), (&raw const newer).cast(), &mut p);
        fails(status, REMAT_VALUE, "does not know");
        assert!(p.is_null());
    }
}

/// The size of options before there were keys.
const WITHOUT_KEY: usize = offset_of!(remat_options, key);

#[test]
fn options_of_an_older_header_end_where_they_did() {
    let mut older = options();
    // what lies behind an older struct is not read, nor written
    older.key = ptr::without_provenance(1);
    ok(unsafe { remat_options_init(&mut older, WITHOUT_KEY) });
    assert_eq!((older.struct_size, older.key.addr()), (WITHOUT_KEY, 1));
    drop(Net::open("cnn", &older));
}

/// The size of options before there were hooks.
const WITHOUT_HOOKS: usize = offset_of!(remat_options, start);

unsafe extern "C" fn never(_: *mut c_void, _: *const remat_session) {
    panic!("it lies behind an older struct");
}

#[test]
fn hooks_and_processors_behind_an_older_header_are_not_there() {
    // a key was the last field
    assert_eq!(WITHOUT_HOOKS, WITHOUT_KEY + size_of::<usize>());
    let mut older = options();
    older.start = Some(never);
    older.processor_count = usize::MAX;
    ok(unsafe { remat_options_init(&mut older, WITHOUT_HOOKS) });
    assert_eq!((older.struct_size, older.start.is_some(), older.processor_count), (WITHOUT_HOOKS, true, usize::MAX));
    let net = Net::open("cnn", &older);
    net.session(&Given::new(&[(c"batch", 1)])).run();
}

#[test]
fn what_is_written_to_a_larger_struct_is_zero_where_it_is_not_known() {
    #[repr(C)]
    struct Larger {
        known: remat_memory,
        more: [u64; 2],
    }
    let (_net, session) = cnn();
    let mut memory: Larger = unsafe { std::mem::zeroed() };
    memory.more = [7; 2];
    memory.known.struct_size = size_of::<Larger>();
    ok(unsafe { remat_session_memory(session.0, &mut memory.known) });
    assert!(memory.known.total_bytes > 0 && memory.known.struct_size == size_of::<Larger>());
    assert_eq!(memory.more, [0; 2]);
}

#[test]
fn sizes_that_no_struct_had_are_errors_and_nothing_is_written() {
    let (net, session) = cnn();
    for size in [0, 1, 8, WITHOUT_KEY - 8, WITHOUT_KEY + 3, 4097, usize::MAX] {
        let mut options = options();
        options.struct_size = size;
        let mut p = ptr::null_mut();
        let status = unsafe { remat_network_from_bytes([0u8].as_ptr().cast(), 1, &options, &mut p) };
        fails(status, REMAT_VALUE, "`struct_size` is");
        let status = unsafe { remat_options_init(&mut options, size) };
        fails(status, REMAT_VALUE, "sizeof(remat_options)");
        assert_eq!(options.struct_size, size);
    }
    for size in [0, 8, size_of::<remat_port>() - 8, 1 << 40] {
        let mut port = port();
        port.struct_size = size;
        fails(unsafe { remat_network_input(net.0, 0, &mut port) }, REMAT_VALUE, "sizeof(remat_port)");
        assert!(port.name.is_null());
        let mut y = tensor();
        y.struct_size = size.min(40);
        let status = unsafe { remat_session_output_type(session.0, c"probabilities".as_ptr(), &mut y) };
        fails(status, REMAT_VALUE, "sizeof(remat_tensor)");
        assert!(y.dims.is_null());
    }
}
