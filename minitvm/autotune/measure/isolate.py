"""A function run in a child of this process: whatever it does costs the child alone.

    isolate(work, timeout_seconds=10, memory_bytes=4 << 30)  ->  what `work` gave, or a failure

The child is a fork, ready in some milliseconds with all that this process has loaded. An alarm that
nothing handles ends it, also in the midst of machine code that never ends; a limit on its memory
makes large requests fail. What it gives comes back through a pipe as JSON.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def failure(error: str, message: str) -> dict[str, Any]:
    """The answer for a candidate that failed."""
    return {"error": error, "message": " ".join(message.split())[:500]}


def isolate(work: Callable[[], dict[str, Any]], timeout_seconds: float, memory_bytes: int,
            stage: str) -> dict[str, Any]:
    """What `work` gives, or a failure: `stage` names what a timeout or an error is one of."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _be_child(work, writing, timeout_seconds, memory_bytes, stage)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == signal.SIGALRM:
            return failure("timeout" if stage == "run" else "build timeout",
                           f"it did not end within {timeout_seconds:g} s")
        return failure("crash" if stage == "run" else "build",
                       f"it was ended by {signal.Signals(number).name}")
    try:
        found: dict[str, Any] = json.loads(answer)
    except ValueError:
        code = os.waitstatus_to_exitcode(status)
        return failure("crash" if stage == "run" else "build",
                       f"it ended without an answer, with status {code}")
    return found


def _be_child(work: Callable[[], dict[str, Any]], writing: int, timeout_seconds: float,
              memory_bytes: int, stage: str) -> None:
    """Never returns: whatever happens, the child ends here."""
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, timeout_seconds)
        limit = _memory_now() + memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        answer = _answer(work, stage)
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(json.dumps(answer).encode())
        sys.stderr.flush()
    finally:
        os._exit(0)


def _answer(work: Callable[[], dict[str, Any]], stage: str) -> dict[str, Any]:
    try:
        return work()
    except MemoryError as error:
        return failure("memory", str(error) or "there is not enough memory for it")
    except Exception as error:  # whatever it is, it costs this candidate alone
        return failure(stage, f"{type(error).__name__}: {error}")


def _memory_now() -> int:
    """The address space that this process has, in bytes."""
    pages = Path("/proc/self/statm").read_text().split()[0]
    return int(pages) * resource.getpagesize()
