"""Rewriting to a fixed point: what callbacks write, where, and what stops them."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from random_graphs import assert_same, emitter, main, modules, op

from minitvm import relay
from minitvm.origin import origin
from minitvm.relay.ir import Call, If, TensorType, Var, walk_bindings
from minitvm.relay.pattern import (
    DFPatternCallback,
    RewriteError,
    is_constant,
    is_if,
    is_op,
    is_tuple_get_item,
    rewrite,
    wildcard,
)
from minitvm.relay.verify import check_origins_kept, verify

VECTOR = TensorType((4,), "float32")


class Replace(DFPatternCallback):
    """`pattern(x)` becomes `result(x)`."""

    def __init__(self, pattern, result, **options):
        super().__init__(**options)
        self.x = wildcard()
        self.pattern = pattern(self.x)
        self.result = result

    def callback(self, pre, post, node_map):
        return self.result(node_map[self.x][0])


NEGATIVES = Replace(lambda x: is_op("negative")(is_op("negative")(x)), lambda x: x)
RELUS = Replace(lambda x: is_op("nn.relu")(is_op("nn.relu")(x)), relay.nn.relu)
RELU = Replace(is_op("nn.relu"), lambda x: relay.maximum(x, 0.0))
DOUBLE = Replace(lambda x: is_op("add")(x, x), lambda x: x * 2.0)


def names(block):
    return [b.value.callee.name for b in block.bindings if isinstance(b.value, Call)]


def of(body_of, *params):
    return main(params or [Var("x", VECTOR)], body_of)


def chain(name, length):
    def build(b, x):
        e = emitter(b)
        for _ in range(length):
            x = e(op(name), x)
        return x

    return of(build)


def test_matches_are_replaced_until_there_are_none():
    after = rewrite([NEGATIVES], chain("negative", 7))
    assert names(after.main.body) == ["negative"]
    verify(after)
    assert rewrite([NEGATIVES], chain("negative", 8)).main.body.bindings == ()


def test_what_was_replaced_names_its_sources():
    after = rewrite([RELUS], chain("nn.relu", 3))
    (only,) = after.main.body.bindings
    assert only.origin == origin("n0", "n1", "n2")


def test_nothing_to_do_gives_the_same_object():
    module = chain("negative", 1)
    assert rewrite([NEGATIVES, RELUS], module) is module
    assert rewrite([NEGATIVES], module.main) is module.main
    keep = Replace(is_op("negative"), lambda x: x)
    keep.callback = lambda pre, post, node_map: post
    assert rewrite([keep], module) is module


def test_callbacks_see_operators_and_attributes():
    class Wider(DFPatternCallback):
        def __init__(self):
            super().__init__()
            self.x, self.clip = wildcard(), is_op("clip")
            self.pattern = self.clip(self.x)

        def callback(self, pre, post, node_map):
            assert pre is post and post.op is node_map[self.clip][0]
            assert post.attrs.a_max == 6.0 or post.attrs.a_max == 7.0
            return relay.clip(node_map[self.x][0], post.attrs.a_min, 7.0)

    module = of(lambda b, x: emitter(b)(op("clip", 0.0, 6.0), x))
    after = Wider().rewrite(module)
    assert after.main.body.bindings[0].value.callee == op("clip", 0.0, 7.0)


def test_constants_and_fields_can_be_matched():
    class First(DFPatternCallback):
        """The first field of a split is a slice."""

        def __init__(self):
            super().__init__()
            self.x = wildcard()
            self.pattern = is_tuple_get_item(is_op("split")(self.x), 0)

        def callback(self, pre, post, node_map):
            return relay.strided_slice(node_map[self.x][0], (0,), (2,))

    x = relay.var("x", shape=(4,))
    parts = relay.split(x, 2)
    module = relay.Module.from_expr(relay.Function([x], parts[0] + parts[1]))
    after = rewrite([First()], module)
    verify(after)
    assert names(after.main.body) == ["split", "strided_slice", "add"]
    np.testing.assert_array_equal(*(relay.run(m, {"x": np.arange(4, dtype="float32")})[0]
                                    for m in (module, after)))


def test_branches_are_rewritten_too():
    x, flag = relay.var("x", shape=(4,)), relay.var("flag", shape=(), dtype="bool")
    body = relay.If(flag, relay.negative(relay.negative(x)) + x, relay.nn.relu(x))
    after = rewrite([NEGATIVES, DOUBLE], relay.Module.from_expr(relay.Function([x, flag], body)))
    verify(after)
    (choice,) = after.main.body.bindings
    assert names(choice.value.then_block) == ["multiply"]


def test_a_value_used_elsewhere_stays():
    def build(b, x):
        e = emitter(b)
        inner = e(op("nn.relu"), x)
        return e(op("add"), inner, e(op("nn.relu"), inner))

    after = rewrite([RELUS], of(build))
    assert names(after.main.body) == ["nn.relu", "nn.relu", "add"]
    assert_same(of(build), after)


def test_the_first_callback_comes_first_everywhere():
    after = rewrite([RELUS, RELU], chain("nn.relu", 2))
    assert names(after.main.body) == ["maximum"]
    assert names(rewrite([RELU, RELUS], chain("nn.relu", 2)).main.body) == ["maximum", "maximum"]


# --- what is refused ----------------------------------------------------------------------------


def test_endless_rewriting_is_found():
    more = Replace(is_op("negative"), lambda x: relay.negative(relay.abs(x)))
    with pytest.raises(RewriteError, match=r'Replace still .* in round 100, of "n0"'):
        rewrite([more], chain("negative", 1))
    once = Replace(is_op("negative"), lambda x: relay.negative(relay.abs(x)), rewrite_once=True)
    assert names(rewrite([once], chain("negative", 1)).main.body) == ["abs", "negative"]


def test_writing_the_same_again_is_an_end():
    same = Replace(is_op("negative"), relay.negative)
    module = chain("negative", 2)
    assert rewrite([same], module) is module


def test_another_type_is_refused():
    wrong = Replace(is_op("negative"), lambda x: relay.cast(x, "int8"))
    with pytest.raises(RewriteError, match=r'of "n0", by Tensor\(\(4,\), "int8"\); add a cast'):
        rewrite([wrong], chain("negative", 1))


def test_values_of_branches_are_not_in_scope_outside():
    class Inside(DFPatternCallback):
        def __init__(self):
            super().__init__()
            self.inner = is_op("exp")(wildcard())
            self.pattern = is_if(wildcard(), self.inner, wildcard())

        def callback(self, pre, post, node_map):
            return relay.abs(node_map[self.inner][0])

    x, flag = relay.var("x", shape=(4,)), relay.var("flag", shape=(), dtype="bool")
    function = relay.Function([x, flag], relay.If(flag, relay.exp(x), x))
    assert isinstance(function.body.bindings[0].value, If)
    with pytest.raises(RewriteError, match="not in scope"):
        rewrite([Inside()], function)


# --- properties ---------------------------------------------------------------------------------


def zeros():
    class Zero(DFPatternCallback):
        def __init__(self):
            super().__init__()
            self.pattern = is_op("multiply")(wildcard(), is_constant(0))

        def callback(self, pre, post, node_map):
            return relay.broadcast_to(relay.const(np.float32(0)), shape=post.type.shape)

    return Zero()


@given(modules())
def test_right_rules_keep_the_result(module):
    after = rewrite([NEGATIVES, RELUS, RELU, DOUBLE, zeros()], module)
    verify(after)
    check_origins_kept(module, after)
    assert_same(module, after)
    assert "nn.relu" not in {
        b.value.callee.name for b in walk_bindings(after.main.body) if isinstance(b.value, Call)}


def test_long_chains_are_rewritten_quickly():
    start = time.process_time()
    after = rewrite([RELUS], chain("nn.relu", 10_000))
    assert names(after.main.body) == ["nn.relu"]
    assert time.process_time() - start < 10
