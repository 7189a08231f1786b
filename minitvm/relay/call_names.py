"""Calls as TVM's users write them, where an operator here takes less or gives something else.

    relay.nn.conv2d(data=x, weight=w, kernel_size=(3, 3), channels=16)
    relay.nn.batch_norm(x, gamma, beta, mean, variance)[0]
    relay.nn.batch_flatten(x)

What these say twice is checked; what an operator can't do is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minitvm.errors import TypeInferenceError
from minitvm.origin import here
from minitvm.relay.expr import SHORTHANDS, Expr, apply
from minitvm.relay.ir import TensorType


class FirstResult(Expr):
    """A tensor that its users take for a tuple of which they need the first field."""

    __slots__ = ()

    def __getitem__(self, index: int) -> Expr:
        if index != 0:
            raise TypeInferenceError(f"{here()}: there is only field 0: what the others hold while "
                                     "training, the moving statistics, does not change here")
        return self


def shorthand(name: str) -> Callable[[Callable[..., Expr]], Callable[..., Expr]]:
    """Calls of the operator `name` go through the function."""

    def decorate(function: Callable[..., Expr]) -> Callable[..., Expr]:
        SHORTHANDS[name] = function
        return function

    return decorate


def _shape(expr: Expr) -> tuple[Any, ...]:
    return expr.type.shape if isinstance(expr.type, TensorType) else ()


@shorthand("nn.conv2d")
def conv2d(data: Expr, weight: Expr, *positional: Any, kernel_size: Any = None,
           out_layout: str = "", **attributes: Any) -> Expr:
    """`nn.conv2d`; `kernel_size` must be that of the weight, `out_layout` that of the data."""
    result = apply("nn.conv2d", data, weight, *positional, **attributes)
    layout = str(attributes.get("kernel_layout", "OIHW"))
    if kernel_size is not None:
        wanted = (kernel_size,) * 2 if isinstance(kernel_size, int) else tuple(kernel_size)
        found = tuple(_shape(weight)[layout.index(axis)] for axis in "HW")
        if found != wanted:
            raise TypeInferenceError(f"{here()}: nn.conv2d: the kernel_size is {wanted}, and the "
                                     f"weight's {found}")
    if out_layout not in ("", attributes.get("data_layout", "NCHW")):
        raise TypeInferenceError(f"{here()}: nn.conv2d gives the layout of its data, not "
                                 f"{out_layout!r}; add a layout_transform")
    return result


@shorthand("nn.batch_norm")
def batch_norm(*arguments: Any, center: bool = True, scale: bool = True,
               **attributes: Any) -> Expr:
    """`nn.batch_norm`; the result is its own field 0."""
    if not (center and scale):
        raise TypeInferenceError(f"{here()}: nn.batch_norm always has gamma and beta; give ones "
                                 "for gamma in place of scale=False, zeros for center=False")
    made = apply("nn.batch_norm", *arguments, **attributes)
    return FirstResult(made.atom, made.value, made.inputs, made.origin)


@shorthand("nn.batch_flatten")
def batch_flatten(data: Expr) -> Expr:
    """All axes but the first as one."""
    return apply("reshape", data, newshape=(_shape(data)[0], -1))


@shorthand("expand_dims")
def expand_dims(data: Expr, axis: int, num_newaxis: int = 1) -> Expr:
    """New axes of size one in front of the axis; behind it where it counts from the end."""
    for _ in range(num_newaxis):
        data = apply("expand_dims", data, axis=axis)
    return data


@shorthand("nn.matmul")
def matmul(tensor_a: Expr, tensor_b: Expr, units: int | None = None, *,
           transpose_a: bool = False, transpose_b: bool = False) -> Expr:
    """The product of two matrices, each transposed first on request."""
    if transpose_a:
        tensor_a = apply("transpose", tensor_a)
    if transpose_b:
        tensor_b = apply("transpose", tensor_b)
    result = apply("matmul", tensor_a, tensor_b)
    if units is not None and _shape(result)[-1:] != (units,):
        raise TypeInferenceError(f"{here()}: nn.matmul: units is {units}, and the product is "
                                 f"{result.type}")
    return result


@shorthand("nn.prelu")
def prelu(data: Expr, alpha: Expr, axis: int = 1) -> Expr:
    """`nn.prelu`; a slope of one axis belongs to `axis` of the data."""
    rank, slopes = len(_shape(data)), _shape(alpha)
    behind = rank - 1 - axis % max(rank, 1)
    if len(slopes) == 1 and behind > 0:
        alpha = apply("reshape", alpha, newshape=(*slopes, *(1,) * behind))
    return apply("nn.prelu", data, alpha)
