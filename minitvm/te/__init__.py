"""Tensor expressions: a compute says what, a schedule says how."""

from minitvm.te.functions import (
    abs, all, any, ceil, cos, erf, exp, floor, if_then_else, log, max, min, power, prod, round, rsqrt,
    select, sigmoid, sin, sqrt, sum, tanh, trunc,
)
from minitvm.te.tensor import (
    Compute, IterVar, Operation, Placeholder, Tensor, as_expr, comm_reducer, compute, max_value,
    min_value, placeholder, reduce_axis,
)
from minitvm.te.lower import lower
from minitvm.te.schedule import Schedule, StageHandle, create_schedule
