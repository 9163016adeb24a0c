"""Training scripts: networks, optimisers, and a loop whose steps are drawn.

A kind says what a step is in the main: one loss, an adversary, gradients of gradients. What is done beside that (a schedule, averages
of weights, values kept from step to step, an exception in the middle) is drawn for each program, whatever its kind.
"""
from typing import Dict, List, Tuple

from .networks import FUNCTIONS, WIDTHS, Network, Shape
from .text import Draw, Lines

OPTIMIZERS = (
    "SGD({p}, lr=0.05)", "SGD({p}, lr=0.05, momentum=0.9)", "SGD({p}, lr=0.03, momentum=0.8, nesterov=True, weight_decay=0.01)",
    "Adam({p}, lr=0.01)", "AdamW({p}, lr=0.01, weight_decay=0.05)", "Adam({p}, lr=0.01, amsgrad=True)",
    "RMSprop({p}, lr=0.005, alpha=0.9, momentum=0.5)", "Adagrad({p}, lr=0.05)", "Adamax({p}, lr=0.01)", "NAdam({p}, lr=0.01)",
    "RAdam({p}, lr=0.01)", "Adadelta({p}, lr=0.5)", "SGD({p}, lr=0.1)", "Adam({p}, lr=0.003, betas=(0.5, 0.9))",
)
# those of PyTorch that take sparse gradients
SPARSE_OPTIMIZERS = ("SGD({p}, lr=0.05)", "SGD({p}, lr=0.05, momentum=0.9)", "SGD({p}, lr=0.1)", "Adagrad({p}, lr=0.05)")
# kinds of steps that take no gradients of gradients, and whose optimisers are drawn by `optimizer`
SPARSE_KINDS = ("supervised", "accumulated", "two_losses", "alternating", "compiled")
SCHEDULERS = (
    "lr_scheduler.StepLR({o}, step_size=2, gamma=0.5)", "lr_scheduler.ExponentialLR({o}, gamma=0.9)",
    "lr_scheduler.CosineAnnealingLR({o}, T_max=5)", "lr_scheduler.MultiStepLR({o}, milestones=[1, 3], gamma=0.3)",
    "lr_scheduler.LambdaLR({o}, lambda k: 1.0 / (1 + k))",
)
KINDS = {
    "supervised": 3.0, "gan": 1.5, "accumulated": 1.0, "penalty": 1.0, "inner_steps": 0.6, "lbfgs": 0.5, "alternating": 1.0,
    "two_losses": 1.0, "teacher": 1.0, "stateful": 1.0, "replay": 1.0, "by_hand": 0.8, "compiled": 1.5,
}


