"""A worker process as its owner sees it: a request, and an answer or a failure, always in time."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from types import TracebackType
from typing import IO, Any

from minitvm.autotune.measure.isolate import PATIENCE, failure
from minitvm.errors import TuningError

START_SECONDS = 120.0
"""How long a worker may take to load all that it needs."""
GRACE_SECONDS = 20.0
"""How much longer than a child the worker itself may take."""
_START = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from minitvm.autotune.measure.worker import main
main()
"""
"""A worker finds modules where this process does, whatever is the current folder."""


class WorkerProcess:
    """Starts `measure.worker` when it is first asked, and again after it was lost."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._rest = b""

    def request(self, data: dict[str, Any]) -> dict[str, Any]:
        """The worker's answer. A worker that dies, or gives none in time, is ended, and that is a
        failure of the request."""
        process = self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(data).encode() + b"\n")
            process.stdin.flush()
            line = self._line(process, PATIENCE * data["timeout_seconds"] + GRACE_SECONDS)
            answer: dict[str, Any] = json.loads(line)
        except TimeoutError:
            self.close()
            return failure("build timeout" if "build" in data["do"] else "timeout",
                           "the worker gave no answer in time")
        except (OSError, ValueError):
            self.close()
            return failure("crash", "the worker was lost")
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._rest = b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the worker)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, json.dumps(sys.path)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True)
        try:
            if self._line(self._process, START_SECONDS) != b"ready":
                raise OSError
        except OSError:
            self._errors.seek(0)
            words = self._errors.read().decode(errors="replace").strip().splitlines()
            self.close()
            raise TuningError("the process that measures candidates could not be started: "
                              f"{words[-1] if words else 'it gave no sign'}") from None
        return self._process

    def _line(self, process: subprocess.Popen[bytes], seconds: float) -> bytes:
        """The next line; raises `TimeoutError`, or `OSError` where there will be none."""
        assert process.stdout is not None
        end = time.monotonic() + seconds
        while b"\n" not in self._rest:
            left = end - time.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                raise TimeoutError
            part = os.read(process.stdout.fileno(), 1 << 16)
            if not part:
                raise OSError(0, "the worker ended")
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def close(self) -> None:
        """Ends the worker and its children."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for stream in (process.stdin, process.stdout, self._errors):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()
