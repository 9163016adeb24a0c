"""The process that runs programs: it imports a framework once, and forks for each run.

It reads a line of JSON for each run from its standard input: the program's path, the form, and the path for the result. It answers
with the child's number at once and with its status when it has ended. A run that hangs, crashes or takes too much memory ends by
itself or is ended by whoever reads the answers; the next one begins with a fresh copy of the process.
"""
import atexit
import gc
import json
import os
import pickle
import sys
import time
import traceback
from typing import Any, Callable, Dict, List, Optional

# reads after a failure: what was told is told no more, so that a few are enough
READS_AFTER = 4


def _refusal(e: BaseException, frame: Any) -> Dict[str, Any]:
    """What an error says."""
    told: Dict[str, Any] = {"type": type(e).__name__, "text": str(e)[:600], "step": len(frame.step_starts)}
    for name in ("needed_bytes", "budget_bytes", "least_bytes", "smallest_feasible_bytes"):
        if hasattr(e, name):
            told[name] = getattr(e, name)
    if not hasattr(e, "budget_bytes"):
        told["trace"] = "".join(traceback.format_exception(type(e), e, e.__traceback__)[-6:])[-3000:]
    return told


def _attempt(f: Callable[[], Any], frame: Any) -> Dict[str, Any]:
    """What `f` gives, with the errors that came before it gave anything."""
    errors: List[Dict[str, Any]] = []
    for _ in range(READS_AFTER):
        try:
            return {"errors": errors, "value": f()}
        except Exception as e:  # whatever it is, it is told
            errors.append(_refusal(e, frame))
            # a value that failed itself says so at each read
            if len(errors) > 1 and type(e).__name__ == "PoisonedError" and errors[-1] == errors[-2]:
                errors.pop()
                break
    return {"errors": errors, "value": None}


def _run(source: str, path: str, form: Dict[str, Any]) -> Dict[str, Any]:
    """Runs a program, and says what it told."""
    from . import frame as frames

    frame = frames.FRAME = frames.Frame(form)
    side = __import__(f"differential.on_{form['framework']}", fromlist=["sync"])
    result: Dict[str, Any] = {"error": None}
    start = time.perf_counter()
    error: Optional[BaseException] = None
    names: Dict[str, Any] = {"__name__": "__main__"}
    try:
        exec(compile(source, path, "exec"), names)
        frame.read_kept()
        side.sync()
    except BaseException as e:  # panics of compiled code are no Exceptions
        error = e
    result["seconds"] = time.perf_counter() - start
    if error is not None:
        result["error"] = _refusal(error, frame)
        # the frames of the traceback hold tensors, which a program that goes on would have let go
        error.__traceback__ = None
        del error
        gc.collect()
        result["after"] = [
            {"optimizer": frame.key(o), **_attempt(lambda o=o: frame.digest(o), frame)} for o in frame.optimizers
        ]
    starts = frame.step_starts
    result.update(
        notes=frame.notes, versions=frame.versions, ends_at=len(starts), step_seconds=[b - a for a, b in zip(starts, starts[1:])]
    )
    device = getattr(side, "DEVICE", None)
    if device is not None:
        result["closing"] = _attempt(device.sync, frame)["errors"]
        stats = device.report().stats
        result["peak_bytes"] = device.peak_bytes + (1 << 40 if form.get("plant") == "peak" else 0)
        result["ops"] = stats["executed_ops"] + stats["recomputed_ops"]
        result["recomputed_ops"] = stats["recomputed_ops"]
        result["compiled"] = [f() for f in frame.compiled]
        frame.compiled.clear()
        names.clear()
        gc.collect()
        device.close()
    return result


def _child(request: Dict[str, Any]) -> None:
    """Runs a program, writes what it told, and ends the process."""
    code = 1
    try:
        with open(request["program"]) as file:
            source = file.read()
        result = _run(source, request["program"], request["form"])
        with open(request["result"], "wb") as out:
            pickle.dump(result, out)
        atexit._run_exitfuncs()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Serves runs until there are no more requests."""
    framework = sys.argv[1]
    __import__("numpy")
    if framework == "torch":
        torch = __import__("torch")
        torch.set_num_threads(1)
        # what the first optimiser of a process imports
        torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1).step()
    else:
        __import__("remat")
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            devnull = os.open(os.devnull, os.O_RDONLY)
            os.dup2(devnull, 0)
            log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(log, 1)
            os.dup2(log, 2)
            _child(request)
        print(json.dumps({"pid": pid}), flush=True)
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"status": os.waitstatus_to_exitcode(status)}), flush=True)


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        # whoever asked is gone
        os._exit(1)
