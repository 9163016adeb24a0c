"""Recordings of the work of a device over time, as a file for Perfetto and as a picture in notebooks."""
import html
import json
import os
from typing import Any, Dict, List, Optional, Tuple, Union

from ._remat import Device
from ._support import size_text

# the names and colours of a recording's lanes in the picture
_LANES = [
    ("execution", "compute", "#4a7fb5"),
    ("recomputation", "computed again", "#d9822b"),
    ("memory", "evicted", "#b0413e"),
    ("communication", "communication", "#5a9367"),
]
_WIDTH, _LABELS, _HEIGHT, _LANE = 720, 110, 120, 18


class Trace:
    """A recording of a device, which `device.trace()` makes. In notebooks it shows as a timeline.

    Attributes:
        events: the recorded events in Chrome's trace event format (times in microseconds).
        budget_bytes: the budget, or None.
        memory: pairs of a time in microseconds and the bytes in use from then on.

    >>> import remat
    >>> device = remat.Device(budget="16MiB")
    >>> with device.trace() as trace:
    ...     total = (remat.ones(1024, device=device) * 2).sum().item()
    >>> sorted({e["name"] for e in trace.events if e.get("cat") == "execution"})
    ['fill', 'mul', 'sum']
    """

    def __init__(self, device: Device):
        self._device = device
        self._text = ""
        self.events: List[Dict[str, Any]] = []
        self.budget_bytes: Optional[int] = None
        self.memory: List[Tuple[float, int]] = []

    def __enter__(self) -> "Trace":
        self._device._start_trace()
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        try:
            self._text = self._device._stop_trace()
        except Exception:
            # an exception that ended the block says more than a failure of work that it left queued
            if kind is None:
                raise
            return
        facts = json.loads(self._text)
        self.events = facts["traceEvents"]
        self.budget_bytes = facts["otherData"]["budget_bytes"]
        self.memory = [(e["ts"], e["args"]["in use"]) for e in self.events if e["ph"] == "C"]

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes the recording as JSON, which https://ui.perfetto.dev and chrome://tracing open. Errors: OSError.

        >>> import remat, tempfile, os
        >>> with remat.get_default_device().trace() as trace:
        ...     remat.ones(2).wait()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     trace.save(os.path.join(folder, "trace.json"))
        """
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._text)

    def _spans(self) -> List[Dict[str, Any]]:
        return [e for e in self.events if e["ph"] == "X" and e["cat"] != "dispatch"]

    def __repr__(self) -> str:
        spans = self._spans()
        again = sum(e["cat"] == "recomputation" for e in spans)
        peak = max((b for _, b in self.memory), default=0)
        return f"Trace({len(spans)} operations, {again} of them again, peak {size_text(peak)})"

    def _repr_html_(self) -> str:
        """A picture of the bytes in use over time with the budget, and below it of the work that ran."""
        spans = self._spans()
        times = [t for t, _ in self.memory] + [e["ts"] for e in spans] + [e["ts"] + e["dur"] for e in spans]
        if not times:
            return "<p>nothing ran</p>"
        begin, end = min(times), max(times)
        scale = (_WIDTH - _LABELS) / max(end - begin, 1e-9)
        lanes = [lane for lane in _LANES if any(e["cat"] == lane[0] for e in spans)]
        height = _HEIGHT + _LANE * len(lanes) + 24
        parts = [self._curve(begin, end, scale)]
        for row, (category, label, colour) in enumerate(lanes):
            y = _HEIGHT + 8 + row * _LANE
            parts.append(f'<text x="0" y="{y + 12}">{label}</text>')
            parts.append(_bars([e for e in spans if e["cat"] == category], begin, scale, y, colour))
        parts.append(f'<text x="{_LABELS}" y="{height - 4}">0 ms</text>')
        parts.append(f'<text x="{_WIDTH}" y="{height - 4}" text-anchor="end">{(end - begin) / 1e3:.2f} ms</text>')
        style = "font: 11px sans-serif; background: white"
        head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" style="{style}">'
        return f"{head}{''.join(parts)}</svg>"

    def _curve(self, begin: float, end: float, scale: float) -> str:
        peak = max((b for _, b in self.memory), default=0)
        top = max(peak, self.budget_bytes or 0, 1)
        y = lambda bytes_: _HEIGHT - bytes_ / top * (_HEIGHT - 16)  # noqa: E731
        points, in_use, last = [f"{_LABELS},{_HEIGHT}"], 0, None
        for at, now in self.memory:
            x = round(_LABELS + (at - begin) * scale, 1)
            # only the largest of all changes within a tenth of a pixel is drawn, so that no peak is lost
            if x == last:
                points[-1] = f"{x},{y(max(in_use, now)):.1f}"
            else:
                points += [f"{x},{y(in_use):.1f}", f"{x},{y(now):.1f}"]
            in_use, last = now, x
        points += [f"{_WIDTH},{y(in_use):.1f}", f"{_WIDTH},{_HEIGHT}"]
        curve = f'<polygon points="{" ".join(points)}" fill="#c9d9e8" stroke="#4a7fb5" stroke-width="0.5"/>'
        labels = f'<text x="0" y="{y(peak) + 4:.1f}">peak {size_text(peak)}</text>'
        if self.budget_bytes is not None:
            at = y(self.budget_bytes)
            labels += (
                f'<line x1="{_LABELS}" x2="{_WIDTH}" y1="{at:.1f}" y2="{at:.1f}" stroke="#b0413e" stroke-dasharray="4 3"/>'
                f'<text x="{_WIDTH}" y="{at - 3:.1f}" text-anchor="end">budget {size_text(self.budget_bytes)}</text>'
            )
        return curve + labels


def _bars(spans: List[Dict[str, Any]], begin: float, scale: float, y: float, colour: str) -> str:
    """Spans as bars. Spans too close to distinguish are drawn as one."""
    bars: List[Tuple[float, float, str]] = []
    for e in sorted(spans, key=lambda e: e["ts"]):
        start = _LABELS + (e["ts"] - begin) * scale
        stop = start + max(e["dur"] * scale, 0.3)
        if bars and start - bars[-1][1] < 0.3:
            bars[-1] = (bars[-1][0], max(bars[-1][1], stop), "")
        else:
            bars.append((start, stop, f'{e["name"]}, {e["dur"]:.0f} us'))
    height = _LANE - 6
    title = lambda text: f"<title>{html.escape(text)}</title>" if text else ""  # noqa: E731
    return "".join(
        f'<rect x="{a:.1f}" y="{y}" width="{b - a:.1f}" height="{height}" fill="{colour}">{title(t)}</rect>' for a, b, t in bars
    )


def trace(device: Device) -> Trace:
    """Records the work of the device within a `with` block, and the bytes in use. Only one recording runs at a time.

    >>> import remat
    >>> device = remat.Device()
    >>> with device.trace() as trace:
    ...     remat.ones(4, device=device).wait()
    >>> trace
    Trace(1 operations, 0 of them again, peak 64 B)
    """
    return Trace(device)
