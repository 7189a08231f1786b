"""ConvertLayout: transposes at the edges only, equal results, and then nothing left to do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from random_graphs import assert_same, data, emitter, main, modules, op

from minitvm import relay
from minitvm.driver import optimize
from minitvm.errors import OptionError
from minitvm.origin import origin
from minitvm.relay import passes
from minitvm.relay.ir import Call, Constant, If, TensorType, Tuple, TupleGetItem, Var, walk_bindings
from minitvm.relay.ops.nn.conv2d import Conv2d
from minitvm.relay.passes.convert_layout import convert_layout
from minitvm.relay.verify import check_origins_kept, verify
from minitvm.target import Target
from minitvm.testing.relay_strategies import relay_cases
from minitvm.transform import PassContext

LAST = convert_layout({"nn.conv2d": ["NHWC", "default"]})
FIRST = convert_layout({"nn.conv2d": ["NCHW", "default"]})
IMAGE = TensorType((1, 3, 6, 5), "float32")
TARGET = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell")


def converted(module, item=LAST):
    after = item(module)
    verify(after)
    check_origins_kept(module, after)
    assert_same(module, after)
    assert item(after) is after
    return after


def of(body_of, *params):
    return main(params or [Var("x", IMAGE)], body_of)


def weight(filters, inputs, size=3, seed=0):
    return Constant(data((filters, inputs, size, size), seed))


def conv(e, x, filters=4, seed=0, **attributes):
    return e(op("nn.conv2d", padding=(1, 1, 1, 1), **attributes), x,
             weight(filters, x.type.shape[1], seed=seed))


def names(module):
    return [b.value.callee.name for b in walk_bindings(module.main.body)
            if isinstance(b.value, Call)]


def moves(module):
    return [name for name in names(module) if name in ("transpose", "layout_transform")]


def test_transposes_are_at_the_edges_only():
    def build(b, x):
        e = emitter(b)
        y = e(op("nn.relu"), conv(e, x))
        y = e(op("nn.max_pool2d", pool_size=(2, 2)), y)
        y = e(op("add"), conv(e, y), Constant(data((4, 1, 1), 1)))
        y = e(op("nn.bias_add"), conv(e, y, 4), Constant(data((4,), 2)))
        return e(op("add"), conv(e, y), y)

    after = converted(of(build))
    assert len(moves(after)) == 2
    convs = [b.value for b in after.main.body.bindings
             if isinstance(b.value, Call) and isinstance(b.value.callee, Conv2d)]
    assert all(c.callee.data_layout == "NHWC" and c.callee.kernel_layout == "HWIO" for c in convs)
    assert all(c.arguments[1].data.flags.c_contiguous for c in convs)
    back = passes.simplify_expr(converted(after, FIRST))
    assert not moves(back)
    assert {b.value.callee.data_layout for b in back.main.body.bindings
            if isinstance(b.value.callee, Conv2d)} == {"NCHW"}


FOLLOWERS = {
    "split": lambda e, y: e(op("nn.relu"), e(TupleGetItem(e(op("split", 2, axis=1), y), 1))),
    "concatenate": lambda e, y: e(op("concatenate", axis=-3), y, e(op("abs"), y)),
    "pad": lambda e, y: e(op("nn.pad", ((0, 0), (1, 2), (0, 1), (3, 0))), y),
    "slice": lambda e, y: e(op("strided_slice", (1, 2), (3, 5), axes=(1, 2)), y),
    "leading slice": lambda e, y: e(op("strided_slice", (0, 1), (1, 3)), y),
    "softmax": lambda e, y: e(op("argmax", axis=1), e(op("nn.softmax", axis=1), y)),
    "sum": lambda e, y: e(op("abs"), e(op("sum", axis=(1, -1)), y)),
    "sum of some": lambda e, y: e(op("abs"), e(op("sum", axis=(2,)), y)),
    "kept": lambda e, y: e(op("multiply"), e(op("max", axis=(2, 3), keepdims=True), y), y),
    "global pool": lambda e, y: e(op("squeeze", (2, 3)), e(op("nn.global_max_pool2d"), y)),
    "squeeze": lambda e, y: e(op("squeeze"), y),
    "scalar": lambda e, y: e(op("subtract"), Constant(np.float32(2)), y),
    "row": lambda e, y: e(op("add"), y, Constant(data((5,), 1))),
    "plain image": lambda e, y: e(op("add"), y, Constant(data((1, 4, 6, 5), 1))),
    "where": lambda e, y: e(op("where"), e(op("greater"), y, Constant(np.float32(0))), y, y),
    "reverse": lambda e, y: e(op("reverse", axis=2), y),
    "repeat": lambda e, y: e(op("repeat", 2, axis=-1), y),
    "transpose": lambda e, y: e(op("transpose", (0, 3, 2, 1)), y),
    "reshape": lambda e, y: e(op("reshape", (1, -1)), y),
    "tuple": lambda e, y: e(Tuple((y, e(op("nn.relu"), y)))),
    "whole sum": lambda e, y: e(op("sum"), y),
    "batch norm": lambda e, y: e(op("nn.batch_norm", epsilon=0.0), y, *(
        Constant(np.ones(4, "float32")) for _ in range(4))),
    "tile": lambda e, y: e(op("tile", (1, 2, 1, 1)), y),
    "broadcast": lambda e, y: e(op("broadcast_to", (2, 4, 6, 5)), y),
    "layout": lambda e, y: e(op("layout_transform", "NCHW", "NHWC"), y),
}


@pytest.mark.parametrize("follower", FOLLOWERS.values(), ids=FOLLOWERS.keys())
def test_what_follows_keeps_its_meaning(follower):
    converted(of(lambda b, x: follower(e := emitter(b), conv(e, x))))


@pytest.mark.parametrize("name", [
    "split", "pad", "slice", "softmax", "sum of some", "kept", "where", "concatenate", "row",
    "scalar", "plain image", "batch norm"])
def test_these_follow_the_order(name):
    def build(b, x):
        e = emitter(b)
        y = FOLLOWERS[name](e, conv(e, x))
        return y if y.type.rank < 4 else conv(e, y)

    assert len(moves(converted(of(build)))) <= 2


def test_a_transpose_takes_the_order_in():
    module = of(lambda b, x: (e := emitter(b))(op("transpose", (0, 2, 3, 1)), conv(e, x)))
    after = passes.simplify_expr(converted(module))
    assert moves(after) == ["transpose"]  # of the input


def test_a_value_of_no_image_stays():
    module = of(lambda b, x: emitter(b)(op("nn.relu"), x))
    assert LAST(module) is module


def test_convolutions_in_branches():
    def build(b, x, flag):
        e = emitter(b)
        y = conv(e, x)
        blocks = []
        for seed in range(2):
            inner = type(b)(parent=b)
            ei = emitter(inner)
            blocks.append(inner.finish(conv(ei, ei(op("nn.relu"), y), seed=seed)))
        return conv(e, e(If(flag, *blocks)))

    converted(of(build, Var("x", IMAGE), Var("flag", TensorType((), "bool"))))


def test_each_operator_by_itself():
    def build(b, x):
        e = emitter(b)
        return conv(e, e(op("nn.max_pool2d", pool_size=(2, 2)), x))

    module = of(build)
    after = converted(module, convert_layout({"nn.max_pool2d": ["NHWC"]}))
    assert moves(after) == ["transpose", "transpose"]
    assert names(after)[1:3] == ["nn.max_pool2d", "transpose"]
    both = converted(module, convert_layout({"nn.max_pool2d": ["NHWC"],
                                             "nn.conv2d": ["NHWC", "OIHW"]}))
    assert len(moves(both)) == 2


def test_origins_of_transposes_are_those_of_what_needs_them():
    after = LAST(of(lambda b, x: conv(emitter(b), x)))
    assert [b.origin for b in after.main.body.bindings] == [origin("n0")] * 3


@pytest.mark.parametrize(("layouts", "message"), [
    ({"nn.conv2d": ["CHWN"]}, "give NCHW or NHWC, and OIHW"),
    ({"nn.conv2d": ["NHWC", "IOHW"]}, "is no kernel layout"),
    ({"nn.max_pool2d": ["NHWC", "HWIO"]}, "give NCHW or NHWC"),
    ({"nn.conv2d": []}, "are no layouts"),
    ({"add": ["NHWC"]}, "add has no layout to convert"),
    ({"nn.conv3": ["NHWC"]}, "did you mean"),
])
def test_what_is_refused(layouts, message):
    with pytest.raises(OptionError, match=message):
        convert_layout(layouts)


@given(modules())
def test_random_modules_keep_their_results(module):
    after = converted(module)
    converted(after, FIRST)


@given(relay_cases(exact=True, operators=None, branches=True))
def test_generated_cases_keep_their_results(case):
    pools = {"nn.max_pool2d": ["NHWC"], "nn.avg_pool2d": ["NHWC"], "nn.global_max_pool2d": ["NHWC"]}
    for item in (LAST, convert_layout({"nn.conv2d": ["NHWC", "OIHW"], **pools})):
        after = item(case.module)
        verify(after)
        check_origins_kept(case.module, after)
        for new, old in zip(relay.run(after, case.inputs), relay.run(case.module, case.inputs),
                            strict=True):
            np.testing.assert_array_equal(new, old)


def chain(b, x):
    e = emitter(b)
    y = e(op("nn.relu"), conv(e, x, 16))
    return e(op("nn.relu"), conv(e, y, 16))


def test_packing_takes_channels_last_directly():
    """Whatever the layout, one move in (none for the few channels of the first) and one out."""
    first = optimize(of(chain), TARGET)
    last = optimize(LAST(of(chain)), TARGET)
    assert_same(of(chain), last)
    assert [name.count("layout_transform") for name in last.functions] == [
        name.count("layout_transform") for name in first.functions]


def test_packing_of_channels_last_inputs():
    def build(b, x):
        e = emitter(b)
        kernel = Constant(data((3, 3, 16, 16), 0))
        channels_last = {"data_layout": "NHWC", "kernel_layout": "HWIO", "padding": (1, 1, 1, 1)}
        y = e(op("nn.conv2d", **channels_last), x, kernel)
        return e(op("nn.conv2d", **channels_last), e(op("nn.relu"), y), kernel)

    module = of(build, Var("x", TensorType((1, 6, 5, 16), "float32")))
    with PassContext(config={"relay.layouts": "greedy"}):
        after = optimize(module, TARGET)
    assert_same(module, after)
    assert not any("transpose" in name for name in after.functions)
    transforms = [b.value.callee for f in after.functions.values() if f.is_primitive
                  for b in f.body.bindings if b.value.callee.name == "layout_transform"]
    assert {(t.src_layout, t.dst_layout) for t in transforms} == {("NHWC", "NCHW8c"),
                                                                 ("NCHW8c", "NHWC")}
