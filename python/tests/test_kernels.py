"""Devices by name, and kernels that Python functions compute."""
import pytest

import remat


def _doubles(calls):
    def double(op, inputs, outputs):
        calls.append((op["op"], op["params"], inputs[0].shape))
        for i, x in enumerate(inputs[0].cast("B").cast("f")):
            outputs[0].cast("B").cast("f")[i] = 2 * x

    return double


def test_a_device_is_opened_by_its_name_and_a_budget_may_stand_there():
    assert remat.Device("cpu", budget="1MiB").budget == 1 << 20
    assert (remat.Device("64MiB").name, remat.Device("64MiB").budget) == ("cpu", 64 << 20)
    emulated = remat.Device("emulated", "1MiB", threads=1)
    assert (emulated.name, emulated.budget) == ("emulated", 1 << 20)
    x = remat.arange(0, 8, dtype="float32", device=emulated)
    assert (x * 2 + 1).tolist() == [2 * i + 1 for i in range(8)]
    with pytest.raises(ValueError, match="no device `tpu`; this build has cpu"):
        remat.Device("tpu")
    with pytest.raises(ValueError, match="no name of a device"):
        remat.Device(1 << 20, budget=1 << 20)
    with pytest.raises(ValueError, match="no budget"):
        remat.Device("12 potatoes")


def test_a_kernel_computes_its_operator_on_its_device_alone():
    calls = []
    device = remat.Device(threads=1, kernels={"unary": _doubles(calls)})
    x = remat.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    assert remat.tanh(x).tolist() == [[2.0, 4.0], [6.0, 8.0]]
    assert calls == [("unary", {"f": "tanh"}, (2, 2))]
    assert (x + 1).tolist() == [[2.0, 3.0], [4.0, 5.0]], "others have their own"
    assert remat.exp(remat.zeros(3, device=remat.Device(threads=1))).tolist() == [1.0, 1.0, 1.0]


def test_a_kernel_computes_scalars_empty_tensors_and_what_is_made_again_within_a_budget():
    calls = []
    device = remat.Device(budget=3 * 4096, threads=1, kernels={"unary": _doubles(calls)})
    assert remat.tanh(remat.tensor(1.5, device=device)).item() == 3.0
    assert remat.tanh(remat.zeros(0, device=device)).tolist() == []
    kept = [remat.ones(1024, device=device)]
    for _ in range(4):
        kept.append(remat.tanh(kept[-1]))
    assert [x[0].item() for x in kept] == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert device.peak_bytes <= 3 * 4096 and len(calls) > 6, "some were made again"


def test_what_a_kernel_raises_comes_out_as_itself_and_the_device_goes_on():
    class Mine(Exception):
        pass

    def fails(op, inputs, outputs):
        raise Mine("as asked")

    device = remat.Device(threads=1, kernels={"unary": fails})
    x = remat.ones(4, device=device)
    with pytest.raises(Mine, match="as asked"):
        remat.tanh(x).tolist()
    assert x.sum().item() == 4.0

    def other_bools(op, inputs, outputs):
        outputs[0].cast("B")[0] = 2

    device = remat.Device(threads=1, kernels={"unary": other_bools})
    with pytest.raises(ValueError, match="another byte than 0 or 1"):
        remat.isnan(remat.ones(4, device=device)).tolist()


def test_a_kernel_of_no_operator_is_refused():
    with pytest.raises(ValueError, match="no operator `tanhh`"):
        remat.Device(kernels={"tanhh": print})
    with pytest.raises(ValueError, match="cannot be called"):
        remat.Device(kernels={"unary": 1})
