"""`nn.attention`, `nn.standardize`, `nn.layer_norm`: against numpy, in te and as machine code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minitvm
from minitvm import te
from minitvm.errors import TypeInferenceError
from minitvm.origin import origin
from minitvm.relay.build import BlockBuilder
from minitvm.relay.infer import operator_type
from minitvm.relay.ir import Constant, Function, Module, TensorType, Var
from minitvm.relay.op import Op
from minitvm.relay.ops.broadcast import Add
from minitvm.relay.ops.nn import Attention, LayerNorm, Standardize
from minitvm.testing.compiled import compiled_difference
from minitvm.tir.interpret import run


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype("float32")


def module_of(op: Op, arrays: list[np.ndarray], behind: bool = False) -> Module:
    """A module that calls the operator, and perhaps adds something to its result."""
    params = tuple(Var(f"a{i}", TensorType(x.shape, "float32")) for i, x in enumerate(arrays))
    builder = BlockBuilder(origin("node"))
    result = builder.emit(op, *params)
    if behind:
        shape = result.type.shape  # type: ignore[union-attr]
        result = builder.emit(Add(), result, Constant(normal(*shape, seed=9)))
    return Module({"main": Function(params, builder.finish(result), result.type)})


def machine_code(op: Op, arrays: list[np.ndarray]) -> np.ndarray:
    compiled = minitvm.compile(module_of(op, arrays))
    assert compiled.kernel_calls == 1
    (result,) = compiled.run({f"a{i}": x for i, x in enumerate(arrays)}).values()
    return result


def without_a_schedule(op: Op, arrays: list[np.ndarray]) -> np.ndarray:
    inputs = [te.placeholder(x.shape, "float32", name=f"p{i}") for i, x in enumerate(arrays)]
    output: Any = op.compute(*inputs)
    result = np.full(output.extents(), 77, "float32")
    run(te.lower(te.create_schedule(output), [*inputs, output]), [*arrays, result])
    return result


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float,
              mask: np.ndarray | float = 0.0) -> np.ndarray:
    """In float64, head by head."""
    batch, rows, heads, _ = q.shape
    shared = heads // k.shape[2]
    mask = np.broadcast_to(mask, (batch, heads, rows, k.shape[1])).astype(float)
    result = np.zeros((batch, rows, heads, v.shape[3]))
    for b in range(batch):
        for h in range(heads):
            keys, values = k[b, :, h // shared].astype(float), v[b, :, h // shared].astype(float)
            scores = q[b, :, h].astype(float) @ keys.T * scale + mask[b, h]
            powers = np.exp(scores - scores.max(-1, keepdims=True))
            result[b, :, h] = powers @ values / powers.sum(-1, keepdims=True)
    return result


SHAPES = [  # batch, rows, keys, heads, groups, depth, columns, mask
    (1, 5, 5, 2, 2, 4, 4, None), (2, 3, 7, 4, 2, 5, 3, (1, 1, 1, 7)), (1, 1, 9, 3, 1, 2, 6, (9,)),
    (1, 4, 33, 1, 1, 8, 17, (1, 1, 4, 33)), (2, 6, 1, 2, 1, 3, 2, (2, 1, 1, 1)),
]


def arguments(shape: Any) -> list[np.ndarray]:
    batch, rows, keys, heads, groups, depth, columns, mask = shape
    arrays = [normal(batch, rows, heads, depth), normal(batch, keys, groups, depth, seed=1),
              normal(batch, keys, groups, columns, seed=2)]
    return arrays if mask is None else [*arrays, normal(*mask, seed=3)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_attention_is_what_its_definition_says(shape: Any) -> None:
    arrays = arguments(shape)
    wanted = attention(*arrays[:3], 0.5, *arrays[3:])
    op = Attention(0.5)
    types = tuple(TensorType(x.shape, "float32") for x in arrays)
    assert operator_type(op, types) == TensorType(wanted.shape, "float32")
    np.testing.assert_allclose(op.evaluate(*arrays), wanted, rtol=1e-5, atol=1e-6)
    for lanes in (1, 4):
        got = without_a_schedule(Attention(0.5, lanes), arrays)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@given(st.data())
@settings(max_examples=12)
def test_attention_as_machine_code(data: st.DataObject) -> None:
    """Rows, keys and columns with and without tails, in tiles and in less than one."""
    groups, shared = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2))
    batch, depth = data.draw(st.integers(1, 2)), data.draw(st.sampled_from([1, 8, 19]))
    rows, keys, columns = (data.draw(st.sampled_from([1, 3, 16, 21, 48])) for _ in range(3))
    mask = data.draw(st.sampled_from([None, (1, 1, 1, keys), (rows, keys), (batch, 1, 1, 1)]))
    arrays = arguments((batch, rows, keys, groups * shared, groups, depth, columns, mask))
    wanted = attention(*arrays[:3], 0.25, *arrays[3:])
    np.testing.assert_allclose(machine_code(Attention(0.25), arrays), wanted, rtol=2e-5, atol=2e-6)


def test_many_columns_take_several_tiles_and_what_follows_is_fused() -> None:
    arrays = arguments((1, 9, 20, 2, 2, 8, 150, None))
    module = module_of(Attention(0.3), arrays, behind=True)
    assert not compiled_difference(module, {f"a{i}": x for i, x in enumerate(arrays)})
    assert minitvm.compile(module).kernel_calls == 1


def test_masked_keys_have_no_weight_and_nan_stays_in_its_row() -> None:
    arrays = arguments((1, 4, 21, 1, 1, 8, 16, (1, 1, 1, 21)))
    arrays[3][..., ::2] = -np.inf
    arrays[2][0, ::2] = 1e30  # values that are hidden
    got = machine_code(Attention(0.3), arrays)
    np.testing.assert_allclose(got, Attention(0.3).evaluate(*arrays), rtol=1e-5, atol=1e-6)
    assert np.abs(got).max() < 10
    arrays[0][0, 1, 0, 3] = np.nan
    got = machine_code(Attention(0.3), arrays)
    assert np.isnan(got[0, 1]).all() and not np.isnan(np.delete(got, 1, axis=1)).any()


@pytest.mark.parametrize("keys", [1000, 2500])
def test_scores_beyond_the_first_cache(keys: int) -> None:
    """With and without a tail of rows; one row sees no key, another only the last one."""
    mask = np.zeros((1, 1, 13, keys), "float32")
    mask[..., 5, :] = mask[..., 7, :-1] = -np.inf
    arrays = [*arguments((1, 13, keys, 2, 1, 16, 20, None)), mask]
    with np.errstate(invalid="ignore"):
        wanted = attention(*arrays[:3], 0.5, mask)
    got = machine_code(Attention(0.5), arrays)
    assert np.isnan(got[:, 5]).all()
    scale = np.nanmax(np.abs(wanted))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-6 * scale)
    np.testing.assert_array_equal(got[0, 7], np.broadcast_to(arrays[2][0, -1], (2, 20)))


def test_rows_that_see_no_key_are_nan_or_zeros() -> None:
    arrays = arguments((1, 4, 21, 1, 1, 8, 16, (1, 1, 4, 21)))
    arrays[3][0, 0, 2] = -np.inf
    for zero in (False, True):
        op = Attention(0.3, masked_is_zero=zero)
        for got in (op.evaluate(*arrays), machine_code(op, arrays)):
            assert (not got[0, 2].any()) if zero else np.isnan(got[0, 2]).all()
            others = np.delete(got, 2, axis=1)
            wanted = np.delete(Attention(0.3).evaluate(*arrays), 2, axis=1)
            np.testing.assert_allclose(others, wanted, rtol=1e-5, atol=1e-6)


def test_large_scores_do_not_overflow() -> None:
    arrays = [array * 30 for array in arguments((1, 3, 40, 1, 1, 16, 8, None))]
    wanted = attention(*arrays, 1.0)
    np.testing.assert_allclose(machine_code(Attention(1.0), arrays), wanted, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize(("shapes", "message"), [
    ([(1, 2, 3, 4), (1, 5, 3, 4)], "queries, keys, values"),
    ([(2, 3, 4), (1, 5, 3, 4), (1, 5, 3, 4)], "must be of rank 4"),
    ([(1, 2, 3, 4), (1, 5, 3, 6), (1, 5, 3, 4)], "go with keys"),
    ([(1, 2, 3, 4), (1, 5, 2, 4), (1, 5, 2, 4)], "2 heads of keys do not serve 3"),
    ([(1, 2, 3, 4), (1, 5, 3, 4), (1, 5, 3, 4), (2, 6)], "does not broadcast"),
])
def test_attention_refuses(shapes: Any, message: str) -> None:
    with pytest.raises(TypeInferenceError, match=message):
        operator_type(Attention(), tuple(TensorType(shape, "float32") for shape in shapes))


# --- statistics of rows -------------------------------------------------------------------------

ROWS = [((2, 3, 40), 1), ((7, 13), 1), ((13,), 1), ((2, 3, 5, 4), 3), ((3, 5, 7), 2), ((1, 1), 1),
        ((1, 9, 16), 1), ((5, 48), 2), ((2, 9000), 1)]


@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize(("shape", "axes"), ROWS, ids=str)
def test_rows_are_standardized(shape: tuple[int, ...], axes: int, centered: bool) -> None:
    x = normal(*shape) * 3 + 2
    along = tuple(range(len(shape) - axes, len(shape)))
    wide = x.astype(float)
    distance = wide - wide.mean(along, keepdims=True) if centered else wide
    wanted = distance / np.sqrt((distance**2).mean(along, keepdims=True) + 1e-5)
    op = Standardize(axes, centered=centered)
    padded = Standardize(axes, lanes=4, centered=centered)
    for got in (op.evaluate(x), without_a_schedule(op, [x]), without_a_schedule(padded, [x]),
                machine_code(op, [x])):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=2e-5)


def test_a_row_of_equal_numbers_becomes_zeros_and_nan_stays_in_its_row() -> None:
    x = np.full((3, 20), 2.5, np.float32)
    x[1, 4] = np.nan
    got = machine_code(Standardize(), [x])
    assert not got[[0, 2]].any() and np.isnan(got[1]).all()


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_layer_norm_scales_and_shifts_along_an_axis(axis: int) -> None:
    x = normal(4, 6, 10)
    gamma, beta = normal(x.shape[axis], seed=1), normal(x.shape[axis], seed=2)
    moved = np.moveaxis(x.astype(float), axis, -1)
    wanted = (moved - moved.mean(-1, keepdims=True)) / np.sqrt(moved.var(-1, keepdims=True) + 1e-5)
    wanted = np.moveaxis(wanted * gamma + beta, -1, axis)
    got = LayerNorm(axis).evaluate(x, gamma, beta)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    module = module_of(LayerNorm(axis), [x, gamma, beta])
    assert not compiled_difference(module, {"a0": x, "a1": gamma, "a2": beta})


def test_what_is_no_float_or_has_too_few_axes_is_refused() -> None:
    with pytest.raises(TypeInferenceError, match="must be floats"):
        operator_type(Standardize(), (TensorType((2, 3), "int32"),))
    with pytest.raises(TypeInferenceError, match="no 3 axes"):
        operator_type(Standardize(3), (TensorType((2, 3), "float32"),))
