use proptest::prelude::*;

use super::*;

const ALIGN_BYTES: usize = Alignment::HOST.bytes();

#[derive(Clone, Debug)]
enum Step {
    Alloc(usize, bool),
    Free(usize),
    Compact,
    Grow(usize),
    Shrink(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => (0usize..2000, any::<bool>()).prop_map(|(b, low)| Step::Alloc(b, low)),
        4 => any::<usize>().prop_map(Step::Free),
        1 => Just(Step::Compact),
        1 => (0usize..16384).prop_map(Step::Grow),
        1 => (0usize..16384).prop_map(Step::Shrink),
    ];
    prop::collection::vec(step, 1..120)
}

/// The reference model: one owner per alignment unit.
struct Model(Vec<Option<Owner>>);

impl Model {
    /// Length of the smallest free run that holds `units`, if one does.
    fn best_fit(&self, units: usize) -> Option<usize> {
        self.0.split(Option::is_some).map(<[_]>::len).filter(|&l| l >= units && l > 0).min()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn the_arena_agrees_with_a_map_of_units(steps in steps()) {
        let mut arena = Arena::new(8192, Alignment::HOST);
        let mut model = Model(vec![None; 8192 / ALIGN_BYTES]);
        let mut held: Vec<(Owner, usize, Block)> = Vec::new();
        let mut next: Owner = 0;
        for step in steps {
            match step {
                Step::Alloc(bytes, low) => {
                    next += 1;
                    let want = Alignment::HOST.pad(bytes) / ALIGN_BYTES;
                    let end = if low { End::Low } else { End::High };
                    // `alloc` takes a kept block whole. It merges kept blocks only when no other range fits.
                    let kept: Vec<(usize, usize)> = arena.kept_ranges().collect();
                    let mut seen = Model(model.0.clone());
                    kept.iter().for_each(|&(start, end)| seen.0[start..end].fill(Some(0)));
                    let (all, fit) = (model.best_fit(want), seen.best_fit(want));
                    let fit = fit.or(all);
                    let seen = if seen.best_fit(want).is_some() { &seen } else { &model };
                    match arena.alloc(bytes, next, end) {
                        Some(b) if bytes > 0 => {
                            prop_assert_eq!(b.bytes(), want * ALIGN_BYTES);
                            let range = b.start() / ALIGN_BYTES..b.end() / ALIGN_BYTES;
                            prop_assert!(model.0[range.clone()].iter().all(Option::is_none), "overlap");
                            if !kept.contains(&(range.start, range.end)) {
                                let left = seen.0[..range.start].iter().rev().take_while(|o| o.is_none()).count();
                                let right = seen.0[range.end..].iter().take_while(|o| o.is_none()).count();
                                prop_assert_eq!(Some(left + want + right), fit, "not the best fit");
                                prop_assert_eq!(if low { left } else { right }, 0, "not at the end asked for");
                            }
                            model.0[range].fill(Some(next));
                            held.push((next, bytes, b));
                        }
                        Some(b) => prop_assert_eq!(b.bytes(), 0),
                        None => prop_assert_eq!(all, None),
                    }
                }
                Step::Free(i) if !held.is_empty() => {
                    let (_, asked, b) = held.swap_remove(i % held.len());
                    model.0[b.start() / ALIGN_BYTES..b.end() / ALIGN_BYTES].fill(None);
                    arena.free(b, asked);
                }
                Step::Free(_) => {}
                Step::Compact => {
                    let mut moves = Vec::new();
                    arena.compact(|o, from, block| moves.push((o, from, block)));
                    for (o, from, block) in moves {
                        prop_assert!(block.start() < from);
                        let h = held.iter_mut().find(|h| h.0 == o).expect("a held block moved");
                        prop_assert_eq!((h.2.start(), h.2.bytes()), (from, block.bytes()));
                        h.2 = block;
                    }
                    model.0.fill(None);
                    for (o, _, b) in &held {
                        model.0[b.start() / ALIGN_BYTES..b.end() / ALIGN_BYTES].fill(Some(*o));
                    }
                }
                Step::Grow(c) => {
                    arena.grow(c);
                    model.0.resize(model.0.len().max(c / ALIGN_BYTES), None);
                }
                Step::Shrink(c) => {
                    let to = arena.shrink(c);
                    let tail = model.0.iter().rev().take_while(|o| o.is_none()).count();
                    let want = (c / ALIGN_BYTES).max(model.0.len() - tail).min(model.0.len());
                    prop_assert_eq!(to, want * ALIGN_BYTES);
                    model.0.truncate(want);
                }
            }
            if let Err(e) = arena.verify() {
                prop_assert!(false, "{}", e);
            }
            // `figures` merges kept blocks. The test asks for them now and then only, or no block would stay kept.
            if next.is_multiple_of(3) {
                continue;
            }
            let f = arena.figures();
            prop_assert_eq!(f.padding, held.iter().map(|(_, asked, b)| b.bytes() - asked).sum::<usize>());
            let largest = model.0.split(Option::is_some).map(<[_]>::len).max().unwrap_or(0);
            prop_assert_eq!(f.largest_free, largest * ALIGN_BYTES);
        }
    }
}

#[test]
fn a_block_can_be_placed_exactly() {
    let mut a = Arena::new(640, Alignment::HOST);
    let x = a.alloc(100, 1, End::Low).expect("fits");
    let y = a.alloc(64, 2, End::High).expect("fits");
    assert_eq!((x.start(), x.bytes(), y.end()), (0, 128, 640));
    assert!(a.alloc_at(64, 64, 3).is_none(), "taken");
    let z = a.alloc_at(192, 64, 3).expect("free");
    assert_eq!((z.start(), z.end()), (192, 256));
    assert_eq!(a.figures().padding, 28);
    assert!(a.alloc(usize::MAX, 4, End::Low).is_none());
    assert!(a.alloc_at(usize::MAX, 64, 4).is_none());
}

#[test]
fn a_small_block_is_kept_for_the_next_of_its_size_and_merged_for_a_larger_one() {
    let mut a = Arena::new(640, Alignment::HOST);
    let held: Vec<Block> = (0..10).map(|i| a.alloc(64, i, End::Low).expect("fits")).collect();
    let at: Vec<usize> = held.iter().map(Block::start).collect();
    held.into_iter().for_each(|b| a.free(b, 64));
    assert_eq!((a.in_use(), a.kept_ranges().count()), (0, 10));
    assert_eq!(a.alloc(50, 1, End::Low).map(|b| b.start()), at.last().copied(), "the one freed last");
    assert_eq!(a.alloc(128, 2, End::Low).map(|b| b.bytes()), Some(128), "merged, for nothing else would hold it");
    assert_eq!((a.kept_ranges().count(), a.figures().largest_free), (0, 448));
}

#[test]
fn a_block_below_a_limit_takes_the_lowest_room_and_never_crosses_it() {
    let mut a = Arena::new(10 * ALIGN_BYTES, Alignment::HOST);
    let low = a.alloc_below(4 * ALIGN_BYTES, 3 * ALIGN_BYTES, 1).expect("room for three");
    assert_eq!((low.start(), low.bytes()), (0, 3 * ALIGN_BYTES));
    assert!(!a.has_room_below(4 * ALIGN_BYTES, 2 * ALIGN_BYTES) && a.has_room_below(5 * ALIGN_BYTES, 2 * ALIGN_BYTES));
    assert!(a.alloc_below(4 * ALIGN_BYTES, 2 * ALIGN_BYTES, 2).is_none());
    assert!(a.is_free(3 * ALIGN_BYTES, 7 * ALIGN_BYTES) && !a.is_free(2 * ALIGN_BYTES, ALIGN_BYTES));
    let high = a.alloc_at(8 * ALIGN_BYTES, 2 * ALIGN_BYTES, 3).expect("free");
    assert!(!a.is_free(7 * ALIGN_BYTES, 2 * ALIGN_BYTES));
    a.free(low, 3 * ALIGN_BYTES);
    assert_eq!(a.alloc_below(ALIGN_BYTES, 1, 4).expect("freed").start(), 0);
    a.verify().expect("consistent");
    a.free(high, 2 * ALIGN_BYTES);
}

#[test]
fn looks_go_round_and_each_sees_neighbours() {
    let mut a = Arena::new(10 * ALIGN_BYTES, Alignment::HOST);
    let held: Vec<Block> = (0..10).map(|i| a.alloc(ALIGN_BYTES, i, End::Low).expect("fits")).collect();
    let mut look = |most: usize| a.look(most).map(|s| s.owner.expect("used")).collect::<Vec<Owner>>();
    assert_eq!(look(4), [0, 1, 2, 3]);
    assert_eq!(look(4), [4, 5, 6, 7]);
    assert_eq!(look(4), [6, 7, 8, 9], "as many as asked for, at the end too");
    assert_eq!(look(4), [0, 1, 2, 3]);
    assert_eq!(look(10), (0..10).collect::<Vec<Owner>>(), "all of them, from the beginning");
    // Frees the block at which the next look would begin, and its neighbour.
    let mut held = held;
    let rest = held.split_off(6);
    held.drain(4..).for_each(|b| a.free(b, ALIGN_BYTES));
    assert_eq!(a.look(2).map(|s| s.bytes).collect::<Vec<usize>>(), [2 * ALIGN_BYTES, ALIGN_BYTES]);
    a.compact(|_, _, _| ());
    assert_eq!(a.look(3).count(), 3);
    a.verify().expect("consistent");
    drop((held, rest));
}
