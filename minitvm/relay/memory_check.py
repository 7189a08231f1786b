"""A module and a memory plan -> nothing, or the reason why the plan would corrupt a tensor.

The checker knows nothing of lifetimes. It runs `main` symbolically: memory holds values, a call
writes new ones and thereby destroys what overlapped them, and each read must find the value that
the program means there. So a plan that passes is right whatever the planner did.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

from minitvm.errors import VerifyError
from minitvm.relay.ir import (
    Atom,
    Binding,
    Call,
    Constant,
    GlobalVar,
    Module,
    Tuple,
    TupleGetItem,
    TupleType,
    Var,
)
from minitvm.relay.memory_plan import ALIGNMENT, MemoryPlan, is_view, size_bytes


@dataclass(frozen=True, slots=True)
class Written:
    """The tensor that a call writes as its result number `position`."""

    var: Var
    position: int


Value = Var | Constant | GlobalVar | Written | tuple["Value", ...]
"""What a variable means: a parameter, a constant, the result of a call, or a tuple."""


def check_plan(module: Module, plan: MemoryPlan) -> None:
    """Raises `VerifyError` unless every kernel and the caller read what they should."""
    machine = _Machine(plan)
    main = module.main
    for param in main.params:
        machine.values[param] = param
        machine.inputs.add(param)
    for binding in main.body.bindings:
        machine.step(binding, module)
    machine.finish(main.body.result)


@dataclass(slots=True)
class _Machine:
    """The state of a run: the value of each variable, and the values in memory."""

    plan: MemoryPlan
    values: dict[Var, Value] = field(default_factory=dict)
    inputs: set[Var] = field(default_factory=set)
    written_outputs: dict[int, Value] = field(default_factory=dict)
    arena: Arena = field(default_factory=lambda: Arena())

    def step(self, binding: Binding, module: Module) -> None:
        """Runs one binding."""
        match binding.value:
            case Call() as call if is_view(call, module):
                self.values[binding.var] = self.value(call.arguments[0])
                self.expect(binding.var, f"the view {binding.var.name}")
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
            case _:
                raise VerifyError(f"{binding.var.name} in main has no place in memory")

    def call(self, var: Var, arguments: tuple[Atom, ...]) -> None:
        """Reads the arguments, writes the results, and looks whether both are still there."""
        where = f"the call that computes {var.name}"
        for argument in arguments:
            self.expect(argument, where)
        results = self.plan.results(var)
        for position, result in enumerate(results):
            assert isinstance(result, Var)
            self.values[result] = Written(var, position)
            self.write(result, self.values[result])
        if isinstance(var.type, TupleType):
            self.values[var] = tuple(self.values[r] for r in results if isinstance(r, Var))
        for atom in (*arguments, *results):
            self.expect(atom, f"{where}, after its results are written,")

    def finish(self, result: Atom) -> None:
        """Makes the copies, then looks at every output."""
        for source, index in self.plan.copies:
            self.expect(source, f"the copy to output {index}")
            self.written_outputs[index] = self.value(source)
        for index, wanted in enumerate(_flat(self.value(result))):
            if self.written_outputs.get(index) != wanted:
                raise VerifyError(f"output {index} of main does not hold its value at the end")

    def value(self, atom: Atom) -> Value:
        """What `atom` means."""
        return self.values[atom] if isinstance(atom, Var) else atom

    def write(self, var: Var, value: Value) -> None:
        """Puts the value of a variable where the plan says."""
        if var in self.plan.outputs:
            self.written_outputs[self.plan.outputs[var]] = value
        elif var in self.plan.offsets:
            offset, size = self.plan.offsets[var], size_bytes(var)
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
