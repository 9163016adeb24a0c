//! Reads of whole warps beside reads of each lane.

use super::*;

/// Words of the memories that are compared.
const WORDS: u32 = 96;

fn drawn(state: &mut u32, below: u32) -> u32 {
    *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    (*state >> 8) % below
}

/// Offsets of a warp as kernels have them: one word for each half, words in a row, or any.
fn pattern(state: &mut u32) -> [u64; LANES] {
    let (kind, starts) = (drawn(state, 4), [drawn(state, WORDS - 16), drawn(state, WORDS - 16)]);
    std::array::from_fn(|lane| {
        let word = match kind {
            0 => starts[lane / HALF],
            1 => starts[0] + (lane % HALF) as u32,
            2 => starts[lane / HALF] + (lane % HALF) as u32,
            _ => drawn(state, WORDS),
        };
        4 * u64::from(word)
    })
}

#[test]
fn reads_of_warps_are_noted_as_those_of_their_lanes() {
    let mut state = 1;
    let [mut by_warps, mut by_lanes] = [0; 2].map(|_| Shared::new(4 * WORDS, true));
    for step in 0..4000 {
        if step % 40 == 0 {
            let writer = drawn(&mut state, 64) as usize;
            for shared in [&mut by_warps, &mut by_lanes] {
                shared.pass_barrier();
                for word in 0..WORDS {
                    shared.write(4 * u64::from(word), 4, u64::from(word), writer, Use::Write).expect("no race");
                }
                if step % 80 == 0 {
                    shared.pass_barrier();
                }
            }
        }
        let (warp, addresses) = (drawn(&mut state, 4) as usize, pattern(&mut state));
        let mask = [u32::MAX, u32::MAX, 1 << drawn(&mut state, 32), drawn(&mut state, 1 << 24) << 4 | 1];
        let mask = mask[drawn(&mut state, 4) as usize];
        if drawn(&mut state, 8) == 0 {
            by_warps.pass_sync(warp);
            by_lanes.pass_sync(warp);
        }
        let mut rows = [[0; LANES]; 4];
        let found = by_warps.read_words::<1>(&addresses, warp, mask, Use::Read, &mut rows);
        let mut wanted = Ok(());
        for lane in lanes(mask) {
            let thread = warp * LANES + lane;
            match by_lanes.read(addresses[lane], 4, thread, Use::Read) {
                Ok(word) if found.is_ok() => assert_eq!(u64::from(rows[0][lane]), word),
                Ok(_) => {}
                Err(trouble) => {
                    wanted = Err(trouble.by(thread));
                    break;
                }
            }
        }
        let told = |t: Tried<()>| t.map_err(|t| (t.kind, t.thread, t.address, t.message));
        let is_race = wanted.is_err();
        assert_eq!(told(found), told(wanted), "step {step}");
        // behind a race the noted uses of later lanes do not matter
        if is_race {
            by_warps.cells.clone_from(&by_lanes.cells);
        }
        let known = |shared: &Shared| shared.cells.iter().map(|cell| by_thread::known(*cell)).collect::<Vec<_>>();
        assert_eq!(known(&by_warps), known(&by_lanes), "step {step}");
    }
}
