"""Runs a program in a form, with limits of time and memory."""
import dataclasses
import json
import os
import pathlib
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, List, Optional

PYTHON = pathlib.Path(__file__).resolve().parents[1]
IMPORTS = {name: f"from differential.on_{name} import *" for name in ("torch", "remat")}
# what a run may take beside the arena of its device: the interpreter, NumPy, PyTorch
RESIDENT_BYTES = 3 << 30
POLL_SECONDS = 0.02
# what a worker may take until it runs a program, on a machine that does much else
START_SECONDS = 600.0


def source_for(source: str, framework: str) -> str:
    """A program's text for a framework: its import lines change, and nothing else."""
    lines = source.splitlines()
    at = [i for i, line in enumerate(lines) if line in IMPORTS.values()]
    if not at:
        raise ValueError(f"a program has the line `{IMPORTS['torch']}` or `{IMPORTS['remat']}`")
    for i in at:
        lines[i] = IMPORTS[framework]
    return "\n".join(lines) + "\n"


@dataclasses.dataclass
class Outcome:
    """What a run came to: `told` is what the program told, None if it did not come to its end; `ended` says why then."""

    form: Dict[str, Any]
    told: Optional[Dict[str, Any]]
    ended: str
    seconds: float
    log: str

    @property
    def error(self) -> Optional[Dict[str, Any]]:
        """The error that ended the program."""
        return None if self.told is None else self.told["error"]

    @property
    def is_whole(self) -> bool:
        """True if the program ran to its end without an error."""
        return self.told is not None and self.told["error"] is None

    @property
    def is_refused(self) -> bool:
        """True if the program ended because its budget could not be met."""
        return self.error is not None and self.error["type"] == "BudgetError"


class Runner:
    """Runs programs under one framework. A worker process is started when it is needed, and anew when it was lost."""

    def __init__(self, framework: str, folder: pathlib.Path):
        self.framework, self.folder = framework, folder
        self._worker: Optional[subprocess.Popen] = None

    def _started(self) -> subprocess.Popen:
        if self._worker is None or self._worker.poll() is not None:
            env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PYTHON), os.environ.get("PYTHONPATH", "")])}
            env.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
            self._worker = subprocess.Popen(
                [sys.executable, "-m", "differential.worker", self.framework], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                text=True, env=env, bufsize=1,
            )
        return self._worker

    def _answer(self, worker: subprocess.Popen, until: float) -> Optional[Dict[str, Any]]:
        """The worker's next line; None if it takes too long or the worker is gone."""
        assert worker.stdout is not None
        while time.monotonic() < until:
            if select.select([worker.stdout], [], [], POLL_SECONDS)[0]:
                line = worker.stdout.readline()
                return json.loads(line) if line else None
        return None

    def run(self, source: str, form: Dict[str, Any], limit_s: float) -> Outcome:
        """Runs a program in a form; it hangs, and is ended, after `limit_s` seconds of processor time, or as many in which
        none of its threads could run: what other programs of the machine use up does not count."""
        form = {**form, "framework": self.framework}
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            paths = {name: os.path.join(place, name) for name in ("program", "result", "log")}
            pathlib.Path(paths["program"]).write_text(source_for(source, self.framework))
            worker = self._started()
            assert worker.stdin is not None
            worker.stdin.write(json.dumps({**paths, "form": form}) + "\n")
            first = self._answer(worker, time.monotonic() + START_SECONDS)
            if first is None:
                self.close()
                return Outcome(form, None, "lost", 0.0, "")
            start = time.monotonic()
            ended = self._watch(worker, first["pid"], limit_s)
            told = None
            if os.path.exists(paths["result"]) and ended != "hang":
                with open(paths["result"], "rb") as file:
                    try:
                        told = pickle.load(file)
                    except EOFError:
                        pass
            log = pathlib.Path(paths["log"]).read_text(errors="replace")[-3000:] if os.path.exists(paths["log"]) else ""
            return Outcome(form, told, ended, time.monotonic() - start, log)

    def _watch(self, worker: subprocess.Popen, pid: int, limit_s: float) -> str:
        """Waits for a run, and ends it beyond its limits. How it ended."""
        assert worker.stdout is not None
        ended = ""
        busy_at = time.monotonic()
        while not ended:
            if select.select([worker.stdout], [], [], POLL_SECONDS)[0]:
                break
            if _can_run(pid):
                busy_at = time.monotonic()
            if _processor_seconds(pid) > limit_s or time.monotonic() - busy_at > limit_s:
                ended = "hang"
            elif _resident_bytes(pid) > RESIDENT_BYTES:
                ended = "memory"
            if ended:
                os.kill(pid, signal.SIGKILL)
        line = worker.stdout.readline()
        if not line:
            self.close()
            return "lost"
        status = json.loads(line)["status"]
        return ended or ("" if status == 0 else f"crash, status {status}")

    def close(self) -> None:
        """Ends the worker."""
        if self._worker is not None:
            self._worker.kill()
            self._worker.wait()
            for pipe in (self._worker.stdin, self._worker.stdout):
                if pipe is not None:
                    pipe.close()
            self._worker = None


def _resident_bytes(pid: int) -> int:
    """The resident set of a process; 0 where it has ended."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def _processor_seconds(pid: int) -> float:
    """What all threads of a process have computed for; 0 where it has ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            user, system = file.read().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return 0.0


def _can_run(pid: int) -> bool:
    """True if a thread of a process runs or could: it waits for a processor or for a disk, not for another thread."""
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] in "RD":
                    return True
    except (OSError, IndexError):
        return True
    return False


def frameworks() -> List[str]:
    """The frameworks that are installed."""
    import importlib.util

    return [name for name in ("remat", "torch") if importlib.util.find_spec(name) is not None]
