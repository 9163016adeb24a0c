"""Sentences of the book about what is here, and what is not, held to the code and to what other libraries have.

`test_pages.py` runs the pages' programs; `test_array_api.py` has the page on the standard.
"""
import importlib
import inspect
import pathlib
import pickle
import re

import pytest

import remat

ROOT = pathlib.Path(__file__).parents[2]
PAGES = ROOT / "docs" / "src"
CRATES = ROOT / "crates"
pytestmark = pytest.mark.skipif(not PAGES.exists(), reason="not in a clone of the repository")

CODE = re.compile(r"`([^`]+)`")


def page(name):
    return (PAGES / name).read_text()


def section(text, title):
    """What stands below a heading, up to the next of the same level or a higher one."""
    level = title.index(" ")
    found = re.search(rf"^{re.escape(title)}\n(.*?)(?=^#{{1,{level}}} |\Z)", text, re.M | re.S)
    assert found, f"no section `{title}`"
    return found[1]


def rows(text):
    """The rows of tables below their heads, as lists of cells."""
    found = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line.startswith("| ")]
    return [row for row in found if not row[0].startswith("---")]


# ---- megengine.md: the graph


# of `ComputingGraph::Options` in MegEngine 1.13; a field of a struct within by its own name
OPTIONS = (
    "sublinear_memory_endpoint enable_mem_plan_opt enable_mem_reuse_alloc enable_seq_comp_node_opt jit jit_config tensorrt "
    "f16_io_f32_comp f16_io_comp fuse_conv_bias_nonlinearity fuse_conv_bias_with_z weight_preprocess fuse_preprocess fuse_grain "
    "layout_transform graph_opt_level disable_inplace_arith_opt allreduce_pack_max_size allreduce_pack_ignore_first log_level "
    "async_exec_level force_dynamic_alloc force_output_dynamic_alloc force_output_use_user_specified_memory "
    "var_sanity_check_first_run allocate_static_mem_after_graph_compile fake_next_exec enable_sublinear_memory_opt "
    "sublinear_mem_config enable_dtr_memory_opt dtr_config no_profiling_on_shape_change enable_var_mem_defragment "
    "enable_grad_var_static_reshape enable_memory_swap comp_node_seq_record_level eager_evaluation imperative_proxy_graph "
    "no_force_inplace comp_seq_sync_device extra_vardeps user_data fast_run_config"
)
FLAGS = (
    "NO_SYS_MEM_ALLOC NO_ALLOC_IF_UNUSED NO_SYS_STATIC_MEM_ALLOC NO_MEM_RECLAIM VOLATILE_CONTENT ALLOW_EMPTY_SHAPE "
    "PERSISTENT_DEVICE_VALUE DISALLOW_RT_FORCE_DYNAMIC_MEM_ALLOC DISALLOW_VAR_SANITY_CHECK RT_FORCE_DYNAMIC_MEM_ALLOC FLAG_FREEZED "
    "MEMORY_NO_NEED"
)
METHODS = (
    "id make assert_destroy compile compile_multi_part insert_opr current_comp_seq var_receiver_in_current_comp_seq "
    "get_mem_allocation_info find_var_by_id event options static_infer_manager seq_comp_node_optimizer share_device_memory_with "
    "set_device_memory_allocator get_device_memory_size clear_device_memory set_as_subgraph nr_oprs_in_graph prealloc_static_storage "
    "record_async_error"
)


@pytest.mark.parametrize("title, names", [
    ("## Options", OPTIONS), ("## Flags of a `VarNode`", FLAGS), ("## Methods of `ComputingGraph`", METHODS),
])
def test_every_option_flag_and_method_has_its_row(title, names):
    told = {part for row in rows(section(page("megengine.md"), title)) for code in CODE.findall(row[0]) for part in code.split(".")}
    lacking = [name for name in names.split() if name not in told]
    assert not lacking


def sources():
    """The Rust text of each crate, by its folder's name."""
    return {c.name: "\n".join(p.read_text() for p in c.rglob("*.rs")) for c in CRATES.iterdir() if c.is_dir()}


