"""`gelu` in small operators: found however it is written, and only where it is one."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_fuse_layers import Net, after, number, operators

from minitvm.origin import origin
from minitvm.relay.build import BlockBuilder
from minitvm.relay.ir import Atom, Call, Constant, Function, Module, TensorType, Tuple, Var
from minitvm.relay.ops.activations import Gelu
from minitvm.relay.passes import fuse_gelu
from minitvm.testing.compiled import compiled_difference

Draw = Callable[[st.SearchStrategy], object]


def either(net: Net, data: st.DataObject, name: str, a: Atom, b: Atom) -> Var:
    """A commutative operator, its arguments in any order."""
    return net(name, a, b) if data.draw(st.booleans()) else net(name, b, a)


def product(net: Net, data: st.DataObject, factors: list[Atom]) -> Atom:
    """The product of factors, in any order; at least one is no constant in each step."""
    left = data.draw(st.permutations(factors))
    while len(left) > 1:
        first = next(i for i, atom in enumerate(left) if not isinstance(atom, Constant))
        second = data.draw(st.sampled_from([i for i in range(len(left)) if i != first]))
        made = either(net, data, "multiply", left[first], left[second])
        left = [atom for i, atom in enumerate(left) if i not in (first, second)] + [made]
    return left[0]


def scaled(net: Net, data: st.DataObject, x: Atom, factor: float) -> Atom:
    """x times a number, or by its reciprocal."""
    if data.draw(st.booleans()):
        return net("divide", x, number(1 / factor))
    return either(net, data, "multiply", x, number(factor))


def cube(net: Net, data: st.DataObject, x: Var) -> Atom:
    if data.draw(st.booleans()):
        return net("power", x, number(3))
    square = net("power", x, number(2)) if data.draw(st.booleans()) else net("multiply", x, x)
    return either(net, data, "multiply", square, x)


def inner_of(net: Net, data: st.DataObject, x: Var, approximate: str) -> Atom:
    """The argument of erf or tanh."""
    if approximate == "none":
        return scaled(net, data, x, math.sqrt(0.5))
    root = math.sqrt(2 / math.pi)
    if data.draw(st.booleans()):
        line = either(net, data, "add", x, scaled(net, data, cube(net, data, x), 0.044715))
        return scaled(net, data, line, root)
    square = scaled(net, data, net("multiply", x, x), 0.044715)
    return product(net, data, [x, number(root), either(net, data, "add", square, number(1))])


def gelu(net: Net, data: st.DataObject, x: Var, approximate: str) -> Atom:
    inner = inner_of(net, data, x, approximate)
    function = net("erf" if approximate == "none" else "tanh", inner)
    if data.draw(st.booleans()):
        half = product(net, data, [x, number(0.5)])
        return either(net, data, "add", half, product(net, data, [half, function]))
    return product(net, data, [x, number(0.5), either(net, data, "add", function, number(1))])


@given(st.data())
@settings(max_examples=60)
def test_gelu_is_found_in_every_form(data: st.DataObject) -> None:
    approximate = data.draw(st.sampled_from(["none", "tanh"]))
    net = Net()
    x: Var = net.input(3, 5)
    if data.draw(st.booleans()):
        x = net("add", net("multiply", x, net.input(5)), net.input(3, 1))
    before = operators(net.module(x))
    found = after(fuse_gelu, net.module(net("abs", gelu(net, data, x, approximate))))
    assert operators(found) == [*before, "gelu", "abs"]
    (call,) = [b.value for b in found.main.body.bindings
               if isinstance(b.value, Call) and isinstance(b.value.callee, Gelu)]
    assert call.callee == Gelu(approximate)


@pytest.mark.parametrize("fault", ["half", "root", "one", "other", "shape", "sign", "square"])
def test_what_is_no_gelu_stays(fault: str) -> None:
    net = Net()
    x = net.input(1, 5) if fault == "shape" else net.input(3, 5)
    root = number(0.7 if fault == "root" else math.sqrt(0.5))
    function = net("erf", net("multiply", x, root))
    term = net("subtract" if fault == "sign" else "add", number(2 if fault == "one" else 1),
               function)
    if fault == "square":
        term = net("multiply", term, term)
    other = net.input(3, 5) if fault in ("other", "shape") else x
    result = net("multiply", net("multiply", other, term), number(0.4 if fault == "half" else 0.5))
    module = net.module(result)
    assert fuse_gelu(module) is module


def test_parts_that_are_used_elsewhere_stay() -> None:
    net = Net()
    x = net.input(3, 5)
    function = net("erf", net("divide", x, number(math.sqrt(2))))
    result = net("multiply", net("multiply", x, number(0.5)), net("add", function, number(1)))
    found = after(fuse_gelu, net.module(Tuple((result, function))))
    assert sorted(operators(found)) == ["divide", "erf", "gelu"]


def test_float16_has_coarse_constants() -> None:
    x = Var("x", TensorType((4,), "float16"))
    builder: BlockBuilder = BlockBuilder(origin("n"))
    net = Net()
    net.builder, net.params = builder, [x]

    def half(value: float) -> Constant:
        return Constant(np.float16(value))

    function = net("erf", net("divide", x, half(math.sqrt(2))))
    result = net("multiply", x, net("multiply", half(0.5), net("add", function, half(1))))
    module = Module({"main": Function((x,), builder.finish(result), result.type)})
    assert operators(fuse_gelu(module)) == ["gelu"]


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_behind_a_product_is_part_of_its_kernel(approximate: str) -> None:
    """And the machine code computes what the small operators mean."""
    net = Net()
    x = net("nn.dense", net.input(6, 20), net.input(24, 20))
    root = math.sqrt(0.5 if approximate == "none" else 2 / math.pi)
    inner = x if approximate == "none" else net("add", x, net(
        "multiply", number(0.044715), net("power", x, number(3))))
    function = net("erf" if approximate == "none" else "tanh",
                   net("multiply", inner, number(root)))
    module = net.module(net("multiply", net("multiply", x, net("add", function, number(1))),
                            number(0.5)))
    random = np.random.default_rng(0)
    inputs = {p.name: random.standard_normal(p.type.extents()).astype("float32")
              for p in net.params}
    assert not compiled_difference(module, inputs)
