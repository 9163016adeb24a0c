use super::*;

fn values(len: usize, seed: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7919 + seed * 104_729) % 1009) as f32 / 504.0 - 1.0).collect()
}

/// Mean and variance of a channel, and the sums of `dy` and `dy (x - mean) / sd`, by plain loops in f64.
fn plain(d: BatchDims, eps: f64, x: &[f32], dy: &[f32], channel: usize) -> [f64; 4] {
    let all = || (0..d.n).flat_map(|i| d.row(i, channel));
    let count = d.count() as f64;
    let mean = all().map(|at| f64::from(x[at])).sum::<f64>() / count;
    let var = all().map(|at| (f64::from(x[at]) - mean).powi(2)).sum::<f64>() / count;
    let sum = all().map(|at| f64::from(dy[at])).sum();
    let moment = all().map(|at| f64::from(dy[at]) * (f64::from(x[at]) - mean) / (var + eps).sqrt()).sum();
    [mean, var, sum, moment]
}

/// Rows of one element, shorter and longer than vectors, just below and from what is a run by itself on; images that fill no
/// run, one, and some; a channel that is too large for a cache beside the next one.
#[test]
fn batch_norm_is_what_plain_loops_say_for_any_number_of_threads() {
    let eps = 1e-3;
    for (n, c, s) in [
        (5, 33, 1),
        (300, 3, 4),
        (1, 2, 7),
        (9, 4, 49),
        (21, 2, 49),
        (3, 5, 511),
        (3, 5, 512),
        (2, 3, 1500),
        (40, 2, 256),
        (4, 40, 16),
        (2, 2, if cfg!(miri) { 1 } else { 70_001 }),
    ] {
        let d = BatchDims { n, c, s };
        let len = n * c * s;
        let (x, dy, scale, bias) = (values(len, 1), values(len, 2), values(c, 3), values(c, 4));
        let run = |threads: usize| {
            let pool = Pool::new(threads);
            let (mut y, mut dx) = (vec![f32::NAN; len], vec![f32::NAN; len]);
            let [mut mean, mut var, mut dscale, mut dbias] = [(); 4].map(|()| vec![f32::NAN; c]);
            batch_norm(&pool, d, eps, &x, &scale, &bias, &mut y, &mut mean, &mut var);
            batch_norm_grad(&pool, d, eps, &x, &scale, &mean, &var, &dy, &mut dx, &mut dscale, &mut dbias);
            (y, dx, [mean, var, dscale, dbias])
        };
        let (y, dx, [mean, var, dscale, dbias]) = run(1);
        // Some roundings of f32, of the mean among them, on values of about `of`: half of this is too little.
        let near = |got: f32, want: f64, of: f64, what: &str| {
            assert!(
                (f64::from(got) - want).abs() <= 8.0 * f64::from(f32::EPSILON) * of,
                "{what} of {n}x{c}x{s}: {got}, not {want}"
            );
        };
        for k in 0..c {
            let [m, v, sum, moment] = plain(d, eps, &x, &dy, k);
            let terms = d.count() as f64;
            near(mean[k], m, 1.0, "mean");
            near(var[k], v, 1.0, "variance");
            near(dbias[k], sum, terms.max(1.0), "gradient of the bias");
            near(dscale[k], moment, terms.max(1.0), "gradient of the scale");
            let sd = (v + eps).sqrt();
            for at in (0..n).flat_map(|i| d.row(i, k)) {
                let (hat, g) = ((f64::from(x[at]) - m) / sd, f64::from(dy[at]));
                let scale = f64::from(scale[k]);
                near(y[at], hat * scale + f64::from(bias[k]), 1.0 / sd, "result");
                near(dx[at], scale / sd * (g - sum / terms - hat * moment / terms), 4.0 / sd, "gradient");
            }
        }
        for threads in [2, 3] {
            let other = run(threads);
            assert!(other.0 == y && other.1 == dx, "{n}x{c}x{s}, {threads} threads");
            assert!(other.2 == [mean.clone(), var.clone(), dscale.clone(), dbias.clone()], "{n}x{c}x{s}");
        }
    }
}

