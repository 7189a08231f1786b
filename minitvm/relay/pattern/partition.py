"""A program and a pattern -> the program in which what matches is a function of its own.

    partition(pattern, function)    function values in the same block, called where the match was
    partition(pattern, module)      functions of the module, primitive ones: each becomes one kernel

Both carry the attributes `Composite` (the rule's name) and `PartitionedFromPattern` (the
operators). A match must be closed: a value in it that is used elsewhere would have to be a second
result. Inputs become parameters, and so do constants of more than one element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from minitvm.origin import merge_all
from minitvm.relay.extract import extract, kernel_name
from minitvm.relay.ir import Atom, Binding, Block, Call, Function, GlobalVar, Module, Var
from minitvm.relay.op import Op
from minitvm.relay.pattern.language import DFPattern
from minitvm.relay.pattern.matching import Graph, Match
from minitvm.relay.pattern.rules import FusionRule, always, rule_groups
from minitvm.relay.structural_hash import structural_hash

Subject = TypeVar("Subject", Function, Module)


def partition(
    pattern: DFPattern,
    subject: Subject,
    name: str = "custom",
    check: Callable[[Match], bool] = always,
) -> Subject:
    """Makes functions of what a pattern matches; `check` may decline a match."""
    return partition_by_rules([FusionRule(pattern, name, check)], subject)


def partition_by_rules(rules: Sequence[FusionRule], subject: Subject) -> Subject:
    """The same for several rules; of two that match one binding, the first."""
    if isinstance(subject, Function):
        return _with_function_values(rules, subject)
    module: Module = subject
    made: dict[str, Function] = {}
    named: dict[str, str] = {}
    for name, function in module.functions.items():
        if function.is_primitive:
            continue
        graph = Graph(function.body)
        calls: dict[Var, Binding | None] = {}
        for rule, group in rule_groups(rules, function.body, graph):
            kernel, arguments = extract(group, _attrs(rule, group))
            key = structural_hash(kernel)
            if key not in named:
                named[key] = _new_name(kernel_name(group), {*module.functions, *made})
                made[named[key]] = kernel
            else:
                made[named[key]] = _with_more_origins(made[named[key]], group)
            callee = GlobalVar(named[key], kernel.type)
            _replace_group(calls, group, callee, arguments)
        if calls:
            module = module.with_function(name, function.with_body(_rewired(function.body, calls)))
    return Module({**module.functions, **made}) if made else module


def _attrs(rule: FusionRule, group: Sequence[Binding]) -> dict[str, Any]:
    operators = [
        binding.value.callee.name for binding in group
        if isinstance(binding.value, Call) and isinstance(binding.value.callee, Op)
    ]
    return {"Composite": rule.name, "PartitionedFromPattern": "_".join([*operators, ""])}


def _replace_group(
    calls: dict[Var, Binding | None], group: Sequence[Binding], callee: Atom,
    arguments: tuple[Atom, ...],
) -> None:
    source = merge_all(binding.origin for binding in group)
    calls.update((binding.var, None) for binding in group)
    calls[group[-1].var] = Binding(group[-1].var, Call(callee, arguments), source)


def _rewired(block: Block, calls: dict[Var, Binding | None]) -> Block:
    kept = (calls.get(binding.var, binding) for binding in block.bindings)
    return Block(tuple(binding for binding in kept if binding is not None), block.result)


def _with_more_origins(kernel: Function, group: Sequence[Binding]) -> Function:
    bindings = tuple(
        replace(old, origin=merge_all((old.origin, new.origin)))
        for old, new in zip(kernel.body.bindings, group, strict=True)
    )
    return kernel.with_body(Block(bindings, kernel.body.result))


def _new_name(base: str, taken: set[str]) -> str:
    name, count = base, 0
    while name in taken:
        count += 1
        name = f"{base}_{count}"
    return name


def _with_function_values(rules: Sequence[FusionRule], function: Function) -> Function:
    calls: dict[Var, Binding | None] = {}
    values: dict[Var, Binding] = {}
    for rule, group in rule_groups(rules, function.body, Graph(function.body)):
        kernel, arguments = extract(group, _attrs(rule, group))
        attrs = {key: value for key, value in kernel.attrs.items() if key not in _KERNEL_ATTRS}
        value = replace(kernel, attrs=attrs)
        source = merge_all(binding.origin for binding in group)
        held = Var(f"{rule.name}_{len(values)}", value.type)
        values[group[-1].var] = Binding(held, value, source)
        _replace_group(calls, group, held, arguments)
    if not calls:
        return function
    bindings: list[Binding] = []
    for binding in _rewired(function.body, calls).bindings:
        if binding.var in values:
            bindings.append(values[binding.var])
        bindings.append(binding)
    return function.with_body(Block(tuple(bindings), function.body.result))


_KERNEL_ATTRS = ("primitive", "reshape_only")
