"""Random programs, each run eagerly and with its function compiled: what they give has the same bits, call by call.

A program is source text: a network whose `forward` is made of random statements that read attributes, lists, globals, tensors from
outside, shapes, dtypes and modes; and a list of calls, between which all of that is changed. A seed that ever failed stays in `KEPT`.
"""
import collections
import random

import pytest

import remat
from remat import nn, optim

np = pytest.importorskip("numpy")

KEPT = []
SEEDS = [*KEPT, *range(60)]

STATEMENTS = [
    "x = self.a(x)", "x = self.b(x)", "x = self.norm(x)", "x = self.drop(x)", "x = x.tanh()", "x = x * self.scale", "x = x + sum(self.terms)",
    "x = x + len(self.terms)", "x = x * 2 if self.training else x - 1", "x = x + 1 if self.flags['bias'] else x", "x = x + OUTER",
    "x = x * FACTOR", "x = x[:3] * 1", "x = x + x.shape[0]", "x = x + (0.25 if remat.is_grad_enabled() else 0.5)", "x = x + c",
    "x = x * (3 if c is True else 2)", "x = x + 0.01 * remat.randn(3, dtype=x.dtype, device=x.device)", "x = x + parts['w']",
    "parts['w'] += 1", "parts['w'][0] = 4.0", "x = x * 3 if x.dtype == remat.float64 else x", "x = x * x.masked_select(x > 0).sum()",
    "x = x + (x > 0).nonzero().shape[0]", "x = helper(x)", "x = x + remat.rand(3, generator=remat.Generator(5)).to(x.dtype)",
    "x = x * len(parts)", "x = x + getattr(self, 'sca' + 'le')", "x = x.square() if isinstance(c, float) else x",
    "x = sum((layer(x) for layer in self.layers), x)", "x = x + self.shift", "x = x + self.counts[0]",
]

RETURNS = [
    "return x", "return {'y': x, 'n': x.shape[0], 'c': c}", "return Pair(x.sum(), [x, c])", "return [row * 1 for row in x.unbind(0)]",
    "return (x, parts['w'], parts)", "return {'y': x} if self.training else {'z': x, 'scale': self.scale}",
]

CHANGES = [
    "net.scale = {number}", "net.terms.append({number})", "net.terms[0] = {number}", "net.terms = [{number}, 1]", "net.flags['bias'] = not net.flags['bias']",
    "net.train()", "net.eval()", "FACTOR = {number}", "OUTER[0] = {real}", "OUTER += 1", "OUTER = remat.full((3,), {real})", "net.a = nn.Linear(3, 3)",
    "net.b.weight.set_(net.b.weight * 0.5)", "(net.a.weight * {real}).sum().backward()", "optimizer.lr = {real}",
    "net.a.bias.requires_grad = not net.a.bias.requires_grad", "net.layers.append(nn.Linear(3, 3))", "helper = lambda x: x * {number}",
    "BY[0] = {number}", "net.shift = remat.full((3,), {real})", "net.shift[1] = {real}", "net.zero_grad()", "net.drop = nn.Dropout(0.25)",
    "net.to('float64')", "net.to('float32')", "net.counts = ({number},)", "optimizer.step()",
]

PRELUDE = """
Pair = collections.namedtuple("Pair", "a b")
FACTOR, OUTER, BY = 2.0, remat.ones(3), [1.5]

def helper(x):
    return x + BY[0]

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.norm, self.drop = nn.Linear(3, 3), nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5)
        self.layers = nn.ModuleList([nn.Linear(3, 3)])
        self.scale, self.terms, self.flags, self.shift, self.counts = 1.0, [0.5, 2], {{"bias": True}}, remat.zeros(3), (1, 2)

    def forward(self, x, c, parts):
        {body}

net = Net()
optimizer = optim.SGD(net, lr=0.1, momentum=0.9)

def step(x, c, parts):
    y = net(x, c, parts)
    loss = sum((t.square().mean() for t in tensors(y) if t.requires_grad), net.a.weight.sum() + net.b.bias.sum())
    loss.backward()
    optimizer.step()
    return loss.detach()

f = wrap({what})
"""


