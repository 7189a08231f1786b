"""Relay -> relay with approximations in place of exponentials, tanh, erf, sigmoid and softmax."""

from __future__ import annotations

from minitvm.relay.build import BlockBuilder, rebuild_module
from minitvm.relay.ir import Binding, Call, Module, TensorType, Value
from minitvm.relay.op import Op
from minitvm.relay.ops.activations import Sigmoid
from minitvm.relay.ops.calculus import Erf, Exp, Tanh
from minitvm.relay.ops.fast_math import FastErf, FastExp, FastSigmoid, FastSoftmax, FastTanh
from minitvm.relay.ops.nn.softmax import Softmax
from minitvm.transform import make_pass


@make_pass("FastMath", opt_level=4)
def fast_math(module: Module) -> Module:
    """Puts `fast_exp` and the like, each within 1e-5 of the function (`relay.ops.fast_math`), in
    place of functions of float32. Only from level 4 on: results change.

    Before:

        def main(x: Tensor((2, 3), "float32")) -> Tensor((2, 3), "float32"):
            v0 = exp(x)  #: "a"
            v1 = nn.softmax(v0, axis=1)  #: "b"
            return v1

    After:

        def main(x: Tensor((2, 3), "float32")) -> Tensor((2, 3), "float32"):
            v0 = fast_exp(x)  #: "a"
            v1 = nn.fast_softmax(v0, axis=1)  #: "b"
            return v1
    """
    return rebuild_module(module, _approximate)


def _approximate(builder: BlockBuilder, binding: Binding) -> Value | None:
    found = binding.var.type
    match binding.value:
        case Call(Op() as op, arguments) if (
            isinstance(found, TensorType) and found.dtype == "float32"
        ):
            fast = _fast(op)
            return None if fast is None else Call(fast, arguments)
        case _:
            return None


def _fast(op: Op) -> Op | None:
    match op:
        case Exp():
            return FastExp()
        case Sigmoid():
            return FastSigmoid()
        case Tanh():
            return FastTanh()
        case Erf():
            return FastErf()
        case Softmax(axis, lanes):
            return FastSoftmax(axis, lanes)
        case _:
            return None
