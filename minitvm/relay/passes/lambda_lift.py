"""Relay -> relay whose functions are all at module level, and are only ever called.

The program is run on what is known of its functions (`known_functions`): a variable that holds a
function, or a tuple with one inside, has no binding afterwards.

- A call of a closure becomes a call of a new function of the module, whose parameters are the
  captured values, then the arguments.
- A call that is given functions becomes a call of a copy of the callee made for these functions,
  which takes what they capture in their place. Equal calls share a copy, so recursion ends.
- A call that gives a function is replaced by the callee's body; where the callee calls itself, by
  a call of a copy that gives the data of the function. Which functions that may be is found by
  running the body until nothing new comes up.
- Where a condition decides at run time which function it is, the `if` gives a tag and what the
  functions capture (`function_branches`), and a call is a branch over the tags.

What is refused are functions that hold each other without end: a recursive function that passes or
gives itself a function which captures the one that it was given. They need memory that grows. See
"Definitional interpreters for higher-order programming languages" (Reynolds, 1972), and "Lambda
lifting" (Johnsson, 1985).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace

from minitvm.errors import LoweringError
from minitvm.origin import merge
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
    Type,
    Value,
    Var,
    atoms,
    free_variables,
    holds_function,
    map_atoms,
)
from minitvm.relay.op import Op
from minitvm.relay.passes.function_branches import dispatch, either, fitted, packed, unpacked
from minitvm.relay.passes.inline import recursive_functions
from minitvm.relay.passes.known_functions import (
    Choice,
    Closure,
    Known,
    Named,
    Nothing,
    Option,
    Parts,
    data,
    data_type,
    holds_nothing,
    is_first_order,
    joined,
    opened,
    placeholder,
    shape,
    with_data,
    with_origin,
)
from minitvm.transform import make_pass

DEEPEST_INLINING = 64
"""How many calls that give functions may be nested in each other."""


@make_pass("LambdaLift")
def lambda_lift(module: Module) -> Module:
    """Moves closures to the module, and specialises functions that take or give functions. A
    function that a condition chooses becomes a tag and what it captures.

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

    Before:

        def main(x: Tensor((4,), "float32"), c: Tensor((), "bool")) -> Tensor((4,), "float32"):
            v0 = abs(x)  #: "a"
            if c:  #: "if"
                def shift(y: Tensor((4,), "float32")) -> Tensor((4,), "float32"):  #: "f"
                    v1 = add(y, v0)  #: "b"
                    return v1
                f = shift
            else:
                f = flip
            v2 = f(x)  #: "c"
            return v2

        def flip(y: Tensor((4,), "float32")) -> Tensor((4,), "float32"):
            v0 = negative(y)  #: "d"
            return v0

    After:

        def main(x: Tensor((4,), "float32"), c: Tensor((), "bool")) -> Tensor((4,), "float32"):
            v0 = abs(x)  #: "a"
            if c:  #: "if"
                f = const(0, (), "int32")
            else:
                f = const(1, (), "int32")
            v1 = less(f, const(1, (), "int32"))  #: "c"
            if v1:  #: "c"
                v3 = shift(v0, x)  #: "c", "f"
                v2 = v3
            else:
                v4 = flip(x)  #: "c"
                v2 = v4
            return v2

        def flip(y: Tensor((4,), "float32")) -> Tensor((4,), "float32"):
            v0 = negative(y)  #: "d"
            return v0

        def shift(v0: Tensor((4,), "float32"), y: Tensor((4,), "float32")) -> Tensor((4,), "float32"):
            v1 = add(y, v0)  #: "b"
            return v1
    """  # noqa: E501
    if "main" not in module.functions or all(map(is_first_order, module.functions.values())):
        return module
    return _Lifter(module).run()


# --- the pass -----------------------------------------------------------------------------------

_Environment = dict[Var, Known]


@dataclass(frozen=True, slots=True)
class _Request:
    """A function to be written: its body in terms of the environment, under a name. If its result
    holds functions, it gives the data of `result`, as a tuple."""

    name: str
    params: tuple[Var, ...]
    function: Function
    environment: _Environment
    result: Known | None = None


@dataclass(slots=True)
class _Asked:
    """The functions asked for: their names by what is known of a call; those that are still to be
    written; the names taken."""

    names: dict[Hashable, str] = field(default_factory=dict)
    waiting: list[_Request] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)

    def copy(self) -> _Asked:
        return _Asked(dict(self.names), list(self.waiting), set(self.taken))

    def fresh(self, name: str) -> str:
        base, count = name, 0
        while name in self.taken:
            count += 1
            name = f"{base}_{count}"
        self.taken.add(name)
        return name


@dataclass(frozen=True, slots=True)
class _Open:
    """A call of a function that calls itself, whose result is being searched for: what it is known
    to give so far."""

    function: Function
    environment: _Environment
    result: Known


class _Lifter:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.written: dict[str, Function] = {}
        self.asked = _Asked(taken=set(module.functions))
        self.numbers: dict[Hashable, int] = {}
        self.recursive = recursive_functions(module)
        self.inlined_calls = 0
        self.results: dict[Hashable, Known] = {}
        self.search: dict[Hashable, _Open] | None = None

    def run(self) -> Module:
        """The module, from `main` on."""
        main = self.module.main
        for param in main.params:
            if holds_function(param.type):
                raise LoweringError(f"the input {param.name} of main is {param.type}; a model "
                                    f"takes tensors, not functions")
        if holds_function(main.result_type):
            raise LoweringError(f"the result of main is {main.result_type}; a model gives tensors, "
                                f"not functions")
        environment: _Environment = {param: param for param in main.params}
        self.asked.waiting.append(_Request("main", main.params, main, environment))
        while self.asked.waiting:
            self.write(self.asked.waiting.pop())
        kept = {name: self.written[name] for name in self.module.functions if name in self.written}
        return Module({**kept, **self.written})

    def write(self, request: _Request) -> None:
        """Writes one function, and asks for those that it calls."""
        builder = BlockBuilder()
        function = request.function
        found = self.block(function.body, dict(request.environment), builder)
        if request.result is None:
            assert isinstance(found, Var | Constant)
            result, kind = found, function.result_type
        else:
            last = Binding(Var("result", function.result_type), Tuple(()), builder.origin)
            row = fitted(found, request.result, last, builder)
            result = packed(row, data_type(request.result).fields, builder.origin, builder)
            kind = result.type
        self.written[request.name] = Function(
            request.params, builder.finish(result), kind, function.attrs)

    def block(self, block: Block, environment: _Environment, builder: BlockBuilder) -> Known:
        """Adds the bindings of a block, and gives what its result stands for."""
        for binding in block.bindings:
            builder.origin = binding.origin
            environment[binding.var] = self.value(binding, environment, builder)
        return self.known(block.result, environment)

    def known(self, atom: Atom, environment: _Environment) -> Known:
        if isinstance(atom, GlobalVar):
            if atom.name not in self.module.functions:
                raise LoweringError(f"the module has no function @{atom.name}")
            return Named(atom.name, self.number(atom.name))
        return environment[atom] if isinstance(atom, Var) else atom

    def number(self, function: Hashable) -> int:
        """The number of a function: by its name, or by the identity of a nested one."""
        return self.numbers.setdefault(function, len(self.numbers))

    def value(self, binding: Binding, environment: _Environment, builder: BlockBuilder) -> Known:
        """Adds what a binding needs, and gives what its variable stands for."""

        def get(atom: Atom) -> Known:
            return self.known(atom, environment)

        match binding.value:
            case Function() as function:
                captured = tuple((var, get(var)) for var in free_variables(function))
                number = self.number(id(function))
                return Closure(function, binding.var.name, number, captured, binding.origin)
            case Call(callee, arguments) if not isinstance(callee, Op):
                return self.call(binding, get(callee), tuple(map(get, arguments)), builder)
            case Tuple(items) if holds_function(binding.var.type):
                return Parts(tuple(map(get, items)))
            case TupleGetItem(source, index) if isinstance(whole := get(source), Parts):
                return with_origin(whole.fields[index], binding.origin, builder)
            case If():
                return self.branches(binding, binding.value, environment, builder)
            case Var() | Constant() | GlobalVar() as atom:
                return with_origin(get(atom), binding.origin, builder)
            case value:
                return builder.emit(_mapped(value, get), name=binding.var.name)

    def branches(self, binding: Binding, value: If, environment: _Environment,
                 builder: BlockBuilder) -> Known:
        condition = self.known(value.condition, environment)
        assert isinstance(condition, Var | Constant)
        return either(binding, condition,
                      lambda inner: self.block(value.then_block, environment, inner),
                      lambda inner: self.block(value.else_block, environment, inner), builder)

    # --- calls ----------------------------------------------------------------------------------

    def call(self, binding: Binding, callee: Known, arguments: tuple[Known, ...],
             builder: BlockBuilder) -> Known:
        match callee:
            case Choice():
                return dispatch(callee, binding, builder, lambda option, inner: self.call(
                    binding, option, arguments, inner))
            case Nothing():
                return placeholder(binding.var.type)
            case Closure(function, captured=captured):
                outer = dict(captured)
            case Named(name):
                function, outer = self.module.functions[name], {}
            case _:
                raise LoweringError(f"{binding.var.name} ({binding.origin}) calls what is no "
                                    f"function")
        if not holds_function(binding.var.type):
            target = self.target(callee, function, outer, arguments)
            return self.emit_call(target, function.result_type, binding, callee, arguments, builder)
        if isinstance(callee, Named) and callee.name in self.recursive:
            name, given = self.given(binding, callee, function, arguments)
            result = self.emit_call(name, data_type(given), binding, callee, arguments, builder)
            items = iter(unpacked(result, binding, builder))
            return with_origin(with_data(given, items), binding.origin, builder)
        return self.inlined(binding, function, outer, arguments, builder)

    def emit_call(self, name: str, kind: Type, binding: Binding, callee: Option,
                  arguments: tuple[Known, ...], builder: BlockBuilder) -> Var:
        """A call of a function of the new module, on the data of callee and arguments."""
        passed = tuple(atom for known in (callee, *arguments) for atom in data(known))
        target = GlobalVar(name, FuncType(tuple(atom.type for atom in passed), kind))
        place = merge(binding.origin, callee.origin)
        return builder.emit(Call(target, passed), origin=place, name=binding.var.name)

    def inlined(self, binding: Binding, function: Function, outer: _Environment,
                arguments: tuple[Known, ...], builder: BlockBuilder) -> Known:
        """The body of a function that gives functions, in place of a call."""
        if self.inlined_calls >= DEEPEST_INLINING:
            raise LoweringError(
                f"{binding.var.name} ({binding.origin}) is given by a function that needs more "
                f"than {DEEPEST_INLINING} others to give it; let them give data instead"
            )
        self.inlined_calls += 1
        environment = {**outer, **dict(zip(function.params, arguments, strict=True))}
        result = self.block(function.body, environment, builder)
        self.inlined_calls -= 1
        return with_origin(result, binding.origin, builder)

    def target(self, callee: Option, function: Function, outer: _Environment,
               arguments: tuple[Known, ...]) -> str:
        """The name of the function that does a call; asks for it if it is new."""
        name, asked = callee.name, self.asked
        first_order = isinstance(callee, Named) and not any(map(_is_function, arguments))
        key = (shape(callee), name if first_order else tuple(map(shape, arguments)))
        if key in asked.names:
            return asked.names[key]
        target = name if first_order and name != "main" else asked.fresh(name)
        asked.names[key] = target
        if function.is_primitive:
            self.written[target] = function
            return target
        given = zip(function.params, arguments, strict=True)
        params, environment = opened([*outer.items(), *given])
        asked.waiting.append(_Request(target, params, function, environment))
        return target

    # --- recursion that gives functions ---------------------------------------------------------

    def given(self, binding: Binding, callee: Named, function: Function,
              arguments: tuple[Known, ...]) -> tuple[str, Known]:
        """The name of the function that does a call of one that calls itself, and what it gives;
        asks for it if it is new."""
        key, asked = (shape(callee), tuple(map(shape, arguments))), self.asked
        result = self.result(key, function, arguments)
        if holds_nothing(result) and self.search is None:
            raise LoweringError(
                f"{binding.var.name} ({binding.origin}) is given by {callee.name}, which always "
                f"calls itself to give a function; let a condition end that"
            )
        if key not in asked.names:
            asked.names[key] = asked.fresh(callee.name)
            params, environment = opened([*zip(function.params, arguments, strict=True)])
            request = _Request(asked.names[key], params, function, environment, result)
            asked.waiting.append(request)
        return asked.names[key], result

    def result(self, key: Hashable, function: Function, arguments: tuple[Known, ...]) -> Known:
        """The least value that all a function gives fits into; in a search, as far as known."""
        if key not in self.results:
            _, environment = opened([*zip(function.params, arguments, strict=True)])
            new = _Open(function, environment, placeholder(function.result_type))
            if self.search is not None:
                return self.search.setdefault(key, new).result
            self.results |= self.searched({key: new})
        return self.results[key]

    def searched(self, search: dict[Hashable, _Open]) -> dict[Hashable, Known]:
        """The results of calls and of those that come up on the way: their bodies are run, giving
        each other what is known so far, until nothing new comes. What is asked for meanwhile is
        forgotten."""
        self.search, asked = search, self.asked
        self.asked = asked.copy()
        changed = True
        while changed:
            changed = False
            for key in (keys := list(search)):
                item = search[key]
                given = self.block(item.function.body, dict(item.environment), BlockBuilder())
                result = joined(item.result, given)
                if shape(result) != shape(item.result):
                    search[key], changed = replace(item, result=result), True
            changed = changed or len(search) > len(keys)
        self.search, self.asked = None, asked
        return {key: item.result for key, item in search.items()}


def _is_function(known: Known) -> bool:
    return not isinstance(known, Var | Constant)


def _mapped(value: Value, get: Callable[[Atom], Known]) -> Value:
    """The value on data in terms of the code being written."""
    mapping: dict[Var, Atom] = {}
    for atom in atoms(value):
        if isinstance(atom, Var):
            known = get(atom)
            assert isinstance(known, Var | Constant)
            mapping[atom] = known
    return map_atoms(value, mapping)