def tensors(y):
    if isinstance(y, remat.Tensor):
        return [y]
    parts = y.values() if isinstance(y, dict) else y if isinstance(y, (list, tuple)) else []
    return [t for part in parts for t in tensors(part)]


def seen(y):
    """All that a program can see of a result."""
    if isinstance(y, remat.Tensor):
        return (y.dtype.name, y.shape, y.requires_grad, y.numpy().tobytes())
    if isinstance(y, dict):
        return (type(y), [(k, seen(v)) for k, v in y.items()])
    if isinstance(y, (list, tuple)):
        return (type(y).__name__, [seen(part) for part in y])
    return (type(y), repr(y))


def program(seed):
    """The source of a program, and its calls: what is changed before, rows, whether they are of another dtype than the network, a
    constant, and whether gradients are recorded."""
    r = random.Random(seed)
    number = lambda: r.choice(["1", "1.0", "True", "2", "0.5", "-0.0", "3"])  # noqa: E731
    body = [r.choice(STATEMENTS) for _ in range(r.randint(1, 6))] + [r.choice(RETURNS)]
    what = r.choice(["net", "net", "step"])
    source = PRELUDE.format(body="\n        ".join(body), what=what)
    changes = r.sample(CHANGES, 4)
    calls = []
    for _ in range(8):
        change = [r.choice(changes).format(number=number(), real=r.choice(["1.5", "-2.0", "0.25"]))] if r.random() < 0.7 else []
        records = what == "step" or r.random() < 0.7
        calls.append((change, r.choice([2, 3, 5]), r.random() < 0.03, number(), records))
    return source, calls


def run(source, calls, wrap):
    """What each call gives, up to the first error, which is the last thing."""
    names = {"remat": remat, "nn": nn, "optim": optim, "collections": collections, "wrap": wrap, "tensors": tensors, "__name__": "program"}
    remat.manual_seed(7)
    exec(source, names)
    results = []
    for change, n, is_other, c, records in calls:
        try:
            for line in change:
                exec(line, names)
            dtype = "int32" if is_other else names["net"].b.weight.dtype
            x = (remat.arange(3 * n, dtype="float32").reshape(n, 3) * 1.7).sin().to(dtype)
            parts = {"w": remat.ones(3, dtype=dtype)}
            if records:
                y = names["f"](x, eval(c), parts)
            else:
                with remat.no_grad():
                    y = names["f"](x, eval(c), parts)
            state = {**names["net"].state_dict(), "w": parts["w"], "outer": names["OUTER"], "drawn": remat.randn(1)}
            gradients = [p.grad for p in names["net"].parameters()]
            results.append((seen(y), seen(state), seen([g for g in gradients if g is not None])))
        except Exception as e:
            results.append(e)
            break
    return results


# What a compiled function refuses, by name, and a plain one does not.
REFUSED = ("no gradient passes a compiled function", "gradient at the end of the compiled function")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_compiled_function_gives_what_the_plain_one_gives(device, seed):
    source, calls = program(seed)
    want, got = run(source, calls, lambda f: f), run(source, calls, remat.compile)
    for i, (a, b) in enumerate(zip(want, got)):
        if isinstance(b, Exception) and any(text in str(b) for text in REFUSED):
            return
        if isinstance(a, Exception) or isinstance(b, Exception):
            told = [repr(r) if isinstance(r, Exception) else "no error" for r in (a, b)]
            assert type(a) is type(b), f"call {i}: {told[0]}, compiled {told[1]}\n{source}\n{calls[: i + 1]}"
            return
        assert a == b, f"call {i}: {calls[: i + 1]}\n{source}"
    assert len(want) == len(got)


def test_the_programs_reach_most_of_what_they_are_made_of(device):
    ran, refused = 0, 0
    for seed in range(20):
        results = run(*program(seed), remat.compile)
        ran += sum(not isinstance(r, Exception) for r in results)
        refused += isinstance(results[-1], Exception) and any(text in str(results[-1]) for text in REFUSED)
    assert ran > 60 and refused < 5, (ran, refused)
