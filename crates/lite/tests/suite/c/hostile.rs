//! Wrong calls: a status and a text, never more.

use std::ffi::c_void;
use std::ptr;

use remat_lite::c::remat_status::*;
use remat_lite::c::*;

use super::*;

const F32: i32 = remat_dtype::REMAT_F32 as i32;

#[test]
fn null_is_an_error_everywhere() {
    let (net, session) = cnn();
    let (image, y) = (c"image".as_ptr(), c"probabilities".as_ptr());
    let (mut n, mut data, mut network, mut made) = (0, ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let shapes = Given::new(&[]);
    let (dims, none) = ([1i64], ptr::null_mut::<remat_session>());
    let is_null = |status| fails(status, REMAT_VALUE, "NULL");
    unsafe {
        is_null(remat_options_init(ptr::null_mut(), size_of::<remat_options>()));
        is_null(remat_network_open(ptr::null(), ptr::null(), &mut network));
        is_null(remat_network_open(c"x".as_ptr(), ptr::null(), ptr::null_mut()));
        is_null(remat_network_from_bytes(ptr::null(), 8, ptr::null(), &mut network));
        is_null(remat_network_from_bytes(c"x".as_ptr().cast(), 1, ptr::null(), ptr::null_mut()));
        is_null(remat_network_from_reader(None, ptr::null_mut(), ptr::null(), &mut network));
        is_null(remat_network_input(ptr::null(), 0, &mut port()));
        is_null(remat_network_input(net.0, 0, ptr::null_mut()));
        is_null(remat_network_output(ptr::null(), 0, &mut port()));
        is_null(remat_network_output(net.0, 0, ptr::null_mut()));
        assert_eq!(remat_network_input_count(ptr::null()), 0);
        assert_eq!(remat_network_output_count(ptr::null()), 0);
        assert_eq!(remat_network_unsupported_count(ptr::null()), 0);
        assert!(remat_network_unsupported(ptr::null(), 0).is_null());
        assert!(remat_network_name(ptr::null()).is_null());
        assert!(remat_network_producer(ptr::null()).is_null());
        assert!(remat_network_metadata(ptr::null(), c"x".as_ptr()).is_null());
        assert!(remat_network_metadata(net.0, ptr::null()).is_null());
        remat_network_free(ptr::null_mut());

        is_null(remat_shapes_extent(ptr::null_mut(), c"batch".as_ptr(), 1));
        is_null(remat_shapes_extent(shapes.0, ptr::null(), 1));
        is_null(remat_shapes_input(ptr::null_mut(), image, dims.as_ptr(), 1));
        is_null(remat_shapes_input(shapes.0, ptr::null(), dims.as_ptr(), 1));
        is_null(remat_shapes_input(shapes.0, image, ptr::null(), 1));
        remat_shapes_free(ptr::null_mut());

        is_null(remat_session_new(ptr::null(), ptr::null(), &mut made));
        is_null(remat_session_new(net.0, ptr::null(), ptr::null_mut()));
        is_null(remat_session_input_data(none, image, F32, &mut data, &mut n));
        is_null(remat_session_input_data(session.0, ptr::null(), F32, &mut data, &mut n));
        is_null(remat_session_input_data(session.0, image, F32, ptr::null_mut(), &mut n));
        ok(remat_session_input_data(session.0, image, F32, &mut data, ptr::null_mut()));
        ok(remat_session_input_data(session.0, image, F32, &mut data, &mut n));
        is_null(remat_session_set_input(none, image, F32, dims.as_ptr(), 1, data, n));
        is_null(remat_session_set_input(session.0, ptr::null(), F32, dims.as_ptr(), 1, data, n));
        is_null(remat_session_set_input(session.0, image, F32, ptr::null(), 1, data, n));
        is_null(remat_session_run(none));
        is_null(remat_session_run_into(none, ptr::null(), ptr::null(), 0));
        is_null(remat_session_run_into(session.0, ptr::null(), [0].as_ptr(), 1));
        is_null(remat_session_run_into(session.0, [ptr::null_mut()].as_ptr(), ptr::null(), 1));
        is_null(remat_session_run_async(none, None, ptr::null_mut()));
        is_null(remat_session_wait(none));
        is_null(remat_session_output(none, y, &mut tensor()));
        is_null(remat_session_output_type(none, y, &mut tensor()));
        is_null(remat_session_memory(none, &mut std::mem::zeroed()));
        is_null(remat_session_memory(session.0, ptr::null_mut()));
        is_null(remat_session_release_workspace(none));
        assert_eq!(remat_session_is_planned(none), 0);
        remat_session_free(none);
        session.run();
        is_null(remat_session_output(session.0, ptr::null(), &mut tensor()));
        is_null(remat_session_output(session.0, y, ptr::null_mut()));
    }
}

#[test]
fn names_and_types_are_checked() {
    let (_net, session) = cnn();
    let (mut data, mut n) = (ptr::null_mut(), 0);
    let mut input = |name: &CStr, dtype: i32| unsafe {
        remat_session_input_data(session.0, name.as_ptr(), dtype, &mut data, &mut n)
    };
    fails(input(c"picture", F32), REMAT_VALUE, "no input `picture`; it has `image`");
    fails(input(c"\xff\xfe", F32), REMAT_VALUE, "not UTF-8");
    fails(input(c"image", remat_dtype::REMAT_I64 as i32), REMAT_DTYPE, "input `image` is of f32, not of i64");
    fails(input(c"image", 0), REMAT_DTYPE, "not of none");
    fails(input(c"image", 77), REMAT_DTYPE, "77 is no remat_dtype");
    fails(input(c"image", -1), REMAT_DTYPE, "-1 is no remat_dtype");
    let output = |name: &CStr| unsafe { remat_session_output(session.0, name.as_ptr(), &mut tensor()) };
    fails(output(c"logits"), REMAT_VALUE, "no output `logits`; it has `probabilities`");
    fails(output(c"\xc0"), REMAT_VALUE, "not UTF-8");
}

#[test]
fn copies_to_an_input_are_checked() {
    let (net, session) = cnn();
    let mut x = port();
    ok(unsafe { remat_network_input(net.0, 0, &mut x) });
    let mut dims = unsafe { std::slice::from_raw_parts(x.extents, 4) }.to_vec();
    dims[0] = 1;
    let values = vec![0.25f32; dims.iter().product::<i64>() as usize];
    let bytes = values.len() * 4;
    let set = |dtype, dims: &[i64], data: *const f32, bytes| unsafe {
        let data = data.cast::<c_void>();
        remat_session_set_input(session.0, c"image".as_ptr(), dtype, dims.as_ptr(), dims.len(), data, bytes)
    };
    ok(set(F32, &dims, values.as_ptr(), bytes));
    fails(set(remat_dtype::REMAT_F64 as i32, &dims, values.as_ptr(), bytes), REMAT_DTYPE, "not of f64");
    fails(set(F32, &dims[1..], values.as_ptr(), bytes), REMAT_SHAPE, "was given");
    fails(set(F32, &[2, dims[1], dims[2], dims[3]], values.as_ptr(), bytes), REMAT_SHAPE, "was given");
    fails(set(F32, &[-1, dims[1], dims[2], dims[3]], values.as_ptr(), bytes), REMAT_VALUE, "`dims[0]` is -1");
    fails(set(F32, &dims, values.as_ptr(), bytes - 4), REMAT_VALUE, "were given");
    fails(set(F32, &dims, ptr::null(), bytes), REMAT_VALUE, "`data` is NULL");
    // its own memory
    let own = session.input(c"image");
    ok(set(F32, &dims, own, bytes));
    assert_eq!(unsafe { own.read() }, 0.25);
}

#[test]
fn shapes_that_nothing_can_have_are_errors() {
    let net = Net::open("cnn", &options());
    let made = |shapes: &Given| {
        let mut p = ptr::null_mut();
        let status = unsafe { remat_session_new(net.0, shapes.0, &mut p) };
        assert_eq!(status == REMAT_OK, !p.is_null());
        drop(Ses(p));
        status
    };
    let shapes = Given::new(&[]);
    fails(unsafe { remat_shapes_extent(shapes.0, c"batch".as_ptr(), -1) }, REMAT_VALUE, "is -1");
    fails(unsafe { remat_shapes_extent(shapes.0, c"\xff".as_ptr(), 1) }, REMAT_VALUE, "not UTF-8");
    let dims = [1i64];
    let status = unsafe { remat_shapes_input(shapes.0, c"image".as_ptr(), dims.as_ptr(), usize::MAX) };
    fails(status, REMAT_VALUE, "cannot have");
    let odd = dims.as_ptr().cast::<u8>().wrapping_add(1).cast();
    fails(unsafe { remat_shapes_input(shapes.0, c"image".as_ptr(), odd, 1) }, REMAT_VALUE, "not aligned");
    fails(made(&shapes), REMAT_VALUE, "open");
    fails(made(&Given::new(&[(c"rows", 1)])), REMAT_VALUE, "no extent `rows`");
    let status = made(&Given::new(&[(c"batch", i64::MAX)]));
    assert!(status != REMAT_OK && status != REMAT_INTERNAL, "{status:?}: {}", last());
    ok(made(&Given::new(&[(c"batch", 1)])));
    let mut p = ptr::null_mut();
    fails(unsafe { remat_session_new(net.0, ptr::null(), &mut p) }, REMAT_VALUE, "open");
}

#[test]
fn options_that_nothing_can_have_are_errors() {
    let path = CString::new(folder("cnn").join("model.onnx").to_str().expect("UTF-8")).expect("no zero");
    let refused = |options: remat_options, status, words: &str| {
        let mut p = ptr::null_mut();
        fails(unsafe { remat_network_open(path.as_ptr(), &options, &mut p) }, status, words);
        assert!(p.is_null());
    };
    let bad = [c"\xff".as_ptr()];
    refused(remat_options { level: 4, ..options() }, REMAT_VALUE, "level");
    refused(remat_options { level: -1, ..options() }, REMAT_VALUE, "level");
    refused(remat_options { half: F32, ..options() }, REMAT_VALUE, "half");
    refused(remat_options { half: 99, ..options() }, REMAT_DTYPE, "99");
    refused(remat_options { output_count: 1, ..options() }, REMAT_VALUE, "`outputs` is NULL");
    refused(remat_options { outputs: bad.as_ptr(), output_count: 1, ..options() }, REMAT_VALUE, "not UTF-8");
    let none = [ptr::null()];
    refused(remat_options { outputs: none.as_ptr(), output_count: 1, ..options() }, REMAT_VALUE, "NULL");
    let unknown = [c"logits".as_ptr()];
    refused(remat_options { outputs: unknown.as_ptr(), output_count: 1, ..options() }, REMAT_VALUE, "`logits`");
}

#[test]
fn an_output_before_a_run_is_no_value() {
    for ((_net, session), name) in [(cnn(), c"probabilities"), (positive(), c"squares")] {
        let mut y = tensor();
        let status = unsafe { remat_session_output(session.0, name.as_ptr(), &mut y) };
        fails(status, REMAT_NO_VALUE, "no run yet");
        assert!(y.data.is_null());
        let status = unsafe { remat_session_output_type(session.0, name.as_ptr(), &mut y) };
        let is_planned = unsafe { remat_session_is_planned(session.0) } == 1;
        assert_eq!(status, if is_planned { REMAT_OK } else { REMAT_NO_VALUE });
        session.run();
        ok(unsafe { remat_session_output(session.0, name.as_ptr(), &mut y) });
    }
}

#[test]
fn memory_that_is_in_use_takes_no_outputs() {
    let (_net, session) = cnn();
    session.run();
    let n = session.output(c"probabilities").len() * 4;
    let into = |p: *mut c_void, bytes: usize, count: usize| unsafe {
        remat_session_run_into(session.0, [p, p].as_ptr(), [bytes, bytes].as_ptr(), count)
    };
    fails(into(session.input(c"image").cast(), n, 1), REMAT_VALUE, "overlaps that of an input");
    let mut y = tensor();
    ok(unsafe { remat_session_output(session.0, c"probabilities".as_ptr(), &mut y) });
    fails(into(y.data.cast_mut(), n, 1), REMAT_VALUE, "overlaps that of an output");
    let mut own = vec![0u64; n];
    fails(into(own.as_mut_ptr().cast(), n, 2), REMAT_VALUE, "memory for 2 outputs of 1");
    fails(into(own.as_mut_ptr().cast(), usize::MAX, 1), REMAT_VALUE, "bytes aligned to");
    fails(into(own.as_mut_ptr().wrapping_byte_add(1).cast(), n, 1), REMAT_VALUE, "aligned");
    // the wrong calls began no run
    ok(unsafe { remat_session_output(session.0, c"probabilities".as_ptr(), &mut y) });
}

#[test]
fn a_session_outlives_its_network() {
    for ((net, session), name) in [(cnn(), c"probabilities"), (positive(), c"squares")] {
        session.run();
        let want = session.output(name);
        drop(net);
        session.run();
        assert_eq!(session.output(name), want);
        let e = unsafe { remat_session_output(session.0, c"none".as_ptr(), &mut tensor()) };
        fails(e, REMAT_VALUE, "no output `none`");
    }
}

#[test]
fn names_of_statuses_and_dtypes_are_there_for_any_number() {
    assert_eq!(text(remat_status_name(REMAT_OK as i32)), "ok");
    assert_eq!(text(remat_status_name(REMAT_BUDGET as i32)), "budget");
    assert_eq!(text(remat_status_name(REMAT_BUSY as i32)), "busy");
    for n in [-1, 17, i32::MAX, i32::MIN] {
        assert_eq!(text(remat_status_name(n)), "unknown");
        assert_eq!((text(remat_dtype_name(n)).as_str(), remat_dtype_size(n)), ("none", 0));
    }
    assert_eq!((text(remat_dtype_name(F32)).as_str(), remat_dtype_size(F32)), ("f32", 4));
}

#[test]
fn the_last_error_is_the_threads_own() {
    let e = unsafe { remat_session_run(ptr::null_mut()) };
    fails(e, REMAT_VALUE, "`session` is NULL");
    std::thread::spawn(|| assert_eq!(last(), "")).join().expect("it is empty");
    assert_eq!(last(), "`session` is NULL");
    drop(cnn());
    assert_eq!(last(), "`session` is NULL", "calls that succeed leave it");
}
