//! C gets the same results as Rust.

use std::ffi::c_void;
use std::ptr;

use remat_lite::c::remat_status::*;
use remat_lite::c::*;
use remat_lite::{Dim, Key, Options, Shapes};

use super::*;
use crate::{open, recorded};

#[test]
fn ports_are_described_before_there_is_a_session() {
    let net = Net::open("cnn", &options());
    let mut x = port();
    unsafe {
        assert_eq!((remat_network_input_count(net.0), remat_network_output_count(net.0)), (1, 1));
        ok(remat_network_input(net.0, 0, &mut x));
        assert_eq!(text(x.name), "image");
        assert_eq!((x.kind, x.dtype, x.rank), (remat_kind::REMAT_KIND_TENSOR, remat_dtype::REMAT_F32, 4));
        let extents = std::slice::from_raw_parts(x.extents, 4);
        let symbols = std::slice::from_raw_parts(x.symbols, 4);
        assert!(extents[0] == -1 && extents[1..].iter().all(|n| *n > 0), "{extents:?}");
        assert!(text(symbols[0]) == "batch" && symbols[1..].iter().all(|s| s.is_null()));
        assert!(text(x.text).starts_with("f32[batch, "), "{}", text(x.text));
        fails(remat_network_input(net.0, 1, &mut x), REMAT_INDEX, "input 1 of a network that has 1");
        ok(remat_network_output(net.0, 0, &mut x));
        assert_eq!(text(x.name), "probabilities");
        assert!(text(remat_network_producer(net.0)).contains("pytorch"));
        text(remat_network_name(net.0));
        assert!(remat_network_metadata(net.0, c"no such key".as_ptr()).is_null());
        assert_eq!(remat_network_unsupported_count(net.0), 0);
    }
    let net = Net::open("foreign", &options());
    unsafe {
        assert_eq!(remat_network_unsupported_count(net.0), 1);
        assert!(text(remat_network_unsupported(net.0, 0)).contains("com.example.Flashier"));
        assert!(remat_network_unsupported(net.0, 1).is_null());
        let mut p = ptr::null_mut();
        fails(remat_session_new(net.0, ptr::null(), &mut p), REMAT_VALUE, "Flashier");
        assert!(p.is_null());
    }
}

/// Bits that the Rust API gives for the recorded input.
fn wanted(name: &str) -> Vec<f32> {
    let mut s = crate::session(&open(name, Options::default()), name);
    s.run().expect("it runs");
    let output = s.outputs()[0].clone();
    s.output(&output).expect("there").as_slice::<f32>().expect("f32").to_vec()
}

#[test]
fn outputs_are_those_of_rust_whichever_way_the_input_comes() {
    let want = wanted("cnn");
    let [x] = &recorded("cnn", "input")[..] else { panic!("one input") };
    let dims: Vec<i64> = x.shape().dims().iter().map(|n| *n as i64).collect();
    let net = Net::open("cnn", &options());
    let shapes = Given::new(&[]);
    ok(unsafe { remat_shapes_input(shapes.0, c"image".as_ptr(), dims.as_ptr(), dims.len()) });
    let session = net.session(&shapes);
    session.write(c"image", x.as_slice().expect("f32"));
    session.run();
    assert_eq!(session.output(c"probabilities"), want);
    session.write(c"image", &vec![0.0; x.elems()]);
    session.run();
    assert_ne!(session.output(c"probabilities"), want);
    let (p, bytes) = (x.bytes().as_ptr().cast(), x.bytes().len());
    let f32 = remat_dtype::REMAT_F32 as i32;
    ok(unsafe { remat_session_set_input(session.0, c"image".as_ptr(), f32, dims.as_ptr(), dims.len(), p, bytes) });
    session.run();
    assert_eq!(session.output(c"probabilities"), want);
    unsafe {
        assert_eq!(remat_session_is_planned(session.0), 1);
        let mut y = tensor();
        ok(remat_session_output(session.0, c"probabilities".as_ptr(), &mut y));
        assert_eq!(std::slice::from_raw_parts(y.dims, y.rank)[0], dims[0]);
        ok(remat_session_release_workspace(session.0));
    }
    session.run();
    assert_eq!(session.output(c"probabilities"), want);
}

