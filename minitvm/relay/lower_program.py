"""A fused module -> tir: `main` and the functions it needs, which call kernels and each other.

    def main(x: ..., output0: ..., weights: ..., workspace: ...):
        invoke(kernel, address(x, 0), address(workspace, 64))
        invoke(f, address(workspace, 64), address(output0, 0), address(weights, 0),
               address(workspace, 128))                             f's frame lies behind main's
    def f(x: ..., result: ..., weights: ..., workspace: ...):
        ...

Parameters are flat buffers: one for each tensor of the inputs and of the outputs, `weights`, and
`workspace`, the function's frame, whose layout `relay.memory` plans. Between the two groups stand

- first of all `depth`, in functions that call themselves, directly or not: how many calls may
  still be nested. At 0 a function does nothing but set `status`;
- `status` before `weights`, in functions that may come to such a call: a byte, not zero once a run
  has to stop. What follows a call that may set it is skipped then. In `main` it lies in the
  workspace.

A function with tail calls becomes a loop: its changing parameters are copied to the frame, and
`again`, a byte behind the frame's tensors, says whether there is another turn.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from minitvm.errors import LoweringError, OptionError
from minitvm.origin import Origin, merge_all, origin
from minitvm.relay.calls import call_graph
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
    Var,
    tensor_type,
    walk_bindings,
)
from minitvm.relay.memory import MemoryPlan
from minitvm.relay.memory_plan import ALIGNMENT, is_view, output_tensors
from minitvm.relay.op import Op
from minitvm.tir import ir, walk
from minitvm.tir.call_graph import circles, in_circles, leading_to

RECURSION_LIMIT = 1000
"""How many calls may be nested unless the option `relay.recursion_limit` says otherwise."""

STOPPED = 1
"""What `status` is where calls were nested too deeply."""


@dataclass(frozen=True, slots=True)
class LoweredProgram:
    """`main` and the functions in tir, the constants they address, the kernels that copy, and where
    in the workspace `main` keeps `status`, if it needs it."""

    main: ir.PrimFunc
    functions: tuple[ir.PrimFunc, ...]
    weights: np.ndarray
    copy_kernels: tuple[ir.PrimFunc, ...]
    status_offset: int | None
    recursion_limit: int


def lower_program(
    module: Module, plans: Mapping[str, MemoryPlan], symbols: Mapping[str, str],
    recursion_limit: object = RECURSION_LIMIT,
) -> LoweredProgram:
    """`main` and the functions with constant addresses; `symbols` are the names of kernels."""
    if not isinstance(recursion_limit, int) or recursion_limit < 1:
        raise OptionError(f"relay.recursion_limit is {recursion_limit!r}; it takes a positive "
                          f"integer")
    graph = call_graph(module)
    recursive = in_circles(graph)
    circle_of = {name: frozenset(group) for group in circles(graph) for name in group}
    program = _Program(module, plans, symbols, recursive, leading_to(graph, recursive), circle_of,
                       recursion_limit, _function_names(graph, symbols))
    functions = [program.function(name) for name in graph]
    weights = ir.buffer("weights", (max(program.weights.size, 1),), "uint8")
    sized = [_with_weights(func, program.weights.buffer, weights) for func in functions]
    status = _frame_layout(plans["main"], fallible="main" in program.fallible).status
    return LoweredProgram(sized[0], tuple(sized[1:]), program.weights.bytes(),
                          tuple(program.copies.values()), status, recursion_limit)


def _function_names(graph: Mapping[str, object], symbols: Mapping[str, str]) -> dict[str, str]:
    """The names of functions in tir: identifiers, and neither a kernel's nor those of copies."""
    names = {"main": "main"}
    taken = {"main", *symbols.values()}
    for name in graph:
        if name != "main":
            base = re.sub(r"\W", "_", name, flags=re.ASCII)
            if not base.isidentifier() or base.startswith("copy_"):
                base = f"function_{base}"
            found, count = base, 0
            while found in taken:
                count += 1
                found = f"{base}_{count}"
            names[name] = found
            taken.add(found)
    return names


# --- memory -------------------------------------------------------------------------------------


