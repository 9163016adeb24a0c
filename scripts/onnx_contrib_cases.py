#!/usr/bin/env python3
"""Makes cases of ONNX Runtime's own operators and of `ai.onnx.ml`, in the layout of the standard's data: ONNX Runtime says what comes out.

Needs `onnx`, `onnxruntime` and `numpy`. Cases go to target/onnx-contrib; then

    python3 scripts/onnx_contrib_cases.py && cargo run --release -p remat-onnx --example conformance -- target/onnx-contrib
"""

import pathlib
import shutil
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "target/onnx-contrib"
MS, ML = "com.microsoft", "ai.onnx.ml"
rng = np.random.default_rng(33)


def f32(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def case(name, op, domain, inputs, outputs, **attributes):
    """`inputs`: arrays, or None for one that is absent."""
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    node = helper.make_node(op, names, outputs, domain=domain, **attributes)
    given = [(n, x) for n, x in zip(names, inputs) if x is not None]
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in given]
    ys = [helper.make_empty_tensor_value_info(y) for y in outputs if y]
    graph = helper.make_graph([node], name, infos, ys)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1), helper.make_opsetid(ML, 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    got = session.run(None, dict(given))
    folder = OUT / "node" / f"test_{name}"
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")
    (folder / "data.json").write_text('{"rtol": 0.001, "atol": 1e-05}')
    for kind, arrays in (("input", [x for _, x in given]), ("output", got)):
        for i, x in enumerate(arrays):
            (data / f"{kind}_{i}.pb").write_bytes(numpy_helper.from_array(np.asarray(x)).SerializeToString())


def transformers():
    n, t, h, heads = 2, 5, 8, 2
    x, w, b = f32(n, t, h), f32(h, 3 * h) / 3, f32(3 * h)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    for name, m in (("none", None), ("raw", mask), ("lengths", np.array([3, 5], np.int32))):
        case(f"attention_{name}", "Attention", MS, [x, w, b, m], ["y"], num_heads=heads)
    case("attention_causal", "Attention", MS, [x, w, b], ["y"], num_heads=heads, unidirectional=1)
    past = f32(2, n, heads, 3, h // heads)
    case("attention_past", "Attention", MS, [x, w, b, None, past], ["y", "p"], num_heads=heads, unidirectional=1)
    case("attention_bias", "Attention", MS, [x, w, b, None, None, f32(n, heads, t, t)], ["y"], num_heads=heads)
    q, k, v = f32(n, t, h), f32(n, 4, h), f32(n, 4, h)
    case("mha", "MultiHeadAttention", MS, [q, k, v], ["y"], num_heads=heads)
    case("mha_bias", "MultiHeadAttention", MS, [q, k, v, b], ["y"], num_heads=heads)
    padding = np.array([[1, 1, 0, 0], [1, 1, 1, 1]], np.int32)
    case("mha_padding", "MultiHeadAttention", MS, [q, k, v, None, padding], ["y"], num_heads=heads)
    case("mha_scores", "MultiHeadAttention", MS, [q, k, v, None, None, f32(1, heads, t, 4)], ["y"], num_heads=heads)
    case("skip_layer_norm", "SkipLayerNormalization", MS, [x, f32(n, t, h), f32(h), f32(h), f32(h)], ["y", "", "", "s"])
    case("skip_rms_norm", "SkipSimplifiedLayerNormalization", MS, [x, f32(n, t, h), f32(h)], ["y", "", "", "s"])
    case("rms_norm", "SimplifiedLayerNormalization", "", [x, f32(h)], ["y"], axis=-1, epsilon=1e-5)
    ids, segments = rng.integers(0, 9, (n, t)).astype(np.int32), rng.integers(0, 2, (n, t)).astype(np.int32)
    tables = [f32(9, h), f32(7, h), f32(2, h)]
    case("embed", "EmbedLayerNormalization", MS, [ids, segments, *tables, f32(h), f32(h), mask], ["y", "m"])
    case("embed_words", "EmbedLayerNormalization", MS, [ids, None, *tables[:2], None, f32(h), f32(h)], ["y", "m"])
    places = np.arange(t, dtype=np.int64)[None].repeat(n, 0)
    cos, sin = f32(7, 2), f32(7, 2)
    for turned in (0, 1):
        case(f"rotary_{turned}", "RotaryEmbedding", MS, [f32(n, heads, t, 4), places, cos, sin], ["y"], interleaved=turned)
    case("rotary_first", "RotaryEmbedding", MS, [f32(n, heads, t, 4), np.array([1], np.int64), cos, sin], ["y"])
    for op in ("Gelu", "FastGelu", "QuickGelu"):
        case(op.lower(), op, MS, [x], ["y"])
    case("biasgelu", "BiasGelu", MS, [x, f32(h)], ["y"])
    case("fastgelu_bias", "FastGelu", MS, [x, f32(h)], ["y"])
    case("fusedmatmul", "FusedMatMul", MS, [f32(2, 4, 3), f32(2, 4, 5)], ["y"], transA=1, alpha=0.5)
    image, weight = f32(1, 2, 5, 5), f32(3, 2, 3, 3)
    case("fusedconv", "FusedConv", MS, [image, weight, f32(3)], ["y"], activation="Relu", pads=[1, 1, 1, 1])


def integers():
    def u8(*shape):
        return rng.integers(0, 256, shape).astype(np.uint8)

    def s(v):
        return np.array(v, np.float32)

    def z(v):
        return np.array(v, np.uint8)

    case("qadd", "QLinearAdd", MS, [u8(3, 4), s(0.1), z(100), u8(4), s(0.2), z(3), s(0.3), z(7)], ["y"])
    case("qmul", "QLinearMul", MS, [u8(3, 4), s(0.01), z(100), u8(3, 4), s(0.02), z(3), s(0.03), z(90)], ["y"])
    case("dqmatmul", "DynamicQuantizeMatMul", MS, [f32(3, 4), u8(4, 5), s(0.02), z(120)], ["y"])
    case("imatmul", "MatMulIntegerToFloat", MS, [u8(3, 4), u8(4, 5), s(0.1), s(0.02), z(9), z(120), f32(5)], ["y"])


def classic():
    x = f32(6, 3)
    case("scaler", "Scaler", ML, [x], ["y"], offset=[0.5, 1.0, -1.0], scale=[2.0, 0.5, 3.0])
    for norm in ("MAX", "L1", "L2"):
        case(f"normalizer_{norm.lower()}", "Normalizer", ML, [np.abs(x)], ["y"], norm=norm)
    case("imputer", "Imputer", ML, [np.where(x > 1, np.nan, x).astype(np.float32)], ["y"], imputed_value_floats=[1.0, 2.0, 3.0],
         replaced_value_float=float("nan"))
    case("one_hot", "OneHotEncoder", ML, [np.array([[1], [3], [9]], np.int64)], ["y"], cats_int64s=[1, 2, 3])
    case("features", "FeatureVectorizer", ML, [x, f32(6, 2)], ["y"], inputdimensions=[3, 2])
    case("linear_regressor", "LinearRegressor", ML, [x], ["y"], coefficients=list(map(float, f32(6))), intercepts=[0.1, 0.2], targets=2)
    for post in ("NONE", "LOGISTIC", "SOFTMAX"):
        case(f"linear_classifier_{post.lower()}", "LinearClassifier", ML, [x], ["y", "z"], coefficients=list(map(float, f32(9))),
             intercepts=[0.1, 0.2, 0.3], classlabels_ints=[4, 5, 6], multi_class=1, post_transform=post)
    nodes = dict(nodes_treeids=[0] * 5 + [1] * 3, nodes_nodeids=[0, 1, 2, 3, 4, 0, 1, 2], nodes_featureids=[0, 1, 0, 0, 0, 2, 0, 0],
                 nodes_values=[0.1, -0.2, 0.0, 0.0, 0.0, 0.3, 0.0, 0.0],
                 nodes_modes=["BRANCH_LEQ", "BRANCH_LT", "LEAF", "LEAF", "LEAF", "BRANCH_GT", "LEAF", "LEAF"],
                 nodes_truenodeids=[1, 2, 0, 0, 0, 1, 0, 0], nodes_falsenodeids=[4, 3, 0, 0, 0, 2, 0, 0])
    leaves = ([0, 0, 0, 1, 1], [2, 3, 4, 1, 2])
    for f in ("SUM", "AVERAGE", "MIN", "MAX"):
        case(f"tree_regressor_{f.lower()}", "TreeEnsembleRegressor", ML, [x], ["y"], **nodes, n_targets=1, target_treeids=leaves[0],
             target_nodeids=leaves[1], target_ids=[0] * 5, target_weights=[1.0, 2.5, -3.0, 0.5, 4.0], aggregate_function=f)
    for post in ("NONE", "LOGISTIC"):
        case(f"tree_binary_{post.lower()}", "TreeEnsembleClassifier", ML, [x], ["y", "z"], **nodes, class_treeids=leaves[0],
             class_nodeids=leaves[1], class_ids=[0] * 5, class_weights=[0.1, 0.2, 0.05, 0.4, 0.3], classlabels_int64s=[7, 9],
             post_transform=post)
        case(f"tree_binary_signed_{post.lower()}", "TreeEnsembleClassifier", ML, [x], ["y", "z"], **nodes, class_treeids=leaves[0],
             class_nodeids=leaves[1], class_ids=[0] * 5, class_weights=[0.1, -0.2, 0.5, -0.4, 0.3], classlabels_int64s=[7, 9],
             post_transform=post)
    for post in ("NONE", "SOFTMAX"):
        case(f"tree_classifier_{post.lower()}", "TreeEnsembleClassifier", ML, [x], ["y", "z"], **nodes, class_treeids=leaves[0],
             class_nodeids=leaves[1], class_ids=[0, 1, 2, 1, 0], class_weights=[0.1, 0.2, 0.5, 0.4, 0.3], classlabels_int64s=[7, 9, 11],
             post_transform=post)


if __name__ == "__main__":
    shutil.rmtree(OUT, ignore_errors=True)
    transformers()
    integers()
    classic()
