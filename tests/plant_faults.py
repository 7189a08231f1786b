"""Do the tests notice a fault? Plants each of `faults/table.py` and expects its tests to fail.

    python tests/plant_faults.py                 all
    python tests/plant_faults.py memory "fusion"   those with these words in their names
    python tests/plant_faults.py --list
    python tests/plant_faults.py --jobs 4        four at a time; by default one

Works on temporary copies of the tree. First the tests run without a fault, and must pass: a test
that fails anyway notices nothing. Then each fault is planted alone, its tests run up to the first
failure, and the line is put back. Ends with 1 if a fault survives or does not fit the source.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).parent / "faults"))
from table import FAULTS, Fault

Subject = TypeVar("Subject")
ROOT = Path(__file__).parents[1]
PARTS = ("minitvm", "tests", "examples", "docs", "pyproject.toml")
PATIENCE, LEAST_SECONDS = 5, 60
"""Tests may take so many times what they take without a fault, and some more."""
SOME_TESTS_FAILED = 1
"""pytest's exit status; others mean that it could not run, which catches nothing."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the tests said: `caught` by the test `by`, or why not."""

    caught: bool
    by: str
    seconds: float


def main() -> int:
    """Plants the chosen faults and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="only faults with one of these in their names")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    arguments = parser.parse_args()
    chosen = [fault for fault in FAULTS
              if not arguments.words or any(word in fault.name for word in arguments.words)]
    if arguments.list:
        print("\n".join(fault.name for fault in chosen))
        return 0
    misfits = [f"{fault.name}: {reason}" for fault in chosen if (reason := misfit(ROOT, fault))]
    if misfits or not chosen:
        print("\n".join(misfits) or "no fault has such a name")
        return 1
    with (tempfile.TemporaryDirectory(prefix="minitvm-faults-") as folder,
          ThreadPoolExecutor(arguments.jobs) as pool):
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(arguments.jobs):
            trees.put(copy_tree(Path(folder) / str(number)))
        tests = sorted({test for fault in chosen for test in fault.tests})
        print(f"{len(tests)} test files without a fault: ", end="", flush=True)
        seconds = {}
        for test, sound in zip(tests, pool.map(
                lambda test: in_a_tree(trees, run_tests, (test,)), tests)):
            if sound.by:
                print(f"they fail already: {sound.by}")
                return 1
            seconds[test] = sound.seconds
        print(f"they pass ({sum(seconds.values()):.0f} s)")
        work = partial(plant, seconds)
        return report(list(zip(chosen, pool.map(
            lambda fault: in_a_tree(trees, work, fault), chosen))))


def in_a_tree(trees: SimpleQueue[Path], work: Callable[[Path, Subject], Outcome],
              subject: Subject) -> Outcome:
    """Does some work in a tree in which nothing else goes on."""
    tree = trees.get()
    try:
        return work(tree, subject)
    finally:
        trees.put(tree)


def misfit(tree: Path, fault: Fault) -> str:
    """Why a fault can't be planted; empty if it can."""
    path = tree / fault.file
    if not path.exists():
        return f"there is no file {fault.file}"
    count = path.read_text(encoding="utf-8").count(fault.old)
    return "" if count == 1 else f"{fault.file} holds {fault.old!r} {count} times, not once"


def copy_tree(folder: Path) -> Path:
    """A copy of what the tests need."""
    folder.mkdir()
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, folder / part)
    return folder


def plant(seconds: Mapping[str, float], tree: Path, fault: Fault) -> Outcome:
    """Runs a fault's tests with the fault in place, and takes it out again. `seconds` is what each
    takes without it: one that goes on and on noticed a fault that makes an endless loop."""
    limit = PATIENCE * sum(seconds[test] for test in fault.tests) + LEAST_SECONDS
    path = tree / fault.file
    sound = path.read_text(encoding="utf-8")
    path.write_text(sound.replace(fault.old, fault.new), encoding="utf-8")
    try:
        outcome = run_tests(tree, fault.tests, limit)
    finally:
        path.write_text(sound, encoding="utf-8")
    print(f"{'caught' if outcome.caught else 'SURVIVED':9} {outcome.seconds:4.0f} s  {fault.name}",
          flush=True)
    return outcome


def run_tests(tree: Path, tests: tuple[str, ...], limit: float | None = None) -> Outcome:
    """Runs test files up to the first failure, or for so many seconds."""
    command = [sys.executable, "-m", "pytest", "-x", "--tb=no", "-p", "no:xdist",
               "--hypothesis-profile=faults", *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    start = time.perf_counter()
    try:
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True,
                              timeout=limit)
    except subprocess.TimeoutExpired:
        return Outcome(True, f"its time: there was no end within {limit:.0f} s", limit or 0)
    seconds = time.perf_counter() - start
    if done.returncode == 0:
        return Outcome(False, "", seconds)
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    by = failed[0].split(" ", 1)[1].split(" - ")[0] if failed else done.stderr.strip()[-200:]
    ran = done.returncode == SOME_TESTS_FAILED and "::" in by
    return Outcome(ran, by or f"pytest ended with {done.returncode}", seconds)


def report(results: list[tuple[Fault, Outcome]]) -> int:
    """Prints which test noticed what; 1 if a fault survived."""
    survivors = [fault for fault, outcome in results if not outcome.caught]
    print(f"\n{len(results) - len(survivors)} of {len(results)} faults caught\n")
    for fault, outcome in results:
        verdict = "caught by" if outcome.caught else f"SURVIVED {', '.join(fault.tests)}"
        print(f"{fault.name}\n    {fault.file}\n    {verdict} {outcome.by}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
