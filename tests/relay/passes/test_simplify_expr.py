"""Every rule of SimplifyExpr is exact; and where its condition is violated, it does not apply."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import assert_same, emitter, main, op

from minitvm.errors import TypeInferenceError
from minitvm.origin import origin
from minitvm.relay.build import BlockBuilder
from minitvm.relay.infer import value_type
from minitvm.relay.interpret import Interpreter
from minitvm.relay.ir import Call, Constant, TensorType, Tuple, TupleGetItem, Var
from minitvm.relay.passes import simplify_expr
from minitvm.relay.passes.patterns import Apply, Name, Number, is_filled_with, parse_pattern
from minitvm.relay.passes.simplify_rules import RULES, is_lossless
from minitvm.relay.verify import verify

DTYPES = ["bool", "int8", "uint8", "int32", "int64", "uint16", "float16", "float32", "float64"]
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, np.nan, np.inf, -np.inf, 1e-45, -1e-40, 3e38, 65504.0,
           127.0, 128.0, -129.0, 300.0, 2147483647.0]


def values(dtype, shape):
    """Special values of a dtype; integers include both ends."""
    kind = np.dtype(dtype)
    count = int(np.prod(shape))
    if kind.kind == "f":
        with np.errstate(all="ignore"):
            pool = np.array(SPECIAL).astype(dtype)
    elif kind.kind == "b":
        pool = np.array([True, False])
    else:
        ends = np.iinfo(kind)
        pool = np.array([ends.min, ends.max, 0, 1, 2, 5, 100, ends.max - 1], dtype=kind)
    return np.resize(pool, count).reshape(shape)


def simplified(build, dtype="float32", shape=(2, 3, 3)):
    """The operators left in main, after checking that the result is the same on special values."""
    x = Var("x", TensorType(shape, dtype))
    before = main([x], lambda b, x: build(emitter(b), x))
    after = simplify_expr(before)
    verify(after)
    with np.errstate(all="ignore"):
        given_data = values(dtype, shape)
        old = Interpreter({}).call(before.main, [given_data])
        new = Interpreter({}).call(after.main, [given_data])
    assert_identical(new, old)
    return names(after)


def assert_identical(new, old):
    """Equal bits, zeros by sign; any NaN equals any NaN."""
    if isinstance(old, tuple):
        for a, b in zip(new, old, strict=True):
            assert_identical(a, b)
        return
    assert new.dtype == old.dtype and new.shape == old.shape
    np.testing.assert_array_equal(new, old)
    if old.dtype.kind == "f":
        solid = ~np.isnan(old)
        np.testing.assert_array_equal(np.signbit(new)[solid], np.signbit(old)[solid])


def names(module):
    return [b.value.callee.name for b in module.main.body.bindings if isinstance(b.value, Call)]


def const(value, dtype="float32", shape=()):
    return Constant(np.full(shape, value, dtype))


# --- arithmetic ---------------------------------------------------------------------------------

GONE = {
    "add zero, integers": ("int32", lambda e, x: e(op("add"), x, const(0, "int32"))),
    "add zero in front": ("int8", lambda e, x: e(op("add"), const(0, "int8"), x)),
    "add minus zero": ("float32", lambda e, x: e(op("add"), x, const(-0.0))),
    "add minus zero in front": ("float64", lambda e, x: e(op("add"), const(-0.0, "float64"), x)),
    "subtract zero": ("float32", lambda e, x: e(op("subtract"), x, const(0.0))),
    "multiply by one": ("float32", lambda e, x: e(op("multiply"), x, const(1.0))),
    "multiply by ones": ("float32", lambda e, x: e(op("multiply"), const(1, shape=(3, 1)), x)),
    "divide by one": ("int32", lambda e, x: e(op("divide"), x, const(1, "int32"))),
    "power of one": ("float32", lambda e, x: e(op("power"), x, const(1.0))),
    "negative twice": ("int8", lambda e, x: e(op("negative"), e(op("negative"), x))),
    "maximum with itself": ("float32", lambda e, x: e(op("maximum"), x, x)),
    "minimum with itself": ("float32", lambda e, x: e(op("minimum"), x, x)),
    "not twice": ("bool", lambda e, x: e(op("logical_not"), e(op("logical_not"), x))),
    "and with itself": ("bool", lambda e, x: e(op("logical_and"), x, x)),
    "or with itself": ("bool", lambda e, x: e(op("logical_or"), x, x)),
    "bits flipped twice": ("uint8", lambda e, x: e(op("bitwise_not"), e(op("bitwise_not"), x))),
    "copy": ("float32", lambda e, x: e(op("copy"), x)),
    "cast to the same": ("int8", lambda e, x: e(op("cast", "int8"), x)),
    "wide and back": ("int8", lambda e, x: e(op("cast", "int8"), e(op("cast", "int32"), x))),
    "reshape to the same": ("int8", lambda e, x: e(op("reshape", (2, -1, 3)), x)),
    "expand and squeeze": (
        "int8", lambda e, x: e(op("squeeze", (1,)), e(op("expand_dims", 1), x))),
    "transpose by nothing": ("int8", lambda e, x: e(op("transpose", (0, 1, 2)), x)),
    "transpose and back": (
        "int8", lambda e, x: e(op("transpose", (1, 2, 0)), e(op("transpose", (2, 0, 1)), x))),
    "concatenate one": ("int8", lambda e, x: e(op("concatenate", 1), x)),
    "slice of all": ("int8", lambda e, x: e(op("strided_slice", (0, 0), (9, 3)), x)),
    "broadcast to the same": ("int8", lambda e, x: e(op("broadcast_to", (2, 3, 3)), x)),
    "tile once": ("int8", lambda e, x: e(op("tile", (1, 1)), x)),
    "repeat once": ("int8", lambda e, x: e(op("repeat", 1, 2), x)),
}


@pytest.mark.parametrize("case", GONE)
def test_is_nothing(case):
    dtype, build = GONE[case]
    assert simplified(build, dtype) == []


STAYS = {
    "float + 0.0 makes 0.0 of -0.0": lambda e, x: e(op("add"), x, const(0.0)),
    "float - (-0.0) makes 0.0 of -0.0": lambda e, x: e(op("subtract"), x, const(-0.0)),
    "zeros of both signs": lambda e, x: e(
        op("add"), x, Constant(np.array([-0.0, 0.0, -0.0], "float32"))),
    "ones but one": lambda e, x: e(op("multiply"), x, Constant(np.array([1, 1, 2], "float32"))),
    "one that broadcasts": lambda e, x: e(op("multiply"), x, const(1, shape=(4, 1, 1, 1))),
    "x * 0": lambda e, x: e(op("multiply"), x, const(0.0)),
    "0 - x": lambda e, x: e(op("subtract"), const(0.0), x),
    "1 / x": lambda e, x: e(op("divide"), const(1.0), x),
    "x - x": lambda e, x: e(op("subtract"), x, x),
    "narrow and back": lambda e, x: e(op("cast", "float32"), e(op("cast", "float16"), x)),
    "transpose that moves": lambda e, x: e(op("transpose", (0, 2, 1)), x),
    "slice backwards": lambda e, x: e(op("strided_slice", (-1,), (None,), (-1,)), x),
    "reverse": lambda e, x: e(op("reverse", 1), x),
}


@pytest.mark.parametrize("case", STAYS)
def test_stays(case):
    before = main([Var("x", TensorType((2, 3, 3), "float32"))],
                  lambda b, x: STAYS[case](emitter(b), x))
    assert simplify_expr(before) is before


@pytest.mark.parametrize("name", ["abs", "sign", "floor", "ceil", "round", "trunc", "nn.relu"])
def test_idempotent_operators_are_applied_once(name):
    assert simplified(lambda e, x: e(op(name), e(op(name), e(op(name), x)))) == [name]


def test_where_with_equal_sides():
    def build(e, x):
        test = e(op("greater"), x, const(0.0))
        return e(op("where"), test, x, x)

    assert simplified(build) == []


# --- clip ---------------------------------------------------------------------------------------

BOUND = st.sampled_from([None, -2.5, -1.0, -0.0, 0.0, 0.5, 1.0, 6.0, np.inf, -np.inf])


@given(bounds=st.tuples(BOUND, BOUND, BOUND, BOUND), dtype=st.sampled_from(["float32", "float16"]))
def test_two_clips_are_one(bounds, dtype):
    a, b, c, d = bounds
    x = Var("x", TensorType((18,), dtype))
    before = main([x], lambda builder, x: (e := emitter(builder))(
        op("clip", c, d), e(op("clip", a, b), x)))
    after = simplify_expr(before)
    assert names(after) == ["clip"]
    data = values(dtype, (18,))
    np.testing.assert_array_equal(*(
        Interpreter({}).call(module.main, [data]) for module in (before, after)))


@given(low=st.integers(-5, 5), high=st.integers(-5, 5), low2=st.integers(-5, 5))
def test_two_clips_of_integers_are_one(low, high, low2):
    assert simplified(
        lambda e, x: e(op("clip", low2, None), e(op("clip", low, high), x)), "int8") == ["clip"]


def test_clips_with_nan_stay():
    assert simplified(
        lambda e, x: e(op("clip", np.nan, 1.0), e(op("clip", 0.0, 2.0), x))) == ["clip", "clip"]


@pytest.mark.parametrize("low", [0.0, 0.5, -1.0, None])
@pytest.mark.parametrize("high", [6.0, -1.0, None])
def test_relu_beside_clip(low, high):
    behind = simplified(lambda e, x: e(op("clip", low, high), e(op("nn.relu"), x)))
    assert behind == (["clip"] if low is not None and low >= 0 else ["nn.relu", "clip"])
    before = simplified(lambda e, x: e(op("nn.relu"), e(op("clip", low, high), x)))
    positive = low is not None and low >= 0 and (high is None or high >= 0)
    assert before == (["clip"] if positive else ["clip", "nn.relu"])


# --- casts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("between", DTYPES)
def test_lossless_casts_lose_nothing(source, between):
    data = values(source, (40,))
    with np.errstate(all="ignore"):
        there_and_back = data.astype(between).astype(source)
    same = np.array_equal(there_and_back, data, equal_nan=np.dtype(source).kind == "f")
    assert same or not is_lossless(source, between)


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("between", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_cast_chains(source, between, target):
    x = Var("x", TensorType((40,), source))
    before = main([x], lambda b, x: (e := emitter(b))(
        op("cast", target), e(op("cast", between), x)))
    after = simplify_expr(before)
    if after is before:
        return
    data = values(source, (40,))
    with np.errstate(all="ignore"):
        old, new = (Interpreter({}).call(m.main, [data]) for m in (before, after))
    if np.dtype(source).kind == "f" and np.dtype(target).kind in "iu":
        assert between in (source, target), "a float that no integer holds has no defined value"
    assert_identical(new, old)


def test_a_lossy_cast_in_between_stays():
    assert simplified(
        lambda e, x: e(op("cast", "int32"), e(op("cast", "int8"), x)), "int32") == ["cast", "cast"]


# --- shapes -------------------------------------------------------------------------------------


@given(data=st.data())
def test_chains_of_views_are_one_reshape(data):
    def build(e, x):
        for _ in range(data.draw(st.integers(2, 5))):
            kind = data.draw(st.sampled_from(["reshape", "expand_dims", "squeeze"]))
            if kind == "reshape":
                x = e(op("reshape", data.draw(st.sampled_from([(-1,), (3, 2, 3), (18, 1)]))), x)
            elif kind == "expand_dims":
                x = e(op("expand_dims", data.draw(st.integers(0, x.type.rank))), x)
            else:
                x = e(op("squeeze"), x)
        return x

    assert len(simplified(build)) <= 1


@given(first=st.permutations(range(4)), second=st.permutations(range(4)),
       shape=st.sampled_from([(2, 3, 4, 5), (1, 3, 1, 5), (2, 2, 2, 2), (1, 1, 1, 1)]))
def test_two_transposes_are_one_at_most(first, second, shape):
    left = simplified(
        lambda e, x: e(op("transpose", tuple(second)), e(op("transpose", tuple(first)), x)),
        "int32", shape)
    assert left.count("transpose") <= 1 and len(left) <= 1 + (1 in shape)


def test_transpose_that_only_moves_ones_is_a_reshape():
    assert simplified(lambda e, x: e(op("transpose", (0, 2, 3, 1)), x), shape=(2, 5, 1, 1)) == [
        "reshape"]


# --- layouts ------------------------------------------------------------------------------------


def layout(source, target, shape=()):
    return op("layout_transform", source, target, shape)


@pytest.mark.parametrize("channels", [3, 8, 16, 24])
def test_packing_and_unpacking_cancel(channels):
    shape = (1, channels, 2, 2)
    left = simplified(
        lambda e, x: e(layout("NCHW8c", "NCHW", shape), e(layout("NCHW", "NCHW8c"), x)),
        shape=shape)
    assert left == []


def test_unpacking_that_keeps_the_padding_stays():
    left = simplified(lambda e, x: e(layout("NCHW8c", "NCHW"), e(layout("NCHW", "NCHW8c"), x)),
                      shape=(1, 3, 2, 2))
    assert left == ["layout_transform", "layout_transform"]


def test_padding_of_unknown_content_is_zeroed_still():
    """The source's own padding need not be zeros, so going out and back is no identity."""
    shape = (1, 3, 2, 2)
    left = simplified(
        lambda e, x: e(layout("NCHW", "NCHW8c"), e(layout("NCHW8c", "NCHW", shape), x)),
        shape=(1, 1, 2, 2, 8))
    assert left == ["layout_transform"]


