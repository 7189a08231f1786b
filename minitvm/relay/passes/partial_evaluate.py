"""Relay -> relay in which what is known of arguments and conditions has been made use of."""

from __future__ import annotations

from minitvm.relay.build import BlockBuilder, Rule, rebuild_module
from minitvm.relay.ir import (
    Atom,
    Binding,
    Block,
    Call,
    Constant,
    Function,
    GlobalVar,
    Module,
    Tuple,
    Value,
    blocks,
)
from minitvm.relay.op import Op
from minitvm.relay.passes.fold_constant import fold_binding
from minitvm.relay.passes.inline import add_body, recursive_functions
from minitvm.relay.passes.remove_unused_functions import remove_unused_functions
from minitvm.remarks import remark
from minitvm.transform import make_pass

NAME = "PartialEvaluate"

MOST_ROUNDS = 64
"""How deeply a recursive function is unrolled."""

MOST_BINDINGS = 1_000
"""How many bindings a function may grow to."""

MOST_NESTED = 32
"""How deeply branches may come to be nested."""


@make_pass(NAME)
def partial_evaluate(module: Module) -> Module:
    """Puts a function's body in place of a call with an argument that is known (a constant, a tuple
    of such, a function), folds constants, takes the branches of known conditions, until there is
    nothing left to do, and drops functions that nothing calls; bindings that are no longer needed
    are for `DeadCodeElimination`. A recursive function is unrolled if
    that comes to an end; if not, all of them stay, with a remark.

    Before:

        def main(x: Tensor((2,), "int32")) -> Tensor((2,), "int32"):
            v0 = power(x, const(2, (), "int32"))  #: "call"
            return v0

        def power(x: Tensor((2,), "int32"), n: Tensor((), "int32")) -> Tensor((2,), "int32"):
            v0 = greater(n, const(1, (), "int32"))  #: "test"
            if v0:  #: "if"
                v1 = subtract(n, const(1, (), "int32"))  #: "less"
                v2 = power(x, v1)  #: "again"
                v3 = multiply(x, v2)  #: "times"
                v4 = v3
            else:
                v4 = x
            return v4

    After:

        def main(x: Tensor((2,), "int32")) -> Tensor((2,), "int32"):
            v0 = multiply(x, x)  #: "call", "if", "times"
            return v0
    """
    after = _evaluated(module, frozenset())
    if after is None:
        recursive = recursive_functions(module)
        names = ", ".join(sorted(recursive)) or "the functions"
        remark(NAME, f"unrolling {names} does not come to an end in {MOST_ROUNDS} rounds")
        after = _evaluated(module, recursive)
    return remove_unused_functions.function(module if after is None else after)


def _evaluated(module: Module, kept: frozenset[str]) -> Module | None:
    """The module evaluated as far as it goes, but for calls of `kept`; None if that has no end."""
    for _ in range(MOST_ROUNDS):
        before = module
        module = rebuild_module(rebuild_module(module, _rule(module, kept)), fold_binding)
        if module is before:
            return module
        if not all(_is_small(function.body) for function in module.functions.values()):
            return None
    return None


def _is_small(body: Block) -> bool:
    """Whether a body keeps to the limits."""
    count, waiting = 0, [(body, 0)]
    while waiting:
        block, depth = waiting.pop()
        count += len(block.bindings)
        if depth > MOST_NESTED or count > MOST_BINDINGS:
            return False
        waiting.extend((inner, depth + 1) for b in block.bindings for inner in blocks(b.value))
    return True


def _rule(module: Module, kept: frozenset[str]) -> Rule:
    """The rule that inlines calls with known arguments."""

    def rule(builder: BlockBuilder, binding: Binding) -> Value | None:
        match binding.value:
            case Call(callee, arguments) if not isinstance(callee, Op):
                function = _known_function(builder, callee, module, kept)
                known = not arguments or any(_is_known(builder, atom) for atom in arguments)
                return add_body(builder, function, arguments) if function and known else None
            case _:
                return None

    return rule


def _known_function(
    builder: BlockBuilder, callee: Atom, module: Module, kept: frozenset[str]
) -> Function | None:
    if isinstance(callee, GlobalVar):
        found = module.functions.get(callee.name)
        stays = found is None or found.is_primitive or callee.name in kept
        return None if stays else found
    value = builder.value_of(callee)
    return value if isinstance(value, Function) else None


def _is_known(builder: BlockBuilder, atom: Atom) -> bool:
    if isinstance(atom, Constant | GlobalVar):
        return True
    match builder.value_of(atom):
        case Function():
            return True
        case Tuple(items):
            return all(isinstance(item, Constant | GlobalVar) for item in items)
        case _:
            return False
