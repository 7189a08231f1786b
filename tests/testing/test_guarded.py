"""That kernels which leave their memory are found: reads and writes, on either side."""

from __future__ import annotations

import pytest

from minitvm.codegen.program import Kernel, compile_kernel
from minitvm.target import Target
from minitvm.testing.guarded import stray_access
from minitvm.tir.passes import lower
from minitvm.tir.text import parse_func

COPY = """
def copy(A: Buffer(({inputs},), "float32"), C: Buffer(({outputs},), "float32")):
    for i in range({count}):
        C[i + {to}] = A[i + {at}] * 2.0  #: "n"
"""
UNWRITTEN = """
def unwritten(A: Buffer((9000,), "float32"), C: Buffer((9000,), "float32")):
    T = allocate((9000,), "float32")  #: "n"
    for i in range({count}):
        T[i] = A[i]  #: "n"
    for i in range(9000):
        C[i] = T[i]  #: "n"
"""


def kernel(text: str, **numbers: int) -> Kernel:
    return compile_kernel(lower(parse_func(text.format(**numbers))), Target.host())


def copying(inputs: int = 9, outputs: int = 9, count: int = 9, to: int = 0, at: int = 0) -> Kernel:
    return kernel(COPY, inputs=inputs, outputs=outputs, count=count, to=to, at=at)


@pytest.mark.parametrize("size", [9, 1024, 1025])
def test_kernels_within_bounds(size: int) -> None:
    whole = copying(size, size, size)
    assert not stray_access([whole, whole]) and not stray_access([whole], threads=2)
    assert not stray_access([kernel(UNWRITTEN, count=9000)])


@pytest.mark.parametrize("numbers", [
    {"inputs": 8}, {"outputs": 8}, {"at": -1}, {"to": -1},
    {"inputs": 1023, "outputs": 1024, "count": 1024},
])  # fmt: skip
def test_one_element_too_far(numbers: dict[str, int]) -> None:
    assert stray_access([copying(), copying(**numbers)]) == "copy leaves its memory: SIGSEGV"


def test_scratch_memory_that_was_not_written() -> None:
    assert "did not write" in stray_access([kernel(UNWRITTEN, count=8999)])
