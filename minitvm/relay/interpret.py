"""A module and arrays -> the arrays it computes, by the operators' own meaning in numpy.

The reference for everything below relay, and the constant folder. A machine with an explicit stack
of frames: neither long blocks nor deep recursion of relay functions nests Python calls. What comes
last in a function or branch takes the frame's place, so that tail calls, of whichever function, may
go on for ever; other calls are nested up to a limit. Each result is checked against the type of the
variable it is bound to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from minitvm.errors import InputError, InterpreterError, MinitvmError
from minitvm.origin import NOWHERE, Origin
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
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Value,
    Var,
    free_variables,
)
from minitvm.relay.op import Op


@dataclass(frozen=True, slots=True)
class Closure:
    """A function value: the function, and the values of its free variables."""

    function: Function
    captured: Mapping[Var, Result]


Result = np.ndarray | tuple["Result", ...] | Closure
"""A runtime value."""


MOST_FRAMES = 10_000
"""How many calls and branches may be nested, tail calls apart."""


@dataclass(slots=True)
class Frame:
    """A block being evaluated; its value goes to the variable of `binding` in the frame below."""

    block: Block
    environment: dict[Var, Result]
    binding: Binding | None = None
    position: int = 0

    @property
    def is_done(self) -> bool:
        """Whether the last binding is being evaluated, and its value is that of the block."""
        bindings = self.block.bindings
        return self.position == len(bindings) and bindings[-1].var is self.block.result


@dataclass(frozen=True, slots=True)
class Interpreter:
    """Evaluates functions of a module."""

    functions: Mapping[str, Function] = field(default_factory=dict)

    def call(self, function: Function, arguments: Sequence[Result]) -> Result:
        """The result of a function without free variables."""
        return self.evaluate(function.body, dict(zip(function.params, arguments, strict=True)))

    def evaluate(self, block: Block, environment: dict[Var, Result]) -> Result:
        """The value of a block; `environment` gives its free variables, and receives the rest."""
        stack = [Frame(block, environment)]
        with np.errstate(all="ignore"):
            while True:
                frame = stack[-1]
                inner = self._run_until_call(frame)
                if inner is not None:
                    if frame.is_done and len(stack) > 1:
                        inner.binding = frame.binding
                        stack.pop()
                    stack.append(inner)
                    if len(stack) > MOST_FRAMES:
                        raise _too_deep(inner)
                    continue
                result = self.atom(frame.block.result, frame.environment)
                stack.pop()
                if not stack:
                    return result
                assert frame.binding is not None
                stack[-1].environment[frame.binding.var] = result

    def _run_until_call(self, frame: Frame) -> Frame | None:
        """Evaluates bindings up to one that needs a frame of its own, which it gives."""
        bindings, environment = frame.block.bindings, frame.environment
        while frame.position < len(bindings):
            binding = bindings[frame.position]
            frame.position += 1
            inner = self._enter(binding, environment)
            if inner is not None:
                return inner
            result = self.value(binding.value, environment, binding.origin)
            check_result(result, binding)
            environment[binding.var] = result
        return None

    def _enter(self, binding: Binding, environment: dict[Var, Result]) -> Frame | None:
        match binding.value:
            case If(condition, then_block, else_block):
                taken = then_block if bool(self.atom(condition, environment)) else else_block
                return Frame(taken, environment, binding)
            case Call(callee, arguments) if not isinstance(callee, Op):
                closure = self.atom(callee, environment)
                if not isinstance(closure, Closure):
                    raise InterpreterError(f"{callee!r} is called but is no function")
                values = [self.atom(argument, environment) for argument in arguments]
                params = dict(zip(closure.function.params, values, strict=True))
                return Frame(closure.function.body, {**closure.captured, **params}, binding)
            case _:
                return None

    def value(self, value: Value, environment: Mapping[Var, Result], origin: Origin) -> Result:
        """The result of a value that needs no frame: anything but a branch or a function call."""
        match value:
            case Call(callee, arguments) if isinstance(callee, Op):
                inputs = [self.atom(argument, environment) for argument in arguments]
                return apply_operator(callee, inputs, origin)
            case Tuple(fields):
                return tuple(self.atom(item, environment) for item in fields)
            case TupleGetItem(source, index):
                fields_of = self.atom(source, environment)
                assert isinstance(fields_of, tuple)
                return fields_of[index]
            case Function():
                captured = {v: environment[v] for v in free_variables(value) if v in environment}
                return Closure(value, captured)
            case Var() | Constant() | GlobalVar():
                return self.atom(value, environment)
        raise InterpreterError(f"{value!r} needs a frame of its own")

    def atom(self, atom: Atom, environment: Mapping[Var, Result]) -> Result:
        """The value of an atom."""
        match atom:
            case Constant(data):
                return data
            case Var():
                if atom not in environment:
                    raise InterpreterError(f"the variable {atom.name} is used before it is bound")
                return environment[atom]
            case GlobalVar(name):
                if name not in self.functions:
                    raise InterpreterError(f"the module has no function @{name}")
                return Closure(self.functions[name], {})


def _too_deep(frame: Frame) -> InterpreterError:
    where = "" if frame.binding is None else f" at {frame.binding.var.name}"
    place = "" if frame.binding is None else f" ({frame.binding.origin or 'no origin'})"
    return InterpreterError(
        f"calls are nested more than {MOST_FRAMES} deep{where}{place}; the recursion does not end, "
        f"or should be a tail call"
    )


def apply_operator(op: Op, inputs: Sequence[Result], origin: Origin) -> Result:
    """An operator on arrays, errors of numpy reported with the operator and where it comes from."""
    try:
        result = op.evaluate(*inputs)
    except MinitvmError:
        raise
    except (ValueError, TypeError, IndexError, ArithmeticError) as error:
        shapes = ", ".join(describe(item) for item in inputs)
        raise InterpreterError(
            f"{op.name}({shapes}), of {origin or 'no origin'}, cannot be evaluated: {error}"
        ) from error
    return tuple(map(np.asarray, result)) if isinstance(result, tuple) else np.asarray(result)


def check_result(result: Result, binding: Binding) -> None:
    """Raises `InterpreterError` if a result is not of the type of the variable."""
    if not has_type(result, binding.var.type):
        callee = binding.value.callee if isinstance(binding.value, Call) else binding.value
        what = callee.name if isinstance(callee, Op) else type(callee).__name__
        raise InterpreterError(
            f"{what}, of {binding.origin or 'no origin'}, evaluates to {describe(result)}, but "
            f"{binding.var.name} is {binding.var.type}"
        )


def has_type(result: Result, wanted: Type) -> bool:
    """Whether a runtime value is of a type; named sizes fit any extent."""
    match wanted:
        case TensorType(shape, dtype):
            return (
                isinstance(result, np.ndarray)
                and result.dtype.name == dtype
                and len(shape) == result.ndim
                and all(not isinstance(d, int) or d == e
                        for d, e in zip(shape, result.shape, strict=True))
            )
        case TupleType(fields):
            return (
                isinstance(result, tuple)
                and len(result) == len(fields)
                and all(has_type(item, kind) for item, kind in zip(result, fields, strict=True))
            )
        case _:
            return isinstance(result, Closure)


def describe(result: Result) -> str:
    """The type of a runtime value, for messages."""
    match result:
        case np.ndarray():
            return str(TensorType(result.shape, result.dtype.name))
        case tuple():
            return f"Tuple({', '.join(map(describe, result))})"
        case _:
            return f"function {result.function.type}"


# --- entry points -------------------------------------------------------------------------------


def run(module: Module, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of `main` on inputs given by name: the fields where the result is a tuple.

    Raises `InputError` for missing or unknown names and for wrong dtypes or shapes.
    """
    main = module.main
    arguments = check_inputs(main, inputs)
    return flatten(Interpreter(module.functions).call(main, arguments))