def cited(text):
    """The tests that tables cite, as `crate: a, b`: pairs of crate and test."""
    for row in rows(text):
        for cell in row:
            at = None
            for token in re.finditer(r"\b([a-z]+): (?=`)|`([a-z0-9_]+)`", cell):
                if token[1]:
                    at = token[1]
                elif at and "_" in token[2]:
                    yield at, token[2]


def test_every_test_that_the_graphs_page_cites_is_there():
    text, code = page("megengine.md"), sources()
    found = [(crate, name) for crate, name in cited(text) if crate in code]
    assert len(found) > 150
    assert not [f"{crate}: {name}" for crate, name in found if f"fn {name}(" not in code[crate]]


def test_defaults_of_the_graphs_page_are_the_librarys():
    """What needs a level above the default one is off; options that hold a limit are unset."""
    by_name = {code: row for row in rows(section(page("megengine.md"), "## Options")) for code in CODE.findall(row[0])}
    passes = "\n".join(sources().values())
    levels = {name: int(level) for name, level in re.findall(r'Pass \{\s+name: "(\w+)",\s+level: (\d)', passes)}
    default = int(by_name["graph_opt_level"][2])
    assert f"level: {default}," in re.search(r"impl Default for PassOptions \{.*?\n\}", passes, re.S)[0]
    for option, pass_name in (
        ("graph_opt.jit", "fuse"), ("graph_opt.fuse_conv_bias_nonlinearity", "pack_layouts"),
        ("graph_opt.weight_preprocess", "pack_layouts"), ("graph_opt.layout_transform", "pack_layouts"),
    ):
        row = by_name[option]
        assert f"`{pass_name}`" in row[1], option
        assert row[2] == ("on" if levels[pass_name] <= default else f"off: level {default}"), option


def test_what_upstreams_policy_is_called():
    """The policy has the form of MegEngine's, in seconds and not in its units, and the page says both."""
    text = page("memory.md")
    policy = (CRATES / "runtime" / "src" / "eager" / "eviction" / "policy.rs").read_text()
    body = re.search(r"PolicyKind::Upstream => \{(.*?)\n        \}", policy, re.S)[1]
    is_in_seconds = "ancestors_ns * 1e-9 + 1e-3" in body and "idle_ns * 1e-9 + 1e-3" in body
    assert is_in_seconds == ("says nothing about MegEngine" in text)
    assert "by MegEngine's formula" not in text


# ---- from_megengine.md


# the public names of MegEngine 1.13's modules, by module, without those of images' augmentations and of vendors' caches
MEGENGINE = {
    "functional": (
        "add sub mul div floor_div neg pow mod abs exp expm1 erf log log1p sqrt square logaddexp round ceil floor maximum minimum clip "
        "cos sin tan acos asin atan atan2 cosh sinh tanh asinh acosh atanh left_shift right_shift logical_and logical_or logical_xor "
        "logical_not equal not_equal less less_equal greater greater_equal isnan isinf sign sum prod mean var std min max argmin argmax "
        "argsort sort topk matinv cross matmul dot svd norm normalize arange linspace eye diag full ones zeros zeros_like ones_like "
        "polar complex real imag full_like broadcast_to concat stack split gather scatter where cond_take transpose non_zero swapaxes "
        "reshape flatten expand_dims squeeze repeat tile copy roll cumsum meshgrid linear conv1d conv2d conv3d conv_transpose2d "
        "deformable_conv2d local_conv2d conv_transpose3d max_pool2d avg_pool2d adaptive_max_pool2d adaptive_avg_pool2d "
        "deformable_psroi_pooling hswish sigmoid hsigmoid relu relu6 prelu leaky_relu silu gelu softplus logsoftmax logsigmoid logsumexp "
        "softmax instance_norm group_norm layer_norm general_norm batch_norm sync_batch_norm dropout one_hot embedding indexing_one_hot "
        "sliding_window sliding_window_transpose pad local_response_norm pixel_shuffle region_restricted_conv multi_head_attention "
        "l1_loss square_loss cross_entropy binary_cross_entropy hinge_loss ctc_loss topk_accuracy cvt_color roi_pooling correlation "
        "roi_align nms remap warp_affine warp_perspective interpolate nvof flip rot90 rotate resize conv_bias_activation "
        "batch_conv_bias_activation extern_opr_subgraph tensorrt_runtime_opr cambricon_runtime_opr atlas_runtime_opr "
        "magicmind_runtime_opr einsum"
    ),
    "module": (
        "Softmax Sigmoid SiLU GELU ReLU PReLU LeakyReLU AdaptiveMaxPool2d AdaptiveAvgPool2d BatchMatMulActivation SyncBatchNorm "
        "BatchNorm1d BatchNorm2d Concat Conv1d Conv2d Conv3d ConvTranspose2d LocalConv2d ConvRelu2d ConvTransposeRelu2d DeformableConv2d "
        "ConvTranspose3d RegionRestrictedConv ConvBn2d ConvBnRelu2d ConvTransposeBn2d ConvTransposeBnRelu2d DeformablePSROIPooling Dropout "
        "Elemwise Embedding ExternOprSubgraph TensorrtRuntimeSubgraph CambriconRuntimeSubgraph AtlasRuntimeSubgraph "
        "MagicMindRuntimeSubgraph Identity fill_ zeros_ ones_ uniform_ normal_ calculate_gain calculate_fan_in_and_fan_out "
        "calculate_correct_fan xavier_uniform_ xavier_normal_ msra_uniform_ msra_normal_ Linear LinearRelu LinearBn1d LinearBnRelu1d "
        "LocalResponseNorm Module MultiHeadAttention GroupNorm InstanceNorm LayerNorm GeneralNorm Pad PixelShuffle MaxPool2d AvgPool2d "
        "QuantStub DequantStub RNNCellBase RNNCell LSTMCell RNNBase RNN LSTM Sequential SlidingWindow SlidingWindowTranspose"
    ),
    "optimizer": "Adadelta Adagrad Adam AdamW clip_grad_norm clip_grad_value LAMB LAMBFp16 MultiStepLR Optimizer SGD",
}
HOMES = {
    "functional": (remat, remat.nn.functional), "module": (remat.nn, remat.nn.init),
    "optimizer": (remat.optim, remat.optim.lr_scheduler),
}


