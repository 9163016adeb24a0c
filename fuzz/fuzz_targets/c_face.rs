//! Calls of the functions for C, in an order and with arguments that the input decides: NULLs, structs of any size, names that are
//! none, readers and allocators that lie, models that say what is not so. What the header forbids is not done: a handle is freed
//! once, and memory has the bytes that the call says.
//!
//! The input is a length, a script of so many bytes, and a model.
#![no_main]

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use remat_fuzz::{Random, changed, give, header, message, model};
use remat_lite::c::remat_status::*;
use remat_lite::c::*;
use remat_lite::{Network, is_graph_file};

/// A script is cut here: every call is quick, and a thousand are not.
const MOST_CALLS: usize = 60;

/// Memory for any struct that the functions believe, with its size first.
#[repr(C, align(16))]
struct Room([u64; 514]);

impl Room {
    fn new(size: usize) -> Room {
        let mut room = Room([0; 514]);
        room.0[0] = size as u64;
        room
    }

    fn at<T>(&mut self) -> *mut T {
        self.0.as_mut_ptr().cast()
    }
}

/// The source of decisions: bytes, and zeros after them.
struct Script<'s>(&'s [u8]);

impl Script<'_> {
    fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn below(&mut self, n: usize) -> usize {
        usize::from(self.next()) % n
    }

    /// A size for a struct of `right` bytes: mostly that.
    fn size(&mut self, right: usize) -> usize {
        match self.next() {
            0 => 0,
            1 => 8,
            2 => right.saturating_sub(8),
            3 => right + 8,
            4 => 4096,
            5 => 4104,
            6 => usize::MAX,
            7 => right + 1,
            _ => right,
        }
    }

    /// One of these, or NULL.
    fn handle<T>(&mut self, all: &[*mut T]) -> *mut T {
        let i = self.next();
        if i == 255 || all.is_empty() { ptr::null_mut() } else { all[usize::from(i) % all.len()] }
    }

    fn name<'n>(&mut self, names: &'n [CString]) -> *const c_char {
        const OTHERS: [&CStr; 4] = [c"", c"x", c"\xff\xfe", c"batch"];
        match self.next() {
            255 => ptr::null(),
            i @ 0..16 => OTHERS[usize::from(i) % 4].as_ptr(),
            i => names.get(usize::from(i) % names.len().max(1)).map_or(c"y".as_ptr(), |n: &'n CString| n.as_ptr()),
        }
    }

    fn number(&mut self) -> i64 {
        match self.next() {
            0 => -1,
            1 => i64::MIN,
            2 => i64::MAX,
            3 => 1 << 40,
            4 => 1 << 20,
            n => i64::from(n % 4),
        }
    }
}

/// A model that is read through a function of the caller's.
struct Source<'s> {
    left: &'s [u8],
    lies: u8,
}

