"""Random relay programs through the compiler, for as long as one likes.

    python -m minitvm.testing.fuzz relay --cases 5000 --seed 0

Each program is verified, printed and read back, interpreted, compiled at one of the levels of
optimisation and run; the plans of its
memory are checked, and its functions in tir verified. Results must be equal. A failing case is
named by its seed; the first ones are shown, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from minitvm.driver import CompiledModule, compile
from minitvm.errors import MinitvmError
from minitvm.relay.interpret import run
from minitvm.relay.ir import Module
from minitvm.relay.memory import check_plan, plan_functions
from minitvm.relay.text import parse_module, print_module
from minitvm.relay.verify import verify
from minitvm.testing.relay_program_strategies import ProgramCase, grow_program
from minitvm.tir.text import parse_func, print_func
from minitvm.tir.verify import verify as verify_tir

SIZES = 8
LEVELS = (3, 0, 3, 1, 3, 2, 3, 4, 3, 3)
SHOWN = 10


@dataclass(frozen=True, slots=True)
class Failure:
    """A case that failed: its seed, its size, and why."""

    seed: int
    size: int
    reason: str


def program_difference(case: ProgramCase, opt_level: int = 3) -> str:
    """How the compiler differs from the interpreter on a program, in words; empty if it does not.
    Raises `MinitvmError` for what breaks an invariant on the way."""
    verify(case.module)
    text = print_module(case.module)
    if print_module(parse_module(text)) != text:
        return "the text changes when it is read and printed again"
    compiled = compile(case.module, opt_level=opt_level)
    check_compiled(compiled)
    return _difference(list(compiled.run(case.inputs).values()), run(case.module, case.inputs))


def check_compiled(compiled: CompiledModule) -> None:
    """Verifies the parts of a compiled program: plans of memory, `main` and functions in tir."""
    module: Module = compiled.relay
    for name, plan in plan_functions(module).items():
        check_plan(module, plan, name)
    for func in (compiled.program.main, *compiled.program.functions):
        verify_tir(func, "machine", require_origins=True)
        text = print_func(func)
        if print_func(parse_func(text)) != text:
            raise MinitvmError(f"the text of {func.name} changes when it is read and printed again")


def _difference(got: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> str:
    if len(got) != len(expected):
        return f"there are {len(got)} outputs, not {len(expected)}"
    for position, (new, old) in enumerate(zip(got, expected, strict=True)):
        if new.dtype != old.dtype or not np.array_equal(new, old):
            return f"output {position} is {new.tolist()!r}, not {old.tolist()!r}"
    return ""


def fuzz(cases: int, seed: int,
         progress: Callable[[int, int, int], None] = lambda done, total, failures: None,
         ) -> list[Failure]:
    """Runs so many cases, from a seed on; gives those that failed."""
    failures: list[Failure] = []
    for index in range(cases):
        size = index % SIZES + 1
        try:
            reason = program_difference(grow_program(seed + index, size), LEVELS[index % 10])
        except Exception as error:  # whatever goes wrong is a finding
            reason = f"{type(error).__name__}: {error}"
        if reason:
            failures.append(Failure(seed + index, size, reason))
        progress(index + 1, cases, len(failures))
    return failures


def _show_progress(done: int, total: int, failures: int) -> None:
    if done % 10 == 0 or done == total:
        end = "\n" if done == total else ""
        print(f"\r{done}/{total} programs, {failures} failed", end=end, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: gives the exit status."""
    parser = argparse.ArgumentParser(prog="fuzz relay", description="Random relay programs.")
    parser.add_argument("--cases", type=int, default=5000, help="how many programs (5000)")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first one (0)")
    options = parser.parse_args(arguments)
    failures = fuzz(options.cases, options.seed, _show_progress)
    for failure in failures[:SHOWN]:
        print(f"grow_program({failure.seed}, {failure.size}): {failure.reason}")
    return 1 if failures else 0
