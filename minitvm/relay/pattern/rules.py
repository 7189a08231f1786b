"""Rules that say which operators belong together, and the groups that they find in a block.

    with PassContext(config={"relay.fusion_rules": [FusionRule(pattern, "my_layer")]}):
        minitvm.compile(model)

A group is a closed match: no value in it is used outside, but for the result. It may hold calls of
operators, tuples and their fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from minitvm.errors import OptionError
from minitvm.relay.ir import Binding, Block, Call, Tuple, TupleGetItem
from minitvm.relay.op import Op
from minitvm.relay.pattern.language import DFPattern
from minitvm.relay.pattern.matching import Graph, Match, closed_groups


def always(match: Match) -> bool:
    """The check that takes every match."""
    return True


@dataclass(frozen=True, slots=True)
class FusionRule:
    """What `pattern` matches is one function, called `name`, if `check` holds of the match."""

    pattern: DFPattern
    name: str = "custom"
    check: Callable[[Match], bool] = field(default=always, repr=False)


def as_rules(given: Any) -> tuple[FusionRule, ...]:
    """Rules as users give them: `FusionRule`s, patterns alone, or (name, pattern) or (name,
    pattern, check). Raises `OptionError` for anything else."""
    items = given if isinstance(given, Sequence) and not isinstance(given, str) else (given,)
    return tuple(map(_as_rule, items))


def _as_rule(item: Any) -> FusionRule:
    match item:
        case FusionRule():
            return item
        case DFPattern():
            return FusionRule(item)
        case (str() as name, DFPattern() as pattern):
            return FusionRule(pattern, name)
        case (str() as name, DFPattern() as pattern, check) if callable(check):
            return FusionRule(pattern, name, check)
    raise OptionError(
        f"{item!r} is no fusion rule; give a pattern, or FusionRule(pattern, name, check)"
    )


def rule_groups(
    rules: Sequence[FusionRule], block: Block, graph: Graph
) -> Iterator[tuple[FusionRule, list[Binding]]]:
    """The groups of bindings that rules find in a block, each in order, its result last."""
    def checked(rule: FusionRule) -> Callable[[Match], bool]:
        return lambda match: _is_extractable(match, graph) and rule.check(match)

    patterns = [(rule.pattern, checked(rule)) for rule in rules]
    groups = closed_groups(patterns, block, graph)
    if not groups:
        return
    place = {binding.var: index for index, binding in enumerate(block.bindings)}
    for position, match in groups.values():
        members = sorted(match.members, key=place.__getitem__)
        yield rules[position], [graph.bindings[member] for member in members]


def _is_extractable(match: Match, graph: Graph) -> bool:
    """Whether all members are operator calls, tuples made of members' values, and their fields."""
    for member in match.members:
        value = graph.bindings[member].value
        match value:
            case Call(callee) if isinstance(callee, Op):
                continue
            case Tuple():
                continue
            case TupleGetItem(source) if source in match.members:
                continue
            case _:
                return False
    return True
