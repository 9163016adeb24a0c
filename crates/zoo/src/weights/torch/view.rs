//! Tensors of a pickle: where in which storage their elements lie.

use remat_types::{DType, Error, ErrorKind, Layout, Result, Shape};

use super::globals::{Known, known};
use super::value::{Object, Pickle, Value};

/// Most axes, as PyTorch has it.
const RANK_MAX: usize = 64;
/// Most functions around one another that a tensor is given through.
const WRAPPERS_MAX: usize = 16;

/// Elements of a storage.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct View {
    pub dtype: DType,
    /// The file's name for the storage.
    pub key: String,
    /// Where the storage begins in it, in bytes: storages of old files may be parts of others.
    pub base_bytes: u64,
    pub layout: Layout,
}

fn bad(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Format, text)
}

impl Pickle {
    pub(super) fn known(&self, value: Value) -> Known {
        self.global(value).map_or(Known::Other, |(module, name)| known(module, name))
    }

    /// Function and arguments that make the tensor; `None` for a value that is no tensor.
    pub(super) fn tensor_call(&self, mut value: Value) -> Option<(Known, &[Value])> {
        for _ in 0..WRAPPERS_MAX {
            let Some(Object::Call(call)) = self.object(value) else { return None };
            let (mut func, mut args) = (self.known(call.func), self.parts(call.args)?);
            if func == Known::Subclass {
                let &[inner, _, inner_args, ..] = args else { return None };
                (func, args) = (self.known(inner), self.parts(inner_args)?);
            }
            match func {
                Known::Tensor { .. } | Known::NoTensor(_) => return Some((func, args)),
                Known::Wrapper => value = *args.first()?,
                _ => return None,
            }
        }
        None
    }

    /// The elements of the tensor that `value` is. Errors: DType for elements that do not exist here; Format for arguments
    /// that describe no tensor, or one beyond its storage.
    pub(super) fn view(&self, value: Value) -> Result<View> {
        let (dtype_at, marks_at, args) = match self.tensor_call(value) {
            Some((Known::Tensor { dtype, marks }, args)) => (dtype, marks, args),
            Some((Known::NoTensor(why), _)) => return Err(Error::new(ErrorKind::DType, why)),
            _ => return Err(bad("no tensor")),
        };
        let &[storage, offset, shape, strides, ..] = args else { return Err(bad("a tensor of fewer than four parts")) };
        if marks_at.and_then(|at| args.get(at)).is_some_and(|marks| self.is_lazy(*marks)) {
            let text = "it is to be conjugated or negated when read: save `tensor.resolve_conj().resolve_neg()`";
            return Err(Error::new(ErrorKind::DType, text));
        }
        let elements = dtype_at.map(|at| args.get(at).copied().unwrap_or(Value::None));
        let storage = self.storage(storage, elements)?;
        let size = storage.dtype.size_bytes() as u64;
        let layout = Layout::new(self.shape(shape)?, &self.strides(strides)?, self.extent(offset)?)
            .map_err(|e| bad(e.message()))?;
        layout.shape().checked_elems().map_err(|e| bad(e.message()))?;
        if !layout.fits(usize::try_from(storage.bytes / size).unwrap_or(usize::MAX)) {
            let text = format!("shape {}, strides {:?} from {}", layout.shape(), layout.strides(), layout.offset());
            return Err(bad(format!("{text} leave a storage of {} elements", storage.bytes / size)));
        }
        Ok(View { dtype: storage.dtype, key: storage.key, base_bytes: storage.base_bytes, layout })
    }

    /// True if a mark of PyTorch's lazy operators is set.
    fn is_lazy(&self, marks: Value) -> bool {
        let Some(Object::Dict(pairs)) = self.object(marks) else { return false };
        pairs.iter().any(|(_, set)| *set == Value::Bool(true))
    }

    /// `("storage", type, key, device, elements)`, and for old files the part `(key, offset, elements)` of it that is meant.
    fn storage(&self, storage: Value, elements: Option<Value>) -> Result<Storage> {
        let id = match self.object(storage) {
            Some(Object::Outside(id)) => self.parts(*id),
            _ => None,
        };
        let Some(&[kind, class, key, _, count, ref rest @ ..]) = id else {
            return Err(bad("a tensor without storage"));
        };
        let (Some("storage"), Some(key)) = (self.text_of(kind), self.text_of(key)) else {
            return Err(bad("a tensor without storage"));
        };
        let typed = match self.known(class) {
            Known::Untyped => None,
            Known::Elements(dtype) => Some((dtype, class)),
            _ => return Err(bad("a storage of no type")),
        };
        let meant = match elements {
            Some(value) => match self.known(value) {
                Known::Elements(dtype) => Some((dtype, value)),
                _ => return Err(bad("elements of no dtype")),
            },
            None => typed,
        };
        let (dtype, name) = meant.unwrap_or((Some(DType::U8), class));
        let dtype = dtype.ok_or_else(|| {
            let name = self.global(name).map_or("", |(_, name)| name);
            Error::new(ErrorKind::DType, format!("its elements are {name}, for which there is no dtype here"))
        })?;
        let unit = typed.map_or(1, |(dtype, _)| dtype.map_or(1, DType::size_bytes)) as u64;
        let (mut base, mut count) = (0, self.extent(count)? as u64);
        match rest {
            [part, ..] if *part != Value::None => {
                let Some(&[_, offset, of]) = self.parts(*part) else {
                    return Err(bad("a part of a storage that is none"));
                };
                let (offset, of) = (self.extent(offset)? as u64, self.extent(of)? as u64);
                if offset.checked_add(of).is_none_or(|end| end > count) {
                    return Err(bad(format!("elements {offset} and {of} more of a storage of {count}")));
                }
                (base, count) = (offset, of);
            }
            _ => {}
        }
        let bytes = |n: u64| n.checked_mul(unit).ok_or_else(|| bad(format!("a storage of {n} elements")));
        Ok(Storage { dtype, key: key.to_owned(), base_bytes: bytes(base)?, bytes: bytes(count)? })
    }

    fn extent(&self, value: Value) -> Result<usize> {
        match value {
            Value::Int(n) => usize::try_from(n).map_err(|_| bad(format!("{n} where a size or place is to be"))),
            _ => Err(bad("a size or place that is no number")),
        }
    }

    fn axes(&self, mut value: Value) -> Result<&[Value]> {
        if let Some(Object::Call(call)) = self.object(value)
            && self.known(call.func) == Known::Size
            && let Some(&[inner]) = self.parts(call.args)
        {
            value = inner;
        }
        match self.parts(value) {
            Some(all) if all.len() <= RANK_MAX => Ok(all),
            Some(all) => Err(bad(format!("{} axes, and at most {RANK_MAX} are read", all.len()))),
            None => Err(bad("a shape or strides that are no tuple")),
        }
    }

    fn shape(&self, value: Value) -> Result<Shape> {
        self.axes(value)?.iter().map(|v| self.extent(*v)).collect()
    }

    fn strides(&self, value: Value) -> Result<Vec<isize>> {
        let stride = |v: &Value| match v {
            Value::Int(n) => isize::try_from(*n).map_err(|_| bad(format!("a stride of {n}"))),
            _ => Err(bad("a stride that is no number")),
        };
        self.axes(value)?.iter().map(stride).collect()
    }
}

struct Storage {
    dtype: DType,
    key: String,
    base_bytes: u64,
    bytes: u64,
}
