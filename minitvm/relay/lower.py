"""Primitive functions of relay -> te -> tir.

A primitive function becomes te tensors by its operators' `compute`, a schedule by the recipe of its
anchor (the operator of the highest pattern) or by a log of steps, and nested tir by `te.lower`.
Before that it is made canonical (parameters `p0, p1, ...`, bindings `t0, t1, ...`, each its own
origin), so that equal functions give identical kernels whatever model they stand in; `t` names lead
back to the bindings, and those to the nodes of each model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from minitvm import te
from minitvm.errors import LoweringError
from minitvm.origin import Origin, origin, origin_scope
from minitvm.relay.ir import (
    Atom,
    Binding,
    Block,
    Call,
    Constant,
    Function,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Var,
    map_atoms,
    tensor_type,
    walk_bindings,
)
from minitvm.relay.op import Op, Pattern
from minitvm.target import Target
from minitvm.te.recipes import schedule_outputs
from minitvm.tir import ir

ALIGNMENT = 64
"""Of each constant in the weights, in bytes."""
MAXIMUM_ELEMENTS = 2**31 - 2**20
"""Of a tensor: kernels compute indices of 32 bits, a little beyond the last element too."""


def check_sizes(function: Function) -> None:
    """Raises `LoweringError` for a tensor with more elements than a kernel can count."""
    for param in function.params:
        _check_size(param.type, f"the parameter {param.name!r}")
    for binding in walk_bindings(function.body):
        _check_size(binding.var.type, f"the result of node {binding.origin}")


def _check_size(found: Type, what: str) -> None:
    for item in found.fields if isinstance(found, TupleType) else (found,):
        if isinstance(item, TensorType) and math.prod(item.extents()) > MAXIMUM_ELEMENTS:
            raise LoweringError(f"{what} is of type {item} and has {math.prod(item.extents())} "
                                f"elements; a tensor may have {MAXIMUM_ELEMENTS} of them: compile "
                                "the model for smaller shapes")


def canonical(function: Function) -> Function:
    """The function with names and origins that depend on its structure alone."""
    params = tuple(Var(f"p{i}", param.type) for i, param in enumerate(function.params))
    names: dict[Var, Atom] = dict(zip(function.params, params, strict=True))
    bindings = []
    for index, binding in enumerate(function.body.bindings):
        value = map_atoms(binding.value, names)
        var = Var(f"t{index}", binding.var.type)
        names[binding.var] = var
        bindings.append(Binding(var, value, origin(var.name)))
    result = function.body.result
    body = Block(tuple(bindings), names.get(result, result) if isinstance(result, Var) else result)
    return Function(params, body, function.result_type, function.attrs)


def line_origins(function: Function) -> dict[str, Origin]:
    """From the `t` names of the canonical function to the origins of this function's bindings."""
    return {f"t{index}": binding.origin for index, binding in enumerate(function.body.bindings)}


# --- primitive functions ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TensorGraph:
    """A primitive function as te tensors, with the operator whose recipe schedules it."""

    inputs: tuple[te.Tensor, ...]
    outputs: tuple[te.Tensor, ...]
    anchor_op: Op | None
    anchor: te.Tensor


def to_te(function: Function) -> TensorGraph:
    """The computations of a canonical primitive function."""
    values: dict[Var, Any] = {}
    for param in function.params:
        declared = tensor_type(param)
        values[param] = te.placeholder(declared.extents(), declared.dtype, name=param.name)

    def get(atom: Atom) -> Any:
        if isinstance(atom, Constant):
            return _constant_tensor(atom)
        if isinstance(atom, Var):
            return values[atom]
        raise LoweringError(f"a fused kernel can't use the function {atom} as a value")

    anchor_op: Op | None = None
    anchor: Any = None
    for binding in function.body.bindings:
        with origin_scope(binding.origin):
            match binding.value:
                case Call(Op() as op, arguments):
                    result = op.compute(*(get(atom) for atom in arguments))
                    pattern = op.pattern if op.pattern >= Pattern.COMM_REDUCE else Pattern.ELEMWISE
                    if anchor_op is None or pattern >= anchor_op.pattern or (
                        pattern == Pattern.ELEMWISE and anchor_op.pattern < Pattern.COMM_REDUCE
                    ):
                        anchor_op, anchor = op, result
                case Tuple(fields):
                    result = tuple(get(atom) for atom in fields)
                case TupleGetItem(source, index):
                    result = get(source)[index]
                case Var() | Constant() as atom:
                    result = get(atom)
                case other:
                    raise LoweringError(f"a fused kernel can't hold {type(other).__name__}")
        values[binding.var] = result
    result = get(function.body.result)
    last = function.body.bindings[-1].origin if function.body.bindings else origin("t0")
    with origin_scope(last):
        outputs = _distinct_outputs(result if isinstance(result, tuple) else (result,))
    first = anchor[0] if isinstance(anchor, tuple) else anchor
    return TensorGraph(tuple(values[param] for param in function.params), outputs, anchor_op,
                       outputs[0] if first is None else first)


def _constant_tensor(constant: Constant) -> te.Tensor:
    """A constant of one element, as a computation to be inlined."""
    if constant.data.size != 1:
        raise LoweringError(
            f"a fused kernel takes constants of more than one element as parameters, not "
            f"{constant.type} inside"
        )
    declared = constant.type
    value = ir.convert(constant.data.reshape(()).item(), declared.dtype)
    tensor: te.Tensor = te.compute(declared.extents(), lambda *_: value, name="constant")
    return tensor


def _distinct_outputs(tensors: tuple[te.Tensor, ...]) -> tuple[te.Tensor, ...]:
    """Outputs as distinct computations: an input, or a tensor given twice, is copied."""
    seen: set[te.Tensor] = set()
    outputs = []
    for tensor in tensors:
        if not isinstance(tensor.op, te.Compute) or tensor in seen:
            tensor = te.compute(tensor.shape, lambda *i, source=tensor: source[i], name="copy")
        seen.add(tensor)
        outputs.append(tensor)
    return tuple(outputs)


def schedule_function(graph: TensorGraph, target: Target,
                      steps: Sequence[Any] | None = None) -> te.Schedule:
    """The schedule: a replay of `steps`, or the default recipe of the anchor."""
    if steps is not None:
        return te.Schedule.replay(graph.outputs, steps)
    s = te.create_schedule(list(graph.outputs))
    if graph.anchor_op is not None and len(graph.outputs) == 1:
        graph.anchor_op.schedule(s, graph.anchor, graph.outputs[0], target)
    else:
        schedule_outputs(s, graph.outputs, target)
    return s


def lower_function(name: str, function: Function, target: Target,
                   steps: Sequence[Any] | None = None) -> ir.PrimFunc:
    """A canonical primitive function as nested tir: parameters are its inputs, then its outputs."""
    graph = to_te(function)
    schedule = schedule_function(graph, target, steps)
    return te.lower(schedule, [*graph.inputs, *graph.outputs], name=name, target=target)
