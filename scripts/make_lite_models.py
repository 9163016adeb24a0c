"""Writes the models of crates/lite/tests/models, small ones as PyTorch exports them, with inputs and the outputs of ONNX Runtime.

    python scripts/make_lite_models.py

needs torch, onnx and onnxruntime. Each model is a folder in the layout of the standard's test data: `model.onnx`,
`test_data_set_0/input_N.pb`, `output_N.pb`.

  cnn          convolutions with batch norms, a residual, a classifier; the batch is open
  encoder      an encoder block over token numbers; batch and tokens are open
  positive     the elements above zero, so that the size of the output follows from values
  external     a product whose weights lie in a file beside the model
  skip         a tensor that is cheap to make, large, and read again at the end: what a budget makes again
  rate         an integer that decides between branches whose results differ in size
  sequence     a sequence of tensors and a tensor: the sequence with the tensor behind it, all of it as rows, and a sequence of strings
  colours      the mean of each colour of a picture of 224x224, whose metadata has the figures that pictures are prepared by
  foreign      an operator that nobody has
"""

import io
import pathlib

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper

FOLDER = pathlib.Path(__file__).parent.parent / "crates/lite/tests/models"


class Cnn(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.first = torch.nn.BatchNorm2d(8)
        self.block = torch.nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.second = torch.nn.BatchNorm2d(8)
        self.classify = torch.nn.Linear(8, 5)

    def forward(self, x):
        x = torch.relu(self.first(self.stem(x)))
        x = torch.relu(x + self.second(self.block(x)))
        return torch.softmax(self.classify(x.mean((2, 3))), 1)


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 16)
        self.joint = torch.nn.Linear(16, 48)
        self.out = torch.nn.Linear(16, 16)
        self.first = torch.nn.LayerNorm(16)
        self.wide = torch.nn.Linear(16, 32)
        self.narrow = torch.nn.Linear(32, 16)
        self.second = torch.nn.LayerNorm(16)

    def forward(self, tokens):
        # not PyTorch's own block, of which the export fixes the sizes
        x = self.embed(tokens)
        batch, length, _ = x.shape
        q, k, v = self.joint(x).reshape(batch, length, 3, 2, 8).permute(2, 0, 3, 1, 4)
        a = torch.softmax(q @ k.transpose(2, 3) / 8**0.5, 3) @ v
        x = self.first(x + self.out(a.transpose(1, 2).reshape(batch, length, 16)))
        return self.second(x + self.narrow(torch.nn.functional.gelu(self.wide(x))))


