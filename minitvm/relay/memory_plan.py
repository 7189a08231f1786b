"""What a plan of memory says, and what planner and checker both need to know of tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from minitvm.errors import LoweringError
from minitvm.relay.ir import Atom, Call, GlobalVar, Module, TensorType, TupleType, Type, Var

ALIGNMENT = 64
"""Of each tensor in the arena, in bytes: a cache line, and the widest vector."""


Copies = tuple[tuple[Atom, Var], ...]
"""What is copied where, in order."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Where the variables of a function lie.

    offsets: of tensors in the arena, in bytes, those of views included.
    workspace_bytes: the size of the arena; lower_bound_bytes: the most that lives at one time.
    views: a variable without memory of its own -> the variable or constant that has it.
    fields: a variable that is a tuple -> its tensors.
    outputs: a variable whose kernel writes it to an output of the function -> which one.
    copies: an atom and the output that it is copied to at the end of the function: inputs,
    constants, and tensors that are an output already.
    branch_copies: the variable of an `If` -> what each branch copies to it at its end. What a
    branch computes itself it computes in place: it is a view of that variable.
    moves: the variable of a tail call -> what is copied for the next turn; `slots` are the
    parameters, or fields of them, that are copied to the arena first because the turns differ in
    them. Where there are no tail calls both are empty.
    """

    offsets: Mapping[Var, int]
    workspace_bytes: int
    lower_bound_bytes: int
    views: Mapping[Var, Atom]
    fields: Mapping[Var, tuple[Atom, ...]]
    outputs: Mapping[Var, int]
    copies: tuple[tuple[Atom, int], ...]
    branch_copies: Mapping[Var, tuple[Copies, Copies]] = field(default_factory=dict)
    moves: Mapping[Var, Copies] = field(default_factory=dict)
    slots: tuple[Var, ...] = ()

    def root(self, atom: Atom) -> Atom:
        """The parameter, constant or result of a kernel whose memory the tensor `atom` lies in."""
        return self.views.get(atom, atom) if isinstance(atom, Var) else atom

    def results(self, var: Var) -> tuple[Atom, ...]:
        """The tensors that the call bound to `var` writes, in order."""
        return tuple(self.leaves(var))

    def leaves(self, atom: Atom) -> Iterator[Atom]:
        """The tensors of an atom, fields of fields included."""
        if isinstance(atom, Var) and atom in self.fields:
            for part in self.fields[atom]:
                yield from self.leaves(part)
        else:
            yield atom


def field_variables(var: Var, fields: dict[Var, tuple[Atom, ...]]) -> list[Var]:
    """The tensors of a variable: itself, or a new variable for each field, noted in `fields`."""
    if not isinstance(var.type, TupleType):
        return [var]
    parts = [Var(f"{var.name}.{index}", kind) for index, kind in enumerate(var.type.fields)]
    fields[var] = tuple(parts)
    return [leaf for part in parts for leaf in field_variables(part, fields)]


def named_tensors(name: str, kind: Type) -> list[tuple[str, TensorType]]:
    """The tensors of a type, each with its name: `name`, or `name.0`, `name.1` for fields."""
    if isinstance(kind, TensorType):
        return [(name, kind)]
    if not isinstance(kind, TupleType):
        raise LoweringError(f"{name} must be a tensor or a tuple of them, not {kind}")
    parts = enumerate(kind.fields)
    return [item for index, part in parts for item in named_tensors(f"{name}.{index}", part)]


def output_tensors(result: Type, names: list[str] | None) -> list[tuple[str, TensorType]]:
    """The outputs of a model by name: the fields of its result, which `names` names."""
    kinds = result.fields if isinstance(result, TupleType) else (result,)
    names = names or [f"output{index}" for index in range(len(kinds))]
    pairs = zip(names, kinds, strict=True)
    return [item for name, kind in pairs for item in named_tensors(name, kind)]


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
