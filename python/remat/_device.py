"""Reports of a device, as text and in notebooks."""
import html
import json
from typing import Any, Dict, List, Tuple

from ._remat import Device
from ._support import size_text
from ._trace import trace


class MemoryReport:
    """The use of a device's memory and time since it was opened or `reset_peak` was called.

    `str` of it is a table; in notebooks it shows as one with bars.

    Attributes:
        stats: counters by name: `peak_bytes`, `budget_bytes`, `evictions`, `recomputed_ops`, and others.
        peak_by_kind: pairs of a kind (`parameters`, `activations`) and its bytes at the peak, largest first.
        peak_by_op: pairs of an operator and the bytes that it made, at the peak.
        recomputed: triples of an operator, the number of times it ran again, and the time in nanoseconds.

    >>> import remat
    >>> device = remat.Device(budget="16MiB")
    >>> x = remat.ones(1024, device=device) + 1
    >>> report = device.report()
    >>> report.stats["budget_bytes"], report.peak_by_op[0][0]
    (16777216, 'add')
    """

    def __init__(self, text: str, facts: Dict[str, Any]):
        self.text = text
        self.stats: Dict[str, Any] = facts["stats"]
        self.peak_by_kind: List[Tuple[str, int]] = [(h["name"], h["bytes"]) for h in facts["peak_by_kind"]]
        self.peak_by_op: List[Tuple[str, int]] = [(h["name"], h["bytes"]) for h in facts["peak_by_op"]]
        self.recomputed: List[Tuple[str, int, int]] = [(o["op"], o["count"], o["time_ns"]) for o in facts["recomputed"]]

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def _bars(self, title: str, holders: List[Tuple[str, int]]) -> str:
        peak = max(self.stats["peak_bytes"], 1)
        rows = []
        for name, size in holders[:8]:
            share = 100 * size / peak
            bar = (
                f'<div style="background:#4a7fb5;height:0.8em;width:{max(share, 0.5):.1f}%"></div>'
            )
            rows.append(
                f'<tr><td style="text-align:left">{html.escape(name)}</td><td style="text-align:right">{size_text(size)}</td>'
                f'<td style="text-align:right">{share:.1f} %</td><td style="width:16em">{bar}</td></tr>'
            )
        return f"<h4>{title}</h4><table>{''.join(rows)}</table>"

    def _repr_html_(self) -> str:
        """For notebooks: budget and peak, the values that held memory at the peak, and the values that were evicted and
        computed again."""
        s = self.stats
        budget = "unlimited" if s["budget_bytes"] is None else size_text(s["budget_bytes"])
        head = f"<b>Budget {budget}, peak {size_text(s['peak_bytes'])}</b>"
        total = s["executed_ns"] + s["recomputed_ns"]
        share = 100 * s["recomputed_ns"] / total if total else 0.0
        tail = (
            f"<p>{s['evictions']} evictions ({size_text(s['evicted_bytes'])}); {s['recomputed_ops']} operations ran again of "
            f"{s['executed_ops']}, {share:.1f} % of the compute time</p>"
        )
        bars = self._bars("At the peak, by kind", self.peak_by_kind) + self._bars("At the peak, by operator", self.peak_by_op)
        return f"<div>{head}{bars}{tail}</div>"


def report(device: Device) -> MemoryReport:
    """A report of the memory at the peak, and of values that were evicted and computed again. Waits for the device.

    >>> import remat
    >>> print(remat.Device(budget="16MiB").report())  # doctest: +ELLIPSIS
    Memory report
      budget 16.0 MiB, peak 0 B, reserved ...
    """
    text, facts = device._report()
    return MemoryReport(text, json.loads(facts))


def install() -> None:
    """Gives `Device` its methods."""
    Device.report = report  # type: ignore[method-assign, assignment]
    Device.trace = trace  # type: ignore[method-assign]
