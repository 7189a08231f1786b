"""Relay -> relay in which the Gaussian error linear unit written in small operators is `gelu`.

Exporters write it in many ways: factors in any order, a division by the root of 2 or a product with
that of 1/2, a power or a product. All are one polynomial in x and the function T of x:

    x / 2 + x * T / 2      T = erf(sqrt(1/2) * x), or tanh(sqrt(2/pi) * (x + 0.044715 * x**3))

So both are multiplied out, and their coefficients compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from minitvm import dtypes
from minitvm.origin import Origin, merge_all
from minitvm.relay.build import BlockBuilder, rebuild_module
from minitvm.relay.ir import Atom, Binding, Call, Constant, Module, Value, tensor_type
from minitvm.relay.op import Op
from minitvm.relay.ops.activations import Gelu
from minitvm.relay.ops.broadcast import Add, Divide, Multiply, Power, Subtract
from minitvm.relay.ops.calculus import Erf, Tanh
from minitvm.relay.ops.elementwise import Negative
from minitvm.relay.passes.dead_code_elimination import without_dead_code_of
from minitvm.transform import make_pass

Polynomial = dict[tuple[int, int], float]
"""From powers of x and T to coefficients."""

OUTER_STEPS = 3
"""How many operators lie between the result and the function T, at the most."""
MOST_STEPS = 6
"""How many operators lie one behind another in a polynomial, at the most."""
MOST_POWER = 3

GELU: Polynomial = {(1, 0): 0.5, (1, 1): 0.5}
INNER: dict[type[Op], tuple[str, Polynomial]] = {
    Erf: ("none", {(1, 0): math.sqrt(0.5)}),
    Tanh: ("tanh", {(1, 0): math.sqrt(2 / math.pi), (3, 0): 0.044715 * math.sqrt(2 / math.pi)}),
}
"""For each function T the approximation that it makes, and its argument."""


@make_pass("FuseGelu", opt_level=3)
def fuse_gelu(module: Module) -> Module:
    """Makes a `gelu` of `0.5 * x * (1 + erf(x / sqrt(2)))`, and of its approximation by tanh, in
    whatever order factors and terms come. Results differ by rounding.

    Before:

        def main(x: Tensor((3,), "float32")) -> Tensor((3,), "float32"):
            v0 = divide(x, const(1.4142135, (), "float32"))  #: "a"
            v1 = erf(v0)  #: "b"
            v2 = add(v1, const(1.0, (), "float32"))  #: "c"
            v3 = multiply(x, v2)  #: "d"
            v4 = multiply(v3, const(0.5, (), "float32"))  #: "e"
            return v4

    After:

        def main(x: Tensor((3,), "float32")) -> Tensor((3,), "float32"):
            v0 = gelu(x)  #: "a", "b", "c", "d", "e"
            return v0
    """
    return without_dead_code_of(module, rebuild_module(module, _fused))


def _fused(builder: BlockBuilder, binding: Binding) -> Value | None:
    """The gelu that a product, or a sum, of floats ends."""
    value = binding.value
    if not isinstance(value, Call) or not isinstance(value.callee, Multiply | Divide | Add):
        return None
    if not dtypes.is_float(tensor_type(binding.var).dtype):
        return None
    function = next(_functions(builder, value, OUTER_STEPS), None)
    if function is None:
        return None
    made = builder.binding_of(function)
    assert made is not None and isinstance(made.value, Call)
    approximate, wanted = INNER[type(made.value.callee)]  # type: ignore[index]
    for x in dict.fromkeys(_factors(builder, value, OUTER_STEPS)):
        if x is function or tensor_type(x) != tensor_type(binding.var):
            continue
        reader = _Reader(builder, x, function, [binding.origin, made.origin])
        inner, outer = reader.atom(made.value.arguments[0]), reader.call(value)
        if _same(inner, wanted, reader.tolerance) and _same(outer, GELU, reader.tolerance):
            return builder.emit(Gelu(approximate), x, origin=merge_all(reader.origins),
                                name=binding.var.name)
    return None


def _functions(builder: BlockBuilder, call: Call, steps: int) -> Iterator[Atom]:
    """The calls of erf and tanh that a sum or product is made of."""
    for atom in call.arguments:
        value = builder.value_of(atom)
        if isinstance(value, Call) and isinstance(value.callee, Erf | Tanh):
            yield atom
        elif steps and isinstance(value, Call) and isinstance(
            value.callee, Multiply | Divide | Add | Subtract
        ):
            yield from _functions(builder, value, steps - 1)


def _factors(builder: BlockBuilder, call: Call, steps: int) -> Iterator[Atom]:
    """What may be x: the operands of products and sums, the outermost ones first."""
    inner: list[Call] = []
    for atom in call.arguments:
        if not isinstance(atom, Constant):
            yield atom
            value = builder.value_of(atom)
            if isinstance(value, Call) and isinstance(value.callee, Multiply | Divide | Add):
                inner.append(value)
    for value in inner if steps else ():
        yield from _factors(builder, value, steps - 1)


def _same(found: Polynomial | None, wanted: Polynomial, tolerance: float) -> bool:
    return found is not None and found.keys() == wanted.keys() and all(
        math.isclose(found[power], wanted[power], rel_tol=tolerance) for power in wanted)


# --- polynomials --------------------------------------------------------------------------------


@dataclass(slots=True)
class _Reader:
    """Multiplies out what is computed of `x` and `function`, and collects the origins."""

    builder: BlockBuilder
    x: Atom
    function: Atom
    origins: list[Origin] = field(default_factory=list)

    @property
    def tolerance(self) -> float:
        """How far a coefficient may be off: products of a few constants, each rounded."""
        return 4 * float(np.finfo(tensor_type(self.x).dtype).eps)

    def atom(self, atom: Atom, steps: int = MOST_STEPS) -> Polynomial | None:
        """The polynomial of an atom; None if it is none."""
        if atom is self.x:
            return {(1, 0): 1.0}
        if atom is self.function:
            return {(0, 1): 1.0}
        if isinstance(atom, Constant):
            return {(0, 0): float(atom.data.item())} if atom.data.size == 1 else None
        binding = self.builder.binding_of(atom)
        if binding is None or not steps or not isinstance(binding.value, Call):
            return None
        self.origins.append(binding.origin)
        return self.call(binding.value, steps - 1)

    def call(self, call: Call, steps: int = MOST_STEPS) -> Polynomial | None:
        """The polynomial of a sum, a product, a quotient by a number or a whole power."""
        parts = [self.atom(atom, steps) for atom in call.arguments]
        match call.callee, parts:
            case Add(), [dict() as a, dict() as b]:
                return _sum(a, b)
            case Subtract(), [dict() as a, dict() as b]:
                return _sum(a, {power: -value for power, value in b.items()})
            case Negative(), [dict() as a]:
                return {power: -value for power, value in a.items()}
            case Multiply(), [dict() as a, dict() as b]:
                return _product(a, b)
            case Divide(), [dict() as a, dict() as b] if b.keys() == {(0, 0)} and b[0, 0]:
                return _product(a, {(0, 0): 1 / b[0, 0]})
            case Power(), [dict() as a, dict() as b] if b in ({(0, 0): 2.0}, {(0, 0): 3.0}):
                square = _product(a, a)
                return square if b[0, 0] == 2 else square and _product(square, a)
        return None


def _sum(a: Polynomial, b: Polynomial) -> Polynomial:
    return {power: a.get(power, 0.0) + b.get(power, 0.0) for power in {**a, **b}}


def _product(a: Polynomial, b: Polynomial) -> Polynomial | None:
    """None where powers are beyond those of a gelu."""
    result: Polynomial = {}
    for (x, t), left in a.items():
        for (more_x, more_t), right in b.items():
            power = x + more_x, t + more_t
            if max(power) > MOST_POWER:
                return None
            result[power] = result.get(power, 0.0) + left * right
    return result
