"""What `bench_operators.py` times: for each operator PyTorch's function, arguments, and inputs of a small and a large size."""

import types


def spec(shape, kind="normal", low=0.0, high=1.0, dtype="f32"):
    return {"shape": list(shape), "kind": kind, "low": low, "high": high, "dtype": dtype}


def uniform(shape, low, high):
    return spec(shape, "uniform", low, high)


def ints(shape, high, low=0):
    return spec(shape, "ints", low, high, "i64")


def bools(shape):
    return spec(shape, "ints", 0, 2, "bool")


IN_F64 = "computed in f64 and rounded once; a vector has twice as many of the f32 that PyTorch computes in"
LIBRARY = "the time of faer's routine; PyTorch calls LAPACK of Intel's library"

# A row whose ratio is above 2.0, and what binds it.
WHY = {
    **dict.fromkeys(("log", "log2", "log10", "exp2", "asin", "acos", "tan", "erf", "erfc", "erfinv"), IN_F64),
    "gelu": "within 2 ulp of the exact form far into the tail; PyTorch's is 0 from -6 on",
    "lerp": "three operators, each a pass over memory; PyTorch's is one kernel",
    "hardshrink": "an absolute value, a comparison and a selection, each a pass over memory; PyTorch's is one kernel",
    "softshrink": "the gradient of the clamp in it is two comparisons and two selections, each a pass over memory",
    "unfold": "a copy out of a view of overlapping windows, element by element at the borders",
    "histc": "each element is searched among the edges, which may be unequal, and added; PyTorch divides by one width",
    "pad_with": "one concatenation for each axis that is padded; PyTorch's kernel takes all axes at once",
    **dict.fromkeys(
        [f"interpolate {mode}, {size}" for mode in ("nearest", "linear") for size in ("small", "large")],
        "a sparse product along each axis, for every rule; PyTorch has a kernel for this rule and these two axes",
    ),
    "grid_sample": "places and weights of taps are worked out in f64, point by point, for every rule and number of axes; "
    "PyTorch has a vectorised kernel for two axes",
    "attention, one query": "the backward pass runs in the tiles that are made for many queries",
    "lgamma": "Cephes' functions in f64, element by element, within 8 ulp up to the zeros",
    "cdist": "a matrix product and eight passes; PyTorch has a kernel for what follows the product",
    "svdvals": LIBRARY,
    "eigvalsh": LIBRARY,
    **dict.fromkeys(("rfft", "fft"), "the time of rustfft; PyTorch calls Intel's library"),
}

SMALL, LARGE = (32, 32), (1024, 1024)


