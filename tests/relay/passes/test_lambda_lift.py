"""Closures go to the module, functions that take functions are specialised, the rest is refused."""

from __future__ import annotations

import numpy as np
import pytest
from functional_programs import (
    CHOSEN_PROGRAMS,
    CLOSURES,
    COUNT,
    LOOP,
    MAP,
    NEST,
    PICK,
    VECTOR,
    program,
)
from hypothesis import given

from minitvm.errors import LoweringError
from minitvm.relay.calls import tail_calls
from minitvm.relay.interpret import run
from minitvm.relay.ir import GlobalVar, Module
from minitvm.relay.passes import (
    ALL,
    alter_op_layout,
    dead_code_elimination,
    inline,
    lambda_lift,
    remove_unused_functions,
)
from minitvm.relay.passes.known_functions import is_first_order
from minitvm.relay.verify import check_origins_kept, verify
from minitvm.target import Target
from minitvm.testing.relay_program_strategies import program_cases

PASSES = (*ALL, alter_op_layout(Target("llvm -mcpu=x86-64-v3")))
INPUTS = {"x": np.array([1, -2, 3, -4], "float32"), "n": np.array(3, "int32"),
          "c": np.array(True)}


def same(left, right):
    return len(left) == len(right) and all(map(np.array_equal, left, right))


def lifted(text: str) -> Module:
    module = program(text)
    verify(module)
    result = lambda_lift(module)
    verify(result)
    check_origins_kept(module, result)
    return result


def test_closures_become_functions_of_the_module():
    module = lifted(CLOSURES)
    assert all(map(is_first_order, module.functions.values()))
    assert same(run(module, INPUTS), run(program(CLOSURES), INPUTS))


def test_a_function_that_takes_functions_is_specialised_once_for_each():
    module = lifted(CLOSURES)
    assert "repeat" not in module.functions and "repeat_1" in module.functions
    assert "repeat_2" not in module.functions  # the call inside of it is one of itself
    names = [param.name for param in module.functions["repeat_1"].params]
    assert names == ["f_0", "f_1", "n", "x"]  # each shift captures a


def test_a_program_without_function_values_stays():
    module = program(LOOP)
    assert lambda_lift(module) is module


def test_one_function_captured_in_both_branches_is_known():
    module = lifted("""
def main(x: VECTOR, n: COUNT, c: FLAG) -> VECTOR:
    if c:  #: "if"
        a = abs(x)  #: "a"
        f = shift(a)  #: "f"
        k = f
    else:
        g = shift(x)  #: "g"
        k = g
    r = k(x)  #: "r"
    return r

def shift(a: VECTOR) -> MAP:
    def h(y: VECTOR) -> VECTOR:  #: "h"
        b = add(y, a)  #: "b"
        return b
    return h
""")
    for flag, expected in ((True, [2, 0, 6, 0]), (False, [2, -4, 6, -8])):
        assert same(run(module, {**INPUTS, "c": np.array(flag)}), [np.array(expected, "float32")])


def test_main_may_be_called():
    module = lifted("""
def main(n: COUNT) -> COUNT:
    c = greater(n, const(0, (), "int32"))  #: "c"
    if c:  #: "if"
        m = subtract(n, const(2, (), "int32"))  #: "m"
        r = main(m)  #: "r"
        q = r
    else:
        q = n
    return q
""")
    assert same(run(module, {"n": np.array(7, "int32")}), [np.array(-1, "int32")])
    assert set(module.functions) == {"main", "main_1"}


@pytest.mark.parametrize("text", CHOSEN_PROGRAMS)
def test_functions_chosen_at_run_time_become_tags_and_what_they_capture(text):
    module = lifted(text)
    assert all(map(is_first_order, module.functions.values()))
    for count in range(7):
        for flag in (True, False):
            given = {**INPUTS, "n": np.array(count, "int32"), "c": np.array(flag)}
            assert same(run(module, given), run(program(text), given))


def test_what_both_branches_can_see_is_not_passed_through_the_branch():
    module = lifted("""
def main(x: VECTOR, c: FLAG) -> VECTOR:
    a = abs(x)  #: "a"
    if c:  #: "if"
        def f(y: VECTOR) -> VECTOR:  #: "f"
            b = add(y, a)  #: "b"
            return b
        k = f
    else:
        k = negate
    r = k(x)  #: "r"
    return r

def negate(x: VECTOR) -> VECTOR:
    d = negative(x)  #: "d"
    return d
""")
    chosen = module.main.body.bindings[1].var
    assert str(chosen.type) == COUNT  # the tag alone


