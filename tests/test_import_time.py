"""`import minitvm` and what is used of it first load no more than they need, and so are quick."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
HEAVY = {"llvmlite", "onnx", "google", "networkx", "rich", "click", "platformdirs", "xgboost",
         "PIL", "onnxruntime", "openvino", "scipy", "hypothesis"}


def loaded_by(statement: str) -> set[str]:
    """The modules that a fresh Python has loaded after a statement."""
    program = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          env=ENVIRONMENT, check=True)
    return set(done.stdout.split())


def packages(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def test_importing_minitvm_loads_nothing_else():
    modules = loaded_by("import minitvm")
    assert packages(modules) & (HEAVY | {"numpy"}) == set()
    assert {name for name in modules if name.startswith("minitvm")} == {"minitvm", "minitvm.errors"}


@pytest.mark.parametrize("statement", [
    "import minitvm; minitvm.compile; minitvm.Target; minitvm.PassContext",
    "import minitvm; minitvm.relay, minitvm.te, minitvm.tir, minitvm.codegen",
])
def test_the_compiler_loads_llvm_and_onnx_when_it_compiles(statement):
    assert packages(loaded_by(statement)) & (HEAVY - {"platformdirs"}) == set()


def test_running_a_library_needs_numpy_and_nothing_of_the_compiler():
    modules = loaded_by("import minitvm; minitvm.load")
    assert packages(modules) & HEAVY == set() and "numpy" in modules
    rooms = {name.split(".")[1] for name in modules if name.startswith("minitvm.")}
    assert rooms <= {"runtime", "errors", "dtypes"}


def test_the_command_line_starts_without_compiler_and_tables():
    modules = loaded_by("import minitvm.cli")
    assert packages(modules) & (HEAVY - {"click"}) == set()
    assert "minitvm.driver" not in modules


def median_seconds(statement: str) -> float:
    """Of three fresh Pythons that execute a statement."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", statement], env=ENVIRONMENT, check=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def test_importing_minitvm_is_quick():
    """The limit is generous, for machines that are busy: a few milliseconds are usual."""
    assert median_seconds("import minitvm, numpy") - median_seconds("import numpy") < 0.5
