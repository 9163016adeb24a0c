"""What the Python array API standard, version 2024.12, asks for, name by name, and what `remat.array_api` leaves out of it.

    python python/tests/array_api_standard.py      writes docs/src/array_api.md, which a test compares with this
"""
import pathlib

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "src" / "array_api.md"

NAMESPACE = {
    "Constants": "e inf nan newaxis pi",
    "Creation": (
        "arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones ones_like tril triu zeros zeros_like"
    ),
    "Data types": (
        "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128"
    ),
    "Functions of data types": "astype can_cast finfo iinfo isdtype result_type",
    "Functions of each element": (
        "abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_invert bitwise_or bitwise_right_shift "
        "bitwise_xor ceil clip conj copysign cos cosh divide equal exp expm1 floor floor_divide greater greater_equal hypot imag "
        "isfinite isinf isnan less less_equal log log1p log2 log10 logaddexp logical_and logical_not logical_or logical_xor maximum "
        "minimum multiply negative nextafter not_equal positive pow real reciprocal remainder round sign signbit sin sinh square sqrt "
        "subtract tan tanh trunc"
    ),
    "Indexing": "take take_along_axis",
    "Inspection": "__array_api_version__ __array_namespace_info__",
    "Linear algebra": "matmul matrix_transpose tensordot vecdot",
    "Shapes": (
        "broadcast_arrays broadcast_to concat expand_dims flip moveaxis permute_dims repeat reshape roll squeeze stack tile unstack"
    ),
    "Searching": "argmax argmin count_nonzero nonzero searchsorted where",
    "Sets": "unique_all unique_counts unique_inverse unique_values",
    "Sorting": "argsort sort",
    "Statistics": "cumulative_prod cumulative_sum max mean min prod std sum var",
    "Truth and differences": "all any diff",
}

LINALG = (
    "cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank matrix_transpose outer pinv qr slogdet "
    "solve svd svdvals tensordot trace vecdot vector_norm"
)

FFT = "fft ifft fftn ifftn rfft irfft rfftn irfftn hfft ihfft fftfreq rfftfreq fftshift ifftshift"

INFO = "capabilities default_device default_dtypes devices dtypes"

ATTRIBUTES = "dtype device mT ndim shape size T"

METHODS = (
    "__abs__ __add__ __and__ __array_namespace__ __bool__ __complex__ __dlpack__ __dlpack_device__ __eq__ __float__ __floordiv__ __ge__ "
    "__getitem__ __gt__ __index__ __int__ __invert__ __le__ __lshift__ __lt__ __matmul__ __mod__ __mul__ __ne__ __neg__ __or__ __pos__ "
    "__pow__ __rshift__ __setitem__ __sub__ __truediv__ __xor__ to_device"
)

IN_PLACE = (
    "__iadd__ __isub__ __imul__ __itruediv__ __ifloordiv__ __ipow__ __imod__ __imatmul__ __iand__ __ior__ __ixor__ __ilshift__ __irshift__"
)

REFLECTED = (
    "__radd__ __rsub__ __rmul__ __rtruediv__ __rfloordiv__ __rpow__ __rmod__ __rmatmul__ __rand__ __ror__ __rxor__ __rlshift__ __rrshift__"
)

