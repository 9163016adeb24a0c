import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import textwrap
import threading
import time
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

import remat
from remat import nn, optim
from remat.nn import functional


def test_budgets_are_numbers_and_texts():
    for text, want in [("64MiB", 64 << 20), ("0.5 gb", 500_000_000), (1 << 20, 1 << 20), ("123B", 123), (None, None), ("unlimited", None)]:
        assert remat.Device(budget=text).budget == want
    for wrong in ["50%", "lots", "64", "-1MiB", "0B", "nanMiB", 1.5, 0, -1, True, False]:
        with pytest.raises(ValueError, match="no budget"):
            remat.Device(budget=wrong)
    for wrong in [{"threads": 0}, {"recompute_limit": -1}, {"recompute_limit": 1 << 40}, {"budget": 1 << 60}, {"foresight": "x"}, {"async_level": "x"}]:
        with pytest.raises(ValueError):
            remat.Device(**wrong)


def test_host_memory_and_spill_files_have_budgets_of_their_own(tmp_path):
    x = remat.zeros(64, 256)
    peaks = []
    for host_budget in (None, "1MiB"):
        device = remat.Device("emulated", host_budget=host_budget, threads=1)
        loader = remat.data.DataLoader(remat.data.TensorDataset(x), batch_size=16, device=device)
        assert sum(batch[0].shape[0] for batch in loader) == 64
        host = device.report().stats["pinned_host"]
        assert host["budget_bytes"] == (1 << 20 if host_budget else None)
        peaks.append(host["peak_bytes"])
    assert peaks[0] > 0 and peaks[1] <= 1 << 20
    device = remat.Device(budget="1MiB", spill=tmp_path, spill_budget="2MiB")
    assert device.report().stats["spill_file"]["budget_bytes"] == 2 << 20
    with pytest.raises(ValueError, match="name a folder"):
        remat.Device(spill_budget="2MiB")
    with pytest.raises(ValueError, match="no budget"):
        remat.Device(host_budget="lots")


def test_what_holds_itself_is_an_error():
    own, named = [], {}
    own.append(own)
    named["a"] = named
    for deep in (own, functools.reduce(lambda inner, _: [inner], range(100_000), 1.0)):
        for read in (remat.tensor, lambda x: remat.zeros(3)[x], lambda x: remat.nn.Linear(x, 3), lambda x: remat.nn.Conv2d(1, 1, x)):
            with pytest.raises((ValueError, TypeError)):
                read(deep)
    for read in (lambda x: remat.nn.Linear(x, 3), lambda x: remat.optim.Adam([remat.nn.Parameter(remat.zeros(1))], lr=x)):
        with pytest.raises((ValueError, TypeError)):
            read(named)
    assert repr(remat.zeros(*[1] * 50_000)).startswith("tensor([0.0], shape=(1, 1, ")


def test_a_budget_that_is_too_small_is_an_error_with_figures():
    device = remat.Device(budget="1MiB")
    with pytest.raises(remat.BudgetError) as e:
        remat.zeros(1 << 20, device=device).tolist()
    line = e.traceback[0].lineno + 1
    e = e.value
    assert isinstance(e, MemoryError) and e.kind == "budget"
    assert e.needed_bytes >= 4 << 20 and e.budget_bytes == 1 << 20
    assert e.smallest_feasible_bytes >= e.least_bytes >= 4 << 20
    assert (e.file, e.line) == (__file__, line)
    assert remat.ones(4, device=device).sum().item() == 4.0  # the device goes on


def test_what_does_not_fit_is_computed_again_with_the_same_bits():
    def run(device):
        x = remat.linspace(0, 1, 1 << 14, device=device)
        parts = [(x * i).sin() for i in range(64)]
        return sum(parts[i].sum().item() for i in (0, 63, 1, 62))

    small, large = remat.Device(budget="1MiB", threads=1), remat.Device(threads=1)
    assert run(small) == run(large)
    stats = small.report().stats
    assert stats["evictions"] > 0 and stats["recomputed_ops"] > 0 and small.peak_bytes <= 1 << 20


def test_a_trace_has_what_ran_again_and_shows_as_a_picture():
    device = remat.Device(budget="1MiB", threads=1)
    with device.trace() as trace:
        x = remat.linspace(0, 1, 1 << 14, device=device)
        parts = [(x * i).sin() for i in range(64)]
        assert parts[0].sum().item() == 0.0
    categories = [e["cat"] for e in trace.events if e["ph"] == "X"]
    assert categories.count("recomputation") == device.report().stats["recomputed_ops"] > 0
    assert trace.budget_bytes == 1 << 20 and max(b for _, b in trace.memory) == device.peak_bytes
    picture = trace._repr_html_()
    texts = ElementTree.fromstring(picture).itertext()
    assert {"compute", "computed again", "budget 1.0 MiB"} <= set(texts)
    with device.trace() as empty:
        pass
    assert empty._repr_html_() == "<p>nothing ran</p>"