#[test]
fn models_come_from_bytes_and_from_a_reader() {
    let bytes = std::fs::read(crate::folder("cnn").join("model.onnx")).expect("readable");
    let mut p = ptr::null_mut();
    ok(unsafe { remat_network_from_bytes(bytes.as_ptr().cast(), bytes.len(), ptr::null(), &mut p) });
    drop(Net(p).session(&Given::new(&[(c"batch", 2)])));

    struct Left<'b>(&'b [u8]);
    unsafe extern "C" fn some(user: *mut c_void, buffer: *mut c_void, bytes: usize) -> i64 {
        let left = unsafe { &mut *user.cast::<Left<'_>>() };
        let n = bytes.min(left.0.len()).min(100);
        let (now, later) = left.0.split_at(n);
        unsafe { buffer.cast::<u8>().copy_from_nonoverlapping(now.as_ptr(), n) };
        left.0 = later;
        n as i64
    }
    let mut left = Left(&bytes);
    let user = (&raw mut left).cast();
    ok(unsafe { remat_network_from_reader(Some(some), user, ptr::null(), &mut p) });
    drop(Net(p).session(&Given::new(&[(c"batch", 2)])));
    assert!(left.0.is_empty());

    unsafe extern "C" fn fail(_: *mut c_void, _: *mut c_void, _: usize) -> i64 {
        -5
    }
    unsafe extern "C" fn lie(_: *mut c_void, _: *mut c_void, bytes: usize) -> i64 {
        bytes as i64 + 1
    }
    unsafe {
        let status = remat_network_from_reader(Some(fail), ptr::null_mut(), ptr::null(), &mut p);
        fails(status, REMAT_IO, "gave -5");
        assert!(p.is_null());
        fails(remat_network_from_reader(Some(lie), ptr::null_mut(), ptr::null(), &mut p), REMAT_IO, "room for");
        fails(remat_network_from_reader(None, ptr::null_mut(), ptr::null(), &mut p), REMAT_VALUE, "`read` is NULL");
        let status = remat_network_from_bytes(bytes.as_ptr().cast(), 99, ptr::null(), &mut p);
        assert_eq!(status, REMAT_FORMAT, "{}", last());
    }
}

#[test]
fn a_budget_is_kept_to_or_refused_with_figures() {
    let whole = {
        let network = open("skip", Options { threads: 1, ..Options::default() });
        let mut s = network.session(&Shapes::new().extent("batch", 4)).expect("any");
        s.memory().expect("idle").total_bytes()
    };
    let under = |budget: usize| {
        let net = Net::open("skip", &remat_options { threads: 1, memory_budget_bytes: budget, ..options() });
        let mut p = ptr::null_mut();
        let status = unsafe { remat_session_new(net.0, Given::new(&[(c"batch", 4)]).0, &mut p) };
        (status, Ses(p))
    };
    let mut figures = remat_shortfall {
        struct_size: size_of::<remat_shortfall>(),
        needed_bytes: 0,
        budget_bytes: 0,
        least_bytes: 0,
        smallest_feasible_bytes: 0,
    };
    let small = whole / 10;
    assert_eq!(under(small).0, REMAT_BUDGET);
    ok(unsafe { remat_last_shortfall(&mut figures) });
    assert!(figures.budget_bytes == small && figures.smallest_feasible_bytes > small, "{figures:?}");
    let fits = (20..100).step_by(5).map(|percent| whole * percent / 100);
    let (budget, session) = fits.map(|b| (b, under(b))).find(|(_, (status, _))| *status == REMAT_OK).expect("one fits");
    let mut memory: remat_memory = unsafe { std::mem::zeroed() };
    memory.struct_size = size_of::<remat_memory>();
    ok(unsafe { remat_session_memory(session.1.0, &mut memory) });
    assert!(memory.total_bytes <= budget && memory.recomputed_calls > 0, "{memory:?}");
    assert_eq!(memory.total_bytes, memory.constant_bytes + memory.io_bytes + memory.workspace_bytes);
    let status = unsafe { remat_network_open(c"nowhere.onnx".as_ptr(), ptr::null(), &mut ptr::null_mut()) };
    fails(status, REMAT_IO, "nowhere.onnx");
    assert_eq!(unsafe { remat_last_shortfall(&mut figures) }, REMAT_NO_VALUE);
}

