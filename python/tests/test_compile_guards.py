"""What was traced is what is called: each kind of thing that a compiled function reads is a part of its form, or an error names it."""
import collections
import contextlib
import dataclasses
import enum
import gc
import importlib
import itertools
import operator
import os
import random
import sys
import threading
import time
import types
import warnings
import weakref

import pytest

import remat
from remat import nn, optim
from remat.nn import functional as F

np = pytest.importorskip("numpy")

Pair = collections.namedtuple("Pair", "a b")
SCALE = 2.0


@dataclasses.dataclass
class Batch:
    x: remat.Tensor
    name: str
    rest: dict


@dataclasses.dataclass
class Settings:
    depth: int


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


# structure


def test_structures_go_in_and_out_as_what_they_are(device):
    f = remat.compile(lambda p: Pair(p.a + 1, [p.b * 2, None, "text"]))
    y = f(Pair(remat.ones(2), remat.ones(2)))
    assert type(y) is Pair and y.a.tolist() == [2.0, 2.0] and y.b[1:] == [None, "text"] and y.b[0].tolist() == [2.0, 2.0]
    ordered = remat.compile(lambda d: collections.OrderedDict((k, v + 1) for k, v in reversed(d.items())))
    y = ordered(collections.OrderedDict(a=remat.zeros(1), b=remat.ones(1)))
    assert type(y) is collections.OrderedDict and list(y) == ["b", "a"] and y["b"].item() == 2.0
    counted = remat.compile(lambda d: d)(collections.defaultdict(list, k=remat.ones(1) + 1))
    assert type(counted) is collections.defaultdict and counted.default_factory is list
    batch = remat.compile(lambda b: Batch(b.x * 2, b.name, {**b.rest, "n": b.x.shape[0]}))
    y = batch(Batch(remat.ones(3), "first", {"w": remat.ones(1)}))
    assert type(y) is Batch and y.name == "first" and y.x.tolist() == [2.0] * 3 and y.rest["n"] == 3
    assert batch(Batch(remat.ones(3), "second", {"w": remat.ones(1)})).name == "second" and batch.traces == 2
    assert remat.compile(lambda x: ())(remat.ones(1)) == () and remat.compile(lambda x: None)(remat.ones(1)) is None


def test_results_are_those_of_the_shape_dtype_and_mode_that_is_called(device):
    rows = remat.compile(lambda x: [row * 1 for row in x.unbind(0)] + [x.shape[0], str(x.dtype)])
    two, four = remat.arange(6).reshape(2, 3), remat.arange(12).reshape(4, 3)
    for x in (four, two, four, two.double(), two, two.double()):
        y, want = rows(x), [row * 1 for row in x.unbind(0)] + [x.shape[0], str(x.dtype)]
        assert len(y) == len(want) and y[-2:] == want[-2:]
        assert [t.tolist() for t in y[:-2]] == [t.tolist() for t in want[:-2]]
    assert rows.traces == 3
    drop = nn.Dropout(0.5)
    both = remat.compile(lambda x: {"kept": drop(x)} if drop.training else {"all": x * 2, "kept": drop(x)})
    x = remat.ones(4)
    for mode in (True, False, True, False):
        drop.train(mode)
        assert sorted(both(x)) == (["kept"] if mode else ["all", "kept"])


def test_a_tensor_in_two_places_is_one(device):
    def f(x, y):
        x += 1
        return x, y, x

    a, b = remat.ones(2), remat.ones(2)
    x, y, z = remat.compile(f)(a, a)
    assert x is a and y is a and z is a and a.tolist() == [2.0, 2.0]
    x, y, _ = remat.compile(f)(a, b)
    assert a.tolist() == [3.0, 3.0] and b.tolist() == [1.0, 1.0] and y is b
    made = remat.compile(lambda x: (lambda t: [t, t])(x * 2))(b)
    assert made[0] is made[1]


def test_what_no_call_would_make_anew_is_no_result(device):
    class Thing:
        pass

    with pytest.raises(TypeError, match="returns a Thing"):
        remat.compile(lambda x: Thing())(remat.ones(1))
    with pytest.raises(TypeError, match="returns a generator"):
        remat.compile(lambda x: (t for t in [x]))(remat.ones(1))
    kept = Thing()
    assert remat.compile(lambda x: (kept, x + 1))(remat.ones(1))[0] is kept
    f = remat.compile(lambda x: ({1, 2}, np.arange(2)))
    first, second = f(remat.ones(1)), f(remat.ones(1))
    assert first[0] == {1, 2} and first[0] is not second[0] and first[1] is not second[1]


# constants