class _Weights:
    """The constants of a program, each once, one behind the other."""

    def __init__(self) -> None:
        self.buffer = ir.buffer("weights", (1,), "uint8")
        self.size = 0
        self._offsets: dict[str, int] = {}
        self._parts: list[np.ndarray] = []

    def place(self, constant: Constant) -> int:
        """The offset of a constant."""
        digest = constant.digest()
        if digest not in self._offsets:
            self._offsets[digest] = self.size
            data = np.ascontiguousarray(constant.data).reshape(-1).view(np.uint8)
            self._parts += [data, np.zeros(-data.size % ALIGNMENT, np.uint8)]
            self.size += data.size + self._parts[-1].size
        return self._offsets[digest]

    def bytes(self) -> np.ndarray:
        """All of them."""
        return np.concatenate(self._parts) if self._parts else np.zeros(0, np.uint8)


def _with_weights(func: ir.PrimFunc, old: ir.Buffer, new: ir.Buffer) -> ir.PrimFunc:
    """The function with the weights at their final size, known once all are placed."""

    def swap(expr: ir.Expr) -> ir.Expr:
        match expr:
            case ir.Address(buffer, offset) if buffer is old:
                return ir.Address(new, offset)
            case ir.Load(buffer, indices) if buffer is old:
                return ir.Load(new, indices)
            case _:
                return expr

    body = walk.rewrite_statement(func.body, expr_rule=lambda expr: walk.rewrite(expr, swap))
    params = tuple(new if param is old else param for param in func.params)
    return replace(func, params=params, body=body)


@dataclass(frozen=True, slots=True)
class _Frame:
    """The size of a frame, and the places of its flags behind the planned tensors."""

    size: int
    status: int | None
    again: int | None


def _frame_layout(plan: MemoryPlan, fallible: bool = False, loop: bool = False) -> _Frame:
    """`fallible`: there is a `status` in the frame; `loop`: there is an `again`."""
    if not fallible and not loop:
        return _Frame(plan.workspace_bytes, None, None)
    start = _aligned(plan.workspace_bytes)
    return _Frame(start + ALIGNMENT, start if fallible else None, start + 1 if loop else None)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


class _Places:
    """Where the atoms of a function lie: in inputs, outputs, the weights or the frame."""

    def __init__(self, function: Function, plan: MemoryPlan, weights: _Weights,
                 frame: _Frame) -> None:
        self._plan, self._weights = plan, weights
        leaves = [leaf for param in function.params for leaf in plan.leaves(param)]
        kinds = {leaf: tensor_type(leaf) for leaf in leaves if isinstance(leaf, Var)}
        self.inputs = {leaf: ir.buffer(leaf.name, (kind.elements(),), kind.dtype)
                       for leaf, kind in kinds.items()}
        names = function.attrs.get("output_names")
        self.outputs = [ir.buffer(name, (kind.elements(),), kind.dtype)
                        for name, kind in output_tensors(function.result_type, names)]
        self.workspace = ir.buffer("workspace", (max(frame.size, 1),), "uint8")

    def source(self, atom: Atom) -> Origin:
        """Where an atom that is copied to an output comes from."""
        return atom.origin if isinstance(atom, Constant) and atom.origin else origin(str(atom))

    def place(self, atom: Atom) -> tuple[ir.Buffer, int]:
        """The buffer that a tensor lies in, and the offset."""
        root = self._plan.root(atom)
        match root:
            case Constant():
                return self._weights.buffer, self._weights.place(root)
            case Var() if root in self._plan.slots:
                return self.workspace, self._plan.offsets[root]
            case Var() if root in self.inputs:
                return self.inputs[root], 0
            case Var() if root in self._plan.outputs:
                return self.outputs[self._plan.outputs[root]], 0
            case Var() if root in self._plan.offsets:
                return self.workspace, self._plan.offsets[root]
        raise LoweringError(f"{root} has no place in memory")

    def address(self, atom: Atom) -> ir.Address:
        """The address of a tensor."""
        buffer, offset = self.place(atom)
        return ir.Address(buffer, ir.Const(offset))

    def flag(self, atom: Atom) -> ir.Expr:
        """Whether a bool of rank 0 is set."""
        buffer, offset = self.place(atom)
        loaded = ir.Load(buffer, (ir.Const(offset),))
        return loaded if buffer.dtype == "bool" else _is_set(loaded)


def _is_set(loaded: ir.Load) -> ir.Expr:
    return ir.Compare("ne", loaded, ir.Const(0, "uint8"))


def copy_kernel(size: int) -> ir.PrimFunc:
    """A kernel that copies `size` bytes."""
    source, result = (ir.buffer(name, (size,), "uint8") for name in ("source", "result"))
    i = ir.Var("i")
    here = origin("copy")
    store = ir.Store(result, (i,), ir.Load(source, (i,)), here)
    loop = ir.For(i, ir.Const(0), ir.Const(size), "serial", store, here)
    return ir.PrimFunc(f"copy_{size}_bytes", (source, result), loop)


