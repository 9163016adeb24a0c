"""Loaders over arrays, Python's datasets, iterations and folders of images."""
import collections
import gc
import threading
import time
import traceback
import weakref

import numpy as np
import pytest

import remat
from remat.data import ConcatDataset, DataLoader, Dataset, ImageFolder, IterableDataset, Subset, TensorDataset, random_split


class Numbers(Dataset):
    """Example `i` is `i`, with a row of it; some places fail."""

    def __init__(self, n, fails=(), wait=0.0):
        self.n, self.fails, self.wait, self.epoch = n, fails, wait, None

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if i in self.fails:
            raise LookupError(f"there is no {i}")
        time.sleep(self.wait * ((i * 7) % 3))
        return {"i": i, "row": np.full(3, i, np.float64)}

    def set_epoch(self, epoch):
        self.epoch = epoch


def data_threads():
    return [t for t in threading.enumerate() if t.name.startswith("remat-data")]


def native_threads():
    names = []
    import pathlib

    for task in pathlib.Path("/proc/self/task").glob("*/comm"):
        try:
            names.append(task.read_text().strip())
        except OSError:
            pass
    return [n for n in names if n.startswith("remat-data")]


def indices(loader):
    return [batch["i"].tolist() for batch in loader]


@pytest.mark.parametrize("shuffle", [False, 7])
def test_the_order_is_that_of_one_thread(shuffle, device):
    loaders = [DataLoader(Numbers(23, wait=0.001), 4, shuffle, workers=w, prefetch=p) for w, p in ((0, 0), (1, 2), (4, 3))]
    first, second = [indices(of) for of in loaders], [indices(of) for of in loaders]
    assert first[0] == first[1] == first[2] and second[0] == second[1] == second[2]
    assert sorted(sum(first[0], [])) == list(range(23)) and (first[0] != second[0]) == bool(shuffle)
    assert loaders[0].dataset.epoch == 1 and len(loaders[0]) == 6
    assert len(indices(DataLoader(Numbers(23), 4, drop_last=True))) == 5


def test_a_seed_is_drawn_from_the_generator(device):
    def order(generator):
        return indices(DataLoader(Numbers(50), 50, shuffle=True, generator=generator))

    assert order(remat.Generator(1)) == order(remat.Generator(1)) != order(remat.Generator(2))
    remat.manual_seed(5)
    a = order(None), order(None)
    remat.manual_seed(5)
    assert (order(None), order(None)) == a and a[0] != a[1]


def test_structures_and_dtypes(device):
    Point = collections.namedtuple("Point", "x y")
    data = [{"p": Point(1, 2.0), "t": remat.tensor([1.0, 2.0]), "l": [True, np.float16(3)], "n": np.int64(4)} for _ in range(3)]
    (batch,) = DataLoader(data, 3)
    assert type(batch["p"]).__name__ == "Point" and batch["p"].x.dtype == remat.int64 and batch["p"].y.dtype == remat.float32
    assert batch["t"].tolist() == [[1.0, 2.0]] * 3 and batch["l"][0].dtype == remat.bool and batch["n"].tolist() == [4, 4, 4]
    assert batch["l"][1].dtype == remat.float16
    rows = DataLoader([np.arange(2), np.arange(3)], 2, collate=lambda e: {"lengths": [len(r) for r in e]})
    assert [b["lengths"] for b in rows][0][1].tolist() == 3


@pytest.mark.parametrize("data, error, text", [
    ([np.zeros(2), np.zeros(3)], ValueError, r"example 1 of the batch has shape \(3,\)"),
    (["a", "b"], TypeError, "str"),
    ([{"a": 1}, {"b": 1}], ValueError, "keys"),
    ([(1, 2), (1,)], ValueError, "structure"),
])
def test_what_cannot_be_put_together_is_said(data, error, text, device):
    for workers in (0, 2):
        with pytest.raises(error, match=text):
            list(DataLoader(data, 2, workers=workers))


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_an_exception_comes_back_as_itself(workers, device):
    loader = DataLoader(Numbers(12, fails={5}), 2, workers=workers)
    seen = []
    with pytest.raises(LookupError, match="there is no 5") as caught:
        for batch in loader:
            seen.append(batch["i"].tolist())
    assert seen == [[0, 1], [2, 3]]
    shown = "".join(traceback.format_exception(caught.value))
    assert "in __getitem__" in shown
    assert "example 5 of the dataset" in shown or "example 5 of the dataset" in str(caught.value)
    loader.dataset.fails = ()
    assert len(indices(loader)) == 6 and not native_threads()