@pytest.mark.parametrize(
    "values",
    [(1, 1.0, True), (0.0, -0.0), (0, False, None), ("1", b"1", 1), ((1, 2), [1, 2]), (Colour.RED, Colour.BLUE, 1), (np.float32(1), np.float64(1), 1.0)],
    ids=str,
)
def test_constants_are_told_by_type_and_bits(device, values):
    f = remat.compile(lambda x, c: (x + 1, repr(c), type(c)))
    for _ in range(2):
        for c in values:
            y = f(remat.ones(1), c)
            assert y[1:] == (repr(c), type(c))
    assert f.traces == len(values)


def test_a_nan_is_one_constant(device):
    f = remat.compile(lambda x, fill: x.masked_fill(x > 0, fill))
    for _ in range(5):
        f(remat.ones(2), float("nan"))
    assert f.traces == 1


def test_keys_of_dictionaries_are_told_by_type_and_bits(device):
    f = remat.compile(lambda d: [type(k) for k in d])
    x = remat.ones(1)
    assert [f({k: x}) for k in (1, True, 1.0)] == [[int], [bool], [float]]


# what is read from outside


def eagerly(f, compiled, *args):
    got, want = compiled(*args), f(*args)
    assert got.tolist() == want.tolist() and got.dtype == want.dtype


def test_attributes_lists_and_replaced_layers_are_seen(device):
    class Net(nn.Module):
        width = 1.0

        def __init__(self):
            super().__init__()
            self.body, self.scale, self.terms = nn.Linear(2, 2), 1.0, [1.0, 2.0]
            self.options = {"shift": {"by": 0.0}}
            self.layers = nn.ModuleList([nn.Linear(2, 2)])

        def forward(self, x):
            x = self.body(x) * self.scale + sum(self.terms) + self.options["shift"]["by"]
            for layer in self.layers:
                x = layer(x)
            return x * self.width

    net, x = Net(), remat.ones(1, 2)
    f = remat.compile(net)
    eagerly(net, f, x)
    changes = [
        lambda: setattr(net, "scale", 2.0), lambda: setattr(net, "scale", 2), lambda: net.terms.append(3.0), lambda: net.terms.pop(0),
        lambda: net.options["shift"].update(by=1.0), lambda: setattr(net, "body", nn.Linear(2, 2)), lambda: setattr(Net, "width", 3.0),
        lambda: net.layers.append(nn.Linear(2, 2)), lambda: setattr(net, "width", 4.0), lambda: setattr(net, "forward", lambda x: x * 7),
    ]
    for i, change in enumerate(changes):
        change()
        eagerly(net, f, x)
        assert f.traces == i + 2
    traces = f.traces
    net.epoch = 3  # which nothing reads
    net.scale = 2
    eagerly(net, f, x)
    assert f.traces == traces


def test_globals_closures_defaults_and_functions_are_seen(device):
    global SCALE
    shift, inner = 1.0, lambda x: x * 2
    table = {"f": lambda x: x}

    def f(x, *, by=[1.0]):
        return table["f"](inner(x) * SCALE + shift + by[0])

    compiled, x = remat.compile(f), remat.ones(2)
    eagerly(f, compiled, x)
    SCALE = 3.0
    eagerly(f, compiled, x)
    shift = 5.0
    eagerly(f, compiled, x)
    inner = lambda x: x * 10  # noqa: E731
    eagerly(f, compiled, x)
    table["f"] = lambda x: -x
    eagerly(f, compiled, x)
    f.__kwdefaults__["by"][0] = 4.0
    eagerly(f, compiled, x)
    assert compiled.traces == 6
    SCALE = 2.0


def test_arrays_and_attributes_by_text_are_seen(device):
    class Config:
        pass

    config = Config()
    config.n, mean = 1, np.array([1.0, 2.0], dtype="float32")
    f = lambda x: (x - remat.tensor(mean)) * getattr(config, "".join(["n"]))  # noqa: E731
    compiled, x = remat.compile(f), remat.ones(2)
    eagerly(f, compiled, x)
    mean[0] = 9.0
    eagerly(f, compiled, x)
    config.n = 2
    eagerly(f, compiled, x)
    settings = Settings(3)
    g = lambda x: x * sum(dataclasses.asdict(settings).values())  # noqa: E731
    compiled = remat.compile(g)
    eagerly(g, compiled, x)
    settings.depth = 5
    eagerly(g, compiled, x)
    with pytest.raises(TypeError, match="an array is no argument"):
        compiled(mean)
    large = np.zeros(1 << 20)
    with pytest.raises(ValueError, match="the array `large`"):
        remat.compile(lambda x: x + float(large[0]))(x)


def test_tensors_from_outside_are_those_of_now(device):
    y, kept = remat.ones(2), [remat.ones(2)]
    f = lambda x: x + y + kept[0]  # noqa: E731
    compiled, x = remat.compile(f), remat.zeros(2)
    eagerly(f, compiled, x)
    y[0] = 5.0
    eagerly(f, compiled, x)
    y += 1
    eagerly(f, compiled, x)
    kept[0] = remat.zeros(2)
    eagerly(f, compiled, x)
    assert compiled.traces == 4
    eagerly(f, compiled, x)
    assert compiled.traces == 4