def run_function(
    function: Function, *arguments: np.ndarray, module: Module | None = None
) -> list[np.ndarray]:
    """The same for a function value and arguments in order."""
    return flatten(Interpreter(module.functions if module else {}).call(function, arguments))


def eval_value(
    value: Value,
    environment: Mapping[Var, Result] | None = None,
    module: Module | None = None,
    origin: Origin = NOWHERE,
) -> Result:
    """One value, given its free variables: what the constant folder calls."""
    functions = module.functions if module else {}
    var = Var("result", value_type(value, functions))
    block = Block((Binding(var, value, origin),), var)
    return Interpreter(functions).evaluate(block, dict(environment or {}))


def check_inputs(function: Function, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The arguments in order, checked against the parameters."""
    names = [param.name for param in function.params]
    if set(names) != set(inputs):
        raise InputError(
            f"the inputs are {', '.join(names) or 'none'}, but "
            f"{', '.join(map(str, inputs)) or 'none'} were given"
        )
    arguments = [np.asarray(inputs[name]) for name in names]
    for param, argument in zip(function.params, arguments, strict=True):
        if not has_type(argument, param.type):
            given = f"{argument.dtype.name}{list(argument.shape)}"
            raise InputError(f"the input {param.name} is {param.type}, but {given} was given")
    return arguments


def flatten(result: Result) -> list[np.ndarray]:
    """The arrays in a result, tuples opened."""
    if isinstance(result, tuple):
        return [array for item in result for array in flatten(item)]
    if isinstance(result, Closure):
        raise InterpreterError("a function cannot be an output")
    return [result]

