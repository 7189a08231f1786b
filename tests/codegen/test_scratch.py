"""Large scratch memory becomes parameters, and main passes it."""

import numpy as np
from toy import KERNEL, MAIN, toy_input, toy_program, toy_result

from minitvm.codegen.jit import build_kernel
from minitvm.codegen.scratch import STACK_BYTES, add_scratch, lift_scratch, scratch_params
from minitvm.tir import interpret, ir
from minitvm.tir.text import parse_func, print_func
from minitvm.tir.walk import walk_statements


def test_small_memory_stays_large_memory_is_lifted():
    func = parse_func(f"""
def k(A: Buffer((4,), "float32")):
    small = allocate(({STACK_BYTES // 4},), "float32")
    large = allocate(({STACK_BYTES // 4 + 1},), "float32")
    for i in range(4):
        small[i] = A[i]
        large[i] = small[i]
        A[i] = large[i] + 1.0
""")
    lifted = lift_scratch(func)
    assert [buffer.name for buffer in scratch_params(lifted)] == ["large"]
    assert lifted.attrs["scratch_bytes"] == STACK_BYTES + 64
    assert "small = allocate" in print_func(lifted)
    values = np.arange(4, dtype=np.float32)
    build_kernel(func)(values)
    np.testing.assert_array_equal(values, [1, 2, 3, 4])


def test_many_small_ones_do_not_fill_the_stack_either():
    names = [f"t{number}" for number in range(6)]
    text = 'def k(A: Buffer((4,), "float32")):\n'
    text += "".join(f'    {name} = allocate((4096,), "float32")\n' for name in names)
    text += "".join(f"    {name}[0] = A[0]\n    A[1] = {name}[0]\n" for name in names)
    assert len(scratch_params(lift_scratch(parse_func(text)))) == 2


def test_a_kernel_without_large_memory_is_the_same_object():
    func = parse_func('def k(A: Buffer((4,), "float32")):\n    A[0] = 1.0\n')
    assert lift_scratch(func) is func
    main = parse_func(MAIN)
    assert add_scratch(main, {"add_twice": func}) is main


def test_main_with_scratch_still_means_the_same():
    program = toy_program()
    kernel = lift_scratch(parse_func(KERNEL))
    assert program.workspace_bytes == 4032 + kernel.attrs["scratch_bytes"]
    x = toy_input()
    y = np.zeros(1000, np.float32)
    workspace = np.zeros(program.workspace_bytes, np.uint8)
    interpret.run(program.main, [x.ravel(), y, program.weights, workspace],
                  {"add_twice": program.kernels[0].func})
    np.testing.assert_array_equal(y, toy_result(x))
    invokes = [s for s in walk_statements(program.main.body) if isinstance(s, ir.Invoke)]
    assert all(len(invoke.arguments) == 4 for invoke in invokes)
