"""Relay -> relay in which convolutions, and what lies between them, work in a layout of choice.

A convolution takes its data, and gives its result, with the axes in another order. What uses that
result follows (`axis_orders`) where it can; otherwise it gets the value transposed back. A
transpose is emitted where an order is first needed, and never again; constants are transposed at
once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minitvm.errors import OptionError
from minitvm.origin import Origin
from minitvm.relay.build import BlockBuilder
from minitvm.relay.ir import (
    Atom,
    Binding,
    Call,
    Constant,
    Module,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Value,
    Var,
    tensor_type,
)
from minitvm.relay.op import REGISTRY, Op, lookup
from minitvm.relay.ops.nn.conv2d import Conv2d
from minitvm.relay.ops.nn.pooling import GlobalPool2d, Pool2d
from minitvm.relay.ops.transform import Reshape, Transpose
from minitvm.relay.passes.axis_orders import (
    IMAGE_LAYOUTS,
    Following,
    Order,
    follow,
    inverse,
    order_between,
    usual,
)
from minitvm.relay.passes.value_forms import rewrite_block
from minitvm.transform import PASS_NAMES, Pass

NAME = "ConvertLayout"
LEVEL = 3
PASS_NAMES[NAME] = LEVEL  # known to `PassContext` before the pass is made

DEFAULT_KERNELS = {"NCHW": "OIHW", "NHWC": "HWIO"}
"""What a kernel layout of "default" means, by the layout of the data."""


def convert_layout(desired_layouts: Mapping[str, Sequence[str]]) -> Pass[Module]:
    """The pass for layouts by operator: here `{"nn.conv2d": ["NHWC", "default"]}`.

    `nn.conv2d` takes a layout of data and one of weights, pooling one of data. What is not named
    follows what it reads, or stays.

    Before:

        def main(x: Tensor((1, 1, 4, 4), "float32")) -> Tensor((1, 1, 4, 4), "float32"):
            v0 = nn.conv2d(x, const([3.0], (1, 1, 1, 1), "float32"))  #: "conv"
            v1 = nn.relu(v0)  #: "relu"
            return v1

    After:

        def main(x: Tensor((1, 1, 4, 4), "float32")) -> Tensor((1, 1, 4, 4), "float32"):
            x_0231 = transpose(x, axes=(0, 2, 3, 1))  #: "conv"
            v0 = nn.conv2d(x_0231, const([3.0], (1, 1, 1, 1), "float32"), data_layout="NHWC", kernel_layout="HWIO")  #: "conv"
            v1 = nn.relu(v0)  #: "relu"
            v1_0312 = transpose(v1, axes=(0, 3, 1, 2))  #: "relu"
            return v1_0312
    """  # noqa: E501
    desired = {name: _checked(name, layouts) for name, layouts in desired_layouts.items()}

    def run(module: Module) -> Module:
        for name, function in module.functions.items():
            if not function.is_primitive:
                body = rewrite_block(function.body, _Orders(desired))
                module = module.with_function(name, function.with_body(body))
        return module

    run.__doc__ = convert_layout.__doc__
    return Pass(NAME, run, LEVEL)


def _checked(name: str, layouts: Sequence[str]) -> tuple[str, ...]:
    """The layouts wanted of an operator, "default" spelled out."""
    operator = lookup(name)
    given = (layouts,) if isinstance(layouts, str) else tuple(layouts)
    pools = [key for key, cls in REGISTRY.items() if issubclass(cls, Pool2d | GlobalPool2d)]
    if name not in ("nn.conv2d", *pools):
        known = ", ".join(["nn.conv2d", *pools])
        raise OptionError(f"{name} has no layout to convert; operators that have one: {known}")
    if not given or given[0] not in IMAGE_LAYOUTS or len(given) > len(operator.layouts):
        raise OptionError(
            f"{list(given)} are no layouts for {name}; give NCHW or NHWC"
            + (", and OIHW, HWIO or default" if name == "nn.conv2d" else "")
        )
    if name != "nn.conv2d":
        return given
    kernel = given[1] if len(given) > 1 else "default"
    kernel = DEFAULT_KERNELS[given[0]] if kernel == "default" else kernel
    if kernel not in DEFAULT_KERNELS.values():
        raise OptionError(f"{kernel!r} is no kernel layout; give OIHW, HWIO or default")
    return given[0], kernel


@dataclass(frozen=True, slots=True)
class _Ordered:
    """A value that was computed in an order; a tuple with all its fields in it."""

    atom: Var
    order: Order
    origin: Origin


class _Orders:
    """One block being rewritten: the orders in which each of its values exists."""

    def __init__(
        self, desired: Mapping[str, tuple[str, ...]], outer: _Orders | None = None
    ) -> None:
        self.desired = desired
        self.builder: BlockBuilder = BlockBuilder(parent=outer.builder if outer else None)
        self.ordered: dict[Atom, _Ordered] = dict(outer.ordered) if outer else {}
        self.known: dict[tuple[Atom, Order | None], Atom] = dict(outer.known) if outer else {}

    def inner(self) -> _Orders:
        """Those of a nested block."""
        return _Orders(self.desired, self)

    def adds(self, binding: Binding) -> bool:
        """Adds what is computed in another order, if that suits it."""
        match binding.value:
            case Call(Op() as op, arguments):
                return self.is_followed(binding, op, arguments)
            case TupleGetItem(Var() as source, index) if source in self.ordered:
                whole = self.ordered[source]
                self.emit(binding, TupleGetItem(whole.atom, index), whole.order)
                return True
            case _:
                return False

    def plain_atom(self, atom: Atom, origin: Origin) -> Atom:
        """A value in the usual order."""
        return self.get(atom, None, origin)

    def computed_at(self, atom: Atom) -> Origin | None:
        """The origin of a value in another order."""
        return self.ordered[atom].origin if atom in self.ordered else None

    # --- operators ------------------------------------------------------------------------------

    def is_followed(self, binding: Binding, op: Op, arguments: tuple[Atom, ...]) -> bool:
        """Adds the operator in the order that is wanted of it, or in which its arguments come; says
        whether there is one."""
        types = [given for argument in arguments if isinstance(given := argument.type, TensorType)]
        if not types or len(types) < len(arguments):
            return False
        wanted = self.wanted(op, types)
        if wanted is None:
            orders = [
                self.ordered[a].order if isinstance(a, Var) and a in self.ordered else None
                for a in arguments
            ]
            if op.name in self.desired or not any(order is not None for order in orders):
                return False
            wanted = follow(op, types, orders, binding.var.type)
        if wanted is None:
            return False
        inputs = [self.get(a, order, binding.origin)
                  for a, order in zip(arguments, wanted.arguments, strict=True)]
        self.emit(binding, Call(wanted.op, tuple(inputs)), wanted.result)
        return True

    def wanted(self, op: Op, types: Sequence[TensorType]) -> Following | None:
        """The call in the layouts that are desired; None if it has them, or there are none."""
        layouts = self.desired.get(op.name)
        if layouts is None:
            return None
        changed: Any
        pairs: tuple[tuple[str, str], ...]
        match op:
            case Conv2d(data_layout=data, kernel_layout=kernel):
                changed = replace(op, data_layout=layouts[0], kernel_layout=layouts[1])
                pairs = ((data, layouts[0]), (kernel, layouts[1]))
            case Pool2d(layout=data) | GlobalPool2d(layout=data):
                changed, pairs = replace(op, layout=layouts[0]), ((data, layouts[0]),)
            case _:
                return None
        orders = [order_between(old, new) for old, new in pairs]
        if changed == op or None in orders:
            return None
        moved = tuple(None if order == usual(4) else order for order in orders)
        return Following(changed, moved, moved[0])

    def emit(self, binding: Binding, value: Value, order: Order | None) -> None:
        """Adds what computes a variable in an order."""
        if order is None or order == usual(len(order)):
            self.builder.append(Binding(binding.var, value, binding.origin))
            return
        var = self.builder.emit(value, origin=binding.origin, name=binding.var.name)
        self.ordered[binding.var] = _Ordered(var, order, binding.origin)

    # --- orders ---------------------------------------------------------------------------------

    def get(self, atom: Atom, order: Order | None, origin: Origin) -> Atom:
        """A value in an order (None: the usual one), transposed where it does not exist in it."""
        ordered = self.ordered.get(atom) if isinstance(atom, Var) else None
        if ordered is None and order is None:
            return atom
        if ordered is not None and order == ordered.order:
            return ordered.atom
        key = (atom, order)
        if key not in self.known:
            self.known[key] = self.transposed(atom, ordered, order, origin)
        return self.known[key]

    def transposed(
        self, atom: Atom, ordered: _Ordered | None, order: Order | None, origin: Origin
    ) -> Atom:
        """A value newly brought into an order."""
        if ordered is None:
            assert order is not None
            return self.emit_transpose(self.of_rank(atom, len(order), origin), order, origin, atom)
        back = inverse(ordered.order)
        if isinstance(ordered.atom.type, TupleType):
            return self.usual_tuple(ordered, back, origin)
        if order is not None and len(order) == len(back):
            return self.emit_transpose(
                ordered.atom, tuple(back[axis] for axis in order), origin, atom
            )
        if order is None:
            return self.emit_transpose(ordered.atom, back, origin, atom)
        usual_atom = self.get(atom, None, origin)
        return self.emit_transpose(
            self.of_rank(usual_atom, len(order), origin), order, origin, atom
        )

    def of_rank(self, atom: Atom, rank: int, origin: Origin) -> Atom:
        """A value with leading dimensions of 1 up to a rank."""
        shape = tensor_type(atom).shape
        if len(shape) == rank:
            return atom
        wide = (*[1] * (rank - len(shape)), *shape)
        if isinstance(atom, Constant):
            numbers: Any = wide
            return Constant(atom.data.reshape(numbers), atom.origin)
        return self.builder.emit(Reshape(wide), atom, origin=origin)

    def emit_transpose(self, atom: Atom, axes: Order, origin: Origin, named: Atom) -> Atom:
        """A transpose; of a constant, at once."""
        if isinstance(atom, Constant):
            return Constant(np.ascontiguousarray(atom.data.transpose(axes)), atom.origin)
        stem = getattr(named, "name", "v")
        name = f"{stem}_{''.join(map(str, axes))}"
        return self.builder.emit(Transpose(axes), atom, origin=origin, name=name)

    def usual_tuple(self, ordered: _Ordered, back: Order, origin: Origin) -> Atom:
        """A tuple whose fields are in an order, with them in the usual one."""
        assert isinstance(ordered.atom.type, TupleType)
        fields = []
        for index in range(len(ordered.atom.type.fields)):
            field = self.builder.emit(TupleGetItem(ordered.atom, index), origin=ordered.origin)
            fields.append(self.emit_transpose(field, back, origin, field))
        return self.builder.emit(Tuple(tuple(fields)), origin=ordered.origin)
