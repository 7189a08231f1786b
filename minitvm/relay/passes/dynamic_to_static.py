"""Relay -> relay in which operators whose shape is an argument have it as an attribute, where it is
known."""

from __future__ import annotations

from minitvm.errors import TypeInferenceError
from minitvm.relay.build import BlockBuilder, rebuild_module
from minitvm.relay.infer import value_type
from minitvm.relay.ir import Binding, Call, Constant, Module, TensorType, Type, Value
from minitvm.relay.ops.dynamic import Dynamic
from minitvm.relay.passes.fold_constant import fold_constant
from minitvm.transform import make_pass


@make_pass("DynamicToStatic", opt_level=3)
def dynamic_to_static(module: Module) -> Module:
    """Puts `reshape` in place of a `dyn.reshape` whose shape is a constant, and so on; folds
    constants before and after, since a shape that becomes known may make others known.

    Before:

        def main(x: Tensor((6,), "float32")) -> Tensor((2, N), "float32"):
            v0 = negative(const([-2, -3], (2,), "int64"))  #: "a"
            v1 = dyn.reshape(x, v0, shape=(2, N))  #: "b"
            v2 = abs(v1)  #: "c"
            return v2

    After:

        def main(x: Tensor((6,), "float32")) -> Tensor((2, 3), "float32"):
            v0 = reshape(x, newshape=(2, 3))  #: "b"
            v1 = abs(v0)  #: "c"
            return v1
    """
    while True:
        before = module
        module = rebuild_module(fold_constant.function(module), _static)
        if module is before:
            return module


def _static(builder: BlockBuilder, binding: Binding) -> Value | None:
    match binding.value:
        case Call(Dynamic() as op, arguments):
            data, vectors = arguments[: op.data_arguments], arguments[op.data_arguments :]
            known = [vector.data for vector in vectors if isinstance(vector, Constant)]
            if len(known) < len(vectors):
                return None
            call = Call(op.static(*known), data)
            _check(op, value_type(call), binding)
            return call
        case _:
            return None


def _check(op: Dynamic, found: Type, binding: Binding) -> None:
    assert isinstance(found, TensorType)
    same = len(found.shape) == len(op.shape) and all(
        not isinstance(declared, int) or declared == extent
        for declared, extent in zip(op.shape, found.shape, strict=True)
    )
    if not same:
        raise TypeInferenceError(
            f"{binding.origin or binding.var.name}: {op.name} gives the shape {found.shape}, "
            f"declared as {op.shape}"
        )
