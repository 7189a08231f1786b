"""A module and a memory plan -> nothing, or the reason why the plan would corrupt a tensor.

The checker knows nothing of lifetimes. It runs a function symbolically: memory holds values, a call
writes new ones and thereby destroys what overlapped them, and each read must find the value that
the program means there. Both branches of an `If` are run, and memory then holds what it holds after
both. A tail call must leave in each slot what the parameter is in the next turn. So a plan that
passes is right whatever the planner did.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

from minitvm.errors import VerifyError
from minitvm.relay.calls import tail_calls
from minitvm.relay.ir import (
    Atom,
    Binding,
    Block,
    Call,
    Constant,
    GlobalVar,
    If,
    Module,
    Tuple,
    TupleGetItem,
    Var,
    blocks,
)
from minitvm.relay.memory_plan import ALIGNMENT, Copies, MemoryPlan, is_view, size_bytes


@dataclass(frozen=True, slots=True)
class Written:
    """A tensor that a call, or a branch, writes."""

    var: Var


Value = Var | Constant | GlobalVar | Written | tuple["Value", ...]
"""What a variable means: a parameter, a constant, the result of a call, or a tuple."""


def check_plan(module: Module, plan: MemoryPlan, name: str = "main") -> None:
    """Raises `VerifyError` unless every kernel, function and caller reads what it should."""
    function = module.functions[name]
    machine = _Machine(plan, module, name, function.params, tail_calls(function, name))
    for param in function.params:
        machine.parameter(param)
    machine.block(function.body)
    machine.finish(function.body.result)


@dataclass(slots=True)
class _Machine:
    """The state of a run: the value of each variable, and the values in memory."""

    plan: MemoryPlan
    module: Module
    name: str
    params: tuple[Var, ...]
    jumps: frozenset[Var]
    values: dict[Var, Value] = field(default_factory=dict)
    inputs: set[Var] = field(default_factory=set)
    written_outputs: dict[int, Value] = field(default_factory=dict)
    arena: Arena = field(default_factory=lambda: Arena())
    ended: bool = False
    """Whether a tail call has ended this run."""

    def parameter(self, param: Var) -> None:
        """Notes that a parameter, or each field of it, lies in an input or a slot."""
        leaves = [leaf for leaf in self.plan.leaves(param) if isinstance(leaf, Var)]
        for leaf in leaves:
            self.values[leaf] = leaf
            if leaf in self.plan.slots:
                self.write(leaf, leaf)
            else:
                self.inputs.add(leaf)
        self.values[param] = self.meaning(param)

    def meaning(self, atom: Atom) -> Value:
        """The value of an atom by the values of its fields."""
        if isinstance(atom, Var) and atom in self.plan.fields:
            return tuple(map(self.meaning, self.plan.fields[atom]))
        return self.value(atom)

    def block(self, block: Block) -> None:
        """Runs the bindings of a block."""
        for binding in block.bindings:
            self.step(binding)

    def step(self, binding: Binding) -> None:
        """Runs one binding."""
        match binding.value:
            case Call() as call if is_view(call, self.module):
                self.values[binding.var] = self.value(call.arguments[0])
                self.expect(binding.var, f"the view {binding.var.name}")
            case Call(_, arguments) if binding.var in self.jumps:
                self.jump(binding.var, arguments)
            case Call(_, arguments):
                self.call(binding.var, arguments)
            case Tuple(fields):
                self.values[binding.var] = tuple(self.value(atom) for atom in fields)
            case TupleGetItem(source, index):
                whole = self.value(source)
                assert isinstance(whole, tuple)
                self.values[binding.var] = whole[index]
            case Var() | Constant() as atom:
                self.values[binding.var] = self.value(atom)
            case If() as value:
                self.branches(binding.var, value)
            case _:
                raise VerifyError(f"{binding.var.name} in {self.name} has no place in memory")

    def call(self, var: Var, arguments: tuple[Atom, ...]) -> None:
        """Reads the arguments, writes the results, and looks whether both are still there."""
        where = f"the call that computes {var.name}"
        read = [leaf for argument in arguments for leaf in self.plan.leaves(argument)]
        for argument in read:
            self.expect(argument, where)
        results = self.results(var)
        for result in results:
            self.write(result, Written(result))
        for atom in (*read, *results):
            self.expect(atom, f"{where}, after its results are written,")

    def results(self, var: Var) -> list[Var]:
        """The tensors of a variable, each a value of its own from now on."""
        results = [leaf for leaf in self.plan.results(var) if isinstance(leaf, Var)]
        self.values.update((leaf, Written(leaf)) for leaf in results)
        self.values[var] = self.meaning(var)
        return results

    # --- branches -------------------------------------------------------------------------------

    def branches(self, var: Var, value: If) -> None:
        """Runs both branches from here, and goes on with what is true after each."""
        self.expect(value.condition, f"the condition of {var.name}")
        ends = []
        for block, copies in zip(blocks(value), self.plan.branch_copies[var], strict=True):
            branch = _Machine(self.plan, self.module, self.name, self.params, self.jumps,
                              self.values, self.inputs, dict(self.written_outputs),
                              self.arena.copy())
            branch.block(block)
            if not branch.ended:
                branch.end(var, block.result, copies)
                ends.append(branch)
        self.results(var)
        self.ended = not ends
        if ends:
            self.written_outputs, self.arena = ends[0].written_outputs, ends[0].arena
        for other in ends[1:]:
            self.written_outputs = {index: held for index, held in self.written_outputs.items()
                                    if other.written_outputs.get(index) == held}
            self.arena = self.arena.meet(other.arena)

    def end(self, var: Var, result: Atom, copies: Copies) -> None:
        """Makes the copies, and looks whether the memory of the `If` holds the branch's result."""
        where = f"the end of a branch of {var.name}"
        targets = [leaf for leaf in self.plan.results(var) if isinstance(leaf, Var)]
        results = _flat(self.value(result))
        self.values.update(zip(targets, results, strict=True))
        for source, target in copies:
            self.expect(source, where)
            self.write(target, self.value(source))
        for target, wanted in zip(targets, results, strict=True):
            root = self.plan.root(target)
            if not isinstance(root, Var) or not self.holds(root, size_bytes(target), wanted):
                raise VerifyError(f"{where} leaves {target.name} without its value")
        for target in targets:
            self.write(target, Written(target))

    # --- tail calls -----------------------------------------------------------------------------

    def jump(self, var: Var, arguments: tuple[Atom, ...]) -> None:
        """Makes the copies, and looks whether the next turn finds its parameters."""
        where = f"the tail call {var.name}"
        for source, target in self.plan.moves[var]:
            self.expect(source, where)
            if target not in self.plan.slots:
                self.values[target] = self.value(source)
            self.write(target, self.value(source))
        given = [leaf for argument in arguments for leaf in _flat(self.value(argument))]
        leaves = [leaf for param in self.params for leaf in self.plan.leaves(param)]
        for param, wanted in zip(leaves, given, strict=True):
            assert isinstance(param, Var)
            if not self.holds(param, size_bytes(param), wanted):
                raise VerifyError(f"{where} does not leave the next {param.name} in its place")
        self.ended = True

    # --- memory ---------------------------------------------------------------------------------

    def finish(self, result: Atom) -> None:
        """Makes the copies, then looks at every output."""
        if self.ended:
            return
        for source, index in self.plan.copies:
            self.expect(source, f"the copy to output {index}")
            self.written_outputs[index] = self.value(source)
        for index, wanted in enumerate(_flat(self.value(result))):
            if self.written_outputs.get(index) != wanted:
                raise VerifyError(f"output {index} of {self.name} does not hold its value at the "
                                  f"end")

    def value(self, atom: Atom) -> Value:
        """What `atom` means."""
        return self.values[atom] if isinstance(atom, Var) else atom

    def write(self, var: Var, value: Value) -> None:
        """Puts the value of a variable where the plan says."""
        root = self.plan.root(var)
        if not isinstance(root, Var):
            raise VerifyError(f"{var.name} is written, but planned as a constant")
        if root in self.plan.outputs:
            self.written_outputs[self.plan.outputs[root]] = value
        elif root in self.plan.offsets:
            offset, size = self.plan.offsets[root], size_bytes(var)
            if offset % ALIGNMENT or offset < 0 or offset + size > self.plan.workspace_bytes:
                raise VerifyError(
                    f"{var.name} at {offset}, {size} bytes, is misaligned or outside the "
                    f"workspace of {self.plan.workspace_bytes} bytes"
                )
            self.arena.write(offset, offset + size, value)
        else:
            raise VerifyError(f"{var.name} has no memory, but a kernel writes it")

    def expect(self, atom: Atom, reader: str) -> None:
        """Raises `VerifyError` unless the place of a tensor holds its value."""
        root = self.plan.root(atom)
        if isinstance(root, Var) and not self.holds(root, size_bytes(atom), self.value(atom)):
            raise VerifyError(f"{reader} reads {atom!r}, but its memory holds something else")
        if not isinstance(root, Var) and self.value(atom) != root:
            raise VerifyError(f"{reader} reads {atom!r}, which is planned as another constant")

    def holds(self, root: Var, size: int, value: Value) -> bool:
        """Whether the memory of `root` holds `value`."""
        if root in self.inputs:
            return value == root
        if root in self.plan.outputs:
            return self.written_outputs.get(self.plan.outputs[root]) == value
        offset = self.plan.offsets.get(root)
        return offset is not None and self.arena.holds(offset, offset + size, value)


