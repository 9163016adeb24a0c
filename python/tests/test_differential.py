"""Programs that nobody thought of give the same bits in every form: `python -m differential`, for some minutes of fixed seeds."""
import json
import pathlib

import numpy as np
import pytest

pytest.importorskip("numpy")
differential = pytest.importorskip("differential", reason="not in a clone of the repository")

from differential import __main__ as command  # noqa: E402
from differential.check import Checker  # noqa: E402
from differential.compare import compare_forms, compare_torch, compare_verdicts  # noqa: E402
from differential.generate import Program, draw_program, read_program  # noqa: E402
from differential.networks import RULES  # noqa: E402
from differential.run import IMPORTS, Outcome, source_for  # noqa: E402
from differential.shrink import shrink_while  # noqa: E402
from differential.training import BESIDE, KINDS  # noqa: E402

CASES = sorted(command.CASES.glob("*.py"))
LARGE = f"""# differential: {{"seed": 1, "kind": "supervised", "precision": "float64", "random": false}}
{IMPORTS['torch']}

net = fill(nn.Sequential(nn.Linear(8, 8, dtype=F64), nn.Tanh(), nn.Linear(8, 3, dtype=F64)), 1)
opt = optim.SGD(net.parameters(), lr=0.1)
for k in steps(4):
    y = net(normal(k, 16, 8))
    loss = y.square().mean()
    loss.backward()
    opt.step()
    if k == 3:
        note('large', torch.ones(100, 100, dtype=F64).exp().sum())
    note('loss', loss)
note_all('net', net)
"""


@pytest.fixture(scope="module")
def checker():
    with Checker(with_torch=False) as made:
        yield made


def kinds(checked):
    return {f.kind for f in checked.failures}


# what is drawn


def test_a_seed_gives_one_program():
    assert draw_program(7).source == draw_program(7).source != draw_program(8).source
    again = read_program(draw_program(7).source)
    assert (again.seed, again.kind, again.precision) == (7, draw_program(7).kind, draw_program(7).precision)
    with pytest.raises(ValueError, match="begins with"):
        read_program("import torch\n")


def test_every_kind_and_rule_is_drawn_and_is_python():
    drawn, traits = set(), set()
    for seed in range(400):
        program = draw_program(seed)
        compile(program.source, f"program {seed}", "exec")
        drawn.add(program.kind)
        traits.update(program.traits)
    assert drawn == set(KINDS) and set(RULES) <= traits, set(RULES) - traits
    assert {"schedule", "average", "history", "evaluated", "rollback", "rate set", "frozen", "new optimiser", "kept", "interrupted"} <= traits
    assert {"cell: lstm", "cell: peephole", "loop: highway", "loop: rk4", "gradient penalty", "tied", "ragged", "sparse embedding"} <= traits
    assert all(draw_program(3, kind).kind == kind for kind in KINDS) and BESIDE


def test_only_the_import_line_differs_between_frameworks():
    text = draw_program(5).source
    a, b = source_for(text, "torch").splitlines(), source_for(text, "remat").splitlines()
    assert [(x, y) for x, y in zip(a, b) if x != y] == [(IMPORTS["torch"], IMPORTS["remat"])]
    with pytest.raises(ValueError, match="has the line"):
        source_for("x = 1\n", "remat")


# what is noticed


def test_a_program_without_a_fault_passes_and_one_that_is_refused_says_so(checker):
    program = read_program(LARGE)
    forms = [{"async_level": "sync"}, {"share": 100}, {"share": 50, "foresight": "off"}]
    checked = checker.check(program, forms)
    assert checked.is_valid and not checked.failures, list(map(str, checked.failures))
    assert checked.refused == 1 and checked.ends[("50", "refused")] == 1 and checked.ends[("100", "ran")] == 1


@pytest.mark.parametrize(
    "plant, form, seen",
    [
        ("bit", {"share": 100}, "bits"), ("bit", {"share": 50}, "silent"), ("old", {"share": 100}, "bits"),
        ("swallow", {"share": 50}, "bits"), ("half", {"share": 50}, "mixed"), ("peak", {"share": 100}, "peak"),
        ("crash", {"share": 100}, "crash"), ("hang", {"share": 100}, "hang"),
    ],
)
def test_a_planted_fault_is_noticed(plant, form, seen):
    with Checker(limit_s=4.0, with_torch=False, plant=plant) as checker:
        checked = checker.check(read_program(LARGE), [form])
    assert seen in kinds(checked), list(map(str, checked.failures))


def outcome(notes, **told):
    return Outcome({"budget": 64}, {"error": None, "notes": notes, "peak_bytes": 0, **told}, "", 0.0, "")


def test_bits_are_compared_not_values():
    zero, other = [("a", np.zeros(2))], [("a", -np.zeros(2))]
    assert not compare_forms(outcome(zero), outcome(zero), {})
    assert [f.kind for f in compare_forms(outcome(zero), outcome(other), {})] == ["bits"]
    assert [f.kind for f in compare_forms(outcome(zero), outcome([]), {})] == ["bits"]
    assert [f.kind for f in compare_forms(outcome(zero), outcome([("a", np.zeros(2, "float32"))]), {})] == ["bits"]
    assert [f.kind for f in compare_forms(outcome(zero), outcome(zero, peak_bytes=65), {})] == ["peak"]
    assert [f.kind for f in compare_forms(outcome(zero), outcome(zero, compiled=[(8, 8, 1)]), {})] == ["retraced"]
    assert not compare_forms(outcome(zero), outcome(zero, compiled=[(3, 8, 1), (6, 6, 2), (4, 4, 1)]), {})


