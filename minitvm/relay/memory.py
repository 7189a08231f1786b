"""`main` of a fused module -> where each of its tensors lies.

A tensor lies in the caller's input or output buffers, in the weights, or in the arena: the one
workspace of a run. A kernel that produces an output of the model writes it to the caller's buffer.
Everything else that a kernel produces gets an offset in the arena, shared by tensors whose
lifetimes are apart. A kernel's inputs and outputs never overlap, so a tensor lives from the call
that produces it up to and including the last call that reads it.

Aliases, fields of tuples and results of kernels marked `reshape_only` are views: they have no
memory of their own, and keep that of their source alive. A call that gives a tuple gets one
variable for each field, which then lives on its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from minitvm.errors import LoweringError
from minitvm.relay.arena import Lifetime, lower_bound, place
from minitvm.relay.ir import (
    Atom,
    Binding,
    Call,
    Constant,
    Function,
    Module,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Var,
    atoms,
)
from minitvm.relay.memory_check import check_plan
from minitvm.relay.memory_plan import MemoryPlan, aligned_bytes, is_view

__all__ = ["MemoryPlan", "check_plan", "plan_memory"]


def plan_memory(module: Module) -> MemoryPlan:
    """The plan for the module's `main`; raises `LoweringError` for symbolic shapes, and for
    branches and function values, which have no place in a flat program."""
    tensors = _tensors(module)
    outputs, copies = _outputs(module.main, tensors)
    stored = [var for var in tensors.first if var not in outputs]
    lifetimes = [
        Lifetime(tensors.first[var], tensors.last[var], aligned_bytes(var)) for var in stored
    ]
    placement = place(lifetimes)
    offsets = dict(zip(stored, placement.offsets, strict=True))
    for view, source in tensors.views.items():
        if isinstance(source, Var) and source in offsets:
            offsets[view] = offsets[source]
    bound = lower_bound(lifetimes)
    return MemoryPlan(
        offsets, placement.size, bound, tensors.views, tensors.fields, outputs, copies
    )


# --- liveness -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Tensors:
    """The tensors that kernels produce, with the first and the last step of each, and the
    variables that only look at them."""

    first: dict[Var, int] = field(default_factory=dict)
    last: dict[Var, int] = field(default_factory=dict)
    views: dict[Var, Atom] = field(default_factory=dict)
    fields: dict[Var, tuple[Atom, ...]] = field(default_factory=dict)

    def root(self, atom: Atom) -> Atom:
        """What `atom` is a view of, or itself."""
        return self.views.get(atom, atom) if isinstance(atom, Var) else atom

    def leaves(self, atom: Atom) -> Iterator[Atom]:
        """The tensors of a tuple, nested ones included; a tensor's own root."""
        if isinstance(atom, Var) and atom in self.fields:
            for part in self.fields[atom]:
                yield from self.leaves(part)
        else:
            yield self.root(atom)

    def read(self, atom: Atom, step: int) -> None:
        """Keeps what `atom` lies in alive up to `step`."""
        for leaf in self.leaves(atom):
            if isinstance(leaf, Var) and leaf in self.last:
                self.last[leaf] = step

    def alias(self, var: Var, source: Atom) -> None:
        """Makes `var` another name of `source`."""
        if isinstance(source, Var) and source in self.fields:
            self.fields[var] = self.fields[source]
        else:
            self.views[var] = self.root(source)

    def produce(self, var: Var, step: int) -> None:
        """Makes `var` the result of the call at `step`: one tensor, or one for each field."""
        if isinstance(var.type, TupleType):
            parts = [Var(f"{var.name}.{i}", part) for i, part in enumerate(var.type.fields)]
            self.fields[var] = tuple(parts)
            for part in parts:
                self.produce(part, step)
        else:
            self.first[var] = self.last[var] = step


def _tensors(module: Module) -> _Tensors:
    tensors = _Tensors()
    for param in module.main.params:
        _refuse_tuples(param.type, param.name)
    for step, binding in enumerate(module.main.body.bindings):
        match binding.value:
            case Call() as call if is_view(call, module):
                tensors.alias(binding.var, call.arguments[0])
            case Call() as call:
                for atom in atoms(call):
                    tensors.read(atom, step)
                tensors.produce(binding.var, step)
            case Tuple(parts):
                tensors.fields[binding.var] = parts
            case TupleGetItem(Var() as source, index) if source in tensors.fields:
                tensors.alias(binding.var, tensors.fields[source][index])
            case Var() | Constant() as atom:
                tensors.alias(binding.var, atom)
            case _:
                raise _unplannable(binding)
    return tensors


def _unplannable(binding: Binding) -> LoweringError:
    kind = type(binding.value).__name__
    return LoweringError(
        f"{binding.var.name} in main ({binding.origin}) is a {kind}; only calls of kernels and "
        f"tuples have a place in memory, so a model with branches can't be compiled yet"
    )


def _refuse_tuples(found: Type, name: str) -> None:
    if not isinstance(found, TensorType):
        raise LoweringError(f"the input {name!r} must be a tensor, not {found}")


def _outputs(
    main: Function, tensors: _Tensors
) -> tuple[dict[Var, int], tuple[tuple[Atom, int], ...]]:
    """Which variables are written to outputs directly, and what is copied there."""
    direct: dict[Var, int] = {}
    copies: list[tuple[Atom, int]] = []
    for index, leaf in enumerate(tensors.leaves(main.body.result)):
        if isinstance(leaf, Var) and leaf in tensors.first and leaf not in direct:
            direct[leaf] = index
        else:
            copies.append((leaf, index))
    return direct, tuple(copies)