def test_a_block_that_fails_says_its_own_error():
    device = remat.Device()
    with pytest.raises(ZeroDivisionError):
        with device.trace():
            1 / 0
    with device.trace() as trace:
        remat.ones(2, device=device).wait()
    assert len(trace._spans()) == 1


def test_a_budget_can_be_changed(device):
    x = remat.ones(1 << 20) * 2
    x.wait()
    with pytest.raises(remat.BudgetError):
        device.set_budget("1KiB")
        remat.ones(1 << 10).tolist()
        device.sync()
    device.set_budget("128MiB")
    assert device.budget == 128 << 20


def test_a_dry_device_tells_the_peak(device):
    dry = device.dry()
    x = remat.ones(1 << 20, device=dry) * 2
    dry.sync()
    assert dry.is_dry and dry.peak_bytes >= 4 << 20 and dry.budget is None
    with pytest.raises(remat.NoValueError):
        x.tolist()
    assert repr(x) == "tensor(..., shape=(1048576,), dtype=float32)"


def test_devices_are_values(device):
    other = remat.Device(threads=1)
    assert device == remat.zeros(1).device and device != other and len({device, other, remat.zeros(1).device}) == 2
    with pytest.raises(remat.DeviceError):
        remat.zeros(1) + remat.zeros(1, device=other)
    assert remat.arange(3).to(other).device == other
    other.close()
    with pytest.raises(remat.ClosedError):
        remat.zeros(1, device=other)


def test_a_report_shows_in_notebooks(device):
    (remat.ones(1 << 16) + 1).wait()
    html = device.report()._repr_html_()
    open_tags = []

    class Check(HTMLParser):
        def handle_starttag(self, tag, attrs):
            open_tags.append(tag)

        def handle_endtag(self, tag):
            assert open_tags.pop() == tag

    Check().feed(html)
    assert not open_tags and "activations" in html and "Budget 64.0 MiB" in html
    assert str(device.report()).startswith("Memory report")


def test_an_error_has_the_line_of_the_call():
    x = remat.zeros(2, 3)
    with pytest.raises(remat.ShapeError) as e:
        x @ x
    assert (e.value.file, e.value.line) == (__file__, e.traceback[0].lineno + 1)
    with pytest.raises(remat.AxisError) as e:
        x.sum(axis=5)  # through a function of the package
    assert (e.value.file, e.value.line) == (__file__, e.traceback[0].lineno + 1)


def test_an_error_that_the_worker_finds_has_the_line_of_the_call():
    x = remat.arange(4)
    line = sys._getframe().f_lineno + 1
    y = x[remat.tensor([0, 9])]
    z = y + 1
    with pytest.raises(IndexError) as e:
        z.tolist()
    assert (e.value.file, e.value.line) == (__file__, line), e.value


def test_threads_share_a_device(device):
    results = []

    def work(i):
        x = remat.full((64, 64), float(i))
        for _ in range(50):
            x = (x @ remat.eye(64)) + 1
        results.append((i, x[0, 0].item()))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert sorted(results) == [(i, i + 50.0) for i in range(4)]


def run(script, **options):
    code = textwrap.dedent(script)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, **options)


def test_threads_that_fill_the_queue_together_end():
    done = run("""
        import threading, remat
        remat.set_default_device(remat.Device(budget="64MiB", threads=2))

        def work(i):
            x = remat.full((4,), float(i))
            for k in range(20_000):
                x = x * 1.0 + k % 7
            assert x.tolist() == [i + sum(k % 7 for k in range(20_000))] * 4

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        print("ended")
    """)
    assert done.stdout.strip() == "ended" and not done.stderr, done.stderr


def test_ctrl_c_ends_a_wait_and_leaves_the_device_usable():
    done = run(
        """
        import os, signal, threading, time, remat
        # a job in the background is begun with the signal ignored
        signal.signal(signal.SIGINT, signal.default_int_handler)
        device = remat.Device(threads=1)
        x = remat.ones(1500, 1500, device=device)
        small = remat.ones(3, device=device)
        small.wait()
        for _ in range(60):
            x = (x @ x) * 1e-4
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        begun = time.perf_counter()
        try:
            x.wait()
            print("not interrupted")
        except KeyboardInterrupt:
            print("interrupted", time.perf_counter() - begun < 2.0)
        print(small.device == device, (small + 1).shape)
        """
    )
    assert done.stdout.split("\n")[:2] == ["interrupted True", "True (3,)"], done


