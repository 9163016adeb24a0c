"""Operators with many options: that each option arrives, against NumPy and sums written out."""
import numpy as np
import pytest

import remat
from remat import nn

rng = np.random.default_rng(0)


def near(x, y, tolerance=1e-5):
    np.testing.assert_allclose(x.numpy(), y, rtol=tolerance, atol=tolerance)


def pairs(z):
    return np.stack([z.real, z.imag], -1)


def real_and_complex():
    a = rng.normal(size=(3, 6, 5))
    return a, a + 1j * rng.normal(size=a.shape)


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_transforms_are_numpys(norm):
    a, z = real_and_complex()
    x, w = remat.asarray(a), remat.asarray(pairs(z))
    for axis in (0, 1, -1):
        for n in (None, 4, 9):
            near(remat.fft.rfft(x, n, axis, norm), pairs(np.fft.rfft(a, n, axis, norm)), 1e-12)
            near(remat.fft.irfft(w, n, axis, norm), np.fft.irfft(z, n, axis, norm), 1e-12)
            near(remat.fft.fft(w, n, axis, norm), pairs(np.fft.fft(z, n, axis, norm)), 1e-12)
            near(remat.fft.ifft(w, n, axis, norm), pairs(np.fft.ifft(z, n, axis, norm)), 1e-12)
    for axes in ((0, 1), (2, 0), None):
        near(remat.fft.rfftn(x, axes, norm), pairs(np.fft.rfftn(a, axes=axes, norm=norm)), 1e-12)
        near(remat.fft.fftn(w, axes, norm), pairs(np.fft.fftn(z, axes=axes, norm=norm)), 1e-12)
        near(remat.fft.ifftn(w, axes, norm), pairs(np.fft.ifftn(z, axes=axes, norm=norm)), 1e-12)
    near(remat.fft.irfftn(remat.fft.rfftn(x, None, norm), 5, None, norm), a, 1e-12)


def test_pairs_are_complex_numbers():
    c = remat.complex_pairs
    _, z = real_and_complex()
    w = z[::-1] + 2
    x, y = remat.asarray(pairs(z)), remat.asarray(pairs(w))
    for f, want in [(c.add, z + w), (c.subtract, z - w), (c.multiply, z * w), (c.divide, z / w)]:
        near(f(x, y), pairs(want), 1e-12)
    for f, want in [(c.conj, z.conj()), (c.exp, np.exp(z)), (c.log, np.log(z)), (c.sqrt, np.sqrt(z))]:
        near(f(x), pairs(want), 1e-12)
    for f, want in [(c.real, z.real), (c.imag, z.imag), (c.absolute, abs(z)), (c.absolute_square, abs(z) ** 2), (c.angle, np.angle(z))]:
        near(f(x), want, 1e-12)
    near(c.polar(c.absolute(x), c.angle(x)), pairs(z), 1e-12)
    near(c.of_parts(c.real(x), c.imag(x)), pairs(z), 1e-12)
    near(c.matmul(x, remat.asarray(pairs(w.swapaxes(1, 2)))), pairs(z @ w.swapaxes(1, 2)), 1e-11)
    with pytest.raises(remat.ShapeError):
        c.conj(remat.ones(3))
    with pytest.raises(remat.DTypeError):
        remat.fft.fft(remat.ones(3, 2, dtype="int32"))
    with pytest.raises(ValueError, match="backward"):
        remat.fft.rfft(remat.ones(3), norm="other")


def test_frames_of_signals_transform_and_come_back():
    a = rng.normal(size=(2, 64))
    x = remat.asarray(a)
    hann = remat.fft.window("hann", 16, dtype="float64")
    near(hann, 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(16) / 16), 1e-12)
    for name, want in (("hamming", np.hamming(9)), ("blackman", np.blackman(9)), ("bartlett", np.bartlett(9)), ("rectangular", np.ones(9))):
        near(remat.fft.window(name, 9, periodic=False, dtype="float64"), want, 1e-12)
    near(remat.fft.window("kaiser", 9, 5.0, periodic=False, dtype="float64"), np.kaiser(9, 5.0), 1e-9)
    frames = np.stack([a[:, i : i + 16] for i in range(0, 49, 4)], 1) * hann.numpy()
    want = np.fft.rfft(frames).swapaxes(1, 2)
    z = remat.fft.stft(x, 16, 4, hann, center=False)
    near(z, pairs(want), 1e-12)
    near(remat.fft.stft(x, 16, 4, hann, center=False, normalized=True), pairs(want) / 4, 1e-12)
    near(remat.fft.spectrogram(x, 1.0, 16, 4, hann, center=False), abs(want), 1e-11)
    near(remat.fft.istft(remat.fft.stft(x, 16, 4, hann), 64, 16, 4, hann), a, 1e-11)
    filters = remat.fft.mel_filters(9, 4, 16000.0, dtype="float64")
    assert filters.shape == (9, 4) and bool((filters >= 0).all())
    assert remat.fft.mel_filters(9, 4, scale="slaney", unit_area=True).tolist() != filters.tolist()
    for wrong in (lambda: remat.fft.window("other", 4), lambda: remat.fft.window("kaiser", 4), lambda: remat.fft.mel_filters(9, 4, scale="x")):
        with pytest.raises(ValueError):
            wrong()