def test_unpacking_that_cuts_channels_off_stays():
    """The outer one zeroes channels 5, 6 and 7, so it is no mere change of the block."""
    left = simplified(
        lambda e, x: e(layout("NCHW8c", "NCHW4c", (1, 5, 2, 2)), e(layout("NCHW", "NCHW8c"), x)),
        shape=(1, 8, 2, 2))
    assert left == ["layout_transform", "layout_transform"]


@pytest.mark.parametrize("channels", [3, 16])
def test_packing_anew_goes_directly(channels):
    shape = (1, channels, 2, 2)

    def build(e, x):
        packed = e(layout("NCHW", "NCHW8c"), x)
        return e(layout("NCHW", "NCHW4c"), e(layout("NCHW8c", "NCHW", shape), packed))

    assert simplified(build, shape=shape) == ["layout_transform"]


@given(st.permutations(range(4)), st.permutations("NCHW"), st.booleans())
def test_transposes_join_layout_transforms(order, letters, is_padded):
    channels = 3 if is_padded else 8
    plain = "".join(letters)
    shape = tuple({"N": 2, "C": channels, "H": 4, "W": 5}[letter] for letter in plain)

    def into(b, x):
        e = emitter(b)
        moved = "".join(plain[axis] for axis in order)
        return e(op("layout_transform", moved, "NCHW8c"), e(op("transpose", tuple(order)), x))

    def out_of(b, x):
        e = emitter(b)
        packed = e(op("layout_transform", "NCHW", "NCHW8c"), x)
        unpacked = e(op("layout_transform", "NCHW8c", plain, (2, channels, 4, 5)), packed)
        return e(op("transpose", tuple(order)), unpacked)

    for build, given_shape in ((into, shape), (out_of, (2, channels, 4, 5))):
        module = main([Var("x", TensorType(given_shape, "float32"))], build)
        after = simplify_expr(module)
        verify(after)
        assert_same(module, after)
        assert len(names(after)) <= 1