def test_a_tail_call_that_gives_a_function_stays_a_tail_call():
    module = dead_code_elimination(lifted(PICK))  # of the fields of what it gives
    assert tail_calls(module["pick_2"], "pick_2")


GROWING = """
def main(x: VECTOR, n: COUNT) -> VECTOR:
    r = grow(negate, n, x)  #: "r"
    return r

def negate(x: VECTOR) -> VECTOR:
    a = negative(x)  #: "a"
    return a

def grow(f: MAP, n: COUNT, x: VECTOR) -> VECTOR:
    c = greater(n, const(0, (), "int32"))  #: "c"
    if c:  #: "if"
        def twice(y: VECTOR) -> VECTOR:  #: "t"
            u = f(y)  #: "u"
            v = f(u)  #: "v"
            return v
        m = subtract(n, const(1, (), "int32"))  #: "m"
        z = grow(twice, m, x)  #: "z"
        q = z
    else:
        w = f(x)  #: "w"
        q = w
    return q
"""
GIVEN = """
def main(x: VECTOR, n: COUNT) -> VECTOR:
    f = pick(n)  #: "f"
    r = f(x)  #: "r"
    return r

def pick(n: COUNT) -> MAP:
    m = subtract(n, const(1, (), "int32"))  #: "m"
    f = pick(m)  #: "p"
    return f
"""


@pytest.mark.parametrize(("text", "message"), [
    (GROWING, "an ever greater function"),
    (GIVEN, r'f \("f"\) is given by pick, which always calls itself to give a function'),
    ("def main(f: MAP, x: VECTOR) -> VECTOR:\n    return x\n", "the input f of main is Func"),
    ("def main(f: VECTOR) -> MAP:\n    return negate\n" + GROWING.split("\n\n")[1],
     "the result of main is Func"),
])
def test_what_stays_unknown_is_refused(text, message):
    with pytest.raises(LoweringError, match=message):
        lambda_lift(program(text))


@given(program_cases())
def test_lifting_and_inlining_keep_the_meaning_of_random_programs(case):
    expected, module = run(case.module, case.inputs), case.module
    for step in (lambda_lift, inline, remove_unused_functions):
        before, module = module, step(module)
        verify(module)
        check_origins_kept(before, module)
        assert same(run(module, case.inputs), expected)
    assert all(map(is_first_order, module.functions.values()))


@given(program_cases(max_size=5))
def test_every_pass_keeps_the_meaning_of_programs_with_functions(case):
    expected = run(case.module, case.inputs)
    for module in (case.module, lambda_lift(case.module)):
        for step in PASSES:
            result = step(module)
            verify(result)
            check_origins_kept(module, result)
            assert same(run(result, case.inputs), expected), step.name


# --- inlining -----------------------------------------------------------------------------------


def test_functions_called_once_or_marked_are_inlined_and_then_unused():
    module = remove_unused_functions(inline(program("""
def main(x: VECTOR) -> VECTOR:
    a = once(x)  #: "a"
    b = marked(a)  #: "b"
    c = marked(b)  #: "c"
    d = often(c)  #: "d"
    e = often(d)  #: "e"
    return e

def once(x: VECTOR) -> VECTOR:
    y = abs(x)  #: "y"
    return y

@function(inline=True)
def marked(x: VECTOR) -> VECTOR:
    y = negative(x)  #: "z"
    return y

def often(x: VECTOR) -> VECTOR:
    y = sign(x)  #: "w"
    return y
""")))
    assert set(module.functions) == {"main", "often"}
    calls = [b.value.callee for b in module.main.body.bindings]
    assert [getattr(callee, "name", "") for callee in calls] == [
        "abs", "negative", "negative", "often", "often"]
    assert isinstance(calls[-1], GlobalVar)


@pytest.mark.parametrize("text", [LOOP, NEST])
def test_recursive_functions_are_not_inlined(text):
    module = program(text)
    assert inline(module) is module


def test_an_inlined_constant_takes_the_origin_of_the_call():
    module = inline(program("""
def main(x: VECTOR) -> COUNT:
    a = answer(x)  #: "call"
    return a

def answer(x: VECTOR) -> COUNT:
    return const(42, (), "int32")
"""))
    assert module.main.body.result.origin.names == ("call",)


def test_types_of_the_programs_are_spelled_as_in_text():
    assert str(program(CLOSURES).functions["compose"].type.result) == MAP
    assert (COUNT, VECTOR) == ('Tensor((), "int32")', 'Tensor((4,), "float32")')