def windows(a, kernel, stride, padding, dilation):
    """Windows `[n, c, oh, ow, kh, kw]` written out."""
    (kh, kw), (sh, sw), (dh, dw) = kernel, stride, dilation
    a = np.pad(a, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))
    oh, ow = (a.shape[2] - dh * (kh - 1) - 1) // sh + 1, (a.shape[3] - dw * (kw - 1) - 1) // sw + 1
    return np.stack([
        np.stack([a[:, :, i * sh : i * sh + dh * kh : dh, j * sw : j * sw + dw * kw : dw] for j in range(ow)], 2) for i in range(oh)
    ], 2)


def test_windows_unfold_and_fold():
    a = rng.normal(size=(2, 3, 7, 6)).astype("float32")
    x = remat.asarray(a)
    kernel, stride, padding, dilation = (2, 3), (2, 1), (1, 0), (1, 2)
    want = windows(a, kernel, stride, padding, dilation)
    near(x.sliding_window(kernel, stride, padding, dilation), want)
    n, c, oh, ow, kh, kw = want.shape
    columns = want.transpose(0, 1, 4, 5, 2, 3).reshape(n, c * kh * kw, oh * ow)
    near(x.unfold(kernel, dilation, padding, stride), columns)
    # the transposes: <unfold(x), y> = <x, fold(y)>
    y = rng.normal(size=columns.shape).astype("float32")
    folded = remat.asarray(y).fold((7, 6), kernel, dilation, padding, stride)
    np.testing.assert_allclose((columns * y).sum(), (a * folded.numpy()).sum(), rtol=1e-4)
    y = rng.normal(size=want.shape).astype("float32")
    put = remat.asarray(y).sliding_window_transpose((7, 6), kernel, stride, padding, dilation)
    np.testing.assert_allclose((want * y).sum(), (a * put.numpy()).sum(), rtol=1e-4)


def test_convolutions_of_windows():
    a = rng.normal(size=(2, 4, 5, 6)).astype("float32")
    weight = rng.normal(size=(3, 4, 2, 2)).astype("float32")
    x, w = remat.asarray(a), remat.asarray(weight)
    options = {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2)}
    plain = remat.conv2d(x, w, **options)
    oh, ow = plain.shape[2:]
    still = remat.zeros(2, 8, oh, ow)
    near(remat.deform_conv2d(x, still, w, **options), plain.numpy())
    bias = remat.tensor([1.0, 2.0, 3.0])
    half = remat.full((2, 4, oh, ow), 0.5)
    near(remat.deform_conv2d(x, still, w, bias, **options, mask=half), plain.numpy() / 2 + np.array([1, 2, 3])[:, None, None])
    # one region is no restriction; one weight for all places is a convolution
    region, region_of_y = remat.zeros(2, 1, 5, 6, dtype="int32"), remat.zeros(2, 1, oh, ow, dtype="int32")
    near(remat.region_restricted_conv(x, w, region, region_of_y, **options), plain.numpy())
    same = np.broadcast_to(weight.transpose(1, 2, 3, 0), (1, oh, ow, 4, 2, 2, 3)).copy()
    near(remat.local_conv2d(x, remat.asarray(same), **options), plain.numpy())
    y = rng.normal(size=a.shape).astype("float32")
    for is_multiply in (True, False):
        got = remat.correlation(x, remat.asarray(y), max_displacement=1, padding=1, is_multiply=is_multiply)
        middle = got.numpy()[:, 4]
        near(remat.asarray(middle), (a * y if is_multiply else abs(a - y)).mean(1)[:, : middle.shape[1], : middle.shape[2]])
    with pytest.raises(ValueError):
        remat.deform_conv2d(x, still, remat.ones(2))


