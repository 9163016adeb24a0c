#!/usr/bin/env python3
"""Every network of `nn::models` as an ONNX file: checked by the standard's checker, run by ONNX Runtime, compared with Remat.

    python3 -m pip install numpy onnx onnxruntime
    python3 scripts/check_export.py [--folder FOLDER] [--opset N] [--any-batch] [NAME ..]

Prints for each the largest difference of its results over the largest number among them; fails if one is above 1e-4.
With --any-batch the batch has a name. With --samples, every sample of every op instead of networks: prints those that
the checker refuses, those that the runtime has no kernel for, and those that differ.
"""

import argparse
import json
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
    for opset in range(28, 17, -1):
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


def apart(y, want):
    """The largest difference, relative to the largest number; NaN and infinities are equal to themselves."""
    if y.shape != want.shape:
        raise ValueError(f"shape {y.shape}, not {want.shape}")
    if y.size == 0:
        return 0.0
    a, b = y.astype(np.float64), want.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    finite = b[np.isfinite(b)]
    size = max(float(np.abs(finite).max()) if finite.size else 0.0, 1e-30)
    gap = np.abs(np.where(same, 0.0, a - b))
    return float("inf") if np.isnan(gap).any() else float(gap.max()) / size


def difference(path):
    """The largest difference of the results of a model."""
    onnx.checker.check_model(str(path), full_check=True)
    data = np.load(path.with_suffix(".npz"))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    kinds = {"tensor(bool)": np.bool_}
    feed = {i.name: data[i.name].astype(kinds.get(i.type, data[i.name].dtype)) for i in session.get_inputs()}
    results = zip(session.get_outputs(), session.run(None, feed))
    return max(apart(y, data[output.name]) for output, y in results)


def verdict(path):
    """What becomes of a sample: one of the kinds below, and text."""
    try:
        gap = difference(path)
        half = any(v.dtype == np.float16 for v in np.load(path.with_suffix(".npz")).values())
        return ("agree", "") if gap <= (2e-2 if half else MOST) else ("differ", f"{gap:.1e}")
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as e:
        return "are refused by the checker", str(e)
    except Exception as e:  # the runtime has exceptions of its own for each kind of failure
        kind = "have no kernel in the runtime" if "NOT_IMPLEMENTED" in str(e) else "fail or differ"
        return kind, f"{type(e).__name__}: {e}"


def samples(folder):
    """Runs the samples of all ops in processes of their own, since a few are fatal to the runtime."""
    paths, found = sorted(folder.glob("*.onnx")), {}
    while paths:
        command = [sys.executable, __file__, "--samples", "--ready", "--one-by-one", *map(str, paths)]
        run = subprocess.run(command, capture_output=True, text=True)
        lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("[")]
        for stem, kind, text in lines:
            found.setdefault(kind, {})[stem] = text
        paths = paths[len(lines) :]
        if paths and run.returncode:
            found.setdefault("end the runtime", {})[paths.pop(0).stem] = f"code {run.returncode}"
    for kind, of in sorted(found.items()):
        print(f"{len(of)} {kind}")
        for stem, text in of.items() if kind != "agree" else []:
            print(f"    {stem}: {' '.join(text.split())[:230]}")
    return "are refused by the checker" in found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, help="where the files go; a temporary folder unless set")
    parser.add_argument("--opset", type=int, help="the version of the operators; the newest that the runtime takes")
    parser.add_argument("--any-batch", action="store_true", help="networks with a named batch, run at one they were not written at")
    parser.add_argument("--ready", action="store_true", help="the files are there already")
    parser.add_argument("--binary", help="the example, built already")
    parser.add_argument("--samples", action="store_true", help="the samples of all ops instead of networks")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--one-by-one", action="store_true", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.one_by_one:
        for name in a.names:
            path = pathlib.Path(name)
            print(json.dumps([path.stem, *verdict(path)]), flush=True)
        return
    opset = a.opset or newest_opset()
    print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}, operator set {opset}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = a.folder or pathlib.Path(temporary)
        if not a.ready:
            example = ["remat-onnx", "--example", "export_samples"] if a.samples else ["remat-cli", "--example", "export_models"]
            cargo = ["cargo", "run", "--release", "-q", "-p", *example, "--"]
            command = [a.binary] if a.binary else cargo
            more = ["--any-batch"] if a.any_batch else []
            subprocess.run([*command, str(folder), str(opset), *more, *a.names], cwd=ROOT, check=False)
        if a.samples:
            sys.exit(samples(folder))
        failed = []
        for path in sorted(folder.glob("*.onnx")):
            if a.names and path.stem not in a.names:
                continue
            try:
                gap = difference(path)
                differs = "" if gap <= MOST else "  differs"
                print(f"{path.stem:24} {gap:.1e}{differs}")
                if differs:
                    failed.append(path.stem)
            except Exception as e:  # what is wrong with one must not hide the others
                print(f"{path.stem:24} {type(e).__name__}: {str(e)[:300]}")
                failed.append(path.stem)
    if failed:
        sys.exit(f"{len(failed)} differ: {', '.join(failed)}")


if __name__ == "__main__":
    main()