@pytest.mark.parametrize("module", MEGENGINE)
def test_what_megengine_has_is_here_or_on_the_page(module):
    """Each name has a namesake, a row that says what it is called, or a place in the list of what is not here."""
    text = page("from_megengine.md")
    absent = re.search(rf"^Of `megengine\.{module}`: (.*?)^$", section(text, "## What is not here") + "\n", re.M | re.S)[1]
    absent = set(re.findall(r"\w+", " ".join(c for c in CODE.findall(absent) if not c.startswith("remat"))))
    told = {word for row in rows(text) for code in CODE.findall(row[0]) for word in re.findall(r"\w+", code)}
    here = {n for n in MEGENGINE[module].split() if any(hasattr(h, n) for h in HOMES[module])}
    assert len(here) > 5
    assert not here & absent, "listed as not here"
    assert not [n for n in MEGENGINE[module].split() if n not in here | told | absent], "neither here nor on the page"
    assert absent <= set(MEGENGINE[module].split()) | {"init"}


def test_one_name_two_meanings():
    """What is said of the functions here, each by a value that differs from MegEngine's."""
    told = {name for row in rows(section(page("from_megengine.md"), "### One name, two meanings")) for name in CODE.findall(row[0])}
    F = remat.nn.functional
    halves = remat.tensor([0.5, 2.5, -0.5])
    assert "round" in told
    assert halves.round().tolist() == [0, 2, 0] and halves.round_away().tolist() == [1, 3, -1]
    assert "mod" in told
    assert remat.mod(remat.tensor([-5.0]), 3.0).item() == 1 and remat.fmod(remat.tensor([-5.0]), 3.0).item() == -2
    assert "arange" in told
    assert remat.arange(3).dtype == remat.int64
    assert "sort" in told
    assert isinstance(remat.sort(halves), remat.Tensor) and len(remat.sort_with_indices(halves)) == 2
    assert "softmax" in told
    x = remat.arange(24).float().reshape(1, 2, 3, 4)
    assert remat.softmax(x).tolist() == remat.softmax(x, 3).tolist() != remat.softmax(x, 1).tolist()
    assert "norm(ord)" in told
    assert remat.norm(remat.tensor([3.0, 4.0]), p=1).item() == 7
    assert "avg_pool2d" in told
    ones = remat.ones(1, 1, 2, 2)
    assert F.avg_pool2d(ones, 2, 2, 1).tolist()[0][0][0] == [0.25, 0.25]
    assert F.avg_pool2d(ones, 2, 2, 1, count_include_pad=False).tolist()[0][0][0] == [1, 1]
    assert remat.nn.AvgPool2d(2, 2, 1)(ones).tolist()[0][0][0] == [0.25, 0.25]
    assert "adaptive_avg_pool2d" in told
    line = remat.arange(6).float().reshape(1, 1, 1, 6)
    assert F.adaptive_avg_pool2d(line, (1, 4)).tolist()[0][0][0] == [0.5, 1.5, 3.5, 4.5]
    assert "local_response_norm" in told
    # one channel of 2 in a window of 5: 2 / (0 + 1 x 4 / 5)
    assert F.local_response_norm(2 * remat.ones(1, 1, 1), 5, alpha=1.0, beta=1.0, k=0.0).item() == pytest.approx(2.5)
    assert "roi_align" in told
    image, box = remat.arange(16).float().reshape(1, 1, 4, 4), remat.tensor([[0.0, 0.0, 0.0, 2.0, 2.0]])
    aligned = {on: remat.roi_align(image, box, 1, aligned=on).item() for on in (True, False)}
    assert remat.roi_align(image, box, 1).item() == aligned[False] != aligned[True]
    assert "warp_affine" in told
    same = remat.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    assert remat.warp_affine(remat.ones(1, 3, 4, 5), same, (2, 2)).shape == (1, 3, 2, 2)
    assert "interpolate" in told
    pair = remat.tensor([[[[0.0, 1.0]]]])
    assert F.interpolate(pair, scale_factor=2).tolist() == F.interpolate(pair, scale_factor=2, mode="nearest").tolist()
    assert "flip" in told and "rot90" in told
    square = remat.tensor([[1, 2], [3, 4]])
    assert remat.flip(square, 1).tolist() == [[2, 1], [4, 3]] and remat.rot90(square).tolist() == [[2, 4], [1, 3]]


