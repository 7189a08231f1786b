"""Observers of passes: time them, write what they give, verify it.

    timer = PassTimer()
    with PassContext(instruments=[timer, DumpIR("dump", print_func), VerifyEach(verify)]):
        lower(func)
    print(timer.table())

The printer and the verifier are parameters, so that one instrument serves relay and tir alike.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minitvm.errors import OptionError

_NOT_FILE_NAME = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass(slots=True)
class PassTimer:
    """Sums the seconds that each pass takes, and counts its runs.

    A pass that runs others counts their time as its own, too.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)
    _started: list[float] = field(default_factory=list, repr=False)

    def run_before_pass(self, name: str, before: Any) -> None:
        """Starts the clock."""
        self._started.append(time.perf_counter())

    def run_after_pass(self, name: str, before: Any, after: Any) -> None:
        """Stops it."""
        elapsed = time.perf_counter() - self._started.pop()
        self.seconds[name] = self.seconds.get(name, 0.0) + elapsed
        self.runs[name] = self.runs.get(name, 0) + 1

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Times a step that is no pass, such as running LLVM."""
        self.run_before_pass(name, None)
        yield
        self.run_after_pass(name, None, None)

    def table(self) -> str:
        """The passes, slowest first: milliseconds, runs, name."""
        lines = [f"{'ms':>10}  {'runs':>5}  pass"]
        for name in sorted(self.seconds, key=lambda name: -self.seconds[name]):
            lines.append(f"{self.seconds[name] * 1e3:>10.2f}  {self.runs[name]:>5}  {name}")
        lines.append(f"{sum(self.seconds.values()) * 1e3:>10.2f}         total")
        return "\n".join(lines)


@contextmanager
def dump_file(path: Path) -> Iterator[Path]:
    """For writing `path`, whose folder is made; raises `OptionError` where that is not possible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield path
    except OSError as error:
        raise OptionError(f"the dump can't be written to {str(path)!r}: {error.strerror or error}; "
                          "name another folder") from error


@dataclass(slots=True)
class DumpIR:
    """Writes what each pass gives to a numbered file: `003_FuseOps.txt`; `000_input.txt` first.

    A pass that changes nothing (gives the object it took) leaves a number out, and no file.
    """

    directory: Path
    printer: Callable[[Any], str]
    _count: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        self.directory = Path(self.directory)

    def run_before_pass(self, name: str, before: Any) -> None:
        """Writes the first input of all."""
        if self._count == 0:
            self._write("input", before)
            self._count = 1

    def run_after_pass(self, name: str, before: Any, after: Any) -> None:
        """Writes the result."""
        if after is not before:
            self._write(name, after)
        self._count += 1

    def _write(self, name: str, module: Any) -> None:
        file = f"{self._count:03}_{_NOT_FILE_NAME.sub('_', name)}.txt"
        with dump_file(self.directory / file) as path:
            path.write_text(self.printer(module), encoding="utf-8")


@dataclass(slots=True)
class VerifyEach:
    """Verifies what each pass gives; `verifier` raises for what it refuses."""

    verifier: Callable[[Any], None]
    check_origins_kept: Callable[[Any, Any], None] | None = None

    def run_before_pass(self, name: str, before: Any) -> None:
        """Nothing: the pass before it was verified."""

    def run_after_pass(self, name: str, before: Any, after: Any) -> None:
        """Verifies, and checks that no origin was lost where a checker was given."""
        if after is before:
            return
        self.verifier(after)
        if self.check_origins_kept is not None:
            self.check_origins_kept(before, after)
