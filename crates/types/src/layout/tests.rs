use proptest::prelude::*;

use super::*;

/// A layout made by a few random views of a contiguous tensor.
fn views() -> impl Strategy<Value = (Layout, usize)> {
    (prop::collection::vec(1usize..5, 0..5), prop::collection::vec((0usize..4, any::<u16>()), 0..4)).prop_map(
        |(dims, steps)| {
            let mut l = Layout::contiguous(dims);
            let elems = l.elems();
            for (kind, r) in steps {
                let r = r as usize;
                if l.rank() == 0 {
                    continue;
                }
                let axis = r % l.rank();
                l = match kind {
                    0 => {
                        let mut order: Vec<usize> = (0..l.rank()).collect();
                        order.swap(axis, (r / 7) % l.rank());
                        l.permute(&order).expect("a swap is a permutation")
                    }
                    1 => {
                        let n = l.shape()[axis];
                        l.slice(axis, n - 1, n, -1).expect("a flip stays inside")
                    }
                    2 => {
                        let n = l.shape()[axis];
                        let start = (r / 5) % n;
                        l.slice(axis, start, (n - start).div_ceil(2), 2).expect("every second one stays inside")
                    }
                    _ => {
                        let mut s = Shape::from([2]);
                        l.shape().iter().for_each(|&d| s.push(d));
                        l.broadcast_to(&s).expect("a new leading axis broadcasts")
                    }
                };
            }
            (l, elems)
        },
    )
}

proptest! {
    #[test]
    fn every_index_of_a_view_lies_in_its_span((l, elems) in views()) {
        let (lo, hi) = l.span().expect("small");
        prop_assert!(l.fits(elems));
        let all: Vec<usize> = l.indices().collect();
        prop_assert_eq!(all.len(), l.elems());
        prop_assert_eq!(all.iter().min().copied(), Some(lo));
        prop_assert_eq!(all.iter().max().map(|m| m + 1), Some(hi));
    }

    #[test]
    fn a_reshape_without_a_copy_keeps_the_order((l, _) in views(), cut in 1usize..7) {
        let n = l.elems();
        let shape = if n.is_multiple_of(cut) { Shape::from([cut, 1, n / cut]) } else { Shape::from([n]) };
        if let Some(r) = l.reshape(&shape) {
            prop_assert_eq!(l.indices().collect::<Vec<_>>(), r.indices().collect::<Vec<_>>());
            prop_assert_eq!(r.shape(), &shape);
        } else {
            prop_assert!(!l.is_contiguous());
        }
    }

    #[test]
    fn contiguous_means_indices_count_up((l, _) in views()) {
        let ascending = l.indices().enumerate().all(|(i, at)| at == l.offset() + i);
        prop_assert_eq!(l.is_contiguous(), ascending);
    }
}

#[test]
fn splitting_an_axis_of_a_transposed_view_needs_no_copy() {
    let t = Layout::contiguous([4, 6]).permute(&[1, 0]).expect("permutation");
    let r = t.reshape(&Shape::from([2, 3, 4])).expect("splits one axis");
    assert_eq!(r.strides(), &[3, 1, 6]);
    assert!(t.reshape(&Shape::from([24])).is_none(), "merging transposed axes needs a copy");
}

#[test]
fn hostile_layouts_do_not_fit() {
    assert!(!Layout::new([2], &[isize::MAX], usize::MAX).expect("rank 1").fits(10));
    assert!(!Layout::new([3], &[-1], 1).expect("rank 1").fits(10), "reaches below zero");
    assert!(Layout::new([3], &[-1], 2).expect("rank 1").fits(3));
    assert!(Layout::contiguous([2]).slice(0, 1, 2, 1).is_err());
    assert!(Layout::contiguous([2]).slice(0, 0, 0, 1).is_ok());
}

#[test]
fn a_slice_of_nothing_stays_where_it_is() {
    let empty = Layout::contiguous([0, 3]);
    assert_eq!(empty.slice(1, 2, 1, 1).expect("column 2 of no rows").offset(), 0);
    assert_eq!(empty.slice(1, 2, 3, -1).expect("a flip of no rows").offset(), 0);
}
