"""Networks: modules, layers, losses, first values."""
from .._remat import Parameter
from . import init, utils
from .layers import (
    AdaptiveAvgPool2d, AvgPool2d, BatchNorm1d, BatchNorm2d, BatchNorm3d, CELU, Conv1d, Conv2d, Conv3d, ConvNorm, ConvTranspose1d,
    ConvTranspose2d, ConvTranspose3d, Dropout, ELU, Embedding, Flatten, GELU, GroupNorm, Hardsigmoid, Hardswish, Hardtanh, Identity,
    InstanceNorm, LayerNorm, LeakyReLU, Linear, LogSigmoid, LogSoftmax, MaxPool2d, Mish, ModuleList, ReLU, ReLU6, RMSNorm, SELU,
    Sequential, Sigmoid, SiLU, Softmax, Softplus, Softsign, Tanh,
)
from .loss import (
    BCEWithLogitsLoss, CrossEntropyLoss, L1Loss, MSELoss, binary_cross_entropy_with_logits, cross_entropy, l1_loss, mse_loss,
)
from .module import Module, RemovableHandle

__all__ = [
    "Parameter", "init", "utils", "AdaptiveAvgPool2d", "AvgPool2d", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "CELU",
    "Conv1d", "Conv2d", "Conv3d", "ConvNorm", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Dropout", "ELU",
    "Embedding", "Flatten", "GELU", "GroupNorm", "Hardsigmoid", "Hardswish", "Hardtanh", "Identity", "InstanceNorm",
    "LayerNorm", "LeakyReLU", "Linear", "LogSigmoid", "LogSoftmax", "MaxPool2d", "Mish", "ModuleList", "ReLU", "ReLU6",
    "RMSNorm", "SELU", "Sequential", "Sigmoid", "SiLU", "Softmax", "Softplus", "Softsign", "Tanh", "BCEWithLogitsLoss",
    "CrossEntropyLoss", "L1Loss", "MSELoss", "binary_cross_entropy_with_logits", "cross_entropy", "l1_loss", "mse_loss",
    "Module", "RemovableHandle",
]
