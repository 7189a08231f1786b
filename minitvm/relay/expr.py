"""Expressions, for building relay by hand: `relay.var`, `x + y`, `relay.nn.conv2d(...)`.

    x = relay.var("x", shape=(1, 8), dtype="float32")
    y = relay.nn.relu(x + 1.0)
    module = Module.from_expr(relay.Function([x], y))

An `Expr` is a node of a graph; its type is inferred when it is built, so that an ill-typed one
fails on the line that writes it, which is its origin too. `Function` brings the graph into
A-normal form: every node is bound once, in the innermost block around all of its uses, so that
what only one branch of an `If` uses is computed in that branch alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

import minitvm.relay.ir as ir
from minitvm import dtypes
from minitvm.errors import MinitvmError, TypeInferenceError
from minitvm.origin import Origin, here
from minitvm.relay.build import with_fresh_variables
from minitvm.relay.dim import Dim
from minitvm.relay.infer import value_type
from minitvm.relay.ir import TensorType, TupleType, Type
from minitvm.relay.op import REGISTRY, Op, lookup


class Expr:
    """A node: an atom, or a value of other nodes (`inputs`), which `atom` stands for."""

    __slots__ = ("atom", "inputs", "origin", "value")

    def __init__(self, atom: ir.Atom, value: ir.Value | None = None,
                 inputs: tuple[Expr, ...] = (), origin: Origin | None = None) -> None:
        self.atom = atom
        self.value = value
        self.inputs = inputs
        self.origin = origin or here(2)

    @property
    def type(self) -> Type:
        """The inferred type."""
        return value_type(self.atom)

    def __repr__(self) -> str:
        return f"<relay expression: {self.type}>"

    def __bool__(self) -> bool:
        raise TypeError("whether a relay expression holds is not known before it runs; "
                        "choose between values with relay.If or relay.where")

    def __call__(self, *arguments: ExprLike) -> Expr:
        return call(self, *arguments)

    def __getitem__(self, index: int) -> Expr:
        return TupleGetItem(self, index)

    def astype(self, dtype: str) -> Expr:
        """The values as another dtype."""
        return apply("cast", self, dtype=dtype)

    def __len__(self) -> int:
        if not isinstance(self.type, TupleType):
            raise TypeError(f"{self!r} is no tuple")
        return len(self.type.fields)

    def __iter__(self) -> Iterator[Expr]:
        return iter([self[index] for index in range(len(self))])

    def __neg__(self) -> Expr:
        return apply("negative", self)

    def __add__(self, other: ExprLike) -> Expr:
        return apply("add", self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return apply("add", other, self)

    def __sub__(self, other: ExprLike) -> Expr:
        return apply("subtract", self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return apply("subtract", other, self)

    def __mul__(self, other: ExprLike) -> Expr:
        return apply("multiply", self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return apply("multiply", other, self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return apply("divide", self, other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return apply("divide", other, self)

    def __pow__(self, other: ExprLike) -> Expr:
        return apply("power", self, other)

    def __lt__(self, other: ExprLike) -> Expr:
        return apply("less", self, other)

    def __le__(self, other: ExprLike) -> Expr:
        return apply("less_equal", self, other)

    def __gt__(self, other: ExprLike) -> Expr:
        return apply("greater", self, other)

    def __ge__(self, other: ExprLike) -> Expr:
        return apply("greater_equal", self, other)


Number = bool | int | float
ExprLike = Expr | ir.Function | ir.GlobalVar | np.ndarray | Number
"""What stands for an expression: a function, one of the module by name, an array, or a number of
the other operand's dtype."""


# --- leaves -------------------------------------------------------------------------------------


def var(
    name: str, type: Type | None = None, *, shape: Sequence[Dim] = (), dtype: str = "float32"
) -> Expr:
    """A variable: a tensor of `shape` and `dtype`, or of any `type`."""
    if type is None:
        dtypes.split(dtype)
        type = TensorType(tuple(shape), dtype)
    return Expr(ir.Var(name, type))


def const(value: Any, dtype: str | None = None) -> Expr:
    """A constant. Arrays keep their dtype; Python numbers and lists become float32, int32 or bool
    unless a dtype is given."""
    array = np.asarray(value)
    if dtype is None and not isinstance(value, np.ndarray | np.generic):
        dtype = {"f": "float32", "i": "int32"}.get(array.dtype.kind)
    if dtype is not None:
        array = array.astype(dtypes.to_numpy(dtype))
    elif array is value:
        array = array.copy()
    return Expr(ir.Constant(array, here(1)))


