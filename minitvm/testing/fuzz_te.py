"""Random schedules of random computes, for as long as one likes.

    python -m minitvm.testing.fuzz te --cases 10000 --seed 0

Each schedule takes 1 to 30 steps; what it computes, by the tir interpreter and for one case in
`MACHINE_EVERY` by machine code, must be what the computes say; its log must rebuild it. A failing
case is named by its seed; the first ones are shown, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from minitvm import te
from minitvm.te.schedule import Schedule
from minitvm.testing.choices import SeededChoices
from minitvm.testing.te_machine import run_interpreter, run_machine
from minitvm.testing.te_oracle import Program, evaluate, random_inputs
from minitvm.testing.te_programs import random_program
from minitvm.testing.te_steps import Attempts, random_schedule
from minitvm.tir.text import print_func

MACHINE_EVERY = 10
SHOWN = 10
MOST_STEPS = 30


@dataclass(frozen=True, slots=True)
class Failure:
    """A case that failed: its seed, why, and the schedule if there was one."""

    seed: int
    reason: str
    log: str = ""


@dataclass(slots=True)
class Outcome:
    """What came of a run."""

    failures: list[Failure] = field(default_factory=list)
    attempts: Attempts = field(default_factory=Attempts)

    @property
    def accepted_share(self) -> float:
        """The share of steps that were accepted, of those accepted or refused."""
        tried = self.attempts.accepted + self.attempts.refused
        return self.attempts.accepted / max(tried, 1)


def difference(schedule: Schedule, program: Program, seed: int, machine: bool) -> str:
    """How what a schedule computes differs from what it should, in words; empty if it agrees."""
    inputs = random_inputs(program, seed)
    wanted = evaluate(program, inputs)
    runs = (run_interpreter, run_machine) if machine else (run_interpreter,)
    for run in runs:
        for position, (got, want) in enumerate(
            zip(run(schedule, program, inputs), wanted, strict=True)
        ):
            if not np.array_equal(got, want):
                return f"{run.__name__}: output {position} is {got.tolist()}, not {want.tolist()}"
    again = Schedule.replay(program.outputs, Schedule.parse_log(str(schedule)))
    texts = [print_func(te.lower(each, program.args)) for each in (schedule, again)]
    return "" if texts[0] == texts[1] else "the log rebuilds another schedule"


def run_case(seed: int, machine: bool, attempts: Attempts) -> Failure | None:
    """One case; why it failed, if it did."""
    draw = SeededChoices(seed)
    log = ""
    try:
        program = random_program(draw)
        schedule = random_schedule(draw, program, MOST_STEPS, attempts)
        log = str(schedule)
        reason = difference(schedule, program, seed, machine)
    except Exception as error:  # whatever goes wrong is a finding
        notes = "\n".join(getattr(error, "__notes__", ()))
        reason = f"{type(error).__name__}: {error}\n{notes}"
    return Failure(seed, reason, log) if reason else None


def fuzz(cases: int, seed: int, progress: Callable[[int, Outcome], None] | None = None) -> Outcome:
    """Runs so many cases, from a seed on."""
    outcome = Outcome()
    for index in range(cases):
        failure = run_case(seed + index, index % MACHINE_EVERY == 0, outcome.attempts)
        if failure is not None:
            outcome.failures.append(failure)
        if progress is not None:
            progress(index + 1, outcome)
    return outcome


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: gives the exit status."""
    parser = argparse.ArgumentParser(prog="fuzz te", description="Random schedules.")
    parser.add_argument("--cases", type=int, default=10_000, help="how many schedules (10000)")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first one (0)")
    options = parser.parse_args(arguments)
    with _ProgressBar(options.cases) as progress:
        outcome = fuzz(options.cases, options.seed, progress)
    for failure in outcome.failures[:SHOWN]:
        print(f"seed {failure.seed}: {failure.reason}\n{failure.log}")
    steps = outcome.attempts
    print(f"{options.cases} schedules, {len(outcome.failures)} failed; of their steps "
          f"{steps.accepted} were accepted, {steps.refused} refused ({outcome.accepted_share:.0%} "
          f"accepted) and {steps.taken_back} taken back as too slow")
    return 1 if outcome.failures else 0


class _ProgressBar:
    """A bar on the terminal, of the cases done and failed."""

    def __init__(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import Progress

        self.bar = Progress(console=Console(file=sys.stderr))
        self.task = self.bar.add_task("schedules", total=total)

    def __enter__(self) -> Callable[[int, Outcome], None]:
        self.bar.start()
        return self.update

    def update(self, done: int, outcome: Outcome) -> None:
        """Shows how far it is."""
        self.bar.update(self.task, completed=done,
                        description=f"schedules, {len(outcome.failures)} failed")

    def __exit__(self, *_: object) -> None:
        self.bar.stop()


if __name__ == "__main__":
    sys.exit(main())
