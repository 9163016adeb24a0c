"""The programs that book and README show run as they stand."""
import pathlib
import re

import pytest

import remat

ROOT = pathlib.Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


@pytest.mark.parametrize("page", ["docs/src/python.md", "docs/src/array_api.md", "python/README.md"])
def test_programs_run(page, capsys):
    path = ROOT / page
    if not path.exists():
        pytest.skip("not in a clone of the repository")
    before = remat.get_default_device()
    blocks = BLOCK.findall(path.read_text())
    assert blocks
    try:
        for block in blocks:
            exec(compile(block, str(path), "exec"), {"__name__": "book"})
    finally:
        remat.set_default_device(before)
    assert capsys.readouterr().out
