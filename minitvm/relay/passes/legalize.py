"""Relay -> relay without the operators that only say what they decompose into."""

from __future__ import annotations

from minitvm.relay.build import BlockBuilder, rebuild_module
from minitvm.relay.ir import Atom, Binding, Call, Module, Value
from minitvm.relay.op import Op
from minitvm.transform import make_pass


@make_pass("Legalize")
def legalize(module: Module) -> Module:
    """Replaces each call of an operator that has a `legalize` by what that emits; what it emits is
    legalised in turn.

    Before:

        def main(x: Tensor((2, 8), "float32")) -> Tensor((2,), "float32"):
            v0 = reduce_l2(x, axis=(1,))  #: "norm"
            return v0

    After:

        def main(x: Tensor((2, 8), "float32")) -> Tensor((2,), "float32"):
            v0 = multiply(x, x)  #: "norm"
            v1 = sum(v0, axis=(1,))  #: "norm"
            v2 = sqrt(v1)  #: "norm"
            return v2
    """
    return rebuild_module(module, _legalize_binding)


def _legalize_binding(builder: BlockBuilder, binding: Binding) -> Value | None:
    value = binding.value
    if isinstance(value, Call) and isinstance(value.callee, Op):
        return _simpler(builder, value.callee, value.arguments)
    return None


def _simpler(builder: BlockBuilder, op: Op, arguments: tuple[Atom, ...]) -> Atom | None:
    """What the operator decomposes into, as far down as it goes; None where it stays."""

    def emit(inner: Op, *inner_arguments: Atom) -> Atom:
        known = _simpler(builder, inner, inner_arguments)
        return builder.emit(inner, *inner_arguments) if known is None else known

    if type(op).legalize is Op.legalize:
        return None
    return op.legalize(emit, *arguments)
