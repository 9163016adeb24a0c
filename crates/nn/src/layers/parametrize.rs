//! Weights that are functions of other parameters.
//!
//! The layer within reads its weight as ever; while it runs, the parameter of that name has the computed value, with its
//! history. What the weight is computed from takes its place in the traversal, under PyTorch's names. One layer runs at a
//! time: a second thread would read the first one's value.

use remat_tensor::{Tensor, no_grad};
use remat_types::{CallSite, Error, ErrorKind, Result, Scope};

use crate::visit::visit_instead;
use crate::{Layer, Mode, Module, Parameter, Rng, Visit, Walk, update};

/// Kept away from zero: a norm's divisor.
const NORM_LEAST: f64 = 1e-12;

/// The parameter of this name. Errors: Value for one that is not there, or is a vector.
fn matrix_of<L: Module>(layer: &L, name: &str) -> Result<Parameter> {
    let found = layer.named_parameters().into_iter().find(|(n, _)| n == name);
    let Some((_, p)) = found else {
        let text = format!("the layer has no parameter called `{name}`");
        return Err(Error::new(ErrorKind::Value, text).with_op("parametrize"));
    };
    if p.shape().rank() < 2 {
        let text = format!("`{name}` has shape {}: its rank must be 2 or more", p.shape());
        return Err(Error::new(ErrorKind::Value, text).with_op("parametrize"));
    }
    Ok(p)
}

/// The norm of each slice of axis 0, `[n, 1, ..]`.
fn slice_norms(v: &Tensor) -> Result<Tensor> {
    let axes: Vec<isize> = (1..v.rank() as isize).collect();
    v.norm_over(&axes, true)
}

/// A layer whose weight is a length times a direction, of each slice of axis 0 (Salimans and Kingma, NeurIPS 2016):
/// `weight = g v / |v|`, with `g` and `v` trained in its place. As `torch.nn.utils.parametrizations.weight_norm`.
///
/// State: that of the layer, with `parametrizations.weight.original0` (`g: [n, 1, ..]`) and `original1` (`v`) for `weight`.
pub struct WeightNorm<L> {
    inner: L,
    name: String,
    weight: Parameter,
    /// The lengths, `[n, 1, ..]`.
    pub g: Parameter,
    /// The directions, of the weight's shape.
    pub v: Parameter,
}

impl<L: Layer> WeightNorm<L> {
    /// Parametrises the parameter of `layer` with this name; its value stays. Errors: Value for a parameter that is not
    /// there or has a rank below 2; Budget if the new trained parameters do not fit.
    pub fn new(layer: L, name: &str) -> Result<Self> {
        let weight = matrix_of(&layer, name)?;
        let value = weight.get()?.detach();
        let _quiet = no_grad();
        let (g, v) = (Parameter::new(slice_norms(&value)?)?, Parameter::new(value)?);
        Ok(WeightNorm { inner: layer, name: name.to_owned(), weight, g, v })
    }

    /// The weight that the layer computes with. Errors: those of the ops.
    pub fn weight(&self) -> Result<Tensor> {
        let v = self.v.get()?;
        let length = slice_norms(&v)?;
        v.mul(self.g.get()?.div(length)?)
    }

    /// The layer with the weight as a parameter of its own again. Errors: those of the ops.
    pub fn into_inner(self) -> Result<L> {
        let _quiet = no_grad();
        self.weight.set(&self.weight()?.detach())?;
        Ok(self.inner)
    }
}

impl<L: Module> Visit for WeightNorm<L> {
    fn visit(&self, at: &mut Walk<'_>) {
        visit_instead(at, &self.inner, |at, name, p| {
            if !p.is_same(&self.weight) {
                at.field(name, p);
            }
        });
        at.field(&format!("parametrizations.{}.original0", self.name), &self.g);
        at.field(&format!("parametrizations.{}.original1", self.name), &self.v);
    }
}

impl<L: Layer> Module for WeightNorm<L> {}

impl<L: Layer> Layer for WeightNorm<L> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        let _weight = self.weight.stand_in(self.weight()?)?;
        self.inner.forward(x)
    }
}

/// A layer whose weight is divided by an estimate of its largest singular value (Miyato et al., ICLR 2018): `weight / sigma`
/// with `sigma = u^T W v`, of the weight as a matrix `W: [n, ..]`. As `torch.nn.utils.parametrizations.spectral_norm`.
///
/// `u` and `v` are two vectors that each forward pass while training makes better by `iterations` steps of the power method;
/// 15 steps are taken when the layer is made. A step that fails after this layer has still moved them.
///
/// State: that of the layer, with `parametrizations.weight.original` for `weight`, and the buffers
/// `parametrizations.weight.0._u: [n]` and `._v`.
pub struct SpectralNorm<L> {
    inner: L,
    name: String,
    weight: Parameter,
    u: Parameter,
    v: Parameter,
    mode: Mode,
    iterations: usize,
    eps: f64,
}

