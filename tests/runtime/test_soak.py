"""A short soak of a library; and that a soak sees what goes wrong."""

import ctypes
import shutil

import numpy as np
import pytest
from test_thread_pool import program

from minitvm.codegen.link import export
from minitvm.runtime.module import Module
from minitvm.testing import soak as soak_module
from minitvm.testing.soak import Load, soak

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on PATH")
SHORT = Load(callers=4, runs=40, children=2, loads=3)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return export(program(), tmp_path_factory.mktemp("soak") / "smooth.so")


def test_a_short_soak_finds_nothing(library):
    said = []
    assert soak(library, SHORT, said.append) == []
    assert [line.split(":")[0] for line in said] == ["callers", "children", "loads"]


def test_a_wrong_result_is_seen(library, monkeypatch):
    """Every thirtieth run of a process changes a bit."""
    call, turn = Module._call, [0]

    def faulty(self, inputs, outputs):
        call(self, inputs, outputs)
        turn[0] += 1
        if turn[0] % 30 == 0:
            first = np.ctypeslib.as_array((ctypes.c_uint8 * 1).from_address(
                outputs[0].data))
            first ^= 1

    monkeypatch.setattr(Module, "_call", faulty)
    found = " ".join(soak(library, Load(callers=4, runs=40, children=2, loads=0)))
    assert "got other results in run" in found and "child 0 ended with status" in found


def test_a_process_that_fails_is_seen(library, monkeypatch):
    monkeypatch.setattr(soak_module, "_UNLOAD", "raise SystemExit('broken')")
    found = soak(library, Load(callers=1, runs=5, children=0, loads=2))
    assert found == [f"load {n} ended with status 1: broken" for n in range(2)]


def test_memory_that_grows_is_seen(library, monkeypatch):
    sizes = iter([10 << 20, 12 << 20])
    monkeypatch.setattr(soak_module, "resident_bytes", lambda: next(sizes))
    found = soak(library, Load(callers=2, runs=10, children=0, loads=0))
    assert found == ["20 runs made the process grow by 2097152 bytes"]
