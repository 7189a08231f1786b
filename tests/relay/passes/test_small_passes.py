"""InferType, Legalize, SimplifyInference, CanonicalizeOps, FoldConstant, CSE and dead code."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import assert_same, emitter, main, op, run

from minitvm import remarks
from minitvm.errors import TypeInferenceError, VerifyError
from minitvm.origin import Origin, origin
from minitvm.relay import passes
from minitvm.relay.build import BlockBuilder
from minitvm.relay.ir import (
    Binding,
    Block,
    Call,
    Constant,
    Function,
    GlobalVar,
    If,
    Module,
    TensorType,
    TupleGetItem,
    Var,
    map_block,
)
from minitvm.relay.op import Op
from minitvm.relay.verify import verify
from minitvm.testing.oracle import run_wide

VECTOR = TensorType((4,), "float32")


def vector(name="x"):
    return Var(name, VECTOR)


def const(*items, dtype="float32"):
    return Constant(np.array(items, dtype))


def names(module, function="main"):
    return [b.value.callee.name for b in module.functions[function].body.bindings
            if isinstance(b.value, Call)]


def branch(builder, condition, then_of, else_of):
    """An If whose branches are emitted by functions of a nested emitter."""
    blocks = []
    for body_of in (then_of, else_of):
        inner = BlockBuilder(parent=builder)
        blocks.append(inner.finish(body_of(emitter(inner))))
    return emitter(builder)(If(condition, *blocks))


# --- InferType ----------------------------------------------------------------------------------


def test_types_follow_a_parameter_of_another_shape():
    module = main([vector()], lambda b, x: (e := emitter(b))(
        op("abs"), e(op("reshape", (-1, 2)), x)))
    wide = Var("x", TensorType((6,), "float32"))
    bindings = module.main.body.bindings
    first = Binding(bindings[0].var, Call(bindings[0].value.callee, (wide,)), origin("n"))
    body = Block((first, *bindings[1:]), module.main.body.result)
    stale = Module({"main": Function((wide,), body, module.main.result_type)})
    fresh = passes.infer_type(stale)
    verify(fresh)
    assert fresh.main.result_type == TensorType((3, 2), "float32")


def test_ill_typed_programs_are_refused():
    x, y = vector(), Var("y", TensorType((3,), "float32"))
    bad = Binding(Var("z", VECTOR), Call(op("add"), (x, y)), origin("n"))
    module = Module({"main": Function((x, y), Block((bad,), bad.var), VECTOR)})
    with pytest.raises(TypeInferenceError) as caught:
        passes.infer_type(module)
    assert "in pass InferType" in caught.value.__notes__


# --- Legalize -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Twice(Op):
    """Decomposes into an operator that decomposes."""

    name = "test.twice"

    def infer(self, x):
        return x

    def evaluate(self, x):
        return -np.abs(-np.abs(x))

    def legalize(self, emit, x):
        return emit(Once(), emit(Once(), x))


@dataclass(frozen=True, slots=True)
class Once(Op):
    name = "test.once"

    def infer(self, x):
        return x

    def evaluate(self, x):
        return -np.abs(x)

    def legalize(self, emit, x):
        return emit(op("negative"), emit(op("abs"), x))


def test_decompositions_are_decomposed():
    module = main([vector()], lambda b, x: emitter(b)(Twice(), x))
    after = passes.legalize(module)
    assert names(after) == ["abs", "negative", "abs", "negative"]
    assert all(b.origin == origin("n0") for b in after.main.body.bindings)
    assert_same(module, after)


def test_legalize_reaches_branches():
    def build(b, x, c):
        return branch(b, c, lambda e: e(Once(), x), lambda e: e(op("abs"), x))

    module = main([vector(), Var("c", TensorType((), "bool"))], build)
    after = passes.legalize(module)
    taken = after.main.body.bindings[0].value.then_block
    assert [binding.value.callee.name for binding in taken.bindings] == ["abs", "negative"]


# --- SimplifyInference, CanonicalizeOps ---------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1, -3])
def test_batch_norm_is_a_multiplication_and_an_addition(axis):
    shape = (2, 3, 4, 5)
    channels = shape[axis]
    random = np.random.default_rng(0)
    statistics = [Constant(random.uniform(0.5, 2, channels).astype("float32")) for _ in range(4)]
    module = main([Var("x", TensorType(shape, "float32"))], lambda b, x: emitter(b)(
        op("nn.batch_norm", axis=axis), x, *statistics))
    after = passes.simplify_inference(module)
    verify(after)
    assert names(after) == ["multiply", "add"]
    assert all(b.origin == origin("n0") for b in after.main.body.bindings)
    (old,), (new,) = run(module), run(after)
    np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-5)


def test_batch_norm_of_float64_stays_float64():
    statistics = [const(1, 2, dtype="float64")] * 4
    module = main([Var("x", TensorType((1, 2), "float64"))], lambda b, x: emitter(b)(
        op("nn.batch_norm", epsilon=1e-3), x, *statistics))
    (old,), (new,) = run(module), run(passes.simplify_inference(module))
    np.testing.assert_allclose(new, old, rtol=1e-14)


def norm_of(*statistics, epsilon=1e-5):
    """A batch normalisation of one row, of constants or variables."""
    x = Var("x", TensorType((3, statistics[0].type.shape[0]), "float32"))
    params = [x, *(item for item in statistics if isinstance(item, Var))]
    return main(params, lambda b, x, *_: emitter(b)(
        op("nn.batch_norm", epsilon=epsilon), x, *statistics))


EXTREMES = {  # gamma, beta, mean, variance: the definition gives numbers, or other infinities
    "gamma is infinite": (np.inf, 0, 1, 1),
    "mean is infinite": (1, 0, np.inf, 1),
    "gamma / deviation overflows": (3e38, 0, 1, 0),
    "mean * scale overflows": (1e20, 0, 1e20, 1),
    "scale underflows": (1e-38, 0, 1, 1e20),
    "variance is negative": (1, 0, 0, -2),
    "beta is NaN": (1, np.nan, 0, 1),
}


@pytest.mark.parametrize("values", EXTREMES.values(), ids=EXTREMES.keys())
def test_batch_norm_stays_where_its_factors_are_no_numbers(values):
    module = norm_of(*(const(1, value) for value in values))
    with remarks.collect() as declined:
        assert passes.simplify_inference(module) is module
    (found,) = declined
    assert found.pass_name == "SimplifyInference" and "factor" in found.reason
    assert found.origin == origin("n0")


def test_batch_norm_stays_where_its_statistics_are_unknown():
    gamma = Var("gamma", TensorType((2,), "float32"))
    module = norm_of(gamma, const(0, 0), const(0, 0), const(1, 1))
    with remarks.collect() as declined:
        assert passes.simplify_inference(module) is module
    assert ["no constants" in item.reason for item in declined] == [True]


VALUES = st.sampled_from([np.nan, np.inf, -np.inf, 0, -0.0, 1, -2, 1e-45, 1e-30, 1e30, 3e38])


@given(st.lists(st.tuples(VALUES, VALUES, VALUES, VALUES), min_size=1, max_size=3))
def test_batch_norm_of_any_statistics_keeps_its_meaning(channels):
    statistics = [const(*column) for column in zip(*channels, strict=True)]
    module = norm_of(*statistics)
    after = passes.simplify_inference(module)
    rows = np.stack([np.full(len(channels), value, "float32")
                     for value in (np.nan, np.inf, -np.inf, 0, 1, -2, 1e-45)])
    module, after = (resized(item, rows.shape) for item in (module, after))
    (old,), (new,) = run_wide(module, {"x": rows}), run_wide(after, {"x": rows})
    finite = np.isfinite(old)
    np.testing.assert_array_equal(new[~finite], old[~finite])
    with np.errstate(all="ignore"):
        size = np.abs(statistics[2].data.astype(float)) + 2
        scale = np.abs(statistics[0].data / np.sqrt(statistics[3].data + np.float64(1e-5)))
        bound = 1e-6 * np.broadcast_to(scale * size + np.abs(statistics[1].data), old.shape) + 1e-44
        assert np.all(np.abs(new - old)[finite] <= bound[finite])


def resized(module, shape):
    """The module over an input of another batch."""
    x = Var("x", TensorType(shape, "float32"))
    body = map_block(module.main.body, {module.main.params[0]: x})
    return passes.infer_type(Module({"main": Function((x,), body, x.type)}))


def test_dropout_is_nothing():
    module = main([vector()], lambda b, x: emitter(b)(op("nn.dropout"), x))
    assert not passes.simplify_inference(module).main.body.bindings


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_bias_addition_is_an_addition(axis):
    shape = (2, 3, 4)
    bias = Constant(np.arange(shape[axis], dtype="float32"))
    module = main([Var("x", TensorType(shape, "float32"))], lambda b, x: emitter(b)(
        op("nn.bias_add", axis=axis), x, bias))
    after = passes.fold_constant(passes.canonicalize_ops(module))
    assert names(after) == ["add"]
    assert_same(module, after)


# --- FoldConstant -------------------------------------------------------------------------------


def test_constants_fold_with_all_their_origins():
    def build(b, x):
        e = emitter(b)
        return e(op("add"), x, e(op("abs"), e(op("negative"), const(1, -2, 3, 4))))

    after = passes.fold_constant(main([vector()], build))
    (binding,) = after.main.body.bindings
    constant = binding.value.arguments[1]
    np.testing.assert_array_equal(constant.data, [1, 2, 3, 4])
    assert constant.origin == origin("n0", "n1")


def test_fields_of_folded_tuples_are_constants():
    def build(b, x):
        e = emitter(b)
        parts = e(op("split", 2), const(1, 2, 3, 4))
        return e(op("multiply"), x, e(TupleGetItem(parts, 1)))

    after = passes.fold_constant(main([Var("x", TensorType((2,), "float32"))], build))
    (binding,) = after.main.body.bindings
    np.testing.assert_array_equal(binding.value.arguments[1].data, [3, 4])


@pytest.mark.parametrize("truth", [True, False])
def test_a_branch_with_a_known_condition_is_inlined(truth):
    def build(b, x):
        condition = emitter(b)(op("less"), const(1), const(2 if truth else 0))
        test = emitter(b)(op("reshape", ()), condition)
        return branch(
            b, test, lambda e: e(op("abs"), e(op("floor"), x)), lambda e: e(op("ceil"), x))

    after = passes.fold_constant(main([vector()], build))
    verify(after)
    assert names(after) == (["floor", "abs"] if truth else ["ceil"])


def test_what_would_bloat_the_program_is_not_folded_and_remarked():
    def build(b):
        return emitter(b)(op("broadcast_to", (5000, 5000)), const(1))

    module = main([], build)
    with remarks.collect() as found:
        assert passes.fold_constant(module) is module
    assert "95 MiB" in found[0].reason and found[0].origin == origin("n0")


def test_what_has_no_value_is_not_folded_and_remarked():
    @dataclass(frozen=True, slots=True)
    class Picky(Op):
        name = "test.picky"

        def infer(self, x):
            return x

        def evaluate(self, x):
            raise IndexError("out of range")

    module = main([], lambda b: emitter(b)(Picky(), const(1)))
    with remarks.collect() as found:
        assert passes.fold_constant(module) is module
    assert "out of range" in found[0].reason


def test_an_operator_that_breaks_its_type_rule_is_found():
    @dataclass(frozen=True, slots=True)
    class Wrong(Op):
        name = "test.wrong"

        def infer(self, x):
            return x

        def evaluate(self, x):
            return x.astype("float64")

    with pytest.raises(VerifyError, match=r"test\.wrong evaluates to"):
        passes.fold_constant(main([], lambda b: emitter(b)(Wrong(), const(1))))


# --- EliminateCommonSubexpr ---------------------------------------------------------------------


def count_after(build, *params):
    module = main(params or [vector()], build)
    after = passes.eliminate_common_subexpr(module)
    verify(after)
    assert_same(module, after)
    return len(after.main.body.bindings)


def test_equal_calls_are_one():
    def build(b, x):
        e = emitter(b)
        return e(op("add"), e(op("abs"), e(op("floor"), x)), e(op("abs"), e(op("floor"), x)))

    assert count_after(build) == 3


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (lambda e, x: e(op("clip", 0.0, 1.0), x), lambda e, x: e(op("clip", -0.0, 1.0), x)),
        (lambda e, x: e(op("add"), x, const(0.0)), lambda e, x: e(op("add"), x, const(-0.0))),
        (lambda e, x: e(op("abs"), x), lambda e, x: e(op("negative"), x)),
        (lambda e, x: e(op("add"), x, const(1)), lambda e, x: e(op("add"), const(1), x)),
        (lambda e, x: e(op("sum", (0,), True), x), lambda e, x: e(op("max", (0,), True), x)),
    ],
)
def test_what_differs_stays(first, second):
    assert count_after(lambda b, x: (e := emitter(b))(
        op("add"), first(e, x), second(e, x))) == 3


def test_constants_are_equal_by_content():
    assert count_after(lambda b, x: (e := emitter(b))(
        op("multiply"), e(op("add"), x, const(1, np.nan, 3, 4)),
        e(op("add"), x, const(1, np.nan, 3, 4)))) == 2


def test_branches_use_values_from_outside_and_never_the_reverse():
    def build(b, x, c):
        e = emitter(b)
        y = e(op("abs"), x)
        z = branch(b, c, lambda e: e(op("floor"), e(op("abs"), x)), lambda e: e(op("floor"), x))
        w = e(op("floor"), x)
        return e(op("add"), e(op("add"), y, z), w)

    module = main([vector(), Var("c", TensorType((), "bool"))], build)
    after = passes.eliminate_common_subexpr(module)
    verify(after)
    inner = next(b.value for b in after.main.body.bindings if isinstance(b.value, If))
    assert len(inner.then_block.bindings) == 1 and len(inner.else_block.bindings) == 1
    assert len(after.main.body.bindings) == 5


def test_many_equal_calls_take_linear_time():
    def build(b, x):
        e = emitter(b)
        last = [e(op("abs"), x) for _ in range(10_000)][-1]
        return e(op("add"), last, x)

    module = main([vector()], build)
    start = time.process_time()
    after = passes.eliminate_common_subexpr(module)
    assert time.process_time() - start < 2
    assert len(after.main.body.bindings[0].origin.names) == 10_000


# --- DeadCodeElimination ------------------------------------------------------------------------


def test_dead_chains_and_dead_code_in_branches_go():
    def build(b, x, c):
        e = emitter(b)
        e(op("abs"), e(op("floor"), x))

        def side(e):
            e(op("ceil"), x)
            return e(op("negative"), x)

        return branch(b, c, side, side)

    after = passes.dead_code_elimination(
        main([vector(), Var("c", TensorType((), "bool"))], build))
    (binding,) = after.main.body.bindings
    assert len(binding.value.then_block.bindings) == len(binding.value.else_block.bindings) == 1


def test_functions_that_main_does_not_reach_go():
    x = vector()
    inner = Function((x,), Block((), x), VECTOR)
    y, z = vector("y"), vector("z")
    call = Binding(z, Call(GlobalVar("used", inner.type), (y,)), origin("n"))
    outer = Function((y,), Block((call,), z), VECTOR)
    module = Module({"main": outer, "used": inner, "unused": inner})
    assert set(passes.dead_code_elimination(module).functions) == {"main", "used"}


def test_what_closures_use_is_alive():
    def build(b, x):
        e = emitter(b)
        y = e(op("abs"), x)
        inner = BlockBuilder(parent=b)
        param = vector("p")
        body = inner.finish(emitter(inner)(op("add"), param, y))
        closure = e(Function((param,), body, VECTOR))
        return e(Call(closure, (x,)))

    module = main([vector()], build)
    assert passes.dead_code_elimination(module) is module


# --- all of them --------------------------------------------------------------------------------


@pytest.mark.parametrize("item", [
    passes.infer_type, passes.legalize, passes.simplify_inference, passes.canonicalize_ops,
    passes.fold_constant, passes.simplify_expr, passes.eliminate_common_subexpr,
    passes.dead_code_elimination], ids=lambda item: item.name)
def test_ten_thousand_bindings_take_a_second(item):
    bindings, x = [], vector()
    last = x
    for i in range(10_000):
        var = Var(f"v{i}", VECTOR)
        callee = op("add") if i % 2 else op("multiply")
        bindings.append(Binding(var, Call(callee, (last, const(1))), Origin((f"n{i}",))))
        last = var
    module = Module({"main": Function((x,), Block(tuple(bindings), last), VECTOR)})
    start = time.process_time()
    item(module)
    assert time.process_time() - start < 2
