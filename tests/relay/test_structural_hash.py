"""The structural hash: blind to names and origins, and to nothing else."""

import re
import subprocess
import sys

import numpy as np
from hypothesis import given

from minitvm import relay
from minitvm.origin import origin
from minitvm.relay.build import BlockBuilder, rebuild_function, with_fresh_variables
from minitvm.relay.ir import Block, Call, Constant, Function, TensorType, Var, map_block
from minitvm.relay.ops.elementwise import Clip, Copy, Negative
from minitvm.relay.structural_hash import structural_equal, structural_hash
from minitvm.relay.text import parse_function
from minitvm.testing.relay_strategies import relay_cases

VECTOR = TensorType((2,), "float32")


def same(left, right):
    equal = structural_equal(left, right)
    assert equal == (structural_hash(left) == structural_hash(right))
    return equal


@given(relay_cases(branches=True))
def test_names_and_origins_do_not_count(case):
    main = case.module.main
    assert same(main, with_fresh_variables(main))
    renamed = Function(
        tuple(Var(f"renamed_{p.name}", p.type) for p in main.params), main.body, main.result_type
    )
    mapping = dict(zip(main.params, renamed.params, strict=True))
    renamed = renamed.with_body(map_block(main.body, mapping))
    moved = rebuild_function(renamed, lambda builder, binding: (
        builder.emit(binding.value, origin=origin("elsewhere"), name="x")
    ))
    assert same(main, moved)


@given(relay_cases(branches=True))
def test_every_change_of_an_operator_counts(case):
    main = case.module.main
    for changed in range(len(main.body.bindings)):
        seen = iter(range(len(main.body.bindings)))

        def wrap(builder, binding, changed=changed, seen=seen):
            if builder.parent is not None or next(seen) != changed:
                return None
            if not isinstance(binding.var.type, TensorType):
                return None
            return Call(Copy(), (builder.emit(binding.value),))

        after = rebuild_function(main, wrap)
        assert (after is main) == same(main, after)


TEXT = """\
def main(x: Tensor((2,), "float32"), y: Tensor((2,), "float32"), f: Tensor((), "bool")) -> \
Tensor((2,), "float32"):
    a = clip(x, a_min=0.0, a_max=6.0)
    b = subtract(a, y)
    c = add(b, const([1.0, 0.0], (2,), "float32"))
    if f:
        d = a
    else:
        d = c
    p = (c, d)
    e = p[0]
    return e
"""


def test_each_part_counts():
    base = parse_function(TEXT)
    assert same(base, parse_function(re.sub(r"\bb\b", "renamed", TEXT)))
    changes = {
        "a_max=6.0": "a_max=7.0", "a_min=0.0": "a_min=-0.0", "subtract(a, y)": "subtract(y, a)",
        "subtract(": "add(", "1.0, 0.0": "1.0, -0.0", "p[0]": "p[1]", "(c, d)": "(d, c)",
        "d = a": "d = b", "return e": "return d", "(a, y)": "(a, x)",
    }
    hashes = {structural_hash(base)}
    for old, new in changes.items():
        assert old in TEXT
        other = parse_function(TEXT.replace(old, new))
        assert not same(base, other), (old, new)
        hashes.add(structural_hash(other))
    assert len(hashes) == len(changes) + 1
    assert not same(base, parse_function(TEXT.replace("(2,)", "(3,)").replace(
        "[1.0, 0.0]", "[1.0, 0.0, 0.0]")))
    assert not same(base, parse_function("@function(primitive=True)\n" + TEXT))


def test_types_of_parameters_count_even_unused():
    def constant(param):
        zero = Constant(np.zeros(2, np.float32))
        return Function((Var("x", param),), Block((), zero), VECTOR)

    assert not same(constant(VECTOR), constant(TensorType((3,), "float32")))
    assert same(constant(VECTOR), constant(VECTOR))


def test_sharing_counts():
    x = Var("x", VECTOR)

    def pair(shared):
        builder = BlockBuilder()
        a = builder.emit(Negative(), x)
        b = a if shared else builder.emit(Negative(), x)
        c = builder.emit(relay.ops.broadcast.Add(), a, b)
        return Function((x,), builder.finish(c), VECTOR)

    assert not same(pair(True), pair(False))
    assert same(pair(False), pair(False))


def test_equal_operators_are_equal():
    x = Var("x", VECTOR)

    def clipped(low):
        builder = BlockBuilder()
        return Function((x,), builder.finish(builder.emit(Clip(low, 6.0), x)), VECTOR)

    assert same(clipped(0.0), clipped(0.0)) and not same(clipped(0.0), clipped(None))


def test_the_hash_is_the_same_in_another_process():
    script = (
        "from minitvm.relay.structural_hash import structural_hash\n"
        "from minitvm.relay.text import parse_function\n"
        f"print(structural_hash(parse_function({TEXT!r})))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                           check=True, env={"PYTHONHASHSEED": "77",
                                            "PYTHONPATH": ":".join(sys.path)})
    assert found.stdout.strip() == structural_hash(parse_function(TEXT))


def test_ten_thousand_bindings():
    builder = BlockBuilder(origin("n"))
    x = Var("x", VECTOR)
    y = x
    for _ in range(10_000):
        y = builder.emit(Negative(), y)
    function = Function((x,), builder.finish(y), VECTOR)
    assert same(function, with_fresh_variables(function))
