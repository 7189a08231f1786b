"""Relay -> relay in which an operator that is a special case of another one is that other one."""

from __future__ import annotations

from minitvm.relay.build import BlockBuilder, rebuild_module
from minitvm.relay.ir import Binding, Call, Module, Value, tensor_type
from minitvm.relay.ops.broadcast import Add
from minitvm.relay.ops.nn.bias_add import BiasAdd
from minitvm.relay.ops.transform import ExpandDims
from minitvm.transform import make_pass


@make_pass("CanonicalizeOps", opt_level=3)
def canonicalize_ops(module: Module) -> Module:
    """Makes of a bias addition an addition that broadcasts, which other passes know.

    Before:

        def main(x: Tensor((1, 2, 3), "int8")) -> Tensor((1, 2, 3), "int8"):
            v0 = nn.bias_add(x, const([5, 7], (2,), "int8"))  #: "bias"
            return v0

    After:

        def main(x: Tensor((1, 2, 3), "int8")) -> Tensor((1, 2, 3), "int8"):
            v0 = expand_dims(const([5, 7], (2,), "int8"), axis=(1,))  #: "bias"
            v1 = add(x, v0)  #: "bias"
            return v1
    """
    return rebuild_module(module, _canonicalize)


def _canonicalize(builder: BlockBuilder, binding: Binding) -> Value | None:
    match binding.value:
        case Call(BiasAdd(axis), (data, bias)):
            rank = tensor_type(data).rank
            trailing = rank - 1 - axis % rank
            if trailing:
                bias = builder.emit(ExpandDims(tuple(range(1, trailing + 1))), bias)
            return Call(Add(), (data, bias))
        case _:
            return None