/// A normalised row does not depend on its scale, even if the squares overflow or vanish.
#[test]
fn rows_of_any_scale_are_normalised() {
    fn go<T: FloatElement>(by: i32, near: f64) {
        let (rows, s) = (3, 37);
        let of = |v: Vec<f32>, by: f64| v.iter().map(|v| T::from_f64(f64::from(*v) * by)).collect::<Vec<T>>();
        let (scale, bias, dy) = (of(values(s, 3), 1.0), of(values(s, 4), 1.0), of(values(rows * s, 2), 1.0));
        let run = |by: f64| {
            let (pool, x) = (Pool::new(1), of(values(rows * s, 1), by));
            let [mut y, mut dx, mut z, mut dz] = [(); 4].map(|()| vec![T::default(); rows * s]);
            let [mut dscale, mut dbias, mut dgain] = [(); 3].map(|()| vec![T::default(); s]);
            let mut workspace = vec![T::Real::ZERO; layer_norm_grad_workspace_elems(rows, s)];
            layer_norm(&pool, s, 0.0, &x, &scale, &bias, &mut y);
            layer_norm_grad(&pool, s, 0.0, &x, &scale, &dy, &mut dx, &mut dscale, &mut dbias, &mut workspace);
            rms_norm(&pool, s, 0.0, &x, &scale, &mut z);
            rms_norm_grad(&pool, s, 0.0, &x, &scale, &dy, &mut dz, &mut dgain, &mut workspace);
            let plain = |v: Vec<T>, by: f64| v.into_iter().map(|v| v.to_f64() * by).collect::<Vec<f64>>();
            [
                plain(y, 1.0),
                plain(dx, by),
                plain(dscale, 1.0),
                plain(dbias, 1.0),
                plain(z, 1.0),
                plain(dz, by),
                plain(dgain, 1.0),
            ]
        };
        for (what, (got, want)) in run(2f64.powi(by)).into_iter().zip(run(1.0)).enumerate() {
            let far = got.iter().zip(&want).find(|(g, w)| (**g - **w).abs() > near * (1.0 + w.abs()));
            assert!(far.is_none(), "result {what} at 2^{by}: {far:?}");
        }
    }
    for by in [-120, -80, 62, 80, 125] {
        go::<f32>(by, 2e-5);
    }
    for by in [-1000, -600, 600, 1000] {
        go::<f64>(by, 1e-12);
    }
    // the same of the channels of batches, a column and rows
    for s in [1, 5, 600] {
        let d = BatchDims { n: 4, c: 3, s };
        let (dy, scale, bias) = (values(12 * s, 2), values(3, 3), values(3, 4));
        let run = |by: f32| {
            let (pool, x) = (Pool::new(1), values(12 * s, 1).iter().map(|v| v * by).collect::<Vec<f32>>());
            let [mut y, mut dx] = [(); 2].map(|()| vec![0.0f32; 12 * s]);
            let [mut mean, mut var, mut dscale, mut dbias] = [(); 4].map(|()| vec![0.0f32; 3]);
            batch_norm(&pool, d, 0.0, &x, &scale, &bias, &mut y, &mut mean, &mut var);
            batch_norm_grad(&pool, d, 0.0, &x, &scale, &mean, &var, &dy, &mut dx, &mut dscale, &mut dbias);
            mean.iter_mut().for_each(|v| *v /= by);
            dx.iter_mut().for_each(|v| *v *= by);
            [y, mean, dx, dscale, dbias].concat()
        };
        for by in [-100, -80, 62, 80, 120].map(|by| 2f32.powi(by)) {
            for (at, (got, want)) in run(by).into_iter().zip(run(1.0)).enumerate() {
                assert!((got - want).abs() <= 1e-4 * (1.0 + want.abs()), "{at} of {s} by {by}: {got}, not {want}");
            }
        }
    }
    // what holds an infinity or NaN, or zeros alone, has no scale
    for x in [[f32::INFINITY, 1.0], [f32::NAN, 1.0], [0.0, 0.0]] {
        let mut y = [0.0f32; 2];
        layer_norm(&Pool::new(1), 2, 0.0, &x, &[1.0, 1.0], &[0.0, 0.0], &mut y);
        assert!(y.iter().any(|v| v.is_nan()), "{x:?} gives {y:?}");
    }
}
