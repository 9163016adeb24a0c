//! Layers of images: their state, shapes, and what they refuse.

use remat_nn::{
    AdaptiveMaxPool2d, AvgPool3d, BatchNorm2d, BatchNormOptions, ChannelShuffle, Conv2d, Conv2dOptions, DeformConv2d,
    Fold, GeneralNorm, GlobalAvgPool, GroupNorm, InitCx, InstanceNorm, Layer, LocalConv2d, LocalResponseNorm,
    MaxPool1d, Module, Pad2d, PadMode, Patches, PixelShuffle, PixelUnshuffle, RegionRestrictedConv2d, Unfold, Upsample,
};
use remat_runtime::Device;
use remat_tensor::Tensor;
use remat_types::{DType, ErrorKind};

fn device() -> Device {
    Device::cpu(Default::default()).expect("opens")
}

fn ones(d: &Device, shape: &[usize]) -> Tensor {
    Tensor::ones(d, shape, DType::F32).expect("fits")
}

fn shape_of(layer: &dyn Layer, x: &Tensor) -> Vec<usize> {
    layer.forward(x).expect("has an output").dims().to_vec()
}

#[test]
fn layers_of_images_give_the_shapes_that_they_say() {
    let d = device();
    let image = ones(&d, &[2, 4, 6, 6]);
    let windows = Patches { stride: [2, 2], ..Patches::new([2, 2]) };
    let all: Vec<(Box<dyn Layer>, &[usize])> = vec![
        (Box::new(Pad2d::reflect([[1, 2], [0, 3]])), &[2, 4, 9, 9]),
        (Box::new(Pad2d::circular(2)), &[2, 4, 10, 10]),
        (Box::new(PixelShuffle(2)), &[2, 1, 12, 12]),
        (Box::new(PixelUnshuffle(3)), &[2, 36, 2, 2]),
        (Box::new(ChannelShuffle(2)), &[2, 4, 6, 6]),
        (Box::new(Unfold { patches: windows }), &[2, 16, 9]),
        (Box::new(AdaptiveMaxPool2d::new([3, 1])), &[2, 4, 3, 1]),
        (Box::new(GlobalAvgPool), &[2, 4, 1, 1]),
        (Box::new(Upsample::new(1.5)), &[2, 4, 9, 9]),
        (Box::new(LocalResponseNorm::new(3)), &[2, 4, 6, 6]),
    ];
    for (layer, want) in all {
        assert_eq!(shape_of(&*layer, &image), want);
    }
    assert_eq!(shape_of(&Fold { size: [6, 6], patches: windows }, &ones(&d, &[2, 16, 9])), [2, 4, 6, 6]);
    let local = LocalConv2d::with(&mut InitCx::new(&d, 1), 4, 8, 6, [3, 2], Conv2dOptions::default()).expect("fits");
    assert_eq!((local.parameter_count(), shape_of(&local, &image)), (4 * 5 * 4 * 6 * 8, vec![2, 8, 4, 5]));
    assert_eq!(shape_of(&MaxPool1d::new([2]), &ones(&d, &[1, 2, 5])), [1, 2, 2]);
    assert_eq!(shape_of(&AvgPool3d::new([2; 3]), &ones(&d, &[1, 2, 4, 4, 5])), [1, 2, 2, 2, 2]);
}