def test_a_version_taken_out_of_a_parameter_stays_what_it_was(device):
    p = nn.Parameter(remat.ones(2))
    first = p.detach()
    f = remat.compile(lambda x: x + p - first)
    assert f(remat.zeros(2)).tolist() == [0.0, 0.0]
    p.set_(remat.full((2,), 5.0))
    assert f(remat.zeros(2)).tolist() == [4.0, 4.0] and f.traces == 1


def test_parameters_are_those_of_now(device):
    net = nn.Linear(2, 2)
    f, x = remat.compile(lambda x: net(x)), remat.ones(1, 2)
    f(x)
    net.to("float64").to("float32")
    net.weight.set_(remat.zeros(2, 2)), net.bias.set_(remat.zeros(2))
    assert f(x).tolist() == [[0.0, 0.0]]
    net.to("float64")
    assert f(x.double()).dtype == remat.float64


def test_hooks_that_come_and_go_are_seen(device):
    p, layer = nn.Parameter(remat.ones(2)), nn.ReLU()
    optimizer = optim.SGD([p], lr=1.0)

    def step(x):
        (layer(p) * x).sum().backward()
        optimizer.step()

    f, x, seen = remat.compile(step), remat.ones(2), []
    f(x)
    hook = layer.register_forward_hook(lambda module, x, y: y * 3)
    f(x + 1)
    assert p.tolist() == [0.0 - 0.0, 0.0] and f.traces == 2
    hook.remove()
    p.set_(remat.ones(2))
    p.register_hook(lambda g: seen.append(1))
    with pytest.raises(ValueError, match="compiled function changes `seen`"):
        f(x)


def test_what_the_function_changes_outside_is_an_error_that_names_it(device):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.count, self.log = 0, []

    net, x, total, stats = Net(), remat.ones(2), 0, {}

    def counts(x):
        net.count += 1
        return x * 2

    def logs(x):
        net.log.append(x.shape)
        return x * 2

    def adds(x):
        nonlocal total
        total += 1
        return x * 2

    def notes(x):
        stats[len(stats)] = x.shape
        return x * 2

    for f, name in [(counts, "net.count"), (logs, "net.log"), (adds, "total"), (notes, "stats")]:
        with pytest.raises(ValueError, match=f"changes `{name}`"):
            remat.compile(f)(x)
    # what it leaves as it is is no change
    net.shape = None

    def same(x):
        net.shape = x.shape
        return x * 2

    f = remat.compile(same)
    f(x), f(remat.ones(3))
    assert net.shape == (3,)
    f(x)
    assert net.shape == (2,)


def test_what_the_function_changes_of_its_arguments_is_an_error_or_happens(device):
    def puts(x, out):
        out["y"] = x * 2

    with pytest.raises(ValueError, match="a list, a dictionary or an object that it was given"):
        remat.compile(puts)(remat.ones(1), {})
    with pytest.raises(ValueError, match="a list, a dictionary or an object that it was given"):
        remat.compile(lambda x, all: all.append(1))(remat.ones(1), [remat.ones(1)])
    with pytest.raises(ValueError, match="requires_grad"):
        remat.compile(lambda x: x.requires_grad_().sum())(remat.ones(1))


def test_clocks_chance_and_iterators_are_errors(device):
    x, count, rng = remat.ones(2), itertools.count(), np.random.default_rng(1)
    for f in (lambda x: x * random.random(), lambda x: x + float(time.perf_counter_ns() % 1_000_003), lambda x: x * float(rng.random())):
        with pytest.raises(ValueError, match="something that changes from call to call"):
            remat.compile(f)(x)
    with pytest.raises(ValueError, match="`count`, a count"):
        remat.compile(lambda x: x * next(count))(x)


# attributes that are not there, and those that no code names


