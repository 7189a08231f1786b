"""Relay -> relay whose functions are all at module level, and are only ever called.

The program is run on what is known of its functions. A variable that holds a function, or a tuple
with one inside, has no binding afterwards: what it stands for is known here instead, as

    _Closure    a nested function, and what its free variables stand for
    _Global     a function of the module
    _Parts      a tuple, field by field

- a call of a closure becomes a call of a new function of the module, whose parameters are the
  captured values, then the arguments;
- a call that is given functions becomes a call of a copy of the callee made for these functions,
  which takes what they capture in their place. Equal calls share a copy, so recursion ends;
- a call that gives a function is replaced by the callee's body.

This is specialisation; what a condition decides at run time stays unknown and is refused. See
"Definitional interpreters for higher-order programming languages" (Reynolds, 1972), and "Lambda
lifting" (Johnsson, 1985).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace

from minitvm.errors import LoweringError
from minitvm.origin import NOWHERE, Origin, merge
from minitvm.relay.build import BlockBuilder
from minitvm.relay.ir import (
    Atom,
    Binding,
    Block,
    Call,
    Constant,
    Function,
    FuncType,
    GlobalVar,
    If,
    Module,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Value,
    Var,
    atoms,
    blocks,
    free_variables,
    map_atoms,
    walk_bindings,
)
from minitvm.relay.op import Op
from minitvm.transform import make_pass

DEEPEST = 32
"""How deeply functions may be nested in what a function captures or is given."""

DEEPEST_INLINING = 64
"""How many calls that give functions may be nested in each other."""


@make_pass("LambdaLift")
def lambda_lift(module: Module) -> Module:
    """Moves closures to the module, and specialises functions that take or give functions.

    Before:

        def main(x: Tensor((4,), "float32")) -> Tensor((4,), "float32"):
            v0 = abs(x)  #: "a"
            def shift(y: Tensor((4,), "float32")) -> Tensor((4,), "float32"):  #: "f"
                v1 = add(y, v0)  #: "b"
                return v1
            v2 = shift(x)  #: "c"
            return v2

    After:

        def main(x: Tensor((4,), "float32")) -> Tensor((4,), "float32"):
            v0 = abs(x)  #: "a"
            v1 = shift(v0, x)  #: "c", "f"
            return v1

        def shift(v0: Tensor((4,), "float32"), y: Tensor((4,), "float32")) -> Tensor((4,), "float32"):
            v1 = add(y, v0)  #: "b"
            return v1
    """  # noqa: E501
    if "main" not in module.functions or all(map(is_first_order, module.functions.values())):
        return module
    return _Lifter(module).run()


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


def holds_function(found: Type) -> bool:
    """Whether a type is that of a function, or of a tuple with one inside."""
    if isinstance(found, TupleType):
        return any(map(holds_function, found.fields))
    return isinstance(found, FuncType)


# --- what is known ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Closure:
    function: Function
    name: str
    captured: tuple[tuple[Var, _Known], ...]
    origin: Origin


@dataclass(frozen=True, slots=True)
class _Global:
    name: str
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True)
class _Parts:
    fields: tuple[_Known, ...]


_Known = Var | Constant | _Closure | _Global | _Parts
"""What a variable stands for: data, in terms of the code being written, or functions."""


def _parts(known: _Known) -> tuple[_Known, ...]:
    match known:
        case _Closure(captured=captured):
            return tuple(part for _, part in captured)
        case _Parts(fields):
            return fields
        case _:
            return ()


def _data(known: _Known) -> list[Var | Constant]:
    """The data that a value consists of, in order."""
    if isinstance(known, Var | Constant):
        return [known]
    return [atom for part in _parts(known) for atom in _data(part)]


def _shape(known: _Known, depth: int = 0) -> Hashable:
    """A value but for its data: calls whose arguments are equal in this share a copy."""
    if depth > DEEPEST:
        raise LoweringError(
            f"functions are nested in each other more than {DEEPEST} deep, as where a recursive "
            f"function passes itself an ever greater function; pass data instead"
        )
    match known:
        case Var() | Constant():
            return str(known.type)
        case _Global(name):
            return ("global", name)
        case _Closure(function):
            return ("closure", id(function), *(_shape(p, depth + 1) for p in _parts(known)))
        case _Parts():
            return ("tuple", *(_shape(p, depth + 1) for p in _parts(known)))


def _with_data(known: _Known, data: Iterator[Var | Constant]) -> _Known:
    """The value with its data replaced, in order."""
    match known:
        case Var() | Constant():
            return next(data)
        case _Global():
            return known
        case _Closure(captured=captured):
            return replace(known, captured=tuple((v, _with_data(p, data)) for v, p in captured))
        case _Parts(fields):
            return _Parts(tuple(_with_data(part, data) for part in fields))


def _with_origin(known: _Known, origin: Origin, builder: BlockBuilder) -> _Known:
    match known:
        case Var():
            builder.add_origin(known, origin)
            return known
        case Constant():
            return replace(known, origin=merge(known.origin, origin))
        case _Parts(fields):
            return _Parts(tuple(_with_origin(part, origin, builder) for part in fields))
        case _:
            return replace(known, origin=merge(known.origin, origin))


def _joined(left: _Known, right: _Known) -> _Known:
    """The left one of two values that differ only in data, with the origins of both."""
    match left, right:
        case _Closure(), _Closure():
            pairs = zip(left.captured, right.captured, strict=True)
            captured = tuple((var, _joined(part, other)) for (var, part), (_, other) in pairs)
            return replace(left, captured=captured, origin=merge(left.origin, right.origin))
        case _Global(), _Global():
            return replace(left, origin=merge(left.origin, right.origin))
        case _Parts(), _Parts():
            pairs_of = zip(left.fields, right.fields, strict=True)
            return _Parts(tuple(_joined(part, other) for part, other in pairs_of))
        case _:
            return left


# --- the pass -----------------------------------------------------------------------------------

_Environment = dict[Var, _Known]


@dataclass(frozen=True, slots=True)
class _Request:
    """A function to be written: its body in terms of the environment, under a name."""

    name: str
    params: tuple[Var, ...]
    function: Function
    environment: _Environment


@dataclass(slots=True)
class _Lifter:
    module: Module
    written: dict[str, Function] = field(default_factory=dict)
    waiting: list[_Request] = field(default_factory=list)
    names: dict[Hashable, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    inlining: list[Function] = field(default_factory=list)

    def run(self) -> Module:
        """The module, from `main` on."""
        main = self.module.main
        self.taken = set(self.module.functions)
        for param in main.params:
            if holds_function(param.type):
                raise LoweringError(f"the input {param.name} of main is {param.type}; a model "
                                    f"takes tensors, not functions")
        if holds_function(main.result_type):
            raise LoweringError(f"the result of main is {main.result_type}; a model gives tensors, "
                                f"not functions")
        environment: _Environment = {param: param for param in main.params}
        self.waiting.append(_Request("main", main.params, main, environment))
        while self.waiting:
            self.write(self.waiting.pop())
        kept = {name: self.written[name] for name in self.module.functions if name in self.written}
        return Module({**kept, **self.written})

    def write(self, request: _Request) -> None:
        """Writes one function, and asks for those that it calls."""
        builder = BlockBuilder()
        environment = dict(request.environment)
        result = self.block(request.function.body, environment, builder)
        assert isinstance(result, Var | Constant)
        self.written[request.name] = Function(
            request.params, builder.finish(result), request.function.result_type,
            request.function.attrs)

    def block(self, block: Block, environment: _Environment, builder: BlockBuilder) -> _Known:
        """Adds the bindings of a block, and gives what its result stands for."""
        for binding in block.bindings:
            builder.origin = binding.origin
            environment[binding.var] = self.value(binding, environment, builder)
        return self.known(block.result, environment)

    def known(self, atom: Atom, environment: _Environment) -> _Known:
        if isinstance(atom, GlobalVar):
            if atom.name not in self.module.functions:
                raise LoweringError(f"the module has no function @{atom.name}")
            return _Global(atom.name)
        return environment[atom] if isinstance(atom, Var) else atom

    def value(self, binding: Binding, environment: _Environment, builder: BlockBuilder) -> _Known:
        """Adds what a binding needs, and gives what its variable stands for."""

        def get(atom: Atom) -> _Known:
            return self.known(atom, environment)

        match binding.value:
            case Function() as function:
                captured = tuple((var, get(var)) for var in free_variables(function))
                return _Closure(function, binding.var.name, captured, binding.origin)
            case Call(callee, arguments) if not isinstance(callee, Op):
                return self.call(binding, get(callee), tuple(map(get, arguments)), builder)
            case Tuple(items) if holds_function(binding.var.type):
                return _Parts(tuple(map(get, items)))
            case TupleGetItem(source, index) if isinstance(whole := get(source), _Parts):
                return _with_origin(whole.fields[index], binding.origin, builder)
            case If():
                return self.branches(binding, binding.value, environment, builder)
            case Var() | Constant() | GlobalVar() as atom:
                return _with_origin(get(atom), binding.origin, builder)
            case value:
                return self.emit(binding, _mapped(value, get), builder)

    def emit(self, binding: Binding, value: Value, builder: BlockBuilder) -> Var:
        return builder.emit(value, name=binding.var.name)

    # --- branches -------------------------------------------------------------------------------

    def branches(self, binding: Binding, value: If, environment: _Environment,
                 builder: BlockBuilder) -> _Known:
        condition = self.known(value.condition, environment)
        assert isinstance(condition, Var | Constant)
        builders = [BlockBuilder(parent=builder) for _ in range(2)]
        results = [self.block(block, environment, inner)
                   for block, inner in zip(blocks(value), builders, strict=True)]
        if not holds_function(binding.var.type):
            ends = [inner.finish(result) for inner, result in zip(builders, results, strict=True)
                    if isinstance(result, Var | Constant)]
            return self.emit(binding, If(condition, *ends), builder)
        if _shape(results[0]) != _shape(results[1]):
            raise LoweringError(
                f"{binding.var.name} ({binding.origin}) is one function or another, which a "
                f"condition decides at run time; call the functions in the branches instead"
            )
        return self.common(binding, condition, builders, results, builder)

    def common(self, binding: Binding, condition: Var | Constant, builders: list[BlockBuilder],
               results: list[_Known], builder: BlockBuilder) -> _Known:
        """One function in both branches: the `If` gives what it captures."""
        ends = []
        for inner, result in zip(builders, results, strict=True):
            data = tuple(_data(result))
            ends.append(inner.finish(inner.emit(Tuple(data), origin=binding.origin)))
        chosen = self.emit(binding, If(condition, *ends), builder)
        count = len(_data(results[0]))
        items = [builder.emit(TupleGetItem(chosen, index)) for index in range(count)]
        return _with_data(_joined(*results), iter(items))

    # --- calls ----------------------------------------------------------------------------------

    def call(self, binding: Binding, callee: _Known, arguments: tuple[_Known, ...],
             builder: BlockBuilder) -> _Known:
        match callee:
            case _Closure(function, name, captured, origin):
                outer = dict(captured)
            case _Global(name, origin):
                function, outer = self.module.functions[name], {}
            case _:
                raise LoweringError(f"{binding.var.name} ({binding.origin}) calls what is no "
                                    f"function")
        if holds_function(binding.var.type):
            return self.inlined(binding, function, outer, arguments, builder)
        target = self.target(callee, name, function, outer, arguments)
        data = tuple(atom for known in (callee, *arguments) for atom in _data(known))
        kinds = tuple(atom.type for atom in data)
        call = Call(GlobalVar(target, FuncType(kinds, function.result_type)), data)
        return builder.emit(call, origin=merge(binding.origin, origin), name=binding.var.name)

    def inlined(self, binding: Binding, function: Function, outer: _Environment,
                arguments: tuple[_Known, ...], builder: BlockBuilder) -> _Known:
        """The body of a function that gives functions, in place of a call."""
        if len(self.inlining) >= DEEPEST_INLINING:
            raise LoweringError(
                f"{binding.var.name} ({binding.origin}) is given by a function that calls itself "
                f"to give a function; which one that is can't be known before it runs"
            )
        self.inlining.append(function)
        environment = {**outer, **dict(zip(function.params, arguments, strict=True))}
        result = self.block(function.body, environment, builder)
        self.inlining.pop()
        return _with_origin(result, binding.origin, builder)

    def target(self, callee: _Known, name: str, function: Function, outer: _Environment,
               arguments: tuple[_Known, ...]) -> str:
        """The name of the function that does a call; asks for it if it is new."""
        first_order = isinstance(callee, _Global) and not any(map(_is_function, arguments))
        key = (_shape(callee), name if first_order else tuple(map(_shape, arguments)))
        if key in self.names:
            return self.names[key]
        target = self.names[key] = name if first_order and name != "main" else self.fresh(name)
        if function.is_primitive:
            self.written[target] = function
            return target
        variables: list[Var] = []

        def parameters(var: Var, known: _Known) -> _Known:
            count = len(_data(known))
            names = [var.name] if count == 1 else [f"{var.name}_{i}" for i in range(count)]
            new = [Var(n, a.type) for n, a in zip(names, _data(known), strict=True)]
            variables.extend(new)
            return _with_data(known, iter(new))

        known = (*outer.items(), *zip(function.params, arguments, strict=True))
        environment = {var: parameters(var, value) for var, value in known}
        self.waiting.append(_Request(target, tuple(variables), function, environment))
        return target

    def fresh(self, name: str) -> str:
        base, count = name, 0
        while name in self.taken:
            count += 1
            name = f"{base}_{count}"
        self.taken.add(name)
        return name


def _is_function(known: _Known) -> bool:
    return not isinstance(known, Var | Constant)


def _mapped(value: Value, get: Callable[[Atom], _Known]) -> Value:
    """The value on data in terms of the code being written."""
    mapping: dict[Var, Atom] = {}
    for atom in atoms(value):
        if isinstance(atom, Var):
            known = get(atom)
            assert isinstance(known, Var | Constant)
            mapping[atom] = known
    return map_atoms(value, mapping)
