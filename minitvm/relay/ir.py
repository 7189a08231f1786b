"""Relay: a typed functional graph in A-normal form.

    Module   = functions: name -> Function              "main" is the entry
    Function = params: Var*, body: Block, result type, attrs    a value: closures, fused kernels
    Block    = bindings: Binding*, result: Atom         flat: passes are loops over it
    Binding  = var := value, origin
    Value    = Call(callee: Op | Atom, arguments: Atom*)
             | Tuple(fields: Atom*) | TupleGetItem(tuple: Atom, index)
             | If(condition: Atom, then_block, else_block)
             | Function
             | Atom                                     an alias: only in front of canonical form
    Atom     = Var | Constant | GlobalVar
    Type     = TensorType(shape: Dim*, dtype) | TupleType(fields) | FuncType(params, result)

A variable is bound once, before its uses, and carries its type; `Var` and `Constant` are equal by
identity, `GlobalVar` by name. An operator is an instance of a class of `relay.ops` whose fields are
its attributes, so two calls of the same operator with equal attributes have equal callees.

Functions with the attribute `primitive` are fused kernels: their body is a chain of operator
calls, they are module-level, and every one of them becomes a single loop nest function.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from minitvm import dtypes
from minitvm.errors import TypeInferenceError
from minitvm.origin import NOWHERE, Origin
from minitvm.relay.dim import Dim
from minitvm.text import printed

if TYPE_CHECKING:
    from minitvm.relay.op import Op


# --- types --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TensorType:
    """A dense array: `shape` of dims (integers, or polynomials over named sizes), and dtype."""

    shape: tuple[Dim, ...]
    dtype: str

    def __str__(self) -> str:
        comma = "," if len(self.shape) == 1 else ""
        dims = ", ".join(d if isinstance(d, str) else str(d) for d in self.shape)
        return f'Tensor(({dims}{comma}), "{self.dtype}")'

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def extents(self) -> tuple[int, ...]:
        """The shape as integers; raises `ValueError` naming the symbolic dims otherwise."""
        symbolic = [str(dim) for dim in self.shape if not isinstance(dim, int)]
        if symbolic:
            raise ValueError(f"{self} has symbolic dims: {', '.join(symbolic)}")
        return tuple(dim for dim in self.shape if isinstance(dim, int))

    def elements(self) -> int:
        """The number of elements; raises `ValueError` for a symbolic shape."""
        count = 1
        for extent in self.extents():
            count *= extent
        return count

    def size_bytes(self) -> int:
        """The size in memory, in bytes."""
        return self.elements() * dtypes.size_bytes(self.dtype)


@dataclass(frozen=True, slots=True)
class TupleType:
    """A tuple of values."""

    fields: tuple[Type, ...]

    def __str__(self) -> str:
        return f"Tuple({', '.join(map(str, self.fields))})"


@dataclass(frozen=True, slots=True)
class FuncType:
    """A function."""

    params: tuple[Type, ...]
    result: Type

    def __str__(self) -> str:
        comma = "," if len(self.params) == 1 else ""
        return f"Func(({', '.join(map(str, self.params))}{comma}), {self.result})"


Type = TensorType | TupleType | FuncType


def holds_function(found: Type) -> bool:
    """Whether a type is that of a function, or of a tuple with one inside."""
    if isinstance(found, TupleType):
        return any(map(holds_function, found.fields))
    return isinstance(found, FuncType)


# --- atoms --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Var:
    """A variable: a parameter, or the result of a binding. The name is for reading only."""

    name: str
    type: Type

    def __repr__(self) -> str:
        return self.name


@dataclass(slots=True, eq=False)
class Constant:
    """A tensor known at compile time, read-only; `digest()` is its content hash."""

    data: np.ndarray
    origin: Origin = NOWHERE
    _digest: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        self.data = np.asarray(self.data)
        if self.data.flags.writeable:
            self.data = self.data.view()
            self.data.flags.writeable = False

    @property
    def type(self) -> TensorType:
        """The type of the array."""
        return TensorType(self.data.shape, dtypes.from_numpy(self.data.dtype))

    def digest(self) -> str:
        """`sha256:...` over dtype, shape and bytes, computed once."""
        if not self._digest:
            digest = hashlib.sha256(f"{self.data.dtype.str} {self.data.shape} ".encode())
            digest.update(np.ascontiguousarray(self.data).reshape(-1).view(np.uint8).data)
            self._digest = "sha256:" + digest.hexdigest()
        return self._digest


@dataclass(frozen=True, slots=True)
class GlobalVar:
    """A function of the module, by name."""

    name: str
    type: Type | None = field(default=None, compare=False)


Atom = Var | Constant | GlobalVar


# --- values -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Call:
    """An operator, or a function held by an atom, applied to atoms."""

    callee: Op | Atom
    arguments: tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class Tuple:
    """A tuple of atoms."""

    fields: tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class TupleGetItem:
    """Field `index` of a tuple."""

    tuple: Atom
    index: int


@dataclass(frozen=True, slots=True)
class If:
    """One block or the other; the condition is a bool of rank 0. Both see outer variables."""

    condition: Atom
    then_block: Block
    else_block: Block


@dataclass(frozen=True, slots=True)
class Function:
    """A function value. Free variables make it a closure; module-level functions have none."""

    params: tuple[Var, ...]
    body: Block
    result_type: Type
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def type(self) -> FuncType:
        """The type of the function."""
        return FuncType(tuple(param.type for param in self.params), self.result_type)

    @property
    def is_primitive(self) -> bool:
        """Whether this is a fused kernel."""
        return bool(self.attrs.get("primitive"))

    def __str__(self) -> str:
        return printed(self)

    def with_body(self, body: Block) -> Function:
        """The same signature and attributes around another body."""
        return self if body is self.body else replace(self, body=body)


Value = Call | Tuple | TupleGetItem | If | Function | Var | Constant | GlobalVar


@dataclass(frozen=True, slots=True)
class Binding:
    """`var` is `value`; `origin` names the source nodes it computes."""

    var: Var
    value: Value
    origin: Origin = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Block:
    """Bindings in order, and the atom that is the block's value."""

    bindings: tuple[Binding, ...]
    result: Atom


