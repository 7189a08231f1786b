"""Composite operators: those that say only how they decompose.

A composite operator writes `legalize`; its type rule, its meaning in numpy and its computation in
te follow from that, by running the decomposition on types, on arrays or on tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from minitvm import te
from minitvm.relay.infer import operator_type
from minitvm.relay.ir import Atom, Constant, TensorType, Type, Var
from minitvm.relay.op import Emit, Op, Pattern
from minitvm.tir import ir

Step = tuple[Var, Op, tuple[Atom, ...]]


@dataclass(frozen=True, slots=True)
class Composite(Op):
    """The base of operators that are other operators put together."""

    pattern = Pattern.OPAQUE

    def legalize(self, emit: Emit, *arguments: Any) -> Atom:
        """Emits the simpler operators and gives their result."""
        raise NotImplementedError(f"{self.name} has no decomposition")

    def check(self, types: tuple[TensorType, ...]) -> None:
        """Raises the operator's own type error; by default the decomposition's errors stand."""

    def infer(self, *types: TensorType) -> Type:
        self.check(types)
        return decompose(self, types)[2].type  # type: ignore[return-value]

    def evaluate(self, *values: np.ndarray) -> Any:
        types = tuple(TensorType(value.shape, value.dtype.name) for value in values)
        return self._run(types, values, lambda op, *inputs: op.evaluate(*inputs), np.asarray)

    def compute(self, *inputs: te.Tensor) -> Any:
        types = tuple(TensorType(tensor.extents(), tensor.dtype) for tensor in inputs)
        return self._run(types, inputs, lambda op, *tensors: op.compute(*tensors), _scalar_tensor)

    def _run(
        self,
        types: tuple[TensorType, ...],
        values: tuple[Any, ...],
        apply: Callable[..., Any],
        constant: Callable[[np.ndarray], Any],
    ) -> Any:
        params, steps, result = decompose(self, types)
        known: dict[Atom, Any] = dict(zip(params, values, strict=True))

        def get(atom: Atom) -> Any:
            return constant(atom.data) if isinstance(atom, Constant) else known[atom]

        for var, op, arguments in steps:
            known[var] = apply(op, *map(get, arguments))
        return get(result)


@lru_cache(maxsize=1024)
def decompose(
    op: Composite, types: tuple[TensorType, ...]
) -> tuple[tuple[Var, ...], tuple[Step, ...], Atom]:
    """Parameters, steps and result of the decomposition for arguments of these types."""
    params = tuple(Var(f"p{position}", given) for position, given in enumerate(types))
    steps: list[Step] = []

    def emit(inner: Op, *arguments: Atom) -> Var:
        found = operator_type(inner, tuple(atom.type for atom in arguments))  # type: ignore[misc]
        var = Var(f"v{len(steps)}", found)
        steps.append((var, inner, arguments))
        return var

    result = op.legalize(emit, *params)
    return params, tuple(steps), result


def scalar(value: float, dtype: str) -> Constant:
    """A constant of rank 0."""
    return Constant(np.asarray(value, dtype))


def _scalar_tensor(data: np.ndarray) -> te.Tensor:
    if data.ndim:
        raise ValueError("a decomposition may hold constants of rank 0 only")
    value = ir.convert(data.item(), data.dtype.name)
    result: te.Tensor = te.compute((), lambda: value, name="scalar", tag="elemwise")
    return result