# --- tuples, origins ----------------------------------------------------------------------------


def test_a_tuple_of_all_fields_is_the_tuple():
    def build(e, x):
        parts = e(op("split", 3, axis=1), x)
        return e(Tuple(tuple(e(TupleGetItem(parts, i)) for i in range(3))))

    assert simplified(build) == ["split"]


@pytest.mark.parametrize("order", [(1, 0), (0, 0), (0,)])
def test_a_tuple_of_other_fields_stays(order):
    def build(b, x):
        e = emitter(b)
        parts = e(op("split", 2, axis=0), x)
        return e(Tuple(tuple(e(TupleGetItem(parts, i)) for i in order)))

    before = main([Var("x", TensorType((2, 3, 3), "float32"))], build)
    assert simplify_expr(before) is before


def test_origins_of_what_a_rule_replaces_are_merged():
    x = Var("x", TensorType((6,), "float32"))
    after = simplify_expr(main([x], lambda b, x: (e := emitter(b))(
        op("nn.relu"), e(op("nn.relu"), x))))
    assert after.main.body.bindings[0].origin == origin("n0", "n1")


def test_a_value_used_elsewhere_is_kept():
    def build(e, x):
        y = e(op("reshape", (18,)), x)
        return e(Tuple((e(op("abs"), y), e(op("reshape", (6, 3)), y))))

    assert simplified(build) == ["reshape", "abs", "reshape"]


