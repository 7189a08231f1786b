"""FoldScaleAxis: what folds, what must not, and that results stay the same."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minitvm.relay.ops  # noqa: F401  (registers the operators)
from minitvm.origin import origin
from minitvm.relay.build import BlockBuilder
from minitvm.relay.interpret import run
from minitvm.relay.ir import Atom, Call, Constant, Function, If, Module, TensorType, Tuple, Var
from minitvm.relay.op import Op, lookup
from minitvm.relay.passes.fold_scale_axis import fold_scale_axis
from minitvm.relay.text import parse_module, print_module
from minitvm.relay.verify import verify
from minitvm.remarks import collect
from minitvm.testing.relay_strategies import Case, relay_cases

FLOAT = "float32"


def op(name: str, *args: Any, **attributes: Any) -> Op:
    return lookup(name)(*args, **attributes)


def whole(*shape: int, seed: int = 0) -> np.ndarray:
    """Small integers held as floats, none of them zero."""
    random = np.random.default_rng((seed, *shape))
    return (random.integers(1, 4, shape) * random.choice([-1, 1], shape)).astype(FLOAT)


def positive(*shape: int) -> Constant:
    """Powers of two: scaling by them is exact."""
    return Constant(2.0 ** np.random.default_rng(shape).integers(-2, 3, shape).astype(FLOAT))


def negative(*shape: int) -> Constant:
    return Constant(-positive(*shape).data)


class Net:
    """A graph by hand over an image `x`; every call has an origin of its own."""

    def __init__(self, *shape: int) -> None:
        self.x = Var("x", TensorType(shape or (2, 4, 5, 5), FLOAT))
        self.builder = BlockBuilder()

    def emit(self, name: str, *arguments: Atom, **attributes: Any) -> Var:
        place = origin(f"node{len(self.builder.bindings)}")
        return self.builder.emit(op(name, **attributes), *arguments, origin=place)

    def conv(self, x: Atom, filters: int = 6, groups: int = 1, padding: int = 1) -> Var:
        channels = x.type.shape[1]  # type: ignore[union-attr]
        weight = Constant(whole(filters, channels // groups, 3, 3))
        return self.emit("nn.conv2d", x, weight, padding=padding, groups=groups)

    def module(self, result: Atom) -> Module:
        assert result.type is not None
        body = self.builder.finish(result)
        return Module({"main": Function((self.x,), body, result.type)})


def multiplications(module: Module) -> int:
    return sum(
        isinstance(b.value, Call) and isinstance(b.value.callee, Op)
        and b.value.callee.name == "multiply"
        for b in module.main.body.bindings
    )


def folded(module: Module) -> Module:
    """The module after the pass, which must be well-formed and compute exactly the same."""
    result = fold_scale_axis(module)
    verify(result)
    x = whole(*module.main.params[0].type.shape, seed=1)  # type: ignore[union-attr]
    for got, wanted in zip(run(result, {"x": x}), run(module, {"x": x}), strict=True):
        np.testing.assert_array_equal(got, wanted)
    return result


def check_folds(module: Module, left: int = 0) -> None:
    assert multiplications(folded(module)) == left


def check_stays(module: Module, reason: str) -> None:
    with collect() as remarks:
        assert fold_scale_axis(module) is module
    assert any(reason in item.reason for item in remarks), [str(item) for item in remarks]


# --- backward -----------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1), (8, 1, 1), (1, 8, 1, 1)])
@pytest.mark.parametrize("scale", [positive, negative])
def test_a_scale_folds_into_the_convolution_before_it(
    scale: Any, shape: tuple[int, ...], groups: int
) -> None:
    net = Net()
    check_folds(net.module(net.emit("multiply", net.conv(net.x, 8, groups), scale(*shape))))
    net = Net()
    check_folds(net.module(net.emit("multiply", scale(*shape), net.conv(net.x, 8, groups))))


def test_a_scale_folds_into_the_dense_layer_before_it() -> None:
    net = Net(3, 5)
    y = net.emit("nn.dense", net.x, Constant(whole(4, 5)))
    y = net.emit("multiply", y, negative(4))
    check_folds(net.module(net.emit("nn.bias_add", y, Constant(whole(4)))))


BIASES: list[tuple[str, Any, Any]] = [
    ("add", (6, 1, 1), "data, bias"), ("add", (6, 1, 1), "bias, data"), ("add", (), "data, bias"),
    ("subtract", (1, 6, 1, 1), "data, bias"), ("subtract", (6, 1, 1), "bias, data"),
    ("nn.bias_add", (6,), "data, bias"), ("add", (1,), "data, bias"),
]


@pytest.mark.parametrize(("name", "shape", "order"), BIASES)
@pytest.mark.parametrize("scale", [positive, negative])
def test_a_scale_passes_an_addition(scale: Any, name: str, shape: Any, order: str) -> None:
    net = Net()
    y, bias = net.conv(net.x), Constant(whole(*shape))
    y = net.emit(name, *((y, bias) if order == "data, bias" else (bias, y)))
    check_folds(net.module(net.emit("multiply", y, scale(6, 1, 1))))


POSITIVE_ONLY: list[tuple[str, list[Constant], dict[str, Any]]] = [
    ("nn.relu", [], {}), ("nn.leaky_relu", [], {"alpha": 0.5}),
    ("nn.prelu", [Constant(whole(6, 1, 1))], {}), ("nn.max_pool2d", [], {"pool_size": 2}),
    ("nn.global_max_pool2d", [], {}),
]
ANY_SIGN: list[tuple[str, list[Constant], dict[str, Any]]] = [
    ("nn.avg_pool2d", [], {"pool_size": 2, "padding": 1}),
    ("nn.pad", [], {"pad_width": ((0, 0), (0, 0), (1, 0), (0, 2))}),
    ("nn.pad", [], {"pad_width": ((0, 0), (0, 0), (1, 0), (0, 2)), "pad_mode": "edge"}),
]


@pytest.mark.parametrize(("name", "others", "attributes"), POSITIVE_ONLY)
def test_a_positive_scale_passes_what_compares(name: str, others: Any, attributes: Any) -> None:
    for scale in (positive(6, 1, 1), negative(6, 1, 1), Constant(np.float32(0))):
        net = Net()
        y = net.emit(name, net.conv(net.x), *others, **attributes)
        module = net.module(net.emit("multiply", y, scale))
        if scale.data.min() > 0:
            check_folds(module)
        else:
            check_stays(module, f"a scale that is not positive does not pass {name}")


@pytest.mark.parametrize(("name", "others", "attributes"), ANY_SIGN)
def test_any_scale_passes_what_adds(name: str, others: Any, attributes: Any) -> None:
    net = Net()
    y = net.emit(name, net.conv(net.x), *others, **attributes)
    check_folds(net.module(net.emit("multiply", y, negative(6, 1, 1))))


def test_scales_fold_one_after_the_other() -> None:
    net = Net()
    y = net.conv(net.x)
    for _ in range(3):
        y = net.emit("multiply", y, negative(6, 1, 1))
        y = net.emit("add", y, Constant(whole(6, 1, 1)))
    check_folds(net.module(net.conv(net.emit("nn.relu", y))))


def test_what_must_not_fold_backward() -> None:
    scale = positive(6, 1, 1)

    net = Net()
    y = net.conv(net.x)
    z = net.emit("multiply", y, scale)
    check_stays(net.module(net.emit("add", y, z)), "v0 is used elsewhere too")

    net = Net()
    y = net.emit("nn.relu", net.conv(net.x))
    z = net.emit("multiply", y, scale)
    pair = net.builder.emit(Tuple((y, z)), origin=origin("pair"))
    check_stays(net.module(pair), "is used elsewhere too")

    net = Net()
    y = net.emit("clip", net.conv(net.x), a_min=0.0, a_max=6.0)
    check_stays(net.module(net.emit("multiply", y, scale)), "a scale does not pass clip")

    net = Net()
    widths = ((0, 0), (0, 0), (1, 0), (0, 2))
    y = net.emit("nn.pad", net.conv(net.x), pad_width=widths, pad_value=1.0)
    check_stays(net.module(net.emit("multiply", y, scale)), "a scale does not pass nn.pad")

    net = Net()
    widths = ((0, 0), (0, 2), (0, 0), (0, 0))
    y = net.emit("nn.pad", net.conv(net.x, 4), pad_width=widths)
    check_stays(net.module(net.emit("multiply", y, scale)), "a scale does not pass nn.pad")

    net = Net()
    y = net.emit("add", net.conv(net.x), Constant(whole(6, 5, 5)))
    check_stays(net.module(net.emit("multiply", y, scale)), "not one for each channel")


def test_weights_that_are_no_constants_stay() -> None:
    net = Net(4, 4, 3, 3)
    y = net.emit("nn.conv2d", net.x, net.x, padding=1)
    check_stays(net.module(net.emit("multiply", y, positive(4, 1, 1))), "does not pass nn.conv2d")


@pytest.mark.parametrize("shape", [(5,), (5, 5), (5, 1), (6, 5, 5), (2, 1, 1, 1), (2, 6, 1, 1)])
def test_what_is_no_scale_of_channels_stays(shape: tuple[int, ...]) -> None:
    net = Net()
    module = net.module(net.emit("multiply", net.conv(net.x), positive(*shape)))
    assert fold_scale_axis(module) is module


def test_a_factor_that_widens_the_result_stays() -> None:
    net = Net()
    module = net.module(net.emit("multiply", net.conv(net.x, 1), positive(6, 1, 1)))
    assert fold_scale_axis(module) is module


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_scale_that_is_not_finite_stays(value: float) -> None:
    net = Net()
    scale = positive(6, 1, 1).data.copy()
    scale[2] = value
    module = net.module(net.emit("multiply", net.conv(net.x), Constant(scale)))
    assert fold_scale_axis(module) is module


def test_what_would_overflow_stays() -> None:
    net = Net()
    y = net.emit("add", net.conv(net.x), Constant(np.full((6, 1, 1), 1e30, FLOAT)))
    huge = Constant(np.full((6, 1, 1), 1e20, FLOAT))
    check_stays(net.module(net.emit("multiply", y, huge)), "the constant of add would overflow")
    net = Net()
    weight = Constant(np.full((6, 4, 1, 1), 1e30, FLOAT))
    y = net.emit("nn.conv2d", net.x, weight)
    module = net.module(net.emit("multiply", y, huge))
    check_stays(module, "the weights of nn.conv2d would overflow")


def test_zero_scales_fold_where_nothing_compares() -> None:
    net = Net()
    scale = Constant(np.array([0, 1, -1, 0, 2, 4], FLOAT).reshape(6, 1, 1))
    y = net.emit("add", net.conv(net.x), Constant(whole(6, 1, 1)))
    check_folds(net.module(net.emit("multiply", y, scale)))


# --- forward ------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("scale", [positive, negative])
def test_a_scale_folds_into_the_convolution_behind_it(scale: Any, groups: int) -> None:
    net = Net()
    y = net.emit("multiply", net.x, scale(4, 1, 1))
    check_folds(net.module(net.conv(y, 8, groups)))


def test_a_scale_folds_into_all_that_uses_it() -> None:
    net = Net()
    y = net.emit("nn.relu", net.emit("multiply", net.x, positive(4, 1, 1)))
    z = net.emit("nn.max_pool2d", y, pool_size=3, padding=1)
    check_folds(net.module(net.emit("add", net.conv(y), net.conv(z))))


def test_a_scale_folds_into_the_dense_layer_behind_it() -> None:
    net = Net(3, 5)
    y = net.emit("multiply", net.x, negative(5))
    check_folds(net.module(net.emit("nn.dense", y, Constant(whole(4, 5)))))


def test_what_must_not_fold_forward() -> None:
    net = Net()
    y = net.emit("multiply", net.x, positive(4, 1, 1))
    check_stays(net.module(net.emit("add", y, net.conv(y, 4))), "a scale does not pass add")

    net = Net()
    y = net.emit("nn.relu", net.emit("multiply", net.x, negative(4, 1, 1)))
    check_stays(net.module(net.conv(y)), "not positive does not pass nn.relu")

    net = Net()
    y = net.emit("multiply", net.x, positive(4, 1, 1))
    pair = net.builder.emit(Tuple((net.conv(y), y)), origin=origin("pair"))
    check_stays(net.module(pair), "is used where a scale can't be taken out")

    net = Net()
    check_stays(net.module(net.emit("multiply", net.x, positive(4, 1, 1))), "v0 is a result")

    net = Net()
    y = net.emit("multiply", net.x, positive(4, 1, 1))
    widths = ((0, 0), (0, 0), (1, 1), (1, 1))
    z = net.emit("nn.pad", y, pad_width=widths, pad_value=2.0)
    check_stays(net.module(net.conv(z)), "a scale does not pass nn.pad")

    net = Net(4, 4, 3, 3)
    y = net.emit("multiply", net.x, positive(4, 1, 1))
    check_stays(net.module(net.emit("nn.conv2d", y, y, padding=1)), "a result, or has uses")


# --- the whole ----------------------------------------------------------------------------------


def test_branches_fold_inside_and_keep_what_they_use() -> None:
    net = Net()
    outer = net.conv(net.x, 4)
    blocks = []
    for name in ("then", "else"):
        inner = BlockBuilder(origin(name), parent=net.builder)
        y = inner.emit(op("nn.conv2d", padding=1), outer, Constant(whole(4, 4, 3, 3)))
        blocks.append(inner.finish(inner.emit(op("multiply"), y, negative(4, 1, 1))))
    y = net.builder.emit(If(Constant(np.array(True)), *blocks), origin=origin("if"))
    z = net.emit("multiply", outer, positive(4, 1, 1))  # used in the branches too
    result = folded(net.module(net.emit("add", y, z)))
    assert multiplications(result) == 1
    branch = next(b.value for b in result.main.body.bindings if isinstance(b.value, If))
    assert all(len(block.bindings) == 1 for block in (branch.then_block, branch.else_block))


def test_origins_go_where_the_scale_went() -> None:
    net = Net()
    y = net.emit("add", net.conv(net.x), Constant(whole(6, 1, 1)))
    module = net.module(net.emit("multiply", net.emit("nn.relu", y), positive(6, 1, 1)))
    names = [binding.origin.names for binding in folded(module).main.body.bindings]
    assert names == [("node0", "node3"), ("node1", "node3"), ("node2",)]


@given(relay_cases(exact=True, branches=True, max_moves=12))
def test_random_modules_compute_the_same(case: Case) -> None:
    result = fold_scale_axis(case.module)
    verify(result)
    for got, wanted in zip(
        run(result, case.inputs), run(case.module, case.inputs), strict=True
    ):
        np.testing.assert_array_equal(got, wanted)


@given(st.data())
def test_random_chains_compute_the_same(data: st.DataObject) -> None:
    net = Net()
    values = [net.conv(net.x, 6)]
    for _ in range(data.draw(st.integers(1, 8))):
        y = data.draw(st.sampled_from(values[-2:]))
        scale = data.draw(st.sampled_from([positive, negative]))
        values.append(data.draw(st.sampled_from([
            lambda y=y, scale=scale: net.emit("multiply", y, scale(6, 1, 1)),
            lambda y=y, scale=scale: net.emit("multiply", scale(1, 6, 1, 1), y),
            lambda y=y: net.emit("add", y, Constant(whole(6, 1, 1))),
            lambda y=y: net.emit("add", y, values[0]),
            lambda y=y: net.emit("subtract", Constant(whole(6, 1, 1)), y),
            lambda y=y: net.emit("nn.relu", y),
            lambda y=y: net.conv(y, 6, data.draw(st.sampled_from([1, 2, 6]))),
            lambda y=y: net.emit("nn.max_pool2d", y, pool_size=3, padding=1),
        ]))())
    module = net.module(values[-1])
    result = fold_scale_axis(module)
    verify(result)
    x = whole(2, 4, 5, 5, seed=1)
    got, wanted = run(result, {"x": x})[0], run(module, {"x": x})[0]
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    assert multiplications(result) <= multiplications(module)


@given(st.lists(st.sampled_from([-2.0, -0.5, 0.5, 2.0]), min_size=6, max_size=6),
       st.sampled_from(["relu", "pool"]), st.booleans(), st.booleans())
def test_scales_of_any_sign_around_what_compares(
    factors: list[float], between: str, before: bool, behind: bool
) -> None:
    """A scale next to a comparison, convolutions on one side of it or on both."""
    net = Net(2, 6, 5, 5)
    scale = Constant(np.array(factors, FLOAT).reshape(6, 1, 1))
    y = net.conv(net.x, 6) if before else net.x
    for step in (("scale", between) if behind else (between, "scale")):
        if step == "scale":
            y = net.emit("multiply", y, scale)
        elif step == "relu":
            y = net.emit("nn.relu", y)
        else:
            y = net.emit("nn.max_pool2d", y, pool_size=3, padding=1)
    folded(net.module(net.conv(y, 6)))


def test_long_chains_take_linear_time() -> None:
    net = Net(1, 4, 1, 1)
    y = net.conv(net.x, 4)
    for _ in range(4_000):
        y = net.emit("add", net.emit("multiply", y, positive(4, 1, 1)), Constant(whole(4, 1, 1)))
    module = net.module(y)
    start = time.process_time()
    fold_scale_axis(module)
    assert time.process_time() - start < 8


def test_the_example_of_the_docstring() -> None:
    text = fold_scale_axis.function.__doc__
    assert text is not None
    before, after = (
        "\n".join(line[8:] for line in part.splitlines()).strip()
        for part in text.split("Before:")[1].split("After:")
    )
    assert print_module(fold_scale_axis(parse_module(before))).strip() == after
