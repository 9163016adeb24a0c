//! One description of what an op takes, as data.
//!
//! `#[derive(Params)]` reads it off the op's struct: names, types, defaults, text and versions of the parameters, and the
//! inputs. From it come the serial form, which holds every parameter by name, the schema that commands and bindings to other
//! languages read, and the list in the book. Nobody writes any of these by hand, so they cannot disagree.

use std::fmt;

use remat_types::{DType, Padding, Scalar, Shape, SmallVec};
pub use serde::de::{DeserializeOwned, Error as ReadError};
pub use serde::ser::SerializeMap;
pub use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

pub use remat_op_derive::{Choice, Params};

/// A struct of parameters. Derive it. An op that only this program reads may leave all to the defaults.
pub trait Params: Serialize + DeserializeOwned {
    /// The description of the op: its doc comment.
    const TEXT: &'static str = "";

    /// The tensors that the op takes.
    fn inputs() -> Vec<Input> {
        Vec::new()
    }

    /// The parameters, in the order of the fields.
    fn params() -> Vec<Param> {
        Vec::new()
    }
}

/// Parameters as entries of a map. The derived serial form consists of these entries, and a struct's parameters may be
/// flattened into another's.
pub trait ParamFields: Sized {
    /// Writes every parameter under its name.
    fn write<M: SerializeMap>(&self, to: &mut M) -> Result<(), M::Error>;

    /// Takes every parameter by its name. Errors: a missing one that has no default, or one of another type.
    fn read<E: ReadError>(from: &mut Given) -> Result<Self, E>;
}

/// The serial form of parameters.
pub fn write<S: Serializer>(params: &impl ParamFields, to: S) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(None)?;
    params.write(&mut map)?;
    map.end()
}

/// Reads what [`write()`] wrote.
pub fn read<'de, T: ParamFields, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    T::read(&mut Given(Deserialize::deserialize(from)?))
}

/// The parameters that a serial form gives.
pub struct Given(serde_json::Map<String, Value>);

impl Given {
    /// The parameter of this name, or its default. Errors: if there is neither, or it is of another type.
    pub fn take<T: ParamValue, E: ReadError>(
        &mut self,
        name: &'static str,
        default: Option<fn() -> T>,
    ) -> Result<T, E> {
        match (self.0.remove(name), default) {
            (Some(v), _) => T::deserialize(v).map_err(|e| E::custom(format!("parameter `{name}`: {e}"))),
            (None, Some(default)) => Ok(default()),
            (None, None) => Err(E::missing_field(name)),
        }
    }
}

/// A type that a parameter may have.
pub trait ParamValue: Serialize + DeserializeOwned {
    /// The default of a parameter whose declaration names none, if the type has one. An optional parameter defaults to none.
    const DEFAULT: Option<fn() -> Self> = None;

    /// The type as data.
    fn param_type() -> ParamType;
}

/// The type of a parameter.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ParamType {
    /// True or false.
    Bool,
    /// A whole number of either sign.
    Int,
    /// A whole number that is not negative.
    Size,
    /// A number that need not be whole.
    Float,
    /// A number of any dtype, with its kind: `{"float": 0.5}`.
    Scalar,
    /// The name of a dtype.
    DType,
    /// Extents.
    Shape,
    /// A graph as lines of its text.
    Graph,
    /// Any number of values.
    List(Box<ParamType>),
    /// So many values.
    Array(Box<ParamType>, usize),
    /// A value of any of these types.
    AnyOf(Vec<ParamType>),
    /// A value, or nothing.
    Optional(Box<ParamType>),
    /// One of these.
    OneOf(Vec<Variant>),
    /// Parameters of their own.
    Record(Vec<Param>),
}

impl fmt::Display for ParamType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamType::Bool => write!(f, "bool"),
            ParamType::Int => write!(f, "int"),
            ParamType::Size => write!(f, "size"),
            ParamType::Float => write!(f, "float"),
            ParamType::Scalar => write!(f, "number"),
            ParamType::DType => write!(f, "dtype"),
            ParamType::Shape => write!(f, "shape"),
            ParamType::Graph => write!(f, "graph"),
            ParamType::List(of) => write!(f, "[{of}]"),
            ParamType::Array(of, len) => write!(f, "[{of}; {len}]"),
            ParamType::AnyOf(types) => {
                let types: Vec<String> = types.iter().map(ToString::to_string).collect();
                f.write_str(&types.join(" or "))
            }
            ParamType::Optional(of) => write!(f, "{of} or none"),
            ParamType::OneOf(variants) => {
                let names: Vec<&str> = variants.iter().map(|v| v.name).collect();
                f.write_str(&names.join(" | "))
            }
            ParamType::Record(params) => {
                let fields: Vec<String> = params.iter().map(|p| format!("{}: {}", p.name, p.ty)).collect();
                write!(f, "{{{}}}", fields.join(", "))
            }
        }
    }
}

/// One of the things that a parameter may be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Variant {
    /// Its name in serial forms.
    pub name: &'static str,
    /// Its meaning.
    pub text: &'static str,
    /// The type of its value, if it carries one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds: Option<ParamType>,
}

