"""Networks from the literature, as modules of the compiled library. A seed gives the same bits as in the library's Rust
programs.

The first argument of each class is the name of a published size, and keyword arguments change its fields. `configs` has
all sizes with their fields. The parts of a network compute within it. They have modes and hooks, and modules can be
assigned in the place of layers and blocks: `net.head = remat.nn.Linear(512, 7)`, or `net.fc` as torchvision's networks
call it. `remat.load_weights` reads published weights, with the names of `remat.published_names`:

>>> import remat
>>> net = remat.models.ResNet("resnet18", classes=10, channels=1)
>>> net(remat.ones(2, 1, 32, 32)).shape
(2, 10)
>>> remat.models.ResNet.configs()["resnet50"]["blocks"]
[3, 4, 6, 3]
"""
from typing import Any, Dict, List, Optional, Tuple

from . import _functions, _remat
from ._autograd import no_grad
from ._remat import Device, Generator, KvCache, Tensor
from ._support import DTypeLike
from .nn.calls import MultiInput, OneInput

__all__ = [
    "Bert", "ConvNeXt", "DenseNet", "DiffusionUNet", "EfficientNet", "Gpt", "Llama", "LstmLm", "MobileNetV2", "MobileNetV3",
    "ResNet", "ShuffleNetV2", "Transformer", "UNet", "Vae", "Vgg", "Vit",
]


def _configs(kind: str) -> Dict[str, Dict[str, Any]]:
    configs: Dict[str, Dict[str, Any]] = _remat.network_configs(kind)
    return configs


def _chosen(kind: str, config: str, changes: Dict[str, Any]) -> Dict[str, Any]:
    """The fields of a published config, with changes. Errors: ValueError for an unknown name, TypeError for an unknown
    field."""
    configs = _configs(kind)
    if config not in configs:
        raise ValueError(f"there is no config `{config}`, but {', '.join(configs)}")
    fields = configs[config]
    for name in changes:
        if name not in fields:
            raise TypeError(f"a config of `{kind}` has no field `{name}`; it has {', '.join(fields)}")
    return {**fields, **changes}


class _Network:
    """The base of all networks, whatever their number of inputs."""

    KIND = ""
    DEFAULT = ""
    _has_config = True

    def __init__(
        self, config: Optional[str] = None, *, device: Optional[Device] = None, dtype: DTypeLike = "float32",
        generator: Optional[Generator] = None, **changes: Any,
    ):
        fields = _chosen(self.KIND, self.DEFAULT if config is None else config, changes)
        self._make(device, dtype, generator, fields)  # type: ignore[attr-defined]

    @classmethod
    def configs(cls) -> Dict[str, Dict[str, Any]]:
        """The published sizes, by name, with their fields."""
        return _configs(cls.KIND)

    @property
    def config(self) -> Dict[str, Any]:
        """The fields of the network's config."""
        options: Dict[str, Any] = self._options  # type: ignore[attr-defined]
        return options


class _OneTensor(_Network, OneInput):
    """A network with one input."""


class ResNet(_OneTensor):
    """A residual network for images (He et al., CVPR 2016), also ResNeXt and wide ones: `[n, channels, h, w]` to `[n, classes]`.

    Sizes: `resnet18`, `resnet34`, `resnet50`, `resnet101`, `resnet152`, `resnext50_32x4d`, `resnext101_32x8d`, `wide_resnet50_2`,
    `wide_resnet101_2`. Weights: `torchvision/resnet`, `timm/resnet`.

    >>> import remat
    >>> remat.models.ResNet("resnet18", classes=10)(remat.ones(1, 3, 64, 64)).shape
    (1, 10)
    """

    KIND, DEFAULT = "resnet", "resnet18"
    _also = {"fc": "head"}


class Vgg(_OneTensor):
    """Convolutions of 3x3 in stages (Simonyan and Zisserman, ICLR 2015): `[n, channels, h, w]` to `[n, classes]`.

    Sizes: `vgg11`, `vgg13`, `vgg16`, `vgg19`; `batch_norm=True` adds batch norms. Weights: `torchvision/vgg`.

    >>> import remat
    >>> remat.models.Vgg("vgg11", hidden=64, classes=10)(remat.ones(1, 3, 32, 32)).shape
    (1, 10)
    """

    KIND, DEFAULT = "vgg", "vgg11"


