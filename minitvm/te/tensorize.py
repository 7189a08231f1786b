"""Tensorize: whether the inner loops of a stage do what a tensor intrinsic does, and where.

    match(bounds, stage) -> Match       for inputs and outputs: where the views of them lie

The loops from the tensorized one inwards must run over a box, without a tail; its sides longer
than one must be those of the intrinsic, in order; and the body, with axes taken from the corner of
the box on, must be the intrinsic's up to the names of axes and tensors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import prod

from minitvm.errors import LoweringError
from minitvm.te.bounds import Bounds, Nest, infer_bounds
from minitvm.te.inline import expand
from minitvm.te.span import relax
from minitvm.te.stage import Stage, StageGraph
from minitvm.te.tensor import Compute, IterVar, Tensor
from minitvm.te.tensor_intrin import BufferView, TensorIntrin
from minitvm.tir import walk
from minitvm.tir.ir import (
    Binary,
    Buffer,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Read,
    Reduce,
    Reducer,
    Var,
)
from minitvm.tir.simplify import Analyzer


class MismatchError(Exception):
    """Why an intrinsic can't stand for some loops."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor of the intrinsic lies: see `BufferView`."""

    stage: Stage
    index: int
    base: tuple[Expr, ...]
    dimensions: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Match:
    """The places of inputs, in the intrinsic's order; for each output, the dimensions of its view,
    which starts where the inner loops are at zero."""

    intrin: TensorIntrin
    inputs: tuple[tuple[Tensor, Place], ...]
    output_dimensions: tuple[int | None, ...]
    inner: Mapping[Var, Expr]


def match(bounds: Bounds, stage: Stage) -> Match:
    """How the intrinsic of a tensorized stage stands for its loops; raises `MismatchError`."""
    return _Matcher(bounds, bounds.nests[stage]).match()


def mismatch(graph: StageGraph, stage: Stage) -> str | None:
    """Why the tensorized stage can't be lowered as things are; None if it can."""
    bounds = infer_bounds(graph)
    try:
        found = match(bounds, stage)
        _try_body(bounds, stage, found)
    except (MismatchError, LoweringError) as error:
        return str(error)
    return None


def _try_body(bounds: Bounds, stage: Stage, found: Match) -> None:
    """Calls the intrinsic's function as lowering will; raises `LoweringError`."""

    def view(tensor: Tensor, name: str, base: tuple[Expr, ...],
             dimensions: tuple[int | None, ...], dtype: str) -> BufferView:
        buffer = Buffer(name, base, dtype)  # its shape's length is all that counts here
        return BufferView(name, buffer, tensor.extents(), base, dimensions)

    op = bounds.nests[stage].op
    assert isinstance(op, Compute)
    inputs = [view(tensor, tensor.name, place.base, place.dimensions, tensor.dtype)
              for tensor, place in found.inputs]
    base = tuple(axis.var for axis in op.axis)
    outputs = [view(tensor, tensor.name, base, found.output_dimensions, tensor.dtype)
               for tensor in outputs_of(found.intrin)]
    for version in found.intrin.versions():
        body, _, update = version.parts(inputs, outputs)
        if has_outer_reduction(stage):
            if update is None:
                raise MismatchError(
                    "a reduce loop stands outside of it, and the intrinsic has no update to add "
                    "to what is there"
                )
        elif body is None and (update is None or not version.is_reduction):
            raise MismatchError("the intrinsic gives no body")


def outputs_of(intrin: TensorIntrin) -> list[Tensor]:
    """The tensors that an intrinsic computes."""
    op = intrin.op
    shape = tuple(axis.extent for axis in op.axis)
    return [Tensor(op, index, shape, body.dtype) for index, body in enumerate(op.bodies)]


def has_outer_reduction(stage: Stage) -> bool:
    """Whether a tensorized stage reduces in loops outside of the intrinsic."""
    assert stage.tensorized is not None
    outer = stage.leaves[: stage.position(stage.tensorized[0])]
    return any(leaf.kind == "reduce" for leaf in outer)