#[test]
fn outputs_go_to_the_callers_memory() {
    for (session, name, n) in [{ (cnn(), c"probabilities", 0) }, { (positive(), c"squares", 4) }] {
        let (_net, session) = session;
        session.run();
        let want = session.output(name);
        assert!(n == 0 || n == want.len());
        let mut own = vec![f32::NAN; want.len()];
        let (data, bytes) = ([own.as_mut_ptr().cast::<c_void>()], [own.len() * 4]);
        ok(unsafe { remat_session_run_into(session.0, data.as_ptr(), bytes.as_ptr(), 1) });
        assert_eq!(own, want);
        let mut y = tensor();
        let status = unsafe { remat_session_output(session.0, name.as_ptr(), &mut y) };
        fails(status, REMAT_NO_VALUE, "memory of the caller's");
        ok(unsafe { remat_session_output_type(session.0, name.as_ptr(), &mut y) });
        assert!(y.bytes == own.len() * 4 && y.data.is_null());
        let none = [ptr::null_mut()];
        ok(unsafe { remat_session_run_into(session.0, none.as_ptr(), [0].as_ptr(), 1) });
        assert_eq!(session.output(name), want);
        let short = [own.len() * 4 - 4];
        let status = unsafe { remat_session_run_into(session.0, data.as_ptr(), short.as_ptr(), 1) };
        fails(status, REMAT_VALUE, "bytes");
    }
}

#[test]
fn a_model_whose_sizes_follow_from_values_has_the_same_functions() {
    let (_net, session) = positive();
    assert_eq!(unsafe { remat_session_is_planned(session.0) }, 0);
    let x = session.input(c"x");
    for _ in 0..3 {
        session.run();
        assert_eq!(session.output(c"squares"), [1.0, 4.0, 9.0, 16.0]);
        assert_eq!(session.input(c"x"), x, "it stays where it is");
    }
    unsafe { x.write(-5.0) };
    session.run();
    assert_eq!(session.output(c"squares"), [4.0, 9.0, 16.0]);
}

#[test]
fn only_the_outputs_that_are_named_are_computed() {
    let names = [c"probabilities".as_ptr()];
    let net = Net::open("cnn", &remat_options { outputs: names.as_ptr(), output_count: 1, ..options() });
    assert_eq!(unsafe { remat_network_output_count(net.0) }, 1);
    let net = Net::open("cnn", &remat_options { outputs: names.as_ptr(), output_count: 0, ..options() });
    assert_eq!(unsafe { remat_network_output_count(net.0) }, 0);
}

#[test]
fn files_of_remats_own_are_read_with_their_key() {
    let want = wanted("cnn");
    let [x] = &recorded("cnn", "input")[..] else { panic!("one input") };
    let n = x.shape().dims()[0];
    let file =
        open("cnn", Options::default()).graph_file(&Shapes::new(), &[Dim::new("batch", 1, 64)]).expect("a graph");
    let key = [3u8; 32];
    for given in [None, Some(Key::new(key))] {
        let bytes = file.to_bytes(given.as_ref()).expect("it is written");
        let with = |key: *const u8| {
            let (options, mut p) = (remat_options { key, ..options() }, ptr::null_mut());
            let status = unsafe { remat_network_from_bytes(bytes.as_ptr().cast(), bytes.len(), &options, &mut p) };
            (status, Net(p))
        };
        if given.is_some() {
            fails(with(ptr::null()).0, REMAT_VALUE, "key");
            fails(with([4u8; 32].as_ptr()).0, REMAT_VALUE, "key");
        }
        let (status, net) = with(if given.is_some() { key.as_ptr() } else { ptr::null() });
        ok(status);
        let session = net.session(&Given::new(&[(c"batch", n as i64)]));
        session.write(c"image", x.as_slice().expect("f32"));
        session.run();
        assert_eq!(session.output(c"probabilities"), want);
    }
}
