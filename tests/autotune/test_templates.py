"""Templates: what they declare is the space, and records of them schedule them again."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_tasks import Invented

import minitvm
from minitvm import autotune, te
from minitvm.autotune.measure.kernel import Timing
from minitvm.autotune.task import example_arrays
from minitvm.autotune.templates import Config, factorizations, template_key
from minitvm.errors import OptionError
from minitvm.tir import ir
from minitvm.tir.text import print_func


@autotune.template("tests.matmul")
def matmul(n, m, k):
    a = te.placeholder((n, k), "float32", name="a")
    b = te.placeholder((k, m), "float32", name="b")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((n, m), lambda y, x: te.sum(a[y, r] * b[r, x], axis=r), name="c")
    s = te.create_schedule(c.op)
    y, x = s[c].op.axis
    (z,) = s[c].op.reduce_axis
    cfg = autotune.get_config()
    cfg.define_split("tile_y", y, num_outputs=2)
    cfg.define_split("tile_x", x, policy="power2", num_outputs=2, max_factor=32)
    cfg.define_reorder("order", [z, y], policy="all")
    cfg.define_annotate("inner", [x], policy="try_vec")
    cfg.define_knob("unroll", [False, True])
    yo, yi = cfg["tile_y"].apply(s, c, y)
    xo, xi = cfg["tile_x"].apply(s, c, x)
    s[c].reorder(yo, xo, z, yi, xi)
    cfg["order"].apply(s, c, [z, yi])
    cfg["inner"].apply(s, c, [xi])
    if cfg["unroll"].val:
        s[c].unroll(yi)
    return s, [a, b, c]


def test_the_space_is_what_the_template_declares():
    task = autotune.create_task("tests.matmul", args=(24, 40, 8))
    radices = dict(zip([knob.name for knob in task.space.knobs], task.space.radices))
    assert radices == {"tile_y": 8, "tile_x": 6, "order": 2, "inner": 2, "unroll": 2}
    ways = task.space.knobs[1].alternatives
    assert (5, 8) in ways and (3, 16) in ways
    assert task.work.flops == 2 * 24 * 40 * 8
    other = autotune.create_task("tests.matmul", args=(24, 40, 16))
    assert other.key != task.key == template_key("tests.matmul", (24, 40, 8))


def test_every_point_computes_the_product():
    task = autotune.create_task("tests.matmul", args=(12, 20, 8))
    a, b = example_arrays(task.params[:2])
    generator = np.random.default_rng(0)
    for number in [task.space.default, *(task.space.random(generator) for _ in range(12))]:
        c = np.zeros((12, 20), np.float32)
        minitvm.build(task.candidate(number).func)(a, b, c)
        np.testing.assert_array_equal(c, a @ b)


def test_a_template_is_scheduled_by_the_best_record_of_a_log():
    task = autotune.create_task("tests.matmul", args=(16, 32, 8))

    def seconds(candidate):
        wide = candidate.config.get("inner") == ("vec",)
        return (1e-6 * (1 if wide else 2) + 1e-8 * candidate.config.get("tile_y", (16, 1))[0],)

    memory = autotune.Memory()
    autotune.tune_tasks([task], Invented(seconds), memory,
                        autotune.TuneOptions(trials=60, tuner="genetic"))
    plain, _ = matmul(16, 32, 8)
    with autotune.apply_history_best(memory.records) as history:
        tuned, _ = matmul(16, 32, 8)
        elsewhere, _ = matmul(16, 32, 4)
    assert tuned.steps == history.best[task.key].steps != plain.steps
    assert elsewhere.steps == matmul(16, 32, 4)[0].steps
    assert any("vectorized" in str(step) for step in tuned.steps)


def test_a_template_is_measured_against_the_plain_program():
    task = autotune.create_task("tests.matmul", args=(16, 32, 8))
    options = autotune.MeasureOptions(timing=Timing(2, 0.1))
    with autotune.LocalMeasurer(options) as measurer:
        outcomes = list(measurer.measure(
            task, [task.candidate(number) for number in (0, 100, 370)]))
        good = [outcome for outcome in outcomes if not outcome.error]
        assert good == outcomes
        wrong = autotune.create_task("tests.matmul", args=(16, 32, 8)).default
        func = task.default.func
        bad = type(wrong)({}, (), type(func)(func.name, (func.params[1], func.params[0],
                                                          func.params[2]), func.body))
        assert next(measurer.measure(task, [bad])).error in ("wrong", "run", "bounds")


def test_what_a_template_can_not_declare():
    cfg = Config()
    with pytest.raises(OptionError, match="no policy 'all_of' for a split; there are factors"):
        cfg.define_split("s", 8, policy="all_of")
    with pytest.raises(OptionError, match="has no candidate left"):
        cfg.define_split("s", 8, filter=lambda entity: False)
    with pytest.raises(OptionError, match="has no candidates"):
        cfg.define_knob("k", [])
    with pytest.raises(OptionError, match="no knob 'other'; it has none yet"):
        cfg["other"]
    with pytest.raises(OptionError, match="no template 'none'"):
        autotune.create_task("none", ())


def test_factorizations():
    assert list(factorizations(6, 2)) == [(1, 6), (2, 3), (3, 2), (6, 1)]
    assert all(np.prod(sizes) == 24 for sizes in factorizations(24, 3))
    assert len(list(factorizations(2**5, 4))) == 56


@autotune.template("tests.bytes")
def products_of_bytes(rows):
    """With an instruction where the target has it, which is tensorized."""
    a = te.placeholder((rows, 64), "uint8", name="a")
    w = te.placeholder((1, 16, 16 * 4), "int8", name="w")
    k = te.reduce_axis((0, 64), name="k")

    def element(i, j):
        weight = w[j // 16, k.var // 4, j % 16 * 4 + k.var % 4]
        return te.sum(ir.cast(a[i, k], "int32") * ir.cast(weight, "int32"), axis=k)

    c = te.compute((rows, 16), element, name="c")
    s = te.create_schedule(c)
    outer, inner = s[c].split(c.op.reduce_axis[0], factor=4)
    i, j = c.op.axis
    s[c].reorder(i, outer, j, inner)
    s[c].tensorize(j, te.intrinsics.dot_bytes(rows=1, lanes=16))
    return s, [a, w, c]


@pytest.mark.parametrize(("cpu", "has"), [("cascadelake", True), ("x86-64-v3", False)])
def test_candidates_have_the_instructions_of_their_target_alone(cpu, has):
    task = autotune.create_task("tests.bytes", (4,), f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}")
    assert ("vpdpbusd" in print_func(task.default.func)) == has
