"""Functions, branches and recursion in machine code: values, memory, limits, and the text."""

from __future__ import annotations

import ctypes
import threading
from dataclasses import replace

import numpy as np
import pytest
from functional_programs import (
    CHOSEN_PROGRAMS,
    CLOSURES,
    EVEN,
    LOOP,
    NEST,
    SWAP,
    TWICE,
    program,
)
from hypothesis import given

import minitvm
from minitvm.codegen.interface import MAIN
from minitvm.codegen.jit import load_program
from minitvm.codegen.llvm import function_to_llvm, program_to_llvm
from minitvm.codegen.program import metadata_text, program_objects
from minitvm.errors import CodegenError, OptionError, RunError, VerifyError
from minitvm.relay.interpret import run
from minitvm.relay.ir import Var
from minitvm.relay.memory import check_plan, plan_functions
from minitvm.runtime import abi
from minitvm.testing import zoo
from minitvm.testing.fuzz_relay import check_compiled, program_difference
from minitvm.testing.relay_program_strategies import program_cases
from minitvm.tir import interpret, ir
from minitvm.tir.text import parse_func, print_func
from minitvm.tir.walk import walk_statements
from minitvm.transform import PassContext

STEP = np.array([1, 2, -3, 0.5], "float32")


def count(value):
    return np.array(value, "int32")


def compiled(text, **config):
    with PassContext(config=config):
        return minitvm.compile(program(text))


def values(module, **inputs):
    return list(module.run(inputs).values())


def agree(module, text, **inputs):
    expected = run(program(text), inputs)
    got = values(module, **inputs)
    assert len(got) == len(expected)
    for new, old in zip(got, expected, strict=True):
        assert new.dtype == old.dtype and np.array_equal(new, old)


# --- values -------------------------------------------------------------------------------------


def test_closures_and_branches_compile():
    module = compiled(CLOSURES)
    check_compiled(module)
    for n in range(4):
        for flag in (True, False):
            agree(module, CLOSURES, x=STEP, n=count(n), c=np.array(flag))


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("text", CHOSEN_PROGRAMS)
def test_functions_chosen_at_run_time_compile(text, level):
    module = minitvm.compile(program(text), opt_level=level)
    check_compiled(module)
    for n in range(6):
        for flag in (True, False):
            agree(module, text, x=STEP, n=count(n), c=np.array(flag))


@pytest.mark.parametrize("text", [TWICE, NEST, EVEN])
def test_recursion_compiles(text):
    module = compiled(text)
    check_compiled(module)
    for n in range(9):
        agree(module, text, n=count(n))


def test_a_tail_call_is_a_loop_in_constant_space():
    module = compiled(LOOP)
    assert module.program.status_offset is None  # nothing can go wrong, however many turns
    assert any(isinstance(s, ir.While) for f in module.program.functions
               for s in walk_statements(f.body))
    agree(module, LOOP, n=count(50), x=STEP)
    last, x = values(module, n=count(10**6), x=STEP)
    assert last == 0 and x.tolist() == [100, 100, -100, 100]


def test_a_loop_reads_what_does_not_change_in_its_place():
    module = compiled(LOOP)
    plan = plan_functions(module.relay)["loop"]
    assert [slot.name for slot in plan.slots] == ["n", "x"]  # not step


def test_values_that_change_places_are_copied_aside():
    module = compiled(SWAP)
    check_compiled(module)
    for n in (0, 1, 2, 7, 1_000_001):
        x, y = values(module, n=count(n), x=STEP, y=-STEP)
        assert np.array_equal(x, STEP if n % 2 == 0 else -STEP) and np.array_equal(y, -x)


def test_nested_tuples_are_outputs_by_name():
    text = """
def main(x: VECTOR, n: COUNT) -> Tuple(Tuple(VECTOR, COUNT), VECTOR, Tuple(Tuple(VECTOR))):
    y = abs(x)  #: "y"
    a = (y, n)  #: "a"
    b = (x,)  #: "b"
    c = (b,)  #: "c"
    d = (a, y, c)  #: "d"
    return d
"""
    module = compiled(text)
    names = ["output0.0", "output0.1", "output1", "output2.0.0"]
    assert [info.name for info in module.program.outputs] == names
    result = module.run({"x": STEP, "n": count(3)})
    assert list(result) == names
    agree(module, text, x=STEP, n=count(3))


def test_the_shared_library_does_the_same(tmp_path):
    module = compiled(CLOSURES)
    module.export(tmp_path / "model.so")
    loaded = minitvm.load(tmp_path / "model.so")
    agree(loaded, CLOSURES, x=STEP, n=count(3), c=np.array(True))


@given(program_cases())
def test_random_programs_agree(case):
    assert not program_difference(case)