/// One parameter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Param {
    /// Its name in serial forms.
    pub name: &'static str,
    /// The name of its field, which users of Rust and Python write: another one where the serial form keeps an older.
    #[serde(skip)]
    pub field: &'static str,
    /// Its type.
    #[serde(rename = "type")]
    pub ty: ParamType,
    /// The value that a serial form without the parameter stands for; `None` if it must be there.
    pub default: Option<Value>,
    /// Its meaning.
    pub text: &'static str,
    /// The version of the op that brought it.
    pub since: u32,
}

impl Param {
    /// The description of a parameter of type `T`.
    pub fn new<T: ParamValue>(name: &'static str, text: &'static str, default: Option<fn() -> T>, since: u32) -> Self {
        let default = default.map(|of| serde_json::to_value(of()).unwrap_or(Value::Null));
        Param { name, field: name, ty: T::param_type(), default, text, since }
    }

    /// The same, whose field has this name.
    pub fn in_field(self, field: &'static str) -> Self {
        Param { field, ..self }
    }
}

/// How many tensors an input stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Count {
    /// One.
    One,
    /// One, or none.
    Optional,
    /// Any number.
    Many,
}

/// The dtypes that an input may have; which of them go together is the op's to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DTypes {
    /// Every one.
    Any,
    /// Floats.
    Float,
    /// Integers.
    Int,
    /// Floats and integers.
    Number,
    /// Truth values.
    Bool,
    /// U64: a random key.
    Key,
    /// I64.
    I64,
}

impl DTypes {
    /// True if an input of this class may be of `dtype`.
    pub fn has(self, dtype: DType) -> bool {
        match self {
            DTypes::Any => true,
            DTypes::Float => dtype.is_float(),
            DTypes::Int => dtype.is_int(),
            DTypes::Number => dtype != DType::Bool,
            DTypes::Bool => dtype == DType::Bool,
            DTypes::Key => dtype == DType::U64,
            DTypes::I64 => dtype == DType::I64,
        }
    }
}

impl fmt::Display for DTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DTypes::Any => "any",
            DTypes::Float => "float",
            DTypes::Int => "int",
            DTypes::Number => "number",
            DTypes::Bool => "bool",
            DTypes::Key => "u64",
            DTypes::I64 => "i64",
        })
    }
}

/// One tensor that an op takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Input {
    /// Its name in the op's text and errors.
    pub name: &'static str,
    /// How many tensors it stands for.
    pub count: Count,
    /// Their dtypes.
    pub dtypes: DTypes,
    /// Whether it has a gradient where it is a float.
    pub gradient: bool,
}

/// All that is said of an op.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Schema {
    /// [`crate::OpDef::NAME`].
    pub name: &'static str,
    /// [`crate::OpDef::VERSION`].
    pub version: u32,
    /// The description of the op.
    pub text: &'static str,
    /// The inputs, in order.
    pub inputs: Vec<Input>,
    /// The parameters, beside the inputs.
    pub params: Vec<Param>,
}

impl Schema {
    /// The first sentence of the text.
    pub fn summary(&self) -> String {
        let paragraph = self.text.split("\n\n").next().unwrap_or_default().replace('\n', " ");
        match paragraph.find(". ") {
            Some(end) => paragraph[..=end].to_owned(),
            None => paragraph,
        }
    }

    /// True if a serial form of version `of` can be read: all that came later are parameters with defaults.
    pub fn reads(&self, of: u32) -> bool {
        let brings_defaults_only = |version: u32| {
            let mut new = self.params.iter().filter(|p| p.since == version).peekable();
            new.peek().is_some() && new.all(|p| p.default.is_some())
        };
        (1..=self.version).contains(&of) && (of + 1..=self.version).all(brings_defaults_only)
    }
}

macro_rules! plain_values {
    ($($t:ty => $kind:ident;)*) => { $(
        impl ParamValue for $t {
            fn param_type() -> ParamType {
                ParamType::$kind
            }
        }
    )* };
}
plain_values! { bool => Bool; i64 => Int; isize => Int; u16 => Size; usize => Size; f64 => Float; Scalar => Scalar; DType => DType; Shape => Shape; }

impl<T: ParamValue> ParamValue for Option<T> {
    const DEFAULT: Option<fn() -> Self> = Some(|| None);

    fn param_type() -> ParamType {
        ParamType::Optional(Box::new(T::param_type()))
    }
}

impl<T: ParamValue> ParamValue for Vec<T> {
    fn param_type() -> ParamType {
        ParamType::List(Box::new(T::param_type()))
    }
}

impl<T: ParamValue, const N: usize> ParamValue for SmallVec<[T; N]> {
    fn param_type() -> ParamType {
        ParamType::List(Box::new(T::param_type()))
    }
}

impl<T: ParamValue, const N: usize> ParamValue for [T; N]
where
    [T; N]: Serialize + DeserializeOwned,
{
    fn param_type() -> ParamType {
        ParamType::Array(Box::new(T::param_type()), N)
    }
}

/// A number of both sides, or a pair, for each axis.
impl<const D: usize> ParamValue for Padding<D> {
    fn param_type() -> ParamType {
        ParamType::Array(Box::new(ParamType::AnyOf(vec![ParamType::Size, <[usize; 2]>::param_type()])), D)
    }
}
