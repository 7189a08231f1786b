"""Small networks by hand, and the pass that chooses layouts over them."""

from __future__ import annotations

from typing import Any

import numpy as np

import minitvm.relay.ops  # noqa: F401  (registers the operators)
from minitvm.origin import origin
from minitvm.relay.build import BlockBuilder
from minitvm.relay.interpret import run
from minitvm.relay.ir import Atom, Call, Constant, Function, Module, TensorType, Var, walk_bindings
from minitvm.relay.op import Op, lookup
from minitvm.relay.passes.alter_op_layout import alter_op_layout
from minitvm.relay.verify import verify
from minitvm.target import Target
from minitvm.transform import PassContext

FLOAT = "float32"


class Lanes(Target):
    """A target of some vector width."""

    __slots__ = ("count",)

    def __init__(self, lanes: int) -> None:
        super().__init__("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3")
        object.__setattr__(self, "count", lanes)

    def lanes(self, dtype: str) -> int:
        return self.count if dtype == FLOAT else 1


def alter(module: Module, lanes: int, search: str = "greedy") -> Module:
    """Greedy in most tests: what they are about is what follows, however small the tensors."""
    with PassContext(config={"relay.layouts": search}):
        result = alter_op_layout(Lanes(lanes))(module)
    verify(result)
    return result


def op(name: str, *args: Any, **attributes: Any) -> Op:
    return lookup(name)(*args, **attributes)


def whole(*shape: int, seed: int = 0) -> np.ndarray:
    """Small integers held as floats."""
    return np.random.default_rng((seed, *shape)).integers(-3, 4, shape).astype(FLOAT)


def constant(*shape: int) -> Constant:
    return Constant(whole(*shape))


class Net:
    """A graph by hand: `x` is an image, every call gets an origin of its own."""

    def __init__(self, channels: int = 6, size: int = 5) -> None:
        self.x = Var("x", TensorType((2, channels, size, size), FLOAT))
        self.params = [self.x]
        self.builder = BlockBuilder()

    def param(self, *shape: int) -> Var:
        var = Var(f"p{len(self.params)}", TensorType(shape, FLOAT))
        self.params.append(var)
        return var

    def emit(self, name: str, *arguments: Atom, **attributes: Any) -> Var:
        place = origin(f"node{len(self.builder.bindings)}")
        return self.builder.emit(op(name, **attributes), *arguments, origin=place)

    def conv(self, x: Var, filters: int, size: int = 1) -> Var:
        weight = constant(filters, x.type.shape[1], size, size)  # type: ignore[union-attr]
        return self.emit("nn.conv2d", x, weight, padding=size // 2)

    def module(self, result: Atom) -> Module:
        assert result.type is not None
        body = self.builder.finish(result)
        return Module({"main": Function(tuple(self.params), body, result.type)})


def same_result(module: Module, lanes: int) -> Module:
    """The altered module, after a check that it computes the same, exactly."""
    altered = alter(module, lanes)
    inputs = {param.name: whole(*param.type.shape) for param in module.main.params}  # type: ignore[union-attr]
    for got, wanted in zip(run(altered, inputs), run(module, inputs), strict=True):
        np.testing.assert_array_equal(got, wanted)
    return altered


def calls(module: Module, name: str) -> list[Call]:
    return [
        b.value
        for b in walk_bindings(module.main.body)
        if isinstance(b.value, Call) and isinstance(b.value.callee, Op)
        and b.value.callee.name == name
    ]


def transforms(module: Module) -> int:
    """How many transforms there are of values that are not constants."""
    return sum(not isinstance(call.arguments[0], Constant)
               for call in calls(module, "layout_transform"))
