//! How results are compared.

use remat_ops::Tolerance;
use remat_ops::testing::{difference, ulp_distance};
use remat_types::{DType, HostTensor};

#[test]
fn ulps_count_representable_values() {
    assert_eq!(ulp_distance(1.0, f64::from(1.0f32 + f32::EPSILON), DType::F32), 1);
    assert_eq!(ulp_distance(0.0, -0.0, DType::F64), 0);
    assert_eq!(ulp_distance(f64::from_bits(1), -f64::from_bits(1), DType::F64), 2);
    assert_eq!(ulp_distance(f64::NAN, 1.0, DType::F64), u64::MAX);
}

#[test]
fn differences_name_the_element() {
    let a = HostTensor::from_slice(&[1.0f32, 2.0], [2]).expect("fits");
    let b = HostTensor::from_slice(&[1.0f32, 2.1], [2]).expect("fits");
    assert_eq!(difference(&a, &a, Tolerance::Exact), None);
    assert!(difference(&a, &b, Tolerance::Float).expect("differ").contains("element 1"));
    assert_eq!(difference(&a, &b, Tolerance::Loose(0.1, "test")), None);
}