#[test]
fn norms_have_weights_where_they_are_asked_for() {
    let d = device();
    let cx = &mut InitCx::new(&d, 1);
    let names = |m: &dyn Layer| m.named_state().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names(&GroupNorm::new(cx, 2, 4).expect("fits")), ["weight", "bias"]);
    assert!(names(&InstanceNorm::new(cx, 4).expect("fits")).is_empty());
    assert_eq!(names(&GeneralNorm::new(cx, &[1], [4]).expect("fits")), ["weight", "bias"]);
    let with = |o| BatchNorm2d::with(&mut InitCx::new(&d, 1), 4, o).expect("fits");
    let plain = BatchNormOptions::default();
    assert_eq!(names(&with(BatchNormOptions { affine: false, ..plain })), ["running_mean", "running_var"]);
    assert_eq!(names(&with(BatchNormOptions { track_running_stats: false, ..plain })), ["weight", "bias"]);
    let counting = with(BatchNormOptions { cumulative: true, ..plain });
    assert_eq!(names(&counting), ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]);
    let frozen = with(BatchNormOptions { frozen: true, ..plain });
    frozen.forward(&ones(&d, &[2, 4, 3, 3])).expect("has an output");
    assert_eq!(frozen.running_mean.to_host().expect("a value").to_f64_vec(), [0.0; 4], "nothing moves");
    let e = BatchNorm2d::with(cx, 4, BatchNormOptions { frozen: true, track_running_stats: false, ..plain });
    assert_eq!(e.err().expect("normalises by nothing").kind(), ErrorKind::Value);
    assert_eq!(GroupNorm::new(cx, 3, 4).err().expect("3 of 4").kind(), ErrorKind::Value);
    let e = GroupNorm::new(cx, 2, 4).expect("fits").forward(&ones(&d, &[1, 6, 2])).expect_err("other channels");
    assert_eq!(e.kind(), ErrorKind::Shape);
}

#[test]
fn a_deformed_convolution_without_offsets_is_the_plain_one() {
    let d = device();
    let cx = &mut InitCx::new(&d, 7);
    let options = Conv2dOptions { padding: 1.into(), groups: 2, ..Conv2dOptions::default() };
    let layer = DeformConv2d::with(cx, 4, 6, 3, options).expect("fits");
    let plain = Conv2d::with(cx, 4, 6, 3, options).expect("fits");
    plain.weight.set(&layer.weight.get().expect("is there")).expect("fits");
    let bias = layer.bias.as_ref().expect("has one").get().expect("is there");
    plain.bias.as_ref().expect("has one").set(&bias).expect("fits");
    let x = Tensor::normal(&Tensor::new(&d, &[7u64, 0], [2]).expect("fits"), [2, 4, 5, 5], DType::F32, 0.0, 1.0);
    let x = x.expect("fits");
    let offset = Tensor::zeros(&d, [2, 18, 5, 5], DType::F32).expect("fits");
    let (a, b) = (layer.forward(&x, &offset, None).expect("fits"), plain.forward(&x).expect("fits"));
    // sums of 18 products in another order
    assert!(a.allclose(&b, 1e-6, 1e-6).expect("alike").item::<bool>().expect("a value"));
    let e = DeformConv2d::with(cx, 4, 6, 3, Conv2dOptions { padding_mode: PadMode::Reflect, ..options });
    assert_eq!(e.err().expect("zeros only").kind(), ErrorKind::Value);
}

#[test]
fn a_convolution_restricted_to_one_region_is_the_plain_one_and_to_another_is_its_bias() {
    let d = device();
    let cx = &mut InitCx::new(&d, 7);
    let layer = RegionRestrictedConv2d::with(cx, 2, 3, 3, Conv2dOptions::default()).expect("fits");
    let plain = Conv2d::with(cx, 2, 3, 3, Conv2dOptions::default()).expect("fits");
    plain.weight.set(&layer.weight.get().expect("is there")).expect("fits");
    let bias = layer.bias.as_ref().expect("has one").get().expect("is there");
    plain.bias.as_ref().expect("has one").set(&bias).expect("fits");
    let x = Tensor::normal(&Tensor::new(&d, &[7u64, 0], [2]).expect("fits"), [1, 2, 5, 4], DType::F32, 0.0, 1.0);
    let x = x.expect("fits");
    let region = |h, w, of: i32| Tensor::full(&d, [1, 1, h, w], DType::I32, of).expect("fits");
    let own = layer.forward(&x, &region(5, 4, 1), &region(3, 2, 1)).expect("fits");
    // sums of 18 products in another order
    let alike = own.allclose(&plain.forward(&x).expect("fits"), 1e-6, 1e-6).expect("alike");
    assert!(alike.item::<bool>().expect("a value"));
    let other = layer.forward(&x, &region(5, 4, 1), &region(3, 2, 0)).expect("fits");
    let bias = bias.reshape(&[1, 3, 1, 1]).expect("fits").broadcast_to([1, 3, 3, 2]).expect("fits");
    let numbers = |t: &Tensor| t.to_vec::<f32>().expect("values");
    assert_eq!(numbers(&other), numbers(&bias));
}
