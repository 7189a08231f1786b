"""Tensor intrinsics: what a piece of hand-written tir computes, for `tensorize`.

    a = te.placeholder((1,), name="a")
    b = te.placeholder((1, 8), name="b")
    k = te.reduce_axis((0, 1), name="k")
    c = te.compute((8,), lambda j: te.sum(a[k] * b[k, j], axis=k), name="c")

    def row_fma(ins, outs):
        (a, b), (c,) = ins, outs
        scale = ir.Broadcast(a[0], 8)
        update = c.vstore((0,), c.vload((0,), "float32x8") + scale * b.vload((0, 0), "float32x8"))
        reset = c.vstore((0,), ir.Broadcast(ir.Const(0.0, "float32"), 8))
        return None, reset, update

    fma = te.decl_tensor_intrin(c.op, row_fma, name="row_fma")
    s[C].tensorize(j_inner, fma)

The function takes a view of each input (in the order in which the compute reads them) and output,
and gives a statement; for a reduction, (body, reset, update): the whole of it, its start, and what
adds to what is there. `body` may be None: then it is reset and update. `reset` may be None: then
the identity is stored element by element.

A body that calls instructions of one machine (`tir.instructions`) says which `features` a target
must have; for other targets there may be `others`, else they are refused. Ready-made ones are in
`te.intrinsics`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from minitvm import dtypes
from minitvm.errors import LoweringError, ScheduleError
from minitvm.origin import NOWHERE, Origin
from minitvm.target import Target
from minitvm.te.tensor import Compute, as_expr
from minitvm.tir.instructions import describe
from minitvm.tir.ir import Broadcast, Buffer, Const, Expr, Load, Ramp, Reduce, Stmt, Store


@dataclass(frozen=True, slots=True)
class BufferView:
    """A tensor of an intrinsic where it lies in a buffer: element (0, ...) is at `base`; dimension
    d runs along dimension `dimensions[d]` of the buffer (None: it has but one element)."""

    name: str
    buffer: Buffer
    shape: tuple[int, ...]
    base: tuple[Expr, ...]
    dimensions: tuple[int | None, ...]
    origin: Origin = NOWHERE

    @property
    def dtype(self) -> str:
        """The dtype of an element."""
        return self.buffer.dtype

    def place(self, begin: Any) -> tuple[Expr, ...]:
        """The indices of an element in the buffer."""
        at = begin if isinstance(begin, tuple | list) else (begin,)
        if len(at) != len(self.shape):
            raise LoweringError(
                f"the intrinsic accesses {self.name}, which has {len(self.shape)} dimensions, with "
                f"{len(at)} indices"
            )
        indices = list(self.base)
        for index, dimension in zip(at, self.dimensions, strict=True):
            if dimension is not None:
                indices[dimension] = indices[dimension] + as_expr(index)
        return tuple(indices)

    def lanes(self, begin: Any, count: int) -> tuple[Expr, ...]:
        """The indices of a vector along the last dimension."""
        indices = self.place(begin)
        if count == 1:
            return indices
        if not self.dimensions or self.dimensions[-1] != len(self.buffer.shape) - 1:
            raise LoweringError(
                f"the intrinsic takes vectors of {self.name} along its last dimension, which does "
                f"not lie in one row of {self.buffer.name}"
            )
        last = indices[-1]
        return (*indices[:-1], Ramp(last, Const(1, last.dtype), count))

    def __getitem__(self, indices: Any) -> Expr:
        return Load(self.buffer, self.place(indices))

    def vload(self, begin: Any, dtype: str | None = None) -> Expr:
        """The elements from `begin` on, along the last dimension, as a vector of `dtype`."""
        element, count = dtypes.split(dtype or self.dtype)
        if element != self.dtype:
            raise LoweringError(f"the intrinsic loads {dtype} from {self.name}, of {self.dtype}")
        return Load(self.buffer, self.lanes(begin, count))

    def vstore(self, begin: Any, value: Any) -> Stmt:
        """Stores a scalar, or a vector along the last dimension."""
        expr = as_expr(value, self.dtype)
        return Store(self.buffer, self.lanes(begin, dtypes.lanes(expr.dtype)), expr, self.origin)

    def fill(self, value: Any) -> Stmt:
        """Stores one value in all of the last dimension (of a view of one dimension)."""
        scalar = as_expr(value, self.dtype)
        count = self.shape[-1]
        return self.vstore((0,) * len(self.shape),
                           scalar if count == 1 else Broadcast(scalar, count))


Views = Sequence[BufferView]
Parts = tuple[Stmt | None, Stmt | None, Stmt | None]


@dataclass(frozen=True, slots=True, eq=False)
class TensorIntrin:
    """`op` says what is computed, `function` how: see `decl_tensor_intrin`."""

    name: str
    op: Compute
    function: Callable[[Views, Views], Any]
    features: tuple[str, ...] = ()
    others: tuple[tuple[tuple[str, ...], Callable[[Views, Views], Any]], ...] = ()

    def versions(self) -> Iterator[TensorIntrin]:
        """With each of the bodies, in order of preference."""
        yield replace(self, others=())
        for features, function in self.others:
            yield replace(self, function=function, features=features, others=())

    def for_target(self, target: Target | None) -> TensorIntrin:
        """The same with the first body that a target can run; without a target, the first of all.

        Raises `LoweringError` if it can run none.
        """
        versions = tuple(self.versions())
        for version in versions:
            if target is None or not version.features or target.has_one(version.features):
                return version
        needed = dict.fromkeys(each for version in versions for each in version.features)
        raise LoweringError(
            f"the intrinsic {self.name} needs a target with {describe(tuple(needed))}; '{target}' "
            "lacks it: compile for one that has it, use another intrinsic, or declare this one "
            "with a body for any target"
        )

    @property
    def is_reduction(self) -> bool:
        """Whether it adds up."""
        return isinstance(self.op.bodies[0], Reduce)

    def parts(self, inputs: Views, outputs: Views) -> Parts:
        """(body, reset, update) on these views."""
        given = self.function(inputs, outputs)
        parts = given if isinstance(given, tuple) else (given,)
        if len(parts) > 3 or not all(part is None or isinstance(part, Stmt) for part in parts):
            raise LoweringError(
                f"the intrinsic {self.name} must give a statement, or (body, reset, update)"
            )
        body, reset, update = (*parts, None, None, None)[:3]
        return body, reset, update


INTRINSICS: dict[str, TensorIntrin] = {}
"""Those declared, by name: replaying a schedule finds them here."""


def decl_tensor_intrin(
    op: Any, fcompute: Callable[[Views, Views], Any], name: str = "tensor_intrin",
    features: Sequence[str] = (),
    others: Sequence[tuple[Sequence[str], Callable[[Views, Views], Any]]] = (),
) -> TensorIntrin:
    """Declares that `fcompute(inputs, outputs)` does what the compute `op` says, as in TVM.

    Shapes must be constant. A later intrinsic of the same name takes the place of an earlier one.
    features: sets of LLVM features, such as `["avx512vnni,avx512vl", "avxvnni"]`, of which a
    target must have one (none: any target will do). others: pairs of such features and a function
    like `fcompute`, for targets that lack those of all before.
    """
    if not isinstance(op, Compute):
        raise ScheduleError(f"the intrinsic {name} needs a compute that says what it does")
    extents = [axis.extent for axis in (*op.axis, *op.reduce_axis)]
    sizes = [extent for tensor in op.inputs for extent in tensor.shape]
    if not all(isinstance(extent, Const) for extent in (*extents, *sizes)):
        raise ScheduleError(f"the intrinsic {name} needs constant shapes")
    intrin = TensorIntrin(name, op, fcompute, tuple(features),
                          tuple((tuple(needed), function) for needed, function in others))
    INTRINSICS[name] = intrin
    return intrin
