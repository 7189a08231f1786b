"""Tensor expressions: a compute says what, a schedule says how."""

from minitvm.te import intrinsics
from minitvm.te.functions import (
    abs,
    all,
    any,
    ceil,
    cos,
    decay,
    erf,
    exp,
    floor,
    if_then_else,
    log,
    max,
    min,
    power,
    prod,
    round,
    rsqrt,
    select,
    sigmoid,
    sin,
    sqrt,
    sum,
    tanh,
    trunc,
)
from minitvm.te.lower import lower
from minitvm.te.prim_func import create_prim_func
from minitvm.te.recurrence import scan
from minitvm.te.schedule import Schedule, StageHandle, create_schedule
from minitvm.te.tensor import (
    Compute,
    IterVar,
    Operation,
    Placeholder,
    Scan,
    Tensor,
    as_expr,
    comm_reducer,
    compute,
    max_value,
    min_value,
    placeholder,
    reduce_axis,
    size_var,
    thread_axis,
    var,
)
from minitvm.te.tensor_intrin import BufferView, TensorIntrin, decl_tensor_intrin

__all__ = [
    "BufferView", "Compute", "IterVar", "Operation", "Placeholder", "Scan", "Schedule",
    "StageHandle", "Tensor", "TensorIntrin", "abs", "all", "any", "as_expr", "ceil",
    "comm_reducer", "compute", "cos", "create_prim_func", "create_schedule",
    "decay", "decl_tensor_intrin", "erf", "exp", "floor", "if_then_else", "intrinsics", "log",
    "lower",
    "max", "max_value", "min", "min_value", "placeholder", "power", "prod", "reduce_axis",
    "round", "rsqrt", "scan", "select", "sigmoid", "sin", "size_var", "sqrt", "sum",
    "tanh", "thread_axis", "trunc", "var",
]
