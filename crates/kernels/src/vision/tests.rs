use super::*;
use crate::pool::Pool;

fn matrix(plan: Resampling) -> Vec<Vec<f64>> {
    let most = plan.most();
    let (mut runs, mut readers) = (vec![[0; 2]; plan.out], vec![[0; 2]; plan.size]);
    let (mut weights, mut scratch) = (vec![0.0f64; plan.out * most], vec![0.0; most.max(1)]);
    let table = Table::build(&plan, &mut runs, &mut weights, &mut readers, &mut scratch);
    let pool = Pool::new(1);
    let mut identity = vec![0.0; plan.size * plan.size];
    (0..plan.size).for_each(|i| identity[i * plan.size + i] = 1.0);
    let mut y = vec![0.0; plan.out * plan.size];
    resample(&pool, &table, plan.size, &identity, &mut y);
    let mut back = vec![0.0; plan.out * plan.size];
    let mut unit = vec![0.0; plan.out * plan.out];
    (0..plan.out).for_each(|o| unit[o * plan.out + o] = 1.0);
    resample_transposed(&pool, &table, plan.out, &unit, &mut back);
    for o in 0..plan.out {
        for i in 0..plan.size {
            assert_eq!(y[o * plan.size + i], back[i * plan.out + o], "{plan:?}: place {i} of output {o}");
        }
    }
    y.chunks(plan.size).map(<[f64]>::to_vec).collect()
}

#[test]
fn the_transpose_of_every_rule_has_its_weights() {
    for size in 1..9usize {
        for out in 1..12usize {
            let scale = size as f64 / out as f64;
            let shift = 0.5 * scale - 0.5;
            for rule in [
                Rule::Linear { scale, shift },
                Rule::Cubic { scale, shift },
                Rule::SmoothLinear { scale },
                Rule::SmoothCubic { scale },
                Rule::Mean,
            ] {
                for row in matrix(Resampling { size, out, rule }) {
                    assert!(
                        (row.iter().sum::<f64>() - 1.0).abs() <= 32.0 * f64::EPSILON,
                        "{rule:?} of {size} to {out}: {row:?}"
                    );
                }
            }
        }
    }
    let sum = Rule::Sum { kernel: 2, stride: 2, dilation: 2, before: 1 };
    let rows = matrix(Resampling { size: 4, out: 2, rule: sum });
    assert_eq!(rows, [[0.0, 1.0, 0.0, 0.0], [0.0, 1.0, 0.0, 1.0]]);
}

#[test]
fn boxes_that_overlap_one_before_them_go() {
    let boxes = [0.0f32, 0., 2., 2., 0., 0., 2., 1.5, 3., 3., 4., 4., 0., 0., 2., 2.];
    let mut keep = [0; 4];
    keep_boxes(&boxes, &[], 0.5, &mut keep);
    assert_eq!(keep, [1, 0, 1, 0]);
    keep_boxes(&boxes, &[0, 0, 0, 1], 0.5, &mut keep);
    assert_eq!(keep, [1, 0, 1, 1]);
}