def _flat(value: Value) -> list[Value]:
    """The tensors of a value, in order."""
    return [leaf for part in value for leaf in _flat(part)] if isinstance(value, tuple) else [value]


@dataclass(slots=True)
class Arena:
    """The values in the arena, as disjoint ranges in order of their start."""

    ranges: list[tuple[int, int, int]] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)

    def copy(self) -> Arena:
        """An arena that holds the same."""
        return Arena(list(self.ranges), list(self.values))

    def meet(self, other: Arena) -> Arena:
        """What both arenas hold."""
        kept = [item for item in self.ranges if other.holds(*item[:2], self.values[item[2]])]
        return Arena(kept, self.values)

    def write(self, low: int, high: int, value: Value) -> None:
        """Writes a value; what overlaps it is destroyed."""
        if low == high:
            return
        first = bisect_left(self.ranges, (low, low, 0))
        if first and self.ranges[first - 1][1] > low:
            first -= 1
        last = first
        while last < len(self.ranges) and self.ranges[last][0] < high:
            last += 1
        del self.ranges[first:last]
        insort(self.ranges, (low, high, len(self.values)))
        self.values.append(value)

    def holds(self, low: int, high: int, value: Value) -> bool:
        """Whether exactly this range holds the value. An empty one holds any."""
        if low == high:
            return True
        at = bisect_left(self.ranges, (low, high, 0))
        return at < len(self.ranges) and (
            self.ranges[at][:2] == (low, high) and self.values[self.ranges[at][2]] == value
        )