# the arguments of the standard's functions, by the signature
SIGNATURES = {
    "(start, /, stop=None, step=1, *, dtype=None, device=None)": "arange",
    "(obj, /, *, dtype=None, device=None, copy=None)": "asarray",
    "(shape, *, dtype=None, device=None)": "empty ones zeros",
    "(x, /, *, dtype=None, device=None)": "empty_like ones_like zeros_like",
    "(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None)": "eye",
    "(x, /, *, device=None, copy=None)": "from_dlpack",
    "(shape, fill_value, *, dtype=None, device=None)": "full",
    "(x, /, fill_value, *, dtype=None, device=None)": "full_like",
    "(start, stop, /, num, *, dtype=None, device=None, endpoint=True)": "linspace",
    "(*arrays, indexing='xy')": "meshgrid",
    "(x, /, *, k=0)": "tril triu",
    "(x, dtype, /, *, copy=True, device=None)": "astype",
    "(from_, to, /)": "can_cast",
    "(type, /)": "finfo iinfo",
    "(dtype, kind)": "isdtype",
    "(*arrays_and_dtypes)": "result_type",
    "(x, /)": (
        "abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor imag isfinite isinf isnan log "
        "log1p log2 log10 logical_not negative positive real reciprocal round sign signbit sin sinh square sqrt tan tanh trunc "
        "matrix_transpose nonzero unique_all unique_counts unique_inverse unique_values linalg.det linalg.eigh linalg.eigvalsh "
        "linalg.inv linalg.matrix_transpose linalg.slogdet linalg.svdvals"
    ),
    "(x1, x2, /)": (
        "add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal floor_divide "
        "greater greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor maximum minimum multiply "
        "nextafter not_equal pow remainder subtract matmul linalg.matmul linalg.outer linalg.solve"
    ),
    "(x, /, min=None, max=None)": "clip",
    "(x, indices, /, *, axis=None)": "take",
    "(x, indices, /, *, axis=-1)": "take_along_axis",
    "(x1, x2, /, *, axes=2)": "tensordot linalg.tensordot",
    "(x1, x2, /, *, axis=-1)": "vecdot linalg.cross linalg.vecdot",
    "(*arrays)": "broadcast_arrays",
    "(x, /, shape)": "broadcast_to",
    "(arrays, /, *, axis=0)": "concat stack",
    "(x, /, axis)": "expand_dims squeeze",
    "(x, /, *, axis=None)": "flip",
    "(x, source, destination, /)": "moveaxis",
    "(x, /, axes)": "permute_dims",
    "(x, repeats, /, *, axis=None)": "repeat",
    "(x, /, shape, *, copy=None)": "reshape",
    "(x, /, shift, *, axis=None)": "roll",
    "(x, repetitions, /)": "tile",
    "(x, /, *, axis=0)": "unstack",
    "(x, /, *, axis=None, keepdims=False)": "argmax argmin count_nonzero max mean min all any",
    "(x1, x2, /, *, side='left', sorter=None)": "searchsorted",
    "(condition, x1, x2, /)": "where",
    "(x, /, *, axis=-1, descending=False, stable=True)": "argsort sort",
    "(x, /, *, axis=None, dtype=None, include_initial=False)": "cumulative_prod cumulative_sum",
    "(x, /, *, axis=None, dtype=None, keepdims=False)": "prod sum",
    "(x, /, *, axis=None, correction=0.0, keepdims=False)": "std var",
    "(x, /, *, axis=-1, n=1, prepend=None, append=None)": "diff",
    "(x, /, *, upper=False)": "linalg.cholesky",
    "(x, /, *, offset=0)": "linalg.diagonal",
    "(x, /, *, keepdims=False, ord='fro')": "linalg.matrix_norm",
    "(x, n, /)": "linalg.matrix_power",
    "(x, /, *, rtol=None)": "linalg.matrix_rank linalg.pinv",
    "(x, /, *, mode='reduced')": "linalg.qr",
    "(x, /, *, full_matrices=True)": "linalg.svd",
    "(x, /, *, offset=0, dtype=None)": "linalg.trace",
    "(x, /, *, axis=None, keepdims=False, ord=2)": "linalg.vector_norm",
}

NO_COMPLEX = "the library has no complex dtype"
LEFT_OUT = {
    "complex64": NO_COMPLEX + "; `remat.complex_pairs` has complex numbers as pairs of floats",
    "complex128": NO_COMPLEX + "; `remat.complex_pairs` has complex numbers as pairs of floats",
    **dict.fromkeys(
        ("fft." + name for name in FFT.split()),
        "an extension is whole or absent, and this one needs complex dtypes; `remat.fft` has transforms of pairs of floats, and `hfft` and "
        "`ihfft` are not there either",
    ),
}

ONE_DTYPE = "operands of two dtypes are an error, where the standard promotes them; the function `matmul` does"
MASKS = (
    "a mask that does not fit is a ShapeError, which is a ValueError, where the standard has an IndexError; a mask of extent 0 fits an "
    "axis of extent 0 only"
)

