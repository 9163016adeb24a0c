"""Networks: modules whose `forward` is drawn statement by statement, from the values that are there so far.

A value is known by the extents behind its batch axis: `(n,)` is a matrix `[batch, n]`, `(t, n)` a sequence. The batch is not a
number in the text, so that one network takes batches of any size; the length of the sequences that come in may differ from step to
step too. What a statement makes can be read by every later one, which is how values get many readers, far apart.
"""
from typing import Dict, List, Optional, Tuple

from .text import Draw, Lines

Shape = Tuple[object, ...]

UNARY = (
    "torch.tanh({x})", "torch.sigmoid({x})", "torch.sin({x})", "F.silu({x})", "F.gelu({x})", "F.softplus({x})", "F.relu({x})",
    "F.leaky_relu({x}, 0.1)", "F.elu({x})", "torch.exp(-{x}.square())", "torch.sqrt({x}.square() + 0.5)",
    "torch.log1p({x}.square())", "{x}.abs()", "{x}.clamp(-1.5, 1.5)", "{x} / (1.0 + {x}.abs())", "torch.erf({x})",
    "torch.cos({x})", "-{x}", "{x} * 0.7 + 0.1", "1.0 - {x}", "0.3 * {x}.pow(2)", "torch.atan({x})", "{x}.softmax(dim=-1)",
    "F.log_softmax({x}, dim=-1)", "{x} - {x}.mean(dim=-1, keepdim=True)", "{x} / ({x}.norm(dim=-1, keepdim=True) + 0.1)",
    "torch.logsumexp({x}, dim=-1, keepdim=True) - {x}", "0.3 * {x}.cumsum(-1)", "torch.flip({x}, (-1,))",
    "torch.roll({x}, 1, -1)", "{x}.clone()", "{x} - {x}.mean(dim=0, keepdim=True)", "torch.exp(0.3 * {x}.clamp(-3.0, 3.0))",
    "{x} / torch.sqrt({x}.square().mean(dim=-1, keepdim=True) + 1e-3)", "torch.where({x} > 0.1, {x}, 0.2 * {x})",
)
BINARY = (
    "{x} + {y}", "{x} - {y}", "{x} * {y}", "{x} * torch.tanh({y})", "{x} / (1.0 + {y}.square())", "torch.maximum({x}, {y})",
    "torch.minimum({x}, {y})", "torch.where({x} > {y}, {x}, 0.5 * {y})", "torch.lerp({x}, {y}, 0.3)", "{x}.sigmoid() * {y}",
    "torch.atan2({x}, {y}.abs() + 1.0)", "{x} + {y}.mean(dim=-1, keepdim=True)", "{x} * {y}.detach()",
)
STEADY = ("torch.tanh({x})", "torch.sin({x})", "{x} / (1.0 + {x}.abs())", "torch.sigmoid({x})", "{x}.clamp(-1.5, 1.5)")
WIDTHS = (3, 4, 6, 8, 12, 16)


