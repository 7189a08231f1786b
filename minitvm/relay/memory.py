"""A function of a fused module -> where each of its tensors lies.

A tensor lies in the caller's input or output buffers, in the weights, or in the arena: the frame of
a call, which for `main` is the workspace of a run. A kernel, or a call of another function, that
produces an output of the function writes it to the caller's buffer. Everything else that is
produced gets an offset in the arena, shared by tensors whose lifetimes are apart. What is read and
what is written by one call never overlap, so a tensor lives from the call that produces it up to
and including the last call that reads it.

Steps are counted through nested blocks, the `then` before the `else`: what lives in one branch does
not live in the other. Both branches write to the memory of the variable that the `If` binds.

Aliases, fields of tuples and results of kernels marked `reshape_only` are views: they have no
memory of their own, and keep that of their source alive. A call that gives a tuple gets one
variable for each field, which then lives on its own.

Tail calls make a loop of a function. The parameters in which its turns differ get slots in the
arena, which live throughout; at the end of a turn the values for the next one are copied there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from minitvm.errors import LoweringError
from minitvm.relay.arena import Lifetime, lower_bound, place
from minitvm.relay.calls import call_graph, tail_calls
from minitvm.relay.ir import (
    Atom,
    Binding,
    Block,
    Call,
    Constant,
    Function,
    FuncType,
    If,
    Module,
    TensorType,
    Tuple,
    TupleGetItem,
    Type,
    Var,
    atoms,
    blocks,
    walk_bindings,
)
from minitvm.relay.memory_check import check_plan
from minitvm.relay.memory_plan import Copies, MemoryPlan, aligned_bytes, field_variables, is_view

__all__ = ["MemoryPlan", "check_plan", "plan_functions", "plan_memory"]


def plan_functions(module: Module) -> dict[str, MemoryPlan]:
    """The plans of `main` and of the functions that it needs, kernels apart."""
    return {name: plan_memory(module, name) for name in call_graph(module)}


def plan_memory(module: Module, name: str = "main") -> MemoryPlan:
    """The plan for a function of the module; raises `LoweringError` for symbolic shapes, and for
    function values, which have no place in memory."""
    function = module.functions[name]
    tensors = _tensors(module, name)
    outputs, copies = _outputs(function, tensors)
    stored = [var for var in tensors.first if var not in outputs]
    lifetimes = [
        Lifetime(tensors.first[var], tensors.last[var], aligned_bytes(var)) for var in stored
    ]
    placement = place(lifetimes)
    offsets = dict(zip(stored, placement.offsets, strict=True))
    views = {view: tensors.root(view) for view in tensors.views}
    for view, source in views.items():
        if isinstance(source, Var) and source in offsets:
            offsets[view] = offsets[source]
    bound = lower_bound(lifetimes)
    return MemoryPlan(
        offsets, placement.size, bound, views, tensors.fields, outputs, copies,
        tensors.branch_copies, tensors.moves, tensors.slots,
    )


# --- liveness -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Tensors:
    """The tensors that calls produce, with the first and the last step of each, and the variables
    that only look at them; `jumps` are the variables of tail calls."""

    module: Module
    name: str
    params: tuple[Var, ...]
    jumps: frozenset[Var] = frozenset()
    slots: tuple[Var, ...] = ()
    step: int = 0
    first: dict[Var, int] = field(default_factory=dict)
    last: dict[Var, int] = field(default_factory=dict)
    views: dict[Var, Atom] = field(default_factory=dict)
    fields: dict[Var, tuple[Atom, ...]] = field(default_factory=dict)
    branch_copies: dict[Var, tuple[Copies, Copies]] = field(default_factory=dict)
    moves: dict[Var, Copies] = field(default_factory=dict)

    def root(self, atom: Atom) -> Atom:
        """What `atom` is a view of, or itself."""
        while isinstance(atom, Var) and atom in self.views:
            atom = self.views[atom]
        return atom

    def leaves(self, atom: Atom) -> Iterator[Atom]:
        """The tensors of a tuple, nested ones included; a tensor's own root."""
        if isinstance(atom, Var) and atom in self.fields:
            for part in self.fields[atom]:
                yield from self.leaves(part)
        else:
            yield self.root(atom)

    def read(self, atom: Atom) -> None:
        """Keeps what `atom` lies in alive up to now."""
        for leaf in self.leaves(atom):
            if isinstance(leaf, Var) and leaf in self.last:
                self.last[leaf] = max(self.last[leaf], self.step)

    def alias(self, var: Var, source: Atom) -> None:
        """Makes `var` another name of `source`."""
        if isinstance(source, Var) and source in self.fields:
            self.fields[var] = self.fields[source]
        else:
            self.views[var] = self.root(source)

    def live(self, var: Var, first: int, last: int) -> None:
        """Makes a tensor live at these steps too."""
        self.first[var] = min(self.first.get(var, first), first)
        self.last[var] = max(self.last.get(var, last), last)

    def produce(self, var: Var) -> None:
        """Makes `var` the result of the call at this step: one tensor, or one for each field."""
        for leaf in field_variables(var, self.fields):
            self.live(leaf, self.step, self.step)

    def block(self, block: Block) -> None:
        """Goes through a block."""
        for binding in block.bindings:
            self.binding(binding)
            self.step += 1

    def binding(self, binding: Binding) -> None:
        match binding.value:
            case Call() as call if is_view(call, self.module):
                self.alias(binding.var, call.arguments[0])
            case Call() as call:
                for atom in atoms(call):
                    self.read(atom)
                if binding.var in self.jumps:
                    self.jump(binding.var, call)
                else:
                    self.produce(binding.var)
            case Tuple(parts):
                self.fields[binding.var] = parts
            case TupleGetItem(Var() as source, index) if source in self.fields:
                self.alias(binding.var, self.fields[source][index])
            case Var() | Constant() as atom:
                self.alias(binding.var, atom)
            case If() as value:
                self.branches(binding.var, value)
            case _:
                raise _unplannable(binding, self.name)

    # --- branches -------------------------------------------------------------------------------

    def branches(self, var: Var, value: If) -> None:
        """Goes through both branches, whose results become those of `var`."""
        self.read(value.condition)
        targets = field_variables(var, self.fields)
        copies = []
        for block in blocks(value):
            self.step += 1
            begin = self.step
            self.block(block)
            ends = block.result in self.jumps if isinstance(block.result, Var) else False
            copies.append(() if ends else self.settle(block, targets, begin))
            self.step += 1
        for target in targets:
            self.live(target, self.step, self.step)
        self.branch_copies[var] = (copies[0], copies[1])

    def settle(self, block: Block, targets: list[Var], begin: int) -> Copies:
        """Makes the results of a branch those of the `If`: computed in its memory if they are
        computed since `begin`, in the branch, and copied otherwise."""
        copies: list[tuple[Atom, Var]] = []
        for leaf, target in zip(self.leaves(block.result), targets, strict=True):
            own = isinstance(leaf, Var) and self.first.get(leaf, -1) >= begin
            if isinstance(leaf, Var) and own and leaf not in targets:
                self.live(target, self.first.pop(leaf), self.last.pop(leaf))
                self.views[leaf] = target
            else:
                self.read(leaf)
                self.live(target, self.step, self.step)
                copies.append((leaf, target))
        return tuple(copies)

    # --- tail calls -----------------------------------------------------------------------------

    def jump(self, var: Var, call: Call) -> None:
        """Notes what is copied to the slots for the next turn. A slot that is itself copied to
        another one is first copied aside."""
        given = [leaf for argument in call.arguments for leaf in self.leaves(argument)]
        wanted = [leaf for param in self.params for leaf in self.leaves(param)]
        pairs = [(source, slot) for source, slot in zip(given, wanted, strict=True)
                 if slot in self.slots and source is not slot]
        overwritten = {slot for _, slot in pairs}
        aside: dict[Atom, Var] = {}
        for source, _ in pairs:
            if isinstance(source, Var) and source in overwritten and source not in aside:
                aside[source] = Var(f"{source.name}.old", source.type)
                self.live(aside[source], self.step, self.step)
        moves = [(aside.get(source, source), slot) for source, slot in pairs]
        self.moves[var] = (*((source, old) for source, old in aside.items()), *moves)