class Some:
    """An object with some attributes."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def method(self, x):
        try:
            return x * self.k
        except AttributeError:
            return x

    def chain(self, x):
        for i in range(1, 5):
            w = getattr(self, f"w{i}", None)
            if w is None:
                break
            x = x * w
        return x


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        x = self.layer(x)
        if hasattr(self, "mask"):
            x = x * self.mask
        return x


class Kept(Some):
    """An object that gives attributes that it does not have."""

    def __getattr__(self, name):
        return self.__dict__["kept"][name]


class Slotted:
    __slots__ = ("k",)


class Blotted:
    __slots__ = ("k",)


def puts(name, value):
    return lambda q: setattr(q, name, value)


def of_class(name, value):
    return lambda q: setattr(type(q), name, value)


def suppressed(q, x):
    with contextlib.suppress(AttributeError):
        return x * q.k
    return x


def matched(q, x):
    match q:
        case Some(zest=zest):
            return x * zest
    return x


OWN = lambda **attributes: type("Own", (), attributes)()  # noqa: E731
SPACE = types.SimpleNamespace
# by what the function reads: the object, what is read of it, and what is done between two calls
READ = {
    "getattr with a default": (Some, lambda q, x: x * getattr(q, "k", 1.0), puts("k", 3.0)),
    "getattr with a default, found in the class": (OWN, lambda q, x: x * getattr(q, "k", 1.0), of_class("k", 3.0)),
    "hasattr": (Some, lambda q, x: x * (2.0 if hasattr(q, "k") else 1.0), puts("k", 3.0)),
    "hasattr of a module": (Masked, lambda q, x: q(x.reshape(1, 2)).detach(), lambda q: setattr(q, "mask", remat.zeros(2))),
    "hasattr of a module, then a parameter": (
        Masked, lambda q, x: q(x.reshape(1, 2)).detach(), lambda q: setattr(q, "mask", nn.Parameter(remat.zeros(2))),
    ),
    "AttributeError": (Some, lambda q, x: q.method(x), puts("k", 3.0)),
    "AttributeError, suppressed": (Some, suppressed, puts("k", 3.0)),
    "a computed name": (lambda: Some(w1=2.0), lambda q, x: q.chain(x), puts("w2", 5.0)),
    "a computed name of the class": (lambda: OWN(k=2.0), lambda q, x: x * getattr(q, "k ".strip()), of_class("k", 3.0)),
    "a computed name of a module of Python": (
        lambda: SPACE(m=types.ModuleType("remat_some")), lambda q, x: x * getattr(q.m, "k ".strip(), 1.0), lambda q: puts("k", 3.0)(q.m),
    ),
    "a name of a module of Python": (
        lambda: SPACE(m=types.ModuleType("remat_some")), lambda q, x: x * getattr(q.m, "k", 1.0), lambda q: puts("k", 3.0)(q.m),
    ),
    "an attribute of a function": (lambda: lambda x: x, lambda q, x: q(x) * getattr(q, "k", 1.0), puts("k", 3.0)),
    "getattr under another name": (
        lambda: Some(f=getattr, of=Some(k=2.0), name="k"), lambda q, x: x * q.f(q.of, q.name), lambda q: puts("k", 3.0)(q.of),
    ),
    "vars": (lambda: Some(a=1.0), lambda q, x: x * sum(vars(q).values()), puts("b", 3.0)),
    "vars of what had none": (Some, lambda q, x: x * sum(vars(q).values(), 1.0), puts("b", 3.0)),
    "__dict__": (lambda: Some(a=1.0), lambda q, x: x * len(q.__dict__), puts("b", 3.0)),
    "dir": (lambda: Some(a=1.0), lambda q, x: x * len([n for n in dir(q) if n[0] != "_"]), puts("b", 3.0)),
    "dir of the class": (OWN, lambda q, x: x * (1 + sum(n[0] != "_" for n in dir(q))), of_class("k", 3.0)),
    "another dictionary": (lambda: Some(k=2.0), lambda q, x: x * q.k, puts("__dict__", {"k": 3.0})),
    "a class": (lambda: type("Own", (Some,), {"k": 2.0})(), lambda q, x: x * q.k, puts("__class__", type("Other", (Some,), {"k": 3.0}))),
    "isinstance": (Some, lambda q, x: x * (1.0 if isinstance(q, Kept) else 2.0), puts("__class__", Kept)),
    "a class with slots": (Slotted, lambda q, x: x * (1.0 if isinstance(q, Slotted) else 2.0), puts("__class__", Blotted)),
    "bases": (
        lambda: type("Own", (type("First", (), {"k": 2.0}),), {})(), lambda q, x: x * q.k,
        lambda q: setattr(type(q), "__bases__", (type("Second", (), {"k": 3.0}),)),
    ),
    "__getattr__": (lambda: Kept(kept={"k": 2.0}), lambda q, x: x * q.k, lambda q: q.kept.update(k=3.0)),
    "__getattr__, then an attribute": (lambda: Kept(kept={"k": 2.0}), lambda q, x: x * q.k, puts("k", 3.0)),
    "attrgetter": (lambda: Some(of=Some(k=2.0), get=operator.attrgetter("of.k")), lambda q, x: x * q.get(q), lambda q: puts("k", 3.0)(q.of)),
    "methodcaller": (
        lambda: Some(call=operator.methodcaller("zest", 2.0), zest=lambda k: k), lambda q, x: x * q.call(q), puts("zest", lambda k: k + 1),
    ),
    "a format": (lambda: Some(zeal=2.0), lambda q, x: x * float("{0.zeal}".format(q)), puts("zeal", 3.0)),
    "a format from outside": (lambda: Some(zeal=2.0, text="{0.zeal}"), lambda q, x: x * float(q.text.format(q)), puts("zeal", 3.0)),
    "the name of a class": (OWN, lambda q, x: x * len(type(q).__name__), of_class("__name__", "Longer")),
    "attributes in a pattern": (Some, matched, puts("zest", 3.0)),
    "a text of a namespace": (lambda: SPACE(a=1.0), lambda q, x: x * len(repr(q)), puts("a", 10.5)),
    "an array of objects": (lambda: np.array([Some(k=2.0)], dtype=object), lambda q, x: x * q[0].k, lambda q: puts("k", 3.0)(q[0])),
    "a table of objects": (lambda: np.array([[Some(k=2.0)] * 2] * 2, dtype=object), lambda q, x: x * q[1, 1].k, lambda q: puts("k", 3.0)(q[0, 0])),
    "a view of bytes": (lambda: memoryview(bytearray(b"\2")), lambda q, x: x * q[0], lambda q: q.__setitem__(0, 3)),
    "a mapping that is no dictionary": (lambda: types.MappingProxyType(TABLE), lambda q, x: x * q["k"], lambda q: TABLE.update(k=TABLE["k"] + 1)),
}
TABLE = {"k": 2.0}


@pytest.mark.parametrize("kind", READ)
def test_a_value_that_is_another_is_read_anew(kind, device):
    make, read, change = READ[kind]
    q, x = make(), remat.ones(2)
    compiled = remat.compile(lambda x: read(q, x))
    before = compiled(x).tolist()
    assert before == read(q, x).tolist() and compiled(x).tolist() == before and compiled.traces == 1
    change(q)
    after = compiled(x).tolist()
    assert after == read(q, x).tolist() != before and compiled(x).tolist() == after and compiled.traces == 2


@pytest.mark.parametrize("kind", [*(k for k, (make, _, _) in READ.items() if make is Some), "vars", "__dict__", "dir", "a computed name", "a class"])
def test_a_value_of_an_argument_that_is_another_is_read_anew(kind, device):
    make, read, change = READ[kind]
    q, x = make(), remat.ones(2)
    compiled = remat.compile(lambda x, q: read(q, x))
    assert compiled(x, q).tolist() == read(q, x).tolist()
    change(q)
    assert compiled(x, q).tolist() == read(q, x).tolist() and compiled.traces == 2
    alive = weakref.ref(q)
    del q
    gc.collect()
    assert alive() is None


def test_a_bound_method_sees_what_its_object_gets(device):
    q, x = Some(), remat.ones(1)
    method, chain = remat.compile(q.method), remat.compile(q.chain)
    assert (method(x).item(), chain(x).item()) == (1.0, 1.0)
    q.k, q.w1 = 3.0, 2.0
    assert (method(x).item(), chain(x).item()) == (3.0, 2.0)


def test_modules_that_are_imported_as_it_runs_are_seen(device, monkeypatch):
    package, inner = types.ModuleType("remat_package"), types.ModuleType("remat_package.inner")
    package.inner, package.__path__, inner.K = inner, [], 1.0
    monkeypatch.setitem(sys.modules, "remat_package", package)
    monkeypatch.setitem(sys.modules, "remat_package.inner", inner)

    def whole(x):
        import remat_package.inner
        return x * remat_package.inner.K

    def part(x):
        from remat_package.inner import K
        return x * K

    def renamed(x):
        import remat_package.inner as short
        return x * short.K

    def by_name(x):
        return x * importlib.import_module("".join(["remat_package", ".inner"])).K

    def optional(x):
        try:
            from remat_package.inner import more
        except ImportError:
            more = 1.0
        from remat_package.inner import K
        return x * K * more

    x, functions = remat.ones(1), (whole, part, renamed, by_name, optional)
    compiled = [remat.compile(f) for f in functions]
    assert [f(x).item() for f in compiled] == [1.0] * 5
    inner.K = 4.0
    assert [f(x).item() for f in compiled] == [4.0] * 5
    inner.more = 2.0
    assert [f(x).item() for f in compiled] == [4.0, 4.0, 4.0, 4.0, 8.0]
    other = types.ModuleType("remat_package.inner")
    other.K = 5.0
    package.inner = sys.modules["remat_package.inner"] = other
    assert [f(x).item() for f in compiled] == [5.0] * 5 and [f.traces for f in compiled] == [3, 3, 3, 3, 4]


def test_globals_by_text_and_the_environment_are_seen(device, monkeypatch):
    of = {"name": "K", "os": os}
    exec("def get(x): return x * globals().get('K', 1.0)\ndef take(x): return x * globals()[name[:1]]\n", of)
    monkeypatch.setenv("REMAT_SOME", "1")
    functions = (of["get"], lambda x: x * float(os.environ["REMAT_SOME"]), lambda x: x * float(os.getenv("REMAT_" + "SOME")))
    compiled, x = [remat.compile(f) for f in functions], remat.ones(1)
    assert [f(x).item() for f in compiled] == [1.0] * 3
    of["K"] = 3.0
    monkeypatch.setenv("REMAT_SOME", "3")
    assert [f(x).item() for f in compiled] == [3.0] * 3
    of["unused"] = 1
    assert [f(x).item() for f in compiled] == [3.0] * 3 and [f.traces for f in compiled] == [2] * 3
    take = remat.compile(of["take"])
    assert take(x).item() == 3.0
    of["K"] = 4.0
    assert take(x).item() == 4.0


def test_what_no_call_could_compare_is_an_error_that_names_it(device):
    records = np.zeros(1, dtype=[("k", object)])
    with pytest.raises(ValueError, match="the array `records` from outside, whose records have objects"):
        remat.compile(lambda x: x * (records["k"][0] or 1.0))(remat.ones(1))


def test_what_is_only_near_a_computed_name_is_no_error(device):
    module = types.ModuleType("remat_near")
    module.K, module.near, module.imported = 2.0, Some(rows=iter([1.0]), more=[itertools.count()]), sys.modules[__name__]
    f = remat.compile(lambda x: x * getattr(module, "K ".strip()))
    assert f(remat.ones(1)).item() == 2.0
    module.K = 3.0
    assert f(remat.ones(1)).item() == 3.0
    rows = module.near.more
    with pytest.raises(ValueError, match=r"`rows\[0\]`, a count"):
        remat.compile(lambda x: x * getattr(module, "K ".strip()) * next(rows[0]))(remat.ones(1))


def test_attributes_that_nothing_reads_make_no_new_form(device):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x):
            # written anew by each pass, and read by none
            self.last_shape = x.shape
            setattr(self, "seen", True)
            if hasattr(self, "mask") or getattr(self.layer, "mask", None) is not None:
                x = x * 0
            try:
                return self.layer(x) * self.factor
            except AttributeError:
                return self.layer(x)

    net, x = Net(), remat.ones(1, 2)
    f = remat.compile(net)
    for step in range(4):
        eagerly(net, f, x)
        net.step = net.layer.step = step
        setattr(net, f"step{step}", step)
        Net.steps = step
    assert f.traces == 1


# tensors that are assigned to


def test_assignments_to_arguments_reach_the_caller(device):
    def f(x, parts):
        x += 1
        x[0] = 7.0
        parts["w"][1:] *= 2
        return x * 2

    for g in (f, remat.compile(f)):
        x, w = remat.ones(3), remat.ones(3)
        for _ in range(2):
            y = g(x, {"w": w})
        assert y.tolist() == [14.0, 6.0, 6.0] and x.tolist() == [7.0, 3.0, 3.0] and w.tolist() == [1.0, 4.0, 4.0]
    y = remat.ones(2)
    with pytest.raises(ValueError, match="assigns to a tensor from outside"):
        remat.compile(lambda x: y.__iadd__(x))(remat.ones(2))
    assert y.tolist() == [1.0, 1.0]

    def both(x):
        x += 1
        return x + y

    with pytest.raises(ValueError, match="reach from outside as well"):
        remat.compile(both)(y)


# gradients


def test_whether_gradients_are_recorded_is_a_part_of_the_form(device):
    body, head = nn.Linear(3, 3), nn.Linear(3, 1)
    f, x = remat.compile(lambda x: (body(x), remat.is_grad_enabled())), remat.ones(2, 3)
    with remat.no_grad():
        y, on = f(x)
        assert not y.requires_grad and not on
    y, on = f(x)
    assert y.requires_grad and on
    with pytest.raises(remat.NotDifferentiableError):
        head(y).sum().backward()
    with remat.no_grad():
        assert not f(x)[1]
    assert f.traces == 2


def test_a_gradient_that_is_there_is_added_to(device):
    def run(compiled):
        p, q = nn.Parameter(remat.ones(2)), nn.Parameter(remat.ones(2))
        optimizer = optim.SGD([p, q], lr=1.0)

        def step(x):
            loss = (p * x).sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        f = remat.compile(step) if compiled else step
        f(remat.ones(2))
        for k in (100.0, 10.0):
            (p * k).sum().backward()
            f(remat.ones(2))
        (q * 3.0).sum().backward()
        f(remat.ones(2))
        (p * 3.0 + q * 2.0).sum().backward()
        f(remat.ones(2))
        f(remat.ones(2))
        assert not compiled or f.traces == 4
        return p.tolist(), q.tolist(), p.grad is None

    assert run(True) == run(False)


def test_a_gradient_that_is_dropped_or_read_is_that_of_now(device):
    p = nn.Parameter(remat.ones(2))
    optimizer = optim.SGD([p], lr=1.0)

    def step(x):
        optimizer.zero_grad()
        (p * x).sum().backward()
        optimizer.step()

    f = remat.compile(step)
    (p * 100.0).sum().backward()
    f(remat.ones(2))
    assert p.tolist() == [0.0, 0.0] and p.grad is None
    norm = remat.compile(lambda: p.grad.square().sum())
    for k in (1.0, 2.0):
        p.grad = remat.full((2,), k)
        assert norm().item() == 2 * k * k
    # evaluation between a backward pass and its step
    assert remat.compile(lambda x: x + p)(remat.ones(2)).tolist() == [1.0, 1.0] and p.grad is not None


def test_results_require_a_gradient_where_they_do_eagerly(device):
    p = nn.Parameter(remat.ones(2))
    f = lambda x, y: (x * 2, y * 2, (x * y).detach(), p * 1, p.detach() * 1, x.argmax(0))  # noqa: E731
    compiled = remat.compile(f)
    for x, y in ((remat.ones(2), remat.ones(2)), (remat.ones(2).requires_grad_(), remat.ones(2)), (p * 1, p * 2)):
        assert [t.requires_grad for t in compiled(x, y)] == [t.requires_grad for t in f(x, y)]


def test_arguments_with_a_history_get_their_gradients_or_an_error(device):
    def f(x):
        (x * x).sum().backward()
        return x.grad * 1

    for g in (f, remat.compile(f)):
        x = remat.ones(2).requires_grad_()
        assert [g(x).tolist() for _ in range(3)] == [[2.0, 2.0], [4.0, 4.0], [6.0, 6.0]]
        assert x.grad.tolist() == [6.0, 6.0]
    p = nn.Parameter(remat.ones(2))
    with pytest.raises(remat.NotDifferentiableError, match="itself a result"):
        remat.compile(lambda x: (x * x).sum().backward())(p * 2)
    assert remat.compile(lambda x: x.requires_grad)(p * 2) is True
    # a parameter that is given is the parameter
    optimizer = optim.SGD([p], lr=1.0)

    def step(q):
        (q * 3).sum().backward()
        optimizer.step()

    remat.compile(step)(p)
    assert p.tolist() == [-2.0, -2.0]


def test_two_parameters_of_one_tensor_are_two(device):
    def run(compiled):
        one = remat.ones(2)
        p, q = nn.Parameter(one), nn.Parameter(one)
        optimizer = optim.Adam([p, q], lr=0.1)

        def step(x):
            loss = ((p * x - q) ** 2).sum() + (q * 3).sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        f = remat.compile(step) if compiled else step
        losses = [f(remat.full((2,), 2.0)).item() for _ in range(3)]
        return losses, p.tolist(), q.tolist(), one.tolist()

    assert run(True) == run(False)


def test_two_batch_norms_of_equal_values_are_trained(device):
    def run(compiled):
        remat.manual_seed(3)
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 4), nn.BatchNorm1d(4))
        optimizer = optim.SGD(net, lr=0.1, momentum=0.9)

        def step(x):
            loss = net(x).square().mean() + net(x * 2).sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        f = remat.compile(step) if compiled else step
        x = remat.arange(12, dtype="float32").reshape(4, 3).sin()
        return [f(x).item() for _ in range(3)], {k: v.tolist() for k, v in net.state_dict().items()}

    assert run(True) == run(False)


# generators


def test_generators_that_the_function_makes_repeat_as_they_do_eagerly(device):
    def f(x):
        own = remat.Generator(3)
        a = F.dropout(x, 0.5, generator=own)
        return a, remat.rand(2, generator=own), remat.rand(2, generator=remat.Generator(4))

    x = remat.ones(32)
    want, g = [t.tolist() for t in f(x)], remat.compile(f)
    for _ in range(3):
        assert [t.tolist() for t in g(x)] == want
    outer = remat.Generator(1)
    for f in (outer.split, outer.get_state, lambda: outer.manual_seed(1), lambda: remat.manual_seed(2)):
        with pytest.raises(ValueError, match="generator"):
            remat.compile(lambda x: (f(), x)[1])(x)


# what is kept


def test_forms_are_bounded_and_keep_no_arguments_alive(device):
    f, x = remat.compile(lambda x, s: (x * s).sum(), forms=4), remat.ones(16)
    for i in range(20):
        f(x, float(i))
    assert len(f.plans) == 4 and f.traces == 20
    f(x, 19.0), f(x, 16.0)
    assert f.traces == 20

    class Scale:
        def __init__(self, by):
            self.by = by

    g = remat.compile(lambda x, scale: x * scale.by)
    scale = Scale(3.0)
    assert g(x, scale).tolist() == [3.0] * 16
    scale.by = 4.0
    assert g(x, scale).tolist() == [4.0] * 16
    alive = weakref.ref(scale)
    del scale
    gc.collect()
    assert alive() is None and g(x, Scale(5.0)).tolist() == [5.0] * 16 and g.plans

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        @remat.compile
        def forward(self, x):
            return self.layer(x)

    net, other = Net(), Net()
    y = remat.ones(1, 2)
    assert net(y).tolist() == net.layer(y).tolist() and other(y).tolist() == other.layer(y).tolist()
    alive = weakref.ref(net)
    del net
    gc.collect()
    assert alive() is None


def test_threads_wait_for_each_other(device):
    f, bad = remat.compile(lambda x: (x * 2 + 1).sum()), []

    def go(k):
        try:
            for i in range(50):
                n = 1 + (i * k) % 7
                assert f(remat.full((n,), float(k), device=device)).item() == n * (2 * k + 1)
        except Exception as e:
            bad.append(e)

    threads = [threading.Thread(target=go, args=(k,)) for k in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not bad, bad[0]


def test_a_compiled_function_within_another_is_a_part_of_it(device):
    factor = 2.0
    inner = remat.compile(lambda x: x * factor)
    outer = remat.compile(lambda x: inner(x) + 1)
    assert outer(remat.ones(1)).item() == 3.0
    factor = 5.0
    assert outer(remat.ones(1)).item() == 6.0 and inner.traces == 0


def test_sizes_that_follow_from_values(device):
    def f(x):
        chosen = x.masked_select(x > 0)
        return {"sum": chosen.square().sum(), "n": chosen.shape[0], "at": (x > 0).nonzero()}

    compiled = remat.compile(f)
    for _ in range(2):
        for v in ([1.0, -1.0, 2.0], [3.0, 1.0, 2.0], [-4.0, -1.0, -5.0], [3.0, 4.0, -1.0]):
            got, want = compiled(remat.tensor(v)), f(remat.tensor(v))
            assert got["sum"].item() == want["sum"].item() and got["n"] == want["n"]
            assert got["at"].tolist() == want["at"].tolist()


def test_statistics_that_are_updated_before_a_size_are_updated_once(device):
    def run(compiled):
        remat.manual_seed(1)
        norm = nn.BatchNorm1d(2)

        def f(x):
            y = norm(x)
            return norm(y.masked_select(y > 0).reshape(-1, 1) * remat.ones(1, 2))

        g = remat.compile(f) if compiled else f
        x = remat.arange(8, dtype="float32").reshape(4, 2).sin()
        values = [g(x * k).tolist() for k in (1.0, 2.0, 1.0)]
        return values, {k: v.tolist() for k, v in norm.state_dict().items()}

    assert run(True) == run(False)


# what is never done


def warned(f, calls):
    """Texts of the warnings of calls."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for args in calls:
            f(*args)
    assert all(w.category is RuntimeWarning and w.filename == __file__ for w in seen)
    return [str(w.message) for w in seen]


