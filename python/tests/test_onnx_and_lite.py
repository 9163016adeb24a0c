import gzip
import pathlib

import numpy as np
import pytest

import remat
from remat import lite, nn, onnx

LITE = pathlib.Path(__file__).parents[2] / "crates" / "lite" / "tests"


def network():
    remat.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3)
    ).eval()


def test_a_module_goes_to_onnx_and_back(device, tmp_path):
    net, x, path = network(), remat.randn(2, 1, 4, 4), tmp_path / "net.onnx"
    onnx.export(net, [x], path, input_names=["image"], output_names=["scores"], metadata={"made": "here"}, name="small")
    model = onnx.Model(path)
    assert [(p.name, p.dtype, p.shape, p.has_default) for p in model.inputs] == [("image", remat.float32, (2, 1, 4, 4), False)]
    assert model.outputs[0].name == "scores" and model.outputs[0].shape == (2, 3)
    assert (model.name, model.metadata) == ("small", {"made": "here"}) and model.opsets[""] >= 18
    assert model.operators["Conv"] == 1 and model.unsupported == []
    assert "Model(small: Port(image: f32[2, 1, 4, 4])" in repr(model)
    text = path.read_bytes()
    assert all(name.encode() in text for name in ("0.weight", "5.bias"))
    small = remat.Device(budget="8MiB", threads=1)
    for run in (model.on(small), onnx.load(text, device=small), onnx.load(str(path), device=small)):
        assert run.device is small
        np.testing.assert_allclose(run(x.numpy()).numpy(), net(x).numpy(), rtol=1e-5, atol=1e-6)
    assert run.run({"image": x.numpy()})["scores"].tolist() == run(x.numpy()).tolist()
    assert small.peak_bytes <= 8 << 20
    onnx.export(net, [x], path, external_data=True, opset=18)
    assert (tmp_path / "net.onnx.data").exists() and onnx.Model(path).opsets[""] == 18
    np.testing.assert_allclose(onnx.load(path)(x).numpy(), net(x).numpy(), rtol=1e-5, atol=1e-6)


def test_a_network_of_onnx_has_gradients_and_compiles(device, tmp_path):
    path = tmp_path / "f.onnx"
    onnx.export(lambda x, y: (x * y, {"sum": x + y}), [remat.ones(3), remat.ones(3)], path)
    f = onnx.load(path)
    x, y = remat.tensor([1.0, 2.0, 3.0], requires_grad=True), remat.tensor([2.0, 2.0, 2.0])
    product, total = f(x, y)
    product.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0] and total.tolist() == [3.0, 4.0, 5.0]
    compiled = remat.compile(lambda x, y: f(x, y)[0])
    assert compiled(y, y).tolist() == [4.0, 4.0, 4.0]
    assert f.model.with_outputs([f.outputs[1].name]).on()(y, y).tolist() == [4.0, 4.0, 4.0]
    fixed = f.model.with_input(f.inputs[1].name, [5.0, 5.0, 5.0])
    assert len([p for p in fixed.inputs if not p.has_default]) == 1


def test_sizes_stay_open(device, tmp_path):
    net, path = network(), tmp_path / "net.onnx"
    onnx.export(net, [remat.ones(2, 1, 4, 4)], path, dynamic={0: {0: "batch"}}, sizes={"batch": (1, 64)})
    run = onnx.load(path)
    assert run.inputs[0].shape == ("batch", 1, 4, 4)
    x = remat.randn(5, 1, 4, 4)
    np.testing.assert_allclose(run(x).numpy(), net(x).numpy(), rtol=1e-5, atol=1e-6)
    for wrong in (
        {"dynamic": {0: {0: "n"}}}, {"dynamic": {1: {0: "n"}}, "sizes": {"n": (1, 9)}}, {"sizes": {"n": (1, 9)}},
    ):
        with pytest.raises(ValueError):
            onnx.export(net, [x], path, **wrong)
    with pytest.raises(IndexError):
        onnx.export(net, [x], path, dynamic={0: {7: "n"}}, sizes={"n": (1, 9)})


