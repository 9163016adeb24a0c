"""What PyTorch has and the package has not under the same name, for the page for those who come from PyTorch.

    python python/tests/pytorch_names.py      writes the part of docs/src/from_pytorch.md, which a test compares with this
"""
import inspect
import pathlib
import re
import textwrap

import remat

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "src" / "from_pytorch.md"
BETWEEN = re.compile(r"(?<=<!-- pytorch-names -->\n).*?(?=<!-- /pytorch-names -->)", re.S)

# PyTorch's module: where its names would be here
HOMES = {
    "torch": remat, "torch.Tensor": remat.Tensor, "torch.nn": remat.nn, "torch.nn.functional": remat.nn.functional,
    "torch.nn.init": remat.nn.init, "torch.nn.utils": remat.nn.utils, "torch.optim": remat.optim,
    "torch.optim.lr_scheduler": remat.optim.lr_scheduler,
}
# every layer with parameters takes a device and a dtype, and none works in place
NOT_COMPARED = ("self", "device", "dtype", "inplace")


def version():
    """PyTorch's version without the last number, which adds no names."""
    import torch

    return ".".join(torch.__version__.split(".")[:2])


def public(module):
    """The documented names of a module of PyTorch, without those in place and what the module only imports."""
    import torch

    of = torch
    for part in module.split(".")[1:]:
        of = getattr(of, part)
    of = of if module != "torch.Tensor" else torch.Tensor
    names = []
    for name in sorted(n for n in dir(of) if not n.startswith("_")):
        value = getattr(of, name, None)
        is_wanted = isinstance(value, type) if module in ("torch.nn", "torch.optim", "torch.optim.lr_scheduler") else (
            callable(value) and not isinstance(value, type)
        ) or module == "torch.Tensor"
        # of initialisers and clipping the name without the line is the deprecated one
        in_place = name.endswith("_")
        if module in ("torch.nn.init", "torch.nn.utils"):
            in_place = hasattr(of, f"{name}_")
        from_here = getattr(value, "__module__", None) or module
        is_own = from_here.startswith("torch") and not from_here.startswith(("torch.overrides", "torch._jit_internal"))
        is_own = is_own and not name.startswith("has_torch_function")
        if is_wanted and is_own and not in_place and (inspect.getdoc(value) or "").strip():
            names.append(name)
    return names


def absent():
    """By module of PyTorch: the names that have no namesake here, and how many there are."""
    found = {}
    for module, home in HOMES.items():
        names = public(module)
        found[module] = [n for n in names if not hasattr(home, n)], len(names)
    return found


def arguments():
    """By layer: the arguments of PyTorch's that the layer of the same name does not take; layers that take any are left out."""
    import torch

    found = {}
    for name in public("torch.nn"):
        if hasattr(remat.nn, name):
            theirs, own = (inspect.signature(getattr(of, name)).parameters.values() for of in (torch.nn, remat.nn))
            if not any(p.kind == p.VAR_KEYWORD for p in own):
                taken = {p.name for p in own} | set(NOT_COMPARED)
                lacking = [p.name for p in theirs if p.name not in taken and not p.name.startswith("_") and p.kind not in (
                    p.VAR_POSITIONAL, p.VAR_KEYWORD
                )]
                if lacking:
                    found[name] = lacking
    return found


def written():
    """What stands between the marks of the page."""
    lines = [f"Documented names of PyTorch {version()}, without those in place, that have no namesake here:", ""]
    for module, (names, count) in absent().items():
        lines += [f"* `{module}`, {len(names)} of {count}: " + ", ".join(f"`{n}`" for n in names) + "."]
    lines += ["", "Arguments of layers that the layer of the same name does not take:", ""]
    lines += ["* " + "; ".join(f"`{name}`: " + ", ".join(f"`{a}`" for a in of) for name, of in arguments().items()) + "."]
    wrapped = [
        textwrap.fill(line, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) for line in lines
    ]
    return "\n".join(wrapped) + "\n"


if __name__ == "__main__":
    PAGE.write_text(BETWEEN.sub(lambda _: written(), PAGE.read_text()))
