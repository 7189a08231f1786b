"""Relay -> relay without bindings whose value nothing needs. Relay has no effects, so what is not
used need not be computed."""

from __future__ import annotations

from minitvm.relay.ir import (
    Binding,
    Block,
    Function,
    If,
    Module,
    Value,
    Var,
    atoms,
)
from minitvm.relay.passes.remove_unused_functions import remove_unused_functions
from minitvm.transform import make_pass


@make_pass("DeadCodeElimination")
def dead_code_elimination(module: Module) -> Module:
    """Drops unused bindings, in nested blocks too, and the functions that `main` cannot reach.

    Before:

        def main(x: Tensor((4,), "float32")) -> Tensor((4,), "float32"):
            v0 = negative(x)  #: "a"
            v1 = abs(x)  #: "b"
            return v0

    After:

        def main(x: Tensor((4,), "float32")) -> Tensor((4,), "float32"):
            v0 = negative(x)  #: "a"
            return v0
    """
    for name, function in module.functions.items():
        module = module.with_function(name, without_dead_code(function))
    return remove_unused_functions.function(module)


def without_dead_code_of(before: Module, after: Module) -> Module:
    """A module that a rewriting made of another one, without the dead code that this left in the
    functions it changed."""
    for name, function in after.functions.items():
        if function is not before.functions[name]:
            after = after.with_function(name, without_dead_code(function))
    return after


def without_dead_code(function: Function) -> Function:
    """The function without the bindings that its result does not need."""
    return function.with_body(_live_block(function.body, set()))


def _live_block(block: Block, live: set[Var]) -> Block:
    """The block's live bindings; adds the variables that they use to `live`. Backwards, so that
    all uses of a variable are seen before its binding."""
    if isinstance(block.result, Var):
        live.add(block.result)
    kept: list[Binding] = []
    for binding in reversed(block.bindings):
        if binding.var in live:
            value = _live_value(binding.value, live)
            same = value is binding.value
            kept.append(binding if same else Binding(binding.var, value, binding.origin))
    kept.reverse()
    if len(kept) == len(block.bindings) and all(
        new is old for new, old in zip(kept, block.bindings, strict=True)
    ):
        return block
    return Block(tuple(kept), block.result)


def _live_value(value: Value, live: set[Var]) -> Value:
    live.update(atom for atom in atoms(value) if isinstance(atom, Var))
    match value:
        case If(condition, then_block, else_block):
            then_live, else_live = _live_block(then_block, live), _live_block(else_block, live)
            same = then_live is then_block and else_live is else_block
            return value if same else If(condition, then_live, else_live)
        case Function(_, body):
            return value.with_body(_live_block(body, live))
        case _:
            return value