@given(program_cases(max_size=5))
def test_the_tir_of_whole_programs_agrees(case):
    """The interpreter of tir finds reads and writes outside of frames."""
    program_ = minitvm.compile(case.module).program
    functions = {func.name: func for func in program_.functions}
    functions |= {kernel.name: kernel.func for kernel in program_.kernels}
    arrays = [np.ascontiguousarray(case.inputs[info.name]).reshape(-1) for info in program_.inputs]
    results = [np.zeros(int(np.prod(info.shape)), info.dtype) for info in program_.outputs]
    sizes = [int(buffer.shape[0].value) for buffer in program_.main.params[-2:]]
    weights, workspace = (np.zeros(size, np.uint8) for size in sizes)
    weights[:program_.weights.size] = program_.weights
    interpret.run(program_.main, [*arrays, *results, weights, workspace], functions)
    for got, expected in zip(results, run(case.module, case.inputs), strict=True):
        assert np.array_equal(got, expected.reshape(-1))


# --- memory and limits --------------------------------------------------------------------------


def test_recursion_ends_with_an_error_at_the_limit():
    module = compiled(NEST, **{"relay.recursion_limit": 7})
    assert module.program.metadata["recursion_limit"] == 7
    agree(module, NEST, n=count(6))
    with pytest.raises(RunError, match=r"more deeply than the recursion_limit.*\(7\)"):
        module.run({"n": count(7)})
    agree(module, NEST, n=count(6))  # nothing is kept of a run that was stopped


def test_a_stopped_run_does_not_go_on_calling():
    module = compiled(TWICE)
    with pytest.raises(RunError):
        module.run({"n": count(10**9)})  # 2 ** 1000 calls otherwise


def test_the_c_interface_gives_an_error_code():
    module = compiled(NEST).runtime
    n, result = count(10**6), count(0)
    tensors = [(abi.Tensor * 1)() for _ in range(2)]
    for tensor, array in zip(tensors, (n, result), strict=True):
        tensor[0].data = array.ctypes.data
    memory = np.zeros(module.workspace_bytes + 64, np.uint8)
    start = memory.ctypes.data + -memory.ctypes.data % 64
    code = module._run(*tensors, ctypes.c_void_p(start), 1)
    assert code == abi.ErrorCode.RECURSION_TOO_DEEP
    assert "recursion_limit" in module._text(code)


