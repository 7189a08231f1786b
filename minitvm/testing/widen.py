"""A module in float32 -> the same module in float64: what it computes, nearly free of rounding.

Two modules that compute the same function differ by rounding alone; in float64, by so little that
a wrong term can't hide in it. The oracle compares modules in this form. Constants that a pass has
folded in float32 keep the rounding of that.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from minitvm.relay.infer import value_type
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
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Value,
    Var,
)
from minitvm.relay.op import Op

ROUNDING = 2.0**-23
"""How far noise puts a number off, relative to it."""


def widen(module: Module, noise: np.random.Generator | None = None) -> Module:
    """The module with float64 for float32, in types, constants and attributes. With `noise`, the
    constants are off by as much as rounding to float32 may be."""
    state = _Widening(module, noise)
    return Module({name: state.function(item) for name, item in module.functions.items()})


def widen_array(array: np.ndarray, noise: np.random.Generator | None = None) -> np.ndarray:
    """The array, float64 where it was float32, and with `noise` a little off."""
    if array.dtype != np.float32:
        return array
    wide = array.astype(np.float64)
    return wide if noise is None else wide * (1 + noise.uniform(-1, 1, array.shape) * ROUNDING)


def widen_type(found: Type) -> Type:
    """The type, float64 where it was float32."""
    match found:
        case TensorType(shape, "float32"):
            return TensorType(shape, "float64")
        case TupleType(items):
            return TupleType(tuple(map(widen_type, items)))
        case FuncType(params, result):
            return FuncType(tuple(map(widen_type, params)), widen_type(result))
        case _:
            return found


class _Widening:
    def __init__(self, module: Module, noise: np.random.Generator | None) -> None:
        self.module = module
        self.noise = noise
        self.vars: dict[Var, Var] = {}

    def function(self, function: Function) -> Function:
        params = tuple(self.define(param) for param in function.params)
        body = self.block(function.body)
        return replace(function, params=params, body=body,
                       result_type=widen_type(function.result_type))

    def define(self, var: Var) -> Var:
        self.vars[var] = Var(var.name, widen_type(var.type))
        return self.vars[var]

    def block(self, block: Block) -> Block:
        bindings = []
        for binding in block.bindings:
            value = self.value(binding.value)
            bindings.append(Binding(self.define(binding.var), value, binding.origin))
        return Block(tuple(bindings), self.atom(block.result))

    def value(self, value: Value) -> Value:
        match value:
            case Call(callee, arguments):
                head = widen_operator(callee) if isinstance(callee, Op) else self.atom(callee)
                return Call(head, tuple(map(self.atom, arguments)))
            case Tuple(items):
                return Tuple(tuple(map(self.atom, items)))
            case TupleGetItem(source, index):
                return TupleGetItem(self.atom(source), index)
            case If(condition, then_block, else_block):
                return If(self.atom(condition), self.block(then_block), self.block(else_block))
            case Function():
                return self.function(value)
            case _:
                return self.atom(value)

    def atom(self, atom: Atom) -> Atom:
        match atom:
            case Var():
                return self.vars[atom]
            case Constant(data):
                return Constant(widen_array(data, self.noise), atom.origin)
            case GlobalVar(name):
                return GlobalVar(name, widen_type(value_type(atom, self.module.functions)))


def widen_operator(op: Op) -> Op:
    """The operator, its `float32` attributes (of `cast`, `zeros`...) made `float64`."""
    changed: dict[str, Any] = {
        item.name: "float64" for item in fields(op) if getattr(op, item.name) == "float32"
    }
    return replace(op, **changed) if changed else op
