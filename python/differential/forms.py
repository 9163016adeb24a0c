"""The forms in which a program is run under Remat, beside the plain one: its values must be the same bits in all of them.

A form is a dictionary: options of the device, `share` for a budget in percent of the program's own peak, `least` for a budget just
above what an error names, `compiled` for a step that is compiled. It is drawn from the program's seed, so that a program that is
shrunk is still run in the form that failed.
"""
import random
from typing import Any, Dict, List

from .generate import Program

Form = Dict[str, Any]

SHARES = (100, 90, 75, 50, 33)
ASYNC_LEVELS = ("sync", "launched", "full")
FORESIGHT = ("off", "beside", "at_once")
UNBUDGETED: List[Form] = [
    {"async_level": "sync"}, {"async_level": "launched"}, {"threads": 2}, {"always_record": True, "foresight": "at_once"},
]


def forms_of(program: Program) -> List[Form]:
    """The forms of a program: two without a budget, one for each share with other options, two that must end alike, and more where its
    step is compiled."""
    draw = random.Random(program.seed + 1)
    forms = draw.sample(UNBUDGETED, 2)
    if program.kind == "compiled":
        forms += [{"compiled": True}, *({"compiled": True, "share": share} for share in (75, 50))]
    for share in SHARES:
        form = {"share": share, "foresight": draw.choice(FORESIGHT), "async_level": draw.choice(ASYNC_LEVELS)}
        forms.append({**form, "threads": 2} if draw.random() < 0.15 else form)
    # whether a budget suffices depends on program and budget alone, so these two end alike
    share = draw.choice((85, 70, 60, 40))
    forms += [{"share": share, "foresight": "off", "async_level": level} for level in ("sync", "full")]
    forms.append({"least": True, "foresight": draw.choice(FORESIGHT), "async_level": draw.choice(ASYNC_LEVELS)})
    return forms


def name_of(form: Form) -> str:
    """A form in words."""
    words = []
    if form.get("compiled"):
        words.append("compiled")
    if "share" in form:
        words.append(f"{form['share']} % of its peak")
    if form.get("least"):
        words.append("just above the least")
    words += [str(form[key]) for key in ("async_level",) if key in form]
    if "foresight" in form:
        words.append(f"foresight {form['foresight']}")
    if form.get("always_record"):
        words.append("always recorded")
    if "threads" in form:
        words.append(f"{form['threads']} threads")
    return ", ".join(words) or "plain"
