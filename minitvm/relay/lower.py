"""Fused relay -> tir: primitive functions through te, and `main` to a sequence of kernel calls.

A primitive function becomes te tensors by its operators' `compute`, a schedule by the recipe of its
anchor (the operator of the highest pattern) or by a log of steps, and nested tir by `te.lower`.
Before that it is made canonical (parameters `p0, p1, ...`, bindings `t0, t1, ...`, each its own
origin), so that equal functions give identical kernels whatever model they stand in; `t` names lead
back to the bindings, and those to the nodes of each model.

`main` becomes tir over one flat buffer for each input and output, `weights` and `workspace`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

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
    GlobalVar,
    Module,
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
from minitvm.relay.memory import MemoryPlan
from minitvm.relay.op import Op, Pattern
from minitvm.target import Target
from minitvm.te.recipes import schedule_outputs
from minitvm.tir import ir, walk

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
    return te.lower(schedule, [*graph.inputs, *graph.outputs], name=name)


# --- main ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoweredMain:
    """`main` in tir, the constants it addresses, and the kernels that copy inputs to outputs."""

    func: ir.PrimFunc
    weights: np.ndarray
    copy_kernels: tuple[ir.PrimFunc, ...]


def lower_main(module: Module, plan: MemoryPlan, symbols: Mapping[str, str]) -> LoweredMain:
    """`main` as kernel calls with constant addresses; `symbols` are the names that kernels have."""
    places = _Places(module.main, plan)
    body: list[ir.Stmt] = []
    for binding in module.main.body.bindings:
        match binding.value:
            case Call(GlobalVar(callee), arguments) if binding.var not in plan.views:
                results = plan.fields.get(binding.var, (binding.var,))
                addresses = tuple(places.address(atom) for atom in (*arguments, *results))
                body.append(ir.Invoke(symbols[callee], addresses, binding.origin))
            case Call(Op(name=name)):
                raise LoweringError(
                    f"{binding.var.name} in main ({binding.origin}) calls the operator {name}, "
                    f"which is in no kernel; the pass FuseOps puts every operator into one, and "
                    f"can't be disabled"
                )
    copies: dict[str, ir.PrimFunc] = {}
    for atom, index in plan.copies:
        kernel = copy_kernel(tensor_type(atom).size_bytes())
        copies[kernel.name] = kernel
        addresses = (places.address(atom), places.output(index))
        body.append(ir.Invoke(kernel.name, addresses, places.origin(atom)))
    func = ir.PrimFunc("main", places.params(), places.with_weights(ir.seq(*body)))
    return LoweredMain(func, places.weights(), tuple(copies.values()))


def copy_kernel(size: int) -> ir.PrimFunc:
    """A kernel that copies `size` bytes."""
    source, result = (ir.buffer(name, (size,), "uint8") for name in ("source", "result"))
    i = ir.Var("i")
    here = origin("copy")
    store = ir.Store(result, (i,), ir.Load(source, (i,)), here)
    loop = ir.For(i, ir.Const(0), ir.Const(size), "serial", store, here)
    return ir.PrimFunc(f"copy_{size}_bytes", (source, result), loop)


class _Places:
    """Where the atoms of `main` lie: in inputs, outputs, the weights or the arena."""

    def __init__(self, main: Function, plan: MemoryPlan) -> None:
        self._main, self._plan = main, plan
        self._inputs = {param: _flat(param.name, param.type) for param in main.params}
        result = main.result_type
        types = result.fields if isinstance(result, TupleType) else (result,)
        names = main.attrs.get("output_names") or [f"output{i}" for i in range(len(types))]
        self._outputs = [_flat(name, kind) for name, kind in zip(names, types, strict=True)]
        self._weights = ir.buffer("weights", (1,), "uint8")
        self._workspace = ir.buffer("workspace", (max(plan.workspace_bytes, 1),), "uint8")
        self._constants: dict[str, int] = {}
        self._parts: list[np.ndarray] = []
        self._size = 0

    def params(self) -> tuple[ir.Buffer, ...]:
        """The parameters of `main`."""
        weights = replace(self._weights, shape=(ir.Const(max(self._size, 1)),))
        self._sized = weights
        return (*self._inputs.values(), *self._outputs, weights, self._workspace)

    def with_weights(self, body: ir.Stmt) -> ir.Stmt:
        """The body with the weights at their final size, which is known once all are placed."""

        def swap(expr: ir.Expr) -> ir.Expr:
            if isinstance(expr, ir.Address) and expr.buffer is self._weights:
                return ir.Address(self._sized, expr.offset)
            return expr

        return walk.rewrite_statement(body, expr_rule=swap)

    def weights(self) -> np.ndarray:
        """The constants placed so far, as bytes."""
        return np.concatenate(self._parts) if self._parts else np.zeros(0, np.uint8)

    def origin(self, atom: Atom) -> Origin:
        """Where an atom that is copied to an output comes from."""
        return atom.origin if isinstance(atom, Constant) and atom.origin else origin(str(atom))

    def output(self, index: int) -> ir.Address:
        """The address of an output."""
        return ir.Address(self._outputs[index], ir.Const(0))

    def address(self, atom: Atom) -> ir.Address:
        """The address of a tensor."""
        root = self._plan.views.get(atom, atom) if isinstance(atom, Var) else atom
        match root:
            case Constant():
                return ir.Address(self._weights, ir.Const(self._place(root)))
            case Var() if root in self._inputs:
                return ir.Address(self._inputs[root], ir.Const(0))
            case Var() if root in self._plan.outputs:
                return self.output(self._plan.outputs[root])
            case Var() if root in self._plan.offsets:
                return ir.Address(self._workspace, ir.Const(self._plan.offsets[root]))
        raise LoweringError(f"{root} has no place in memory")

    def _place(self, constant: Constant) -> int:
        digest = constant.digest()
        if digest not in self._constants:
            self._constants[digest] = self._size
            data = np.ascontiguousarray(constant.data).reshape(-1).view(np.uint8)
            self._parts += [data, np.zeros(-data.size % ALIGNMENT, np.uint8)]
            self._size += data.size + self._parts[-1].size
        return self._constants[digest]


def _flat(name: str, declared: Type) -> ir.Buffer:
    """A flat buffer for a model's input or output."""
    if not isinstance(declared, TensorType):
        raise LoweringError(f"{name} must be a tensor, not {declared}")
    return ir.buffer(name, (declared.elements(),), declared.dtype)