def rows():
    """Each operator, with `name`, `op`, `args`, `torch`, `small`, `large` and whether it has a gradient."""
    try:
        import torch
        import torch.nn.functional as F
    except ImportError:  # the side that only gives orders
        torch = F = None

    def row(name, f, small, large, grad=True, op=None, **args):
        return types.SimpleNamespace(name=name, op=op or name, torch=f, small=small, large=large, grad=grad, args=args)

    def t(path):
        """A function of PyTorch by its name, for where PyTorch is."""
        module, name = (F, path[2:]) if path.startswith("F.") else (torch, path)
        return getattr(module, name) if torch else None

    positive, unit = (0.1, 4.0), (-0.95, 0.95)
    for name, f, (low, high) in [
        ("relu", "relu", (-2, 2)), ("relu6", "F.relu6", (-2, 8)), ("abs", "abs", (-2, 2)), ("neg", "neg", (-2, 2)),
        ("exp", "exp", (-2, 2)), ("expm1", "expm1", (-2, 2)), ("log", "log", positive), ("log1p", "log1p", positive),
        ("sqrt", "sqrt", positive), ("rsqrt", "rsqrt", positive), ("square", "square", (-2, 2)),
        ("recip", "reciprocal", positive), ("sin", "sin", (-3, 3)), ("cos", "cos", (-3, 3)), ("tan", "tan", (-1, 1)),
        ("asin", "asin", unit), ("acos", "acos", unit), ("atan", "atan", (-3, 3)), ("sinh", "sinh", (-2, 2)),
        ("cosh", "cosh", (-2, 2)), ("tanh", "tanh", (-2, 2)), ("asinh", "asinh", (-3, 3)), ("acosh", "acosh", (1.1, 4)),
        ("atanh", "atanh", unit), ("sigmoid", "sigmoid", (-4, 4)), ("logsigmoid", "F.logsigmoid", (-4, 4)),
        ("softplus", "F.softplus", (-4, 4)), ("silu", "F.silu", (-4, 4)), ("gelu", "F.gelu", (-4, 4)),
        ("erf", "erf", (-2, 2)), ("erfc", "erfc", (-2, 2)), ("erfinv", "erfinv", unit), ("hsigmoid", "F.hardsigmoid", (-4, 4)),
        ("hswish", "F.hardswish", (-4, 4)),
    ]:  # fmt: skip
        yield row(name, t(f), [uniform(SMALL, low, high)], [uniform(LARGE, low, high)])
    for name, f in [("floor", "floor"), ("ceil", "ceil"), ("trunc", "trunc"), ("sign", "sign")]:
        yield row(name, t(f), [spec(SMALL)], [spec(LARGE)], grad=False)
    for name, f in [
        ("add", "add"), ("sub", "sub"), ("mul", "mul"), ("div", "div"), ("maximum", "maximum"), ("minimum", "minimum"),
        ("atan2", "atan2"), ("log_add_exp", "logaddexp"), ("pow", "pow"), ("rem", "remainder"),
    ]:  # fmt: skip
        pair = lambda s: [uniform(s, *positive), uniform(s, *positive)]
        yield row(name, t(f), pair(SMALL), pair(LARGE))
    for name, f in [("eq", "eq"), ("lt", "lt")]:
        yield row(name, t(f), [spec(SMALL), spec(SMALL)], [spec(LARGE), spec(LARGE)], grad=False)
    yield row("where_cond", t("where"), [bools(SMALL)] + [spec(SMALL)] * 2, [bools(LARGE)] + [spec(LARGE)] * 2)
    yield row("clamp", lambda x: torch.clamp(x, -1, 1), [spec(SMALL)], [spec(LARGE)], lo=-1.0, hi=1.0)
    yield row("elu", t("F.elu"), [spec(SMALL)], [spec(LARGE)], alpha=1.0)
    yield row("leaky_relu", lambda x: F.leaky_relu(x, 0.1), [spec(SMALL)], [spec(LARGE)], slope=0.1)
    yield row("lerp", lambda a, b: torch.lerp(a, b, 0.3), [spec(SMALL)] * 2, [spec(LARGE)] * 2, weight=0.3)
    prob = lambda s: [spec(s), uniform(s, 0, 1)]
    f = lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none")
    yield row("bce_with_logits", f, prob(SMALL), prob(LARGE), weight=False, pos=False, reduction="none")
    # order and selection
    rowed, wide = [spec((16, 64))], [spec((512, 2048))]
    for name, f in [("cumsum", "cumsum"), ("cumprod", "cumprod"), ("logcumsumexp", "logcumsumexp")]:
        yield row(name, lambda x, f=t(f): f(x, 1), rowed, wide, axis=1)
    for name, f in [("cummax", "cummax"), ("cummin", "cummin")]:
        yield row(name, lambda x, f=t(f): f(x, 1), rowed, wide, axis=1)
    yield row("sort", lambda x: torch.sort(x, 1), rowed, wide, axis=1, descending=False)
    yield row("argsort", lambda x: torch.argsort(x, 1), rowed, wide, grad=False, axis=1, descending=False)
    yield row("topk", lambda x: torch.topk(x, 8, 1), rowed, wide, k=8, axis=1, largest=True)
    yield row("kthvalue", lambda x: torch.kthvalue(x, 5, 1), rowed, wide, k=5, axis=1, keepdims=False)
    yield row("median", lambda x: torch.median(x, 1), rowed, wide, axis=1, keepdims=False)
    yield row("histc", lambda x: torch.histc(x, 64, -3.0, 3.0), rowed, wide, grad=False, bins=64, low=-3.0, high=3.0)
    yield row("count_nonzero", lambda x: torch.count_nonzero(x, [1]), rowed, wide, grad=False, axes=[1], keepdims=False)
    # by index tensors
    place = lambda x, i, high: [spec(x), ints(i, high)]
    yield row("gather", lambda x, i: torch.gather(x, 1, i), place((16, 64), (16, 8), 64), place((512, 2048), (512, 1024), 2048), axis=1)
    f = lambda x, i: torch.index_select(x, 0, i)
    yield row("index_select", f, place((64, 16), (32,), 64), place((8192, 256), (4096,), 8192), axis=0)
    source = lambda x, i, high: [spec(x), ints(i, high), spec(i)]
    small, large = source((16, 64), (16, 32), 64), source((512, 2048), (512, 1024), 2048)
    yield row("scatter", lambda x, i, s: torch.scatter(x, 1, i, s), small, large, axis=1)
    yield row("scatter_add", lambda x, i, s: torch.scatter_add(x, 1, i, s), small, large, axis=1)
    added = lambda x, n: [spec(x), ints((n,), x[0]), spec((n,) + x[1:])]
    f = lambda x, i, s: torch.index_add(x, 0, i, s)
    yield row("index_add", f, added((64, 16), 32), added((8192, 256), 4096), axis=0)
    yield row("index", lambda x, i: x[i], place((64, 16), (32,), 64), place((8192, 256), (4096,), 8192), axes=[0])
    # losses
    pair, big = [spec((32, 10)), spec((32, 10))], [spec((1024, 1000)), spec((1024, 1000))]
    ordinary = dict(weight=False, reduction="mean")
    yield row("mse", t("F.mse_loss"), pair, big, reduction="mean")
    yield row("l1", t("F.l1_loss"), pair, big, reduction="mean")
    yield row("smooth_l1", t("F.smooth_l1_loss"), pair, big, delta=1.0, reduction="mean")
    yield row("huber", t("F.huber_loss"), pair, big, delta=1.0, reduction="mean")
    classes = lambda n, c: [spec((n, c)), ints((n,), c)]
    yield row("cross_entropy", t("F.cross_entropy"), classes(32, 10), classes(1024, 1000), smoothing=0.0, **ordinary)
    yield row("nll", t("F.nll_loss"), classes(32, 10), classes(1024, 1000), **ordinary)
    f = lambda x, p: F.kl_div(x, p, reduction="mean")
    targets = lambda s: [spec(s), uniform(s, 0.01, 1)]
    yield row("kl_div", f, targets((32, 10)), targets((1024, 1000)), log_target=False, reduction="mean")
    chances = lambda s: [uniform(s, 0.01, 0.99), uniform(s, 0.01, 0.99)]
    yield row("bce", t("F.binary_cross_entropy"), chances((32, 10)), chances((1024, 1000)), **ordinary)
    triple = lambda s: [spec(s)] * 3
    f = lambda a, b, c: F.triplet_margin_loss(a, b, c)
    yield row("triplet_margin", f, triple((32, 16)), triple((1024, 256)), margin=1.0, p=2.0, swap=False, reduction="mean")
    # activations with parameters
    for name, f, args in [
        ("celu", lambda x: F.celu(x, 1.5), dict(alpha=1.5)), ("selu", t("F.selu"), {}), ("mish", t("F.mish"), {}),
        ("softsign", t("F.softsign"), {}), ("tanhshrink", t("F.tanhshrink"), {}),
        ("hardtanh", t("F.hardtanh"), dict(lo=-1.0, hi=1.0)), ("hardshrink", t("F.hardshrink"), dict(lam=0.5)),
        ("softshrink", t("F.softshrink"), dict(lam=0.5)), ("softmin", lambda x: F.softmin(x, -1), dict(axis=-1)),
    ]:  # fmt: skip
        yield row(name, f, [spec(SMALL)], [spec(LARGE)], **args)
    vectors = lambda s: [spec(s), spec(s)]
    f = lambda a, b: F.cosine_similarity(a, b, -1)
    yield row("cosine_similarity", f, vectors((32, 16)), vectors((1024, 512)), axis=-1, eps=1e-8)
    # images
    image = lambda n, c, h, w: [spec((n, c, h, w))]
    small, large = image(1, 8, 16, 16), image(8, 64, 56, 56)
    f = lambda x: F.group_norm(x, 4, eps=1e-3)
    yield row("group_norm", f, small, large, groups=4, eps=1e-3)
    yield row("instance_norm", lambda x: F.instance_norm(x, eps=1e-3), small, large, eps=1e-3)
    f = lambda x: F.local_response_norm(x, 5)
    yield row("local_response_norm", f, small, large, size=5, alpha=1e-4, beta=0.75, k=1.0)
    f = lambda x: F.pad(x, (2, 2, 2, 2), "reflect")
    yield row("pad_with", f, small, large, amounts=[0, 0, 0, 0, 2, 2, 2, 2], mode="reflect")
    yield row("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), small, large, r=2)
    windows = dict(kernel=[3, 3], stride=[1, 1], padding=[1, 1], dilation=[1, 1])
    yield row("unfold", lambda x: F.unfold(x, 3, padding=1), small, image(8, 16, 56, 56), **windows)
    double = lambda h: [2 * h, 2 * h]
    for name, mode, own in (("nearest", "nearest", "nearest"), ("linear", "bilinear", "linear"), ("cubic", "bicubic", "cubic")):
        for h, x in ((16, small), (56, image(8, 16, 56, 56))):
            which = "small" if h == 16 else "large"
            f = lambda x, h=h, mode=mode: F.interpolate(x, double(h), mode=mode)
            args = dict(to=double(h), mode=own, align=False, smooth=False)
            yield row(f"interpolate {name}, {which}", f, x, x, op="interpolate", **args)
    pool = dict(kernel=[3, 3], stride=[2, 2], padding=[1, 1], ceil=True)
    f = lambda x: F.max_pool2d(x, 3, 2, 1, 1, True, return_indices=True)[0]
    yield row("max_pool_with_indices", f, small, large, dilation=[1, 1], **pool)
    f = lambda x: F.avg_pool2d(x, 3, 2, 1, True)
    yield row("avg_pool", f, small, large, with_padding=True, divisor=0, **pool)
    f = lambda x: F.adaptive_max_pool2d(x, 7)
    yield row("adaptive_max_pool", f, small, large, to=[7, 7])
    grid = lambda n, h: [spec((n, 16, h, h)), uniform((n, h, h, 2), -1.1, 1.1)]
    f = lambda x, p: F.grid_sample(x, p, "bilinear", "zeros", False)
    yield row("grid_sample", f, grid(1, 16), grid(8, 64), mode="bilinear", padding="zeros", align=False)
    # language models
    def heads(n, tq, tk, h, kv, d):
        return [spec((n, tq, h, d)), spec((n, tk, kv, d)), spec((n, tk, kv, d))]

    def attention(causal=False):
        def run(q, k, v):
            q, k, v = (x.transpose(1, 2) for x in (q, k, v))
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True).transpose(1, 2)

        return run

    yield row("attention", attention(True), heads(1, 32, 32, 4, 4, 16), heads(4, 256, 256, 6, 6, 64), kind="", causal=True)
    small, large = heads(1, 32, 32, 4, 2, 16), heads(4, 256, 256, 8, 2, 64)
    yield row("attention, shared heads", attention(True), small, large, op="attention", kind="", causal=True)
    small, large = heads(1, 1, 64, 4, 1, 16), heads(1, 1, 4096, 16, 4, 64)
    yield row("attention, one query", attention(), small, large, op="attention", kind="")
    f = lambda x, w: F.rms_norm(x, x.shape[-1:], w, 1e-6)
    yield row("rms_norm", f, [spec(SMALL), spec((32,))], [spec(LARGE), spec((1024,))], axes=1, eps=1e-6)
    yield row("glu", t("F.glu"), [spec(SMALL)], [spec(LARGE)], axis=-1)
    f = lambda x: F.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1]
    yield row("swiglu", f, [spec(SMALL)], [spec(LARGE)], axis=-1)
    # maths
    for name, f, (low, high) in [
        ("log2", "log2", positive), ("log10", "log10", positive), ("exp2", "exp2", (-2, 2)), ("lgamma", "lgamma", positive),
        ("i0", "i0", (-3, 3)), ("sinc", "sinc", (-3, 3)), ("round", "round", (-9, 9)),
    ]:  # fmt: skip
        yield row(name, t(f), [uniform(SMALL, low, high)], [uniform(LARGE, low, high)], grad=name != "round")
    for name, f in [("hypot", "hypot"), ("fmod", "fmod")]:
        yield row(name, t(f), [uniform(SMALL, 1, 4)] * 2, [uniform(LARGE, 1, 4)] * 2)
    f = lambda a, b: torch.einsum("bhqd,bhkd->bhqk", a, b)
    small, large = [spec((1, 2, 16, 8))] * 2, [spec((4, 6, 128, 64))] * 2
    yield row("einsum", f, small, large, equation="bhqd,bhkd->bhqk")
    f = lambda a, b: torch.cdist(a, b)
    yield row("cdist", f, [spec((32, 8))] * 2, [spec((1024, 64))] * 2, p=2.0)
    f = lambda x: torch.linalg.vector_norm(x, 3.0, [1])
    yield row("norm_of", f, [spec(SMALL)], [spec(LARGE)], p=3.0, axes=[1], keepdims=False)
    # linear algebra and spectra
    square, big = [spec((16, 16))], [spec((256, 256))]
    near = lambda x: x @ x.transpose(-2, -1) + torch.eye(x.shape[-1])
    yield row("cholesky", lambda x: torch.linalg.cholesky(near(x)), square, big)
    yield row("solve", lambda a, b: torch.linalg.solve(a, b), [*square, spec((16, 4))], [*big, spec((256, 64))])
    yield row("inverse", lambda x: torch.linalg.inv(x), square, big)
    yield row("svdvals", lambda x: torch.linalg.svdvals(x), square, [spec((128, 128))])
    yield row("eigvalsh", lambda x: torch.linalg.eigvalsh(near(x * 0.3)), square, [spec((128, 128))])
    args = dict(n=None, axis=-1, norm="backward")
    yield row("rfft", lambda x: torch.view_as_real(torch.fft.rfft(x)), [spec((8, 64))], [spec((256, 1024))], **args)
    f = lambda x: torch.view_as_real(torch.fft.fft(torch.view_as_complex(x)))
    yield row("fft", f, [spec((8, 64, 2))], [spec((256, 1000, 2))], **args)
    # recurrent layers: T, B, inputs and hidden
    for name, gates in (("rnn", 1), ("gru", 3), ("lstm", 4)):

        def layer(n, b, h, g=gates):
            return [spec((n, b, h))] + [uniform(s, -0.1, 0.1) for s in ((g * h, h), (g * h, h), (g * h,), (g * h,))]

        def run(x, *w, name=name):
            z = torch.zeros(1, x.shape[1], w[1].shape[1])
            if name == "lstm":
                return torch.lstm(x, (z, z), w, True, 1, 0.0, True, False, False)[0]
            f = torch.gru if name == "gru" else torch.rnn_tanh
            return f(x, z, w, True, 1, 0.0, True, False, False)[0]

        args = dict(state=False, bias=True, nonlinearity="tanh") if name == "rnn" else dict(state=False, bias=True)
        yield row(name, run, layer(8, 4, 32), layer(64, 32, 256), **args)