def test_the_interpreter_runs_while_the_library_waits():
    device = remat.Device(threads=1)
    x = remat.ones(1000, 1000, device=device)
    for _ in range(10):
        x = (x @ x) * 1e-3
    ticks = []
    stop = threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(1)
            time.sleep(0.001)

    t = threading.Thread(target=tick)
    t.start()
    before = len(ticks)
    x.wait()
    during = len(ticks) - before
    stop.set()
    t.join()
    assert during >= 5


def test_the_interpreter_ends_with_work_queued():
    done = run(
        """
        import remat
        x = remat.ones(700, 700)
        for _ in range(40):
            x = (x @ x) * 1e-3
        y = x
        """
    )
    assert done.returncode == 0 and done.stderr == "", done


@pytest.mark.parametrize("body, is_told", [
    ("x = remat.ones(1 << 20) * 2", True),
    ("def f():\n    remat.ones(1 << 20, device=remat.Device(budget='1MiB')) * 2\nf()", True),
    ("x = remat.ones(1 << 20) * 2\ntry:\n    x.wait()\nexcept remat.BudgetError:\n    pass", False),
    ("x = remat.ones(1 << 10) * 2", False),
    ("x = remat.ones(1 << 20) * 2\nimport sys; sys.exit(0)", True),
], ids=["open", "dropped", "read", "none", "exit"])
def test_a_process_that_ends_tells_what_failed_and_nobody_read(body, is_told):
    begin = 'import atexit, remat\natexit.register(print, "last")\nremat.set_default_device(remat.Device(budget="1MiB"))\n'
    done = run(begin + body + '\nprint("end")' * ("exit" not in body))
    assert done.stdout.split()[-1] == "last", "what was registered runs"
    assert (done.returncode != 0) == is_told, done
    assert ("that nobody read" in done.stderr and "BudgetError" in done.stderr + "BudgetError" * ("dropped" in done.stderr)) == is_told, done
    assert is_told or done.stderr == "", done


def test_a_process_that_ends_by_an_exception_tells_both():
    done = run("""
        import remat
        remat.set_default_device(remat.Device(budget="1MiB"))
        x = remat.ones(1 << 20) * 2
        raise KeyError("of the program")
    """)
    assert done.returncode != 0 and "of the program" in done.stderr and "that nobody read" in done.stderr, done


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_is_told_what_to_do():
    done = run(
        """
        import os, remat
        x = remat.ones(2)
        if os.fork() == 0:
            try:
                (x + 1).tolist()
            except remat.ClosedError as e:
                print("open one here" in str(e), flush=True)
            os._exit(0)
        os.wait()
        """
    )
    assert done.stdout == "True\n", done


def test_the_notebook_runs():
    path = pathlib.Path(__file__).parent.parent / "examples/budgets.ipynb"
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    names, before = {}, remat.get_default_device()
    try:
        for cell in cells:
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), str(path), "exec"), names)
    finally:
        remat.set_default_device(before)
    assert names["tight"].report().stats["recomputed_ops"] > 0
    for shown in (names["free"].report(), names["tight"].report(), names["trace"]):
        HTMLParser().feed(shown._repr_html_())


def test_a_step_that_failed_for_two_reasons_leaves_the_next_one_alone():
    """One row does not exist, and the budget is too small. `sync` tells the one; the other belongs to the same step."""
    for name in ("cpu", "emulated"):
        device = remat.Device(name, budget=2256)
        before = remat.get_default_device()
        remat.set_default_device(device)
        try:
            remat.manual_seed(1)
            table, layer = nn.Embedding(10, 8), nn.Linear(8, 10)
            weights = [*table.parameters(), *layer.parameters()]
            optimizer = optim.SGD(weights, lr=0.1, momentum=0.9)
            good, bad = remat.tensor([[1, 2, 3], [4, 5, 6]]), remat.tensor([[1, 2, 3], [4, 50, 6]])
            labels = remat.arange(6)

            def step(rows):
                functional.cross_entropy(layer(table(rows)).reshape(-1, 10), labels).backward()
                optimizer.step()
                device.sync()

            with pytest.raises(remat.Error):
                step(bad)
            optimizer.zero_grad()
            device.set_budget("1MiB")
            for _ in range(3):
                old = [p.numpy().tobytes() for p in weights]
                step(good)
                assert all(p.numpy().tobytes() != o for p, o in zip(weights, old)), name
        finally:
            remat.set_default_device(before)


def test_a_gpu_is_opened_by_its_name_and_one_that_is_not_there_is_an_error():
    """The libraries of CUDA are looked for when a device is opened. The error names every place."""
    with pytest.raises(ValueError, match="`x` is no number of a device"):
        remat.Device("cuda:x")
    with pytest.raises(ValueError, match="this build has .*cuda:0"):
        remat.Device("tpu")
    try:
        device = remat.Device("cuda:0", budget="64MiB")
    except remat.DeviceError as e:
        assert re.search("CUDA (driver|compiler|device)", str(e)), e
    else:
        assert device.name == "cuda:0"