class MobileNetV2(_OneTensor):
    """Inverted residuals (Sandler et al., CVPR 2018): `[n, channels, h, w]` to `[n, classes]`. Weights: `torchvision/mobilenet_v2`.

    >>> import remat
    >>> remat.models.MobileNetV2(classes=10)(remat.ones(2, 3, 32, 32)).shape
    (2, 10)
    """

    KIND, DEFAULT = "mobilenet_v2", "mobilenet_v2"


class MobileNetV3(_OneTensor):
    """Inverted residuals with gates of channels (Howard et al., ICCV 2019): `[n, channels, h, w]` to `[n, classes]`.

    Sizes: `mobilenet_v3_small`, `mobilenet_v3_large`. Weights: `torchvision/mobilenet_v3`.

    >>> import remat
    >>> remat.models.MobileNetV3(classes=10)(remat.ones(2, 3, 32, 32)).shape
    (2, 10)
    """

    KIND, DEFAULT = "mobilenet_v3", "mobilenet_v3_small"


class EfficientNet(_OneTensor):
    """Networks scaled in width, depth and resolution (Tan and Le, ICML 2019): `[n, channels, h, w]` to `[n, classes]`.

    Sizes: `efficientnet_b0` to `efficientnet_b7`. Weights: `torchvision/efficientnet`.

    >>> import remat
    >>> remat.models.EfficientNet(classes=10)(remat.ones(2, 3, 32, 32)).shape
    (2, 10)
    """

    KIND, DEFAULT = "efficientnet", "efficientnet_b0"


class ConvNeXt(_OneTensor):
    """Depthwise convolutions of 7x7 with blocks as in transformers (Liu et al., CVPR 2022): `[n, channels, h, w]` to
    `[n, classes]`.

    Sizes: `convnext_tiny`, `convnext_small`, `convnext_base`, `convnext_large`. Weights: `torchvision/convnext`.

    >>> import remat
    >>> remat.models.ConvNeXt(stages=[(16, 1), (32, 1)], classes=10)(remat.ones(1, 3, 32, 32)).shape
    (1, 10)
    """

    KIND, DEFAULT = "convnext", "convnext_tiny"


class DenseNet(_OneTensor):
    """Layers that read the outputs of all layers before them (Huang et al., CVPR 2017): `[n, channels, h, w]` to
    `[n, classes]`.

    Sizes: `densenet121`, `densenet161`, `densenet169`, `densenet201`. Weights: `torchvision/densenet`.

    >>> import remat
    >>> remat.models.DenseNet(blocks=[2, 2], classes=10)(remat.ones(1, 3, 32, 32)).shape
    (1, 10)
    """

    KIND, DEFAULT = "densenet", "densenet121"
    _also = {"classifier": "head"}


class ShuffleNetV2(_OneTensor):
    """Units on halves of the channels, which are then shuffled (Ma et al., ECCV 2018): `[n, channels, h, w]` to
    `[n, classes]`.

    Sizes: `shufflenet_v2_x0_5`, `shufflenet_v2_x1_0`, `shufflenet_v2_x1_5`, `shufflenet_v2_x2_0`. Weights:
    `torchvision/shufflenet_v2`.

    >>> import remat
    >>> remat.models.ShuffleNetV2(classes=10)(remat.ones(2, 3, 32, 32)).shape
    (2, 10)
    """

    KIND, DEFAULT = "shufflenet_v2", "shufflenet_v2_x0_5"
    _also = {"fc": "head"}


class Vit(_OneTensor):
    """A transformer of patches (Dosovitskiy et al., ICLR 2021): images `[n, channels, image, image]` to `[n, classes]`.

    Sizes: `vit_tiny_16`, `vit_small_16`, `vit_b_16`, `vit_b_32`, `vit_l_16`. Weights: `torchvision/vit`, `timm/vit`.

    >>> import remat
    >>> remat.models.Vit(image=32, layers=2, classes=10)(remat.ones(1, 3, 32, 32)).shape
    (1, 10)
    """

    KIND, DEFAULT = "vit", "vit_tiny_16"