def as_expr(value: ExprLike, like: Type | None = None) -> Expr:
    """What stands for an expression, as one; `like` gives a Python number its dtype."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, ir.GlobalVar):
        return Expr(value)
    if isinstance(value, ir.Function):
        return _node(with_fresh_variables(value), (), "function")
    if isinstance(value, bool | int | float) and isinstance(like, TensorType):
        if isinstance(value, float) and not dtypes.is_float(like.dtype):
            raise TypeInferenceError(
                f"{here()}: {value} is no {like.dtype}, the dtype of the other operand; cast that, "
                f"or write relay.const(...) with the dtype you mean"
            )
        return const(value, like.dtype)
    return const(value)


# --- values -------------------------------------------------------------------------------------


def call(callee: ExprLike | Op | ir.GlobalVar, *arguments: ExprLike) -> Expr:
    """The call of an operator, or of a function: a value, or one of the module by name."""
    like = next((a.type for a in arguments if isinstance(a, Expr)), None)
    given = tuple(as_expr(argument, like) for argument in arguments)
    atoms = tuple(argument.atom for argument in given)
    if isinstance(callee, Op):
        return _node(ir.Call(callee, atoms), given, callee.name)
    function = as_expr(callee)
    return _node(ir.Call(function.atom, atoms), (function, *given), "call")


def Tuple(fields: Sequence[ExprLike]) -> Expr:
    """A tuple."""
    given = tuple(as_expr(item) for item in fields)
    return _node(ir.Tuple(tuple(item.atom for item in given)), given, "tuple")


def TupleGetItem(source: Expr, index: int) -> Expr:
    """A field of a tuple."""
    return _node(ir.TupleGetItem(source.atom, index), (source,), "item")


def If(condition: ExprLike, true_branch: ExprLike, false_branch: ExprLike) -> Expr:
    """One value or the other; only what the taken one needs is computed."""
    given = (as_expr(condition), as_expr(true_branch), as_expr(false_branch))
    blocks = [ir.Block((), item.atom) for item in given[1:]]
    return _node(ir.If(given[0].atom, *blocks), given, "if")


def _node(value: ir.Value, inputs: tuple[Expr, ...], name: str) -> Expr:
    place = here(2)
    try:
        found = value_type(value)
    except TypeInferenceError as error:
        raise TypeInferenceError(f"{place}: {error}") from None
    return Expr(ir.Var(name, found), value, inputs, place)


# --- operators by name --------------------------------------------------------------------------

SHORTHANDS: dict[str, Callable[..., Expr]] = {}
"""Functions that stand in for the calls of operators, by name: see `call_names`."""

OPERAND_ALIASES = {"lhs": "x", "rhs": "y", "moving_mean": "mean", "moving_var": "variance"}
"""Other names of operands in keyword arguments; `data` is the first one."""


def apply(name: str, *arguments: Any, **attributes: Any) -> Expr:
    """The call of a registered operator. Positional arguments beyond the operator's own are
    attributes in order of declaration; an operator of any number of arguments takes them one by
    one, as a list or as a tuple. Operands may be given by their names in `infer`."""
    operator = lookup(name)
    if operator.arity is None and arguments and _is_several(arguments[0]):
        arguments = (*arguments[0], *arguments[1:])
    names = [item.name for item in fields(operator)]
    if not attributes.keys() <= set(names):
        arguments, attributes = _with_named_operands(operator, names, arguments, attributes)
    count = operator.arity
    if count is None:
        flags = [isinstance(a, Expr | ir.Function | np.ndarray) for a in arguments]
        count = flags.index(False) if False in flags else len(flags)
    values = {**dict(zip(names, arguments[count:], strict=False)), **attributes}
    unknown = [key for key in values if key not in names]
    if unknown or len(arguments) - count > len(names):
        known = ", ".join(names) or "none"
        what = f"the attribute {unknown[0]}" if unknown else f"{len(arguments)} arguments"
        raise TypeInferenceError(f"{here()}: {name} takes not {what}; its attributes are: {known}")
    try:
        op = operator(**{key: _frozen(value) for key, value in values.items()})
    except MinitvmError:
        raise
    except (TypeError, ValueError) as error:
        raise TypeInferenceError(f"{here()}: {name}: {error}") from None
    return call(op, *arguments[:count])


def _is_several(argument: Any) -> bool:
    if isinstance(argument, Expr):
        return isinstance(argument.type, TupleType)
    return isinstance(argument, list | tuple)


def _with_named_operands(
    operator: type[Op], names: list[str], arguments: tuple[Any, ...], attributes: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with the operands among the keywords behind them, and the other keywords."""
    operands = list(inspect.signature(operator.infer).parameters)[1:]
    given: dict[int, Any] = {}
    others: dict[str, Any] = {}
    for key, value in attributes.items():
        operand = operands[0] if key == "data" and operands else OPERAND_ALIASES.get(key, key)
        if key in names or operand not in operands or operator.arity is None:
            others[key] = value
        else:
            given[operands.index(operand)] = value
    if sorted(given) != list(range(len(arguments), len(arguments) + len(given))):
        raise TypeInferenceError(
            f"{here()}: {operator.name} takes the operands {', '.join(operands)}, each once"
        )
    return (*arguments, *(given[index] for index in sorted(given))), others


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class Namespace:
    """The operators whose names start with `prefix`, as functions: `relay.nn`."""

    prefix: str

    def __getattr__(self, name: str) -> Any:
        return operator_function(f"{self.prefix}.{name}")

    def __dir__(self) -> list[str]:
        start = f"{self.prefix}."
        return sorted(name.removeprefix(start) for name in REGISTRY if name.startswith(start))