unsafe extern "C" fn read(user: *mut c_void, buffer: *mut c_void, bytes: usize) -> i64 {
    let source = unsafe { &mut *user.cast::<Source<'_>>() };
    match source.lies {
        0 => return -1,
        1 => return bytes as i64 + 1,
        2 => return i64::MAX,
        3 if source.left.len() < 9 => return i64::MIN,
        _ => {}
    }
    let n = bytes.min(source.left.len()).min(if source.lies == 4 { 7 } else { usize::MAX });
    let (now, rest) = source.left.split_at(n);
    unsafe { buffer.cast::<u8>().copy_from_nonoverlapping(now.as_ptr(), n) };
    source.left = rest;
    n as i64
}

/// Requests that are refused: each of this number, if it is not 0.
static REFUSES: AtomicUsize = AtomicUsize::new(0);
static REQUESTS: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn allocate(_: *mut c_void, bytes: usize) -> *mut c_void {
    let (each, n) = (REFUSES.load(SeqCst), REQUESTS.fetch_add(1, SeqCst));
    if bytes > 1 << 30 || (each > 0 && n % each == each - 1) {
        return ptr::null_mut();
    }
    // the bytes are not zeros, and at an odd address
    let all = vec![0xa5u8; bytes + 1].into_boxed_slice();
    unsafe { Box::into_raw(all).cast::<u8>().add(1).cast() }
}

unsafe extern "C" fn deallocate(_: *mut c_void, memory: *mut c_void, bytes: usize) {
    let all = ptr::slice_from_raw_parts_mut(unsafe { memory.cast::<u8>().sub(1) }, bytes + 1);
    drop(unsafe { Box::from_raw(all) });
}

unsafe extern "C" fn done(user: *mut c_void, status: remat_status) {
    assert_ne!(status, REMAT_INTERNAL);
    let ended = unsafe { &*user.cast::<AtomicUsize>() };
    ended.fetch_add(1, SeqCst);
}

static ENDED: AtomicUsize = AtomicUsize::new(0);

/// The objects that a script has made.
#[derive(Default)]
struct World {
    networks: Vec<*mut remat_network>,
    sessions: Vec<*mut remat_session>,
    shapes: Vec<*mut remat_shapes>,
    workspaces: Vec<*mut remat_workspace>,
    names: Vec<CString>,
    /// The model is no more than little work.
    may_run: bool,
}

fn told(status: remat_status) -> remat_status {
    let text = unsafe { CStr::from_ptr(remat_last_error()) };
    assert_ne!(status, REMAT_INTERNAL, "{text:?}");
    if status != REMAT_OK {
        assert!(text.to_str().is_ok_and(|t| !t.is_empty()));
    }
    status
}

/// Reads all that a call gave.
fn touch(at: *const c_void, bytes: usize) {
    if !at.is_null() {
        let all = unsafe { std::slice::from_raw_parts(at.cast::<u8>(), bytes) };
        std::hint::black_box(all.iter().fold(0u8, |sum, b| sum.wrapping_add(*b)));
    }
}

impl World {
    fn load(&mut self, s: &mut Script<'_>, file: &[u8]) {
        let mut room = Room::new(0);
        let options = room.at::<remat_options>();
        let right = size_of::<remat_options>();
        if told(unsafe { remat_options_init(options, s.size(right).min(4096)) }) != REMAT_OK {
            return;
        }
        let names = [s.name(&self.names), s.name(&self.names)];
        let key = [7u8; 32];
        unsafe {
            let o = &mut *options;
            o.threads = 1 + s.below(2);
            o.memory_budget_bytes = [model::BUDGET_BYTES, 1, 1 << 20, model::BUDGET_BYTES][s.below(4)];
            o.level = i32::from(s.next() % 8) - 1;
            o.half = [0, 0, 0, 1, 2, 77, -1][s.below(7)];
            if s.below(8) == 1 {
                (o.outputs, o.output_count) = (names.as_ptr(), s.below(3));
            }
            if s.below(8) == 1 {
                (o.outputs, o.output_count) = (ptr::null(), s.below(3));
            }
            o.workspace = if s.below(4) == 1 { s.handle(&self.workspaces) } else { ptr::null() };
            if s.below(4) == 1 {
                REFUSES.store(s.below(6), SeqCst);
                o.allocate = Some(allocate);
                o.deallocate = if s.below(6) == 1 { None } else { Some(deallocate) };
            }
            o.key = if s.below(4) == 1 { key.as_ptr() } else { ptr::null() };
            o.struct_size = s.size(right).max(8);
        }
        let options = if s.below(8) == 1 { ptr::null() } else { options.cast_const() };
        let mut network = ptr::null_mut();
        let status = unsafe {
            match s.below(4) {
                0 => {
                    let mut source = Source { left: file, lies: s.next() % 16 };
                    remat_network_from_reader(Some(read), (&raw mut source).cast(), options, &mut network)
                }
                1 if s.below(8) == 1 => remat_network_open(s.name(&self.names), options, &mut network),
                _ => {
                    let n = if s.below(8) == 1 { s.below(file.len() + 1) } else { file.len() };
                    let data = if s.below(32) == 1 { ptr::null() } else { file.as_ptr() };
                    remat_network_from_bytes(data.cast(), n, options, &mut network)
                }
            }
        };
        assert_eq!(told(status) == REMAT_OK, !network.is_null());
        // without options there is no budget
        if !network.is_null() && options.is_null() {
            self.may_run = false;
        }
        if !network.is_null() {
            self.networks.push(network);
            self.look(network);
        }
    }

    fn look(&mut self, network: *mut remat_network) {
        unsafe {
            let (inputs, outputs) = (remat_network_input_count(network), remat_network_output_count(network));
            for (n, describe) in [
                (inputs, remat_network_input as unsafe extern "C" fn(_, _, _) -> _),
                (outputs, remat_network_output as unsafe extern "C" fn(_, _, _) -> _),
            ] {
                for i in 0..n.min(4) {
                    let mut room = Room::new(size_of::<remat_port>());
                    let port = room.at::<remat_port>();
                    assert_eq!(told(describe(network.cast_const(), i, port)), REMAT_OK);
                    self.names.push(CStr::from_ptr((*port).name).to_owned());
                    let _ = CStr::from_ptr((*port).text).to_bytes();
                    for k in 0..usize::try_from((*port).rank).unwrap_or(0) {
                        let symbol = *(*port).symbols.add(k);
                        if *(*port).extents.add(k) == -1 && !symbol.is_null() {
                            self.names.push(CStr::from_ptr(symbol).to_owned());
                        }
                    }
                }
            }
            for i in 0..remat_network_unsupported_count(network).min(3) {
                let _ = CStr::from_ptr(remat_network_unsupported(network, i)).to_bytes();
            }
        }
    }

    fn describe(&mut self, s: &mut Script<'_>) {
        let network = s.handle(&self.networks);
        let mut room = Room::new(s.size(size_of::<remat_port>()));
        unsafe {
            told(remat_network_input(network, s.below(4), room.at()));
            told(remat_network_output(network, usize::MAX - s.below(2), room.at()));
            let name = s.name(&self.names);
            for text in [
                remat_network_name(network),
                remat_network_producer(network),
                remat_network_metadata(network, name),
                remat_network_unsupported(network, s.below(3)),
                remat_status_name(i32::from(s.next())),
                remat_dtype_name(i32::from(s.next()) - 3),
            ] {
                if !text.is_null() {
                    let _ = CStr::from_ptr(text).to_bytes();
                }
            }
            let mut room = Room::new(s.size(size_of::<remat_shortfall>()));
            remat_last_shortfall(room.at());
        }
    }

    fn shape(&mut self, s: &mut Script<'_>) {
        if self.shapes.len() < 4 && s.below(2) == 0 {
            self.shapes.push(remat_shapes_new());
        }
        let (shapes, name) = (s.handle(&self.shapes), s.name(&self.names));
        let dims = [s.number(), s.number(), s.number(), s.number()];
        let at = if s.below(16) == 1 { ptr::null() } else { dims.as_ptr() };
        unsafe {
            told(match s.below(2) {
                0 => remat_shapes_extent(shapes, name, dims[0]),
                _ => remat_shapes_input(shapes, name, at, s.below(5)),
            });
        }
    }

    fn session(&mut self, s: &mut Script<'_>) {
        if self.sessions.len() == 4 || !self.may_run {
            return;
        }
        let (network, mut session) = (s.handle(&self.networks), ptr::null_mut());
        let shapes = if s.below(3) == 0 { ptr::null_mut() } else { s.handle(&self.shapes) };
        let status = told(unsafe { remat_session_new(network, shapes, &mut session) });
        assert_eq!(status == REMAT_OK, !session.is_null());
        if !session.is_null() {
            self.sessions.push(session);
        }
    }

    fn use_session(&mut self, s: &mut Script<'_>) {
        let (session, name) = (s.handle(&self.sessions), s.name(&self.names));
        let dtype = match s.below(16) {
            n @ 0..2 => n as i32 * 90 - 5,
            n => n as i32,
        };
        let (mut data, mut bytes) = (ptr::null_mut(), 0);
        let mut room = Room::new(s.size(size_of::<remat_tensor>()));
        let tensor = room.at::<remat_tensor>();
        unsafe {
            match s.below(12) {
                0 => drop(told(remat_session_run(session))),
                1 => {
                    // of any bytes, as the caller has any
                    if told(remat_session_input_data(session, name, dtype, &mut data, &mut bytes)) == REMAT_OK {
                        touch(data, bytes);
                        data.cast::<u8>().write_bytes([0, 1, 0x80, 0xff][s.below(4)], bytes);
                    }
                }
                2 => {
                    let own = [s.next(); 64];
                    let dims = [s.number(), s.number()];
                    let (rank, n) = (s.below(3), s.below(65));
                    told(remat_session_set_input(session, name, dtype, dims.as_ptr(), rank, own.as_ptr().cast(), n));
                }
                3 => {
                    if told(remat_session_output(session, name, tensor)) == REMAT_OK {
                        touch((*tensor).data, (*tensor).bytes);
                        touch((*tensor).dims.cast(), (*tensor).rank * 8);
                    }
                }
                4 => drop(told(remat_session_output_type(session, name, tensor))),
                5 => drop(told(remat_session_memory(session, room.at()))),
                6 => drop(told(remat_session_release_workspace(session))),
                7 => {
                    let call = if s.below(2) == 0 { None } else { Some(done as unsafe extern "C" fn(_, _)) };
                    told(remat_session_run_async(session, call, (&raw const ENDED).cast_mut().cast()));
                }
                8 => drop(told(remat_session_wait(session))),
                9 => self.run_into(s, session, name),
                _ => drop(remat_session_is_planned(session)),
            }
        }
    }

    fn run_into(&mut self, s: &mut Script<'_>, session: *mut remat_session, name: *const c_char) {
        let mut room = Room::new(size_of::<remat_tensor>());
        let tensor = room.at::<remat_tensor>();
        unsafe {
            let known = remat_session_output_type(session, name, tensor) == REMAT_OK;
            let n = if known && s.below(4) > 0 { (*tensor).bytes } else { s.below(65) };
            let mut own = vec![0u64; n.div_ceil(8) + 1];
            let at = own.as_mut_ptr().cast::<u8>().add(if s.below(8) == 1 { 1 } else { 0 });
            let places = [at.cast::<c_void>(), if s.below(4) == 1 { at.cast() } else { ptr::null_mut() }];
            told(remat_session_run_into(session, places.as_ptr(), [n, n].as_ptr(), s.below(3)));
            touch(own.as_ptr().cast(), own.len() * 8);
        }
    }

    fn free(&mut self, s: &mut Script<'_>) {
        let i = s.next();
        fn taken<T>(all: &mut Vec<*mut T>, i: u8) -> *mut T {
            if all.is_empty() { ptr::null_mut() } else { all.swap_remove(usize::from(i) % all.len()) }
        }
        unsafe {
            match s.below(4) {
                0 => remat_network_free(taken(&mut self.networks, i)),
                1 => remat_session_free(taken(&mut self.sessions, i)),
                2 => remat_shapes_free(taken(&mut self.shapes, i)),
                _ => remat_workspace_free(taken(&mut self.workspaces, i)),
            }
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        unsafe {
            self.networks.drain(..).for_each(|n| remat_network_free(n));
            self.sessions.drain(..).for_each(|n| remat_session_free(n));
            self.shapes.drain(..).for_each(|n| remat_shapes_free(n));
            self.workspaces.drain(..).for_each(|n| remat_workspace_free(n));
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((n, rest)) = data.split_first() else { return };
    let (script, file) = rest.split_at(usize::from(*n).min(rest.len()));
    let mut s = Script(script);
    let may_run = Network::from_bytes(file, model::options(3)).is_ok_and(|n| model::small_shapes(&n).is_some());
    let mut world = World::default();
    world.may_run = may_run;
    REQUESTS.store(0, SeqCst);
    REFUSES.store(0, SeqCst);
    for _ in 0..MOST_CALLS {
        if s.0.is_empty() {
            break;
        }
        match s.below(16) {
            0..3 if world.networks.len() < 3 => world.load(&mut s, file),
            3 => world.describe(&mut s),
            4 | 5 => world.shape(&mut s),
            6 | 7 => world.session(&mut s),
            8 if world.workspaces.len() < 2 => world.workspaces.push(remat_workspace_new()),
            9 => world.free(&mut s),
            _ => world.use_session(&mut s),
        }
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let mut plain = |bytes: &mut [u8], n: usize| {
        let most = bytes.len();
        fuzzer_mutate(bytes, n, most)
    };
    let mut random = Random::new(seed);
    let Some((n, rest)) = data[..size].split_first() else { return fuzzer_mutate(data, size, max_size) };
    let (script, file) = rest.split_at(usize::from(*n).min(rest.len()));
    let (mut script, mut file) = (script.to_vec(), file.to_vec());
    // the files have targets of their own
    if random.once_in(4) {
        file = match is_graph_file(&file) {
            true => header::mutate(&file, &mut random, &mut plain),
            false => message::mutate(&file, &model::words(), &mut random, &mut plain),
        };
    } else {
        script = changed(&script, &mut plain);
        script.truncate(255);
    }
    let new = [&[script.len() as u8], &script[..], &file].concat();
    give(&mut data[..max_size], size, &new)
});
