"""Tensors -> the function that computes them, each whole and in order: TVM's `create_prim_func`."""

from __future__ import annotations

from collections.abc import Sequence

from minitvm.te.lower import lower
from minitvm.te.schedule import create_schedule
from minitvm.te.tensor import Placeholder, Tensor
from minitvm.tir.ir import PrimFunc


def create_prim_func(ops: Sequence[Tensor], name: str = "main") -> PrimFunc:
    """The loop nest of a schedule without a step. `ops` are its parameters, inputs and outputs."""
    outputs = [tensor for tensor in ops if not isinstance(tensor.op, Placeholder)]
    return lower(create_schedule(outputs), ops, name=name)
