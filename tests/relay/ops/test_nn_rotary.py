"""`nn.rotary_embedding`: against complex numbers, and fused as other elementwise code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from semantics import check

import minitvm
from minitvm.errors import TypeInferenceError
from minitvm.origin import origin
from minitvm.relay.build import BlockBuilder
from minitvm.relay.infer import operator_type
from minitvm.relay.ir import Function, Module, TensorType, Var
from minitvm.relay.ops.nn import Attention, RotaryEmbedding
from minitvm.testing.compiled import compiled_difference


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype("float32")


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("heads_first", [False, True])
@pytest.mark.parametrize(("size", "half"), [(8, 4), (10, 3), (64, 32), (2, 1), (6, 0)])
def test_pairs_are_turned_as_complex_numbers(
    interleaved: bool, heads_first: bool, size: int, half: int
) -> None:
    x = normal(2, 3, 5, size)
    rows = 5 if heads_first else 3
    angles = normal(2, rows, half, seed=1)
    got = check(RotaryEmbedding(interleaved, heads_first), x, np.cos(angles), np.sin(angles), ulp=8)
    pairs = x[..., :2 * half].astype(float)
    pairs = (pairs.reshape(2, 3, 5, half, 2) if interleaved
             else np.moveaxis(pairs.reshape(2, 3, 5, 2, half), 3, 4))
    turns = np.exp(1j * np.expand_dims(angles.astype(float), 1 if heads_first else 2))
    turned = (pairs[..., 0] + 1j * pairs[..., 1]) * turns
    parts = np.stack([turned.real, turned.imag], -1 if interleaved else -2)
    np.testing.assert_allclose(
        got[..., :2 * half], parts.reshape(2, 3, 5, 2 * half), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(got[..., 2 * half:], x[..., 2 * half:])


def test_queries_are_turned_where_attention_copies_them() -> None:
    shapes = [(1, 6, 2, 16), (1, 6, 2, 16), (1, 6, 2, 16), (1, 6, 8), (1, 6, 8)]
    params = tuple(Var(f"a{i}", TensorType(shape, "float32")) for i, shape in enumerate(shapes))
    builder = BlockBuilder(origin("node"))
    q, k = (builder.emit(RotaryEmbedding(), x, *params[3:]) for x in params[:2])
    result = builder.emit(Attention(0.25), q, k, params[2])
    module = Module({"main": Function(params, builder.finish(result), result.type)})
    inputs = {f"a{i}": normal(*shape, seed=i) for i, shape in enumerate(shapes)}
    assert minitvm.compile(module).kernel_calls == 1
    assert not compiled_difference(module, inputs)


@pytest.mark.parametrize(("shapes", "message"), [
    ([(2, 3, 4), (2, 3, 2), (2, 3, 2)], "rank 4"),
    ([(2, 3, 1, 4), (2, 3, 2), (2, 3, 1)], "one shape"),
    ([(2, 3, 1, 4), (2, 4, 2), (2, 4, 2)], "2 times 3 rows"),
    ([(2, 3, 1, 4), (2, 3, 3), (2, 3, 3)], "3 pairs are more"),
])
def test_what_does_not_fit_is_refused(shapes: Any, message: str) -> None:
    with pytest.raises(TypeInferenceError, match=message):
        operator_type(RotaryEmbedding(), tuple(TensorType(shape, "float32") for shape in shapes))