class Skip(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = torch.nn.Conv2d(2, 24, 1)
        self.first = torch.nn.Conv2d(24, 24, 3, padding=1)
        self.second = torch.nn.Conv2d(24, 24, 3, padding=1)
        self.last = torch.nn.Conv2d(24, 2, 1)

    def forward(self, x):
        early = torch.tanh(self.wide(x))
        return self.last(torch.sigmoid(self.second(torch.tanh(self.first(early)))) * early)


def exported(model, x, **options):
    out = io.BytesIO()
    torch.onnx.export(model.eval(), x, out, dynamo=False, opset_version=17, **options)
    return onnx.load_from_string(out.getvalue())


def write(name, model, inputs):
    folder = FOLDER / name
    data = folder / "test_data_set_0"
    data.mkdir(parents=True, exist_ok=True)
    onnx.checker.check_model(model)
    onnx.save(model, folder / "model.onnx")
    outputs = onnxruntime.InferenceSession(folder / "model.onnx").run(None, inputs)
    for i, (key, value) in enumerate(inputs.items()):
        (data / f"input_{i}.pb").write_bytes(message(value, key))
    for i, (port, value) in enumerate(zip(model.graph.output, outputs)):
        (data / f"output_{i}.pb").write_bytes(message(value, port.name))


def message(value, name):
    """A value as the standard's test data has it."""
    of = numpy_helper.from_list if isinstance(value, list) else numpy_helper.from_array
    return of(value, name).SerializeToString()


def sequence():
    info, floats = helper.make_tensor_value_info, TensorProto.FLOAT
    many = lambda name, kind, shape: helper.make_tensor_sequence_value_info(name, kind, shape)
    nodes = [
        helper.make_node("SequenceInsert", ["parts", "x"], ["all"], name="insert"),
        helper.make_node("ConcatFromSequence", ["all"], ["rows"], name="join", axis=0),
        helper.make_node("SequenceConstruct", ["first", "second"], ["words"], name="words"),
    ]
    words = [helper.make_tensor(n, TensorProto.STRING, [1], [w]) for n, w in (("first", b"one"), ("second", b"two"))]
    inputs = [many("parts", floats, ["n", 3]), info("x", floats, ["m", 3])]
    outputs = [many("all", floats, ["n", 3]), info("rows", floats, ["k", 3]), many("words", TensorProto.STRING, [1])]
    graph = helper.make_graph(nodes, "sequence", inputs, outputs, words)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def colours():
    info = helper.make_tensor_value_info
    nodes = [helper.make_node("ReduceMean", ["image"], ["means"], name="mean", axes=[2, 3], keepdims=0)]
    inputs, outputs = [info("image", TensorProto.FLOAT, ["batch", 3, 224, 224])], [info("means", TensorProto.FLOAT, ["batch", 3])]
    graph = helper.make_graph(nodes, "colours", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, {"mean": "[0.5, 0.25, 0.5]", "image_std": "0.5 0.5 0.25", "crop_pct": "0.875"})
    return model


def rate():
    """Differences of neighbours at the known rate, else of every second element."""
    info = helper.make_tensor_value_info

    def branch(name, step):
        number = lambda n, v: numpy_helper.from_array(np.array([v], np.int64), f"{name}_{n}")
        cut = lambda y, start, end: helper.make_node("Slice", ["x", start, end, f"{name}_axis", f"{name}_step"], [y])
        nodes = [
            cut(f"{name}_a", f"{name}_zero", f"{name}_less"),
            cut(f"{name}_b", f"{name}_one", f"{name}_end"),
            helper.make_node("Sub", [f"{name}_b", f"{name}_a"], [f"{name}_y"]),
        ]
        numbers = {"zero": 0, "one": step, "less": -step, "end": 1 << 40, "axis": 1, "step": step}
        weights = [number(n, v) for n, v in numbers.items()]
        return helper.make_graph(nodes, name, [], [info(f"{name}_y", TensorProto.FLOAT, None)], weights)

    nodes = [
        helper.make_node("Equal", ["rate", "known"], ["is_known"], name="compare"),
        helper.make_node("If", ["is_known"], ["y"], name="choose", then_branch=branch("all", 1), else_branch=branch("half", 2)),
    ]
    known = numpy_helper.from_array(np.array(16000, np.int64), "known")
    inputs = [info("x", TensorProto.FLOAT, ["batch", 9]), info("rate", TensorProto.INT64, [])]
    graph = helper.make_graph(nodes, "rate", inputs, [info("y", TensorProto.FLOAT, ["batch", "m"])], [known])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main():
    torch.manual_seed(1)
    random = np.random.default_rng(1)
    cnn = Cnn()
    for norm in (cnn.first, cnn.second):
        norm.running_mean.uniform_(-0.5, 0.5)
        norm.running_var.uniform_(0.5, 1.5)
    x = random.standard_normal((2, 3, 16, 16)).astype(np.float32)
    model = exported(
        cnn, torch.from_numpy(x), input_names=["image"], output_names=["probabilities"], dynamic_axes={"image": {0: "batch"}}
    )
    write("cnn", model, {"image": x})

    tokens = random.integers(0, 50, (2, 7))
    axes = {"tokens": {0: "batch", 1: "length"}}
    model = exported(
        Encoder(), torch.from_numpy(tokens), input_names=["tokens"], output_names=["encoded"], dynamic_axes=axes
    )
    write("encoder", model, {"tokens": tokens})

    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Greater", ["x", "zero"], ["mask"], name="above"),
        helper.make_node("Compress", ["x", "mask"], ["y"], name="take"),
        helper.make_node("Mul", ["y", "y"], ["squares"], name="square"),
    ]
    zero = numpy_helper.from_array(np.zeros((), np.float32), "zero")
    graph = helper.make_graph(
        nodes, "positive", [info("x", TensorProto.FLOAT, ["n"])], [info("squares", TensorProto.FLOAT, ["m"])], [zero]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    write("positive", model, {"x": random.standard_normal(9).astype(np.float32)})

    weights = random.standard_normal((4, 3)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        "external",
        [info("x", TensorProto.FLOAT, [2, 4])],
        [info("y", TensorProto.FLOAT, [2, 3])],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (FOLDER / "external").mkdir(parents=True, exist_ok=True)
    (FOLDER / "external" / "weights.bin").unlink(missing_ok=True)
    onnx.external_data_helper.convert_model_to_external_data(model, location="weights.bin", size_threshold=0)
    onnx.save(model, FOLDER / "external" / "model.onnx")
    x = random.standard_normal((2, 4)).astype(np.float32)
    data = FOLDER / "external" / "test_data_set_0"
    data.mkdir(exist_ok=True)
    y = onnxruntime.InferenceSession(FOLDER / "external" / "model.onnx").run(None, {"x": x})[0]
    (data / "input_0.pb").write_bytes(numpy_helper.from_array(x, "x").SerializeToString())
    (data / "output_0.pb").write_bytes(numpy_helper.from_array(y, "y").SerializeToString())

    x = random.standard_normal((1, 2, 16, 16)).astype(np.float32)
    model = exported(
        Skip(), torch.from_numpy(x), input_names=["x"], output_names=["y"], dynamic_axes={"x": {0: "batch"}}
    )
    write("skip", model, {"x": x})

    x = random.standard_normal((2, 9)).astype(np.float32)
    write("rate", rate(), {"x": x, "rate": np.array(16000, np.int64)})

    parts = [random.standard_normal((n, 3)).astype(np.float32) for n in (2, 1)]
    write("sequence", sequence(), {"parts": parts, "x": random.standard_normal((4, 3)).astype(np.float32)})
    (FOLDER / "colours").mkdir(parents=True, exist_ok=True)
    onnx.save(colours(), FOLDER / "colours" / "model.onnx")

    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="first"),
        helper.make_node("Flashier", ["a"], ["y"], name="second", domain="com.example"),
    ]
    graph = helper.make_graph(
        nodes, "foreign", [info("x", TensorProto.FLOAT, [4])], [info("y", TensorProto.FLOAT, [4])]
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    (FOLDER / "foreign").mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), FOLDER / "foreign" / "model.onnx")


if __name__ == "__main__":
    main()
