"""Networks: modules, layers, losses, first values."""
from .._remat import Parameter
from . import functional, init, utils
from .attention import CrossAttention, DecoderBlock, EncoderBlock, EncoderDecoder, KvCache, MultiHeadAttention
from .layers import (
    BatchNorm1d, BatchNorm2d, BatchNorm3d, Conv1d, Conv2d, Conv3d, ConvNorm, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d,
    Dropout, Embedding, GroupNorm, InstanceNorm, LayerNorm, Linear, RMSNorm,
)
from .loss import (
    BCELoss, BCEWithLogitsLoss, CosineEmbeddingLoss, CrossEntropyLoss, CTCLoss, GaussianNLLLoss, HingeEmbeddingLoss, HuberLoss,
    KLDivLoss, L1Loss, MarginRankingLoss, MSELoss, MultiLabelMarginLoss, MultiLabelSoftMarginLoss, MultiMarginLoss, NLLLoss,
    PoissonNLLLoss, SmoothL1Loss, SoftMarginLoss, TripletMarginLoss, binary_cross_entropy, binary_cross_entropy_with_logits,
    cosine_embedding_loss, cross_entropy, ctc_loss, dice_loss, gaussian_nll_loss, hinge_embedding_loss, huber_loss, info_nce_loss,
    kl_div, l1_loss, margin_ranking_loss, mse_loss, multi_margin_loss, multilabel_margin_loss, multilabel_soft_margin_loss,
    nll_loss, nt_xent_loss, poisson_nll_loss, sigmoid_focal_loss, smooth_l1_loss, soft_margin_loss, triplet_margin_loss,
)
from .module import Module, RemovableHandle
from .more import (
    AlphaDropout, Bilinear, CosineSimilarity, DeformConv2d, Dropout1d, Dropout2d, Dropout3d, DropPath, EmbeddingBag, GeneralNorm,
    LocalConv2d, LocalResponseNorm, PairwiseDistance, RegionRestrictedConv2d, SpectralNorm, WeightNorm,
)
from .plain import (
    CELU, ChannelShuffle, ELU, Flatten, GELU, GlobalAvgPool, GlobalMaxPool, Hardshrink, Hardsigmoid, Hardswish, Hardtanh, Identity,
    LeakyReLU, LogSigmoid, LogSoftmax, Mish, ModuleList, PixelShuffle, PixelUnshuffle, PReLU, ReLU, ReLU6, RReLU, SELU, Sequential,
    Sigmoid, SiLU, Softmax, Softmin, Softplus, Softshrink, Softsign, Tanh, Tanhshrink, Threshold, Unflatten,
)
from .pooling import (
    AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d, AvgPool1d,
    AvgPool2d, AvgPool3d, Fold, LPPool1d, LPPool2d, LPPool3d, MaxPool1d, MaxPool2d, MaxPool3d, MaxUnpool1d, MaxUnpool2d, MaxUnpool3d,
    Pad1d, Pad2d, Pad3d, Unfold, Upsample,
)
from .recurrent import GRU, GRUCell, LSTM, LSTMCell, RNN, RNNCell

__all__ = [
    "Parameter", "init", "utils", "CrossAttention", "DecoderBlock", "EncoderBlock", "EncoderDecoder", "KvCache",
    "MultiHeadAttention", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Conv1d", "Conv2d", "Conv3d", "ConvNorm",
    "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Dropout", "Embedding", "GroupNorm", "InstanceNorm",
    "LayerNorm", "Linear", "RMSNorm", "BCELoss", "BCEWithLogitsLoss", "CosineEmbeddingLoss", "CrossEntropyLoss",
    "CTCLoss", "GaussianNLLLoss", "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss", "MarginRankingLoss",
    "MSELoss", "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss", "PoissonNLLLoss",
    "SmoothL1Loss", "SoftMarginLoss", "TripletMarginLoss", "binary_cross_entropy", "binary_cross_entropy_with_logits",
    "cosine_embedding_loss", "cross_entropy", "ctc_loss", "dice_loss", "gaussian_nll_loss", "hinge_embedding_loss",
    "huber_loss", "info_nce_loss", "kl_div", "l1_loss", "margin_ranking_loss", "mse_loss", "multi_margin_loss",
    "multilabel_margin_loss", "multilabel_soft_margin_loss", "nll_loss", "nt_xent_loss", "poisson_nll_loss",
    "sigmoid_focal_loss", "smooth_l1_loss", "soft_margin_loss", "triplet_margin_loss", "Module", "RemovableHandle",
    "AlphaDropout", "Bilinear", "CosineSimilarity", "DeformConv2d", "Dropout1d", "Dropout2d", "Dropout3d", "DropPath",
    "EmbeddingBag", "GeneralNorm", "LocalConv2d", "LocalResponseNorm", "PairwiseDistance", "RegionRestrictedConv2d",
    "SpectralNorm", "WeightNorm", "CELU", "ChannelShuffle", "ELU", "Flatten", "GELU", "GlobalAvgPool",
    "GlobalMaxPool", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "Identity", "LeakyReLU", "LogSigmoid",
    "LogSoftmax", "Mish", "ModuleList", "PixelShuffle", "PixelUnshuffle", "PReLU", "ReLU", "ReLU6", "RReLU", "SELU",
    "Sequential", "Sigmoid", "SiLU", "Softmax", "Softmin", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink",
    "Threshold", "Unflatten", "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "Fold", "LPPool1d", "LPPool2d",
    "LPPool3d", "MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d", "Pad1d", "Pad2d",
    "Pad3d", "Unfold", "Upsample", "GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNCell",
]
