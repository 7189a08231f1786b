"""Sketches compute what the program says, for every value of their knobs."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_tasks import Invented

import minitvm
from minitvm import autotune, te
from minitvm.autotune.candidates import Candidates
from minitvm.autotune.sketch import SearchTask, best_schedule, register_workload
from minitvm.autotune.task import example_arrays
from minitvm.autotune.tuners.evolution import EvolutionTuner, moves
from minitvm.autotune.tuners.random import RandomTuner
from minitvm.errors import OptionError
from minitvm.target import Target
from minitvm.te.recipes.knobs import Knob, deciding
from minitvm.testing.te_workloads import convolution
from minitvm.tir import ir, walk
from minitvm.tir.passes import lower as lower_tir

register_workload(convolution)


@register_workload
def dense_relu(n, m, k):
    a = te.placeholder((n, k), "float32", name="a")
    b = te.placeholder((k, m), "float32", name="b")
    bias = te.placeholder((m,), "float32", name="bias")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((n, m), lambda y, x: te.sum(a[y, r] * b[r, x], axis=r), name="c")
    d = te.compute((n, m), lambda y, x: c[y, x] + bias[x], name="d")
    e = te.compute((n, m), lambda y, x: d[y, x] * 2.0, name="e")
    return [a, b, bias, e]


@register_workload
def product(n, m, k):
    a = te.placeholder((n, k), "float32", name="a")
    b = te.placeholder((k, m), "float32", name="b")
    r = te.reduce_axis((0, k), "r")
    return [a, b, te.compute((n, m), lambda y, x: te.sum(a[y, r] * b[r, x], axis=r), name="c")]


@register_workload
def row_sums(n, k):
    a = te.placeholder((n, k), "float32", name="a")
    r = te.reduce_axis((0, k), "r")
    return [a, te.compute((n,), lambda i: te.sum(a[i, r], axis=r), name="sums")]


@register_workload
def centred(n, k):
    """A reduction that is read by rows."""
    a = te.placeholder((n, k), "float32", name="a")
    r = te.reduce_axis((0, k), "r")
    sums = te.compute((n,), lambda i: te.sum(a[i, r], axis=r), name="sums")
    return [a, te.compute((n, k), lambda i, j: a[i, j] - sums[i], name="centred")]


@register_workload
def window(size, taps):
    """A reduction over two axes, and one axis that no tile divides."""
    a = te.placeholder((3, size + taps - 1, size), "float32", name="a")
    w = te.placeholder((taps, 3), "float32", name="w")
    t, c = te.reduce_axis((0, taps), "t"), te.reduce_axis((0, 3), "ch")
    return [a, w, te.compute(
        (size, size), lambda y, x: te.sum(a[c, y + t, x] * w[t, c], axis=[t, c]), name="out")]


@register_workload
def elementwise(n):
    a = te.placeholder((n,), "float32", name="a")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="b")
    return [a, te.compute((n,), lambda i: b[i] * 2.0, name="c")]


@register_workload
def two_products(n, m):
    """A product that another reduction reads."""
    a, b, c = (te.placeholder((n, n), "float32", name=name) for name in "abc")
    r, q = te.reduce_axis((0, n), "r"), te.reduce_axis((0, n), "q")
    first = te.compute((n, m), lambda y, x: te.sum(a[y, r] * b[r, x], axis=r), name="first")
    return [a, b, c, te.compute(
        (n, m), lambda y, x: te.sum(c[y, q] * first[q, x], axis=q), name="second")]


@register_workload
def dense(n, m, k):
    """A product with rows of weights, whose lanes lie apart."""
    a = te.placeholder((n, k), "float32", name="a")
    w = te.placeholder((m, k), "float32", name="w")
    r = te.reduce_axis((0, k), "r")
    return [a, w, te.compute((n, m), lambda y, x: te.sum(a[y, r] * w[x, r], axis=r), name="c")]


@register_workload
def squares(n, k):
    """A product of a matrix with its own transpose: one tensor, read in two ways."""
    a = te.placeholder((n, k), "float32", name="a")
    r = te.reduce_axis((0, k), "r")
    return [a, te.compute((n, n), lambda y, x: te.sum(a[y, r] * a[x, r], axis=r), name="c")]


@register_workload
def batch_product(b, n, m, k):
    x = te.placeholder((b, n, k), "float32", name="x")
    w = te.placeholder((b, m, k), "float32", name="w")
    r = te.reduce_axis((0, k), "r")
    return [x, w, te.compute(
        (b, n, m), lambda i, y, z: te.sum(x[i, y, r] * w[i, z, r], axis=r), name="c")]


@register_workload
def depthwise(channels, size):
    """A 3x3 window over each channel by itself, by steps of 2."""
    data = te.placeholder((channels, 2 * size + 1, 2 * size + 1), "float32", name="data")
    weight = te.placeholder((channels, 3, 3), "float32", name="weight")
    p, q = te.reduce_axis((0, 3), "p"), te.reduce_axis((0, 3), "q")
    return [data, weight, te.compute((channels, size, size), lambda c, y, x: te.sum(
        data[c, 2 * y + p, 2 * x + q] * weight[c, p, q], axis=[p, q]), name="out")]


@register_workload
def total(n, k):
    """One result of all elements."""
    a = te.placeholder((n, k), "float32", name="a")
    i, j = te.reduce_axis((0, n), "i"), te.reduce_axis((0, k), "j")
    return [a, te.compute((1,), lambda _: te.sum(a[i, j], axis=[i, j]), name="total")]


def convolved(data, weight, bias):
    padded = np.pad(data, ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    return np.maximum(np.einsum("iyxpq,oipq->oyx", windows, weight) + bias[:, None, None], 0)


def by_channel(data, weight):
    windows = np.lib.stride_tricks.sliding_window_view(data, (3, 3), (1, 2))[:, ::2, ::2]
    return np.einsum("cyxpq,cpq->cyx", windows, weight)


def shifted(a, w):
    taps, size = w.shape[0], a.shape[2]
    return sum(np.tensordot(w[t], a[:, t:t + size], 1) for t in range(taps))


CASES = {
    "dense_relu": ((12, 40, 9), lambda a, b, bias: (a @ b + bias) * 2),
    "product": ((7, 48, 16), lambda a, b: a @ b),
    "row_sums": ((3, 1024), lambda a: a.sum(1)),
    "centred": ((6, 20), lambda a: a - a.sum(1, keepdims=True)),
    "window": ((11, 3), shifted),
    "convolution": ((3, 4, 10), convolved),
    "wide": ((3, 20, 9), convolved),
    "dense": ((13, 40, 9), lambda a, w: a @ w.T),
    "squares": ((37, 8), lambda a: a @ a.T),
    "batch_product": ((2, 10, 20, 6), lambda x, w: np.einsum("ink,imk->inm", x, w)),
    "depthwise": ((5, 18), by_channel),
    "two_products": ((16, 16), lambda a, b, c: c @ (a @ b)),
    "total": ((6, 1024), lambda a: a.sum().reshape(1)),
    "elementwise": ((100,), lambda a: (a + 1) * 2),
}


@pytest.mark.parametrize("name", CASES)
def test_points_of_a_sketch_compute_the_program(name):
    arguments, meaning = CASES[name]
    task = SearchTask("convolution" if name == "wide" else name, arguments)
    *inputs, output = task.params
    arrays = example_arrays(inputs)
    wanted = meaning(*arrays)
    generator = np.random.default_rng(0)
    candidates = Candidates(task)
    numbers = {task.space.default, *(task.space.random(generator) for _ in range(10))}
    for number in sorted(numbers):
        made = candidates.get(number)
        assert made is not None, candidates.refused
        got = np.zeros(output.shape, np.float32)
        minitvm.build(made.func)(*arrays, got)
        np.testing.assert_array_equal(got, wanted, err_msg=str(made.config))


def test_the_rules_that_apply_are_the_knobs_there_are():
    names = {name: {knob.name for knob in SearchTask(name, CASES[name][0]).space.knobs}
             for name in CASES if name != "wide"}
    assert names["dense_relu"] >= {
        "c.lanes", "c.b", "c.tile.x", "c.order", "c.y.tiles", "c.x.tiles", "c.place", "c.r",
        "c.unroll"}
    assert not any(name.startswith("e.") for name in names["dense_relu"])  # fused
    assert "c.b" not in names["product"]  # 7 rows use it too little
    assert "c.tile.x" in names["product"] and "c.w" in names["dense"]
    assert {"pad.place", "conv.lanes", "conv.i", "conv.q"} <= names["convolution"]
    assert {"first.place", "second.place", "second.lanes"} <= names["two_products"]
    assert "sums.parts" in names["row_sums"] and "total.parts" in names["total"]
    assert names["elementwise"] == {"c.vectors"}


def test_every_structure_is_in_the_space():
    """Padding in two places, weights copied in two, or vectors along rows that need no copy."""
    task = SearchTask(convolution, (3, 32, 20))
    candidates = Candidates(task)
    generator = np.random.default_rng(0)
    seen = {}
    for _ in range(80):
        made = candidates.get(task.space.random(generator))
        assert made is not None, candidates.refused
        seen.setdefault((made.config["pad.place"], made.config["conv.lanes"],
                         made.config.get("conv.weight")), made)
    assert set(seen) == {(place, *rest) for place in ("root", "tile")
                         for rest in (("o", "panel"), ("o", "whole"), ("x", None))}
    text = {structure: str(made.func) for structure, made in seen.items()}
    assert all(("weight_global" in text[structure]) == (structure[1] == "o") for structure in seen)
    assert all("pad" in code for code in text.values())


def test_padding_is_inlined_only_where_few_read_it():
    few = SearchTask(convolution, (3, 4, 10)).space.knobs[0]
    many = SearchTask(convolution, (3, 32, 10)).space.knobs[0]
    assert few.name == many.name == "pad.place"
    assert "inline" in few.alternatives and "inline" not in many.alternatives


def test_a_panel_is_copied_beside_its_tile_and_the_whole_before_all():
    task = SearchTask(dense, (64, 64, 32))

    def loops_around_the_copy(where):
        with deciding({"c.w": where}):
            schedule, _ = task.instantiate()
        (copy,) = [stage for stage in schedule.stages if stage.name == "w.global"]
        assert copy.stage.storage[0] == (1, 0)
        return copy.stage.attach

    assert loops_around_the_copy("whole") == "root"
    assert loops_around_the_copy("panel").stage.name == "c"


@pytest.mark.parametrize("tiles", [1, 2, "all"])
@pytest.mark.parametrize("tile", [(13, 32), (6, 32), (8, 48)])
def test_tiles_that_leave_a_rest_have_no_condition_inside(tile, tiles):
    """The rest is code of its own, also where outer tiles are fused into one loop."""
    task = SearchTask(product, (64, 128, 8), Target("llvm -mcpu=x86-64-v4"))
    with deciding({"c.tile.x": tile, "c.y.tiles": tiles, "c.x.tiles": 1}):
        schedule, tensors = task.instantiate()
        func = te.lower(schedule, tensors, name="candidate", target=task.target)
    for condition in walk.walk_statements(lower_tir(func).body):
        if isinstance(condition, ir.If):  # at most one that chooses between whole tiles
            assert any(isinstance(loop, ir.For) and loop.var.name.startswith("r_")
                       for loop in walk.walk_statements(condition))


def test_the_best_of_a_log_is_replayed():
    task = SearchTask(product, (16, 32, 8))

    def seconds(candidate):
        return (1e-6 if candidate.config.get("c.r") == 4 else 2e-6,)

    memory = autotune.Memory()
    autotune.tune_tasks([task], Invented(seconds), memory,
                        autotune.TuneOptions(trials=40, tuner="genetic"))
    history = autotune.apply_history_best(memory.records)
    schedule, tensors = best_schedule(task, history)
    assert schedule.steps == history.best[task.key].steps != task.default.steps
    a, b = example_arrays(task.params[:2])
    c = np.zeros((16, 32), np.float32)
    minitvm.build(schedule, tensors)(a, b, c)
    np.testing.assert_array_equal(c, a @ b)
    assert best_schedule(task, autotune.apply_history_best([]))[0].steps == task.default.steps


def test_a_workload_that_there_is_not():
    with pytest.raises(OptionError, match="no workload 'none'"):
        SearchTask("none", ())


def told(candidate):
    """Times that fall towards one point of a large space."""
    if not candidate.config:
        return (3e-5,)
    config = candidate.config
    tile = config.get("c.tile.x", (1, 1))
    far = sum(abs(np.log2(got / wanted)) for got, wanted in
              zip((*tile, config["c.r"]), (4, 32, 8), strict=True))
    other = (config["c.order"] != "points") + (config["c.unroll"] != "terms")
    return (round(1e-6 * (1 + far + other), 12),)


def test_a_policy_gives_the_best_schedule_and_keeps_what_it_measured():
    pytest.importorskip("xgboost")
    task = SearchTask(product, (64, 64, 64))
    options = autotune.TuneOptions(trials=64, batch=16, early_stopping=1000)
    evolution = autotune.Evolution(population=24, generations=2)
    logs = []
    for _ in range(2):
        memory = autotune.Memory()
        policy = autotune.SketchPolicy(task, evolution)
        schedule, _ = policy.tune(options, Invented(told), memory)
        logs.append([record.to_line() for record in memory.records])
    best = min(memory.records, key=lambda record: record.minimum)
    seconds = {record.steps: record.minimum for record in memory.records}
    assert seconds[schedule.steps] == best.minimum < seconds[task.default.steps]
    assert logs[0] == logs[1]
    assert policy.report.after_seconds == best.minimum < policy.report.before_seconds
    replayed = autotune.SketchPolicy(task, evolution).tune(
        options, autotune.ReplayMeasurer(memory.records))[0]
    assert replayed.steps == schedule.steps


@pytest.mark.parametrize("tuner", ["random", "genetic", "evolution"])
def test_no_schedule_is_proposed_twice(tuner):
    """Of 1,344 points many differ in counts of tiles that come to the same."""
    if tuner == "evolution":
        pytest.importorskip("xgboost")
    task = SearchTask(product, (3, 16, 4))
    memory = autotune.Memory()
    report = autotune.tune_tasks([task], Invented(told), memory, autotune.TuneOptions(
        trials=40, tuner=tuner, early_stopping=1000))
    trials = [record for record in memory.records if not record.contest]
    assert len({record.steps for record in trials}) == len(trials) == report.trials > 8


def test_random_points_near_the_rules():
    space = SearchTask(product, (64, 64, 64)).space
    generator = np.random.default_rng(0)
    rules = np.array(space.digits(space.default))

    def share(by_rules):
        points = [space.digits(space.random(generator, by_rules)) for _ in range(200)]
        return np.mean(np.array(points) == rules)

    assert share(1.0) == 1 and share(0.7) > 0.7 > share(0.0)


def test_evolution_climbs_faster_than_chance():
    """By the best times of 64 trials in a space of some million points."""
    pytest.importorskip("xgboost")
    task = SearchTask(product, (64, 64, 64))
    assert len(task.space) > 1_000_000

    def best(make_tuner):
        memory = autotune.Memory()
        options = autotune.TuneOptions(trials=64, tuner="random", early_stopping=1000)
        autotune.tune_tasks([task], Invented(told), memory, options, make_tuner=make_tuner)
        return min(record.minimum for record in memory.records)

    few = autotune.Evolution(population=32, generations=3)
    evolved = best(lambda candidates, seed: EvolutionTuner(candidates, seed, few))
    assert evolved < 0.9 * best(RandomTuner)


def test_mutations_change_one_choice_that_is_used():
    candidates = Candidates(SearchTask(convolution, (3, 4, 10)))
    tuner = EvolutionTuner(candidates, 0)
    space = candidates.task.space
    generator = np.random.default_rng(0)
    kinds = set()
    for _ in range(60):
        number = space.random(generator)
        child = tuner.mutate(number)
        changed = [knob for knob, old, new in zip(
            space.knobs, space.digits(number), space.digits(child), strict=True) if old != new]
        assert len(changed) == 1
        assert changed[0].name in candidates.get(number).config
        kinds.add("structure" if changed[0].is_structure else type(changed[0].default))
    assert kinds == {"structure", tuple, int, str}


def test_moves_of_tile_sizes_keep_all_factors_but_those_moved():
    knob = Knob("x", (1, 1, 4), ((1, 1, 4), (1, 2, 2), (2, 2, 1), (1, 1, 8), (1, 1, 6), (3, 1, 4)))
    assert moves(knob, 0) == [1, 3, 5]