def test_rows_of_the_page_that_hold_a_form(tmp_path):
    x, classes = remat.tensor([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]]), remat.tensor([[2, 0]])
    assert "`x.gather(axis, index.expand_dims(axis)).squeeze(axis)`" in page("from_megengine.md")
    assert x.gather(1, classes.expand_dims(1)).squeeze(1).tolist() == [[5, 2]]
    start = remat.tensor([1.0, 1.0], requires_grad=True)
    (start * 3).backward(remat.tensor([1.0, 2.0]))
    assert start.grad.tolist() == [3, 6]
    mask, values = remat.tensor([True, False]), remat.tensor([7, 8])
    assert [v.tolist() for v in remat.cond_take(values, mask)] == [[7], [0]]
    assert remat.nonzero(remat.tensor([[0, 1], [1, 0]])).tolist() == [[0, 1], [1, 0]]
    assert remat.tensor([1]).dtype == remat.int64
    # what a pickle of another program holds is not run
    path = tmp_path / "state.pkl"
    path.write_bytes(pickle.dumps({"weight": [1.0]}))
    with pytest.raises(remat.FormatError):
        remat.load(path)


# ---- from_pytorch.md


def other_forms():
    """Pairs of an expression of PyTorch and one of ours."""
    for row in rows(section(page("from_pytorch.md"), "### Calls of another form"))[1:]:
        yield CODE.findall(row[0])[0], CODE.findall(row[1])[0]


def values(library):
    """What the section's letters stand for, in `remat` or in `torch`."""
    floats = [[0.25, 0.75, 0.5], [1.0, 0.125, 0.625]]
    square = [[2.0, 1.0, 0.0], [0.0, 1.0, 0.5], [1.0, 0.0, 1.0]]
    x = library.tensor(floats)
    name = library.__name__
    return {
        name: library, "nn": library.nn, "F": importlib.import_module(f"{name}.nn.functional"), "x": x, "y": x * 2 - 1,
        "a": library.tensor(square), "s": library.stack([library.tensor(square)] * 2), "i": library.tensor([2, 0, 2]), "m": x > 0.4,
        "data": [1, 2, 3], "DataLoader": importlib.import_module("remat.data").DataLoader,
        "Subset": importlib.import_module("remat.data").Subset,
    }


