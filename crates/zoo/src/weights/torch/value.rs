//! A value that a pickle describes, as data: no function was called.
//!
//! Values are small and copied; what has parts lies in one table and is named by its place there, so that cycles and
//! sharing need no care and freeing needs no recursion.

/// Some bytes of [`Pickle::texts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub at: u32,
    pub len: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Span),
    /// Bytes, and text that is not UTF-8.
    Bytes(Span),
    /// An integer beyond 64 bits.
    Big(Span),
    Object(u32),
}

#[derive(Debug)]
pub(super) enum Object {
    Tuple(Vec<Value>),
    List(Vec<Value>),
    Set(Vec<Value>),
    Dict(Vec<(Value, Value)>),
    /// A class or function by its name.
    Global {
        module: Span,
        name: Span,
    },
    /// A value outside the pickle, by the reference to it.
    Outside(Value),
    Call(Box<Call>),
}

/// A class or function with its arguments, which was not called.
#[derive(Debug)]
pub(super) struct Call {
    pub func: Value,
    pub args: Value,
    pub state: Value,
    pub pairs: Vec<(Value, Value)>,
    pub items: Vec<Value>,
}

/// A pickle that was read.
#[derive(Debug)]
pub(super) struct Pickle {
    /// The bytes of all texts.
    pub texts: Vec<u8>,
    pub objects: Vec<Object>,
    pub root: Value,
    /// How long it was.
    pub bytes: u64,
}

impl Pickle {
    pub(super) fn span(&self, span: Span) -> &[u8] {
        &self.texts[span.at as usize..][..span.len as usize]
    }

    /// Empty if the value is no text.
    pub(super) fn text(&self, span: Span) -> &str {
        std::str::from_utf8(self.span(span)).unwrap_or_default()
    }

    pub(super) fn text_of(&self, value: Value) -> Option<&str> {
        if let Value::Text(span) = value { Some(self.text(span)) } else { None }
    }

    pub(super) fn object(&self, value: Value) -> Option<&Object> {
        if let Value::Object(at) = value { self.objects.get(at as usize) } else { None }
    }

    /// The parts of a tuple or list.
    pub(super) fn parts(&self, value: Value) -> Option<&[Value]> {
        match self.object(value)? {
            Object::Tuple(all) | Object::List(all) => Some(all),
            _ => None,
        }
    }

    /// Module and name of a class or function.
    pub(super) fn global(&self, value: Value) -> Option<(&str, &str)> {
        match self.object(value)? {
            Object::Global { module, name } => Some((self.text(*module), self.text(*name))),
            _ => None,
        }
    }
}
