//! The few names of Python that stand for data: what each says about its arguments.

use remat_types::DType;

/// The meaning of a class or function of a pickle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// A type of storage, or of elements; of none that exists here if `None`.
    Elements(Option<DType>),
    /// A storage of bytes.
    Untyped,
    /// `(storage, offset, shape, strides, ..)`, and at so many arguments further the dtype and marks.
    Tensor { dtype: Option<usize>, marks: Option<usize> },
    /// A tensor, and what surrounds it.
    Wrapper,
    /// `(function, class, arguments, state)`: a tensor of a class of its own.
    Subclass,
    /// A tensor that cannot be read here, and why.
    NoTensor(&'static str),
    /// A dictionary.
    Dict,
    /// `torch.Size`: a tuple.
    Size,
    /// A number of NumPy.
    Scalar,
    /// `numpy.dtype`.
    NumpyType,
    /// Text as bytes.
    Encode,
    /// Anything else.
    Other,
}

/// The meaning of `module.name`.
pub(super) fn known(module: &str, name: &str) -> Known {
    match (module, name) {
        ("torch._utils", _) => rebuild(name),
        ("torch._tensor", "_rebuild_from_type" | "_rebuild_from_type_v2") => Known::Subclass,
        ("torch.nn.parameter" | "torch.nn", "Parameter" | "Buffer") => Known::Wrapper,
        ("torch.storage", "UntypedStorage" | "_UntypedStorage") => Known::Untyped,
        ("torch", "UntypedStorage" | "_UntypedStorage") => Known::Untyped,
        ("torch", "Size") => Known::Size,
        ("torch" | "torch.cuda" | "torch.storage", _) if name.ends_with("Storage") => {
            Known::Elements(storage_dtype(name))
        }
        ("torch", _) => dtype(name).map_or(Known::Other, Known::Elements),
        ("collections", "OrderedDict" | "defaultdict" | "Counter") => Known::Dict,
        ("builtins" | "__builtin__", "dict") => Known::Dict,
        ("numpy.core.multiarray" | "numpy._core.multiarray", "scalar") => Known::Scalar,
        ("numpy", "dtype") => Known::NumpyType,
        ("_codecs", "encode") => Known::Encode,
        _ => Known::Other,
    }
}

/// The functions of `torch._utils` that make tensors.
fn rebuild(name: &str) -> Known {
    match name {
        "_rebuild_tensor" => Known::Tensor { dtype: None, marks: None },
        "_rebuild_tensor_v2" => Known::Tensor { dtype: None, marks: Some(6) },
        "_rebuild_tensor_v3" => Known::Tensor { dtype: Some(6), marks: Some(7) },
        "_rebuild_parameter" | "_rebuild_parameter_with_state" | "_rebuild_device_tensor_from_cpu_tensor" => {
            Known::Wrapper
        }
        "_rebuild_qtensor" => Known::NoTensor("it is quantised: save `tensor.dequantize()`"),
        "_rebuild_sparse_tensor" | "_rebuild_sparse_csr_tensor" => {
            Known::NoTensor("it is sparse: save `tensor.to_dense()`")
        }
        "_rebuild_nested_tensor" => Known::NoTensor("it is nested: save its parts, `tensor.unbind()`"),
        "_rebuild_meta_tensor_no_storage" => Known::NoTensor("it is of the device `meta`, which has no values"),
        "_rebuild_device_tensor_from_numpy" | "_rebuild_xla_tensor" | "_rebuild_wrapper_subclass" => {
            Known::NoTensor("it is of another device or class: save `tensor.cpu()`")
        }
        _ => Known::Other,
    }
}

fn storage_dtype(name: &str) -> Option<DType> {
    Some(match name {
        "HalfStorage" => DType::F16,
        "BFloat16Storage" => DType::BF16,
        "FloatStorage" => DType::F32,
        "DoubleStorage" => DType::F64,
        "CharStorage" => DType::I8,
        "ShortStorage" => DType::I16,
        "IntStorage" => DType::I32,
        "LongStorage" => DType::I64,
        "ByteStorage" => DType::U8,
        "BoolStorage" => DType::Bool,
        // complex and quantised elements
        _ => return None,
    })
}

/// `None` for a name that is no dtype.
fn dtype(name: &str) -> Option<Option<DType>> {
    Some(Some(match name {
        "float16" | "half" => DType::F16,
        "bfloat16" => DType::BF16,
        "float32" | "float" => DType::F32,
        "float64" | "double" => DType::F64,
        "int8" => DType::I8,
        "int16" | "short" => DType::I16,
        "int32" | "int" => DType::I32,
        "int64" | "long" => DType::I64,
        "uint8" => DType::U8,
        "uint16" => DType::U16,
        "uint32" => DType::U32,
        "uint64" => DType::U64,
        "bool" => DType::Bool,
        _ => {
            let begins = ["float8", "float4", "complex", "qint", "quint", "int", "uint", "bits", "cfloat", "cdouble"];
            return begins.iter().any(|b| name.starts_with(b)).then_some(None);
        }
    }))
}