def test_stop_iteration_of_an_example_ends_no_loop(device):
    class Wrong(Numbers):
        def __getitem__(self, i):
            return next(iter(()))

    with pytest.raises(RuntimeError, match="example 0"):
        list(DataLoader(Wrong(4), 2))


def test_leaving_a_loop_ends_its_threads_and_the_next_is_whole(device):
    for _ in range(20):
        loader = DataLoader(Numbers(100, wait=0.0005), 4, workers=3)
        for batch in loader:
            if batch["i"].tolist()[0] >= 8:
                break
        assert not native_threads()
        assert loader.position == (1, 0)
        first = next(iter(loader))
        assert first["i"].tolist() == [0, 1, 2, 3]
    old = iter(loader)
    next(old)
    assert len(indices(loader)) == 25
    with pytest.raises(RuntimeError, match="another loop"):
        next(old)


def test_nothing_is_kept(device):
    data = Numbers(40)
    loader = DataLoader(data, 4, workers=2)
    next(loader.__iter__())
    at = iter(loader)
    next(at)
    gone = weakref.ref(data), weakref.ref(loader)
    del data, loader, at
    gc.collect()
    assert gone[0]() is None and gone[1]() is None and not native_threads()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loop_goes_on_where_another_was(workers, device):
    whole = DataLoader(Numbers(20), 3, shuffle=True, workers=workers)
    all = [indices(whole) for _ in range(3)]
    whole.position = (0, 0)
    it = iter(whole)
    before = [next(it)["i"].tolist() for _ in range(4)]
    state = whole.state_dict()
    assert before == all[0][:4] and state["batch"] == 4
    other = DataLoader(Numbers(20), 3, shuffle=True, workers=workers)
    other.load_state_dict(state)
    assert [indices(other), indices(other)] == [all[0][4:], all[1]]
    with pytest.raises(ValueError):
        other.load_state_dict({**state, "batch": 100})
    with pytest.raises(ValueError, match="batch_size 3, this one has 6"):
        DataLoader(Numbers(20), 6, shuffle=True, workers=workers).load_state_dict(state)
    with pytest.raises(remat.ArgumentError):
        other.load_state_dict({})


def test_what_is_ahead_stays_within_the_budget():
    device = remat.Device(budget="1MiB", threads=1)
    row = np.zeros((16, 1024), np.float32)  # 64 KiB an example

    class Large(Numbers):
        def __getitem__(self, i):
            return row

    loader = DataLoader(Large(32), 2, workers=2, prefetch=8, device=device)
    total = 0.0
    for x in loader:
        time.sleep(0.002)
        total += (x + 1).sum().item()
        del x
    assert total == 32 * row.size and device.peak_bytes <= 1 << 20
    # the whole budget is asked for beside batches that wait
    it = iter(loader)
    next(it)
    time.sleep(0.05)
    assert remat.ones(210 * 1024, device=device).sum().item() == 210 * 1024
    assert sum(1 for _ in it) == 15


class Count(IterableDataset):
    def __init__(self, n, fails=None, row=0):
        self.n, self.fails, self.row = n, fails, row

    def __iter__(self):
        for i in range(self.n):
            if i == self.fails:
                raise LookupError(f"there is no {i}")
            yield (i, np.zeros(self.row, np.float32))

    def __len__(self):
        return self.n


@pytest.mark.parametrize("workers", [0, 1])
def test_what_is_iterated_over(workers, device):
    loader = DataLoader(Count(10), 4, workers=workers)
    assert [[i.tolist() for i, _ in loader] for _ in range(2)] == [[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]] * 2
    assert len(loader) == 3 and loader.position == (2, 0)
    assert len(list(DataLoader(Count(10), 4, drop_last=True, workers=workers))) == 2
    assert [b.tolist() for b in DataLoader((i for i in range(3)), 2, workers=workers)] == [[0, 1], [2]]
    for batch in loader:
        break
    assert not data_threads() and loader.position == (3, 0)
    it = iter(loader)
    next(it)
    other = DataLoader(Count(10), 4, workers=workers)
    other.load_state_dict(loader.state_dict())
    assert [i.tolist() for i, _ in other] == [[4, 5, 6, 7], [8, 9]]
    it.close()
    wrong = DataLoader(Count(10, fails=6), 4, workers=workers)
    with pytest.raises(LookupError, match="no 6") as caught:
        list(wrong)
    shown = "".join(traceback.format_exception(caught.value))
    assert "in __iter__" in shown and ("batch 1 of the iteration" in shown or "batch 1" in str(caught.value))
    assert not data_threads()


def test_a_dropped_loader_of_an_iteration_ends_its_thread(device):
    loader = DataLoader(Count(1000), 4)
    it = iter(loader)
    next(it)
    assert len(data_threads()) == 1
    del it, loader
    gc.collect()
    assert not data_threads()


