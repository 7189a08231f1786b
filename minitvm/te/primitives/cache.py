"""cache_read, cache_write: new stages that copy what is read, or compute what is then copied."""

from __future__ import annotations

from minitvm.origin import Origin, merge_all
from minitvm.te.attach import attached_to
from minitvm.te.primitives.checks import (
    attempt,
    check_compute,
    check_places,
    check_unscheduled_space,
    find_stage,
    operation,
)
from minitvm.te.primitives.place import SCOPES
from minitvm.te.show import refuse
from minitvm.te.stage import Stage, StageGraph, loops_of, unique_name
from minitvm.te.steps import CacheRead, CacheWrite
from minitvm.te.tensor import Compute, IterVar, Tensor
from minitvm.tir import walk
from minitvm.tir.ir import Const, Expr, Read, Var


def apply_cache_write(graph: StageGraph, step: CacheWrite) -> tuple[Tensor, ...]:
    """A new stage takes over the computation, with axes of its own; the old one copies.

    The new stage has the reduce axes; it starts at the root. This must come before the stage's
    loops are changed.

    Step: s.cache_write(B, "local")
    Before:
        for i in range(10):
            B[i] = A[i] + 1.0
    After:
        B_local = allocate((10,), "float32", scope="local")
        for i_c in range(10):
            B_local[i_c] = A[i_c] + 1.0
        for i in range(10):
            B[i] = B_local[i]
    """
    action = f"cache_write({step.scope})"
    stage = find_stage(graph, step.stage, action)
    _check_scope(graph, stage, step.scope, action)
    check_compute(graph, stage, action)
    if stage.attach == "inline":
        refuse(graph, stage, action, "it is computed inline and has no memory",
               ["compute_root first"])
    if stage.leaves != loops_of(stage.op) or attached_to(graph, stage):
        refuse(graph, stage, action, "its loops are already scheduled; cache_write comes first",
               ["cache_write first"])
    check_unscheduled_space(graph, stage, action, "cache_write")
    op = operation(stage)
    name = unique_name(f"{stage.name}.{step.scope}", graph.by_name)
    axes = tuple(_renamed(axis, f"{axis.name}.c") for axis in op.axis)
    points: dict[Var, Expr] = {old.var: new.var for old, new in zip(op.axis, axes)}
    bodies = tuple(walk.substitute(body, points) for body in op.bodies)
    cache = Compute(name, axes, op.reduce_axis, bodies, op.tag, op.attrs, op.origin)
    tensors = tuple(
        Tensor(cache, index, tuple(axis.extent for axis in axes), body.dtype)
        for index, body in enumerate(bodies)
    )
    indices = tuple(axis.var for axis in op.axis)
    copy = Compute(op.name, op.axis, (), tuple(Read(tensor, indices) for tensor in tensors),
                   "", {}, op.origin)
    with attempt(graph, stage, action, stage):
        added = graph.add(cache, graph.stages.index(stage))
        added.scope = step.scope
        stage.reset(copy)
        graph.by_op[copy] = stage
        graph.changed(added)
        graph.changed(stage)
        graph.place_in_scan(added)
        check_places(graph)
    return tensors


def apply_cache_read(graph: StageGraph, step: CacheRead) -> Tensor:
    """A new stage copies a tensor, and the given readers read the copy; it starts at the root.

    Step: s.cache_read(A, "local", [B])
    Before:
        for i in range(10):
            B[i] = A[i] + 1.0
    After:
        A_local = allocate((10,), "float32", scope="local")
        for ax0 in range(10):
            A_local[ax0] = A[ax0]
        for i in range(10):
            B[i] = A_local[i] + 1.0
    """
    action = f"cache_read({step.stage}, {step.scope})"
    source = graph.by_name.get(step.stage)
    if source is None:
        refuse(graph, step.stage, action, "there is no such stage", graph.by_name)
    _check_scope(graph, source, step.scope, action)
    if source in graph.owners and not source.is_input:
        refuse(graph, source, action, "it is a part of a scan, whose memory its readers share",
               [f"cache_read of {graph.owners[source][0].name}"])
    readers = [find_stage(graph, name, action) for name in step.readers]
    actual = [other for other in graph.readers(source)
              if any(_is_output_of(graph, source, step.index, tensor) for tensor in other.reads)]
    for reader in readers:
        if reader not in actual:
            refuse(graph, source, action, f"{reader.name} does not read it",
                   [other.name for other in actual])
    if not readers:
        refuse(graph, source, action, "it needs at least one reader",
               [other.name for other in actual])
    tensor = _tensor_of(graph, source, step.index, readers[0])
    copy = _copy(unique_name(f"{source.name}.{step.scope}", graph.by_name), tensor,
                 merge_all([operation(reader).origin for reader in readers]))
    result = Tensor(copy, 0, tensor.shape, tensor.dtype)
    with attempt(graph, source, action, *readers):
        added = graph.add(copy, graph.stages.index(source) + 1)
        added.scope = step.scope
        for reader in readers:
            _redirect(graph, reader, source, step.index, result)
        graph.place_in_scan(added)
        check_places(graph)
    return result


def _copy(name: str, tensor: Tensor, origin: Origin) -> Compute:
    axes = tuple(
        IterVar(Var(f"ax{position}", extent.dtype), Const(0, extent.dtype), extent)
        for position, extent in enumerate(tensor.shape)
    )
    value = Read(tensor, tuple(axis.var for axis in axes))
    return Compute(name, axes, (), (value,), "", {}, origin)


def _redirect(
    graph: StageGraph, reader: Stage, source: Stage, index: int, replacement: Tensor
) -> None:
    """Makes `reader` read `replacement` where it read output `index` of `source`."""

    def replace(node: Expr) -> Expr:
        if isinstance(node, Read) and _is_output_of(graph, source, index, node.tensor):
            return Read(replacement, node.indices)
        return node

    op = operation(reader)
    bodies = tuple(walk.rewrite(body, replace) for body in op.bodies)
    changed = Compute(op.name, op.axis, op.reduce_axis, bodies, op.tag, op.attrs, op.origin)
    reader.replace_body(changed)
    graph.by_op[changed] = reader
    graph.changed(reader)


def _is_output_of(graph: StageGraph, source: Stage, index: int, tensor: Tensor) -> bool:
    return graph.by_op[tensor.op] is source and tensor.index == index


def _tensor_of(graph: StageGraph, source: Stage, index: int, reader: Stage) -> Tensor:
    return next(tensor for tensor in reader.reads if _is_output_of(graph, source, index, tensor))


def _renamed(axis: IterVar, name: str) -> IterVar:
    return IterVar(Var(name, axis.var.dtype), axis.start, axis.extent, axis.kind)


def _check_scope(graph: StageGraph, stage: Stage, scope: str, action: str) -> None:
    if scope not in SCOPES:
        refuse(graph, stage, action, f"{scope!r} is no scope", SCOPES)