# --- functions ----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Program:
    """What the functions of a program share. `fallible` functions may come to a call that is nested
    too deeply."""

    module: Module
    plans: Mapping[str, MemoryPlan]
    symbols: Mapping[str, str]
    recursive: frozenset[str]
    fallible: frozenset[str]
    circle_of: Mapping[str, frozenset[str]]
    recursion_limit: int
    names: Mapping[str, str]
    weights: _Weights = field(default_factory=_Weights)
    copies: dict[str, ir.PrimFunc] = field(default_factory=dict)

    def function(self, name: str) -> ir.PrimFunc:
        """One function in tir."""
        function, plan = self.module.functions[name], self.plans[name]
        own_status = name == "main" and name in self.fallible
        frame = _frame_layout(plan, own_status, bool(plan.moves))
        places = _Places(function, plan, self.weights, frame)
        return _Writer(self, name, function, plan, places, frame).function_tir()

    def copy(self, source: ir.Address, target: ir.Address, size: int, where: Origin) -> ir.Stmt:
        """A call of the kernel that copies so many bytes."""
        kernel = copy_kernel(size)
        self.copies.setdefault(kernel.name, kernel)
        return ir.Invoke(kernel.name, (source, target), where)


_Statements = list[tuple[ir.Stmt, bool]]
"""Statements, each with whether it may set `status`."""


