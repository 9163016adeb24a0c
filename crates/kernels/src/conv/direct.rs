//! Convolution by its definition, with f32 sums: for the element types that have no vector kernels.

use super::{Conv2d, ConvElement};
use crate::pool::Pool;

/// Output places of tap `t` that read source place `i`, if it is one: the inverse of `o * stride + t * dilation - pad`.
fn output_of(geom: &Conv2d, axis: usize, i: usize, t: usize, outputs: usize) -> Option<usize> {
    let at = (i + geom.pad.begin[axis]).checked_sub(t * geom.dilation[axis])?;
    (at % geom.stride[axis] == 0 && at / geom.stride[axis] < outputs).then(|| at / geom.stride[axis])
}

/// The source place that output `o` reads with tap `t`, if it is inside the image.
fn input_of(geom: &Conv2d, axis: usize, o: usize, t: usize, size: usize) -> Option<usize> {
    (o * geom.stride[axis] + t * geom.dilation[axis]).checked_sub(geom.pad.begin[axis]).filter(|&i| i < size)
}

pub(super) fn forward<T: ConvElement>(pool: &Pool, geom: &Conv2d, x: &[T], weight: &[T], y: &mut [T]) {
    let Conv2d { c, h, w, k, r, s, groups, oh, ow, .. } = *geom;
    let (gc, gk) = (c / groups, k / groups);
    pool.chunks_mut(y, oh * ow, |plane, y| {
        let (image, m) = (plane / k, plane % k);
        for (place, y) in y.iter_mut().enumerate() {
            let mut sum = T::Sum::default();
            for ch in 0..gc {
                let x = &x[(image * c + m / gk * gc + ch) * h * w..][..h * w];
                for t in 0..r {
                    let Some(row) = input_of(geom, 0, place / ow, t, h) else { continue };
                    for u in 0..s {
                        let Some(col) = input_of(geom, 1, place % ow, u, w) else { continue };
                        let tap = weight[((m * gc + ch) * r + t) * s + u];
                        sum = T::mul_add(x[row * w + col].widen(), tap.widen(), sum);
                    }
                }
            }
            *y = T::from_sum(sum);
        }
    });
}

pub(super) fn input_grad<T: ConvElement>(pool: &Pool, geom: &Conv2d, dy: &[T], weight: &[T], dx: &mut [T]) {
    let Conv2d { c, h, w, k, r, s, groups, oh, ow, .. } = *geom;
    let (gc, gk) = (c / groups, k / groups);
    pool.chunks_mut(dx, h * w, |plane, dx| {
        let (image, ch) = (plane / c, plane % c);
        for (place, dx) in dx.iter_mut().enumerate() {
            let mut sum = T::Sum::default();
            for m in ch / gc * gk..(ch / gc + 1) * gk {
                let dy = &dy[(image * k + m) * oh * ow..][..oh * ow];
                for t in 0..r {
                    let Some(row) = output_of(geom, 0, place / w, t, oh) else { continue };
                    for u in 0..s {
                        let Some(col) = output_of(geom, 1, place % w, u, ow) else { continue };
                        let tap = weight[((m * gc + ch % gc) * r + t) * s + u];
                        sum = T::mul_add(dy[row * ow + col].widen(), tap.widen(), sum);
                    }
                }
            }
            *dx = T::from_sum(sum);
        }
    });
}

pub(super) fn weight_grad<T: ConvElement>(pool: &Pool, geom: &Conv2d, x: &[T], dy: &[T], dw: &mut [T]) {
    let Conv2d { n, c, h, w, k, r, s, groups, oh, ow, .. } = *geom;
    let (gc, gk) = (c / groups, k / groups);
    pool.chunks_mut(dw, r * s, |plane, dw| {
        let (m, ch) = (plane / gc, plane % gc);
        for (tap, dw) in dw.iter_mut().enumerate() {
            let mut sum = T::Sum::default();
            for image in 0..n {
                let x = &x[(image * c + m / gk * gc + ch) * h * w..][..h * w];
                let dy = &dy[(image * k + m) * oh * ow..][..oh * ow];
                for i in 0..oh {
                    let Some(row) = input_of(geom, 0, i, tap / s, h) else { continue };
                    for j in 0..ow {
                        let Some(col) = input_of(geom, 1, j, tap % s, w) else { continue };
                        sum = T::mul_add(x[row * w + col].widen(), dy[i * ow + j].widen(), sum);
                    }
                }
            }
            *dw = T::from_sum(sum);
        }
    });
}