@dataclass(frozen=True, slots=True)
class Module:
    """Functions by name. Passes give a new module, sharing what they don't change."""

    functions: Mapping[str, Function]

    def __getitem__(self, name: str) -> Function:
        """The function of that name."""
        return self.functions[name]

    def __str__(self) -> str:
        return printed(self)

    @property
    def main(self) -> Function:
        """The entry function."""
        return self.functions["main"]

    @staticmethod
    def from_expr(function: Function) -> Module:
        """The module whose entry is a function; raises `TypeInferenceError` if it has free
        variables."""
        free = free_variables(function)
        if free:
            names = ", ".join(var.name for var in free)
            raise TypeInferenceError(f"the function uses {names}, which no parameter binds")
        return Module({"main": function})

    def with_function(self, name: str, function: Function) -> Module:
        """The module with one function added or replaced; the same object where it is unchanged."""
        if self.functions.get(name) is function:
            return self
        return Module({**self.functions, name: function})


# --- walking ------------------------------------------------------------------------------------


def atoms(value: Value) -> tuple[Atom, ...]:
    """The atoms a value uses directly, in order (those inside nested blocks excluded)."""
    match value:
        case Call(callee, arguments):
            return (callee, *arguments) if isinstance(callee, Atom) else arguments
        case Tuple(fields):
            return fields
        case TupleGetItem(source, _):
            return (source,)
        case If(condition, _, _):
            return (condition,)
        case Function():
            return ()
        case Var() | Constant() | GlobalVar():
            return (value,)
    raise TypeError(f"not a relay value: {value!r}")


def blocks(value: Value) -> tuple[Block, ...]:
    """The blocks nested directly in a value."""
    match value:
        case If(_, then_block, else_block):
            return (then_block, else_block)
        case Function(_, body):
            return (body,)
        case _:
            return ()


def map_atoms(value: Value, mapping: Mapping[Var, Atom]) -> Value:
    """The value with variables replaced, in nested blocks too; the same object if none occurs."""

    def get(atom: Atom) -> Atom:
        return mapping.get(atom, atom) if isinstance(atom, Var) else atom

    def get_all(old: tuple[Atom, ...]) -> tuple[Atom, ...]:
        new = tuple(get(atom) for atom in old)
        return old if all(a is b for a, b in zip(new, old, strict=True)) else new

    match value:
        case Call(callee, arguments):
            new_callee = get(callee) if isinstance(callee, Var) else callee
            new = get_all(arguments)
            return value if new is arguments and new_callee is callee else Call(new_callee, new)
        case Tuple(fields):
            new = get_all(fields)
            return value if new is fields else Tuple(new)
        case TupleGetItem(source, index):
            atom = get(source)
            return value if atom is source else TupleGetItem(atom, index)
        case If(condition, then_block, else_block):
            parts = (get(condition), map_block(then_block, mapping), map_block(else_block, mapping))
            old = (condition, then_block, else_block)
            same = all(a is b for a, b in zip(parts, old, strict=True))
            return value if same else If(*parts)
        case Function(_, body):
            return value.with_body(map_block(body, mapping))
        case Var():
            return get(value)
        case _:
            return value


def map_block(block: Block, mapping: Mapping[Var, Atom]) -> Block:
    """`map_atoms` over every binding of a block, and its result."""
    bindings = tuple(
        binding if (value := map_atoms(binding.value, mapping)) is binding.value
        else Binding(binding.var, value, binding.origin)
        for binding in block.bindings
    )
    result = block.result
    if isinstance(result, Var):
        result = mapping.get(result, result)
    same = result is block.result and all(
        a is b for a, b in zip(bindings, block.bindings, strict=True)
    )
    return block if same else Block(bindings, result)


def walk_bindings(block: Block) -> Iterator[Binding]:
    """Every binding of a block and of the blocks nested in it, in order of evaluation."""
    stack: list[Iterator[Binding]] = [iter(block.bindings)]
    while stack:
        binding = next(stack[-1], None)
        if binding is None:
            stack.pop()
            continue
        yield binding
        for inner in reversed(blocks(binding.value)):
            stack.append(iter(inner.bindings))


def use_counts(block: Block) -> dict[Var, int]:
    """How often each variable is used in a block, nested blocks and results included."""
    counts: dict[Var, int] = {}

    def count(atoms_used: Iterable[Atom]) -> None:
        for atom in atoms_used:
            if isinstance(atom, Var):
                counts[atom] = counts.get(atom, 0) + 1

    count((block.result,))
    for binding in walk_bindings(block):
        count(atoms(binding.value))
        count(inner.result for inner in blocks(binding.value))
    return counts


def free_variables(function: Function) -> tuple[Var, ...]:
    """The variables a function uses and does not bind, in order of first use."""
    bound = set(function.params)
    used: dict[Var, None] = {}
    for binding in walk_bindings(function.body):
        bound.add(binding.var)
        if isinstance(binding.value, Function):
            bound.update(binding.value.params)
    for var in use_counts(function.body):
        if var not in bound:
            used[var] = None
    return tuple(used)


def tensor_type(atom: Atom) -> TensorType:
    """The type of an atom that must be a tensor; raises `TypeError` otherwise."""
    found = atom.type
    if not isinstance(found, TensorType):
        raise TypeError(f"{atom!r} is not a tensor but {found}")
    return found