@dataclass(slots=True)
class _Matcher:
    bounds: Bounds
    nest: Nest
    inner: dict[Var, Expr] = field(default_factory=dict)
    local: set[Var] = field(default_factory=set)
    places: dict[Tensor, Place] = field(default_factory=dict)

    @property
    def analyzer(self) -> Analyzer:
        return self.bounds.analyzer

    def match(self) -> Match:
        stage, op = self.nest.stage, self.nest.op
        assert stage.tensorized is not None and isinstance(op, Compute)
        axis, intrin = stage.tensorized
        inner_leaves = stage.leaves[stage.position(axis) :]
        extents = {self.nest.variables[leaf]: self.nest.extents[leaf] for leaf in inner_leaves}
        moving = {var: extent for var, extent in extents.items()
                  if isinstance(var, Var) and isinstance(extent, int)}
        if len(moving) < sum(isinstance(var, Var) for var in extents):
            raise MismatchError("the extent of a loop is known only when the code runs")
        self.inner = {var: Const(0, var.dtype) for var in moving}
        self._check_tails(moving)
        sides = self._sides(op, moving)
        points = self._pair_axes(op, intrin, sides)
        self._match_bodies(op, intrin, points)
        for tensor in intrin.op.inputs:
            self._check_input(tensor)
        dimensions = self._output_dimensions(op, intrin, sides)
        return Match(intrin, tuple((t, self.places[t]) for t in intrin.op.inputs), dimensions,
                     self.inner)

    # --- the box --------------------------------------------------------------------------------

    def _check_tails(self, moving: Mapping[Var, object]) -> None:
        for guard in self.nest.guards:
            depends = any(node in moving for node in walk.walk(guard))
            if depends and not self.analyzer.prove(guard):
                raise MismatchError(
                    "its loops have a tail, which the intrinsic would run over; split by a factor "
                    "that divides"
                )

    def _sides(self, op: Compute, moving: Mapping[Var, int]) -> dict[IterVar, int]:
        """How far each axis runs in the inner loops."""
        sides = {}
        for axis in (*op.axis, *op.reduce_axis):
            span = relax(self.nest.values[axis], moving, self.analyzer)
            if span is None:
                raise MismatchError(f"axis {axis.name} does not run over a row there")
            sides[axis] = span.width + 1
        if prod(sides.values()) != prod(max(extent, 1) for extent in moving.values()):
            raise MismatchError("its loops do not run over a box of the axes")
        return sides

    def _pair_axes(
        self, op: Compute, intrin: TensorIntrin, sides: Mapping[IterVar, int]
    ) -> dict[Var, Expr]:
        """Each axis of the stage, in terms of the intrinsic's axes."""
        points = {
            axis.var: self._at_corner(self.nest.points[axis.var])
            for axis in (*op.axis, *op.reduce_axis)
        }
        for kind, own, wanted in (("spatial", op.axis, intrin.op.axis),
                                  ("reduce", op.reduce_axis, intrin.op.reduce_axis)):
            long = [axis for axis in own if sides[axis] > 1]
            theirs = [axis for axis in wanted if _size(axis) > 1]
            if [sides[axis] for axis in long] != [_size(axis) for axis in theirs]:
                raise MismatchError(
                    f"its inner {kind} loops run over {[sides[axis] for axis in long]}, the "
                    f"intrinsic over {[_size(axis) for axis in theirs]}"
                )
            for axis, other in zip(long, theirs, strict=True):
                self.analyzer.bind(other.var, other.start, other.extent)
                self.local.add(other.var)
                points[axis.var] = points[axis.var] + (other.var - other.start)
        return points

    def _at_corner(self, expr: Expr) -> Expr:
        return self.analyzer.simplify(walk.substitute(expr, self.inner))

    def _output_dimensions(
        self, op: Compute, intrin: TensorIntrin, sides: Mapping[IterVar, int]
    ) -> tuple[int | None, ...]:
        long = [position for position, axis in enumerate(op.axis) if sides[axis] > 1]
        self._check_memory(self.nest.stage, long)
        remaining = iter(long)
        return tuple(next(remaining) if _size(axis) > 1 else None for axis in intrin.op.axis)

    # --- the body -------------------------------------------------------------------------------

    def _match_bodies(
        self, op: Compute, intrin: TensorIntrin, points: Mapping[Var, Expr]
    ) -> None:
        if len(op.bodies) != len(intrin.op.bodies):
            raise MismatchError(
                f"it computes {len(op.bodies)} outputs, the intrinsic {len(intrin.op.bodies)}"
            )
        short: dict[Var, Expr] = {
            axis.var: axis.start
            for axis in (*intrin.op.axis, *intrin.op.reduce_axis) if _size(axis) == 1
        }
        for mine, theirs in zip(op.bodies, intrin.op.bodies, strict=True):
            expanded = expand(mine, points, self.bounds.graph, self.analyzer).value
            self._same(walk.substitute(theirs, short), expanded)

    def _same(self, theirs: Expr, mine: Expr) -> None:
        """Raises unless the two agree, up to tensors and names of axes."""
        if isinstance(theirs, Read) and isinstance(mine, Read):
            self._same_read(theirs, mine)
            return
        if isinstance(theirs, Reduce) and isinstance(mine, Reduce):
            self._same_reduce(theirs, mine)
            return
        if theirs == mine or self._is_same_index(theirs, mine):
            return
        inside, others = walk.children(theirs), walk.children(mine)
        if _head(theirs) != _head(mine) or len(inside) != len(others) or not inside:
            raise MismatchError("its body is not that of the intrinsic")
        for a, b in zip(inside, others, strict=True):
            self._same(a, b)

    def _is_same_index(self, theirs: Expr, mine: Expr) -> bool:
        if theirs.dtype != mine.dtype or theirs.dtype not in ("int32", "int64"):
            return False
        return self.analyzer.simplify(theirs - mine) == Const(0, theirs.dtype)

    def _same_reduce(self, theirs: Reduce, mine: Reduce) -> None:
        if mine.init or not same_reducer(theirs, mine) or theirs.index != mine.index:
            raise MismatchError("it does not reduce as the intrinsic does")
        if (theirs.where is None) != (mine.where is None):
            raise MismatchError("one of the two reduces under a condition")
        for a, b in zip(walk.children(theirs), walk.children(mine), strict=True):
            self._same(a, b)

    def _same_read(self, theirs: Read, mine: Read) -> None:
        """Notes where the intrinsic's tensor lies, from one read of it."""
        tensor: Tensor = theirs.tensor
        indices = tuple(map(self.analyzer.simplify, mine.indices))
        own = [at for at, index in enumerate(indices) if self._is_local(index)]
        shape = tensor.extents()
        long = [at for at, extent in enumerate(shape) if extent > 1]
        if tensor.dtype != mine.dtype or len(own) != len(long):
            raise MismatchError(
                f"its read of {mine.tensor.name} is not like that of {tensor.name} in the intrinsic"
            )
        base, dimensions = list(indices), list[int | None]([None] * len(shape))
        for at, position in zip(own, long, strict=True):
            offset = self.analyzer.simplify(indices[at] - theirs.indices[position])
            interval = self.analyzer.interval(theirs.indices[position])
            whole = (interval.low, interval.high) == (0, shape[position] - 1)
            if self._is_local(offset) or not whole:
                raise MismatchError(
                    f"its read of {mine.tensor.name} does not run like that of {tensor.name} in "
                    f"the intrinsic"
                )
            base[at], dimensions[position] = offset, at
        stage = self.bounds.graph.by_op[mine.tensor.op]
        place = Place(stage, mine.tensor.index, tuple(base), tuple(dimensions))
        if self.places.setdefault(tensor, place) != place:
            raise MismatchError(f"it reads {mine.tensor.name} at two places for {tensor.name}")

    def _is_local(self, expr: Expr) -> bool:
        return any(node in self.local for node in walk.walk(expr) if isinstance(node, Var))

    def _check_input(self, tensor: Tensor) -> None:
        if tensor not in self.places:
            raise MismatchError(f"it reads nothing for {tensor.name} of the intrinsic")
        place = self.places[tensor]
        self._check_memory(place.stage, place.dimensions)

    def _check_memory(self, stage: Stage, dimensions: Collection[int | None]) -> None:
        nest = self.bounds.nests.get(stage)
        if nest is not None and nest.roll is not None and nest.roll.dimension in dimensions:
            raise MismatchError(f"the memory of {stage.name} goes round in a rolling buffer")
        if stage.storage is not None:
            raise MismatchError(f"reorder_storage moves the dimensions of {stage.name} in memory")
        op = stage.op
        rank = len(op.axis) if isinstance(op, Compute) else 0
        if stage.alignment is not None and stage.alignment[0] < rank - 2:
            raise MismatchError(
                f"storage_align joins the inner dimensions of {stage.name} in memory"
            )


def _size(axis: IterVar) -> int:
    assert isinstance(axis.extent, Const)
    return int(axis.extent.value)


def _head(expr: Expr) -> tuple[object, ...]:
    """What an expression is, its operands apart."""
    match expr:
        case Binary(op) | Compare(op):
            return (type(expr), op, expr.dtype)
        case Call(name):
            return (Call, name, expr.dtype)
        case Cast(dtype):
            return (Cast, dtype)
    return (type(expr), expr.dtype)


def same_reducer(a: Reduce, b: Reduce) -> bool:
    """Whether two reductions combine alike, and from the same start."""
    element_dtypes = tuple(source.dtype for source in a.sources)
    if element_dtypes != tuple(source.dtype for source in b.sources):
        return False
    left = tuple(Var("left", dtype) for dtype in element_dtypes)
    right = tuple(Var("right", dtype) for dtype in element_dtypes)

    def meaning(reducer: Reducer) -> tuple[object, object]:
        return reducer.combine(left, right), reducer.identity(element_dtypes)

    return meaning(a.reducer) == meaning(b.reducer)
