"""TVM's decorator for passes that look at one function at a time: `relay.transform.function_pass`.

    @relay.transform.function_pass(opt_level=1)
    class Renamed:
        def transform_function(self, func, mod, ctx):
            return func
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minitvm.relay.ir import Function, Module
from minitvm.transform import PassContext, decorated_pass

Transform = Callable[[Function, Module, PassContext], Function]


def function_pass(pass_func: Any = None, opt_level: int = 0, name: str | None = None) -> Any:
    """A function of (function, module, context), or a class with such a method
    `transform_function`, as a pass over all functions of a module."""
    return decorated_pass("transform_function", _over_functions, pass_func, opt_level, name)


def _over_functions(transform: Transform) -> Callable[[Module, PassContext], Module]:
    def apply(module: Module, context: PassContext) -> Module:
        for name, function in module.functions.items():
            module = module.with_function(name, transform(function, module, context))
        return module

    return apply
