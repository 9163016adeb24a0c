use remat_nn::{
    AdaptiveAvgPool2d, BatchNorm2d, Conv2d, Conv2dOptions, Dropout, Fan, Gain, Init, InitCx, Layer, Linear,
    LinearOptions, MaxPool2d, Module, Relu, Sequential,
};
use remat_tensor::Tensor;
use remat_types::{CallSite, Padding, Result, Scope};
use serde::{Deserialize, Serialize};

/// Which [`Vgg`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VggConfig {
    /// Channels of each convolution, by stage; a stage ends by halving the extents.
    pub stages: Vec<Vec<usize>>,
    /// A batch norm follows each convolution.
    pub batch_norm: bool,
    /// Numbers of the two hidden layers of the classifier.
    pub hidden: usize,
    /// Channels of the input.
    pub channels: usize,
    /// Classes of the output.
    pub classes: usize,
    /// Probability with which a hidden number of the classifier is dropped in training.
    pub dropout: f64,
}

impl VggConfig {
    fn of(convs: [usize; 5]) -> Self {
        let stages = convs.iter().zip([64, 128, 256, 512, 512]).map(|(&n, width)| vec![width; n]).collect();
        VggConfig { stages, batch_norm: false, hidden: 4096, channels: 3, classes: 1000, dropout: 0.5 }
    }

    /// Configuration A of the paper: 132,863,336 parameters, 7.6 G multiply-adds at 224 x 224.
    pub fn vgg11() -> Self {
        VggConfig::of([1, 1, 2, 2, 2])
    }

    /// Configuration B: 133,047,848 parameters, 11.3 G multiply-adds at 224 x 224.
    pub fn vgg13() -> Self {
        VggConfig::of([2, 2, 2, 2, 2])
    }

    /// Configuration D: 138,357,544 parameters, 15.5 G multiply-adds at 224 x 224.
    pub fn vgg16() -> Self {
        VggConfig::of([2, 2, 3, 3, 3])
    }

    /// Configuration E: 143,667,240 parameters, 19.6 G multiply-adds at 224 x 224.
    pub fn vgg19() -> Self {
        VggConfig::of([2, 2, 4, 4, 4])
    }

    /// The same with batch norms.
    #[must_use]
    pub fn with_batch_norm(self) -> Self {
        VggConfig { batch_norm: true, ..self }
    }
}

/// Extents that the classifier sees.
const PLACES: usize = 7;
/// Standard deviation of the classifier's first weights.
const HEAD_STD: f64 = 0.01;

/// Convolutions of 3x3 and maxima, one after the other (Simonyan and Zisserman, ICLR 2015): `[n, channels, h, w]` to logits
/// `[n, classes]`. Parts are numbered as torchvision numbers them. Errors: as [`Conv2d`]; Shape for extents that five halvings
/// leave nothing of.
#[derive(Module)]
#[module(crate = remat_nn)]
pub struct Vgg {
    features: Sequential,
    classifier: Sequential,
}

impl Vgg {
    /// A network with scopes named `vgg`. Errors: Value for a dropout outside 0 ..= 1; Budget if it does not fit.
    pub fn new(cx: &mut InitCx, config: &VggConfig) -> Result<Self> {
        let options = Conv2dOptions {
            padding: Padding::from(1),
            weight_init: Init::KaimingNormal(Gain::Relu, Fan::Out),
            ..Conv2dOptions::default()
        };
        let (mut features, mut inputs) = (Sequential::new(), config.channels);
        for stage in &config.stages {
            for &width in stage {
                features.push(Conv2d::with(cx, inputs, width, 3, options)?);
                if config.batch_norm {
                    features.push(BatchNorm2d::new(cx, width)?);
                }
                features.push(Relu);
                inputs = width;
            }
            features.push(MaxPool2d::new(2));
        }
        let options = LinearOptions {
            weight_init: Init::Normal { mean: 0.0, std: HEAD_STD },
            bias_init: Some(Init::Zeros),
            ..LinearOptions::default()
        };
        let (mut classifier, mut inputs) = (Sequential::new(), inputs * PLACES * PLACES);
        for _ in 0..2 {
            classifier.push(Linear::with(cx, inputs, config.hidden, options)?);
            classifier.push(Relu);
            classifier.push(Dropout::new(config.dropout, &mut cx.rng)?);
            inputs = config.hidden;
        }
        classifier.push(Linear::with(cx, inputs, config.classes, options)?);
        let net = Vgg { features, classifier };
        net.name_scopes("vgg");
        Ok(net)
    }
}

impl Layer for Vgg {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        let y = AdaptiveAvgPool2d::new(PLACES).forward(&self.features.forward(x)?)?;
        self.classifier.forward(&y.flatten_from(1)?)
    }
}