@pytest.mark.parametrize("kind", ["map", "iteration"])
def test_what_is_prefetched_can_be_waited_for(kind):
    class Slow:
        def __getitem__(self, i):
            time.sleep(0.005)
            return np.zeros(10_000, dtype=np.float32)

        def __len__(self):
            return 5

    def examples():
        yield from (Slow()[i] for i in range(5))

    class Iterated:
        def __iter__(self):
            return examples()

    device = remat.Device(budget="10MB", threads=1)
    loader = DataLoader(Slow() if kind == "map" else Iterated(), 1, prefetch=3, device=device)
    loader.wait_for_prefetch()
    for _ in range(2):
        loader.next_batch()
        loader.wait_for_prefetch()
        assert 3 * 40_000 <= device.report().stats["in_use_bytes"] <= 3 * 41_000 + 40_960


def test_what_an_iteration_reads_ahead_gives_way():
    device = remat.Device(budget="1MiB", threads=1)
    loader = DataLoader(Count(40, row=16 * 1024), 1, prefetch=8, device=device)
    it = iter(loader)
    next(it)
    time.sleep(0.05)
    assert device.in_use_bytes <= (1 << 20) // 2
    assert remat.ones(200 * 1024, device=device).sum().item() == 200 * 1024
    # one at a time: together they do not fit
    assert sum(1 for _ in it) == 39 and device.peak_bytes <= 1 << 20


def test_options_out_of_their_domain(device):
    for options in ({"batch_size": 0}, {"workers": -1}, {"prefetch": 0}):
        with pytest.raises((ValueError, OverflowError)):
            DataLoader(Count(3), **options)
        with pytest.raises((ValueError, OverflowError)):
            DataLoader(Numbers(3), **options)
    with pytest.raises(ValueError):
        DataLoader(Count(3), workers=2)
    with pytest.raises(TypeError):
        DataLoader(Count(3), shuffle=True)
    with pytest.raises(TypeError):
        DataLoader(3)
    assert list(DataLoader([], 2)) == []


def test_subsets_and_splits(device):
    parts = random_split(Numbers(10), [7, 3], remat.Generator(1))
    taken = sorted(p[i]["i"] for p in parts for i in range(len(p)))
    assert taken == list(range(10)) and [len(p) for p in parts] == [7, 3]
    with pytest.raises(ValueError):
        random_split(Numbers(10), [7, 4])
    both = ConcatDataset([Subset(Numbers(10), [9, 8]), Numbers(2)])
    assert [both[i]["i"] for i in range(4)] == [9, 8, 0, 1] and both[-1]["i"] == 1
    assert indices(DataLoader(both, 4)) == [[9, 8, 0, 1]]
    with pytest.raises(IndexError):
        both[4]


def test_arrays_do_not_stop_on_the_device():
    device = remat.Device(budget="64KiB")
    before = remat.get_default_device()
    remat.set_default_device(device)
    try:
        data = TensorDataset(np.zeros((1000, 1000), np.float32), np.arange(1000))
        assert len(data) == 1000 and device.peak_bytes == 0
        with pytest.raises(remat.ShapeError):
            TensorDataset(np.zeros(2), np.zeros(3))
    finally:
        remat.set_default_device(before)


def test_folders_of_images(tmp_path, device):
    Image = pytest.importorskip("PIL.Image")
    for name, colour in (("blue", (0, 0, 255)), ("red", (255, 0, 0))):
        (tmp_path / name / "deep").mkdir(parents=True)
        Image.new("RGB", (6, 4), colour).save(tmp_path / name / "a.png")
        Image.new("RGB", (6, 4), colour).save(tmp_path / name / "deep" / "b.jpg", quality=100)
        (tmp_path / name / "notes.txt").write_text("no image")
    data = ImageFolder(tmp_path)
    assert data.classes == ["blue", "red"] and len(data) == 4 and data.class_to_idx["red"] == 1
    image, label = data[0]
    assert image.shape == (3, 4, 6) and image.dtype == np.uint8 and label == 0 and (image[2] == 255).all()
    x, y = next(iter(DataLoader(ImageFolder(tmp_path, size=(8, 8)), 4)))
    assert x.shape == (4, 3, 8, 8) and x.dtype == remat.uint8 and y.tolist() == [0, 0, 1, 1]
    grey = ImageFolder(tmp_path, transform=lambda image: np.asarray(image.convert("L"), np.float32) / 255)
    assert next(iter(DataLoader(grey, 2)))[0].shape == (2, 4, 6)
    (tmp_path / "red" / "c.png").write_bytes(b"no image")
    with pytest.raises(OSError, match="c.png"):
        list(DataLoader(ImageFolder(tmp_path), 1))
    with pytest.raises(FileNotFoundError):
        ImageFolder(tmp_path / "red" / "deep")