def test_ends_other_than_a_refusal_are_failures():
    for error, kind in (("PanicException", "panic"), ("PoisonedError", "poisoned"), ("ValueError", "error")):
        ended = outcome([], error={"type": error, "text": "told"}, after=[])
        assert [f.kind for f in compare_forms(outcome([]), ended, {})] == [kind]
    refused = outcome([], error={"type": "BudgetError", "text": "told"}, after=[{"optimizer": 0, "errors": [], "value": "x"}])
    assert not compare_forms(outcome([]), refused, {}, [(0, "x")])
    assert [f.kind for f in compare_forms(outcome([]), refused, {}, [(0, "y")])] == ["mixed"]
    refused.told["after"][0]["errors"] = [{"type": "BudgetError", "text": "[mul] another operation failed (at a.py:7)"}]
    assert not compare_forms(outcome([]), refused, {}, [(0, "x")])
    refused.told["after"][0]["errors"] = [{"type": "BudgetError", "text": "told"}]
    assert not compare_forms(outcome([]), refused, {}, [(0, "x")]), "ahead, the same line may fail twice"
    refused.form["async_level"] = "sync"
    assert [f.kind for f in compare_forms(outcome([]), refused, {}, [(0, "x")])] == ["told again"]
    refused.told["error"]["text"] = "[mul] step 1 was not taken: no room (at a.py:7)"
    refused.told["after"][0]["errors"] = [{"type": "BudgetError", "text": "[mul] no room (at a.py:7)"}]
    assert not compare_forms(outcome([]), refused, {}, [(0, "x")]), "the same line of the next step"
    refused.told["after"][0]["errors"] = [{"type": "PoisonedError", "text": "depends on: [mul] no room (at a.py:7)"}]
    assert [f.kind for f in compare_forms(outcome([]), refused, {}, [(0, "x")])] == ["told again"]
    refused.form.clear()
    assert [f.kind for f in compare_forms(outcome([]), refused, {})][0] == "error"
    a, b = ({"share": 50, "foresight": "off", "async_level": level} for level in ("sync", "full"))
    assert [f.kind for f in compare_verdicts([(a, outcome([])), (b, refused)])] == ["verdict"]
    assert not compare_verdicts([(a, refused), (b, refused)])


def test_values_may_be_as_far_from_pytorchs_as_rounding_is_carried():
    want, near, moved = ([("a", np.array([1.0, x]))] for x in (2.0, 2.0 + 3e-11, 2.0 + 1e-12))
    said = compare_torch(outcome(want), [outcome(moved), outcome(moved)], outcome(near), "float64")
    assert (said.compared, said.ill, said.failures) == (1, 0, [])
    far = [("a", np.array([1.0, 2.0 + 1e-9]))]
    assert [f.kind for f in compare_torch(outcome(want), [outcome(moved)], outcome(far), "float64").failures] == ["torch"]
    wild = [("a", np.array([1.0, 3.0]))]
    assert compare_torch(outcome(want), [outcome(wild)], outcome(far), "float64").ill == 1
    explodes, off = ([("a", np.array([1.0])), ("a", np.array([x])), ("a", np.array([2.0 + y]))] for x, y in ((3e5, 0.0), (3e5, 1e-6)))
    said = compare_torch(outcome(explodes), [outcome(explodes)], outcome(off), "float64")
    assert (said.compared, said.ill, said.failures) == (1, 2, [])
    named = [("b", np.array([1.0, 2.0]))]
    assert [f.kind for f in compare_torch(outcome(want), [outcome(want)], outcome(named), "float64").failures] == ["torch"]


def test_a_failing_program_loses_what_it_fails_without():
    program = Program(f"# differential: {{}}\n{IMPORTS['torch']}\nx = 12\nfor k in range(9):\n    y = x + 1\n    bad(y * 4)\n", 1, "supervised")
    small = shrink_while(program, lambda p: "bad(" in p.source, 20.0)
    assert small.source.splitlines()[2:] == ["bad(y)"]
    assert shrink_while(program, lambda p: False, 1.0).source == program.source
    filled = Program(f"# differential: {{}}\n{IMPORTS['torch']}\nnet = fill(torch.abs(Net()), 3)\nbad(net)\n", 1, "supervised")
    small = shrink_while(filled, lambda p: "bad(net" in p.source and "net = " in p.source, 20.0)
    assert small.source.splitlines()[2:] == ["net = fill(Net(), 1)", "bad(net)"]


def test_the_command_keeps_what_fails(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Checker, "plain", lambda self, program: Outcome({}, None, "crash, status -6", 0.0, "planted"))
    out = tmp_path / "counts.json"
    options = ["--count", "1", "--no-torch", "--shrink", "0", "--save", str(tmp_path / "cases"), "--json", str(out)]
    assert command.main(options) == 1 and "crash" in capsys.readouterr().out
    facts = json.loads(out.read_text())
    assert facts["programs"] == 1 and facts["failures_by_kind"] == {"crash": 1}
    program, form = command.read_case(next((tmp_path / "cases").glob("*.py")))
    assert program.seed == 0 and form == {} and program.source.count("\n") > 10


# what is run


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_case_fails_no_more(path: pathlib.Path):
    program, form = command.read_case(path)
    with Checker() as checker:
        checked = checker.check(program, [form])
    assert checked.is_valid and not checked.failures, list(map(str, checked.failures))


def test_programs_agree_in_all_forms(capsys):
    failed = command.main(["--ci", "--no-torch"])
    assert not failed, capsys.readouterr().out


def test_programs_agree_with_pytorch(capsys):
    pytest.importorskip("torch")
    # whose updates are written out, so that a rate is a number of the program
    failed = command.main(["--torch-only", "--only", "by_hand", "--count", "6"])
    said = capsys.readouterr().out
    assert not failed, said
    assert int(said.split("with PyTorch: ")[1].split()[0]) > 50, said
