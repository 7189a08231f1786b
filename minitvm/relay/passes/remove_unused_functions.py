"""Relay -> relay without the functions that `main` cannot reach."""

from __future__ import annotations

from minitvm.relay.calls import reachable
from minitvm.relay.ir import Module
from minitvm.transform import make_pass


@make_pass("RemoveUnusedFunctions")
def remove_unused_functions(module: Module) -> Module:
    """Drops the functions that neither `main` nor a function that it needs names.

    Before:

        def main(x: Tensor((4,), "float32")) -> Tensor((4,), "float32"):
            v0 = used(x)  #: "a"
            return v0

        def used(x: Tensor((4,), "float32")) -> Tensor((4,), "float32"):
            v0 = abs(x)  #: "b"
            return v0

        def unused(x: Tensor((4,), "float32")) -> Tensor((4,), "float32"):
            v0 = negative(x)  #: "c"
            return v0

    After:

        def main(x: Tensor((4,), "float32")) -> Tensor((4,), "float32"):
            v0 = used(x)  #: "a"
            return v0

        def used(x: Tensor((4,), "float32")) -> Tensor((4,), "float32"):
            v0 = abs(x)  #: "b"
            return v0
    """
    if "main" not in module.functions:
        return module
    needed = set(reachable(module))
    if len(needed) == len(module.functions):
        return module
    return Module({name: f for name, f in module.functions.items() if name in needed})
