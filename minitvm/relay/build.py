"""Values one by one -> a block: names, types and origins are filled in as bindings are added.

`BlockBuilder` is what the importer and passes write blocks with; `rebuild` is the loop that most
passes are made of: a rule for one binding, applied along a block and the blocks nested in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from minitvm.errors import TypeInferenceError
from minitvm.origin import NOWHERE, Origin, merge
from minitvm.relay.infer import value_type
from minitvm.relay.ir import (
    Atom,
    Binding,
    Block,
    Call,
    Constant,
    Function,
    GlobalVar,
    If,
    Module,
    Type,
    Value,
    Var,
    atoms,
    map_atoms,
)
from minitvm.relay.op import Op


class BlockBuilder:
    """A block being written.

        builder = BlockBuilder()
        y = builder.emit(Relu(), x, origin=origin("Relu_0"))
        block = builder.finish(y)

    `origin` is the origin of bindings for which none is given. `parent` is the builder of the
    enclosing block, for nested ones.
    """

    def __init__(self, origin: Origin = NOWHERE, parent: BlockBuilder | None = None) -> None:
        self.origin = origin
        self.parent = parent
        self.bindings: list[Binding] = []
        self._positions: dict[Var, int] = {}
        self._added_origins: dict[int, list[Origin]] = {}

    def emit(
        self, value: Value | Op, *arguments: Atom, origin: Origin | None = None, name: str = ""
    ) -> Var:
        """Binds a value, or the call of an operator or function on `arguments`; gives its variable.

        Raises `TypeInferenceError`, which names the origin, if it is ill-typed.
        """
        if isinstance(value, Op) or arguments:
            if not isinstance(value, Op | Var | Constant | GlobalVar):
                raise TypeError(f"only operators and atoms are called, not {value!r}")
            value = Call(value, arguments)
        place = self.origin if origin is None else origin
        var = Var(name or f"v{len(self.bindings)}", _type_at(value, place))
        self.append(Binding(var, value, place))
        return var

    def emit_as(self, var: Var, value: Value) -> Var:
        """Binds a value to a variable that it replaces the value of; to a new variable of that name
        where the type is another."""
        found = _type_at(value, self.origin)
        var = var if found == var.type else Var(var.name, found)
        self.append(Binding(var, value, self.origin))
        return var

    def append(self, binding: Binding) -> None:
        """Adds a binding as it is, its type trusted."""
        self._positions[binding.var] = len(self.bindings)
        self.bindings.append(binding)

    def binds(self, atom: Atom) -> bool:
        """Whether an atom is a variable that this block itself binds."""
        return isinstance(atom, Var) and atom in self._positions

    def value_of(self, atom: Atom) -> Value | None:
        """The value bound to a variable in this block or an enclosing one; None for parameters
        and other atoms."""
        binding = self.binding_of(atom)
        return None if binding is None else binding.value

    def binding_of(self, atom: Atom) -> Binding | None:
        """The binding of a variable in this block or an enclosing one."""
        builder: BlockBuilder | None = self
        while isinstance(atom, Var) and builder is not None:
            position = builder._positions.get(atom)
            if position is not None:
                builder.settle_origins(position)
                return builder.bindings[position]
            builder = builder.parent
        return None

    def add_origin(self, atom: Atom, origin: Origin) -> None:
        """Notes that the binding of a variable also computes what `origin` names: the value of
        another binding, which it replaces. Nothing to do for parameters and constants."""
        builder: BlockBuilder | None = self
        while isinstance(atom, Var) and builder is not None:
            position = builder._positions.get(atom)
            if position is not None:
                builder._added_origins.setdefault(position, []).append(origin)
                return
            builder = builder.parent

    def settle_origins(self, position: int) -> None:
        """Gives the binding at a position the origins noted for it. Later than they are noted,
        because to merge thousands of them one by one would take quadratic time."""
        added = self._added_origins.pop(position, None)
        if added:
            old = self.bindings[position]
            merged = merge(old.origin, *added)
            if merged != old.origin:
                self.bindings[position] = replace(old, origin=merged)

    @contextmanager
    def at(self, origin: Origin) -> Iterator[None]:
        """Within it, `origin` is the default origin."""
        before, self.origin = self.origin, origin
        try:
            yield
        finally:
            self.origin = before

    def finish(self, result: Atom) -> Block:
        """The block, with `result` as its value."""
        for position in tuple(self._added_origins):
            self.settle_origins(position)
        return Block(tuple(self.bindings), result)


def _type_at(value: Value, place: Origin) -> Type:
    try:
        return value_type(value)
    except TypeInferenceError as error:
        if not place:
            raise
        raise TypeInferenceError(f"{place}: {error}") from error


Rule = Callable[[BlockBuilder, Binding], Value | None]
"""What `rebuild` does with a binding, whose value is already in terms of the new block:

