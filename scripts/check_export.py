#!/usr/bin/env python3
"""Every network of `nn::models` as an ONNX file: checked by the standard's checker, run by ONNX Runtime, compared with Remat.

    python3 -m pip install numpy onnx onnxruntime
    python3 scripts/check_export.py [--folder FOLDER] [--opset N] [NAME ..]

Prints for each the largest difference of its results over the largest number among them; fails if one is above 1e-4.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

ROOT = pathlib.Path(__file__).resolve().parent.parent
# sums in f32 in another order, through some hundred layers
MOST = 1e-4


def newest_opset():
    """The newest version of the standard's operators that the runtime takes without a warning."""
    for opset in range(27, 17, -1):
        node = onnx.helper.make_node("Identity", ["x"], ["y"])
        info = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1]) for n in "xy"]
        graph = onnx.helper.make_graph([node], "g", info[:1], info[1:])
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=8)
        try:
            onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
            return opset
        except Exception:  # the runtime has exceptions of its own for each kind of failure
            continue
    raise SystemExit("the runtime takes no version of the operators")


def difference(path):
    """The largest difference, relative to the largest result."""
    onnx.checker.check_model(str(path), full_check=True)
    data = np.load(path.with_suffix(".npz"))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    kinds = {"tensor(bool)": np.bool_}
    feed = {i.name: data[i.name].astype(kinds.get(i.type, data[i.name].dtype)) for i in session.get_inputs()}
    worst = 0.0
    for output, y in zip(session.get_outputs(), session.run(None, feed)):
        want = data[output.name]
        if y.shape != want.shape:
            raise ValueError(f"{output.name} has shape {y.shape}, not {want.shape}")
        size = max(float(np.abs(want).max()), 1e-30)
        apart = float(np.abs(y.astype(np.float64) - want).max())
        worst = max(worst, apart / size if np.isfinite(y).all() else float("inf"))
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, help="where the files go; a temporary folder unless set")
    parser.add_argument("--opset", type=int, help="the version of the operators; the newest that the runtime takes")
    parser.add_argument("--ready", action="store_true", help="the files are there already")
    parser.add_argument("--binary", help="the example, built already")
    parser.add_argument("names", nargs="*")
    a = parser.parse_args()
    opset = a.opset or newest_opset()
    print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}, operator set {opset}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = a.folder or pathlib.Path(temporary)
        if not a.ready:
            cargo = ["cargo", "run", "--release", "-q", "-p", "remat-cli", "--example", "export_models", "--"]
            command = [a.binary] if a.binary else cargo
            subprocess.run([*command, str(folder), str(opset), *a.names], cwd=ROOT, check=True)
        failed = []
        for path in sorted(folder.glob("*.onnx")):
            if a.names and path.stem not in a.names:
                continue
            try:
                apart = difference(path)
                verdict = "" if apart <= MOST else "  differs"
                print(f"{path.stem:24} {apart:.1e}{verdict}")
                if verdict:
                    failed.append(path.stem)
            except Exception as e:  # what is wrong with one must not hide the others
                print(f"{path.stem:24} {type(e).__name__}: {str(e)[:300]}")
                failed.append(path.stem)
    if failed:
        sys.exit(f"{len(failed)} differ: {', '.join(failed)}")


if __name__ == "__main__":
    main()