# what is met, with something that a reader may not expect
NOTES = {
    "asarray": "copies what is no tensor; `copy=False` refuses that",
    "from_dlpack": "copies; `copy=False` refuses that",
    "empty": "zeros",
    "empty_like": "zeros",
    "can_cast": "false between kinds, which the standard leaves open",
    "divide": "integers give float32, which the standard leaves open",
    "floor_divide": (
        "as Python's where an infinity is involved, which the standard allows: `inf // 1` is NaN, and `-1 // inf` is -1; an error for an "
        "integer divisor 0"
    ),
    "remainder": "an error for an integer divisor 0",
    "pow": "an error for an integer exponent below 0",
    "result_type": "integers with floats go to the float, which the standard leaves open",
    "real": "of real numbers themselves",
    "imag": "of real numbers 0",
    "conj": "of real numbers themselves",
    "nextafter": "of float32 and float64",
    "reshape": "always a view: data never change under a tensor, so that a view and a copy look alike",
    "sort": "always stable",
    "argsort": "always stable",
    "__array_namespace_info__": "`default_dtypes` has no entry for complex numbers",
    "__dlpack__": "copies",
    "__complex__": "of a real number",
    "__floordiv__": "as `floor_divide`",
    "__getitem__": MASKS,
    "__setitem__": "gives the object another value; parts that were taken before keep theirs; masks as for `__getitem__`",
    "__matmul__": ONE_DTYPE,
    "__rmatmul__": ONE_DTYPE,
    "__imatmul__": ONE_DTYPE,
    "__iadd__": "all of these give the object another value, within its shape and kind of dtype",
}


def listed():
    """Every name of the standard: section, name as the test and the page write it."""
    for section, names in NAMESPACE.items():
        yield from ((section, name) for name in names.split())
    yield from (("Extension `linalg`", "linalg." + name) for name in LINALG.split())
    yield from (("Extension `fft`", "fft." + name) for name in FFT.split())
    yield from (("Inspection", "__array_namespace_info__()." + name) for name in INFO.split())
    for section, names in (
        ("Attributes of an array", ATTRIBUTES), ("Methods of an array", METHODS), ("Reflected operators", REFLECTED),
        ("Operators in place", IN_PLACE),
    ):
        yield from ((section, name) for name in names.split())


HEAD = """# The Python array API standard

<!-- made by python/tests/array_api_standard.py; a test compares it with the package -->

`x.__array_namespace__()` is `remat.array_api`: the [Python array API standard](https://data-apis.org/array-api/2024.12/), version
2024.12, over the tensors of the package. Programs that are written for the standard run on them, within a budget and with gradients.

```python
import remat

def standardized(x):
    xp = x.__array_namespace__()
    return (x - xp.mean(x, axis=0)) / xp.std(x, axis=0)

print(standardized(remat.tensor([[1.0, 2.0], [3.0, 6.0]])))
```

The namespace has the standard's names, arguments, defaults and domains. The package's own functions beside it have NumPy's habits and
PyTorch's names: `remat.take(x, axis, index)` is `remat.array_api.take(x, index, axis=axis)`, and `remat.mean` takes integers, which the
standard's does not. `python/tests/test_array_api.py` compares every function with NumPy's, and its arguments with the standard's.

Of {total} names, {met} are met. A note says where a name differs from the standard, or what it does where the standard leaves that open.
"""


def page():
    """The text of the book's page."""
    names = list(listed())
    out = sum(name in LEFT_OUT for _, name in names)
    lines = [HEAD.format(total=len(names), met=len(names) - out)]
    sections = {}
    for section, name in names:
        sections.setdefault(section, []).append(name)
    for section, of in sections.items():
        lines.append(f"## {section}\n")
        plain = [f"`{n}`" for n in of if n not in LEFT_OUT and n not in NOTES]
        if plain:
            lines.append(", ".join(plain) + "\n")
        noted = [(n, NOTES[n]) for n in of if n in NOTES]
        reasons = {}
        for n in of:
            if n in LEFT_OUT:
                reasons.setdefault(LEFT_OUT[n], []).append(f"`{n}`")
        noted = [(f"`{n}`", note) for n, note in noted]
        noted += [(", ".join(all_of), "left out: " + reason) for reason, all_of in reasons.items()]
        if noted:
            lines.append("| name | |\n|---|---|\n" + "\n".join(f"| {n} | {note} |" for n, note in noted) + "\n")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
