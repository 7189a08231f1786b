"""Code in this process: models, single kernels, and what can't run here."""

import numpy as np
import pytest
from toy import KERNEL, WEIGHTS, toy_input, toy_program, toy_result

from minitvm.codegen.jit import build_kernel, load_objects, load_program
from minitvm.codegen.llvm import function_to_llvm
from minitvm.codegen.machine import emit_object
from minitvm.errors import CodegenError, InputError, TargetError
from minitvm.target import Target
from minitvm.tir.text import parse_func


def test_a_program_runs_in_the_process():
    for target in (None, Target("llvm -mcpu=generic")):
        module = load_program(toy_program(target))
        x = toy_input()
        np.testing.assert_array_equal(module.run({"x": x})["y"], toy_result(x))
        assert module.metadata["weights_bytes"] == WEIGHTS.nbytes


def test_weights_that_are_not_aligned_are_copied():
    raw = np.zeros(WEIGHTS.nbytes + 4, np.uint8)
    offset = 4 if raw.ctypes.data % 64 == 0 else 0
    weights = raw[offset:offset + WEIGHTS.nbytes]
    weights[:] = WEIGHTS.view(np.uint8)
    module = load_program(toy_program(weights=weights))
    x = toy_input()
    np.testing.assert_array_equal(module.run({"x": x})["y"], toy_result(x))


def test_code_for_another_machine_is_refused():
    target = Target("llvm -mtriple=riscv64-linux-gnu -mcpu=generic-rv64")
    with pytest.raises(TargetError, match="can't run on this machine"):
        build_kernel(parse_func(KERNEL), target)
    with pytest.raises(TargetError, match="can't run on this machine"):
        load_program(toy_program(target))


def test_a_kernel_checks_what_it_is_called_with():
    kernel = build_kernel(parse_func(KERNEL))
    a, w, b = (np.ones(1000, np.float32) for _ in range(3))
    bound = kernel.bind(a, w, b)
    bound()
    assert (b == 4).all()
    for arguments, message in (
        ((a, w), "takes 3 arguments, not 2"),
        ((a, w, b.astype(np.float64)), "'B' must be of dtype float32, not float64"),
        ((a, w, b[:9]), "'B' has 36 bytes, its buffer 4000"),
        ((a, w, np.ones(2000, np.float32)[::2]), "C-contiguous"),
        ((a, w, [1.0]), "C-contiguous numpy array"),
    ):
        with pytest.raises(InputError, match=message):
            kernel(*arguments)


def test_a_missing_symbol_is_an_error_and_not_a_crash():
    func = parse_func("""
def calls(A: Buffer((4,), "float32")):
    invoke(nowhere_to_be_found, address(A, 0))  #: "x"
""")
    data = emit_object(function_to_llvm(func, Target.host()), Target.host())
    with pytest.raises(CodegenError, match="could not load the code"):
        load_objects([data], ["kernel.calls"])