RANDOM = ("torch.rand(", "torch.bernoulli(", "F.gumbel_softmax(")


def test_calls_of_another_form():
    """The left side does not run here, the right side does; where PyTorch is installed, it gives what PyTorch gives."""
    pairs = list(other_forms())
    assert len(pairs) > 30
    runs, fails = [], []
    for theirs, own in pairs:
        try:
            eval(re.sub(r"\btorch\.", "remat.", theirs), values(remat))
            runs.append(theirs)
        except (AttributeError, TypeError, ValueError):
            pass
        try:
            eval(own, values(remat))
        except Exception as e:
            fails.append(f"{own}: {e}")
    assert not fails
    assert not runs, "run here as they are: take them from the page"


def test_calls_of_another_form_give_what_pytorch_gives():
    torch = pytest.importorskip("torch")
    compared = 0
    for theirs, own in other_forms():
        if "sampler" in theirs:
            continue
        want, got = eval(theirs, values(torch)), eval(own, values(remat))
        if isinstance(want, torch.Tensor):
            want, got = [want], [got]
        if isinstance(want, (list, tuple)):
            for a, b in zip(want, got, strict=True):
                assert tuple(a.shape) == b.shape, theirs
                assert str(a.dtype) == f"torch.{b.dtype.name}", theirs
                if not theirs.startswith(RANDOM):
                    ours = torch.tensor(b.detach().double().tolist(), dtype=torch.float64)
                    torch.testing.assert_close(ours, a.detach().double(), atol=1e-6, rtol=1e-6, msg=lambda text: f"{theirs}: {text}")
            compared += 1
    assert compared > 20


# tensors by what a call is given: both libraries' functions are called with each, and what both take is compared
MATRIX = [[2.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 4.0]]
WHOLE = [[3, 1, 2], [2, 2, 0], [5, 4, 1]]
CALLS = [
    lambda L: (L.tensor(MATRIX),), lambda L: (L.tensor(WHOLE),), lambda L: (L.tensor(MATRIX), L.tensor(MATRIX) - 1.5),
    lambda L: (L.tensor(WHOLE), L.tensor(WHOLE) + 1), lambda L: (L.tensor(MATRIX), 1), lambda L: (L.tensor(WHOLE), 1),
    lambda L: (L.tensor(WHOLE), 2), lambda L: (L.tensor(MATRIX), 2.0), lambda L: (L.tensor(MATRIX)[0],),
    lambda L: (L.tensor(MATRIX)[0], L.tensor(MATRIX)[1]), lambda L: (L.tensor(MATRIX) > 1,),
    lambda L: (L.tensor(MATRIX) > 1, L.tensor(MATRIX) > 2), lambda L: (L.tensor(MATRIX)[None, None],),
    lambda L: (L.tensor([[1.0, 2.0, 3.0, 4.0]] * 4)[None, None], 2), lambda L: ([L.tensor(MATRIX), L.tensor(MATRIX)],),
    lambda L: (L.tensor(MATRIX), 0, 1), lambda L: (L.tensor(MATRIX), (0, 1)),
]
# random, memory that was not written, signs that are free, a table that is not sorted, files
NOT_COMPARED = (
    "rand_like randn_like bernoulli multinomial empty empty_like dropout alpha_dropout rrelu gumbel_softmax svd searchsorted save load "
    "compile manual_seed"
).split()


def plain(r, library):
    """A result as shape, name of dtype and numbers; a list of those; anything else itself."""
    if isinstance(r, (tuple, list)):
        return [plain(v, library) for v in r]
    if isinstance(r, library.Tensor):
        return tuple(r.shape), str(r.dtype).split(".")[-1], r.double().flatten().tolist()
    return r


def is_alike(a, b):
    if isinstance(a, list) or isinstance(b, list):
        return isinstance(a, list) and isinstance(b, list) and len(a) == len(b) and all(map(is_alike, a, b))
    if isinstance(a, tuple) and isinstance(b, tuple):
        return a[:2] == b[:2] and a[2] == pytest.approx(b[2], rel=1e-5, abs=1e-5, nan_ok=True)
    return type(a) is type(b) and a == b