def test_a_function_that_every_call_traces_says_what_is_another_each_time(device):
    x, log = remat.ones(2), []

    def logged(x):
        return x * (1.0 if len(log) < 100 else 2.0)

    f = remat.compile(logged)
    (text,) = warned(lambda k: (f(x), log.append(k)), ((k,) for k in range(20)))
    assert "`log`, which it reads from outside" in text and "logged` was traced and planned anew at each of 8 calls" in text
    (text,) = warned(remat.compile(lambda x, k: x * k), ((x, k) for k in range(20)))
    assert "constants among its arguments" in text
    (text,) = warned(remat.compile(lambda x: x * 2), ((remat.ones(k + 1),) for k in range(20)))
    assert "shapes or dtypes" in text


def test_a_function_whose_forms_come_again_says_nothing(device):
    f = remat.compile(lambda x: x * 2)
    assert warned(f, ((remat.ones(1 + k % 7),) for k in range(40))) == [] and f.traces == 7
    net = nn.Linear(2, 2)
    rated = optim.SGD(net.parameters(), lr=0.1)

    @remat.compile
    def step(x):
        loss = net(x).square().mean()
        loss.backward()
        rated.step()
        return loss.detach()

    def scheduled(x):
        rated.param_groups[0]["lr"] *= 0.9
        return step(x)

    assert warned(scheduled, ((remat.ones(3, 2),) for _ in range(20))) == [] and step.traces == 1


@pytest.mark.parametrize("first, then", [(10_000, None), (None, 10_000), (10_000, 1 << 20), (1 << 20, 10_000)])
def test_a_budget_that_is_changed_reaches_compiled_functions(first, then, device):
    def f(x):
        y = [x]
        for _ in range(20):
            y.append(y[-1].sin() @ x)
        for t in reversed(y):
            x = x @ t.cos()
        return x.sum()

    remat.set_default_device(remat.Device(first, threads=1))
    device = remat.get_default_device()
    x = remat.ones(16, 16) * 0.01
    compiled, small = remat.compile(f), 5_000
    want = compiled(x).item()
    device.set_budget(then)
    device.reset_peak()
    assert compiled(x).item() == want
    assert then is None or device.peak_bytes <= then
    device.set_budget(small)
    with pytest.raises(remat.BudgetError) as refused:
        compiled(x)
    assert refused.value.budget_bytes == small and refused.value.is_of_run
    device.set_budget(first)
    assert compiled(x).item() == want