def test_without_pillow_the_error_says_what_to_do(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match="pip install pillow"):
        ImageFolder(tmp_path)


@pytest.mark.parametrize("dataset", [Numbers, Count])
def test_a_wait_for_a_batch_ends_with_a_signal(dataset, device):
    import signal

    late = threading.Event()

    class Late(dataset):
        def __iter__(self):
            late.wait(30)
            yield 1

        def __getitem__(self, i):
            late.wait(30)
            return 1

    def pressed(*_):
        late.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, pressed)
    if dataset is Count:
        del Late.__getitem__
    loader = DataLoader(Late(4), 2)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    begun = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            for _ in loader:
                pass
    finally:
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - begun < 10 and not native_threads() and not data_threads()


@pytest.mark.parametrize("kind", ["map", "iteration"])
def test_a_program_ends_in_the_middle_of_a_loop(kind):
    import subprocess
    import sys

    program = f"""
import time, remat
class Slow:
    def __iter__(self):
        for i in range(1000):
            time.sleep(0.01); yield i
class SlowAt:
    def __len__(self): return 1000
    def __getitem__(self, i): time.sleep(0.01); return i
loader = remat.data.DataLoader({"SlowAt()" if kind == "map" else "Slow()"}, 4)
it = iter(loader)
print(next(it).tolist())
class Held: pass
held = Held(); held.all = held, loader, it  # lives until the interpreter ends
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[0, 1, 2, 3]\n", "")


def test_bools_of_numpy_are_bools_and_seeds_are_integers(device):
    rows = TensorDataset(np.arange(50))
    assert [v for x, in DataLoader(rows, 10, shuffle=np.bool_(False)) for v in x.tolist()] == list(range(50))
    orders = []
    for seed in (1, 2):
        remat.manual_seed(seed)
        orders.append([next(iter(DataLoader(rows, 50, shuffle=shuffle)))[0].tolist() for shuffle in (np.bool_(True), np.int64(7), 7)])
    assert orders[0][0] != orders[1][0], "the seed is drawn"
    assert orders[0][1] == orders[0][2] == orders[1][1]
    for wrong in (1.5, "no", None):
        with pytest.raises(TypeError, match="shuffle is True, False or an integer"):
            DataLoader(rows, shuffle=wrong)
    with pytest.raises(ValueError, match="-1"):
        DataLoader(rows, shuffle=-1)


def test_a_dataset_with_a_state_of_its_own_goes_on_where_it_was(device):
    class Noise(IterableDataset):
        def __init__(self):
            self.at, self.rng = 0, np.random.default_rng(0)

        def set_epoch(self, epoch):
            self.at, self.rng = 0, np.random.default_rng((7, epoch))

        def __iter__(self):
            while self.at < 12:
                self.at += 1
                yield float(self.rng.normal())

        def state_dict(self):
            return {"at": self.at, "rng": dict(self.rng.bit_generator.state)}

        def load_state_dict(self, state):
            self.at, self.rng.bit_generator.state = state["at"], state["rng"]

    loader = DataLoader(Noise(), 3, workers=0)
    whole = [[x.tolist() for x in loader] for _ in range(2)]
    first = DataLoader(Noise(), 3, workers=0)
    got = [x.tolist() for x in first]
    it = iter(first)
    got += [next(it).tolist(), next(it).tolist()]
    state = first.state_dict()
    second = DataLoader(Noise(), 3, workers=0)
    second.load_state_dict(state)
    got += [x.tolist() for x in second]
    assert got == sum(whole, [])


def test_batches_stay_on_the_device_of_the_data():
    own = remat.Device(budget="16MiB", threads=1)
    x = remat.arange(4, device=own)
    assert next(iter(DataLoader(TensorDataset(x), 2)))[0].device == own
    assert TensorDataset(x)[0][0].device == own and remat.data.default_collate([x, x]).device == own
    other = remat.Device(budget="16MiB", threads=1)
    assert next(iter(DataLoader(TensorDataset(x), 2, device=other)))[0].device == other
    with pytest.raises(remat.DeviceError, match="two devices"):
        TensorDataset(x, remat.arange(4, device=other))

    class Own(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            return {"x": x[i]}

    class Stream(IterableDataset):
        def __iter__(self):
            yield from x

    for data in (Own(), Stream()):
        for workers in (0, 1):
            with pytest.raises(remat.DeviceError, match="given no device"):
                list(DataLoader(data, 2, workers=workers))
            assert len(list(DataLoader(data, 2, workers=workers, device=other))) == 2
