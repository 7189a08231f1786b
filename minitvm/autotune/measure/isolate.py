"""A function run in a child of this process: whatever it does costs the child alone.

    isolate(work, timeout_seconds=10, memory_bytes=4 << 30)  ->  what `work` gave, or a failure

The child is a fork, ready in some milliseconds with all that this process has loaded. An alarm
that nothing handles ends it, also in the midst of machine code that never ends. It counts
processor time, since a candidate is not to blame for what else the machine does; another one
counts time on the clock, for those that wait for ever. A limit on its memory makes large requests
fail, and where memory runs out all the same, it is what the system ends first. What it gives
comes back through a pipe as JSON. It dies with this process; and this process, with its child,
where `owner`, a pipe from whoever started it, is closed at the other end.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from minitvm.autotune.records import ERRORS

PATIENCE = 5.0
"""How many times its processor time a child may take on the clock."""
SLACK_SECONDS = 2.0
"""How much later than its alarm a child is ended from outside."""
DIE_WITH_PARENT = 1
"""`PR_SET_PDEATHSIG` of Linux."""


def failure(error: str, message: str) -> dict[str, Any]:
    """The answer for a candidate that failed; `error` is one of `ERRORS`."""
    if error not in ERRORS:
        raise ValueError(f"{error!r} is no kind of failure; there are {', '.join(ERRORS)}")
    return {"error": error, "message": " ".join(message.split())[:500]}


def isolate(work: Callable[[], dict[str, Any]], timeout_seconds: float, memory_bytes: int,
            stage: str, owner: int | None = None) -> dict[str, Any]:
    """What `work` gives, or a failure: `stage`, "build" or "run", is what a timeout or an error is
    one of. The time is processor time, of all threads. Does not return where the other end of
    `owner` is closed."""
    reading, writing = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _be_child(work, writing, parent, timeout_seconds, memory_bytes, stage)
    os.close(writing)
    try:
        answer, late = _answer_of(child, reading, PATIENCE * timeout_seconds + SLACK_SECONDS, owner)
    finally:
        os.close(reading)
    _, status = os.waitpid(child, 0)
    if late:
        return _timeout(stage, timeout_seconds)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number in (signal.SIGALRM, signal.SIGPROF):
            return _timeout(stage, timeout_seconds)
        return failure("crash" if stage == "run" else "build",
                       f"it was ended by {signal.Signals(number).name}")
    try:
        found: dict[str, Any] = json.loads(answer)
    except ValueError:
        code = os.waitstatus_to_exitcode(status)
        return failure("crash" if stage == "run" else "build",
                       f"it ended without an answer, with status {code}")
    return found


def _timeout(stage: str, seconds: float) -> dict[str, Any]:
    return failure("timeout" if stage == "run" else "build timeout",
                   f"it did not end within {seconds:g} s")


def _answer_of(child: int, reading: int, seconds: float, owner: int | None) -> tuple[bytes, bool]:
    """All that the child writes, and whether it had to be ended since it took too long."""
    waiting = select.poll()
    waiting.register(reading, select.POLLIN)
    if owner is not None:
        waiting.register(owner, 0)  # nothing but its end
    end = time.monotonic() + seconds
    parts: list[bytes] = []
    while True:
        left = end - time.monotonic()
        found = dict(waiting.poll(max(0.0, 1e3 * left)))
        if owner in found:
            os.kill(child, signal.SIGKILL)
            os._exit(1)
        if reading in found:
            part = os.read(reading, 1 << 16)
            if not part:
                return b"".join(parts), False
            parts.append(part)
        elif left <= 0:  # stopped, so that no alarm ends it
            os.kill(child, signal.SIGKILL)
            return b"".join(parts), True


def _be_child(work: Callable[[], dict[str, Any]], writing: int, parent: int,
              timeout_seconds: float, memory_bytes: int, stage: str) -> None:
    """Never returns: whatever happens, the child ends here."""
    try:
        die_with(parent)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, timeout_seconds)
        signal.setitimer(signal.ITIMER_REAL, PATIENCE * timeout_seconds)
        limit = _memory_now() + memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")
        answer = _answer(work, stage)
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(json.dumps(answer).encode())
        sys.stderr.flush()
    finally:
        os._exit(0)


def die_with(parent: int) -> None:
    """Ends this process when the one that forked it ends, or at once where that happened."""
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


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