/// Steps of the power method that a new layer takes, as in PyTorch.
const FIRST_STEPS: usize = 15;

impl<L: Layer> SpectralNorm<L> {
    /// Of the parameter of `layer` with this name, with one step each pass and an eps of 1e-12, as PyTorch's. The vectors
    /// begin as normal numbers of `rng`. Errors: Value for a parameter that is not there or has a rank below 2; Budget.
    pub fn new(layer: L, name: &str, rng: &mut Rng) -> Result<Self> {
        SpectralNorm::with(layer, name, 1, NORM_LEAST, rng)
    }

    /// As [`SpectralNorm::new`], with so many steps a pass and another eps. Errors: as there; Value for no step.
    pub fn with(layer: L, name: &str, iterations: usize, eps: f64, rng: &mut Rng) -> Result<Self> {
        if iterations == 0 {
            return Err(Error::new(ErrorKind::Value, "a pass takes at least one step").with_op("spectral_norm"));
        }
        let weight = matrix_of(&layer, name)?;
        let _quiet = no_grad();
        let (device, dtype) = (weight.device().clone(), weight.dtype());
        let rows = weight.shape()[0];
        let columns = weight.elems() / rows.max(1);
        let draw = |rng: &mut Rng, n: usize| unit(&Tensor::normal(&rng.next_key(&device)?, [n], dtype, 0.0, 1.0)?, eps);
        let (u, v) = (Parameter::buffer(draw(rng, rows)?)?, Parameter::buffer(draw(rng, columns)?)?);
        let mode = Mode::default();
        let layer = SpectralNorm { inner: layer, name: name.to_owned(), weight, u, v, mode, iterations, eps };
        layer.power(FIRST_STEPS)?;
        Ok(layer)
    }

    /// The parameter as a matrix.
    fn matrix(&self, weight: &Tensor) -> Result<Tensor> {
        weight.reshape(&[weight.dims()[0] as isize, (weight.elems() / weight.dims()[0].max(1)) as isize])
    }

    /// So many steps of the power method: `u = W v / |W v|`, `v = W^T u / |W^T u|`.
    fn power(&self, steps: usize) -> Result<()> {
        let _quiet = no_grad();
        let w = self.matrix(&self.weight.get()?.detach())?;
        let (mut u, mut v) = (self.u.get()?, self.v.get()?);
        for _ in 0..steps {
            u = unit(&column_product(&w, &v)?, self.eps)?;
            v = unit(&column_product(&w.t()?, &u)?, self.eps)?;
        }
        for (p, new) in [(&self.u, u), (&self.v, v)] {
            // one op in place, so that a failure cannot leave it half done
            let change = new.sub(p.get()?)?;
            update(
                remat_ops::pointwise::Binary { f: remat_ops::pointwise::BinaryFn::Add },
                vec![crate::Arg::State(p), crate::Arg::Value(change)],
            )?;
        }
        Ok(())
    }

    /// The weight that the layer computes with. Errors: those of the ops.
    pub fn weight(&self) -> Result<Tensor> {
        let weight = self.weight.get()?;
        let of_v = column_product(&self.matrix(&weight)?, &self.v.get()?)?;
        let sigma = of_v.mul(self.u.get()?)?.sum()?;
        weight.div(sigma)
    }
}

/// `w v` of a matrix and a vector.
fn column_product(w: &Tensor, v: &Tensor) -> Result<Tensor> {
    w.matmul(&v.unsqueeze(1)?)?.squeeze(&[1])
}

/// `v` with a norm of 1.
fn unit(v: &Tensor, eps: f64) -> Result<Tensor> {
    v.div(v.norm()?.maximum(eps)?)
}

impl<L: Module> Visit for SpectralNorm<L> {
    fn visit(&self, at: &mut Walk<'_>) {
        visit_instead(at, &self.inner, |at, name, p| {
            if !p.is_same(&self.weight) {
                at.field(name, p);
            }
        });
        at.field(&format!("parametrizations.{}.original", self.name), &self.weight);
        at.field(&format!("parametrizations.{}.0._u", self.name), &self.u);
        at.field(&format!("parametrizations.{}.0._v", self.name), &self.v);
        at.field(&format!("parametrizations.{}.mode", self.name), &self.mode);
    }
}

impl<L: Layer> Module for SpectralNorm<L> {}

impl<L: Layer> Layer for SpectralNorm<L> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        if self.mode.is_training() {
            self.power(self.iterations)?;
        }
        let _weight = self.weight.stand_in(self.weight()?)?;
        self.inner.forward(x)
    }
}
