"""A module -> who calls whom, which functions call themselves, and which calls end a function.

A *tail call* is a call of a function by itself whose result is the function's result: the last
binding of the body, or of a branch of an `If` that is itself in this place. It needs no frame of
its own, so it counts as a jump back to the start and not as recursion.
"""

from __future__ import annotations

from collections.abc import Mapping

from minitvm.relay.ir import (
    Atom,
    Block,
    Call,
    Function,
    GlobalVar,
    If,
    Module,
    Var,
    atoms,
    blocks,
    walk_bindings,
)


def all_atoms(block: Block) -> list[Atom]:
    """Every atom of a block, those of nested blocks and results included."""
    found: list[Atom] = [block.result]
    for binding in walk_bindings(block):
        found.extend(atoms(binding.value))
        found.extend(inner.result for inner in blocks(binding.value))
    return found


def global_names(block: Block) -> list[str]:
    """The functions that a block names, each once."""
    names = (atom.name for atom in all_atoms(block) if isinstance(atom, GlobalVar))
    return list(dict.fromkeys(names))


def reachable(module: Module, start: str = "main") -> list[str]:
    """The functions that `start` needs, itself first."""
    found = {start: None}
    waiting = [start]
    while waiting:
        for name in global_names(module.functions[waiting.pop()].body):
            if name not in found and name in module.functions:
                found[name] = None
                waiting.append(name)
    return list(found)


def tail_calls(function: Function, name: str) -> frozenset[Var]:
    """The variables bound to tail calls of the function, which is called `name`."""
    found: set[Var] = set()
    ends = [function.body]
    while ends:
        block = ends.pop()
        last = block.bindings[-1] if block.bindings else None
        if last is None or last.var is not block.result:
            continue
        match last.value:
            case Call(GlobalVar(callee), _) if callee == name:
                found.add(last.var)
            case If(_, then_block, else_block):
                ends += [then_block, else_block]
    return frozenset(found)


def call_graph(module: Module) -> Mapping[str, list[str]]:
    """The functions that `main` needs, kernels apart, in order, with those that each calls or
    names; tail calls don't count."""
    names = reachable(module) if "main" in module.functions else list(module.functions)
    functions = {n: module.functions[n] for n in names if not module.functions[n].is_primitive}
    return {name: [callee for callee in _callees(function, name) if callee in functions]
            for name, function in functions.items()}


def _callees(function: Function, name: str) -> list[str]:
    jumps = tail_calls(function, name)
    found: dict[str, None] = {}
    for binding in walk_bindings(function.body):
        if binding.var not in jumps:
            found.update((a.name, None) for a in atoms(binding.value) if isinstance(a, GlobalVar))
        found.update((inner.result.name, None) for inner in blocks(binding.value)
                     if isinstance(inner.result, GlobalVar))
    return list(found)