@pytest.mark.filterwarnings("ignore")
def test_the_same_call_gives_the_same_or_is_on_the_page():
    """Functions of one name, called alike: those that give something else are the page's, and no others."""
    torch = pytest.importorskip("torch")
    import torch.nn.functional as theirs_of_nn

    told = {n for row in rows(section(page("from_pytorch.md"), "### The same call, another value")) for n in re.findall(r"`(\w+)", row[0])}
    others, compared = set(), 0
    for theirs, own in ((torch, remat), (theirs_of_nn, remat.nn.functional)):
        for name in (n for n in dir(theirs) if not n.startswith("_") and n not in NOT_COMPARED):
            f, g = getattr(theirs, name), getattr(own, name, None)
            if isinstance(f, type) or not callable(f) or not inspect.isfunction(g):
                continue
            for args in CALLS:
                try:
                    want, got = plain(f(*args(torch)), torch), plain(g(*args(remat)), remat)
                except Exception:  # a call that one of them refuses is not compared
                    continue
                compared += 1
                if not is_alike(want, got):
                    others.add(name)
    assert compared > 500
    assert not others - told, "another value than PyTorch's: say so on the page"
    assert not told - others - {"backward"}, "as PyTorch's now: take it from the page"


def test_the_list_of_absent_names_is_right():
    """What the page lists as absent is absent, also where PyTorch is not installed."""
    import pytorch_names

    text = pytorch_names.BETWEEN.search(page("from_pytorch.md"))[0]
    listed = 0
    for module, names in re.findall(r"^\* `(torch[\w.]*)`, \d+ of \d+: (.*?)\.$", text, re.M | re.S):
        home = pytorch_names.HOMES[module]
        names = CODE.findall(names)
        assert not [n for n in names if hasattr(home, n)], f"{module}: here, and listed as not here; run pytorch_names.py"
        listed += len(names)
    assert listed > 400


def test_the_list_of_absent_names_is_pytorchs():
    pytest.importorskip("torch")
    import pytorch_names

    text = pytorch_names.BETWEEN.search(page("from_pytorch.md"))[0]
    if f"PyTorch {pytorch_names.version()}," not in text:
        pytest.skip(f"the page is of another version than {pytorch_names.version()}")
    assert text == pytorch_names.written(), "run python/tests/pytorch_names.py"


def test_nothing_takes_what_the_page_says_that_nothing_takes():
    assert "| `out=`, `inplace=True` of functions | - | |" in page("from_pytorch.md")
    functions = [(home, n) for home in (remat, remat.nn.functional) for n in dir(home) if inspect.isfunction(getattr(home, n))]
    assert len(functions) > 300
    takes = {n for home, n in functions if {"out", "inplace"} & set(inspect.signature(getattr(home, n)).parameters)}
    assert not takes


def test_modules_that_are_not_here():
    row = next(row for row in rows(page("from_pytorch.md")) if "`torch.distributions`" in row[0])
    assert row[1] == "-" and len(CODE.findall(row[0])) > 5
    absent = [name.split(".")[1] for name in CODE.findall(row[0])] + ["linalg", "special"]
    assert not [name for name in absent if hasattr(remat, name)]


# ---- python.md, deployment.md, operators.md, README.md


def functions_of_ops():
    return {n: f for n, f in vars(remat.ops).items() if inspect.isfunction(f) and not n.startswith("_")}


def test_every_operator_is_a_function_and_those_of_tensors_are_methods():
    assert "a method `x.exp()` if it takes one tensor or more and draws no random numbers" in page("python.md").replace("\n", " ")
    functions = functions_of_ops()
    assert len(functions) > 300
    assert not [n for n in functions if not hasattr(remat, n)]
    of_tensors = {
        n for n, f in functions.items() for p in list(inspect.signature(f).parameters.values())[:1] if p.annotation is remat.Tensor
    }
    draws = {n for n in of_tensors if next(iter(inspect.signature(functions[n]).parameters)) == "key"}
    assert len(draws) > 4
    assert not [n for n in of_tensors - draws if not hasattr(remat.Tensor, n)]


