"""Relay -> relay in which what depends on constants alone is a constant."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from minitvm.errors import MinitvmError, VerifyError
from minitvm.origin import merge
from minitvm.relay.build import BlockBuilder, rebuild_module
from minitvm.relay.ir import (
    Atom,
    Binding,
    Block,
    Call,
    Constant,
    If,
    Module,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Value,
    Var,
)
from minitvm.relay.op import Op
from minitvm.relay.passes.dead_code_elimination import without_dead_code_of
from minitvm.remarks import remark
from minitvm.transform import make_pass

GROWTH_LIMIT_BYTES = 64 * 2**20
"""A result is not folded if it is this much greater than its inputs: it would bloat the program."""


@make_pass("FoldConstant", opt_level=2)
def fold_constant(module: Module) -> Module:
    """Evaluates calls of operators on constants in numpy, and takes the branch of an `If` whose
    condition is constant. The constant has the origins of all that went into it.

    Before:

        def main(x: Tensor((2,), "float32")) -> Tensor((2,), "float32"):
            v0 = negative(const([1.0, 2.0], (2,), "float32"))  #: "a"
            v1 = add(x, v0)  #: "b"
            return v1

    After:

        def main(x: Tensor((2,), "float32")) -> Tensor((2,), "float32"):
            v0 = add(x, const([-1.0, -2.0], (2,), "float32"))  #: "b"
            return v0
    """
    return without_dead_code_of(module, rebuild_module(module, fold_binding))


def fold_binding(builder: BlockBuilder, binding: Binding) -> Value | None:
    """The rule of `rebuild`: the constant that a value is, or the branch that is taken."""
    match binding.value:
        case Var() | Constant() as atom:
            return _kept(atom, builder)
        case Call(Op() as op, arguments) if all(isinstance(a, Constant) for a in arguments):
            constants = [a for a in arguments if isinstance(a, Constant)]
            return _evaluated(op, constants, binding)
        case TupleGetItem(source, index):
            fields = builder.value_of(source)
            if isinstance(fields, Tuple) and isinstance(fields.fields[index], Constant):
                return _kept(fields.fields[index], builder)
        case If(Constant(data), then_block, else_block):
            return _inlined(builder, then_block if data.item() else else_block)
    return None


def _inlined(builder: BlockBuilder, block: Block) -> Value:
    """Adds the bindings of a block to the one around it, and gives its result."""
    for binding in block.bindings:
        builder.append(binding)
    return _kept(block.result, builder)


def _kept(atom: Atom, builder: BlockBuilder) -> Atom:
    """An atom in place of the value at hand; a constant takes over the origin of that, as the
    binding of a variable does."""
    if not isinstance(atom, Constant):
        return atom
    source = merge(atom.origin, builder.origin)
    return atom if source == atom.origin else replace(atom, origin=source)


def _evaluated(op: Op, constants: list[Constant], binding: Binding) -> Value | None:
    """The call's result as a constant or a tuple of them; None, with a remark, where declined."""
    growth = _size_bytes(binding.var.type) - sum(c.data.nbytes for c in constants)
    if growth > GROWTH_LIMIT_BYTES:
        reason = f"{op.name} on constants would add {growth / 2**20:.0f} MiB to the program"
        remark("FoldConstant", reason, binding.origin)
        return None
    try:
        with np.errstate(all="ignore"):
            result = op.evaluate(*(constant.data for constant in constants))
    except (ArithmeticError, IndexError, MemoryError, MinitvmError, ValueError) as error:
        remark("FoldConstant", f"{op.name} on constants has no value: {error}", binding.origin)
        return None
    source = merge(binding.origin, *(constant.origin for constant in constants))
    if isinstance(result, tuple):
        return Tuple(tuple(Constant(np.asarray(field), source) for field in result))
    return _checked(Constant(np.asarray(result), source), op, binding.var.type)


def _checked(constant: Constant, op: Op, wanted: Type) -> Constant:
    """Symbolic dims aside, an operator must give what its type rule says."""
    found = constant.type
    if found != wanted and not _is_symbolic(wanted):
        raise VerifyError(f"{op.name} evaluates to {found}, but its type rule says {wanted}")
    return constant


def _is_symbolic(found: Type) -> bool:
    return isinstance(found, TensorType) and not all(isinstance(d, int) for d in found.shape)


def _size_bytes(found: Type) -> int:
    match found:
        case TensorType():
            return 0 if _is_symbolic(found) else found.size_bytes()
        case TupleType(fields):
            return sum(map(_size_bytes, fields))
        case _:
            return 0