def operator_function(name: str) -> Any:
    """The function that calls an operator, or the namespace of that name.

    Raises `AttributeError` where there is neither.
    """
    if name in SHORTHANDS:
        return SHORTHANDS[name]
    if name in REGISTRY:
        def function(*arguments: Any, **attributes: Any) -> Expr:
            return apply(name, *arguments, **attributes)

        function.__name__ = name.rpartition(".")[2]
        function.__doc__ = REGISTRY[name].__doc__
        return function
    if any(known.startswith(f"{name}.") for known in REGISTRY):
        return Namespace(name)
    raise AttributeError(f"relay has no operator or function {name!r}")


# --- A-normal form ------------------------------------------------------------------------------


def Function(
    params: Sequence[Expr], body: ExprLike, attrs: Mapping[str, Any] | None = None
) -> ir.Function:
    """The function of variables, in A-normal form."""
    variables: list[ir.Var] = []
    for param in params:
        if not isinstance(param.atom, ir.Var) or param.value is not None:
            raise TypeInferenceError(f"{here()}: a parameter is made by relay.var, not {param!r}")
        variables.append(param.atom)
    if len(set(variables)) != len(variables):
        raise TypeInferenceError(f"{here()}: a variable is a parameter twice")
    result = as_expr(body)
    return ir.Function(tuple(variables), normalise(result), result.type, dict(attrs or {}))


@dataclass(slots=True, eq=False)
class _Scope:
    """A block being written, inside `parent`."""

    parent: _Scope | None = None
    depth: int = 0
    bindings: list[ir.Binding] = field(default_factory=list)

    def inner(self) -> _Scope:
        return _Scope(self, self.depth + 1)


def normalise(body: Expr) -> ir.Block:
    """The block that computes an expression."""
    order = _arguments_first(body)
    root = _Scope()
    scopes, branches = _place(order, body, root)
    atoms: dict[ir.Var, ir.Atom] = {}

    def get(expr: Expr) -> ir.Atom:
        return atoms.get(expr.atom, expr.atom) if isinstance(expr.atom, ir.Var) else expr.atom

    for expr in order:
        assert expr.value is not None and isinstance(expr.atom, ir.Var)
        if expr in branches:
            condition, *results = (get(item) for item in expr.inputs)
            value: ir.Value = ir.If(condition, *(
                ir.Block(tuple(scope.bindings), result)
                for scope, result in zip(branches[expr], results, strict=True)
            ))
        else:
            value = ir.map_atoms(expr.value, atoms)
        bindings = scopes[expr].bindings
        new = ir.Var(f"v{len(bindings)}", expr.atom.type)
        atoms[expr.atom] = new
        bindings.append(ir.Binding(new, value, expr.origin))
    return ir.Block(tuple(root.bindings), get(body))


def _arguments_first(body: Expr) -> list[Expr]:
    """The nodes to bind, each after its inputs."""
    order: list[Expr] = []
    seen: set[Expr] = set()
    stack = [(body, False)]
    while stack:
        expr, inputs_done = stack.pop()
        if inputs_done:
            order.append(expr)
        elif expr not in seen and expr.value is not None:
            seen.add(expr)
            stack.append((expr, True))
            stack.extend((item, False) for item in reversed(expr.inputs))
    return order


def _place(
    order: list[Expr], body: Expr, root: _Scope
) -> tuple[dict[Expr, _Scope], dict[Expr, tuple[_Scope, _Scope]]]:
    """The innermost scope around all uses of each node, users first; and the scopes of branches."""
    scopes = {body: root}
    branches: dict[Expr, tuple[_Scope, _Scope]] = {}
    for expr in reversed(order):
        scope = scopes[expr]
        places = [scope] * len(expr.inputs)
        if isinstance(expr.value, ir.If):
            branches[expr] = (scope.inner(), scope.inner())
            places[1:] = branches[expr]
        for item, place in zip(expr.inputs, places, strict=True):
            scopes[item] = _common(scopes.get(item, place), place)
    return scopes, branches


def _common(left: _Scope, right: _Scope) -> _Scope:
    while left is not right:
        if left.depth >= right.depth:
            assert left.parent is not None
            left = left.parent
        else:
            assert right.parent is not None
            right = right.parent
    return left