class Network:
    """Draws the class of one module; `text` is it."""

    def __init__(self, draw: Draw, name: str, takes: Shape, gives: int, statements: int, is_pure: bool = False,
                 is_sparse: bool = False):
        self.draw, self.name, self.takes, self.gives = draw, name, takes, gives
        self.init: List[str] = []
        self.body = Lines(2)
        self.values: List[Tuple[str, Shape]] = []
        self.linears: List[Tuple[str, int, int]] = []
        self.matrices: List[Tuple[str, int, int]] = []
        self.batch = "x.shape[0]"
        self.is_pure = is_pure
        rules = {rule: weight for rule, weight in RULES.items() if not is_pure or rule not in NOT_PURE}
        if takes == ("tokens",):
            n, sparse = draw.of(WIDTHS), "sparse=True, " if is_sparse else ""
            self.value(f"{self.layer('e', f'nn.Embedding(11, {n}, {sparse}dtype=D)')}(x)", ("t", n))
        else:
            self.values.append(("x", takes))
        for _ in range(statements):
            rule = draw.weighted(rules)
            before = len(self.body.lines)
            getattr(self, rule)()
            if len(self.body.lines) > before:
                draw.trait(rule)
        self.finish()

    @property
    def text(self) -> List[str]:
        """The lines of the class."""
        head = [f"class {self.name}(nn.Module):", "    def __init__(self):", "        super().__init__()"]
        return [*head, *("        " + line for line in self.init), "", "    def forward(self, x):", *self.body.lines]

    # values and layers

    def layer(self, stem: str, made: str) -> str:
        """A new part of the module; its name."""
        name = f"self.{self.draw.name(stem)}"
        self.init.append(f"{name} = {made}")
        return name

    def parameter(self, *shape: int) -> str:
        """A new parameter of the module itself."""
        name = self.draw.name("w")
        extents = ", ".join(map(str, shape))
        self.init.append(f"self.{name} = parameter({self.draw.fresh_seed()}, 'w', {extents}, dtype=D)")
        return f"self.{name}"

    def linear(self, n: int, m: int) -> str:
        """A linear layer, often one that is there already."""
        there = [name for name, i, o in self.linears if (i, o) == (n, m)]
        if there and self.draw.chance(0.5):
            self.draw.trait("layer read again")
            return self.draw.of(there)
        bias = "" if self.draw.chance(0.8) else ", bias=False"
        name = self.layer("l", f"nn.Linear({n}, {m}{bias}, dtype=D)")
        self.linears.append((name, n, m))
        return name

    def value(self, expression: str, shape: Shape) -> str:
        """A new value."""
        name = self.draw.name()
        self.body.add(f"{name} = {expression}")
        self.values.append((name, shape))
        return name

    def pick(self, rank: int, but: str = "", width: Optional[int] = None) -> Optional[Tuple[str, Shape]]:
        """A value of so many axes behind the batch, mostly a late one; None if there is none."""
        fit = [
            v for v in self.values if len(v[1]) == rank and v[0] != but and (width is None or v[1][-1] == width)
        ]
        if not fit:
            return None
        return fit[-1 - min(int(self.draw.random.expovariate(0.7)), len(fit) - 1)]

    def matrix(self) -> Tuple[str, int]:
        """A matrix and its width; a sequence becomes one if there is no matrix."""
        found = self.pick(1)
        if found is None:
            s, (_, n) = self.pick(2)  # type: ignore[misc]
            how = self.draw.of(("{s}.mean(dim=1)", "{s}[:, -1]", "{s}.sum(dim=1) * 0.3", "torch.amax({s}, dim=1)"))
            return self.value(how.format(s=s).replace("torch.amax(", "amax("), (n,)), n
        return found[0], int(found[1][0])  # type: ignore[call-overload]

    def zeros(self, n: int) -> str:
        """A state to begin with."""
        return f"torch.zeros({self.batch}, {n}, dtype=D)"

    def statements_on(self, x: str, n: int, count: int, others: Tuple[str, ...] = ()) -> str:
        """Some statements in the present block that make a value of the same shape of `x`; its name. It stays within bounds."""
        for _ in range(count):
            kind = self.draw.of(("unary", "linear", "binary", "parameter"))
            y = self.draw.name()
            if kind == "linear":
                self.body.add(f"{y} = {self.linear(n, n)}({x})")
            elif kind == "binary" and others:
                self.body.add(f"{y} = {self.draw.of(BINARY).format(x=x, y=self.draw.of(others))}")
            elif kind == "parameter":
                self.body.add(f"{y} = {x} * {self.parameter(n)}")
            else:
                self.body.add(f"{y} = {self.draw.of(UNARY).format(x=x)}")
            others = (*others, x)
            x = y
        y = self.draw.name()
        self.body.add(f"{y} = {self.draw.of(STEADY).format(x=x)}")
        return y

    # statements

    def finish(self) -> None:
        """The result: late values side by side, through a layer."""
        parts: List[str] = []
        width = 0
        for name, shape in reversed(self.values):
            if len(shape) == 1 and len(parts) < 3:
                parts.append(name)
                width += int(shape[0])  # type: ignore[call-overload]
        if not parts:
            name, width = self.matrix()
            parts = [name]
        joined = parts[0] if len(parts) == 1 else f"torch.cat([{', '.join(parts)}], dim=1)"
        result = f"{self.linear(width, self.gives)}({joined})"
        if self.takes == (self.gives,) and self.draw.chance(0.4):
            result = f"x + {result}"
        self.body.add(f"return {result}")

    def rule_linear(self) -> None:
        x, n = self.matrix()
        m = self.draw.of(WIDTHS)
        self.value(f"{self.linear(n, m)}({x})", (m,))

    def rule_unary(self) -> None:
        x, shape = self.pick(self.draw.of((1, 1, 2))) or self.values[-1]
        self.value(self.draw.of(UNARY).format(x=x), shape)

    def rule_binary(self) -> None:
        x, n = self.matrix()
        y = self.pick(1, but=x, width=n)
        if y is None:
            other, k = self.matrix()
            y = self.value(f"{self.linear(k, n)}({other})", (n,)), (n,)
        self.value(self.draw.of(BINARY).format(x=x, y=y[0]), (n,))

    def rule_norm(self) -> None:
        x, n = self.matrix()
        kind = self.draw.weighted({"layer": 3, "batch": 2, "group": 1, "function": 1})
        if kind == "layer":
            self.value(f"{self.layer('n', f'nn.LayerNorm({n}, dtype=D)')}({x})", (n,))
        elif kind == "batch":
            self.draw.trait("batch norm")
            self.value(f"{self.layer('n', f'nn.BatchNorm1d({n}, dtype=D)')}({x})", (n,))
        elif kind == "group" and n % 2 == 0:
            self.value(f"{self.layer('n', f'nn.GroupNorm(2, {n}, dtype=D)')}({x}.unsqueeze(2)).squeeze(2)", (n,))
        else:
            self.value(f"F.layer_norm({x}, ({n},))", (n,))

    def rule_residual(self) -> None:
        x, n = self.matrix()
        inner = self.statements_on(x, n, self.draw.int(1, 3))
        self.value(f"{x} + {inner}", (n,))

    def rule_iterate(self) -> None:
        """A loop over a matrix, by layers that are shared or cycle."""
        x, n = self.matrix()
        times = self.draw.of((2, 3, 4, 6, 8, 12))
        kinds = ["highway", "rk4", "heavy_ball", "coupling", "cycle", "kept", "drawn"]
        kind = self.draw.of(kinds if self.is_pure else [*kinds, "fixed_point"])
        self.draw.trait(f"loop: {kind}")
        h, add = self.draw.name("h"), self.body.add
        add(f"{h} = {x}")
        if kind == "highway":
            gate, way = self.linear(n, n), self.linear(n, n)
            with self.body.block(f"for t in range({times}):"):
                g = self.draw.name("g")
                add(f"{g} = torch.sigmoid({gate}({h}))")
                add(f"{h} = {g} * torch.tanh({way}({h})) + (1 - {g}) * {h}")
        elif kind == "rk4":
            f = self.draw.name("f")
            layer = self.linear(n, n)
            with self.body.block(f"def {f}(y):"):
                add(f"return torch.tanh({layer}(y)) - 0.1 * y")
            with self.body.block(f"for t in range({times}):"):
                add(f"k1 = {f}({h})")
                add(f"k2 = {f}({h} + 0.1 * k1)")
                add(f"k3 = {f}({h} + 0.1 * k2)")
                add(f"k4 = {f}({h} + 0.2 * k3)")
                add(f"{h} = {h} + (0.2 / 6) * (k1 + 2 * k2 + 2 * k3 + k4)")
        elif kind == "heavy_ball":
            v = self.draw.name("m")
            layer = self.linear(n, n)
            add(f"{v} = torch.zeros_like({h})")
            with self.body.block(f"for t in range({times}):"):
                add(f"{v} = 0.8 * {v} - 0.2 * torch.tanh({layer}({h}))")
                add(f"{h} = {h} + {v}")
        elif kind == "coupling" and n % 2 == 0:
            a, b = self.draw.name("a"), self.draw.name("b")
            one, two = self.linear(n // 2, n // 2), self.linear(n // 2, n // 2)
            add(f"{a}, {b} = {h}[:, :{n // 2}], {h}[:, {n // 2}:]")
            with self.body.block(f"for t in range({times}):"):
                add(f"{a} = {a} + torch.tanh({one}({b}))")
                add(f"{b} = {b} * torch.sigmoid({two}({a}))")
            add(f"{h} = torch.cat([{a}, {b}], dim=1)")
        elif kind == "kept":
            # every state is read again at the end, the late ones first
            states, layer = self.draw.name("s"), self.linear(n, n)
            add(f"{states} = []")
            with self.body.block(f"for t in range({times}):"):
                add(f"{h} = torch.tanh({layer}({h}))")
                add(f"{states}.append({h})")
            with self.body.block(f"while {states}:"):
                add(f"{h} = {h} + 0.5 * {states}.pop() * {self.draw.of(STEADY).format(x=h)}")
        elif kind == "fixed_point":
            layer = self.linear(n, n)
            with self.body.block(f"for t in range({times}):"):
                add(f"{h} = 0.5 * {h} + 0.5 * torch.tanh({layer}({h}) + {x})")
                with self.body.block(f"if float({h}.detach().abs().mean()) > {self.draw.number(0.3, 1.0)}:"):
                    add(self.draw.of(("break", f"{h} = 0.5 * {h}", f"{h} = {h}.detach()")))
        elif kind == "drawn":
            with self.body.block(f"for t in range({times}):"):
                inner = self.statements_on(h, n, self.draw.int(1, 4), (x,))
                add(f"{h} = {self.draw.of(('{h} + 0.3 * {i}', '{i}', '0.5 * ({h} + {i})', '{h} * {i}.sigmoid()')).format(h=h, i=inner)}")
        else:
            parts = ", ".join(f"nn.Linear({n}, {n}, dtype=D)" for _ in range(self.draw.int(1, 3)))
            layers = self.layer("ls", f"nn.ModuleList([{parts}])")
            with self.body.block(f"for t in range({times}):"):
                add(f"{h} = {h} + torch.tanh({layers}[t % len({layers})]({h}))")
        self.values.append((h, (n,)))

    def rule_cell(self) -> None:
        """A recurrent cell in a loop, over a sequence or over one matrix again and again."""
        draw, add = self.draw, self.body.add
        m = draw.of(WIDTHS)
        sequence = self.pick(2)
        if sequence is not None and draw.chance(0.75):
            s, (_, n) = sequence
            times, at = f"{s}.shape[1]", draw.of((f"{s}[:, t]", f"{s}[:, t]", f"{s}[:, {s}.shape[1] - 1 - t]"))
        else:
            s, n = self.matrix()
            times, at = str(draw.of((2, 3, 5, 8, 12))), s
        n = int(n)  # type: ignore[call-overload]
        kind = draw.of(("lstm", "gru", "rnn", "stacked_lstm", "gates", "joined", "minimal", "peephole"))
        draw.trait(f"cell: {kind}")
        h, c, outs = draw.name("h"), draw.name("c"), draw.name("o")
        add(f"{h} = {self.zeros(m)}")
        step = {
            "lstm": self._lstm, "stacked_lstm": self._stacked_lstm, "peephole": self._peephole, "gru": self._gru, "rnn": self._rnn,
            "gates": self._gates, "joined": self._joined, "minimal": self._minimal,
        }[kind](at, n, m, h, c)
        add(f"{outs} = []")
        with self.body.block(f"for t in range({times}):"):
            for line in step:
                add(line)
            extra = draw.weighted({"none": 5, "drawn": 2, "look_back": 1, "truncated": 1, "skip": 1})
            if extra == "drawn":
                inner = self.statements_on(h, m, draw.int(1, 2))
                add(f"{h} = 0.5 * ({h} + {inner})")
            elif extra == "look_back":
                with self.body.block(f"if {outs}:"):
                    add(f"past = torch.stack({outs}, dim=1)")
                    add(f"weight = (past * {h}.unsqueeze(1)).sum(dim=2).softmax(dim=1)")
                    add(f"{h} = {h} + (weight.unsqueeze(2) * past).sum(dim=1)")
            elif extra == "truncated":
                with self.body.block("if t % 3 == 2:"):
                    add(f"{h} = {h}.detach()")
            elif extra == "skip":
                with self.body.block(f"if len({outs}) > 1:"):
                    add(f"{h} = {h} + 0.3 * {outs}[-2]")
            add(f"{outs}.append({h})")
        use = draw.of(("last", "stack", "mean", "last"))
        if use == "stack":
            self.value(f"torch.stack({outs}, dim=1)", ("t", m))
        elif use == "mean":
            self.value(f"sum({outs}) / len({outs})", (m,))
        self.values.append((h, (m,)))

    def _lstm(self, x: str, n: int, m: int, h: str, c: str) -> List[str]:
        cell = self.layer("cell", f"nn.LSTMCell({n}, {m}, dtype=D)")
        self.body.add(f"{c} = {self.zeros(m)}")
        return [f"{h}, {c} = {cell}({x}, ({h}, {c}))"]

    def _stacked_lstm(self, x: str, n: int, m: int, h: str, c: str) -> List[str]:
        one, two = (self.layer("cell", f"nn.LSTMCell({i}, {m}, dtype=D)") for i in (n, m))
        below, kept = self.draw.name("h"), self.draw.name("c")
        self.body.add(f"{c}, {kept}, {below} = {self.zeros(m)}, {self.zeros(m)}, {self.zeros(m)}")
        return [f"{below}, {kept} = {one}({x}, ({below}, {kept}))", f"{h}, {c} = {two}({below}, ({h}, {c}))"]

    def _peephole(self, x: str, n: int, m: int, h: str, c: str) -> List[str]:
        a, b, p = self.linear(n, 4 * m), self.linear(m, 4 * m), self.parameter(m)
        self.body.add(f"{c} = {self.zeros(m)}")
        return [
            f"i, f, g, o = ({a}({x}) + {b}({h})).chunk(4, 1)", f"f = torch.sigmoid(f + {p} * {c})",
            f"{c} = f * {c} + torch.sigmoid(i) * torch.tanh(g)", f"{h} = torch.sigmoid(o) * torch.tanh({c})",
        ]

    def _gru(self, x: str, n: int, m: int, h: str, c: str) -> List[str]:
        return [f"{h} = {self.layer('cell', f'nn.GRUCell({n}, {m}, dtype=D)')}({x}, {h})"]

    def _rnn(self, x: str, n: int, m: int, h: str, c: str) -> List[str]:
        bend = self.draw.of(("tanh", "relu"))
        return [f"{h} = {self.layer('cell', f'nn.RNNCell({n}, {m}, nonlinearity={bend!r}, dtype=D)')}({x}, {h})"]

    def _gates(self, x: str, n: int, m: int, h: str, c: str) -> List[str]:
        z, r, k = self.linear(n, m), self.linear(m, m), self.linear(n, m)
        return [
            f"z = torch.sigmoid({z}({x}) + {r}({h}))", f"r = torch.sigmoid({k}({x}) * {h})",
            f"{h} = (1 - z) * torch.tanh({k}({x}) + {r}(r * {h})) + z * {h}",
        ]

    def _joined(self, x: str, n: int, m: int, h: str, c: str) -> List[str]:
        return [f"{h} = torch.tanh({self.linear(n + m, m)}(torch.cat([{x}, {h}], dim=1)))"]

    def _minimal(self, x: str, n: int, m: int, h: str, c: str) -> List[str]:
        w, u = self.parameter(n, m), self.parameter(m, m)
        return [f"{h} = torch.tanh({x} @ {w} + {h} @ {u})"]

    def rule_recurrent_layer(self) -> None:
        sequence = self.pick(2)
        if sequence is None:
            return
        s, (t, n) = sequence
        m = self.draw.of(WIDTHS)
        kind = self.draw.of(("RNN", "LSTM", "GRU"))
        two = self.draw.chance(0.3)
        options = f"num_layers={self.draw.int(1, 2)}, batch_first=True, bidirectional={two}, dtype=D"
        y = self.draw.name()
        self.body.add(f"{y}, _ = {self.layer('r', f'nn.{kind}({n}, {m}, {options})')}({s})")
        self.values.append((y, (t, m * (2 if two else 1))))

    def rule_sequence(self) -> None:
        """Makes a sequence of matrices, or another sequence of one."""
        draw = self.draw
        sequence = self.pick(2)
        kind = draw.of(("stack", "conv", "attention", "shift", "pointwise", "positions", "causal"))
        if sequence is None or kind == "stack":
            x, n = self.matrix()
            y = self.pick(1, but=x, width=n)
            parts = [x, f"torch.tanh({x})", y[0] if y else f"-{x}", f"{x} * {x}"][: draw.int(2, 4)]
            self.value(f"torch.stack([{', '.join(parts)}], dim=1)", (len(parts), n))
            return
        s, (t, n) = sequence
        if kind == "conv":
            m = draw.of(WIDTHS)
            layer = self.layer("k", f"nn.Conv1d({n}, {m}, 3, padding=1, dtype=D)")
            self.value(f"{layer}({s}.swapaxes(1, 2)).swapaxes(1, 2)", (t, m))
        elif kind in ("attention", "causal"):
            q, k, v = (self.linear(n, n) for _ in range(3))  # type: ignore[arg-type]
            score = f"({q}({s}) @ {k}({s}).swapaxes(1, 2)) / {n}**0.5"
            if kind == "causal":
                mask = f"torch.tril(torch.ones({s}.shape[1], {s}.shape[1], dtype=D)) - 1.0"
                score = f"{score} + 50.0 * ({mask})"
            w = self.draw.name("a")
            self.body.add(f"{w} = ({score}).softmax(dim=-1)")
            self.value(f"{s} + {w} @ {v}({s})", (t, n))
        elif kind == "shift":
            self.value(f"torch.cat([{s}[:, 1:], {s}[:, :1]], dim=1) - {s}", (t, n))
        elif kind == "positions":
            p = f"torch.arange({s}.shape[1]).to(D).reshape(1, -1, 1)"
            self.value(f"{s} * torch.cos(0.5 * {p})", (t, n))
        else:
            self.value(draw.of(UNARY).format(x=s), (t, n))

    def rule_slice(self) -> None:
        x, n = self.matrix()
        k = self.draw.int(1, n - 1)
        y = self.pick(1, but=x)
        kind = self.draw.of(("cut", "join", "strided", "mix", "columns", "reshape"))
        if kind == "join" and y is not None and n + int(y[1][0]) <= 24:  # type: ignore[call-overload]
            self.value(f"torch.cat([{x}, {y[0]}], dim=1)", (n + int(y[1][0]),))  # type: ignore[call-overload]
        elif kind == "strided":
            self.value(f"{x}[:, ::2]", ((n + 1) // 2,))
        elif kind == "mix":
            self.value(f"torch.cat([{x}[:, {k}:], torch.tanh({x}[:, :{k}])], dim=1)", (n,))
        elif kind == "columns":
            at = [self.draw.int(0, n - 1) for _ in range(self.draw.int(2, 6))]
            self.value(f"{x}[:, {at}]", (len(at),))
        elif kind == "reshape" and n % 2 == 0:
            self.value(f"{x}.reshape({self.batch}, 2, {n // 2})", (2, n // 2))
        elif n - k > 1:
            self.value(f"{x}[:, {k}:]", (n - k,))

    def rule_assign(self) -> None:
        """Slices assigned and operators in place, on a copy."""
        x, n = self.matrix()
        y = self.value(f"{x}.clone()" if self.draw.chance(0.7) else f"torch.zeros_like({x})", (n,))
        for _ in range(self.draw.int(1, 3)):
            k = self.draw.int(0, n - 1)
            form = self.draw.of((
                "{y}[:, {k}] = {x}[:, 0] * 2", "{y}[:, {k}:] = torch.tanh({x}[:, {k}:])", "{y} *= 0.5", "{y} += {x}",
                "{y}[0] = 0.0", "{y}[:, {k}] *= 0.5", "{y}[1:] = {x}[:-1]", "{y}[{y} > 1.0] = 0.5", "{y} -= {x}.mean()",
                "{y}[:, :{k}] += {x}[:, :{k}]", "{y} /= 1.5",
            ))
            self.body.add(form.format(x=x, y=y, k=k))

    def rule_parameter(self) -> None:
        x, n = self.matrix()
        kind = self.draw.of(("scale", "shift", "matrix", "tied"))
        if kind == "scale":
            self.value(f"{x} * {self.parameter(n)}", (n,))
        elif kind == "shift":
            self.value(f"{x} + {self.parameter(n)}", (n,))
        elif kind == "matrix":
            m = self.draw.of(WIDTHS)
            w = self.parameter(n, m)
            self.matrices.append((w, n, m))
            self.value(f"{x} @ {w}", (m,))
        else:
            there = [w for w in self.matrices if n in (w[1], w[2])]
            if not there:
                m = self.draw.of(WIDTHS)
                there = [(self.parameter(n, m), n, m)]
                self.matrices += there
            w, i, o = self.draw.of(there)
            self.draw.trait("tied")
            self.value(f"{x} @ {w}" if i == n else f"{x} @ {w}.t()", (o if i == n else i,))

    def rule_pairs(self) -> None:
        """Rows of the batch beside one another, and products of all columns."""
        x, n = self.matrix()
        if self.draw.chance(0.5):
            y = self.pick(1, but=x) or (x, (n,))
            m = int(y[1][0])  # type: ignore[call-overload]
            v = self.draw.name()
            self.body.add(f"{v} = {x}.unsqueeze(2) * {y[0]}.unsqueeze(1)")
            kind = self.draw.of(("flat", "rows", "columns"))
            if kind == "flat" and n * m <= 48:
                self.value(f"{v}.reshape({self.batch}, {n * m})", (n * m,))
            elif kind == "rows":
                self.value(f"{v}.sum(dim=1) * 0.3", (m,))
            else:
                self.value(f"{v}.sum(dim=2) * 0.3", (n,))
        else:
            a = self.draw.name("a")
            self.body.add(f"{a} = (0.3 * {x} @ {x}.t()).softmax(dim=1)")
            self.value(f"{a} @ {x}", (n,))

    def rule_recursion(self) -> None:
        x, n = self.matrix()
        f, layer = self.draw.name("f"), self.linear(n, n)
        with self.body.block(f"def {f}(y, depth):"):
            with self.body.block("if depth == 0:"):
                self.body.add(f"return torch.sin({layer}(y))")
            inner = self.draw.of((
                "{f}(y, depth - 1) + y * {f}(0.5 * y, depth - 1)", "torch.tanh({f}(y, depth - 1) + y)",
                "{f}(torch.tanh(y), depth - 1) * y",
            ))
            self.body.add(f"return {inner.format(f=f)}")
        self.value(f"{f}({x}, {self.draw.int(2, 3)})", (n,))

    def rule_u_shape(self) -> None:
        x, n = self.matrix()
        depth = self.draw.int(2, 5)
        kept, h = self.draw.name("k"), self.draw.name("h")
        down, up = self.linear(n, n), self.linear(2 * n, n)
        self.body.add(f"{kept}, {h} = [], {x}")
        with self.body.block(f"for t in range({depth}):"):
            self.body.add(f"{kept}.append({h})")
            self.body.add(f"{h} = torch.tanh({down}({h}))")
        with self.body.block(f"for t in range({depth}):"):
            self.body.add(f"{h} = {up}(torch.cat([{h}, {kept}.pop()], dim=1))")
            self.body.add(f"{h} = {self.draw.of(STEADY).format(x=h)}")
        self.values.append((h, (n,)))

    def rule_custom(self) -> None:
        x, n = self.matrix()
        kind = self.draw.of(("Scaled", "Bent", "Squared", "Halves"))
        if kind == "Scaled":
            self.value(f"Scaled.apply({x}, {self.draw.number(-1, 2)})", (n,))
        elif kind == "Halves":
            a, b = self.draw.name(), self.draw.name()
            self.body.add(f"{a}, {b} = Halves.apply({x})")
            self.values.append((b, (n,)))
            self.value(f"{a} * torch.sigmoid({b})", (n,))
        else:
            self.value(f"{kind}.apply({x})", (n,))

    def rule_hook(self) -> None:
        """A hook on the gradient of a parameter."""
        x, n = self.matrix()
        w = self.parameter(n)
        hook = self.draw.of(("0.5 * g", "g.clamp(-0.1, 0.1)", "g - g.mean()", "torch.tanh(g)", "None"))
        self.init.append(f"{w}.register_hook(lambda g: {hook})")
        self.value(f"{x} * {w}", (n,))

    def rule_detach(self) -> None:
        x, n = self.matrix()
        y = self.draw.name()
        if self.draw.chance(0.5):
            self.value(f"{x} + ({self.draw.of(STEADY).format(x=x)} - {x}).detach()", (n,))
        else:
            with self.body.block("with torch.no_grad():"):
                self.body.add(f"{y} = {x}.sigmoid().mean(dim=0)")
            self.value(f"{x} * {y}", (n,))

    def rule_branch(self) -> None:
        x, n = self.matrix()
        y = self.draw.name()
        with self.body.block(f"if float({x}.detach().mean()) > {self.draw.number(-0.2, 0.2)}:"):
            self.body.add(f"{y} = {self.statements_on(x, n, 1)}")
        with self.body.block("else:"):
            self.body.add(f"{y} = {self.statements_on(x, n, 2)}")
        self.values.append((y, (n,)))

    def rule_gather(self) -> None:
        x, n = self.matrix()
        if self.draw.chance(0.5):
            self.value(f"{x}[torch.arange({self.batch} - 1, -1, -1)]" if self.draw.chance(0.3) else f"torch.flip({x}, (0,))", (n,))
        else:
            self.value(f"{x} * amax({x}, 1).unsqueeze(1).sigmoid()", (n,))

    def rule_mode(self) -> None:
        x, n = self.matrix()
        y = self.draw.name()
        self.body.add(f"{y} = {x} * 1.5 if self.training else {x}")
        self.values.append((y, (n,)))

    def rule_single(self) -> None:
        """Half of the precision, for a stretch."""
        x, n = self.matrix()
        self.draw.trait("single")
        self.value(f"torch.tanh({x}.to(F32)).to(D)", (n,))

    def rule_random(self) -> None:
        x, n = self.matrix()
        self.draw.trait("random")
        kind = self.draw.of(("F.dropout({x}, 0.3, self.training)", "{x} + 0.1 * torch.randn_like({x})", "{layer}({x})"))
        layer = self.layer("d", "nn.Dropout(0.2)") if "layer" in kind else ""
        self.value(kind.format(x=x, layer=layer), (n,))


RULES: Dict[str, float] = {
    "rule_linear": 3, "rule_unary": 4, "rule_binary": 4, "rule_norm": 1.5, "rule_residual": 1.5, "rule_iterate": 3, "rule_cell": 3,
    "rule_recurrent_layer": 0.7, "rule_sequence": 1.5, "rule_slice": 1.5, "rule_assign": 1.2, "rule_parameter": 1.5, "rule_pairs": 1,
    "rule_recursion": 0.5, "rule_u_shape": 0.7, "rule_custom": 0.7, "rule_hook": 0.5, "rule_detach": 0.6, "rule_branch": 0.4,
    "rule_gather": 0.5, "rule_mode": 0.2, "rule_single": 0.08, "rule_random": 0.1,
}
# what reads a value on the way, or does more than compute its result from its arguments
# a compiled function refuses them by name, or they depend on how often it is called
NOT_PURE = ("rule_branch", "rule_random", "rule_hook", "rule_mode", "rule_custom")
FUNCTIONS = '''
class Scaled(Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * 1.0

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.factor, None


class Bent(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(-1.0, 1.0)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * torch.exp(-x * x)


class Squared(Function):
    @staticmethod
    def forward(ctx, x):
        # what is made here and saved has no gradient of its own, which Remat says and PyTorch does not
        ctx.save_for_backward(x)
        return torch.tanh(x).square()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        y = torch.tanh(x)
        return dy * 2 * y * (1 - y * y)


class Halves(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 0.5, torch.sin(x)

    @staticmethod
    def backward(ctx, da, db):
        (x,) = ctx.saved_tensors
        return da * 0.5 + db * torch.cos(x)
'''
