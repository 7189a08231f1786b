"""Relay -> relay in which small or single calls of functions are the functions' bodies."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from minitvm.origin import merge
from minitvm.relay.build import BlockBuilder, rebuild_function, with_fresh_variables
from minitvm.relay.calls import all_atoms, call_graph
from minitvm.relay.ir import (
    Atom,
    Binding,
    Call,
    Constant,
    Function,
    GlobalVar,
    Module,
    Value,
    map_block,
)
from minitvm.tir.call_graph import circles, in_circles
from minitvm.transform import make_pass


@make_pass("Inline", opt_level=1)
def inline(module: Module) -> Module:
    """Replaces calls of functions that have the attribute `inline`, or are called at one place
    only, by their bodies. Functions that call themselves, directly or not, stay.

    Before:

        def main(x: Tensor((4,), "float32")) -> Tensor((4,), "float32"):
            v0 = once(x)  #: "call"
            return v0

        def once(x: Tensor((4,), "float32")) -> Tensor((4,), "float32"):
            v0 = abs(x)  #: "a"
            return v0

    After:

        def main(x: Tensor((4,), "float32")) -> Tensor((4,), "float32"):
            v0 = abs(x)  #: "a", "call"
            return v0

        def once(x: Tensor((4,), "float32")) -> Tensor((4,), "float32"):
            v0 = abs(x)  #: "a"
            return v0
    """
    bodies = _inlinable(module)
    if not bodies:
        return module

    def replace_call(builder: BlockBuilder, binding: Binding) -> Value | None:
        match binding.value:
            case Call(GlobalVar(name), arguments) if name in bodies:
                return add_body(builder, bodies[name], arguments)
            case _:
                return None

    for group in circles(call_graph(module)):  # callees first: what is inlined is final
        for name in group:
            function = rebuild_function(module.functions[name], replace_call)
            module = module.with_function(name, function)
            if name in bodies:
                bodies[name] = function
    return module


def _inlinable(module: Module) -> dict[str, Function]:
    graph = call_graph(module)
    recursive = recursive_functions(module)
    uses = Counter(
        atom.name for name in graph for atom in all_atoms(module.functions[name].body)
        if isinstance(atom, GlobalVar)
    )
    candidates = (name for name in graph if name != "main" and name not in recursive)
    return {name: module.functions[name] for name in candidates
            if uses[name] == 1 or module.functions[name].attrs.get("inline")}


def recursive_functions(module: Module) -> frozenset[str]:
    """The functions that call themselves, directly, through others, or in tail calls."""
    return frozenset(in_circles(call_graph(module)) | _loops(module))


def _loops(module: Module) -> frozenset[str]:
    """The functions that name themselves, be it in tail calls."""
    return frozenset(
        name for name, function in module.functions.items()
        if any(isinstance(a, GlobalVar) and a.name == name for a in all_atoms(function.body))
    )


def add_body(builder: BlockBuilder, function: Function, arguments: tuple[Atom, ...]) -> Atom:
    """Adds the bindings of a function's body to a block, and gives its result."""
    copy = with_fresh_variables(function)
    body = map_block(copy.body, dict(zip(copy.params, arguments, strict=True)))
    for binding in body.bindings:
        builder.append(binding)
    if isinstance(body.result, Constant):
        return replace(body.result, origin=merge(body.result.origin, builder.origin))
    return body.result
