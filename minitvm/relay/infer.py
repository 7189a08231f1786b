"""Values -> their types: the typing rules of relay.

Operators say their own rule (`Op.infer`); the rest (function calls, tuples, branches) is here. A
value is typed once, when it is built; the verifier calls the same function to compare.
"""

from __future__ import annotations

from collections.abc import Mapping

from minitvm.errors import TypeInferenceError
from minitvm.relay.ir import (
    Atom,
    Call,
    Constant,
    Function,
    FuncType,
    GlobalVar,
    If,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Value,
    Var,
)
from minitvm.relay.op import Op

BOOL_SCALAR = TensorType((), "bool")


def value_type(value: Value, functions: Mapping[str, Function] | None = None) -> Type:
    """The type of a value whose atoms are typed; raises `TypeInferenceError` for an ill-typed one.

    `functions` gives the types of `GlobalVar`s that carry none themselves.
    """
    match value:
        case Call(callee, arguments):
            types = tuple(atom_type(argument, functions) for argument in arguments)
            if isinstance(callee, Op):
                return operator_type(callee, types)
            return _function_call_type(callee, atom_type(callee, functions), types)
        case Tuple(fields):
            return TupleType(tuple(atom_type(field, functions) for field in fields))
        case TupleGetItem(source, index):
            return _field_type(source, atom_type(source, functions), index)
        case If():
            return _if_type(value, functions)
        case Function():
            return value.type
        case Var() | Constant() | GlobalVar():
            return atom_type(value, functions)
    raise TypeError(f"not a relay value: {value!r}")


def atom_type(atom: Atom, functions: Mapping[str, Function] | None = None) -> Type:
    """The type of an atom."""
    if not isinstance(atom, GlobalVar):
        return atom.type
    if functions is not None and atom.name in functions:
        return functions[atom.name].type
    if atom.type is None:
        raise TypeInferenceError(
            f"the type of the function @{atom.name} is not known here; give it with "
            f"GlobalVar({atom.name!r}, function.type)"
        )
    return atom.type


def operator_type(op: Op, types: tuple[Type, ...]) -> Type:
    """The result type of an operator applied to arguments of these types."""
    if op.arity is not None and op.arity != len(types):
        plural = "" if op.arity == 1 else "s"
        raise op.fail(types, f"takes {op.arity} argument{plural}, not {len(types)}")
    for position, given in enumerate(types):
        if not isinstance(given, TensorType):
            raise op.fail(types, f"argument {position} must be a tensor; take a field of it first")
    return op.infer(*types)


def _function_call_type(callee: Atom, found: Type, types: tuple[Type, ...]) -> Type:
    if not isinstance(found, FuncType):
        raise TypeInferenceError(f"{callee!r} is called but is no function: its type is {found}")
    if len(found.params) != len(types):
        raise TypeInferenceError(
            f"{callee!r} takes {len(found.params)} arguments but is called with {len(types)}"
        )
    for position, (wanted, given) in enumerate(zip(found.params, types, strict=True)):
        if wanted != given:
            raise TypeInferenceError(
                f"argument {position} of {callee!r} must be {wanted}, but {given} is given"
            )
    return found.result


def _field_type(source: Atom, found: Type, index: int) -> Type:
    if not isinstance(found, TupleType):
        raise TypeInferenceError(
            f"field {index} of {source!r} is taken, which is no tuple: {found}"
        )
    if not 0 <= index < len(found.fields):
        raise TypeInferenceError(
            f"field {index} is taken of {source!r}, which has {len(found.fields)} fields"
        )
    return found.fields[index]


def _if_type(value: If, functions: Mapping[str, Function] | None) -> Type:
    condition = atom_type(value.condition, functions)
    if condition != BOOL_SCALAR:
        raise TypeInferenceError(
            f"the condition of an If must be {BOOL_SCALAR}, but {value.condition!r} is {condition}"
        )
    then_type = atom_type(value.then_block.result, functions)
    else_type = atom_type(value.else_block.result, functions)
    if then_type != else_type:
        raise TypeInferenceError(
            f"both branches of an If must have one type, but they are {then_type} and {else_type}"
        )
    return then_type
