"""Spectra: transforms of real and complex numbers, and of overlapping frames of signals.

    >>> import remat
    >>> z = remat.fft.rfft(remat.tensor([1.0, 2.0, 3.0, 4.0]))
    >>> z.shape, remat.complex_pairs.real(z).tolist()
    ((3, 2), [10.0, -2.0, -2.0])

There is no complex dtype. Complex numbers are tensors of pairs: the last axis, of extent 2, holds real and imaginary
part, as in PyTorch's `view_as_real`. Axes are counted without it. `remat.complex_pairs` has the arithmetic. Transforms
take float32 and float64, and are differentiable.
"""
from typing import Optional, Sequence, Union

from . import _remat
from ._functions import fftfreq, fftshift, ifftshift, rfftfreq
from ._remat import Device, Tensor
from ._support import DTypeLike, default_device

__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "ifft", "ifftn", "ifftshift", "irfft", "irfftn", "istft", "mel_filters", "rfft",
    "rfftfreq", "rfftn", "spectrogram", "stft", "window",
]

_t = _remat._operators

Axes = Union[int, Sequence[int]]


def rfft(x: Tensor, n: Optional[int] = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The transform of real numbers along `axis`: the first `n / 2 + 1` of `sum of x_j e^(-2 pi i j k / n)`. They
    determine the others.

    `n` cuts the axis or fills it with zeros. `norm` "backward" divides the inverse by `n`, "forward" this transform by
    `n`, and "ortho" both by the root of `n`. Returns pairs. Errors: AxisError; DTypeError for other than float32 and
    float64; ValueError for no numbers.

    >>> import remat
    >>> remat.fft.rfft(remat.tensor([1.0, 0.0])).tolist()
    [[1.0, 0.0], [1.0, 0.0]]
    """
    return _t["rfft"](x, n, axis, norm)


def irfft(z: Tensor, n: Optional[int] = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The inverse of `rfft`: `n` real numbers along `axis`, from the first `n / 2 + 1` pairs of their transform. By
    default `n` is twice the extent less 2. Errors: as `rfft`, and ShapeError for a tensor that is not of pairs.

    >>> import remat
    >>> remat.fft.irfft(remat.fft.rfft(remat.tensor([1.0, 2.0, 3.0, 4.0]))).tolist()
    [1.0, 2.0, 3.0, 4.0]
    """
    return _t["irfft"](z, n, axis, norm)


def fft(z: Tensor, n: Optional[int] = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """`sum of z_j e^(-2 pi i j k / n)` of pairs along `axis`, cut off or filled with zeros to `n`. Returns pairs.
    Errors: as `irfft`.

    >>> import remat
    >>> remat.fft.fft(remat.tensor([[1.0, 0.0], [0.0, 0.0]])).tolist()
    [[1.0, 0.0], [1.0, 0.0]]
    """
    return _t["fft"](z, n, axis, norm)


def ifft(z: Tensor, n: Optional[int] = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The inverse of `fft`. Errors: as `fft`.

    >>> import remat
    >>> remat.fft.ifft(remat.tensor([[1.0, 0.0], [1.0, 0.0]])).tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    return _t["ifft"](z, n, axis, norm)


def _all(x: Tensor, axes: Optional[Axes], of_pairs: bool) -> Axes:
    return list(range(x.ndim - of_pairs)) if axes is None else axes


def rfftn(x: Tensor, axes: Optional[Axes] = None, norm: str = "backward") -> Tensor:
    """`rfft` along the last of `axes`, `fft` along the others; all axes for None. Errors: as these.

    >>> import remat
    >>> remat.complex_pairs.real(remat.fft.rfftn(remat.tensor([[1.0, 2.0], [3.0, 4.0]]))).tolist()
    [[10.0, -2.0], [-4.0, 0.0]]
    """
    return _t["rfftn"](x, _all(x, axes, False), norm)


def irfftn(z: Tensor, n: Optional[int] = None, axes: Optional[Axes] = None, norm: str = "backward") -> Tensor:
    """The inverse of `rfftn`, where the last of `axes` has `n` numbers. Errors: as `irfft`.

    >>> import remat
    >>> x = remat.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> remat.fft.irfftn(remat.fft.rfftn(x)).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    return _t["irfftn"](z, _all(z, axes, True), norm, n)


def fftn(z: Tensor, axes: Optional[Axes] = None, norm: str = "backward") -> Tensor:
    """`fft` along several axes, all for None. Errors: as `fft`.

    >>> import remat
    >>> remat.fft.fftn(remat.zeros(2, 3, 2)).shape
    (2, 3, 2)
    """
    return _t["fftn"](z, _all(z, axes, True), norm)


def ifftn(z: Tensor, axes: Optional[Axes] = None, norm: str = "backward") -> Tensor:
    """The inverse of `fftn`. Errors: as `fft`.

    >>> import remat
    >>> remat.fft.ifftn(remat.zeros(2, 3, 2)).shape
    (2, 3, 2)
    """
    return _t["ifftn"](z, _all(z, axes, True), norm)


def stft(
    x: Tensor,
    n_fft: int = 400,
    hop: int = 0,
    window: Optional[Tensor] = None,
    center: bool = True,
    normalized: bool = False,
) -> Tensor:
    """The transforms of overlapping frames of a signal: `[.., t]` to pairs `[.., n_fft / 2 + 1, frames, 2]`, as PyTorch's `stft`.

    Frames of `n_fft` points begin `hop` points apart, a quarter of a frame for 0, and are multiplied by
    `window: [n_fft]`. With `center` frames are centred on those points, and the signal is mirrored at its ends.
    `normalized` divides by the root of `n_fft`. Errors: AxisError; DTypeError for other than float32 and float64;
    ValueError and ShapeError for frames that do not fit.

    >>> import remat
    >>> remat.fft.stft(remat.ones(16), 4).shape
    (3, 17, 2)
    """
    return _t["stft"](x, n_fft, hop, window, center, normalized)


def istft(
    z: Tensor,
    length: Optional[int] = None,
    n_fft: int = 400,
    hop: int = 0,
    window: Optional[Tensor] = None,
    center: bool = True,
    normalized: bool = False,
) -> Tensor:
    """The signal whose `stft` with the same options is nearest to `z` (Griffin and Lim, 1984), cut off or filled with
    zeros to `length`.

    Errors: as `stft`, and ValueError for a length of 0.

    >>> import remat
    >>> x = remat.arange(16).astype("float64")
    >>> bool(remat.allclose(remat.fft.istft(remat.fft.stft(x, 4), 16, 4), x))
    True
    """
    return _t["istft"](z, length, n_fft, hop, window, center, normalized)


def spectrogram(
    x: Tensor,
    power: float = 2.0,
    n_fft: int = 400,
    hop: int = 0,
    window: Optional[Tensor] = None,
    center: bool = True,
    normalized: bool = False,
) -> Tensor:
    """The absolute value of `stft` to a power, 2 for energies: real numbers `[.., n_fft / 2 + 1, frames]`. Errors: as
    `stft`.

    >>> import remat
    >>> remat.fft.spectrogram(remat.ones(8), n_fft=4, hop=4, center=False).tolist()
    [[16.0, 16.0], [0.0, 0.0], [0.0, 0.0]]
    """
    return _t["spectrogram"](x, power, n_fft, hop, window, center, normalized)


def window(
    name: str,
    n: int,
    shape: Optional[float] = None,
    periodic: bool = True,
    dtype: DTypeLike = "float32",
    device: Optional[Device] = None,
) -> Tensor:
    """A window of `n` points: "rectangular", "bartlett", "hann", "hamming", "blackman", "cosine", "gaussian" or "kaiser".

    `shape` is the deviation of "gaussian", in points, and the beta of "kaiser". If `periodic`, the window is the first
    `n` of `n + 1` points, as frames of a transform need it. Errors: DTypeError for other than floats; ValueError for
    another name, or a missing or invalid `shape`.

    >>> import remat
    >>> remat.fft.window("hann", 4, dtype="float64").round_to(6).tolist()
    [0.0, 0.5, 1.0, 0.5]
    """
    return _t["window"](default_device(device), name, shape, n, periodic, dtype)


def mel_filters(
    n_bins: int,
    n_mels: int,
    sample_rate: float = 16000.0,
    low: float = 0.0,
    high: Optional[float] = None,
    scale: str = "htk",
    unit_area: bool = False,
    dtype: DTypeLike = "float32",
    device: Optional[Device] = None,
) -> Tensor:
    """Triangular filters at equal distances of pitch: a matrix `[n_bins, n_mels]`, to multiply the bins of a
    spectrogram with.

    They reach from `low` to `high` Hz, by default half the sample rate. The scale of pitch is "htk" or "slaney".
    Filters have height 1, or area 1 if `unit_area`. Errors: DTypeError for other than floats; ValueError.

    >>> import remat
    >>> energies = remat.fft.spectrogram(remat.ones(800))
    >>> remat.matmul(energies.mT, remat.fft.mel_filters(201, 40)).shape
    (9, 40)
    """
    if scale not in ("htk", "slaney"):
        raise ValueError(f"`{scale}` is none of htk, slaney")
    device = default_device(device)
    return _t["mel_filters"](device, n_bins, n_mels, sample_rate, low, high, scale == "slaney", unit_area, dtype)
