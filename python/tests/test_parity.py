"""Every public layer, loss, initialiser, schedule and optimiser of the library is in Python, or listed here with the reason."""
import pathlib
import re

import pytest

import remat
from remat import nn, optim

NN = pathlib.Path(__file__).parents[2] / "crates" / "nn" / "src"
pytestmark = pytest.mark.skipif(not NN.exists(), reason="not in a clone of the repository")

# Rust's name: Python's, where they differ by more than case.
LAYERS = {
    "RmsNorm": "RMSNorm", "Lstm": "LSTM", "Gru": "GRU", "Rnn": "RNN", "Conv": "Conv1d Conv2d Conv3d",
    "ConvTranspose": "ConvTranspose1d ConvTranspose2d ConvTranspose3d", "BatchNorm": "BatchNorm1d BatchNorm2d BatchNorm3d",
    "ChannelDropout": "Dropout1d Dropout2d Dropout3d", "Pad": "Pad1d Pad2d Pad3d", "MaxPool": "MaxPool1d MaxPool2d MaxPool3d",
    "AvgPool": "AvgPool1d AvgPool2d AvgPool3d", "LpPool": "LPPool1d LPPool2d LPPool3d",
    "AdaptiveAvgPool": "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d",
    "AdaptiveMaxPool": "AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d",
    "MaxUnpool": "MaxUnpool1d MaxUnpool2d MaxUnpool3d",
}
LAYERS_LEFT_OUT = {
    "CellWeights": "a part of the cells: their parameters are found by name",
    "RecurrentStack": "a part of the recurrent layers: their parameters are found by name",
    "RecurrentDirection": "a part of the recurrent layers: their parameters are found by name",
    "FeedForwardActivation": "the argument `activation`",
}
LOSSES = {
    "bce": "binary_cross_entropy", "bce_with_logits": "binary_cross_entropy_with_logits",
    "bce_with_logits_weighted": "binary_cross_entropy_with_logits", "cross_entropy_with": "cross_entropy",
    "cross_entropy_weighted": "cross_entropy", "cross_entropy_soft": "cross_entropy", "nll_weighted": "nll_loss",
    "kl_div": "kl_div", "kl_div_batch_mean": "kl_div", "cross_entropy": "cross_entropy",
}
INITS = {"Zeros": "zeros_", "Ones": "ones_", "TruncatedNormal": "trunc_normal_"}
OPTIMIZERS = {"Sgd": "SGD", "Lbfgs": "LBFGS", "RmsProp": "RMSprop"}
OPTIMIZERS_LEFT_OUT = {
    "clip_grad_norm": "remat.nn.utils.clip_grad_norm_", "clip_grad_norm_with": "the argument `norm_type`",
    "clip_grad_value": "remat.nn.utils.clip_grad_value_", "Grouped": "what all optimisers are",
    "Rule": "what an optimiser in Rust implements; in Python one is written over `Parameter.grad` and `set_`",
    "Slot": "as `Rule`", "StateSpec": "as `Rule`",
}


def exported(file):
    """The names that a file makes public by `pub use`."""
    text = (NN / file).read_text()
    lists = re.findall(r"^pub use [a-z_:]+::(?:\{([^}]*)\}|(\w+));", text, re.M)
    return [n.strip() for many, one in lists for n in (many or one).split(",") if n.strip()]


def variants(file, enum):
    """The variants of an enum."""
    body = re.search(rf"pub enum {enum} \{{\n(.*?)^\}}", (NN / file).read_text(), re.S | re.M)[1]
    return re.findall(r"^    ([A-Z]\w+)[ ({,]", body, re.M)


def snake(name):
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def check(names, module, renamed, left_out, guess):
    assert len(names) == len(set(names)) > 4
    stale = [n for n in (*renamed, *left_out) if n not in names]
    assert not stale, f"listed here, and not in the library: {stale}"
    lower = {n.lower(): n for n in vars(module)}
    missing = []
    for name in names:
        if name in left_out or name.endswith("Options"):
            continue
        for own in renamed.get(name, guess(name)).split():
            if own.lower() not in lower or not callable(getattr(module, lower[own.lower()])):
                missing.append(f"{name}, as {own}")
    assert not missing, f"in the library, and neither in {module.__name__} nor listed with a reason: {missing}"


def test_every_layer_is_there():
    names = exported("layers/mod.rs")
    assert {"Linear", "Lstm", "MultiHeadAttention", "Upsample"} <= set(names) and len(names) > 90
    check(names, nn, LAYERS, LAYERS_LEFT_OUT, lambda n: n)


def test_every_loss_is_there():
    names = exported("loss/mod.rs") + re.findall(r"^pub fn (\w+)", (NN / "loss/mod.rs").read_text(), re.M)
    assert {"mse", "ctc", "huber"} <= set(names)
    check(names, nn, LOSSES, {}, lambda n: f"{n}_loss")


def test_every_initialiser_is_there():
    check(variants("init.rs", "Init"), nn.init, INITS, {}, lambda n: f"{snake(n)}_")


def test_every_schedule_is_there():
    names = variants("schedule/mod.rs", "Schedule")
    left_out = {"Warmup": "`Schedule.after_warmup`"}
    check(names, optim, {}, left_out, snake)
    check(["Plateau", *names], optim, {}, left_out, lambda n: n if n == "Plateau" else snake(n))


def test_every_optimiser_is_there():
    names = exported("optim/mod.rs")
    assert {"AdamW", "Sgd", "Lbfgs"} <= set(names)
    check(names, optim, OPTIMIZERS, OPTIMIZERS_LEFT_OUT, lambda n: n)
    check(exported("optim/mod.rs") + ["Average", "update_batch_norm"], optim, OPTIMIZERS, OPTIMIZERS_LEFT_OUT, lambda n: n)


def test_a_kind_that_is_not_there_is_told():
    for make in (
        lambda: remat._remat._NativeLayer("nothing", "{}", remat.get_default_device(), "float32", remat.Generator(1)),
        lambda: remat._remat.loss("nothing", ()),
    ):
        with pytest.raises(TypeError, match="nothing"):
            make()
