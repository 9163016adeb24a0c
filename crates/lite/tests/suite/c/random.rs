//! Calls in any order, of several threads on the same sessions: none hangs, and none ends but with a status.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::thread;

use remat_lite::c::remat_status::*;
use remat_lite::c::*;

use super::*;

const CALLS: usize = 1500;

/// Marsaglia's xorshift with 64 bits.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

#[derive(Clone, Copy)]
struct Target {
    session: *mut remat_session,
    input: &'static CStr,
    output: &'static CStr,
}
unsafe impl Send for Target {}

fn call(target: &Target, random: &mut Random) -> remat_status {
    let Target { session, input, output } = *target;
    let dtype = if random.below(4) == 0 { random.below(20) as i32 - 2 } else { remat_dtype::REMAT_F32 as i32 };
    let name = if random.below(8) == 0 { c"none" } else { input };
    let (mut data, mut bytes) = (ptr::null_mut::<c_void>(), 0);
    // wrong sizes, and now and then the right one
    let mut own = [0f32; 16];
    let place = [own.as_mut_ptr().cast::<c_void>()];
    let size = [[16, 20, 36, 64, 0][random.below(5) as usize]];
    unsafe {
        match random.below(12) {
            0 => remat_session_run(session),
            1 => remat_session_run_async(session, Some(ignore), ptr::null_mut()),
            2 => remat_session_run_async(session, None, ptr::null_mut()),
            3 => remat_session_wait(session),
            4 => remat_session_output(session, output.as_ptr(), &mut tensor()),
            5 => remat_session_output_type(session, output.as_ptr(), &mut tensor()),
            6 => remat_session_input_data(session, name.as_ptr(), dtype, &mut data, &mut bytes),
            7 => remat_session_release_workspace(session),
            8 => {
                let mut memory: remat_memory = std::mem::zeroed();
                memory.struct_size = size_of::<remat_memory>();
                remat_session_memory(session, &mut memory)
            }
            9 => remat_session_run_into(session, place.as_ptr(), size.as_ptr(), 1),
            10 => {
                let dims = [random.below(3) as i64, 9];
                remat_session_set_input(
                    session,
                    name.as_ptr(),
                    dtype,
                    dims[1..].as_ptr(),
                    1,
                    own.as_ptr().cast(),
                    size[0],
                )
            }
            _ => {
                remat_session_is_planned(session);
                REMAT_OK
            }
        }
    }
}

#[test]
fn calls_of_several_threads_in_any_order_end_with_a_status() {
    let ((net, one), (_net, other)) = (cnn(), positive());
    drop(net);
    let targets = [
        Target { session: one.0, input: c"image", output: c"probabilities" },
        Target { session: other.0, input: c"x", output: c"squares" },
    ];
    let threads: Vec<_> = (1..=3u64)
        .map(|seed| {
            thread::spawn(move || {
                let targets = { targets };
                let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                let mut done = 0;
                for _ in 0..CALLS {
                    let target = &targets[random.below(2) as usize];
                    let status = call(target, &mut random);
                    let expected = [REMAT_OK, REMAT_VALUE, REMAT_DTYPE, REMAT_SHAPE, REMAT_NO_VALUE, REMAT_BUSY];
                    assert!(expected.contains(&status), "seed {seed}: {status:?}: {}", last());
                    done += usize::from(status == REMAT_OK);
                }
                done
            })
        })
        .collect();
    let done: usize = threads.into_iter().map(|t| t.join().expect("no panic")).sum();
    assert!(done > CALLS / 4, "{done}");
    for session in [&one, &other] {
        ok(unsafe { remat_session_wait(session.0) });
        session.run();
    }
}
