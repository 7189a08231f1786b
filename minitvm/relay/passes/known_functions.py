"""What is known of the functions in a program: which they may be, and what they capture.

LambdaLift runs a program on this. A variable stands for

    Var, Constant   data, in terms of the code being written
    Named           a function of the module
    Closure         a nested function, and what its free variables stand for
    Choice          one of several functions: `tag` says at run time which one, and `slots` hold
                    what the one it is captures
    Parts           a tuple with a function inside, field by field
    Nothing         a function given by a recursion, as long as none is known that it gives

Each function of the source has a number, which is its tag; a choice lists its options by number.
All options lie in the same slots: each takes the first of the type of each thing it captures.

What a value consists of at run time are its `data`, a list of atoms. `joined` gives the least value
that two others fit into, `with_data` the same value made of other data. This is defunctionalisation
(Reynolds, 1972), with the functions that may meet at one place found by following them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from minitvm.errors import LoweringError
from minitvm.origin import NOWHERE, Origin, merge
from minitvm.relay.build import BlockBuilder
from minitvm.relay.ir import (
    Call,
    Constant,
    Function,
    FuncType,
    GlobalVar,
    TensorType,
    TupleType,
    Type,
    Var,
    atoms,
    blocks,
    holds_function,
    walk_bindings,
)

TAG_TYPE = TensorType((), "int32")

DEEPEST = 32
"""How deeply functions may be nested in what a function captures or is given."""

MOST = 1000
"""How many functions and tensors one function may hold, with all that its captures hold."""

Data = Var | Constant


def is_first_order(function: Function) -> bool:
    """Whether functions only occur as the callees of calls."""
    if function.is_primitive:
        return True
    if holds_function(function.type.result) or any(holds_function(p.type) for p in function.params):
        return False
    for binding in walk_bindings(function.body):
        value = binding.value
        data = value.arguments if isinstance(value, Call) else atoms(value)
        results = tuple(inner.result for inner in blocks(value))
        if isinstance(value, Function) or holds_function(binding.var.type):
            return False
        if any(isinstance(atom, GlobalVar) for atom in (*data, *results)):
            return False
        if isinstance(value, Call) and value.callee == GlobalVar("main"):
            return False
    return not isinstance(function.body.result, GlobalVar)


# --- values -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Named:
    """A function of the module."""

    name: str
    number: int
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True)
class Closure:
    """A nested function; `captured` has its free variables in order."""

    function: Function
    name: str
    number: int
    captured: tuple[tuple[Var, Known], ...]
    origin: Origin


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several functions. The data of `options` are only examples of their types."""

    tag: Data
    slots: tuple[Data, ...]
    options: tuple[Option, ...]

    def resolved(self) -> list[Option]:
        """The options, each made of the data in the slots."""
        return [_resolved(option, self.slots) for option in self.options]


@dataclass(frozen=True, slots=True)
class Parts:
    """The fields of a tuple."""

    fields: tuple[Known, ...]


@dataclass(frozen=True, slots=True)
class Nothing:
    """No function so far."""


Option = Named | Closure
Known = Data | Option | Choice | Parts | Nothing
"""What a variable stands for."""


def children(known: Known) -> tuple[Known, ...]:
    """The values directly inside of a value."""
    match known:
        case Closure(captured=captured):
            return tuple(part for _, part in captured)
        case Choice(tag, slots):
            return (tag, *slots)
        case Parts(fields):
            return fields
        case _:
            return ()


def data(known: Known) -> list[Data]:
    """The data that a value consists of, in order."""
    if isinstance(known, Var | Constant):
        return [known]
    return [atom for part in children(known) for atom in data(part)]


def data_type(known: Known) -> TupleType:
    """The type of the data of a value, as a tuple."""
    return TupleType(tuple(atom.type for atom in data(known)))


def shape(known: Known) -> Hashable:
    """A value but for its data: calls whose arguments are equal in this share a copy."""
    _check_size(known)
    return _shape(known)


def _shape(known: Known) -> Hashable:
    match known:
        case Var() | Constant():
            return str(known.type)
        case Named(number=number):
            return ("named", number)
        case Closure(number=number):
            return ("closure", number, *map(_shape, children(known)))
        case Choice(_, _, options):
            return ("choice", *map(_shape, options))
        case Parts(fields):
            return ("tuple", *map(_shape, fields))
        case Nothing():
            return ("nothing",)


def _check_size(known: Known) -> None:
    """Refuses what grows without end, before it takes long to find."""
    stack, count = [(known, 0)], 0
    while stack:
        item, depth = stack.pop()
        count += 1
        if depth > DEEPEST or count > MOST:
            reason = (f"nested in each other more than {DEEPEST} deep" if depth > DEEPEST
                      else f"holding more than {MOST} functions and tensors")
            raise LoweringError(
                f"functions are {reason}, as where a recursive function passes or gives itself an "
                f"ever greater function; pass data instead"
            )
        inner = item.options if isinstance(item, Choice) else children(item)
        stack += [(part, depth + 1) for part in inner]


def holds_nothing(known: Known) -> bool:
    """Whether there is no function known for a part of the value."""
    if isinstance(known, Choice):
        return any(map(holds_nothing, known.options))
    return isinstance(known, Nothing) or any(map(holds_nothing, children(known)))


