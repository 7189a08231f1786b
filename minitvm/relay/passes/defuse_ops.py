"""Relay with kernels -> relay without: what `FuseOps` did, undone."""

from __future__ import annotations

from dataclasses import replace

from minitvm.origin import origin
from minitvm.relay.build import BlockBuilder, rebuild_function, with_fresh_variables
from minitvm.relay.ir import Atom, Binding, Call, Function, GlobalVar, Module, Value, map_block
from minitvm.transform import make_pass


@make_pass("DefuseOps")
def defuse_ops(module: Module) -> Module:
    """Puts the operators of a primitive function in place of each call of it, and drops those
    functions. Of the origins of a kernel's binding, which are those of all its calls, each copy
    has the ones of its own call.

    Before:

        def main(x: Tensor((3,), "int8"), y: Tensor((), "int8")) -> Tensor((3,), "int8"):
            v0 = fused_add_abs(x, y)  #: "a", "b"
            return v0

        @function(primitive=True)
        def fused_add_abs(p0: Tensor((3,), "int8"), p1: Tensor((), "int8")) -> Tensor((3,), "int8"):
            v0 = add(p0, p1)  #: "a", "c"
            v1 = abs(v0)  #: "b", "d"
            return v1

    After:

        def main(x: Tensor((3,), "int8"), y: Tensor((), "int8")) -> Tensor((3,), "int8"):
            v0 = add(x, y)  #: "a"
            v1 = abs(v0)  #: "b"
            return v1
    """
    kernels = {name: f for name, f in module.functions.items() if f.is_primitive}
    if not kernels:
        return module

    def defuse(builder: BlockBuilder, binding: Binding) -> Value | None:
        match binding.value:
            case Call(GlobalVar(name), arguments) if name in kernels:
                return _operators(builder, kernels[name], arguments)
            case _:
                return None

    return Module({
        name: rebuild_function(function, defuse)
        for name, function in module.functions.items() if not function.is_primitive
    })


def _operators(
    builder: BlockBuilder, kernel: Function, arguments: tuple[Atom, ...]
) -> Value:
    """Adds what a kernel computes, with the origins that it shares with the call at hand, but for
    its last value, which is given."""
    copy = with_fresh_variables(kernel)
    body = map_block(copy.body, dict(zip(copy.params, arguments, strict=True)))
    own = set(builder.origin.names)
    bindings = [
        replace(b, origin=origin(*(own & set(b.origin.names))) or builder.origin)
        for b in body.bindings
    ]
    last = bindings.pop() if bindings and bindings[-1].var is body.result else None
    for binding in bindings:
        builder.append(binding)
    if last is None:
        return body.result
    builder.origin = last.origin  # for the value that is given
    return last.value
