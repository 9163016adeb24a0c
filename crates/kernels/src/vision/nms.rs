//! Boxes that overlap.

use crate::maths::Real;

/// Intersection over union of two boxes `[left, top, right, bottom]`; NaN for two without an area.
pub fn iou<R: Real>(a: &[R; 4], b: &[R; 4]) -> R {
    let most = |a: R, b: R| if a > b { a } else { b };
    let least = |a: R, b: R| if a < b { a } else { b };
    let area = |b: &[R; 4]| (b[2] - b[0]) * (b[3] - b[1]);
    let width = most(least(a[2], b[2]) - most(a[0], b[0]), R::ZERO);
    let height = most(least(a[3], b[3]) - most(a[1], b[1]), R::ZERO);
    let both = width * height;
    both / (area(a) + area(b) - both)
}

/// Which of the boxes stay, from the first on: those that overlap no box which stays before them by more than `most`, of the same
/// group. `boxes: [n, 4]`, `groups: [n]` or none, `keep: [n]`, 0 or 1.
///
/// # Panics
/// If a slice is shorter.
pub fn keep_boxes<R: Real>(boxes: &[R], groups: &[i64], most: f64, keep: &mut [u8]) {
    let n = keep.len();
    let (boxes, _) = boxes.as_chunks::<4>();
    keep.fill(1);
    for i in 0..n {
        if keep[i] == 0 {
            continue;
        }
        for j in i + 1..n {
            if keep[j] == 1 && groups.get(i) == groups.get(j) && iou(&boxes[i], &boxes[j]).to_f64() > most {
                keep[j] = 0;
            }
        }
    }
}