def with_data(known: Known, atoms: Iterator[Data]) -> Known:
    """The value with its data replaced, in order."""
    match known:
        case Var() | Constant():
            return next(atoms)
        case Closure():
            return _captured_from(known, atoms)
        case Choice(_, slots, options):
            return Choice(next(atoms), tuple(next(atoms) for _ in slots), options)
        case Parts(fields):
            return Parts(tuple(with_data(part, atoms) for part in fields))
        case Named() | Nothing():
            return known


def _captured_from(closure: Closure, atoms: Iterator[Data]) -> Closure:
    captured = tuple((var, with_data(part, atoms)) for var, part in closure.captured)
    return replace(closure, captured=captured)


def opened(values: Sequence[tuple[Var, Known]]) -> tuple[tuple[Var, ...], dict[Var, Known]]:
    """Parameters for the data of the values of variables, and what the variables stand for then."""
    parameters: list[Var] = []
    environment: dict[Var, Known] = {}
    for var, known in values:
        kinds = data_type(known).fields
        names = [var.name] if len(kinds) == 1 else [f"{var.name}_{i}" for i in range(len(kinds))]
        new = [Var(name, kind) for name, kind in zip(names, kinds, strict=True)]
        environment[var] = with_data(known, iter(new))
        parameters += new
    return tuple(parameters), environment


def with_origin(known: Known, origin: Origin, builder: BlockBuilder) -> Known:
    """The value with an origin added: for functions, what calls of them will have."""
    match known:
        case Var():
            builder.add_origin(known, origin)
            return known
        case Choice(tag, slots, options):
            new = tuple(replace(o, origin=merge(o.origin, origin)) for o in options)
            return Choice(_as_data(with_origin(tag, origin, builder)), slots, new)
        case Parts(fields):
            return Parts(tuple(with_origin(part, origin, builder) for part in fields))
        case Constant() | Named() | Closure():
            return replace(known, origin=merge(known.origin, origin))
        case Nothing():
            return known


def _as_data(known: Known) -> Data:
    assert isinstance(known, Var | Constant)
    return known


def placeholder(kind: Type) -> Known:
    """A value of a type of which nothing is known; its data are bound nowhere."""
    if isinstance(kind, FuncType):
        return Nothing()
    if isinstance(kind, TupleType) and holds_function(kind):
        return Parts(tuple(map(placeholder, kind.fields)))
    return Var("unknown", kind)


# --- joining ------------------------------------------------------------------------------------


def joined(left: Known, right: Known) -> Known:
    """The least value of their type that both fit into, with the origins of both; its data are only
    examples of their types."""
    match left, right:
        case (Nothing(), other) | (other, Nothing()):
            return other
        case Parts(), Parts():
            pairs = zip(left.fields, right.fields, strict=True)
            return Parts(tuple(joined(one, other) for one, other in pairs))
        case Named() | Closure() | Choice(), Named() | Closure() | Choice():
            return _union(left, right)
        case _:
            return left


def _union(left: Option | Choice, right: Option | Choice) -> Option | Choice:
    found: dict[int, Option] = {}
    for option in (*_options(left), *_options(right)):
        known = found.get(option.number)
        found[option.number] = option if known is None else _merged(known, option)
    if len(found) == 1:
        return next(iter(found.values()))
    options = tuple(found[number] for number in sorted(found))
    slots: list[Data] = []
    for option in options:
        slots += _missing_slots(option, slots)
    return Choice(Var("tag", TAG_TYPE), tuple(slots), options)


def _options(known: Option | Choice) -> tuple[Option, ...]:
    return known.options if isinstance(known, Choice) else (known,)


def _merged(left: Option, right: Option) -> Option:
    """The same function twice, with what it captures joined."""
    origin = merge(left.origin, right.origin)
    if isinstance(left, Closure) and isinstance(right, Closure):
        pairs = zip(left.captured, right.captured, strict=True)
        captured = tuple((var, joined(one, other)) for (var, one), (_, other) in pairs)
        return replace(left, captured=captured, origin=origin)
    return replace(left, origin=origin)


# --- slots --------------------------------------------------------------------------------------


def positions(kinds: Iterable[Type], slots: Iterable[Data]) -> list[int]:
    """The slots that data of these types lie in: of each type the first ones; -1 for those that
    there is no slot for."""
    free: dict[Type, list[int]] = {}
    for position, slot in enumerate(slots):
        free.setdefault(slot.type, []).append(position)
    for places in free.values():
        places.reverse()
    return [free[kind].pop() if free.get(kind) else -1 for kind in kinds]


def _missing_slots(option: Option, slots: list[Data]) -> list[Data]:
    atoms = data(option)
    places = positions((atom.type for atom in atoms), slots)
    return [Var("slot", atom.type) for atom, place in zip(atoms, places, strict=True) if place < 0]


def _resolved(option: Option, slots: tuple[Data, ...]) -> Option:
    if isinstance(option, Named):
        return option
    places = positions((atom.type for atom in data(option)), slots)
    return _captured_from(option, iter([slots[place] for place in places]))
