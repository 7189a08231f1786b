"""Features say what they are documented to say."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from tiny_tasks import scaled

from minitvm import te
from minitvm.autotune import features
from minitvm.autotune.candidates import Candidates
from minitvm.autotune.features import FEATURES, extract_features
from minitvm.autotune.model import RankModel, grades, rank_correlation
from minitvm.target import Target

V3 = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3 -l1-bytes=32768 -l2-bytes=524288")


def matmul(size=64, rows=4, columns=16, vectorize=True):
    a, b = (te.placeholder((size, size), "float32", name=name) for name in "ab")
    k = te.reduce_axis((0, size), "k")
    c = te.compute((size, size), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    s = te.create_schedule(c)
    i, j = c.op.axis
    io, ii = s[c].split(i, factor=rows)
    jo, ji = s[c].split(j, factor=columns)
    s[c].reorder(io, jo, k, ii, ji)
    s[c].unroll(ii)
    if vectorize:
        s[c].vectorize(ji)
    func = te.lower(s, [a, b, c], name="candidate")
    return dict(zip(FEATURES, extract_features(func, V3).tolist()))


def amount(value):
    return round(2**value - 1)


def test_counts_of_a_register_tile():
    found = matmul()
    assert amount(found["trips"]) == 64**3 and amount(found["flops"]) == 2 * 64**3
    assert amount(found["lanes"]) == 16 and amount(found["vectors"]) == 2
    assert amount(found["unrolled"]) == 4 and amount(found["innermost_serial"]) == 64
    assert amount(found["accumulators"]) == 8  # four rows of two registers
    assert (found["broadcasts"], found["contiguous"], found["strided"]) == (1, 1, 0)
    assert found["ragged_lanes"] == 0 and found["guards"] == 0
    assert amount(found["parallel"]) == 1


def test_pressure_grows_with_the_tile_until_registers_are_missing():
    small, large = matmul(rows=2), matmul(rows=16)
    assert small["register_pressure"] < 1 < large["register_pressure"]
    assert small["spilled"] == 0 < large["spilled"]
    assert matmul(columns=12)["ragged_lanes"] == 4


def test_what_is_touched_is_counted_in_bytes():
    found = matmul(size=64)
    # k turns inside: four rows of a, 16 columns of b, a tile of c.
    inner = 4 * (4 * 64 + 16 * 64 + 4 * 16)
    assert amount(found["inner_bytes"]) == inner <= amount(found["l1_bytes"])
    assert amount(found["l2_bytes"]) == 3 * 4 * 64 * 64  # all of it fits the second cache
    assert found["l2_depth"] > found["l1_depth"]


def test_a_smaller_tile_moves_more():
    assert matmul(256, 2, 16)["l1_traffic"] > matmul(256, 8, 16)["l1_traffic"]


def test_every_feature_is_finite_and_documented():
    text = Path(features.__file__).read_text()
    for number in (0, 5, len(scaled().space) - 1):
        vector = extract_features(scaled().candidate(number).func, V3)
        assert vector.shape == (len(FEATURES),) and np.isfinite(vector).all()
    for name, words in FEATURES.items():
        assert words and len(re.findall(rf'"{name}"|_{name.split("_", 1)[-1]}"', text)) >= 2, name


def test_the_model_learns_an_order():
    pytest.importorskip("xgboost")
    task = scaled(4096)
    numbers = np.random.default_rng(0).permutation(len(task.space)).tolist()
    rows = [extract_features(task.candidate(number).func, V3) for number in numbers]
    seconds = [1e-6 * (1 + abs(task.space.values(n)["factor"] - 16)) for n in numbers]
    model = RankModel()
    assert not model.predict(rows).any()
    model.fit(rows[:48], seconds[:48])
    correlation = rank_correlation(-model.predict(rows[48:]), seconds[48:])
    assert correlation > 0.8
    again = RankModel()
    again.fit(rows[:48], seconds[:48])
    assert (again.predict(rows) == model.predict(rows)).all()


def test_candidates_are_known_by_their_code_and_by_their_choices():
    """Two points of equal features are told apart."""
    task = scaled()
    candidates = Candidates(task)
    for number in (0, len(task.space) - 1):
        made, known = candidates.get(number), candidates.features(number)
        assert (known[:len(FEATURES)] == extract_features(made.func, task.target)).all()
        assert known[len(FEATURES):].tolist() == pytest.approx(
            task.space.coordinates(number, made.config))
    assert (candidates.features(0)[len(FEATURES):] != known[len(FEATURES):]).any()


def test_grades_and_rank_correlation():
    assert grades(np.array([1.0, 2.0, np.inf])).tolist() == [31, 16, 0]
    assert rank_correlation([1, 2, 3], [10, 20, 30]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
