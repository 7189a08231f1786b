"""One operator -> the forms in which it can be computed, each with its modelled time.

An operator that has forms of its own (`Op.layout_alternatives`) has these; others are plain, or
follow (`layout_rules`) a layout in which one of their arguments can be computed. Whether they do
may depend on the numbers in padding lanes, which are those that the arguments would have if each
was computed in the form in which it is wanted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from minitvm.relay.ir import Atom, Binding, Call, Constant, TensorType, tensor_type
from minitvm.relay.layout import Layout
from minitvm.relay.op import LayoutChoice, Op
from minitvm.relay.passes.layout_costs import Costs
from minitvm.relay.passes.layout_rules import (
    Followed,
    Form,
    Given,
    clears_padding,
    follow,
    form_shape,
    forms_of,
    from_choice,
    is_padded,
)

Paddings = Mapping[Layout, float | int]
"""The layouts in which a value can be computed, and the number in the padding lanes of each."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """A call to make: the operator, the form of each argument (None: plain), the layout of the
    result (None: plain) with the number in its padding lanes, and the modelled seconds."""

    op: Op
    forms: tuple[Form | None, ...]
    result: Layout | None
    seconds: float
    padding: float | int = 0

    @property
    def is_plain(self) -> bool:
        """Whether arguments and result are plain; the operator may be another one all the same."""
        return self.result is None and not any(self.forms)

    @property
    def followed(self) -> Followed | None:
        """The same for `layout_rules`; None where the result is plain."""
        if self.result is None:
            return None
        return Followed(self.op, self.forms, self.result, self.padding)

    def __str__(self) -> str:
        source = "plain" if self.forms[0] is None else str(self.forms[0].layout)
        return f"{source} -> {self.result or 'plain'}"


@dataclass(frozen=True, slots=True)
class Alternatives:
    """All forms of one call: `items`, of which `greedy` follows or prefers a layout; `reason` says
    why it does not follow one that its arguments can have. `chooses`: the operator has forms of its
    own to choose from."""

    items: tuple[Alternative, ...]
    preferred: Alternative | None = None
    by_layout: Mapping[Layout, Alternative] = field(default_factory=dict)
    reason: str = ""
    chooses: bool = False


class Enumerator:
    """Finds the alternatives of calls; what was asked once is remembered."""

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self.found: dict[Any, Alternatives] = {}

    def alternatives(
        self, binding: Binding, possible: Mapping[Atom, Paddings]
    ) -> Alternatives | None:
        """Those of a call of an operator on tensors; None for other bindings. `possible` says which
        layouts each packed value can have."""
        call, result = binding.value, binding.var.type
        if not isinstance(call, Call) or not isinstance(call.callee, Op):
            return None
        if not isinstance(result, TensorType):
            return None
        if not all(isinstance(argument.type, TensorType) for argument in call.arguments):
            return None
        packed = [possible.get(argument, {}) for argument in call.arguments]
        values = self.depends_on_constants(call.callee, result, packed)
        arguments = (a if values and isinstance(a, Constant) else a.type for a in call.arguments)
        key = (call.callee, result, *arguments, *(tuple(item.items()) for item in packed))
        if key not in self.found:
            self.found[key] = self.find(call, result, possible)
        return self.found[key]

    def depends_on_constants(
        self, op: Op, result: TensorType, packed: Sequence[Paddings]
    ) -> bool:
        """Whether the values of constants decide what an operator can follow."""
        return not clears_padding(op) and any(
            is_padded(layout, result.shape)
            for each in packed for layout in each if len(layout.logical) == result.rank)

    def find(self, call: Call, result: TensorType,
             possible: Mapping[Atom, Paddings]) -> Alternatives:
        """`alternatives`, anew."""
        op = call.callee
        assert isinstance(op, Op)
        types = tuple(map(tensor_type, call.arguments))
        choices = op.layout_alternatives(types, self.costs.target)
        own = [self.own(choice, types, result) for choice in choices]
        if len(own) > 1:
            return self.chooses(op, types, result, own)
        items = dict.fromkeys(own or [self.plain(op, types, result)])
        by_layout, reason = self.follows(op, call.arguments, result, possible)
        items.update(dict.fromkeys(by_layout.values()))
        return Alternatives(tuple(items), own[0] if own else None, by_layout, reason)

    def chooses(self, op: Op, types: tuple[TensorType, ...], result: TensorType,
                own: list[Alternative]) -> Alternatives:
        """Those of an operator with several forms of its own: greedily, it follows a layout with
        the first of them that takes it and gives it."""
        choice = op.alter_layout(types, self.costs.target)
        preferred = None if choice is None else self.own(choice, types, result)
        by_layout = {item.result: item for item in reversed(own)
                     if item.result and item.forms[0] == Form(item.result)}
        return Alternatives(tuple(dict.fromkeys(own)), preferred, by_layout, "", True)

    def follows(
        self, op: Op, arguments: tuple[Atom, ...], result: TensorType,
        possible: Mapping[Atom, Paddings]
    ) -> tuple[dict[Layout, Alternative], str]:
        """How an operator follows each layout that its arguments can have, or why it doesn't."""
        types = tuple(map(tensor_type, arguments))
        found: dict[Layout, Alternative] = {}
        reason = ""
        layouts = dict.fromkeys(
            layout for argument in arguments for layout in possible.get(argument, ()))
        for layout in layouts:
            given = {index: Given(layout, possible[argument][layout])
                     for index, argument in enumerate(arguments)
                     if layout in possible.get(argument, ())}
            followed, why = follow(op, arguments, given, result)
            if followed is None:
                reason = reason or why
            else:
                found[layout] = self.alternative(followed, types, result)
        return found, reason

    def own(self, choice: LayoutChoice, types: tuple[TensorType, ...],
            result: TensorType) -> Alternative:
        """What an operator offers by itself."""
        followed = from_choice(choice)
        if followed is not None and len(followed.result.logical) == result.rank:
            return self.alternative(followed, types, result)
        forms = forms_of(choice)
        seconds = self.costs.operator(choice.op, _in_forms(forms, types), result, None)
        result_layout = None if followed is None else followed.result
        return Alternative(choice.op, forms, result_layout, seconds)

    def alternative(self, followed: Followed, types: tuple[TensorType, ...],
                    result: TensorType) -> Alternative:
        """A packed call with its cost."""
        in_memory = _in_forms(followed.forms, types)
        packed = TensorType(followed.result.pack_shape(result.shape), result.dtype)
        seconds = self.costs.operator(followed.op, in_memory, packed, followed.result)
        return Alternative(
            followed.op, followed.forms, followed.result, seconds, followed.padding)

    def plain(self, op: Op, types: tuple[TensorType, ...], result: TensorType) -> Alternative:
        """The call as it is."""
        seconds = self.costs.operator(op, types, result, None)
        return Alternative(op, (None,) * len(types), None, seconds)


def depends_on_padding(alternative: Alternative, result: TensorType) -> bool:
    """Whether what the arguments have in their padding lanes decides what the result has there."""
    layout = alternative.result
    if layout is None or clears_padding(alternative.op):
        return False
    return is_padded(layout, result.shape)


def _in_forms(
    forms: tuple[Form | None, ...], types: tuple[TensorType, ...]
) -> tuple[TensorType, ...]:
    return tuple(TensorType(form_shape(form, given.shape), given.dtype)
                 for form, given in zip(forms, types, strict=True))
