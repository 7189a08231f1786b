"""Relay -> relay in which layer normalisation written in small operators is `nn.standardize`."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from minitvm import dtypes
from minitvm.origin import Origin, merge_all
from minitvm.relay.build import BlockBuilder, rebuild_module
from minitvm.relay.ir import Atom, Binding, Call, Constant, Module, Value, tensor_type
from minitvm.relay.op import Op
from minitvm.relay.ops.axes import all_axes
from minitvm.relay.ops.broadcast import Add, Divide, Multiply, Power, Subtract
from minitvm.relay.ops.elementwise import Sqrt
from minitvm.relay.ops.nn.layer_norm import Standardize
from minitvm.relay.ops.reduce import Sum
from minitvm.relay.passes.dead_code_elimination import without_dead_code
from minitvm.transform import make_pass


@make_pass("FuseLayerNorm", opt_level=3)
def fuse_layer_norm(module: Module) -> Module:
    """Makes a `nn.standardize` of (x - mean) / sqrt(variance + epsilon), whose statistics are taken
    over the last axes; the square may be a product or a power. Results differ by rounding.

    Before:

        def main(x: Tensor((2, 4), "float32")) -> Tensor((2, 4), "float32"):
            v0 = sum(x, axis=(-1,), keepdims=True)  #: "mean"
            v1 = divide(v0, const(4.0, (), "float32"))  #: "mean"
            v2 = subtract(x, v1)  #: "distance"
            v3 = power(v2, const(2.0, (), "float32"))  #: "square"
            v4 = sum(v3, axis=(-1,), keepdims=True)  #: "variance"
            v5 = divide(v4, const(4.0, (), "float32"))  #: "variance"
            v6 = add(v5, const(0.5, (), "float32"))  #: "epsilon"
            v7 = sqrt(v6)  #: "deviation"
            v8 = divide(v2, v7)  #: "normal"
            return v8

    After:

        def main(x: Tensor((2, 4), "float32")) -> Tensor((2, 4), "float32"):
            v0 = nn.standardize(x, epsilon=0.5)  #: "deviation", "distance", "epsilon", "mean", "normal", "square", "variance"
            return v0
    """  # noqa: E501
    before = module
    module = rebuild_module(module, _fused)
    for name, function in module.functions.items():
        if function is not before.functions[name]:
            module = module.with_function(name, without_dead_code(function))
    return module


@dataclass(slots=True)
class _Reader:
    """Takes values apart, and collects the origins of what it took apart."""

    builder: BlockBuilder
    origins: list[Origin] = field(default_factory=list)

    def arguments(self, atom: Atom, kind: type[Op]) -> tuple[Atom, ...]:
        """The arguments of the call of an operator that gives an atom; none if that isn't so."""
        binding = self.builder.binding_of(atom)
        if binding is None or not isinstance(binding.value, Call):
            return ()
        if not isinstance(binding.value.callee, kind):
            return ()
        self.origins.append(binding.origin)
        return binding.value.arguments

    def mean(self, atom: Atom) -> tuple[Atom, int] | None:
        """What the atom is the mean of, dimensions kept, and over how many of the last axes."""
        match self.arguments(atom, Divide):
            case (total, Constant() as count) if count.data.size == 1:
                value = self.builder.value_of(total)
            case _:
                return None
        if not isinstance(value, Call) or not isinstance(value.callee, Sum):
            return None
        (x,) = self.arguments(total, Sum)
        given = tensor_type(x)
        axes = sorted(all_axes(value.callee, (given,), value.callee.axis, given.rank))
        last = [*range(given.rank - len(axes), given.rank)]
        extents = [given.shape[axis] for axis in axes]
        if not value.callee.keepdims or axes != last or not axes or any(
            not isinstance(extent, int) for extent in extents
        ):
            return None
        known = prod(extent for extent in extents if isinstance(extent, int))
        return (x, len(axes)) if known and count.data.item() == known else None

    def square(self, atom: Atom) -> Atom | None:
        """What the atom is the square of."""
        match self.arguments(atom, Multiply):
            case (x, other) if x is other:
                return x
        match self.arguments(atom, Power):
            case (x, Constant() as exponent) if exponent.data.size == 1 and (
                exponent.data.item() == 2 and tensor_type(x) == tensor_type(atom)
            ):
                return x
        return None


def _fused(builder: BlockBuilder, binding: Binding) -> Value | None:
    value = binding.value
    if not isinstance(value, Call) or not isinstance(value.callee, Divide):
        return None
    distance, deviation = value.arguments
    reader = _Reader(builder, [binding.origin])
    found = _variance(reader, deviation)
    if found is None or not dtypes.is_float(tensor_type(distance).dtype):
        return None
    variance, epsilon = found
    squares = reader.mean(variance)
    if squares is None or reader.square(squares[0]) is not distance:
        return None
    match reader.arguments(distance, Subtract):
        case (x, centre) if (mean := reader.mean(centre)) is not None and mean == (x, squares[1]):
            op = Standardize(squares[1], epsilon)
            return builder.emit(op, x, origin=merge_all(reader.origins), name=binding.var.name)
    return None


def _variance(reader: _Reader, deviation: Atom) -> tuple[Atom, float] | None:
    """The variance and the number added to it, of sqrt(variance + epsilon)."""
    match reader.arguments(deviation, Sqrt):
        case (inner,):
            pass
        case _:
            return None
    match reader.arguments(inner, Add):
        case (variance, Constant() as epsilon) | (Constant() as epsilon, variance):
            if epsilon.data.size == 1 and tensor_type(variance) == tensor_type(inner):
                return variance, float(epsilon.data.item())
    return None