def test_what_goes_wrong_with_models_names_file_and_node(device, tmp_path):
    path = tmp_path / "net.onnx"
    net, x = network(), remat.ones(1, 1, 4, 4)
    onnx.export(net, [x], path, input_names=["image"])
    good = path.read_bytes()
    path.write_bytes(good[: len(good) // 2])
    for read in (onnx.Model, lite.Network):
        with pytest.raises(remat.FormatError, match="net.onnx"):
            read(path)
        with pytest.raises(OSError, match="nowhere"):
            read(tmp_path / "nowhere")
        with pytest.raises(remat.FormatError):
            read(b"")
    path.write_bytes(good)
    run = onnx.load(path)
    with pytest.raises(remat.ShapeError, match="image"):
        run(remat.ones(1, 1, 5, 4))
    with pytest.raises(remat.DTypeError, match="image"):
        run(np.zeros((1, 1, 4, 4)))
    with pytest.raises(TypeError, match="image"):
        run()
    with pytest.raises(ValueError, match="image"):
        run.run({"picture": x})
    with pytest.raises(ValueError, match="image"):
        run.run({})
    with pytest.raises(TypeError, match="image"):
        run(object())
    # an operator that there is not, in the place of one of the same length
    path.write_bytes(good.replace(b"Flatten", b"Flattex").replace(b"Reshape", b"Reshapx"))
    model = onnx.Model(path)
    assert len(model.unsupported) == 1 and ("Flattex" in model.unsupported[0] or "Reshapx" in model.unsupported[0])
    with pytest.raises(ValueError, match="Flattex|Reshapx"):
        model.on()
    with pytest.raises(remat.BudgetError) as e:
        wide = tmp_path / "wide.onnx"
        onnx.export(lambda x: (x.reshape(-1, 1) * x).sum(axis=1), [remat.ones(2048)], wide)
        onnx.load(wide, device=remat.Device(budget="1MiB"))(np.ones(2048, "float32")).tolist()
    assert e.value.budget_bytes == 1 << 20


def test_what_cannot_be_written_is_told(device, tmp_path):
    path = tmp_path / "f.onnx"
    x = remat.ones(2)
    with pytest.raises(ValueError, match="eval"):
        onnx.export(nn.Dropout(0.5), [x], path)
    with pytest.raises(remat.NoValueError, match="test_onnx_and_lite.py"):
        onnx.export(lambda x: x * x.sum().item(), [x], path)
    with pytest.raises(ValueError, match="ONNX"):
        onnx.export(lambda x: remat.linalg.svd(x)[1] if hasattr(remat, "linalg") else remat.ops.svd(x)[1], [remat.eye(3)], path)
    with pytest.raises(ValueError, match="99"):
        onnx.export(lambda x: x * 2, [x], path, opset=99)
    with pytest.raises(ZeroDivisionError):
        onnx.export(lambda x: 1 / 0, [x], path)
    with pytest.raises(ValueError):
        onnx.export(lambda: x, [], path)
    with pytest.raises(TypeError):
        onnx.export(lambda x: x, x, path)
    with pytest.raises(OSError, match="nowhere"):
        onnx.export(lambda x: x * 2, [x], tmp_path / "nowhere" / "f.onnx")
    assert not path.exists()


def test_models_for_deployment_run_as_the_function(device, tmp_path):
    net, x, path = network(), remat.randn(3, 1, 4, 4), tmp_path / "net.remat"
    lite.export(net, [x], path, dynamic={0: {0: "batch"}}, sizes={"batch": (1, 16)}, metadata={"name": "small"})
    model = lite.Network(path, memory_budget="1MiB", threads=1)
    assert model.inputs[0].shape == ("batch", 1, 4, 4) and model.inputs[0].dtype == remat.float32 and model.name == "small"
    assert model.unsupported == [] and sum(model.operators.values()) > 3
    with pytest.raises(ValueError, match="open"):
        model.session()
    with pytest.raises(ValueError, match="nothing"):
        model.session(nothing=3)
    session = model.session(batch=3)
    name, out = model.inputs[0].name, model.outputs[0].name
    assert session.inputs == {name: (remat.float32, (3, 1, 4, 4))} and session.is_planned
    want = net(x).numpy()
    for y in (session.run(x), session.run(x.numpy()), session.run({name: x}), session.run(x.tolist())):
        np.testing.assert_allclose(y[out].numpy(), want, rtol=1e-4, atol=1e-5)
    # an input that is left out keeps its value
    np.testing.assert_allclose(session.run()[out].numpy(), want, rtol=1e-4, atol=1e-5)
    memory = session.memory()
    assert 0 < memory.constant_bytes and memory.total_bytes <= 1 << 20
    two = model.session({name: (2, 1, 4, 4)})
    assert two.run(x[:2])[out].shape == (2, 3)
    for wrong in (lambda: session.run(x[:2]), lambda: session.run({"picture": x}), lambda: session.run(x.cast("float64"))):
        with pytest.raises(remat.Error):
            wrong()
    with pytest.raises(TypeError):
        session.run(x, x)
    onnx.export(net, [x], tmp_path / "net.onnx")
    other = lite.Network((tmp_path / "net.onnx").read_bytes(), level=2)
    y, = other.session().run(x).values()
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-5, atol=1e-6)
    other = lite.Network(tmp_path / "net.onnx", half="float16")
    y, = other.session().run(x).values()
    np.testing.assert_allclose(y.numpy(), want, rtol=2e-2, atol=2e-2)
    lite.Network(tmp_path / "net.onnx").save(tmp_path / "saved.remat")
    assert lite.Network(tmp_path / "saved.remat").session().run(x)


def test_encrypted_files_take_their_key(device, tmp_path):
    path, key = tmp_path / "f.remat", bytes(range(32))
    w = remat.full((64,), 7.0)
    lite.export(lambda x: x * w, [remat.ones(64)], path, key=key)
    assert np.full(64, 7.0, "float32").tobytes() not in path.read_bytes()
    y, = lite.Network(path, key=key).session().run(remat.ones(64)).values()
    assert y.tolist() == [7.0] * 64
    for wrong in (None, bytes(32), b"short"):
        with pytest.raises(ValueError):
            lite.Network(path, key=wrong)


def test_a_budget_that_cannot_be_met_has_figures(device, tmp_path):
    path = tmp_path / "f.remat"
    lite.export(lambda x: (x.reshape(-1, 1) * x).exp().sum(axis=1), [remat.ones(1024)], path)
    model = lite.Network(path, memory_budget="64KiB", level=0)
    with pytest.raises(remat.BudgetError) as e:
        model.session()
    assert e.value.budget_bytes == 64 << 10 and e.value.smallest_feasible_bytes > 64 << 10
    for wrong in ({"memory_budget": "many"}, {"threads": 0}, {"level": 9}, {"half": "int8"}, {"outputs": ["nothing"]}):
        with pytest.raises(ValueError):
            lite.Network(path, **wrong)


def test_outputs_and_fixed_inputs(device, tmp_path):
    path = tmp_path / "f.onnx"
    onnx.export(lambda x, n: (x + n, x - n), [remat.ones(2), remat.ones(2)], path, input_names=["x", "n"], output_names=["a", "b"])
    model = lite.Network(path, outputs=["b"], fixed={"n": np.float32([3.0, 4.0])})
    assert [p.name for p in model.inputs] == ["x"] and [p.name for p in model.outputs] == ["b"]
    assert model.session().run(np.float32([5.0, 5.0]))["b"].tolist() == [2.0, 1.0]


@pytest.mark.skipif(not LITE.exists(), reason="not in a clone of the repository")
def test_models_that_other_programs_wrote(device):
    voted = gzip.decompress((LITE / "data" / "real" / "sklearn-voted.onnx.gz").read_bytes())
    x = np.random.default_rng(0).standard_normal((32, 5)).astype("float32")
    labels, probabilities = onnx.load(voted)(x)
    # classes are in the order of their names
    want = [["high", "low", "middle"][i] for i in probabilities.argmax(axis=1).tolist()]
    assert labels == want and len(set(labels)) > 1
    model = lite.Network(voted)
    assert [p.type for p in model.outputs] == ["strings", "f32[?, 3]"] and model.outputs[0].dtype is None
    y = model.session({"x": x.shape}).run(x)
    assert y["label"] == labels
    np.testing.assert_allclose(y["probabilities"].numpy(), probabilities.numpy(), rtol=1e-5)
    foreign = onnx.Model(LITE / "models" / "foreign" / "model.onnx")
    for on in (foreign.on, lambda: lite.Network(LITE / "models" / "foreign" / "model.onnx").session()):
        with pytest.raises(ValueError, match="node `second`: com.example.Flashier"):
            on()
    outside = LITE / "models" / "external" / "model.onnx"
    given = onnx.Model(outside)
    ones = [np.ones([n if isinstance(n, int) else 2 for n in p.shape], p.dtype.name) for p in given.inputs]
    a, b = given.on()(*ones), lite.Network(outside, level=2).session({p.name: v.shape for p, v in zip(given.inputs, ones)}).run(*ones)
    assert a.tolist() == b[given.outputs[0].name].tolist()
    with pytest.raises(remat.FormatError, match="weights.bin"):
        onnx.Model(outside.read_bytes())