class Training:
    """Draws the text of one program of a kind."""

    def __init__(self, draw: Draw, kind: str):
        self.draw, self.kind = draw, kind
        self.head: List[str] = []
        self.setup = Lines()
        self.chunks: List[List[str]] = []
        self.after: List[List[str]] = []
        self.end: List[str] = []
        self.nets: List[Tuple[str, int]] = []
        self.optimizers: List[Tuple[str, List[str]]] = []
        self.sparse: List[str] = []
        self.is_single = draw.chance(0.2)
        self.count = draw.of((3, 4, 4, 5, 6, 8))
        self.n = draw.of(WIDTHS)
        self.batch = draw.of((2, 5, 8, 16, 16, 33, 64, 64, 128))
        self.length = draw.of((1, 3, 5, 8, 12, 16))
        self.is_ragged = draw.chance(0.3) and kind != "stateful"
        self.takes: Shape = draw.of([(draw.of(WIDTHS),), (self.length, draw.of(WIDTHS)), (self.length, draw.of(WIDTHS)), ("tokens",)])
        if kind in ("penalty", "replay") and self.takes == ("tokens",):
            self.takes = (self.n,)

    # parts of the text

    @property
    def is_pure(self) -> bool:
        """True if the step is compiled, or computed several times over."""
        return self.kind in ("compiled", "lbfgs")

    def net(self, takes: Shape, gives: int, copies: int = 1) -> List[str]:
        """The class of a new network, and modules of it."""
        name = self.draw.name("Net")
        is_sparse = takes == ("tokens",) and self.kind in SPARSE_KINDS and self.draw.chance(0.5)
        of = Network(self.draw, name, takes, gives, self.draw.int(2, 8), self.is_pure, is_sparse)
        if is_sparse:
            self.draw.trait("sparse embedding")
        self.head += ["", "", *of.text]
        made = []
        seed = self.draw.fresh_seed()
        for _ in range(copies):
            net = self.draw.name("net")
            self.setup.add(f"{net} = fill({name}(), {seed})")
            self.nets.append((net, gives))
            made.append(net)
        self.sparse += made if is_sparse else []
        return made

    def optimizer(self, nets: List[str]) -> str:
        """An optimiser over networks, in groups or not."""
        name = self.draw.name("opt")
        if len(nets) == 1:
            p = f"{nets[0]}.parameters()"
        elif self.draw.chance(0.5):
            groups = [f'{{"params": {net}.parameters(), "lr": {self.draw.of((0.02, 0.004))}}}' for net in nets[:-1]]
            p = f'[{", ".join([*groups, f"{{{chr(34)}params{chr(34)}: {nets[-1]}.parameters()}}"])}]'
        else:
            p = " + ".join(f"list({net}.parameters())" for net in nets)
        self.setup.add(f"{name} = optim.{self.draw.of(self.kinds_for(nets)).format(p=p)}")
        self.optimizers.append((name, nets))
        return name

    def kinds_for(self, nets: List[str]) -> Tuple[str, ...]:
        """The optimisers that take the gradients of these networks in PyTorch."""
        return SPARSE_OPTIMIZERS if set(nets) & set(self.sparse) else OPTIMIZERS

    def chunk(self, *lines: str) -> None:
        """Lines of a step that belong together."""
        self.chunks.append(list(lines))

    def sizes(self) -> List[str]:
        """The batch and the length of a step's data."""
        if not self.is_ragged:
            return []
        self.draw.trait("ragged")
        batches = [max(2, self.batch - self.draw.int(0, self.batch - 1)) for _ in range(3)]
        lines = [f"b = {batches}[k % 3]"]
        if len(self.takes) == 2 or self.takes == ("tokens",):
            lines.append(f"T = {[max(1, self.length - self.draw.int(0, 3)) for _ in range(2)]}[k % 2]")
        return lines

    def data(self, extra: str = "") -> str:
        """The expression of a step's inputs."""
        b, t = ("b", "T") if self.is_ragged else (str(self.batch), str(self.length))
        seed = f"{self.draw.fresh_seed() * 100} + k{extra}"
        if self.takes == ("tokens",):
            return f"integers({seed}, 11, {b}, {t})"
        shape = [b, *([t] if len(self.takes) == 2 else []), str(self.takes[-1])]
        return f"normal({seed}, {', '.join(shape)}, dtype=D)"

    def numbers(self, width: int, extra: str = "") -> str:
        """The expression of numbers for a step, one row for each example."""
        return f"normal({self.draw.fresh_seed() * 100} + k{extra}, {'b' if self.is_ragged else self.batch}, {width}, dtype=D)"

    def loss(self, y: str, width: int, target: str = "") -> str:
        """A number of a matrix."""
        # each term of an absolute loss counts a power of two, so that sums of signs are exact: where they cancel, what is left of a mean
        # is rounding, which an optimiser that divides by its size makes large
        kinds = ["{y}.square().mean()", "0.0078125 * F.smooth_l1_loss({y}, {t}, reduction='sum')", "F.mse_loss({y}, {t})", "F.mse_loss({y}, {t})",
                 "torch.logsumexp({y}, dim=1).mean()", "0.0078125 * F.l1_loss({y}, {t}, reduction='sum')", "F.softplus(-{y}).mean()",
                 "(1.0 - F.cosine_similarity({y}, {t}, dim=1)).mean()", "({y} * {t}).sum(dim=1).abs().mean()"]
        if width > 2:
            kinds += ["F.cross_entropy({y}, {i})"] * 2
        form = self.draw.of(kinds)
        y = y if y.isidentifier() else f"({y})"
        labels = f"integers({self.draw.fresh_seed() * 100} + k, {width}, {y}.shape[0])"
        text = form.format(y=y, t=target or self.numbers(width), i=labels)
        if self.draw.chance(0.15):
            net = self.nets[0][0]
            text += f" + 1e-3 * sum(p.square().sum() for p in {net}.parameters())"
        return text

    # kinds of steps

    def supervised(self) -> None:
        (net,) = self.net(self.takes, self.n)
        nets, y = [net], "y"
        self.chunk(f"x = {self.data()}")
        self.chunk(f"y = {net}(x)")
        for _ in range(self.draw.of((0, 0, 1, 2))):
            (more,) = self.net((self.n,), self.n)
            nets.append(more)
            self.chunk(self.draw.of((f"y = {more}(y)", f"y = y + {more}(torch.tanh(y))", f"y = {more}(y) * torch.sigmoid(y)")))
        together = self.draw.chance(0.6)
        opts = [self.optimizer(nets)] if together else [self.optimizer([net]) for net in nets]
        self.chunk(f"loss = {self.loss(y, self.n)}")
        self.backward("loss", opts, nets)

    def backward(self, loss: str, opts: List[str], nets: List[str], options: str = "") -> None:
        """Gradients of a loss, and the steps of optimisers."""
        zero = self.draw.chance(0.7)
        if zero:
            self.chunk(*(f"{opt}.zero_grad()" for opt in opts))
        self.chunk(f"{loss}.backward({options})")
        if self.draw.chance(0.25):
            net = self.draw.of(nets)
            norm = f"nn.utils.clip_grad_norm_(list({net}.parameters()), 0.5)"
            # PyTorch's raises an error where no parameter has a gradient
            has_any = f"any(p.grad is not None for p in {net}.parameters())"
            clip = self.draw.of((norm, f"if {has_any}: nn.utils.clip_grad_value_(list({net}.parameters()), 0.01)"))
            # PyTorch clips no value of a sparse gradient
            self.chunk(norm if net in self.sparse else clip)
            self.draw.trait("clipped")
        self.chunk(f"if k == {self.count - 1}:", *(f"    note_gradients('{net}', {net})" for net in nets))
        if self.draw.chance(0.1):
            self.chunk(f"if float({loss}) < 1e6:", *(f"    {opt}.step()" for opt in opts))
        else:
            for opt in opts:
                self.chunk(f"{opt}.step()")

    def gan(self) -> None:
        (g,) = self.net((self.n,), self.n)
        (d,) = self.net((self.n,), 1)
        opt_g, opt_d = self.optimizer([g]), self.optimizer([d])
        self.takes = (self.n,)
        loss_d, loss_g = self.draw.of((
            ("F.softplus(-{r}).mean() + F.softplus({f}).mean()", "F.softplus(-{f}).mean()"),
            ("{f}.mean() - {r}.mean()", "-{f}.mean()"), ("({r} - 1).square().mean() + {f}.square().mean()", "({f} - 1).square().mean()"),
        ))
        self.chunk(f"z, x = {self.numbers(self.n)}, {self.data()}")
        again = self.draw.chance(0.5)
        self.chunk(f"fake = {g}(z)")
        self.chunk(f"loss = {loss_d.format(r=f'{d}(x)', f=f'{d}(fake.detach())')}")
        if self.draw.chance(0.4):
            self.draw.trait("gradient penalty")
            self.chunk("mixed = (0.4 * x + 0.6 * fake.detach()).requires_grad_()", f"(g,) = grad({d}(mixed).sum(), [mixed], create_graph=True)",
                       "loss = loss + (g.norm(dim=1) - 1.0).square().mean()")
        self.backward("loss", [opt_d], [d])
        if again:
            self.chunk(f"fake = {g}(z)")
        self.chunk(f"loss_g = {loss_g.format(f=f'{d}(fake)')}")
        self.backward("loss_g", [opt_g], [g])
        if self.draw.chance(0.5):
            self.chunk(f"{d}.zero_grad()")
        self.after.append(["note('loss of G', loss_g)"])

    def accumulated(self) -> None:
        (net,) = self.net(self.takes, self.n)
        opt = self.optimizer([net])
        parts = self.draw.int(2, 4)
        # a power of two, which rounds nothing: see `loss`
        share = 2 if parts == 2 else 4
        self.chunk(f"{opt}.zero_grad()", "total = 0.0")
        self.chunk(
            f"for j in range({parts}):", f"    x = {self.data(' + 17 * j')}", f"    loss = {self.loss(f'{net}(x)', self.n)} / {share}",
            "    loss.backward()", self.draw.of(("    total = total + loss.detach()", "    total += float(loss)", "    total = total + loss")),
        )
        self.chunk(f"if k == {self.count - 1}:", f"    note_gradients('{net}', {net})")
        if self.draw.chance(0.3):
            self.chunk(f"nn.utils.clip_grad_norm_(list({net}.parameters()), 1.0)")
        self.chunk("loss = total + torch.zeros((), dtype=D)", f"{opt}.step()")

    def penalty(self) -> None:
        (net,) = self.net(self.takes, self.draw.of((1, self.n)))
        opt = self.optimizer([net])
        width = self.nets[-1][1]
        self.chunk(f"x = {self.data()}.requires_grad_()")
        self.chunk(f"y = {net}(x)")
        of = self.draw.of(("y.sum()", "y.square().sum()", "y[:, 0].sum()"))
        self.chunk(f"(g,) = grad({of}, [x], create_graph=True)")
        penalty = self.draw.of(("g.square().sum() / x.shape[0]", "(g.reshape(x.shape[0], -1).norm(dim=1) - 1.0).square().mean()", "g.abs().mean()"))
        self.chunk(f"loss = {self.loss('y', width)} + {self.draw.number(0.1, 2)} * {penalty}")
        self.backward("loss", [opt], [net])

    def inner_steps(self) -> None:
        """Steps on weights that are values, whose own gradients are taken (Finn et al., 2017)."""
        n, m = self.n, self.draw.of(WIDTHS)
        seeds = [self.draw.fresh_seed() for _ in range(3)]
        self.takes = (n,)
        self.setup.add(f"ws = [parameter({seeds[0]}, 'a', {n}, {m}, dtype=D), parameter({seeds[1]}, 'b', {m}, dtype=D), parameter({seeds[2]}, 'c', {m}, {n}, dtype=D)]")
        self.head += ["", "", "def f(x, ws):", "    return torch.tanh(x @ ws[0] + ws[1]) @ ws[2]"]
        opt = self.draw.name("opt")
        self.setup.add(f"{opt} = optim.{self.draw.of(OPTIMIZERS).format(p='ws')}")
        self.optimizers.append((opt, []))
        self.chunk(f"x, t = {self.data()}, {self.numbers(n)}")
        self.chunk("fast = ws")
        self.chunk(
            f"for j in range({self.draw.int(1, 4)}):", "    inner = F.mse_loss(f(x, fast), t)",
            f"    gs = grad(inner, fast, create_graph={self.draw.of((True, True, False))})",
            "    fast = [w - 0.1 * g for w, g in zip(fast, gs)]",
        )
        self.chunk(f"loss = F.mse_loss(f({self.data()}, fast), t)")
        self.chunk(f"{opt}.zero_grad()")
        self.chunk("loss.backward()")
        self.chunk(f"{opt}.step()")
        self.end += ["for w in ws:", "    note('w', w)"]

    def lbfgs(self) -> None:
        (net,) = self.net(self.takes, self.n)
        search = self.draw.of(("", ', line_search_fn="strong_wolfe"'))
        self.setup.add(f"opt = optim.LBFGS(list({net}.parameters()), lr=0.2, max_iter={self.draw.int(1, 4)}, history_size=3{search})")
        self.optimizers.append(("opt", []))
        self.chunk(f"x, t = {self.data()}, {self.numbers(self.n)}")
        self.chunk(f"loss = lbfgs_step(opt, lambda: F.mse_loss({net}(x), t))")

    def alternating(self) -> None:
        (one,) = self.net(self.takes, self.n)
        (two,) = self.net((self.n,), self.n)
        a, b = self.optimizer([one]), self.optimizer([two])
        self.chunk(f"x = {self.data()}")
        self.chunk(f"loss = {self.loss(f'{two}({one}(x))', self.n)}")
        self.chunk("loss.backward()")
        if self.draw.chance(0.5):
            self.chunk(f"if k % 2 == 0:", f"    {a}.step()", "else:", f"    {b}.step()")
            self.chunk(f"{a}.zero_grad()", f"{b}.zero_grad()")
        else:
            self.chunk(f"{a}.step()")
            self.chunk(f"if k % 2 == 1:", f"    {b}.step()")

    def two_losses(self) -> None:
        (base,) = self.net(self.takes, self.n)
        (one,) = self.net((self.n,), self.n)
        (two,) = self.net((self.n,), self.n)
        opts = [self.optimizer([base, one]), self.optimizer([two])] if self.draw.chance(0.5) else [self.optimizer([one]), self.optimizer([two, base])]
        self.chunk(f"x = {self.data()}", f"y = {base}(x)")
        self.chunk(f"value = {one}(y)")
        self.chunk(f"policy = {two}({self.draw.of(('y', 'y.detach()', 'torch.tanh(y)'))})")
        self.chunk(f"first = {self.loss('value', self.n)}")
        self.chunk(f"loss = {self.loss(self.draw.of(('policy * value.detach()', 'policy', 'policy - value')), self.n)}")
        self.chunk("first.backward(retain_graph=True)")
        self.backward("loss", opts, [base, one, two])

    def teacher(self) -> None:
        student, teacher = self.net(self.takes, self.n, copies=2)
        opt = self.optimizer([student])
        self.chunk(f"x = {self.data()}")
        self.chunk("with torch.no_grad():", f"    target = {teacher}(x)")
        self.chunk(f"y = {student}(x)")
        self.chunk(f"loss = F.mse_loss(y, target) + {self.loss('y', self.n)}")
        self.backward("loss", [opt], [student])
        self.chunk(f"for p, q in zip({teacher}.parameters(), {student}.parameters()):", "    assign(p, 0.8 * p.detach() + 0.2 * q.detach())")

    def stateful(self) -> None:
        """A state goes from step to step, without its history."""
        (net,) = self.net((self.n,), self.n)
        (reader,) = self.net(self.takes, self.n)
        opt = self.optimizer([net, reader])
        self.setup.add(f"state = torch.zeros({self.batch}, {self.n}, dtype=D)")
        self.chunk(f"x = {self.data()}")
        self.chunk(f"seen = {reader}(x)")
        self.chunk(
            f"for t in range({self.draw.int(1, 5)}):", f"    state = torch.tanh({net}(state) + seen)",
        )
        self.chunk(f"loss = {self.loss('state', self.n)}")
        self.backward("loss", [opt], [net, reader])
        self.chunk(self.draw.of(("state = state.detach()", "state = 0.5 * state.detach()")))
        self.end.append("note('state', state)")

    def replay(self) -> None:
        """Inputs and results of earlier steps come back."""
        (net,) = self.net(self.takes, self.n)
        opt = self.optimizer([net])
        self.setup.add("memory = []")
        self.chunk(f"x = {self.data()}")
        self.chunk(f"y = {net}(x)")
        self.chunk(f"loss = {self.loss('y', self.n)}")
        self.chunk("if memory:", "    old_x, old_y = memory[(3 * k) % len(memory)]", f"    loss = loss + F.mse_loss({net}(old_x), old_y)")
        self.backward("loss", [opt], [net])
        self.chunk("memory.append((x, y.detach()))", f"memory = memory[-{self.draw.int(1, 4)}:]")

    def by_hand(self) -> None:
        (net,) = self.net(self.takes, self.n)
        self.setup.add(f"ps = list({net}.parameters())")
        self.setup.add("ms = [torch.zeros_like(p).detach() for p in ps]")
        self.chunk(f"x = {self.data()}")
        self.chunk(f"loss = {self.loss(f'{net}(x)', self.n)}")
        if self.draw.chance(0.5):
            self.chunk("loss.backward()", "gs = [torch.zeros_like(p) if p.grad is None else p.grad for p in ps]", "for p in ps:", "    p.grad = None")
        else:
            self.chunk("gs = grad(loss + 0.0 * sum(p.sum() for p in ps), ps)")
        self.chunk(
            "with torch.no_grad():", "    for i, (p, g) in enumerate(zip(ps, gs)):", "        ms[i] = 0.9 * ms[i] + g",
            "        assign(p, p - 0.02 * ms[i])",
        )

    def compiled(self) -> None:
        (net,) = self.net(self.takes, self.n)
        nets = [net]
        lines = [f"y = {net}(x)"]
        if self.draw.chance(0.4):
            (more,) = self.net((self.n,), self.n)
            nets.append(more)
            lines.append(f"y = {more}(y)")
        opts = [self.optimizer(nets)] if self.draw.chance(0.6) else [self.optimizer([net]) for net in nets]
        losses = ("F.mse_loss(y, t)", "0.0078125 * F.l1_loss(y, t, reduction='sum')", "(y * t).mean() + y.square().mean()")
        lines.append(f"loss = {self.draw.of(losses)}")
        lines.append("loss.backward()")
        if self.draw.chance(0.3):
            lines.append(f"nn.utils.clip_grad_norm_(list({net}.parameters()), 0.5)")
        lines += [f"{opt}.step()" for opt in opts]
        self.setup.add("")
        with self.setup.block("def step(x, t):"):
            for line in lines:
                self.setup.add(line)
            self.setup.add("return loss.detach(), y.detach()")
        self.setup.add("")
        self.setup.add("step = compiled(step)")
        self.chunk(f"loss, y = step({self.data()}, {self.numbers(self.n)})")

    # what is done beside

    def beside(self) -> None:
        """Draws what a program does beside its kind's step."""
        draw = self.draw
        for name, weight in BESIDE.items():
            if draw.chance(weight):
                getattr(self, name)()

    def schedule(self) -> None:
        opts = [name for name, nets in self.optimizers if nets]
        if not opts:
            return
        self.draw.trait("schedule")
        opt, name = self.draw.of(opts), self.draw.name("rate")
        self.setup.add(f"{name} = {self.draw.of(SCHEDULERS).format(o=opt)}")
        self.after.append([f"{name}.step()"])

    def average(self) -> None:
        if not self.nets:
            return
        self.draw.trait("average")
        net, name = self.draw.of(self.nets)[0], self.draw.name("ema")
        self.setup.add(f"{name} = [p.detach().clone() for p in {net}.parameters()]")
        if self.draw.chance(0.5):
            self.after.append([f"{name} = [0.9 * e + 0.1 * p.detach() for e, p in zip({name}, {net}.parameters())]"])
        else:
            self.after.append([f"for e, p in zip({name}, {net}.parameters()):", "    e *= 0.9", "    e += 0.1 * p.detach()"])
        self.end += [f"for e in {name}:", f"    note('{name}', e)"]

    def history(self) -> None:
        self.draw.trait("history")
        name = self.draw.name("history")
        self.setup.add(f"{name} = []")
        what = self.draw.of(("loss", "loss.detach()", "float(loss)", "2.0 * loss"))
        self.after.append([f"{name}.append({what})"])
        self.end += [f"note('{name}', sum({name}) / len({name}))"]

    def evaluate(self) -> None:
        if not self.nets or self.kind == "inner_steps":
            return
        self.draw.trait("evaluated")
        net = self.nets[0][0]
        takes = "z" if self.kind == "gan" else "x"
        if self.kind in ("compiled", "stateful"):
            return
        self.after.append([
            f"{net}.eval()", "with torch.no_grad():", f"    seen = {net}({takes})", self.draw.of(("    note('evaluated', seen.mean())", "    note('evaluated', seen)", "    pass")),
            f"{net}.train()",
        ])

    def rollback(self) -> None:
        if not self.nets:
            return
        self.draw.trait("rollback")
        net = self.nets[0][0]
        at = self.draw.int(0, max(0, self.count - 3))
        # PyTorch's changes with the module, Remat's is a snapshot
        self.setup.add(f"saved = {{name: v.clone() for name, v in {net}.state_dict().items()}}")
        self.after.append([
            f"if k == {at}:", f"    saved = {net}.state_dict()", "    saved = {name: v.clone() for name, v in saved.items()}",
            f"if k == {at + 1}:", f"    {net}.load_state_dict(saved)",
        ])

    def rate_set(self) -> None:
        opts = [name for name, nets in self.optimizers if nets]
        if opts:
            self.draw.trait("rate set")
            self.after.append([f"if k == 1:", f"    {self.draw.of(opts)}.param_groups[0]['lr'] = 0.007"])

    def freeze(self) -> None:
        # PyTorch's `grad` refuses parameters that are frozen
        asks = any(line.startswith("gs = grad(") for chunk in self.chunks for line in chunk)
        if self.nets and not asks and self.kind not in ("penalty", "lbfgs"):
            self.draw.trait("frozen")
            net = self.nets[-1][0]
            other = "" if len(self.nets) > 1 and self.kind not in ("gan", "alternating", "two_losses", "teacher") else "next(iter("
            # a gradient from before: PyTorch's optimiser moves by it what is frozen by then, Remat's does not
            reset = f"{net}.zero_grad()"
            if other:
                self.chunks.insert(0, [reset, f"next(iter({net}.parameters())).requires_grad = k % 2 == 0"])
            else:
                self.chunks.insert(0, [reset, f"{net}.requires_grad_(k % 2 == 0)"])

    def new_optimizer(self) -> None:
        opts = [(name, nets) for name, nets in self.optimizers if nets]
        if opts:
            self.draw.trait("new optimiser")
            name, nets = self.draw.of(opts)
            p = " + ".join(f"list({net}.parameters())" for net in nets)
            self.after.append([f"if k == {self.draw.int(0, 2)}:", f"    {name} = optim.{self.draw.of(self.kinds_for(nets)).format(p=p)}"])

    def kept_values(self) -> None:
        """Values with their graphs live until the end."""
        if self.kind in ("supervised", "teacher", "replay", "two_losses", "penalty"):
            self.draw.trait("kept")
            self.after.append([self.draw.of(("keep('y', y)", "keep('loss', loss)", "keep('y', y * 2.0)", "kept = y"))])

    def interrupted(self) -> None:
        """An exception somewhere in a step, after which the loop goes on."""
        if self.kind in ("compiled", "lbfgs", "stateful") or not self.optimizers:
            return
        self.draw.trait("interrupted")
        at = self.draw.int(1, max(1, len(self.chunks) - 1))
        if self.draw.chance(0.6):
            head, raised = "except KeyError:", f"    raise KeyError('drawn')"
        else:
            head, raised = "except SHAPE_ERROR:", "    torch.zeros(2, 3, dtype=D) + torch.zeros(4, dtype=D)"
        step = [line for chunk in [*self.chunks[:at], [f"if k == {self.draw.int(0, self.count - 1)}:", raised], *self.chunks[at:]] for line in chunk]
        zeros = [f"    {net}.zero_grad()" for net, _ in self.nets] or [f"    {name}.zero_grad()" for name, _ in self.optimizers]
        self.chunks = [["try:", *("    " + line for line in step), head, *zeros, "    continue"]]

    # the whole

    @property
    def text(self) -> str:
        """The program."""
        getattr(self, self.kind)()
        self.beside()
        loop = Lines()
        with loop.block(f"for k in steps({self.count}):"):
            for line in self.sizes():
                loop.add(line)
            for chunk in self.chunks:
                for line in chunk:
                    loop.add(line)
            if self.draw.chance(0.8):
                loop.add(self.draw.of(("note('loss', loss)", "note('loss', loss.detach())", "keep('loss', loss)", "note('loss', float(loss))")))
            self.draw.random.shuffle(self.after)
            for chunk in self.after:
                for line in chunk:
                    loop.add(line)
        end = [*self.end, *(f"note_all('{net}', {net})" for net, _ in self.nets)]
        lines = [*self.head, "", "", *self.setup.lines, *loop.lines, *end]
        if any(name in line for line in lines for name in ("Scaled.", "Bent.", "Squared.", "Halves.")):
            lines = [*FUNCTIONS.rstrip().split("\n"), *lines]
        return "\n".join(["D = " + ("F32" if self.is_single else "F64"), *lines]) + "\n"


BESIDE: Dict[str, float] = {
    "schedule": 0.3, "average": 0.25, "history": 0.3, "evaluate": 0.25, "rollback": 0.12, "rate_set": 0.12, "freeze": 0.12,
    "new_optimizer": 0.1, "kept_values": 0.2, "interrupted": 0.15,
}