def test_images_of_another_size():
    a = rng.normal(size=(1, 2, 4, 6)).astype("float32")
    x = remat.asarray(a)
    near(x.interpolate((2, 3)), a[:, :, ::2, ::2])
    near(x.interpolate(scale_factor=2), a.repeat(2, 2).repeat(2, 3))
    near(x.interpolate(scale_factor=(2.0, 1.0), mode="nearest-exact"), a.repeat(2, 2))
    near(x.interpolate(2, mode="area"), a.reshape(1, 2, 2, 2, 2, 3).mean((3, 5)))
    ends = x.interpolate((7, 11), mode="bilinear", align_corners=True).numpy()
    np.testing.assert_allclose(ends[:, :, ::2, ::2], a, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ends[:, :, 1::2, ::2], (a[:, :, 1:] + a[:, :, :-1]) / 2, rtol=1e-5, atol=1e-6)
    smooth = x.interpolate((2, 3), mode="bicubic", antialias=True).numpy()
    assert abs(smooth - x.interpolate((2, 3), mode="bicubic").numpy()).max() > 1e-3
    for wrong in (lambda: x.interpolate(), lambda: x.interpolate(2, 2.0), lambda: x.interpolate(2, mode="other")):
        with pytest.raises(ValueError):
            wrong()


def test_warps_read_where_they_are_told():
    a = rng.normal(size=(2, 3, 4, 5)).astype("float32")
    x = remat.asarray(a)
    shift = remat.asarray(np.broadcast_to(np.array([[1.0, 0, 1], [0, 1, 2]], "float32"), (2, 2, 3)).copy())
    want = np.zeros_like(a)
    want[:, :, :2, :4] = a[:, :, 2:, 1:]
    near(remat.warp_affine(x, shift, (4, 5), beyond="zeros"), want)
    outside = np.ones((4, 5), bool)
    outside[:2, :4] = False
    near(remat.warp_affine(x, shift, (4, 5), "nearest", "zeros", 7.0), np.where(outside, np.float32(7), want))
    edge = a[:, :, [2, 3, 3, 3]][:, :, :, [1, 2, 3, 4, 4]]
    near(remat.warp_affine(x, shift, (4, 5)), edge)
    project = remat.asarray(np.array([[[1.0, 0, 1], [0, 1, 2], [0, 0, 1]]], "float32"))
    near(remat.warp_perspective(x, project, (4, 5), images=remat.tensor([1])), edge[1:])
    columns, rows = np.meshgrid(np.arange(5.0), np.arange(4.0))
    where = np.broadcast_to(np.stack([columns + 1, rows + 2], -1), (2, 4, 5, 2)).astype("float32")
    near(remat.remap(x, remat.asarray(where), beyond="zeros"), want)
    square = remat.asarray(a[:, :, :, :4].copy())
    near(square.rotate(90.0), np.rot90(a[:, :, :, :4], axes=(2, 3)), 1e-4)


def test_regions():
    x = remat.arange(16).astype("float32").reshape(1, 1, 4, 4)
    boxes = remat.tensor([[0.0, 0.0, 0.0, 2.0, 2.0]])
    # points at a quarter and three quarters of each part of one place
    near(remat.roi_align(x, boxes, 2), np.array([[[[2.5, 3.5], [6.5, 7.5]]]]))
    # half a place before; what is beyond the first pixel reads it
    near(remat.roi_align(x, boxes, 2, aligned=True), np.array([[[[0.625, 1.5], [4.125, 5.0]]]]))
    near(remat.roi_align(x, boxes * remat.tensor([[1.0, 2, 2, 2, 2]]), 2, spatial_scale=0.5), np.array([[[[2.5, 3.5], [6.5, 7.5]]]]))
    four = remat.concat([x, x + 100, x + 200, x + 300], 1)
    near(remat.ps_roi_align(four, boxes, 2), np.array([[[[0.625, 101.5], [204.125, 305.0]]]]))
    near(remat.deform_ps_roi_pool(remat.ones(1, 2, 4, 4), boxes, None, 2), np.ones((1, 2, 2, 2)))
    pushed = remat.deform_ps_roi_pool(x, boxes, remat.ones(1, 2, 1, 1), 1, offset_scale=0.5).item()
    assert pushed > remat.deform_ps_roi_pool(x, boxes, None, 1).item()