def test_long_chains_collapse():
    x = Var("x", TensorType((2, 3), "float32"))

    def build(b, x):
        e = emitter(b)
        for i in range(500):
            x = e(op("transpose"), x) if i % 2 else e(op("multiply"), x, const(1.0))
        return x

    assert names(simplify_expr(main([x], build))) in ([], ["transpose"])


# --- rules as data ------------------------------------------------------------------------------


def test_every_rule_says_its_domain_and_is_unique():
    assert all(rule.domain for rule in RULES)
    assert len({rule.pattern for rule in RULES}) == len(RULES)


def instance(pattern, e, x, dtype, attributes):
    """A graph that a pattern may match: its operators with attributes under which it applies."""
    match pattern:
        case Number(value):
            return const(value, dtype)
        case Name("c"):
            return e(op("equal"), x, x)
        case Name():
            return x
        case Apply(name, arguments):
            made = [instance(argument, e, x, dtype, attributes) for argument in arguments]
            made_op = attributes[name](made[0].type) if name in attributes else op(name)
            return e(made_op, *made)


ATTRIBUTES = {
    "clip": lambda found: op("clip", 0.0, 6.0),
    "cast": lambda found: op("cast", found.dtype),
    "reshape": lambda found: op("reshape", found.shape),
    "expand_dims": lambda found: op("expand_dims", ()),
    "squeeze": lambda found: op("squeeze", ()),
    "transpose": lambda found: op("transpose", tuple(range(found.rank))),
    "strided_slice": lambda found: op("strided_slice", (0,), (None,)),
    "broadcast_to": lambda found: op("broadcast_to", found.shape),
    "tile": lambda found: op("tile", (1,)),
    "repeat": lambda found: op("repeat", 1),
    "layout_transform": lambda found: (
        op("layout_transform", "NCHW", "NCHW4c") if found.rank == 4
        else op("layout_transform", "NCHW4c", "NCHW", (1, 4, 2, 2))),
}
OWN_ATTRIBUTES = {
    "reshape(transpose(reshape(x)))": {
        "reshape": lambda found: op(
            "reshape", (1, 2, 2, 4) if found.shape == (1, 4, 2, 2) else (1, 4, 2, 2)),
        "transpose": lambda found: op("transpose", (0, 2, 1, 3))},
    "transpose(layout_transform(x))": {
        "layout_transform": lambda found: op("layout_transform", "NCHW", "NHWC")},
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.pattern)
def test_every_rule_applies_somewhere_and_shrinks(rule):
    tried = []
    for dtype in ("float32", "int32", "bool"):
        x = Var("x", TensorType((1, 4, 2, 2), dtype))
        attributes = {**ATTRIBUTES, **OWN_ATTRIBUTES.get(rule.pattern, {})}
        try:
            before = main([x], lambda b, x, d=dtype, own=attributes: instance(
                rule.parsed, emitter(b), x, d, own))
        except TypeInferenceError:
            continue
        binding = before.main.body.bindings[-1]
        builder = BlockBuilder()
        for inner in before.main.body.bindings[:-1]:
            builder.append(inner)
        applied = rule.apply(binding.value, binding.var.type, builder)
        tried.append(applied is not None)
        if applied is not None:
            assert value_type(applied[0]) == binding.var.type
            assert len(names(simplify_expr(before))) < len(names(before))
    assert any(tried)


def test_what_is_no_pattern_is_refused():
    with pytest.raises(ValueError, match="not a pattern"):
        parse_pattern("add(x, [1])")


@given(st.lists(st.sampled_from([0.0, -0.0, 1.0, np.nan]), max_size=4),
       st.sampled_from([0.0, -0.0, 1.0]))
def test_filled_arrays_are_told(items, value):
    data = np.array(items, "float32")
    same = len(items) > 0 and all(
        item == value and np.signbit(item) == np.signbit(value) for item in items)
    assert is_filled_with(data, value) == same
