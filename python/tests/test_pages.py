"""Each name of `remat` in the tables of the pages for those who come from elsewhere is there, and the pages' programs run."""
import pathlib
import re

import pytest

import remat

PAGES = pathlib.Path(__file__).parents[2] / "docs" / "src"
NAMES = re.compile(r"`(remat(?:\.\w+)+)`")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
FOLDER = {"from_pytorch.md": 60, "from_megengine.md": 60}


def page(name):
    path = PAGES / name
    if not path.exists():
        pytest.skip("not in a clone of the repository")
    return path.read_text()


@pytest.mark.parametrize("name", FOLDER)
def test_every_name_is_there(name):
    rows = [line for line in page(name).splitlines() if line.startswith("|")]
    found = {n for row in rows for n in NAMES.findall(row)}
    assert len(found) >= FOLDER[name]
    lacking = []
    for full in sorted(found):
        at = remat
        for part in full.split(".")[1:]:
            at = getattr(at, part, None)
        if at is None:
            lacking.append(full)
    assert not lacking


@pytest.mark.parametrize("name", FOLDER)
def test_the_programs_run(name, capsys):
    blocks = BLOCK.findall(page(name))
    assert blocks
    before = remat.get_default_device()
    try:
        for block in blocks:
            exec(compile(block, name, "exec"), {"__name__": "book"})
    finally:
        remat.set_default_device(before)
    assert capsys.readouterr().out