- None: keep it;
- an atom: use that instead, adding no binding (its binding, if it has one, takes the origin over);
- another value: bind that instead, with the same origin.

A rule may emit bindings first; by default they have the origin of the binding at hand.
"""


def rebuild(block: Block, rule: Rule, parent: BlockBuilder | None = None) -> Block:
    """The block with `rule` applied to every binding in order, nested blocks before the value that
    holds them. Gives the same block where nothing changes. Types are inferred anew for what uses
    a variable that was replaced by one of another type; what uses a value of the same type stays as
    it is."""
    return _rebuild(block, rule, {}, parent)


def rebuild_module(module: Module, rule: Rule) -> Module:
    """`rebuild` for the bodies of all functions."""
    for name, function in module.functions.items():
        module = module.with_function(name, rebuild_function(function, rule))
    return module


def rebuild_function(function: Function, rule: Rule) -> Function:
    """`rebuild` for the body of a function; its result type follows."""
    body = rebuild(function.body, rule)
    return with_body(function, body)


def with_body(function: Function, body: Block) -> Function:
    """The function around another body, whose type may differ."""
    if body is function.body:
        return function
    return replace(function, body=body, result_type=value_type(body.result))


def _rebuild(
    block: Block, rule: Rule, mapping: dict[Var, Atom], parent: BlockBuilder | None
) -> Block:
    builder = BlockBuilder(parent=parent)
    for binding in block.bindings:
        value = _with_new_atoms(binding.value, rule, mapping, builder)
        current = binding if value is binding.value else _retyped(binding, value, mapping)
        builder.origin = current.origin
        replacement = rule(builder, current)
        if isinstance(replacement, Var | Constant | GlobalVar):
            builder.add_origin(replacement, current.origin)
            mapping[binding.var] = replacement
        elif replacement is None or replacement is current.value:
            builder.append(current)
            if current.var is not binding.var:
                mapping[binding.var] = current.var
        else:
            var = builder.emit_as(current.var, replacement)
            if var is not binding.var:
                mapping[binding.var] = var
    new = builder.finish(_lookup(block.result, mapping))
    same = new.result is block.result and len(new.bindings) == len(block.bindings)
    if same and all(a is b for a, b in zip(new.bindings, block.bindings, strict=True)):
        return block
    return new


def _lookup(atom: Atom, mapping: dict[Var, Atom]) -> Atom:
    return mapping.get(atom, atom) if isinstance(atom, Var) else atom


def _with_new_atoms(
    value: Value, rule: Rule, mapping: dict[Var, Atom], builder: BlockBuilder
) -> Value:
    match value:
        case If(condition, then_block, else_block):
            parts = (
                _lookup(condition, mapping),
                _rebuild(then_block, rule, mapping, builder),
                _rebuild(else_block, rule, mapping, builder),
            )
            old = (condition, then_block, else_block)
            return value if all(a is b for a, b in zip(parts, old, strict=True)) else If(*parts)
        case Function(_, body):
            return with_body(value, _rebuild(body, rule, mapping, builder))
        case _:
            return map_atoms(value, mapping) if mapping else value


def _retyped(binding: Binding, value: Value, mapping: dict[Var, Atom]) -> Binding:
    """The binding with its new value, and a new variable only where the type may have changed."""
    var = binding.var
    if isinstance(value, If | Function) or any(
        mapping[old].type != old.type
        for old in atoms(binding.value)
        if isinstance(old, Var) and old in mapping
    ):
        found = value_type(value)
        if found != var.type:
            var = Var(var.name, found)
    return Binding(var, value, binding.origin)


def with_fresh_variables(function: Function) -> Function:
    """A copy that shares no variable with the function, other than its free ones."""
    return _copied(function, {})


def _copied(function: Function, mapping: dict[Var, Atom]) -> Function:
    params = tuple(Var(param.name, param.type) for param in function.params)
    mapping.update(zip(function.params, params, strict=True))
    return replace(function, params=params, body=_copied_block(function.body, mapping))


def _copied_block(block: Block, mapping: dict[Var, Atom]) -> Block:
    bindings: list[Binding] = []
    for binding in block.bindings:
        match binding.value:
            case If(condition, then_block, else_block):
                branches = [_copied_block(inner, mapping) for inner in (then_block, else_block)]
                value: Value = If(_lookup(condition, mapping), *branches)
            case Function():
                value = _copied(binding.value, mapping)
            case _:
                value = map_atoms(binding.value, mapping)
        var = Var(binding.var.name, binding.var.type)
        mapping[binding.var] = var
        bindings.append(Binding(var, value, binding.origin))
    return Block(tuple(bindings), _lookup(block.result, mapping))