def test_pools_and_their_indices():
    a = rng.normal(size=(2, 3, 9)).astype("float32")
    x = remat.asarray(a)
    near(x.max_pool1d(3), a.reshape(2, 3, 3, 3).max(-1))
    near(x.avg_pool1d(3), a.reshape(2, 3, 3, 3).mean(-1))
    near(abs(x).lp_pool(3.0, 3), (abs(a).reshape(2, 3, 3, 3).astype("float64") ** 3).sum(-1) ** (1 / 3))
    y, places = x.max_pool_with_indices(3)
    near(y, np.take_along_axis(a, places.numpy(), -1))
    near(y.max_unpool(places, 9).sum(axis=-1), y.numpy().sum(-1))
    ends = x.avg_pool1d(3, 3, 1).numpy()[..., 0]
    np.testing.assert_allclose(ends, a[..., :2].sum(-1) / 3, rtol=1e-5)
    np.testing.assert_allclose(x.avg_pool1d(3, 3, 1, count_include_pad=False).numpy()[..., 0], a[..., :2].mean(-1), rtol=1e-5)
    assert x.max_pool1d(4, ceil_mode=True).shape == (2, 3, 3) and x.max_pool1d(4).shape == (2, 3, 2)
    cube = remat.asarray(rng.normal(size=(1, 2, 4, 4, 4)).astype("float32"))
    near(cube.max_pool3d(2), cube.numpy().reshape(1, 2, 2, 2, 2, 2, 2, 2).max((3, 5, 7)))
    near(cube.avg_pool3d(2), cube.numpy().reshape(1, 2, 2, 2, 2, 2, 2, 2).mean((3, 5, 7)))
    image = remat.asarray(rng.normal(size=(1, 2, 5, 5)).astype("float32"))
    assert image.max_pool2d(2, ceil_mode=True).shape == image.avg_pool2d(2, ceil_mode=True).shape == (1, 2, 3, 3)
    near(image.max_pool2d(2, 1, dilation=3), windows(image.numpy(), (2, 2), (1, 1), (0, 0), (3, 3)).max((-2, -1)))
    near(image.avg_pool2d(2, ceil_mode=True)[:, :, :2, :2], image.avg_pool2d(2).numpy())
    y, places = image.adaptive_max_pool(1)
    near(y.reshape(1, 2), image.numpy().max((2, 3)))
    assert places.reshape(-1).tolist() == image.numpy().reshape(2, -1).argmax(1).tolist()
    near(cube.adaptive_avg_pool3d(2), cube.avg_pool3d(2).numpy())
    near(x.adaptive_avg_pool1d(3), x.avg_pool1d(3).numpy())
    with pytest.raises(ValueError, match="lp_pool"):
        remat.ones(2).lp_pool(2.0, 1)


def test_bags_of_rows():
    table = rng.normal(size=(6, 3)).astype("float32")
    t, index = remat.asarray(table), np.array([[0, 5], [2, 2]])
    i = remat.asarray(index)
    for mode in ("sum", "mean", "max"):
        near(t.embedding_bag(i, mode=mode), getattr(table[index], mode)(1))
    weights = np.array([[1.0, 2.0], [3.0, 4.0]], "float32")
    near(t.embedding_bag(i, mode="sum", per_sample_weights=remat.asarray(weights)), (table[index] * weights[..., None]).sum(1))
    flat = remat.asarray(index.reshape(-1))
    near(t.embedding_bag(flat, remat.tensor([0, 1]), "sum"), np.stack([table[0], table[[5, 2, 2]].sum(0)]))
    near(t.embedding_bag(flat, remat.tensor([0, 1, 4]), "sum", include_last_offset=True), np.stack([table[0], table[[5, 2, 2]].sum(0)]))
    near(t.embedding_bag(i, padding_idx=5), np.stack([table[0], table[2]]))


def test_rotary_embeddings_turn_pairs():
    a = rng.normal(size=(2, 3, 1, 4))
    angle = np.arange(3)[:, None] * 100.0 ** (-2 * np.arange(2) / 4)
    z = (a[..., :2] + 1j * a[..., 2:]) * np.exp(1j * angle)[:, None]
    near(remat.asarray(a).rope(base=100.0), np.concatenate([z.real, z.imag], -1), 1e-12)
    z = (a[..., ::2] + 1j * a[..., 1::2]) * np.exp(1j * angle)[:, None]
    near(remat.asarray(a).rope(base=100.0, neighbours=True), np.stack([z.real, z.imag], -1).reshape(a.shape), 1e-12)
    by_place = remat.asarray(a).rope(base=100.0, positions=remat.tensor([5, 6, 7]))
    near(by_place, remat.asarray(a).rope(base=100.0, offset=5).numpy(), 1e-12)
    near(remat.asarray(a).rope(base=100.0, offset=2, scale=2.0)[:, :1], remat.asarray(a[:, :1]).rope(base=100.0, offset=1).numpy(), 1e-12)
    assert remat.asarray(a).rope(width=2)[..., 2:].tolist() == a[..., 2:].tolist()