def test_two_dtypes():
    """Arithmetic promotes; products of matrices, `cat`, `stack` and solvers refuse."""
    assert "take one dtype, and are an error for two" in page("python.md")
    assert "take one dtype and are an error for two" in page("tensors.md").replace("\n", " ")
    x, y = remat.ones(2, 2), remat.ones(2, 2, dtype="float64")
    for f in (remat.add, remat.atan2, remat.maximum, remat.pow, remat.fmod, remat.logaddexp):
        assert f(x, y).dtype == remat.float64
    assert (x < y).dtype == remat.bool
    refuse = (
        lambda: x @ y, lambda: remat.cat([x, y]), lambda: remat.stack([x, y]), lambda: remat.solve(x, y),
        lambda: remat.arange(3) * 0.5, lambda: remat.arange(3) > 0.5,
    )
    for f in refuse:
        with pytest.raises(remat.DTypeError):
            f()


def test_what_python_leaves_out():
    """What the page lists is not in the package, and is in Rust."""
    text = section(page("python.md"), "## What is not here")
    text = " ".join(text.split())
    assert "Rust has some features that the package lacks" in text and "`scan`, `cond`" in text and "named sizes" in text
    assert "pipelines, and layers that ranks share" in text
    assert not [n for n in ("scan", "cond", "while_loop", "switch") if hasattr(remat, n) or hasattr(remat.ops, n)]
    assert "symbols" not in inspect.signature(remat.compile).parameters
    assert not [n for n in dir(remat.distributed) if n in ("Pipeline", "ColumnParallelLinear", "RowParallelLinear")]
    code = "\n".join(sources().values())
    for there in ("pub fn scan", "pub fn cond", "pub symbols: Option<Symbols>", "pub struct Pipeline", "pub struct ColumnParallelLinear"):
        assert there in code, there
    readme = (ROOT / "README.md").read_text()
    assert "docs/src/python.md#what-is-not-here" in readme and "has all of that" not in readme


def test_functions_for_c_are_in_the_header():
    told = set(re.findall(r"\bremat_[a-z_]+\b", page("deployment.md"))) - {"remat_lite", "remat_runtime"}
    header = (CRATES / "lite" / "include" / "remat.h").read_text()
    assert len(told) > 25
    assert not [n for n in told if not re.search(rf"\b{n}\b", header)]


def test_the_memory_of_an_opened_model_is_what_its_test_allows():
    most = re.search(r"const MOST: f64 = ([\d.]+);", (CRATES / "lite" / "tests" / "suite" / "peak.rs").read_text())[1]
    assert f"at most {most} times the weights" in page("deployment.md")


def test_operators_page_names_each_optimisers_update():
    names = {p.stem for p in (CRATES / "ops" / "src" / "optim").glob("*.rs")} - {"mod", "rule"}
    row = next(row for row in rows(page("operators.md")) if row[0] == "optimisers")
    assert len(names) > 9
    assert not [n for n in names if n not in row[1].lower()]


def test_megengines_optimisers_and_networks_are_the_librarys():
    row = next(row for row in rows(section(page("megengine.md"), "## Part by part")) if "`optimizer`" in row[0])
    names = {p.stem for p in (CRATES / "nn" / "src" / "optim").iterdir()} - {"mod", "rule", "accumulate", "clip", "groups", "pattern"}
    assert len(names) > 10
    told = row[2].lower().replace("-", "")
    assert not [n for n in names if n.replace("_", "") not in told]


@pytest.mark.parametrize("name", sorted(p.name for p in PAGES.glob("*.md")) if PAGES.exists() else [])
def test_no_page_promises_what_is_not_there(name):
    """A page says what is here; what will be is no part of it."""
    if name == "distributed.md":
        pytest.skip("has a list of its own")
    prose = re.sub(r"^```.*?^```$", "", page(name), flags=re.M | re.S)
    found = re.findall(r"^.*(?:\| later\b|\bNot yet\b|\bnot yet (?:supported|here|done)\b|\bno \w+ yet\b).*$", prose, re.M)
    assert not found


def test_every_network_of_the_page_is_in_python():
    names = {CODE.findall(row[0])[0] for row in rows(page("models.md")) if len(row) == 5 and CODE.findall(row[0])}
    assert {"ResNet", "Llama", "Vit"} <= names
    assert not [n for n in names | {"DiffusionUNet", "Vae"} if not isinstance(getattr(remat.models, n, None), type)]