def _tensors(module: Module, name: str) -> _Tensors:
    function = module.functions[name]
    tensors = _Tensors(module, name, function.params, tail_calls(function, name))
    for param in function.params:
        if name == "main" or isinstance(param.type, FuncType):
            _refuse_tuples(param.type, param.name)
        field_variables(param, tensors.fields)
    changing = _changing_params(function, tensors.jumps)
    tensors.slots = tuple(leaf for param in changing for leaf in tensors.leaves(param)
                          if isinstance(leaf, Var))
    for slot in tensors.slots:
        tensors.live(slot, 0, 0)
    tensors.block(function.body)
    for slot in tensors.slots:
        tensors.live(slot, 0, tensors.step)
    return tensors


def _changing_params(function: Function, jumps: frozenset[Var]) -> list[Var]:
    """The parameters that some tail call gives another value."""
    if not jumps:
        return []
    calls: Mapping[Var, Call] = {
        binding.var: binding.value for binding in walk_bindings(function.body)
        if binding.var in jumps and isinstance(binding.value, Call)
    }
    return [param for position, param in enumerate(function.params)
            if any(call.arguments[position] is not param for call in calls.values())]


def _unplannable(binding: Binding, name: str) -> LoweringError:
    kind = type(binding.value).__name__
    return LoweringError(
        f"{binding.var.name} in {name} ({binding.origin}) is a {kind}, which has no place in "
        f"memory; the pass LambdaLift moves functions to the module, and can't be disabled"
    )


def _refuse_tuples(found: Type, name: str) -> None:
    if not isinstance(found, TensorType):
        raise LoweringError(f"the input {name!r} must be a tensor, not {found}")


def _outputs(
    function: Function, tensors: _Tensors
) -> tuple[dict[Var, int], tuple[tuple[Atom, int], ...]]:
    """Which variables are written to outputs directly, and what is copied there."""
    direct: dict[Var, int] = {}
    copies: list[tuple[Atom, int]] = []
    if function.body.result in tensors.jumps:
        return direct, ()
    for index, leaf in enumerate(tensors.leaves(function.body.result)):
        computed = isinstance(leaf, Var) and leaf in tensors.first and leaf not in tensors.slots
        if isinstance(leaf, Var) and computed and leaf not in direct:
            direct[leaf] = index
        else:
            copies.append((leaf, index))
    return direct, tuple(copies)
