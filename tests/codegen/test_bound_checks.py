"""Compiled with bound checks, a model says which kernel accessed what out of bounds."""

from __future__ import annotations

import numpy as np
import pytest

from minitvm.codegen.jit import build_kernel, load_program
from minitvm.codegen.program import Program, TensorInfo, compile_kernel, make_program
from minitvm.errors import RunError
from minitvm.runtime import abi
from minitvm.target import Target
from minitvm.tir.interpret import run
from minitvm.tir.ir import PrimFunc
from minitvm.tir.passes import lower
from minitvm.tir.text import parse_func
from minitvm.transform import PassContext

KERNEL = """
def gather(A: Buffer((4,), "float32"), index: Buffer((3,), "int32"), C: Buffer((3,), "float32")):
    for i in range(3):
        C[i] = A[index[i]] * 2.0  #: "Gather_7"
"""
MAIN = """
def main(A: Buffer((4,), "float32"), index: Buffer((3,), "int32"), C: Buffer((3,), "float32"),
         weights: Buffer((0,), "uint8"), workspace: Buffer((40,), "uint8")):
    {body}
"""
CALL = 'invoke(gather, address(A, 0), address(index, 0), address({to}, 0))  #: "{origin}"'
DATA = np.array([1, 2, 3, 4], np.float32)


def checked_kernel() -> PrimFunc:
    with PassContext(config={"tir.bound_checks": True}):
        return lower(parse_func(KERNEL))


def program(body: str, functions: tuple[str, ...] = ()) -> Program:
    target = Target.host()
    kernel = compile_kernel(checked_kernel(), target)
    inputs = (TensorInfo("A", (4,), "float32"), TensorInfo("index", (3,), "int32"))
    outputs = (TensorInfo("C", (3,), "float32"),)
    main, weights = parse_func(MAIN.format(body=body)), np.empty(0, np.uint8)
    return make_program("model", main, [kernel], weights, inputs, outputs, target,
                        functions=tuple(map(parse_func, functions)),
                        recursion_limit=10)


def test_a_model_names_kernel_buffer_index_and_node() -> None:
    calls = "\n    ".join(CALL.format(to=to, origin=name)
                         for to, name in (("workspace", "first"), ("C", "second")))
    module = load_program(program(calls))
    good = {"A": DATA, "index": np.array([3, 0, 1], np.int32)}
    for _ in range(2):
        np.testing.assert_array_equal(module.run(good)["C"], [8, 2, 4])
        with pytest.raises(RunError, match=r"gather_?.* accesses A out of bounds: the index 4 in "
                           "dimension 0, whose extent is 4, for .*first"):
            module.run({"A": DATA, "index": np.array([1, 4, -1], np.int32)})
    np.testing.assert_array_equal(module.run(good)["C"], [8, 2, 4])


def test_functions_pass_the_report_on() -> None:
    function = """
def inner(A: Buffer((4,), "float32"), index: Buffer((3,), "int32"), C: Buffer((3,), "float32"),
          workspace: Buffer((64,), "uint8")):
    invoke(gather, address(A, 0), address(index, 0), address(C, 0))  #: "inside"
"""
    body = ("invoke(inner, address(A, 0), address(index, 0), address(C, 0), "
            'address(workspace, 0))  #: "outside"')
    module = load_program(program(body, (function,)))
    np.testing.assert_array_equal(
        module.run({"A": DATA, "index": np.array([2, 2, 2], np.int32)})["C"], [6, 6, 6])
    with pytest.raises(RunError, match=r"the index -1 in dimension 0.*inside"):
        module.run({"A": DATA, "index": np.array([-1, 4, 9], np.int32)})


def test_a_kernel_alone_says_it_too() -> None:
    call = build_kernel(checked_kernel())
    result = np.zeros(3, np.float32)
    with pytest.raises(RunError, match=r"gather accesses A out of bounds: the index 9 .* Gather_7"):
        call(DATA, np.array([0, 9, 1], np.int32), result)
    np.testing.assert_array_equal(result, [2, 0, 4])
    call(DATA, np.array([0, 2, 1], np.int32), result)
    np.testing.assert_array_equal(result, [2, 6, 4])


def test_code_and_interpreter_report_the_same() -> None:
    report = np.zeros(4, np.int64)
    run(checked_kernel(), [DATA, np.array([5, 4, 4], np.int32), np.empty(3, np.float32), report, 2])
    assert report.tolist() == [1, 2, 0, 5]


def test_without_the_option_nothing_is_added() -> None:
    assert len(lower(parse_func(KERNEL)).params) == 3


def test_there_is_a_text_for_the_code() -> None:
    assert "out of bounds" in abi.ERROR_TEXTS[abi.ErrorCode.OUT_OF_BOUNDS]
