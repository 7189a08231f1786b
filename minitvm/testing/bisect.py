"""A module and passes -> the pass that changes the result, and a few bindings that show it.

    print(bisect(module, passes, inputs))

The module that the pass is given is shrunk in two ways while the fault still shows: an earlier
variable is returned, and variables become parameters with the values they have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitvm.errors import MinitvmError
from minitvm.relay.interpret import Interpreter
from minitvm.relay.ir import (
    Atom,
    Binding,
    Block,
    Function,
    FuncType,
    Module,
    TensorType,
    Value,
    Var,
    atoms,
    blocks,
    free_variables,
    map_block,
    use_counts,
)
from minitvm.relay.text import print_module
from minitvm.testing.oracle import TOLERANCE, difference
from minitvm.text import Names
from minitvm.transform import Pass

Inputs = dict[str, np.ndarray]
Fault = Callable[[Module, Inputs], str]
"""How a pass changes the result of a module, in words; empty if it does not."""


@dataclass(frozen=True, slots=True)
class Bisection:
    """The pass at fault, and a small module and inputs on which it shows."""

    pass_name: str
    module: Module
    inputs: Inputs
    difference: str

    def __str__(self) -> str:
        return f"{self.pass_name}: {self.difference}\n{print_module(self.module)}"


def bisect(
    module: Module,
    passes: Sequence[Pass[Module]],
    inputs: Mapping[str, np.ndarray],
    tolerance: float = TOLERANCE,
) -> Bisection | None:
    """The first of the passes that changes the result, and the module it is given, shrunk; None if
    all keep the result."""
    for item in passes:
        after = item(module)
        if difference(module, after, inputs, tolerance):
            return _shrink(module, item, dict(inputs), tolerance)
        module = after
    return None


def _shrink(module: Module, item: Pass[Module], inputs: Inputs, tolerance: float) -> Bisection:
    def fault(candidate: Module, values: Inputs) -> str:
        try:
            return difference(candidate, item(candidate), values, tolerance)
        except MinitvmError:
            return ""

    module = _shortest_prefix(module, inputs, fault)
    module, inputs = _cut_bindings(module, inputs, fault)
    return Bisection(item.name, module, inputs, fault(module, inputs))


def _shortest_prefix(module: Module, inputs: Inputs, fault: Fault) -> Module:
    """The module that returns an early variable instead, if one shows the fault."""
    bindings = module.main.body.bindings
    low, high = 0, len(bindings)
    best = module
    while low < high:
        middle = (low + high) // 2
        candidate = _with_main(module, Block(bindings[: middle + 1], bindings[middle].var))
        if not isinstance(bindings[middle].var.type, FuncType) and fault(candidate, inputs):
            best, high = candidate, middle
        else:
            low = middle + 1
    return best


def _cut_bindings(module: Module, inputs: Inputs, fault: Fault) -> tuple[Module, Inputs]:
    """Bindings replaced by parameters: half of them at a time, then a quarter, down to one."""
    chunk, start = max(1, len(module.main.body.bindings) // 2), 0
    while chunk:
        bindings = module.main.body.bindings[:-1]
        if start >= len(bindings):
            chunk, start = chunk // 2, 0
            continue
        candidate, values = _cut(module, inputs, bindings[start : start + chunk])
        shorter = len(candidate.main.body.bindings) < len(module.main.body.bindings)
        if shorter and fault(candidate, values):
            module, inputs = candidate, values
        else:
            start += chunk
    return module, inputs


def _cut(
    module: Module, inputs: Inputs, removed: Sequence[Binding]
) -> tuple[Module, Inputs]:
    """The module with the tensors among some variables as parameters, and their values."""
    main = module.main
    environment: dict[Var, Any] = {param: inputs[param.name] for param in main.params}
    Interpreter(module.functions).evaluate(main.body, environment)
    cut = [binding.var for binding in removed if isinstance(binding.var.type, TensorType)]
    names = Names()
    names.reserve(param.name for param in main.params)
    named: dict[Var, Atom] = {var: Var(names.unique(var.name), var.type) for var in cut}
    kept = tuple(binding for binding in main.body.bindings if binding.var not in named)
    body = map_block(Block(kept, main.body.result), named)
    values = {param: environment[param] for param in main.params}
    values |= {new: environment[old] for old, new in named.items() if isinstance(new, Var)}
    candidate = _with_main(module, body, tuple(values))
    used = candidate.main.params
    return candidate, {param.name: values[param] for param in used}


def _with_main(module: Module, body: Block, params: tuple[Var, ...] | None = None) -> Module:
    """The module with another body of main, without what that does not need. The parameters stay,
    or are those of `params` that are needed."""
    body = needed_only(body)
    result_type = body.result.type
    assert result_type is not None
    function = Function(module.main.params, body, result_type, module.main.attrs)
    if params is not None:
        free = set(free_variables(Function((), body, result_type)))
        used = tuple(param for param in params if param in free)
        function = Function(used, body, result_type, module.main.attrs)
    return module.with_function("main", function)


def needed_only(block: Block) -> Block:
    """The block without the bindings that its result does not need."""
    needed: set[Atom] = {block.result}
    kept: list[Binding] = []
    for binding in reversed(block.bindings):
        if binding.var in needed:
            kept.append(binding)
            needed.update(_uses(binding.value))
    return Block(tuple(reversed(kept)), block.result)


def _uses(value: Value) -> Iterator[Var]:
    yield from (atom for atom in atoms(value) if isinstance(atom, Var))
    for inner in blocks(value):
        yield from use_counts(inner)
