"""Relay -> relay in which normalisation by rows written in small operators is `nn.standardize`."""

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
from minitvm.relay.ops.elementwise import Reciprocal, Rsqrt, Sqrt
from minitvm.relay.ops.nn.layer_norm import Standardize
from minitvm.relay.ops.reduce import Sum
from minitvm.relay.passes.dead_code_elimination import without_dead_code_of
from minitvm.transform import make_pass


@make_pass("FuseLayerNorm", opt_level=3)
def fuse_layer_norm(module: Module) -> Module:
    """Makes a `nn.standardize` of (x - mean) / sqrt(variance + epsilon), whose statistics are taken
    over the last axes, and of x / sqrt(mean square + epsilon). The square may be a product or a
    power, the division a product with the reciprocal. Results differ by rounding.

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
    return without_dead_code_of(module, rebuild_module(module, _fused))


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

    def square_root(self, atom: Atom) -> Atom | None:
        """What the atom is the square root of."""
        match self.arguments(atom, Sqrt):
            case (x,):
                return x
        return None

    def reciprocal_root(self, atom: Atom) -> Atom | None:
        """What the atom is the reciprocal of the square root of."""
        match self.arguments(atom, Rsqrt):
            case (x,):
                return x
        match self.arguments(atom, Reciprocal):
            case (root,):
                return self.square_root(root)
        match self.arguments(atom, Divide):
            case (Constant() as one, root) if one.data.size == 1 and one.data.item() == 1:
                return self.square_root(root)
        return None

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
    if not isinstance(value, Call) or not isinstance(value.callee, Divide | Multiply):
        return None
    pairs = [value.arguments]
    if isinstance(value.callee, Multiply):
        pairs.append(value.arguments[::-1])
    for distance, divisor in pairs:
        reader = _Reader(builder, [binding.origin])
        is_product = isinstance(value.callee, Multiply)
        radicand = reader.reciprocal_root(divisor) if is_product else reader.square_root(divisor)
        if radicand is not None and dtypes.is_float(tensor_type(distance).dtype):
            found = _standardized(reader, distance, radicand)
            if found is not None:
                op, x = found
                return builder.emit(op, x, origin=merge_all(reader.origins), name=binding.var.name)
    return None


def _standardized(
    reader: _Reader, distance: Atom, radicand: Atom
) -> tuple[Standardize, Atom] | None:
    """What gives the quotient of a distance and a square root, and of which data."""
    found = _variance(reader, radicand)
    squares = None if found is None else reader.mean(found[0])
    if found is None or squares is None or reader.square(squares[0]) is not distance:
        return None
    outer = [*reader.origins]
    match reader.arguments(distance, Subtract):
        case (x, centre) if reader.mean(centre) == (x, squares[1]):
            return Standardize(squares[1], found[1]), x
    reader.origins = outer
    return Standardize(squares[1], found[1], centered=False), distance


def _variance(reader: _Reader, inner: Atom) -> tuple[Atom, float] | None:
    """The variance and the number that is added to it."""
    match reader.arguments(inner, Add):
        case (variance, Constant() as epsilon) | (Constant() as epsilon, variance):
            if epsilon.data.size == 1 and tensor_type(variance) == tensor_type(inner):
                return variance, float(epsilon.data.item())
    return None
