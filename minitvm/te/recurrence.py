"""Recurrences: `te.scan` makes the tensor whose step t is computed from earlier steps.

    X = te.placeholder((m, n))
    state = te.placeholder((m, n))
    init = te.compute((1, n), lambda _, i: X[0, i])
    update = te.compute((m, n), lambda t, i: state[t - 1, i] + X[t, i])
    sums = te.scan(init, update, state, inputs=[X])

Dimension 0 is time. The schedule computes `init` before the loop over time, `sums.op.scan_axis`,
and `update`, with all else that reads a state, inside it; their other axes are scheduled as usual.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minitvm.origin import NOWHERE, Origin, here
from minitvm.te.tensor import Compute, IterVar, Placeholder, Scan, Tensor, compute
from minitvm.tir.ir import Var

Tensors = Tensor | Sequence[Tensor]


def scan(
    init: Tensors,
    update: Tensors,
    state_placeholder: Tensors,
    inputs: Sequence[Tensor] = (),
    name: str = "scan",
    origin: Origin = NOWHERE,
) -> Any:
    """The states over time: one tensor, or a list where several states are given.

    For each state: `init` has its first steps, `update` and `state_placeholder` all of them.
    `inputs` are found by themselves; the argument is there for those who know it.
    """
    inits, updates, states = _as_tuple(init), _as_tuple(update), _as_tuple(state_placeholder)
    _check(name, inits, updates, states)
    source = origin or here(2)
    inits = _owned(inits, f"{name}.init", source)
    updates = _owned(updates, f"{name}.update", source)
    steps, first = states[0].shape[0], inits[0].shape[0]
    axis = IterVar(Var("t", steps.dtype), first, steps - first, "scan")
    op = Scan(name, axis, inits, updates, states, source)
    outputs = [
        Tensor(op, index, state.shape, state.dtype) for index, state in enumerate(states)
    ]
    return outputs[0] if isinstance(state_placeholder, Tensor) else outputs


def _as_tuple(tensors: Tensors) -> tuple[Tensor, ...]:
    return (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)


def _check(
    name: str, inits: tuple[Tensor, ...], updates: tuple[Tensor, ...], states: tuple[Tensor, ...]
) -> None:
    if not states or not len(inits) == len(updates) == len(states):
        raise TypeError(
            f"{name}: a scan needs an initial value and an update for each state; there are "
            f"{len(inits)}, {len(updates)} and {len(states)}"
        )
    if len({state.op for state in states}) != len(states):
        raise TypeError(f"{name}: each state of a scan needs a placeholder of its own")
    for first, step, state in zip(inits, updates, states, strict=True):
        if not isinstance(state.op, Placeholder) or not state.shape:
            raise TypeError(f"{name}: the state {state.name} must be a placeholder with time first")
        if step.shape != state.shape or first.shape[1:] != state.shape[1:]:
            raise TypeError(
                f"{name}: state, update and initial value need the same shape, but for the steps "
                f"of the initial value, not {state.shape}, {step.shape} and {first.shape}"
            )
        if not first.dtype == step.dtype == state.dtype:
            raise TypeError(
                f"{name}: state, update and initial value need one dtype, not {state.dtype}, "
                f"{step.dtype} and {first.dtype}"
            )
        if state.shape[0] != states[0].shape[0] or first.shape[0] != inits[0].shape[0]:
            raise TypeError(f"{name}: all states of a scan need the same number of steps")


def _owned(tensors: tuple[Tensor, ...], name: str, origin: Origin) -> tuple[Tensor, ...]:
    """The tensors, with a copy for each that can't be computed right into a state's memory: an
    input, one of several outputs, or one that is given twice."""
    result: list[Tensor] = []
    for tensor in tensors:
        op = tensor.op
        plain = isinstance(op, Compute) and len(op.bodies) == 1
        if not plain or tensor in result:
            tensor = compute(
                tensor.shape, lambda *at, source=tensor: source[at], name=name, origin=origin
            )
        result.append(tensor)
    return tuple(result)
