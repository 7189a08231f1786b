"""Attention and layer normalisation in small operators: found in every form, and only where the
result is the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import op

from minitvm.origin import origin
from minitvm.relay.build import BlockBuilder
from minitvm.relay.interpret import run
from minitvm.relay.ir import Atom, Call, Constant, Function, Module, TensorType, Tuple, Var
from minitvm.relay.origins import check_origins_kept
from minitvm.relay.passes import fuse_attention, fuse_layer_norm, legalize
from minitvm.relay.verify import verify
from minitvm.transform import Pass


class Net:
    """A module being written, with an origin for each call."""

    def __init__(self) -> None:
        self.params: list[Var] = []
        self.builder: BlockBuilder = BlockBuilder()

    def input(self, *shape: int) -> Var:
        self.params.append(Var(f"x{len(self.params)}", TensorType(shape, "float32")))
        return self.params[-1]

    def __call__(self, name: str, *arguments: Atom, **attributes: Any) -> Var:
        source = origin(f"n{len(self.builder.bindings)}")
        return self.builder.emit(op(name, **attributes), *arguments, origin=source)

    def module(self, result: Any) -> Module:
        if isinstance(result, Tuple):
            result = self.builder.emit(result, origin=origin("outputs"))
        function = Function(tuple(self.params), self.builder.finish(result), result.type)
        return Module({"main": function})


def number(value: float) -> Constant:
    return Constant(np.float32(value))


def operators(module: Module) -> list[str]:
    calls = [binding.value for binding in module.main.body.bindings]
    return [call.callee.name for call in calls if isinstance(call, Call)]  # type: ignore[union-attr]


def after(item: Pass[Module], module: Module) -> Module:
    """The module after a pass: well-formed, of the same value, with all origins."""
    module = legalize(module)
    result = item(module)
    verify(result)
    check_origins_kept(module, result)
    random = np.random.default_rng(3)
    inputs = {param.name: random.standard_normal(param.type.extents()).astype("float32")
              for param in module.main.params}
    for old, new in zip(run(module, inputs), run(result, inputs), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-5)
    assert item(result) is result
    return result


def attention(net: Net, rank: int, form: str, scale: str, mask: str) -> Var:
    """softmax(q k * scale + mask) v, of three heads where the rank is 4."""
    outer = (2, 3)[: rank - 2]
    q, v = net.input(*outer, 5, 8), net.input(*outer, 7, 6)
    if form == "matmul":
        scores = net("matmul", q, net.input(*outer, 8, 7))
    else:
        scores = net("nn.batch_matmul", q, net.input(*outer, 7, 8))
    if scale == "divide":
        scores = net("divide", scores, number(8**0.5))
    elif scale == "multiply":
        scores = net("multiply", number(0.3), scores)
    if mask != "none":
        given = net.input(*{"whole": (*outer, 5, 7), "row": (1,) * (rank - 1) + (7,),
                            "vector": (7,)}[mask])
        scores = net("add", given, scores) if mask == "row" else net("add", scores, given)
    weights = net("nn.softmax", scores)
    if form == "matmul":
        return net("matmul", weights, v)
    return net("nn.batch_matmul", weights, v, transpose_b=False)


@given(rank=st.sampled_from([3, 4]), form=st.sampled_from(["matmul", "batch_matmul"]),
       scale=st.sampled_from(["none", "divide", "multiply"]),
       mask=st.sampled_from(["none", "whole", "row", "vector"]))
@settings(max_examples=30)
def test_attention_is_found_in_every_form(rank: int, form: str, scale: str, mask: str) -> None:
    net = Net()
    form = form if rank == 3 else "matmul"
    found = after(fuse_attention, net.module(attention(net, rank, form, scale, mask)))
    assert operators(found).count("nn.attention") == 1
    assert not {"nn.softmax", "matmul", "nn.batch_matmul"} & set(operators(found))


def not_found(item: Pass[Module], module: Module) -> None:
    assert item(legalize(module)) is legalize(module) or not (
        {"nn.attention", "nn.standardize"} & set(operators(item(legalize(module)))))


def test_attention_whose_weights_are_an_output_stays() -> None:
    net = Net()
    scores = net("matmul", net.input(2, 5, 8), net.input(2, 8, 7))
    weights = net("nn.softmax", scores)
    mixed = net("matmul", weights, net.input(2, 7, 6))
    not_found(fuse_attention, net.module(Tuple((mixed, weights))))


@pytest.mark.parametrize("fault", ["axis", "broadcast", "rank", "mask"])
def test_what_is_no_attention_stays(fault: str) -> None:
    net = Net()
    outer = (2, 3, 4) if fault == "rank" else (2, 3)
    k = net.input(8, 7) if fault == "broadcast" else net.input(*outer, 8, 7)
    scores = net("matmul", net.input(*outer, 5, 8), k)
    if fault == "mask":  # of more batches than the scores have
        scores = net("add", scores, net.input(4, 1, 1, 5, 7))
    weights = net("nn.softmax", scores, axis=2 if fault == "axis" else -1)
    v = net.input(7, 6) if fault == "mask" else net.input(*outer, 7, 6)
    not_found(fuse_attention, net.module(net("matmul", weights, v)))


# --- layer normalisation ------------------------------------------------------------------------


def layer_norm(net: Net, x: Atom, square: str, axes: tuple[int, ...], epsilon: float) -> Var:
    distance = net("subtract", x, net("mean", x, axis=axes, keepdims=True))
    squares = (net("multiply", distance, distance) if square == "product"
               else net("power", distance, number(2)))
    variance = net("mean", squares, axis=axes, keepdims=True)
    deviation = net("sqrt", net("add", variance, number(epsilon)))
    return net("divide", distance, deviation)


@pytest.mark.parametrize("square", ["product", "power"])
@pytest.mark.parametrize("axes", [(-1,), (1, 2), (0, 1, 2)], ids=str)
def test_layer_normalisation_is_found(square: str, axes: tuple[int, ...]) -> None:
    net = Net()
    result = layer_norm(net, net.input(2, 3, 10), square, axes, 1e-3)
    found = after(fuse_layer_norm, net.module(net("multiply", result, net.input(10))))
    assert operators(found) == ["nn.standardize", "multiply"]
    (call, _) = [binding.value for binding in found.main.body.bindings]
    assert call.callee.axes == len(axes)  # type: ignore[union-attr]
    assert call.callee.epsilon == pytest.approx(1e-3)  # type: ignore[union-attr]


@given(square=st.sampled_from(["product", "power"]), centered=st.booleans(),
       root=st.sampled_from(["divide", "reciprocal", "one over", "rsqrt"]),
       axes=st.sampled_from([(-1,), (1, 2)]), swapped=st.booleans())
@settings(max_examples=30)
def test_every_way_to_divide_by_the_deviation_is_found(
    square: str, centered: bool, root: str, axes: tuple[int, ...], swapped: bool
) -> None:
    net = Net()
    x = distance = net.input(2, 3, 10)
    if centered:
        distance = net("subtract", x, net("mean", x, axis=axes, keepdims=True))
    squares = (net("multiply", distance, distance) if square == "product"
               else net("power", distance, number(2)))
    inner = net("add", net("mean", squares, axis=axes, keepdims=True), number(1e-3))
    if root == "divide":
        result = net("divide", distance, net("sqrt", inner))
    else:
        if root == "rsqrt":
            factor = net("rsqrt", inner)
        elif root == "reciprocal":
            factor = net("reciprocal", net("sqrt", inner))
        else:
            factor = net("divide", number(1), net("sqrt", inner))
        result = net("multiply", *((factor, distance) if swapped else (distance, factor)))
    found = after(fuse_layer_norm, net.module(net("multiply", net.input(10), result)))
    assert operators(found) == ["nn.standardize", "multiply"]
    (call, _) = [binding.value for binding in found.main.body.bindings]
    assert call.callee.centered is centered  # type: ignore[union-attr]


@pytest.mark.parametrize("fault", ["axis", "cube", "other", "two"])
def test_what_is_no_normalisation_by_the_mean_square_stays(fault: str) -> None:
    net = Net()
    x, y = net.input(3, 4, 10), net.input(3, 4, 10)
    squares = net("power", y if fault == "other" else x, number(3 if fault == "cube" else 2))
    axes = (1,) if fault == "axis" else (-1,)
    root = net("sqrt", net("add", net("mean", squares, axis=axes, keepdims=True), number(0.1)))
    inverse = net("divide", number(2 if fault == "two" else 1), root)
    not_found(fuse_layer_norm, net.module(net("multiply", x, inverse)))


@pytest.mark.parametrize("fault", ["axis", "cube", "other"])
def test_what_is_no_layer_normalisation_stays(fault: str) -> None:
    """Statistics of inner axes, a cube, another tensor's variance or mean."""
    net = Net()
    x, y = net.input(3, 4, 10), net.input(3, 4, 10)
    axes = (1,) if fault == "axis" else (-1,)
    centre = net("mean", y if fault == "centre" else x, axis=axes, keepdims=True)
    distance = net("subtract", x, centre)
    base = y if fault == "other" else distance
    squares = net("power", base, number(3 if fault == "cube" else 2))
    variance = net("mean", squares, axis=axes, keepdims=True)
    deviation = net("sqrt", net("add", variance, number(0.1)))
    not_found(fuse_layer_norm, net.module(net("divide", distance, deviation)))


def test_a_distance_to_another_mean_is_not_centered_again() -> None:
    net = Net()
    x, y = net.input(3, 4, 10), net.input(3, 4, 10)
    distance = net("subtract", x, net("mean", y, axis=(-1,), keepdims=True))
    variance = net("mean", net("multiply", distance, distance), axis=(-1,), keepdims=True)
    deviation = net("sqrt", net("add", variance, number(0.1)))
    found = after(fuse_layer_norm, net.module(net("divide", distance, deviation)))
    assert operators(found)[-2:] == ["subtract", "nn.standardize"]
    assert not found.main.body.bindings[-1].value.callee.centered  # type: ignore[union-attr]


def test_a_layer_whose_parts_are_used_elsewhere_is_still_one() -> None:
    net = Net()
    x = net.input(3, 10)
    result = layer_norm(net, x, "power", (-1,), 0.01)
    extra = net("subtract", x, net("mean", x, axis=(-1,), keepdims=True))
    found = after(fuse_layer_norm, net.module(Tuple((result, extra))))
    assert "nn.standardize" in operators(found) and "sqrt" not in operators(found)