def test_the_greatest_recursion_does_not_overflow_a_thread_of_eight_megabytes():
    limit = 1
    while True:
        try:
            module = compiled(NEST, **{"relay.recursion_limit": 2 * limit})
        except CodegenError as error:
            assert "native stack" in str(error)
            break
        limit *= 2
    assert limit >= 4096
    runtime = module.runtime
    found = []

    def body():
        try:
            runtime.run({"n": count(10**9)})
        except RunError as error:
            found.append(error)

    before = threading.stack_size(8 * 2**20)
    try:
        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert found
    agree(module, NEST, n=count(limit // 2))


def test_frames_that_can_not_fit_are_refused():
    text = """
def main(n: COUNT, x: WIDE) -> WIDE:
    r = down(n, x)  #: "r"
    return r

def down(n: COUNT, x: WIDE) -> WIDE:
    c = greater(n, const(0, (), "int32"))  #: "c"
    if c:  #: "if"
        m = subtract(n, const(1, (), "int32"))  #: "m"
        y = negative(x)  #: "y"
        d = down(m, y)  #: "d"
        z = add(d, x)  #: "z"
        q = z
    else:
        q = x
    return q
""".replace("WIDE", 'Tensor((2000, 1000), "float32")')
    with pytest.raises(CodegenError, match=r"lower the option relay.recursion_limit"):
        compiled(text)
    module = compiled(text, **{"relay.recursion_limit": 3})
    x = np.full((2000, 1000), 2, "float32")
    assert np.array_equal(values(module, n=count(2), x=x)[0], x)


@pytest.mark.parametrize("limit", [0, -3, "many", 2.5])
def test_a_limit_that_is_no_positive_integer_is_refused(limit):
    with pytest.raises(OptionError, match="takes a positive integer"):
        compiled(NEST, **{"relay.recursion_limit": limit})


def test_without_recursion_the_workspace_is_exact():
    text = """
def main(x: VECTOR) -> VECTOR:
    a = f(x)  #: "a"
    b = f(a)  #: "b"
    return b

def f(x: VECTOR) -> VECTOR:
    s = softmax(x)  #: "s"
    y = g(s)  #: "y"
    z = g(y)  #: "z"
    return z

def g(x: VECTOR) -> VECTOR:
    y = cumulative(x)  #: "c"
    return y

def cumulative(x: VECTOR) -> VECTOR:
    y = abs(x)  #: "d"
    return y
""".replace("softmax", "nn.relu")
    module = compiled(text)
    frames = [plan.workspace_bytes for plan in plan_functions(module.relay).values()]
    assert len(frames) > 1
    assert module.program.workspace_bytes <= sum(max(-(-size // 64) * 64, 64) for size in frames)


def two_slots():
    module = compiled(SWAP)
    return module.relay, plan_functions(module.relay)["swap"]


@pytest.mark.parametrize("change", [
    lambda plan, moves: moves[1:],
    lambda plan, moves: tuple((source, target) for source, target in moves
                              if target in plan.slots),
    lambda plan, moves: (*moves[2:], *moves[:2]),
])
def test_the_checker_refuses_a_wrong_next_turn(change):
    module, plan = two_slots()
    check_plan(module, plan, "swap")
    (jump, moves), = plan.moves.items()
    with pytest.raises((VerifyError, KeyError)):
        check_plan(module, replace(plan, moves={jump: change(plan, moves)}), "swap")


def test_the_checker_refuses_a_branch_without_its_copy():
    module = compiled(CLOSURES)
    plan = plan_functions(module.relay)["main"]
    (var, _), = plan.branch_copies.items()
    assert isinstance(var, Var)
    with pytest.raises(VerifyError, match="without its value"):
        check_plan(module.relay, replace(plan, branch_copies={var: ((), ())}))


# --- text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [CLOSURES, LOOP, TWICE, EVEN])
def test_the_printed_program_compiles_to_the_same_bytes(text):
    program_ = compiled(text).program
    read = replace(program_, main=parse_func(print_func(program_.main)),
                   functions=tuple(parse_func(print_func(f)) for f in program_.functions))
    assert program_objects(read) == program_objects(program_)
    assert metadata_text(read) == metadata_text(program_)
    assert load_program(read).name == program_.name


def test_functions_may_be_called_like_kernels_or_by_no_name_at_all():
    text = """
def main(x: VECTOR) -> VECTOR:
    a = copy_16_bytes(x)  #: "a"
    b = copy_16_bytes(a)  #: "b"
    c = odd(b)  #: "c"
    d = odd(c)  #: "d"
    return d

def copy_16_bytes(x: VECTOR) -> VECTOR:
    y = abs(x)  #: "y"
    return y

@names(name="a-b c/1")
def odd(x: VECTOR) -> VECTOR:
    return x
"""
    module = compiled(text)
    assert sorted(f.name for f in module.program.functions) == ["a_b_c_1", "function_copy_16_bytes"]
    agree(module, text, x=STEP)


def test_a_model_without_functions_is_a_straight_line():
    module = compiled("""
def main(x: VECTOR) -> VECTOR:
    y = abs(x)  #: "y"
    return y
""")
    assert module.program.functions == () and module.program.status_offset is None
    assert "recursion_limit" not in module.program.metadata
    assert isinstance(module.program.main.body, ir.Invoke)


def test_a_network_is_calls_of_kernels_and_nothing_else():
    """Its code is what it would be in a compiler without functions."""
    program_ = minitvm.compile(zoo.mobilenet_v2(weights=0, image=32, width=0.35)).program
    assert isinstance(program_.main.body, ir.Seq)
    assert all(isinstance(s, ir.Invoke) for s in program_.main.body.statements)
    assert program_.functions == () and program_.status_offset is None
    sizes = {len(kernel.func.params) for kernel in program_.kernels}
    assert {len(s.arguments) for s in program_.main.body.statements} <= sizes
    assert program_to_llvm(program_.main, (), program_.target, MAIN) == function_to_llvm(
        program_.main, program_.target, MAIN, debug=False)
    assert not any(isinstance(s, ir.While | ir.If) for s in walk_statements(program_.main.body))


def test_a_condition_lives_until_it_is_asked():
    text = """
def main(x: VECTOR, n: COUNT) -> VECTOR:
    c = greater(n, const(0, (), "int32"))  #: "c"
    s = nn.softmax(x)  #: "s"
    t = nn.softmax(s)  #: "t"
    u = nn.softmax(t)  #: "u"
    if c:  #: "if"
        a = negative(u)  #: "a"
        q = a
    else:
        q = x
    return q
"""
    module = compiled(text)
    check_plan(module.relay, module.plan)
    for n in (0, 1):
        assert np.allclose(values(module, x=STEP, n=count(n)),
                           run(program(text), {"x": STEP, "n": count(n)}), rtol=1e-5)


def test_one_value_twice_in_a_branch_is_two_in_the_other():
    text = """
def main(x: VECTOR, c: FLAG) -> VECTOR:
    if c:  #: "if"
        a = abs(x)  #: "a"
        t = (a, a)  #: "t"
        q = t
    else:
        b = sign(x)  #: "b"
        d = negative(x)  #: "d"
        u = (b, d)  #: "u"
        q = u
    y = q[0]  #: "y"
    z = q[1]  #: "z"
    w = multiply(y, const(3.0, (), "float32"))  #: "v"
    r = subtract(w, z)  #: "r"
    return r
"""
    module = compiled(text)
    check_plan(module.relay, module.plan)
    for flag in (True, False):
        agree(module, text, x=STEP, c=np.array(flag))
