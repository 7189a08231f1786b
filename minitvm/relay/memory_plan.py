"""What a plan of memory says, and what planner and checker both need to know of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from minitvm.errors import LoweringError
from minitvm.relay.ir import Atom, Call, GlobalVar, Module, TensorType, Var

ALIGNMENT = 64
"""Of each tensor in the arena, in bytes: a cache line, and the widest vector."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Where the variables of `main` lie.

    offsets: of tensors in the arena, in bytes, those of views included.
    workspace_bytes: the size of the arena; lower_bound_bytes: the most that lives at one time.
    views: a variable without memory of its own -> the variable or constant that has it.
    fields: a variable that is a tuple -> its tensors.
    outputs: a variable whose kernel writes it to an output of the model -> which one.
    copies: an atom and the output that it is copied to at the end of `main`: inputs, constants,
    and tensors that are an output already.
    """

    offsets: Mapping[Var, int]
    workspace_bytes: int
    lower_bound_bytes: int
    views: Mapping[Var, Atom]
    fields: Mapping[Var, tuple[Atom, ...]]
    outputs: Mapping[Var, int]
    copies: tuple[tuple[Atom, int], ...]

    def root(self, atom: Atom) -> Atom:
        """The parameter, constant or result of a kernel whose memory the tensor `atom` lies in."""
        return self.views.get(atom, atom) if isinstance(atom, Var) else atom

    def results(self, var: Var) -> tuple[Atom, ...]:
        """The tensors that the call bound to `var` writes, in order."""
        return self.fields.get(var, (var,))


def is_view(call: Call, module: Module) -> bool:
    """Whether a call is of a kernel that only gives its one argument another shape."""
    match call:
        case Call(GlobalVar(name), (_,)):
            return bool(module.functions[name].attrs.get("reshape_only"))
        case _:
            return False


def aligned_bytes(var: Var) -> int:
    """The room that a tensor takes in the arena."""
    return -(-size_bytes(var) // ALIGNMENT) * ALIGNMENT


def size_bytes(atom: Atom) -> int:
    """The size of a tensor; raises `LoweringError` if its shape is symbolic."""
    found = atom.type
    if not isinstance(found, TensorType):
        raise LoweringError(f"{atom!r} needs memory but is no tensor: its type is {found}")
    try:
        return found.size_bytes()
    except ValueError as error:
        raise LoweringError(f"{atom!r} has no fixed size: {error}; give the shapes") from error
