"""CombineParallelConv2D, CombineParallelDense and CombineParallelBatchMatmul."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import assert_same, data, emitter, main, modules, op

from minitvm import remarks
from minitvm.errors import OptionError
from minitvm.origin import origin
from minitvm.relay import passes
from minitvm.relay.ir import Call, Constant, TensorType, Tuple, Var
from minitvm.relay.verify import check_origins_kept, verify
from minitvm.transform import PassContext

INPUTS = {"conv2d": (1, 3, 5, 4), "dense": (3, 6), "batch_matmul": (2, 3, 6)}
AXES = {"conv2d": 1, "dense": 1, "batch_matmul": 2}
PASSES = {
    "conv2d": passes.combine_parallel_conv2d,
    "dense": passes.combine_parallel_dense,
    "batch_matmul": passes.combine_parallel_batch_matmul,
}


def weight(kind, units, seed=0, size=1):
    shape = {"conv2d": (units, 3, size, size), "dense": (units, 6), "batch_matmul": (2, units, 6)}
    return Constant(data(shape[kind], seed))


def combined(module, kind, least=2):
    with PassContext(opt_level=4):
        after = PASSES[kind](least)(module)
    verify(after)
    check_origins_kept(module, after)
    assert_same(module, after)
    return after


def calls(module, name):
    return [b for b in module.main.body.bindings
            if isinstance(b.value, Call) and b.value.callee.name == name]


def module_of(kind, body_of):
    return main([Var("x", TensorType(INPUTS[kind], "float32"))], body_of)


def siblings(kind, units=(2, 3, 1), after=lambda e, y, i: y):
    """Branches of one input, with what follows each of them."""
    def build(b, x):
        e = emitter(b)
        products = [e(op(f"nn.{kind}"), x, weight(kind, n, i)) for i, n in enumerate(units)]
        return e(Tuple(tuple(after(e, y, i) for i, y in enumerate(products))))

    return module_of(kind, build)


@pytest.mark.parametrize("kind", INPUTS)
def test_branches_become_slices_of_a_wide_one(kind):
    after = combined(siblings(kind), kind)
    (wide,) = calls(after, f"nn.{kind}")
    assert wide.var.type.shape[AXES[kind]] == 6
    assert wide.origin == origin("n0", "n1", "n2")
    slices = calls(after, "strided_slice")
    assert [(b.value.callee.begin, b.value.callee.end) for b in slices] == [
        ((0,), (2,)), ((2,), (5,)), ((5,), (6,))]
    assert [b.origin for b in slices] == [origin("n0"), origin("n1"), origin("n2")]


@pytest.mark.parametrize("kind", INPUTS)
def test_fewer_branches_stay(kind):
    module = siblings(kind, units=(2, 3))
    with PassContext(opt_level=4):
        assert PASSES[kind]()(module) is module
        assert PASSES[kind](2)(module) is not module
    assert PASSES[kind](2)(module) is module  # below level 4
    with pytest.raises(OptionError):
        PASSES[kind](1)


def bias(kind, channels, seed=0):
    trailing = (1, 1) if kind == "conv2d" else ()
    return Constant(data((channels, *trailing), seed))


@pytest.mark.parametrize("kind", INPUTS)
def test_followers_of_all_branches_are_combined(kind):
    def after(e, y, i):
        y = e(op("add"), bias(kind, y.type.shape[AXES[kind]], i), y)
        return e(op("clip", 0.0, 6.0), e(op("multiply"), y, Constant(np.float32(i + 1))))

    result = combined(siblings(kind, after=after), kind)
    for name in (f"nn.{kind}", "add", "multiply", "clip"):
        assert len(calls(result, name)) == 1, name
    assert calls(result, "clip")[0].origin == origin("n5", "n8", "n11")


@pytest.mark.parametrize("kind", ["conv2d", "dense"])
def test_bias_add_is_combined(kind):
    result = combined(siblings(kind, after=lambda e, y, i: e(
        op("nn.bias_add"), y, Constant(data((y.type.shape[1],), i)))), kind)
    assert len(calls(result, "nn.bias_add")) == 1


DIFFERENT = {
    "other operators": lambda e, y, i: e(op("abs" if i else "negative"), y),
    "other attributes": lambda e, y, i: e(op("clip", 0.0, float(i)), y),
    "two uses": lambda e, y, i: e(op("add"), e(op("abs"), y), y),
    "two values": lambda e, y, i: e(op("subtract"), *((y, bias("dense", 1)) if i else
                                                     (bias("dense", 1), y))),
    "another shape": lambda e, y, i: e(op("add"), y, Constant(data((2, 3, 1), i))),
}


@pytest.mark.parametrize("after", DIFFERENT.values(), ids=DIFFERENT.keys())
def test_followers_that_differ_stay(after):
    module = siblings("dense", after=after)
    result = combined(module, "dense")
    assert len(calls(result, "nn.dense")) == 1
    for name in ("abs", "clip", "subtract", "add"):
        assert len(calls(result, name)) == len(calls(module, name))


def test_convolutions_with_other_windows_are_other_groups():
    def build(b, x):
        e = emitter(b)
        small = [e(op("nn.conv2d"), x, weight("conv2d", 2, i)) for i in range(2)]
        large = [e(op("nn.conv2d", padding=(1, 1, 1, 1)), x, weight("conv2d", 2, i, 3))
                 for i in range(2)]
        grouped = [e(op("nn.conv2d", groups=3), x, Constant(data((3, 1, 1, 1), i)))
                   for i in range(2)]
        return e(Tuple((*small, *large, *grouped)))

    after = combined(module_of("conv2d", build), "conv2d")
    assert len(calls(after, "nn.conv2d")) == 4


def test_weights_that_are_variables_are_concatenated():
    def build(b, x, y):
        e = emitter(b)
        early = e(op("negative"), y)
        products = [e(op("nn.dense"), x, w) for w in (y, early)]
        late = e(op("abs"), y)
        return e(Tuple((*products, e(op("nn.dense"), x, late))))

    params = [Var("x", TensorType((3, 6), "float32")), Var("y", TensorType((2, 6), "float32"))]
    module = main(params, build)
    with remarks.collect() as declined:
        after = combined(module, "dense")
    assert len(calls(after, "nn.dense")) == 2 and len(calls(after, "concatenate")) == 1
    assert [item.origin for item in declined] == [origin("n4")]


@st.composite
def random_siblings(draw):
    """Branches on two values, with followers that agree or don't, and uses in between."""
    kind = draw(st.sampled_from(list(INPUTS)))
    steps = draw(st.lists(st.sampled_from(["relu", "bias", "scale", "full", "abs"]), max_size=3))

    def follow(e, y, step, seed):
        channels = y.type.shape[AXES[kind]]
        match step:
            case "relu":
                return e(op("nn.relu"), y)
            case "abs":
                return e(op("abs"), y)
            case "bias":
                return e(op("add"), y, bias(kind, channels, seed))
            case "scale":
                return e(op("multiply"), Constant(np.float32(seed % 2)), y)
            case "full":
                return e(op("subtract"), y, Constant(data(y.type.shape, seed)))

    def build(b, x):
        e = emitter(b)
        inputs, results = [x, e(op("negative"), x)], []
        for branch in range(draw(st.integers(2, 5))):
            y = e(op(f"nn.{kind}"), draw(st.sampled_from(inputs)),
                  weight(kind, draw(st.integers(1, 4)), branch))
            if not draw(st.integers(0, 4)):
                results.append(e(op("sign"), y))
            for step in steps:
                if draw(st.integers(0, 6)):
                    y = follow(e, y, step, branch)
            results.append(y)
        return e(Tuple(tuple(results)))

    return kind, module_of(kind, build)


@given(random_siblings())
def test_random_siblings_keep_their_results(case):
    kind, module = case
    once = combined(module, kind)
    with PassContext(opt_level=4):
        assert PASSES[kind](2)(once) is once


@given(modules())
def test_random_modules_keep_their_results(module):
    for kind in INPUTS:
        module = combined(module, kind)
