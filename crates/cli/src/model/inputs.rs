//! Inputs of a model from the command line.

use clap::Args;
use remat::types::{Error, ErrorKind, Fact, HostTensor, Result};
use remat_lite::{Network, Port, Session, Shapes};

use super::picture::Picture;
use super::preprocess::{Figures, Preprocess};
use super::value::{self, Input};
use super::{ShapeOptions, only};
use crate::output::note;

/// The inputs of a model.
#[derive(Args, Clone, Debug)]
pub(super) struct InputOptions {
    #[arg(long, value_name = "[NAME=]VALUE", help = format!("What an input is; one without a name is the only one:\n{}", value::FORMS))]
    input: Vec<Input>,
    /// How to preprocess image files. Sizes, mean and deviation in the model's metadata replace those of the recipe [default: none,
    /// with a note where the model's input looks like that of an ImageNet network]
    #[arg(long, value_enum, value_name = "HOW")]
    preprocess: Option<Preprocess>,
    #[command(flatten)]
    shapes: ShapeOptions,
}

/// How pictures are read.
pub(super) struct Pictures<'m> {
    preprocess: Option<Preprocess>,
    metadata: &'m [(String, String)],
}

impl Pictures<'_> {
    pub(super) const AS_THEY_ARE: Pictures<'static> = Pictures { preprocess: Some(Preprocess::None), metadata: &[] };

    /// The tensor for an input. Errors: Value for what takes no pictures of three colours where that is asked for; Io without memory.
    pub(super) fn tensor(&self, picture: &Picture, port: &Port) -> Result<HostTensor> {
        if self.preprocess == Some(Preprocess::Imagenet) {
            let figures = Figures::of(port, self.metadata)?;
            note!("input `{}`: {}", port.name, figures.text());
            return figures.apply(picture, port);
        }
        let t = picture.tensor(value::dtype(port)?)?;
        if self.preprocess.is_none() && t.dtype().is_float() && picture.colours == 3 {
            note!(
                "input `{}`: the picture as it is, as numbers of 0 to 1; networks of ImageNet take `--preprocess imagenet`",
                port.name
            );
        }
        Ok(t)
    }
}

impl InputOptions {
    /// The value of each input; `None` for one that was not given. Errors: those of files; Value for names that the model has
    /// not.
    pub(super) fn tensors(&self, network: &Network) -> Result<Vec<Option<HostTensor>>> {
        let pictures = Pictures { preprocess: self.preprocess, metadata: &network.about().metadata };
        tensors(&self.input, network.inputs(), &pictures)
    }

    /// The given shapes, beside values.
    pub(super) fn shapes(&self) -> &ShapeOptions {
        &self.shapes
    }

    /// The shapes for a session on these inputs: theirs, and those that were given for the others.
    pub(super) fn shapes_for(&self, ports: &[Port], inputs: &[Option<HostTensor>]) -> Result<Shapes> {
        let whole = inputs.iter().all(Option::is_some);
        let shapes = if whole { self.shapes.given(ports)? } else { self.shapes.or_ones(ports)? };
        let given = ports.iter().zip(inputs).filter_map(|(p, x)| Some((p, x.as_ref()?)));
        Ok(given.fold(shapes, |all, (p, x)| all.input(&p.name, x.shape().clone())))
    }
}

/// The value of each input; `None` for one that was not given. Errors: those of files; Value for names that the model has not.
pub(super) fn tensors(given: &[Input], ports: &[Port], pictures: &Pictures<'_>) -> Result<Vec<Option<HostTensor>>> {
    let mut all: Vec<Option<HostTensor>> = vec![None; ports.len()];
    for given in given {
        let name = given.name.as_deref().map_or_else(|| only(ports, "an input"), Ok)?;
        let Some(i) = ports.iter().position(|p| p.name == name) else {
            let names: Vec<&str> = ports.iter().map(|p| &*p.name).collect();
            let text = format!("the model has no input `{name}`; it has {}", names.join(", "));
            return Err(Error::new(ErrorKind::Value, text));
        };
        if all[i].is_some() {
            return Err(Error::new(ErrorKind::Value, format!("input `{name}` is given twice")));
        }
        all[i] = Some(given.value.tensor(&ports[i], pictures).map_err(|e| e.context(format!("input `{name}`")))?);
    }
    Ok(all)
}

/// The inputs, with random numbers for those that were not given, which is said. Errors (Value): one that cannot be made up.
pub(crate) fn made_up(session: &Session, inputs: Vec<Option<HostTensor>>) -> Result<Vec<HostTensor>> {
    let of = |(i, x): (usize, Option<HostTensor>)| {
        if let Some(x) = x {
            return Ok(x);
        }
        let (port, fact) = (&session.inputs()[i], tensor_fact(session, i)?);
        note!("input `{}` was not given: random numbers of {}{}", port.name, fact.dtype, fact.shape);
        value::random(&fact)
    };
    inputs.into_iter().enumerate().map(of).collect()
}

/// The type of an input that numbers can be made up for. Errors (Value): one that is no tensor.
pub(crate) fn tensor_fact(session: &Session, i: usize) -> Result<Fact> {
    let port = &session.inputs()[i];
    let no_tensor = || format!("input `{}` is {}: it cannot be made up", port.name, port.ty);
    session.fact(i).ok_or_else(|| Error::new(ErrorKind::Value, no_tensor()))
}
