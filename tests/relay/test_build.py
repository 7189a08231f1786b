"""Blocks are built with types and origins; `rebuild` applies a rule, and changes no more."""

import numpy as np
import pytest
from hypothesis import given

from minitvm import relay
from minitvm.errors import TypeInferenceError
from minitvm.origin import origin
from minitvm.relay.build import (
    BlockBuilder,
    rebuild,
    rebuild_module,
    with_fresh_variables,
)
from minitvm.relay.ir import (
    Block,
    Call,
    Constant,
    Function,
    GlobalVar,
    If,
    Module,
    TensorType,
    Var,
    free_variables,
    walk_bindings,
)
from minitvm.relay.op import Op
from minitvm.relay.ops.broadcast import Add
from minitvm.relay.ops.elementwise import Cast, Copy, Negative
from minitvm.relay.structural_hash import structural_equal
from minitvm.relay.verify import check_origins_kept, verify
from minitvm.testing.relay_strategies import relay_cases

VECTOR = TensorType((2,), "float32")
FLAG = TensorType((), "bool")


def callee_of(binding):
    return binding.value.callee if isinstance(binding.value, Call) else None


def test_emit_infers_and_names():
    x = Var("x", VECTOR)
    builder = BlockBuilder(origin("default"))
    y = builder.emit(Cast("int8"), x)
    z = builder.emit(relay.ir.Tuple((x, y)), origin=origin("given"), name="pair")
    block = builder.finish(z)
    assert y.type == TensorType((2,), "int8") and y.name == "v0"
    assert z.type == relay.TupleType((VECTOR, y.type)) and z.name == "pair"
    assert [binding.origin for binding in block.bindings] == [origin("default"), origin("given")]
    assert block.result is z


def test_an_ill_typed_value_names_the_origin_and_the_rule():
    builder = BlockBuilder(origin("Conv_3"))
    with pytest.raises(TypeInferenceError, match=r'^"Conv_3": add.*argument 1 must be'):
        builder.emit(Add(), Var("x", VECTOR), Var("flag", FLAG))
    assert not builder.bindings


def test_calls_of_functions_are_typed():
    x = Var("x", VECTOR)
    f = GlobalVar("f", relay.FuncType((VECTOR,), FLAG))
    builder = BlockBuilder()
    assert builder.emit(f, x).type == FLAG
    for arguments, message in [((), "takes 1 argument"), ((Var("b", FLAG),), "argument 0")]:
        with pytest.raises(TypeInferenceError, match=message):
            builder.emit(Call(f, arguments))
    with pytest.raises(TypeInferenceError, match="not known here"):
        builder.emit(GlobalVar("g"), x)


def test_value_of_sees_enclosing_blocks():
    x = Var("x", VECTOR)
    outer = BlockBuilder()
    y = outer.emit(Negative(), x)
    inner = BlockBuilder(parent=outer)
    assert isinstance(inner.value_of(y), Call) and inner.value_of(x) is None
    inner.add_origin(y, origin("more"))
    assert outer.finish(y).bindings[0].origin == origin("more")


@given(relay_cases(branches=True))
def test_a_rule_that_keeps_everything_gives_the_same_module(case):
    assert rebuild_module(case.module, lambda builder, binding: None) is case.module
    assert rebuild_module(case.module, lambda builder, binding: binding.value) is case.module


@given(relay_cases(branches=True))
def test_a_rule_that_rewrites_everything_keeps_the_result(case):
    def through_a_copy(builder, binding):
        if not isinstance(binding.value, Call) or isinstance(binding.var.type, relay.TupleType):
            return None
        return Call(Copy(), (builder.emit(binding.value),))

    after = rebuild_module(case.module, through_a_copy)
    verify(after)
    check_origins_kept(case.module, after)
    for new, old in zip(relay.run(after, case.inputs), relay.run(case.module, case.inputs),
                        strict=True):
        np.testing.assert_array_equal(new, old)
    back = rebuild_module(after, lambda builder, binding: (
        binding.value.arguments[0] if isinstance(callee_of(binding), Copy) else None
    ))
    assert not any(isinstance(callee_of(b), Copy) for b in walk_bindings(back.main.body))
    check_origins_kept(case.module, back)


def test_an_atom_takes_the_place_and_the_origin():
    x = Var("x", VECTOR)
    builder = BlockBuilder()
    a = builder.emit(Negative(), x, origin=origin("a"))
    b = builder.emit(Copy(), a, origin=origin("b"))
    c = builder.emit(Negative(), b, origin=origin("c"))
    block = rebuild(builder.finish(c), lambda _, binding: (
        binding.value.arguments[0] if isinstance(callee_of(binding), Copy) else None
    ))
    assert [binding.origin for binding in block.bindings] == [origin("a", "b"), origin("c")]
    assert block.bindings[1].value.arguments == (a,)


def test_types_follow_a_replaced_variable():
    x, flag = Var("x", VECTOR), Var("flag", FLAG)
    outer = BlockBuilder(origin("n"))
    a = outer.emit(Copy(), x)
    inner = BlockBuilder(origin("n"), outer)
    blocks = [inner.finish(inner.emit(Negative(), a)), Block((), a)]
    b = outer.emit(Negative(), outer.emit(If(flag, *blocks)))
    function = Function((x, flag), outer.finish(b), VECTOR)

    def widen(builder, binding):
        return Call(Cast("float64"), (x,)) if isinstance(callee_of(binding), Copy) else None

    after = rebuild_module(Module({"main": function}), widen)
    verify(after)
    assert after.main.result_type == TensorType((2,), "float64")


def test_fresh_variables_share_nothing_but_free_ones():
    x, flag = relay.var("x", VECTOR), relay.var("flag", FLAG)
    y = relay.var("y", VECTOR)
    inner = relay.Function([y], relay.If(flag, relay.negative(y), y + x))
    copy = with_fresh_variables(inner)
    assert structural_equal(copy, inner)
    assert set(free_variables(copy)) == {x.atom, flag.atom}
    bound = {binding.var for binding in walk_bindings(inner.body)} | set(inner.params)
    fresh = {binding.var for binding in walk_bindings(copy.body)} | set(copy.params)
    assert not bound & fresh and len(bound) == len(fresh)


def test_a_rule_over_ten_thousand_bindings():
    builder = BlockBuilder(origin("n"))
    x = Var("x", VECTOR)
    y = x
    for _ in range(10_000):
        y = builder.emit(Negative(), y)
    module = Module({"main": Function((x,), builder.finish(y), VECTOR)})
    after = rebuild_module(module, lambda builder, binding: binding.value.arguments[0])
    assert after.main.body == Block((), x)
    after = rebuild_module(module, lambda builder, binding: Call(Copy(), binding.value.arguments))
    assert len(after.main.body.bindings) == 10_000


def test_constants_stand_for_values():
    x = Var("x", VECTOR)
    builder = BlockBuilder(origin("n"))
    a = builder.emit(Copy(), x)
    b = builder.emit(Negative(), a)
    zero = Constant(np.zeros(2, np.float32))
    block = rebuild(builder.finish(b), lambda _, binding: (
        zero if isinstance(callee_of(binding), Copy) else None
    ))
    assert block.bindings[0].value.arguments == (zero,)
    assert isinstance(block.bindings[0].value.callee, Op)
