"""Products as machine code: dense layers on any rank, stacks of matrices in every form, tiles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minitvm
from minitvm.origin import origin
from minitvm.relay.build import BlockBuilder
from minitvm.relay.infer import operator_type
from minitvm.relay.ir import Constant, Function, Module, TensorType, Var
from minitvm.relay.op import Op
from minitvm.relay.ops.nn import BatchMatmul, Dense, Matmul, Relu
from minitvm.target import Target
from minitvm.te.recipes.attention import choose_attention_tile
from minitvm.te.recipes.matmul import Extents, choose_product_tile

WIDE, NARROW = Target("llvm -mcpu=x86-64-v4"), Target("llvm -mcpu=x86-64-v3")


@pytest.mark.parametrize("shape", [(1, 13, 24), (3, 13, 24), (2, 3, 7, 24), (2, 1, 24), (40, 24)])
def test_dense_layers_on_any_rank(shape: tuple[int, ...]) -> None:
    """Small integers: sums are exact."""
    random = np.random.default_rng(5)
    x = random.integers(-4, 5, shape).astype(np.float32)
    weight = random.integers(-4, 5, (37, 24)).astype(np.float32)
    wanted = x @ weight.T
    types = (TensorType(shape, "float32"), TensorType(weight.shape, "float32"))
    assert operator_type(Dense(), types) == TensorType(wanted.shape, "float32")
    np.testing.assert_array_equal(Dense().evaluate(x, weight), wanted)
    param = Var("x", types[0])
    builder = BlockBuilder(origin("node"))
    result = builder.emit(Dense(), param, Constant(weight))
    compiled = minitvm.compile(
        Module({"main": Function((param,), builder.finish(result), result.type)}))
    (got,) = compiled.run({"x": x}).values()
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("target", [WIDE, NARROW], ids=["v4", "v3"])
def test_tiles_of_products_fit_the_registers(target: Target) -> None:
    for rows in (1, 2, 7, 128, 197):
        for blocks in (1, 2, 5, 48):
            extents = Extents(rows, blocks, 64)
            tile = choose_product_tile(extents, target)
            assert tile.registers() <= target.vector_registers
            found = choose_attention_tile(extents, Extents(rows, 4, 128), target)
            for count in (found.keys, found.columns):
                assert found.rows * count + count + 1 <= target.vector_registers
    assert choose_product_tile(Extents(128, 24, 1536), WIDE).points <= 9  # few streams of rows


@pytest.mark.parametrize("target", [WIDE, NARROW], ids=["v4", "v3"])
def test_rows_of_attention_stay_enough_for_the_registers(target: Target) -> None:
    """However many keys there are, while the second cache has room for their scores."""
    lanes = target.lanes("float32")
    for keys in (197, 512, 1024, 2048, 4096):
        scores, mixture = Extents(keys, -(-keys // lanes), 64), Extents(keys, 64 // lanes, keys)
        tile = choose_attention_tile(scores, mixture, target)
        assert tile.rows * min(tile.keys, tile.columns) >= target.vector_registers // 4
        assert tile.rows * 8 * scores.blocks * lanes <= target.l2_bytes // 4
    few = choose_attention_tile(Extents(64, 2**20 // lanes, 64), Extents(64, 4, 2**20), target)
    assert few.rows == 1


def check_product(op: Op, *shapes: tuple[int, ...]) -> None:
    """With an activation behind it, in one kernel; small integers, so that sums are exact."""
    random = np.random.default_rng(6)
    x, y = (random.integers(-4, 5, shape).astype(np.float32) for shape in shapes)
    params = tuple(Var(name, TensorType(shape, "float32")) for name, shape in zip("xy", shapes))
    builder = BlockBuilder(origin("node"))
    result = builder.emit(Relu(), builder.emit(op, *params))
    compiled = minitvm.compile(
        Module({"main": Function(params, builder.finish(result), result.type)}))
    assert compiled.kernel_calls == 1
    (got,) = compiled.run({"x": x, "y": y}).values()
    np.testing.assert_array_equal(got, np.maximum(op.evaluate(x, y), 0))


@given(st.data())
@settings(max_examples=12)
def test_stacks_of_products(data: st.DataObject) -> None:
    """Few and many rows and columns, with tails; either factor may be one for the whole stack."""
    rows, columns = (data.draw(st.sampled_from([1, 3, 4, 17, 40])) for _ in range(2))
    depth = data.draw(st.sampled_from([1, 5, 32]))
    batches = data.draw(st.sampled_from([(1, 1), (3, 3), (1, 2), (2, 1)]))
    transpose_a, transpose_b = data.draw(st.booleans()), data.draw(st.booleans())
    left = (depth, rows) if transpose_a else (rows, depth)
    right = (columns, depth) if transpose_b else (depth, columns)
    check_product(BatchMatmul(transpose_a, transpose_b), (batches[0], *left),
                  (batches[1], *right))


@pytest.mark.parametrize("shapes", [
    ((19, 8), (8, 21)), ((2, 19, 8), (8, 21)), ((19, 8), (2, 8, 21)), ((2, 1, 5, 8), (3, 8, 21)),
    ((8,), (8, 21)), ((5, 8), (8,)), ((1, 8), (8, 21)), ((6, 8), (8, 3)),
], ids=str)
def test_matmul_in_every_form(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    check_product(Matmul(), *shapes)


def test_products_are_in_blocks_where_they_have_rows_and_columns() -> None:
    def lanes(*shapes: tuple[int, ...]) -> int:
        choice = Matmul().alter_layout(
            tuple(TensorType(shape, "float32") for shape in shapes), WIDE)
        return 1 if choice is None else choice.op.lanes  # type: ignore[attr-defined]

    assert lanes((2, 9, 5), (5, 40)) == 16
    assert lanes((2, 1, 5), (5, 40)) == lanes((9, 5), (5, 3)) == lanes((5,), (5, 40)) == 1