class UNet(_OneTensor):
    """An encoder and a decoder with skips between them (Ronneberger et al., MICCAI 2015): `[n, channels, h, w]` to logits `[n, classes, h, w]`.

    >>> import remat
    >>> remat.models.UNet(widths=[8, 16], channels=1, classes=2)(remat.ones(1, 1, 16, 16)).shape
    (1, 2, 16, 16)
    """

    KIND, DEFAULT = "unet", "unet"


class Transformer(_OneTensor):
    """Blocks of attention and linear layers, with norms before them (Vaswani et al., 2017; Xiong et al., ICML 2020):
    `[n, t, width]` to the same.

    >>> import remat
    >>> remat.models.Transformer(layers=2, width=16, heads=2, causal=True)(remat.ones(1, 5, 16)).shape
    (1, 5, 16)
    """

    KIND, DEFAULT = "transformer", "transformer"


class Vae(_Network, MultiInput):
    """A variational autoencoder (Kingma and Welling, ICLR 2014) of examples `[n, inputs]` with elements in 0 to 1.

    >>> import remat
    >>> vae = remat.models.Vae(inputs=8, hidden=6, code=2)
    >>> loss = vae(remat.rand(3, 8)); loss.backward()
    >>> mean, log_var = vae.encode(remat.rand(3, 8))
    >>> mean.shape, vae.decode(mean).shape
    ((3, 2), (3, 8))
    """

    KIND, DEFAULT = "vae", "vae"

    def forward(self, x: Tensor) -> Tensor:
        """The negative evidence lower bound of `x` in nats per example, with one drawn code."""
        return self._call(x)[0]

    def encode(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        """Mean and logarithm of the variance of each code, `[n, code]` both."""
        mean, log_var = self._call(None, x)
        return mean, log_var

    def decode(self, code: Tensor) -> Tensor:
        """Logits of examples, `[n, inputs]`, for codes `[n, code]`."""
        return self._call(None, None, code)[0]


class DiffusionUNet(_Network, MultiInput):
    """A network that predicts the noise in a noisy image (Ho et al., NeurIPS 2020): `[n, channels, h, w]` and steps
    `[n]` to `[n, channels, h, w]`.

    Sizes: `ddpm_small`, `ddpm_cifar10`.

    >>> import remat
    >>> net = remat.models.DiffusionUNet(width=8, factors=[1, 2], attention=[1], groups=4)
    >>> net(remat.ones(2, 1, 8, 8), remat.tensor([0, 500])).shape
    (2, 1, 8, 8)
    """

    KIND, DEFAULT = "diffusion", "ddpm_small"

    def forward(self, x: Tensor, steps: Tensor) -> Tensor:
        """The noise in `x` at these steps."""
        return self._call(x, steps)[0]


class LstmLm(_Network, MultiInput):
    """A language model of LSTM layers (Zaremba et al., 2014): tokens `[n, t]` to logits `[n, t, vocabulary]`.

    Sizes: `lstm_small`, `lstm_medium`, `lstm_large`.

    >>> import remat
    >>> net = remat.models.LstmLm(width=16, vocabulary=50)
    >>> logits, state = net(remat.tensor([[1, 2, 3]]))
    >>> logits.shape, net(remat.tensor([[4]]), state)[0].shape
    ((1, 3, 50), (1, 1, 50))
    """

    KIND, DEFAULT = "lstm_lm", "lstm_small"

    def forward(self, tokens: Tensor, state: Optional[Tuple[Tensor, Tensor]] = None) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
        """Logits, and the state `(h, c)` after the last token, `[layers, n, width]` both. A later call goes on from
        that state."""
        h, c = (None, None) if state is None else state
        y, h, c = self._call(tokens, h, c)
        return y, (h, c)


class Bert(_Network, MultiInput):
    """A transformer that reads both ways (Devlin et al., NAACL 2019): tokens `[n, t]` to `[n, t, width]`.

    Sizes: `bert_base`, `bert_large`. Weights: `huggingface/bert`.

    >>> import remat
    >>> net = remat.models.Bert(layers=2, width=16, heads=2, hidden=32, vocabulary=9)
    >>> y = net(remat.tensor([[3, 1], [4, 1]]))
    >>> y.shape, net.pooled(y).shape
    ((2, 2, 16), (2, 16))
    """

    KIND, DEFAULT = "bert", "bert_base"

    def forward(self, tokens: Tensor, kinds: Optional[Tensor] = None, mask: Optional[Tensor] = None) -> Tensor:
        """The output. `kinds`, `[n, t]`, gives the segment of each token. `mask`, bools `[n, t]`, is true for a token
        and false for padding."""
        return self._call(tokens, kinds, mask)[0]

    def pooled(self, y: Tensor) -> Tensor:
        """A vector for the whole text, from an output: `[n, width]`."""
        return self._call(None, None, None, y)[0]


class _Texts(_Network, MultiInput):
    """A network that continues texts."""

    def forward(self, tokens: Tensor, cache: Optional[KvCache] = None) -> Tensor:
        """Logits `[n, t, vocabulary]` of the token after each token of `[n, t]`. With a `cache`, `tokens` follow those
        in the cache, and the call adds them to it; dropout is off then. Errors: ShapeError for more tokens than there
        are positions or room in the cache."""
        return self._call(tokens)[0] if cache is None else self._layer.forward_cached(tokens, cache)

    def cache(self, batch: int, places: int) -> KvCache:
        """A cache for the keys and values of `batch` texts of `places` tokens. That of a `Gpt` has as many places as
        the network has positions. Errors: BudgetError."""
        return self._layer.cache(batch, places)

    def generate(
        self, tokens: Tensor, count: int, temperature: float = 1.0, top_k: Optional[int] = None,
        generator: Optional[Generator] = None,
    ) -> Tensor:
        """The texts `[n, t]` with `count` more tokens, drawn one by one from the network's distribution.

        A `temperature` of 0 takes the likeliest token; one below 1 makes likely tokens likelier. `top_k` draws only
        from this number of likeliest tokens. The network reads each token once. Errors: as `forward`.
        """
        cache = self.cache(tokens.shape[0], tokens.shape[1] + count)
        drawn: List[Tensor] = [tokens]
        with no_grad():
            for _ in range(count):
                logits = self.forward(drawn[-1], cache)[:, -1]
                drawn.append(_drawn(logits, temperature, top_k, generator).to(dtype=tokens.dtype))
        return _functions.concat(drawn, 1)


def _drawn(logits: Tensor, temperature: float, top_k: Optional[int], generator: Optional[Generator]) -> Tensor:
    """A token of each row, `[n, 1]`."""
    if temperature == 0.0:
        return logits.argmax(-1, keepdims=True)
    if top_k is not None:
        least = logits.topk(min(top_k, logits.shape[-1]))[0][:, -1:]
        logits = logits.masked_fill(logits < least, float("-inf"))
    return (logits / temperature).softmax(-1).multinomial(1, generator=generator)


class Gpt(_Texts):
    """A decoder-only transformer with learned positions (Radford et al., 2019): tokens `[n, t]` to logits `[n, t, vocabulary]`.

    >>> import remat
    >>> net = remat.models.Gpt(layers=2, width=16, heads=2, sequence=8, vocabulary=50)
    >>> net(remat.tensor([[1, 2, 3]])).shape
    (1, 3, 50)
    >>> net.generate(remat.tensor([[1, 2, 3]]), 4, temperature=0.8).shape
    (1, 7)
    """

    KIND, DEFAULT = "gpt", "gpt"


class Llama(_Texts):
    """A decoder-only transformer with rotary positions, RMS norms and gated layers (Touvron et al., 2023): tokens `[n, t]` to logits
    `[n, t, vocabulary]`.

    Sizes: `llama_tiny_1b`, `llama2_7b`, `llama3_8b`. Weights: `huggingface/llama`.

    >>> import remat
    >>> net = remat.models.Llama(layers=2, width=16, heads=4, kv_heads=2, hidden=24, vocabulary=50)
    >>> cache = net.cache(batch=1, places=8)
    >>> _ = net(remat.tensor([[1, 2, 3]]), cache)
    >>> net(remat.tensor([[4]]), cache).shape, len(cache)
    ((1, 1, 50), 4)
    """

    KIND, DEFAULT = "llama", "llama_tiny_1b"
