"""Lowering: a schedule to a nested tir function.

    A = te.placeholder((10,), name="A")
    B = te.compute((10,), lambda i: A[i] + 1.0, name="B")
    s = te.create_schedule(B)
    s[B].split(B.op.axis[0], factor=4)
    te.lower(s, [A, B]):
        for i_outer in range(3):
            for i_inner in range(4):
                if likely(i_outer * 4 + i_inner < 10):
                    B[i_outer * 4 + i_inner] = A[i_outer * 4 + i_inner] + 1.0

Each stage becomes the loops of its leaves. A stage computed at a loop stands first in that loop's
body, its memory allocated around it, as large as its region there (`te.memory`, `te.nest_writer`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minitvm.errors import LoweringError
from minitvm.target import Target
from minitvm.te.bounds import infer_bounds
from minitvm.te.memory import Memory
from minitvm.te.nest_writer import Layer, NestWriter, allocation, wrap
from minitvm.te.schedule import Schedule
from minitvm.te.stage import Stage, StageGraph
from minitvm.te.tensor import Compute, Tensor
from minitvm.tir import ir, walk
from minitvm.tir.ir import Buffer, PrimFunc, Stmt, Var


def lower(
    s: Schedule, args: Sequence[Tensor | Var], name: str = "main", simple: bool = False,
    target: Target | None = None,
) -> PrimFunc:
    """The nested function whose parameters are `args`: the inputs and outputs of `s`.

    Sizes and other scalars (`te.var`) are parameters too: those that `args` lacks come first.
    `simple` is there for those who know it: the nested function already is the short form.
    `target` chooses between the bodies of tensor intrinsics; nothing else depends on it.
    Raises `LoweringError` if `args` lacks an input or an output, or holds what has no memory.
    """
    _refuse_threads(s.graph)
    lowering = _Lowering(Memory(infer_bounds(s.graph)), target)
    params = lowering.bind_parameters(args)
    return PrimFunc(name, params, lowering.function_body())


def _refuse_threads(graph: StageGraph) -> None:
    for stage in graph.stages:
        for axis, tag in stage.bindings.items():
            raise LoweringError(
                f"axis {stage.labels[axis]} of {stage.name} is bound to {tag}, and a CPU has no "
                f"such threads; use parallel or vectorize instead of bind"
            )


def scalars_of(graph: StageGraph) -> list[Var]:
    """The variables that the caller gives: sizes first, then those in bodies."""
    found = dict.fromkeys(graph.sizes)
    for stage in graph.stages:
        op = stage.op
        if isinstance(op, Compute):
            own = {axis.var for axis in (*op.axis, *op.reduce_axis)}
            for body in op.bodies:
                found.update((node, None) for node in walk.walk(body)
                             if isinstance(node, Var) and node not in own)
    return list(found)


@dataclass(frozen=True, slots=True)
class _Lowering:
    memory: Memory
    target: Target | None

    @property
    def graph(self) -> StageGraph:
        return self.memory.bounds.graph

    def bind_parameters(self, args: Sequence[Tensor | Var]) -> tuple[Buffer | Var, ...]:
        scalars = scalars_of(self.graph)
        params: list[Buffer | Var] = [scalar for scalar in scalars if scalar not in args]
        for argument in args:
            if isinstance(argument, Tensor):
                params.append(self.memory.bind(argument))
            elif argument in params:
                raise LoweringError(f"argument {argument.name} is given twice")
            else:
                params.append(argument)
        self.memory.check_complete()
        return tuple(params)

    def function_body(self) -> Stmt:
        """The stages at the root, one after the other."""
        return wrap(ir.seq(), [
            self.produce(stage) for stage in self.graph.stages
            if not stage.is_input and stage.attach == "root"
        ])

    def produce(self, stage: Stage) -> Layer:
        """The loops of a stage, put before what follows and into the memory of the stage."""
        buffers = self.memory.allocate(stage)
        nest = self.memory.bounds.nests[stage]
        computed = NestWriter(self.memory, nest, self.produce, self.target).write()

        memory = allocation(buffers, nest.origin)
        return lambda rest: memory(ir.seq(computed, rest))
