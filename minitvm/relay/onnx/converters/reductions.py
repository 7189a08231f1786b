"""ONNX reductions: over axes in an attribute or, later, in an input; CumSum."""

from __future__ import annotations

from collections.abc import Callable

from minitvm import dtypes
from minitvm.errors import ModelError
from minitvm.relay.ir import Atom
from minitvm.relay.onnx.conversion import Conversion
from minitvm.relay.onnx.converters.joining import axis_of
from minitvm.relay.onnx.table import converter
from minitvm.relay.op import Op
from minitvm.relay.ops.reduce import AllTrue, AnyTrue, ArgMax, ArgMin, Max, Min, Prod, Sum
from minitvm.relay.ops.reduce_composite import (
    LogSumExp,
    Mean,
    ReduceL1,
    ReduceL2,
    ReduceLogSum,
    ReduceSumSquare,
)
from minitvm.relay.ops.scan import CumSum

MakeReduction = Callable[[tuple[int, ...] | None, bool], Op]

REDUCTIONS: dict[str, MakeReduction] = {
    "ReduceL1": ReduceL1,
    "ReduceL2": ReduceL2,
    "ReduceLogSum": ReduceLogSum,
    "ReduceLogSumExp": LogSumExp,
    "ReduceMax": Max,
    "ReduceMean": Mean,
    "ReduceMin": Min,
    "ReduceProd": Prod,
    "ReduceSum": Sum,
    "ReduceSumSquare": ReduceSumSquare,
}
OF_BOOLS: dict[str, MakeReduction] = {"ReduceMax": AnyTrue, "ReduceMin": AllTrue}
AXES_INPUT_SINCE = {"ReduceSum": 13}
"""The opset from which the axes are an input; 18 for the others."""


def _reduce(c: Conversion, axes: tuple[int, ...] | None) -> Atom:
    make = REDUCTIONS[c.node.operator]
    if dtypes.is_bool(c.type(c.input(0)).dtype):
        make = OF_BOOLS.get(c.node.operator, make)
    return c.emit(make(axes, c.flag("keepdims", True)), c.input(0))


def reduce_by_attribute(c: Conversion) -> Atom:
    """The axes in an attribute, all of them by default."""
    return _reduce(c, c.integers("axes") or None)


def reduce_by_input(c: Conversion) -> Atom:
    """The axes in an input. Without any, all of them, or with `noop_with_empty_axes` none."""
    keep_all = c.flag("noop_with_empty_axes")
    axes = () if c.optional(1) is None else c.constant_integers(1, "the axes")
    if not axes and keep_all:
        return _reduce_nothing(c)
    return _reduce(c, axes or None)


def _reduce_nothing(c: Conversion) -> Atom:
    return _reduce(c, ())


for _name in REDUCTIONS:
    converter(_name, 1)(reduce_by_attribute)
    converter(_name, AXES_INPUT_SINCE.get(_name, 18))(reduce_by_input)


# --- positions ----------------------------------------------------------------------------------


def _position(c: Conversion, select_last: bool) -> Atom:
    make = ArgMax if c.node.operator == "ArgMax" else ArgMin
    return c.emit(make(c.integer("axis", 0), c.flag("keepdims", True), select_last), c.input(0))


@converter("ArgMin", 1)
@converter("ArgMax", 1)
def first_position(c: Conversion) -> Atom:
    """The first position of the extreme."""
    return _position(c, select_last=False)


@converter("ArgMin", 12)
@converter("ArgMax", 12)
def position(c: Conversion) -> Atom:
    """The first or last position of the extreme."""
    return _position(c, c.flag("select_last_index"))


@converter("CumSum", 11)
def cumulative_sum(c: Conversion) -> Atom:
    """Along an axis that is an input."""
    x = c.input(0)
    axes = c.constant_integers(1, "the axis")
    if len(axes) != 1:
        raise ModelError(f"{c.node} sums up along one axis, not along {len(axes)}")
    axis = axis_of(c, axes[0], c.type(x).rank)
    return c.emit(CumSum(axis, c.flag("exclusive"), c.flag("reverse")), x)
