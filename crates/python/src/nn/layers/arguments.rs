//! Arguments of layers that are not plain numbers or truth values, and arguments that are no options.

use remat::ops::schema::{
    Deserialize, Deserializer, Given, Param, ParamFields, ParamType, ParamValue, Params, ReadError, Serialize,
    SerializeMap, Serializer, Variant,
};
use remat::{PadMode as Mode, Padding};
use serde::de::{DeserializeOwned, Unexpected};
use serde_json::Value;

use crate::ops::choices::Choice;

/// A value, or a list of them.
enum OneOrAll<T> {
    One(T),
    All(Vec<T>),
}

fn one_or_all<'de, T: DeserializeOwned, D: Deserializer<'de>>(from: D) -> Result<OneOrAll<T>, D::Error> {
    let given = Value::deserialize(from)?;
    let read = match given {
        Value::Array(_) => serde_json::from_value(given).map(OneOrAll::All),
        _ => serde_json::from_value(given).map(OneOrAll::One),
    };
    read.map_err(ReadError::custom)
}

/// A value for each of `D` axes, by default a number; a single value stands for all axes.
#[derive(Clone, Copy)]
pub(super) struct PerAxis<const D: usize, T = usize>(pub(super) [T; D]);

/// Places before and behind each of `D` axes: one number for all, or for each axis a number or a pair.
pub(super) type Around<const D: usize> = PerAxis<D, PerAxis<2>>;

impl<const D: usize> Around<D> {
    pub(super) const NONE: Self = PerAxis([PerAxis([0; 2]); D]);

    pub(super) fn padding(self) -> Padding<D> {
        Padding::from(self.0.map(|PerAxis(pair)| pair))
    }
}

impl<const D: usize, T: Serialize> Serialize for PerAxis<D, T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(&self.0)
    }
}

impl<'de, const D: usize, T: DeserializeOwned + Copy> Deserialize<'de> for PerAxis<D, T> {
    fn deserialize<F: Deserializer<'de>>(from: F) -> Result<Self, F::Error> {
        let all = match one_or_all(from)? {
            OneOrAll::One(n) => return Ok(PerAxis([n; D])),
            OneOrAll::All(all) => all,
        };
        let (given, needed) = (format!("{} numbers", all.len()), format!("one for each of {D} axes"));
        let wrong = |_| ReadError::invalid_type(Unexpected::Other(&given), &needed.as_str());
        all.try_into().map(PerAxis).map_err(wrong)
    }
}

impl<const D: usize, T: ParamValue + Copy> ParamValue for PerAxis<D, T> {
    fn param_type() -> ParamType {
        ParamType::AnyOf(vec![ParamType::Size, ParamType::Array(Box::new(T::param_type()), D)])
    }
}

/// Any count of numbers; a single number is a list of one.
#[derive(Clone, Serialize)]
pub(super) struct Numbers<T>(pub(super) Vec<T>);

impl<'de, T: DeserializeOwned> Deserialize<'de> for Numbers<T> {
    fn deserialize<F: Deserializer<'de>>(from: F) -> Result<Self, F::Error> {
        Ok(Numbers(match one_or_all(from)? {
            OneOrAll::One(n) => vec![n],
            OneOrAll::All(all) => all,
        }))
    }
}

impl<T: ParamValue> ParamValue for Numbers<T> {
    fn param_type() -> ParamType {
        ParamType::AnyOf(vec![T::param_type(), ParamType::List(Box::new(T::param_type()))])
    }
}

/// The padding of a convolution.
#[derive(Clone, Copy)]
pub(super) enum ConvPadding<const D: usize> {
    /// As many outputs as inputs.
    Same,
    /// So many places.
    Places(Around<D>),
}

impl<const D: usize> Serialize for ConvPadding<D> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            ConvPadding::Same => to.serialize_str("same"),
            ConvPadding::Places(around) => around.serialize(to),
        }
    }
}

impl<'de, const D: usize> Deserialize<'de> for ConvPadding<D> {
    fn deserialize<F: Deserializer<'de>>(from: F) -> Result<Self, F::Error> {
        match Value::deserialize(from)? {
            Value::String(text) if text == "same" => Ok(ConvPadding::Same),
            Value::String(text) => Err(ReadError::custom(format!("padding is numbers or `same`, not `{text}`"))),
            given => Around::deserialize(given).map(ConvPadding::Places).map_err(ReadError::custom),
        }
    }
}

impl<const D: usize> ParamValue for ConvPadding<D> {
    fn param_type() -> ParamType {
        let same = Variant { name: "same", text: "As many outputs as inputs.", holds: None };
        ParamType::AnyOf(vec![Around::<D>::param_type(), ParamType::OneOf(vec![same])])
    }
}

/// One of several things, by its name.
#[derive(Clone, Copy)]
pub(super) struct Named<T>(pub(super) T);

impl<T: Choice + PartialEq> Serialize for Named<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let name = T::ALL.iter().find(|(_, v)| *v == self.0).map(|(name, _)| *name);
        to.serialize_str(name.unwrap_or_default())
    }
}

impl<'de, T: Choice> Deserialize<'de> for Named<T> {
    fn deserialize<F: Deserializer<'de>>(from: F) -> Result<Self, F::Error> {
        let name = String::deserialize(from)?;
        let found = T::ALL.iter().find(|(own, _)| *own == name).map(|(_, v)| Named(*v));
        found.ok_or_else(|| ReadError::unknown_variant(&name, &[]))
    }
}

impl<T: Choice + PartialEq> ParamValue for Named<T> {
    fn param_type() -> ParamType {
        ParamType::OneOf(T::ALL.iter().map(|(name, _)| Variant { name, text: "", holds: None }).collect())
    }
}

/// The values that a padding layer puts beyond an edge: [`Mode`] with `constant` as a name.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Beyond(pub(super) Mode);

impl Choice for Beyond {
    const ALL: &'static [(&'static str, Self)] = &[
        ("zeros", Beyond(Mode::Zeros)),
        ("constant", Beyond(Mode::Constant(0.0))),
        ("reflect", Beyond(Mode::Reflect)),
        ("replicate", Beyond(Mode::Replicate)),
        ("circular", Beyond(Mode::Circular)),
    ];
}

/// Arguments of a Python class that are no options, at their places among the options.
macro_rules! no_options {
    ($($(#[$doc:meta])* $name:ident = $($argument:literal),+;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Default, serde::Serialize, serde::Deserialize)]
        pub(super) struct $name {}

        impl Params for $name {
            fn params() -> Vec<Param> {
                let param = |name| Param { name, field: name, ty: ParamType::Record(Vec::new()), default: None, text: "", since: 1 };
                vec![$(param($argument)),+]
            }
        }

        impl ParamFields for $name {
            fn write<M: SerializeMap>(&self, _: &mut M) -> Result<(), M::Error> {
                Ok(())
            }

            fn read<E: ReadError>(_: &mut Given) -> Result<Self, E> {
                Ok($name {})
            }
        }
    )* };
}
no_options! {
    /// Device and dtype of the parameters, and the generator that draws their first values.
    Places = "device", "dtype", "generator";
    /// Device and dtype of parameters whose first values are not drawn.
    PlacesAlone = "device", "dtype";
    /// The source of a layer's own random numbers.
    Source = "generator";
    /// Arguments behind it are keyword-only.
    ByName = "*";
}
