"""The families that operators come in: one base class for each way elements depend on inputs.

A member says what it does to an element twice, in numpy (`meaning`) and in te (`element`); its
family turns that into the type rule, the evaluation of arrays and the computation of tensors.

    Unary      y[i]    = f(x[i])
    Binary     z[i, j] = f(x[i, j], y[j])      numpy's broadcasting
    Comparison z[i, j] = f(x[i, j], y[j])      gives bool
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from minitvm import dtypes, te
from minitvm.relay.dim import Dim
from minitvm.relay.ir import TensorType
from minitvm.relay.op import Op, Pattern
from minitvm.tir import ir
from minitvm.tir.ir import Expr

FLOAT = ("float",)
INTEGER = ("int",)
NUMBER = ("float", "int")
BOOL = ("bool",)
ANY = ("float", "int", "bool")


def kind(dtype: str) -> str:
    """`float`, `int` (signed or not) or `bool`."""
    if dtypes.is_float(dtype):
        return "float"
    return "bool" if dtypes.is_bool(dtype) else "int"


def require_kind(op: Op, types: Sequence[TensorType], kinds: Sequence[str]) -> None:
    """Raises the operator's type error unless every dtype is of one of these kinds."""
    for position, given in enumerate(types):
        if kind(given.dtype) not in kinds:
            wanted = " or ".join(kinds)
            raise op.fail(tuple(types), f"argument {position} must be {wanted}, not {given.dtype}")


def require_one_dtype(op: Op, types: Sequence[TensorType]) -> str:
    """The common dtype of the arguments; raises the operator's type error if they differ."""
    found = types[0].dtype
    if any(given.dtype != found for given in types):
        raise op.fail(tuple(types), "the arguments must have one dtype; cast one of them")
    return found


# --- broadcasting -------------------------------------------------------------------------------


def broadcast_shapes(op: Op, types: Sequence[TensorType]) -> tuple[Dim, ...]:
    """The shape that numpy's rule gives for all arguments together."""
    rank = max(given.rank for given in types)
    result: list[Dim] = [1] * rank
    for given in types:
        for position, dim in enumerate(given.shape, rank - given.rank):
            if result[position] == 1:
                result[position] = dim
            elif dim != 1 and dim != result[position]:
                raise op.fail(
                    tuple(types),
                    f"the shapes do not broadcast: {result[position]} against {dim} "
                    f"in dimension {position} of {rank}",
                )
    return tuple(result)


def extents_of(tensor: te.Tensor) -> tuple[Any, ...]:
    """The shape with constants as Python integers, so that extents of 1 can be told."""
    return tuple(int(e.value) if isinstance(e, ir.Const) else e for e in tensor.shape)


def read_broadcast(tensor: te.Tensor, indices: Sequence[Expr]) -> Expr:
    """The element that `tensor`, broadcast to the rank of `indices`, has there."""
    extents = extents_of(tensor)
    own = indices[len(indices) - len(extents):]
    return tensor[tuple(0 if extent == 1 else index
                        for extent, index in zip(extents, own, strict=True))]


def broadcast_extents(*tensors: te.Tensor) -> tuple[Any, ...]:
    """The shape of tensors broadcast together, known to be compatible."""
    shapes = [extents_of(tensor) for tensor in tensors]
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(next((dim for dim in dims if dim != 1), 1) for dims in zip(*padded, strict=True))


def integers(dims: Sequence[Dim]) -> tuple[int, ...]:
    """Dims that must be known as integers; raises `ValueError` for symbolic ones."""
    return TensorType(tuple(dims), "bool").extents()


def compute_name(op: Op) -> str:
    """The name of an operator as that of a te stage."""
    return op.name.replace(".", "_")


def intrinsic(name: str, *values: Expr, dtype: str | None = None) -> Expr:
    """A call of a tir intrinsic; the dtype is that of the first value where none is given."""
    return ir.Call(name, values, dtype or values[0].dtype)


# --- families -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unary(Op):
    """One tensor in, one of the same shape and dtype out, element by element."""

    pattern = Pattern.ELEMWISE
    kinds: ClassVar[tuple[str, ...]] = FLOAT

    def meaning(self, x: np.ndarray) -> Any:
        """The elements in numpy."""
        raise NotImplementedError(self.name)

    def element(self, x: Expr) -> Expr:
        """One element in te."""
        raise NotImplementedError(self.name)

    def result_dtype(self, dtype: str) -> str:
        """The dtype of the result."""
        return dtype

    def infer(self, x: TensorType) -> TensorType:
        require_kind(self, (x,), self.kinds)
        return TensorType(x.shape, self.result_dtype(x.dtype))

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            result = self.meaning(x)
        return np.asarray(result, self.result_dtype(x.dtype.name))

    def compute(self, x: te.Tensor) -> te.Tensor:
        return elementwise(self, x.shape, lambda *i: self.element(x[i]))


@dataclass(frozen=True, slots=True)
class Predicate(Unary):
    """A property of each element, as bool."""

    def result_dtype(self, dtype: str) -> str:
        return "bool"


@dataclass(frozen=True, slots=True)
class Binary(Op):
    """Two tensors of one dtype, broadcast as in numpy."""

    pattern = Pattern.BROADCAST
    arity = 2
    kinds: ClassVar[tuple[str, ...]] = NUMBER

    def meaning(self, x: np.ndarray, y: np.ndarray) -> Any:
        """The elements in numpy."""
        raise NotImplementedError(self.name)

    def element(self, x: Expr, y: Expr) -> Expr:
        """One element in te."""
        raise NotImplementedError(self.name)

    def result_dtype(self, dtype: str) -> str:
        """The dtype of the result."""
        return dtype

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        require_kind(self, (x, y), self.kinds)
        dtype = require_one_dtype(self, (x, y))
        return TensorType(broadcast_shapes(self, (x, y)), self.result_dtype(dtype))

    def evaluate(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            result = self.meaning(x, y)
        return np.asarray(result, self.result_dtype(x.dtype.name))

    def compute(self, x: te.Tensor, y: te.Tensor) -> te.Tensor:
        def body(*i: Expr) -> Expr:
            return self.element(read_broadcast(x, i), read_broadcast(y, i))

        return elementwise(self, broadcast_extents(x, y), body)


@dataclass(frozen=True, slots=True)
class Comparison(Binary):
    """Two tensors compared, as bool."""

    def result_dtype(self, dtype: str) -> str:
        return "bool"


TAGS = {
    Pattern.ELEMWISE: "elemwise",
    Pattern.BROADCAST: "broadcast",
    Pattern.INJECTIVE: "injective",
}


def elementwise(op: Op, shape: Sequence[Any], body: Callable[..., Expr]) -> te.Tensor:
    """A te stage named and tagged after the operator."""
    result: te.Tensor = te.compute(shape, body, name=compute_name(op), tag=TAGS[op.pattern])
    return result