def test_attention_is_the_sum_written_out():
    a, b, c = (rng.normal(size=(2, 3, t, 4)) for t in (5, 6, 6))
    q, k, v = (remat.asarray(x.astype("float32")) for x in (a, b, c))
    sees = rng.random((5, 6)) < 0.7
    sees[:, 0] = True
    added = rng.normal(size=(3, 5, 6)).astype("float32")
    for mask, causal, scale in ((None, False, None), (sees, False, None), (None, True, 0.3), (added, False, None)):
        scores = a @ b.swapaxes(-1, -2) * (scale or 0.5)
        scores = scores + (mask if mask is added else 0)
        mask_of_bools = None if mask is added else mask
        scores = np.where(np.tril(np.ones((5, 6), bool)) if causal else True if mask_of_bools is None else mask_of_bools, scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        given = None if mask is None else remat.asarray(mask)
        y = remat.scaled_dot_product_attention(q, k, v, given, is_causal=causal, scale=scale)
        near(y, p / p.sum(-1, keepdims=True) @ c)
    qkv = remat.asarray(rng.normal(size=(2, 5, 3, 4, 8)).astype("float32"))
    q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))
    for causal, scale in ((False, None), (True, 0.5)):
        want = remat.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale).transpose(1, 2)
        near(qkv.self_attention(is_causal=causal, scale=scale), want.numpy())


def test_gradients_flow_through_what_is_bound_by_hand():
    x = remat.asarray(rng.normal(size=(1, 2, 4, 4)).astype("float32")).requires_grad_()
    for f in (
        lambda: x.interpolate(8, mode="linear"), lambda: x.unfold(2), lambda: x.rotate(30.0), lambda: remat.fft.rfft(x),
        lambda: remat.complex_pairs.absolute(remat.fft.rfftn(x)), lambda: x.lp_pool(2.0, 2), lambda: x.max_pool_with_indices(2)[0],
        lambda: remat.roi_align(x, remat.tensor([[0.0, 0.0, 0.0, 2.0, 2.0]]), 2),
    ):
        x.grad = None
        f().sum().backward()
        assert x.grad.shape == x.shape and bool(x.grad.isfinite().all())


def test_extents_beyond_any_address_are_errors():
    """Found at random: products of extents that overflowed."""
    huge = 2**63 - 1
    boxes, x = remat.zeros(0, 5), remat.ones(1, 5, 5, 5)
    for wrong in (
        lambda: remat.ones(1, 2, 1).fold(huge, 1, stride=10**6),
        lambda: remat.ones(2, 0, 3).fold(huge, 7),
        lambda: remat.roi_align(x, boxes, (3 * 10**9, 2), sampling_ratio=huge),
        lambda: remat.ps_roi_align(remat.ones(3, 0, 2, 2), boxes, 2**31),
        lambda: remat.deform_ps_roi_pool(x, boxes, None, (3 * 10**9, 2), samples=2**32),
    ):
        with pytest.raises((remat.Error, ValueError)):
            wrong().wait()
    with pytest.raises(OSError, match="no host memory"):
        remat.fft.window("hann", 2**50)
    with pytest.raises(OSError, match="no host memory"):
        remat.fft.mel_filters(2**40, 2**10)


def test_numbers_that_nobody_means_are_errors(device):
    x = remat.ones(3, 3)
    for f in (remat.diag, remat.diagonal):
        for offset in (-(2**63), 2**63 - 1):
            with pytest.raises(remat.Error, match="diagonal"):
                f(x, offset)
    with pytest.raises(remat.Error, match="at most 65536"):
        remat.multigammaln(x, 2**40)
    for layers in (2**31, 2**62):
        with pytest.raises(remat.Error, match="layers"):
            nn.LSTM(2, 1, num_layers=layers)


def test_what_has_no_elements_gives_a_gradient_of_zeros(device):
    x = remat.ones(1, 2, 4).requires_grad_()
    remat.adaptive_avg_pool1d(x, 0).sum().backward()
    assert x.grad.tolist() == [[[0.0] * 4] * 2]
    y = remat.ones(1, 2, 4, 4).requires_grad_()
    remat.resize(y, (0, 2), "area").sum().backward()
    assert y.grad.shape == (1, 2, 4, 4) and y.grad.sum().item() == 0.0