class _Writer:
    """Writes one function."""

    def __init__(self, program: _Program, name: str, function: Function, plan: MemoryPlan,
                 places: _Places, frame: _Frame) -> None:
        self.program, self.name, self.function = program, name, function
        self.plan, self.places, self.frame = plan, places, frame
        self.depth = ir.Var("depth") if name in program.recursive else None
        self.status: ir.Buffer | None = None
        if name in program.fallible:
            own = frame.status is not None
            self.status = places.workspace if own else ir.buffer("status", (1,), "uint8")

    def function_tir(self) -> ir.PrimFunc:
        """The whole function."""
        places, status = self.places, self.status
        body = self.body()
        passed = () if status is None or status is places.workspace else (status,)
        depth = () if self.depth is None else (self.depth,)
        params = (*depth, *places.inputs.values(), *places.outputs, *passed,
                  self.program.weights.buffer, places.workspace)
        attrs = {} if self.name == "main" else {"may_alias": True}
        return ir.PrimFunc(self.program.names[self.name], params, body, attrs)

    def body(self) -> ir.Stmt:
        where = self.origin()
        turn = self.guarded(self.block(self.function.body))
        body = [turn] if not self.plan.moves else self.loop(turn, where)
        for atom, index in self.plan.copies:
            target = ir.Address(self.places.outputs[index], ir.Const(0))
            size = tensor_type(atom).size_bytes()
            source = self.places.address(atom)
            body.append(self.program.copy(source, target, size, self.places.source(atom)))
        if self.status is self.places.workspace:
            body.insert(0, self.set_status(0, where))
        whole = ir.seq(*body)
        if self.depth is None:
            return whole
        return ir.If(self.depth > 0, whole, self.set_status(STOPPED, where), where)

    def origin(self) -> Origin:
        """All that the function computes, for what belongs to no binding."""
        if self.depth is None and self.status is None and not self.plan.moves:
            return origin(self.name)
        found = merge_all(binding.origin for binding in walk_bindings(self.function.body))
        return found or origin(self.name)

    def loop(self, turn: ir.Stmt, where: Origin) -> list[ir.Stmt]:
        """The turns of a function with tail calls."""
        flag = self.places.workspace, (ir.Const(self.frame.again or 0),)
        enter: list[ir.Stmt] = []
        for slot in self.plan.slots:
            source = ir.Address(self.places.inputs[slot], ir.Const(0))
            size = tensor_type(slot).size_bytes()
            enter.append(self.program.copy(source, self.places.address(slot), size, where))
        one, zero = (ir.Const(value, "uint8") for value in (1, 0))
        enter.append(ir.Store(*flag, one, where))
        body = ir.seq(ir.Store(*flag, zero, where), turn)
        return [*enter, ir.While(_is_set(ir.Load(*flag)), body, where)]

    def set_status(self, value: int, where: Origin) -> ir.Stmt:
        assert self.status is not None
        index = (ir.Const(self.frame.status or 0),)
        return ir.Store(self.status, index, ir.Const(value, "uint8"), where)

    # --- blocks ---------------------------------------------------------------------------------

    def block(self, block: Block) -> _Statements:
        """The statements of a block."""
        return [item for binding in block.bindings for item in self.binding(binding)]

    def guarded(self, statements: _Statements) -> ir.Stmt:
        """The statements, where those behind one that may set `status` are skipped if it did."""
        pieces: list[list[ir.Stmt]] = [[]]
        for statement, fallible in statements:
            pieces[-1].append(statement)
            if fallible:
                pieces.append([])
        first, *rest = (ir.seq(*piece) for piece in pieces)
        if not rest:
            return first
        assert self.status is not None
        loaded = ir.Load(self.status, (ir.Const(self.frame.status or 0),))
        going = ir.Compare("eq", loaded, ir.Const(0, "uint8"))
        guarded = (ir.If(going, piece) for piece in rest if not _does_nothing(piece))
        return ir.seq(first, *guarded)

    def binding(self, binding: Binding) -> _Statements:
        """The statements of one binding."""
        match binding.value:
            case Call() as call if is_view(call, self.program.module):
                return []
            case Call(GlobalVar(), arguments) if binding.var in self.plan.moves:
                return self.jump(binding)
            case Call(GlobalVar(callee), arguments):
                results = self.plan.results(binding.var)
                read = [leaf for atom in arguments for leaf in self.plan.leaves(atom)]
                addresses = tuple(self.places.address(atom) for atom in (*read, *results))
                return [self.call(callee, addresses, binding.origin)]
            case Call(Op(name=name)):
                raise LoweringError(
                    f"{binding.var.name} in {self.name} ({binding.origin}) calls the operator "
                    f"{name}, which is in no kernel; the pass FuseOps puts every operator into "
                    f"one, and can't be disabled"
                )
            case If() as value:
                return [self.branches(binding, value)]
            case _:
                return []

    def call(self, callee: str, addresses: tuple[ir.Expr, ...],
             where: Origin) -> tuple[ir.Stmt, bool]:
        """A call of a kernel or a function, and whether it may set `status`."""
        program = self.program
        if program.module.functions[callee].is_primitive:
            return ir.Invoke(program.symbols[callee], addresses, where), False
        arguments = addresses
        if callee in program.recursive:
            depth: ir.Expr = ir.Const(program.recursion_limit)
            if self.depth is not None and callee in program.circle_of[self.name]:
                depth = self.depth - 1
            arguments = (depth, *arguments)
        if callee in program.fallible:
            assert self.status is not None
            arguments += (ir.Address(self.status, ir.Const(self.frame.status or 0)),)
        behind = _aligned(max(self.frame.size, 1))
        arguments += (ir.Address(program.weights.buffer, ir.Const(0)),
                      ir.Address(self.places.workspace, ir.Const(behind)))
        return ir.Invoke(program.names[callee], arguments, where), callee in program.fallible

    def branches(self, binding: Binding, value: If) -> tuple[ir.Stmt, bool]:
        parts = []
        for block, copies in zip((value.then_block, value.else_block),
                                 self.plan.branch_copies[binding.var], strict=True):
            statements = self.block(block)
            statements += [(self.copy(source, target, binding.origin), False)
                           for source, target in copies]
            parts.append(statements)
        fallible = any(failing for statements in parts for _, failing in statements)
        then_body, else_body = map(self.guarded, parts)
        condition = self.places.flag(value.condition)
        other = None if _does_nothing(else_body) else else_body
        return ir.If(condition, then_body, other, binding.origin), fallible

    def copy(self, source: Atom, target: Var, where: Origin) -> ir.Stmt:
        size = tensor_type(target).size_bytes()
        return self.program.copy(self.places.address(source), self.places.address(target), size,
                                 where)

    def jump(self, binding: Binding) -> _Statements:
        """The copies for the next turn, and that there is one."""
        copies = [self.copy(source, target, binding.origin)
                  for source, target in self.plan.moves[binding.var]]
        index = (ir.Const(self.frame.again or 0),)
        again = ir.Store(self.places.workspace, index, ir.Const(1, "uint8"), binding.origin)
        return [(statement, False) for statement in (*copies, again)]


def _does_nothing(statement: ir.Stmt) -> bool:
    return isinstance(statement, ir.Evaluate) and isinstance(statement.value, ir.Const)
