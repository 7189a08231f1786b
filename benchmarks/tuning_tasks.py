"""Tasks whose whole spaces are small enough to measure: what tuners are compared on.

Each is a template of some two thousand points, all of them legal, that a search can do well or
badly in: tiles that spill registers or starve them, orders that leave the caches, loops that are
not unrolled.
"""

from __future__ import annotations

from typing import Any

from minitvm import autotune, te
from minitvm.autotune.sketch_rules import derive
from minitvm.autotune.task import Scheduled, Task
from minitvm.target import Target
from minitvm.te.recipes.knobs import deciding
from minitvm.testing import te_workloads


@autotune.template("matmul")
def matmul(n: int, m: int, k: int) -> Scheduled:
    """Products of matrices: tiles of all three axes, their order, where sums are kept."""
    a = te.placeholder((n, k), "float32", name="a")
    b = te.placeholder((k, m), "float32", name="b")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((n, m), lambda y, x: te.sum(a[y, r] * b[r, x], axis=r), name="c")
    s = te.create_schedule(c.op)
    cfg = autotune.get_config()
    cfg.define_knob("rows", [1, 2, 3, 4, 6, 8, 12, 16])
    cfg.define_knob("columns", [8, 16, 32, 64, 4])
    cfg.define_knob("terms", [1, 8])
    cfg.define_knob("order", ["rows", "columns", "terms", "tiles"])
    cfg.define_knob("unroll", ["none", "rows", "all"])
    cfg.define_knob("local", [False, True])
    rows, columns = cfg["rows"].val, cfg["columns"].val
    out = s[c]
    if cfg["local"].val:
        work = s[s.cache_write(c, "local")]
        y_outer, y_inner = out.split(out.op.axis[0], factor=rows)
        x_outer, x_inner = out.split(out.op.axis[1], factor=columns)
        outer = [x_outer, y_outer] if cfg["order"].val == "columns" else [y_outer, x_outer]
        out.reorder(*outer, y_inner, x_inner)
        out.vectorize(x_inner)
        work.compute_at(out, outer[-1])
        y_inner, x_inner = work.op.axis
        tiles = []
    else:
        work = out
        y_outer, y_inner = out.split(out.op.axis[0], factor=rows)
        x_outer, x_inner = out.split(out.op.axis[1], factor=columns)
        tiles = [x_outer, y_outer] if cfg["order"].val == "columns" else [y_outer, x_outer]
    top, low = work.split(work.op.reduce_axis[0], factor=cfg["terms"].val)
    match cfg["order"].val:
        case "terms":
            work.reorder(top, *tiles, low, y_inner, x_inner)
        case "tiles":
            work.reorder(*tiles, y_inner, top, low, x_inner)
        case _:
            work.reorder(*tiles, top, low, y_inner, x_inner)
    if cfg["unroll"].val != "none":
        work.unroll(y_inner)
    if cfg["unroll"].val == "all":
        work.unroll(low)
    work.vectorize(x_inner)
    return s, [a, b, c]


LANES, BLOCK = 8, 16


@autotune.template("convolution")
def convolution(channels: int, filters: int, size: int) -> Scheduled:
    """3x3 convolutions of channels in blocks, with padding that is there already."""
    data = te.placeholder((channels, size + 2, size + 2), "float32", name="data")
    weight = te.placeholder((filters // LANES, channels, 3, 3, LANES), "float32", name="weight")
    i, p, q = (te.reduce_axis((0, e), n) for e, n in ((channels, "i"), (3, "p"), (3, "q")))
    conv = te.compute(
        (filters // LANES, size, size, LANES),
        lambda o, y, x, lane: te.sum(
            data[i, y + p, x + q] * weight[o, i, p, q, lane], axis=[i, p, q]), name="conv")
    s = te.create_schedule(conv.op)
    cfg = autotune.get_config()
    cfg.define_knob("points", [1, 2, 4, 7, 14, 28])
    cfg.define_knob("blocks", [1, 2, 4])
    cfg.define_knob("rows", [1, 2])
    cfg.define_knob("order", ["blocks", "rows", "taps"])
    cfg.define_knob("channels", [1, 4])
    cfg.define_knob("unroll", ["none", "points", "blocks", "taps"])
    cfg.define_knob("local", [False, True])
    out, work = s[conv], s[conv]
    if cfg["local"].val:
        work = s[s.cache_write(conv, "local")]
    o, y, x, lane = out.op.axis
    o_outer, o_inner = out.split(o, factor=cfg["blocks"].val)
    y_outer, y_inner = out.split(y, factor=cfg["rows"].val)
    x_outer, x_inner = out.split(x, factor=cfg["points"].val)
    outer = [y_outer, x_outer, o_outer] if cfg["order"].val == "rows" else [
        o_outer, y_outer, x_outer]
    out.reorder(*outer, o_inner, y_inner, x_inner, lane)
    inner = [o_inner, y_inner, x_inner]
    if cfg["local"].val:
        out.vectorize(lane)
        work.compute_at(out, outer[-1])
        *inner, lane = work.op.axis
        outer = []
    i, p, q = work.op.reduce_axis
    top, low = work.split(i, factor=cfg["channels"].val)
    taps = [p, q, top, low] if cfg["order"].val == "taps" else [top, low, p, q]
    work.reorder(*outer, *taps, *inner, lane)
    work.vectorize(lane)
    if cfg["unroll"].val != "none":
        work.unroll(inner[2])
    if cfg["unroll"].val in ("blocks", "taps"):
        work.unroll(inner[0])
        work.unroll(inner[1])
    if cfg["unroll"].val == "taps":
        work.unroll(q)
    return s, [data, weight, conv]


@autotune.template("depthwise")
def depthwise(blocks: int, size: int) -> Scheduled:
    """3x3 convolutions of each channel by itself, padded in various places."""
    data = te.placeholder((blocks, size, size, LANES), "float32", name="data")
    weight = te.placeholder((blocks, 3, 3, LANES), "float32", name="weight")
    pad = te.compute(
        (blocks, size + 2, size + 2, LANES),
        lambda b, y, x, lane: te.if_then_else(
            te.all(y >= 1, y < size + 1, x >= 1, x < size + 1),
            data[b, y - 1, x - 1, lane], 0.0), name="pad")
    p, q = te.reduce_axis((0, 3), "p"), te.reduce_axis((0, 3), "q")
    conv = te.compute(
        (blocks, size, size, LANES),
        lambda b, y, x, lane: te.sum(
            pad[b, y + p, x + q, lane] * weight[b, p, q, lane], axis=[p, q]), name="conv")
    s = te.create_schedule(conv.op)
    cfg = autotune.get_config()
    cfg.define_knob("pad", ["root", "block", "tile", "inline"])
    cfg.define_knob("tile", [(rows, points) for rows, most in ((1, 28), (2, 14), (3, 8), (4, 7),
                                                               (7, 4))
                             for points in (1, 2, 4, 7, 8, 14, 28) if points <= most])
    cfg.define_knob("order", ["points", "taps"])
    cfg.define_knob("unroll", ["none", "points", "taps", "all"])
    cfg.define_knob("local", [False, True])
    out, work = s[conv], s[conv]
    if cfg["local"].val:
        work = s[s.cache_write(conv, "local")]
    b, y, x, lane = out.op.axis
    rows, points = cfg["tile"].val
    y_outer, y_inner = out.split(y, factor=rows)
    x_outer, x_inner = out.split(x, factor=points)
    out.reorder(b, y_outer, x_outer, y_inner, x_inner, lane)
    outer, inner = [b, y_outer, x_outer], [y_inner, x_inner]
    if cfg["local"].val:
        out.vectorize(lane)
        work.compute_at(out, x_outer)
        _, *inner, lane = work.op.axis
        outer = [work.op.axis[0]]
    taps = list(work.op.reduce_axis)
    if cfg["order"].val == "points":
        work.reorder(*outer, *taps, *inner, lane)
    else:
        work.reorder(*outer, *inner, *taps, lane)
    work.vectorize(lane)
    unrolled = {"none": [], "points": inner, "taps": taps, "all": [*inner, *taps]}
    for axis in unrolled[cfg["unroll"].val]:
        work.unroll(axis)
    match cfg["pad"].val:
        case "inline":
            s[pad].compute_inline()
        case "block":
            s[pad].compute_at(out, b)
        case "tile":
            s[pad].compute_at(out, x_outer)
    if cfg["pad"].val != "inline":
        s[pad].vectorize(s[pad].op.axis[-1])
    return s, [data, weight, conv]


@autotune.template("pointwise")
def pointwise(channels: int, filters: int, pixels: int) -> Scheduled:
    """1x1 convolutions, data and weights in blocks of channels."""
    data = te.placeholder((channels // BLOCK, pixels, BLOCK), "float32", name="data")
    weight = te.placeholder(
        (filters // BLOCK, channels // BLOCK, BLOCK, BLOCK), "float32", name="weight")
    i, j = te.reduce_axis((0, channels // BLOCK), "i"), te.reduce_axis((0, BLOCK), "j")
    conv = te.compute(
        (filters // BLOCK, pixels, BLOCK), lambda o, p, lane: te.sum(
            data[i, p, j] * weight[o, i, j, lane], axis=[i, j]), name="conv")
    s = te.create_schedule(conv.op)
    cfg = autotune.get_config()
    cfg.define_knob("points", [1, 2, 4, 7, 14, 28])
    cfg.define_knob("blocks", [1, 2, 4])
    cfg.define_knob("outer", [1, 2, 7])
    cfg.define_knob("order", ["blocks", "points"])
    cfg.define_knob("terms", ["inside", "outside"])
    cfg.define_knob("unroll", ["none", "points", "tile", "terms"])
    cfg.define_knob("local", [False, True])
    out, work = s[conv], s[conv]
    if cfg["local"].val:
        work = s[s.cache_write(conv, "local")]
    o, p, lane = out.op.axis
    o_outer, o_inner = out.split(o, factor=cfg["blocks"].val)
    p_outer, p_inner = out.split(p, factor=cfg["points"].val)
    p_top, p_outer = out.split(p_outer, factor=cfg["outer"].val)
    outer = [p_top, o_outer, p_outer] if cfg["order"].val == "points" else [
        o_outer, p_top, p_outer]
    out.reorder(*outer, o_inner, p_inner, lane)
    inner = [o_inner, p_inner]
    if cfg["local"].val:
        out.vectorize(lane)
        work.compute_at(out, outer[-1])
        *inner, lane = work.op.axis
        outer = []
    i, j = work.op.reduce_axis
    j_outer, j_inner = work.split(j, factor=4)
    terms = [i, j_outer, j_inner]
    if cfg["terms"].val == "outside":
        work.reorder(*outer, *terms, *inner, lane)
    else:
        work.reorder(*outer, inner[0], *terms, inner[1], lane)
    work.vectorize(lane)
    unrolled = {"none": [], "points": inner[1:], "tile": inner, "terms": [j_inner, *inner]}
    for axis in unrolled[cfg["unroll"].val]:
        work.unroll(axis)
    return s, [data, weight, conv]


@autotune.template("dense")
def dense(rows: int, outputs: int, terms: int) -> Scheduled:
    """A few rows times a matrix whose own rows are summed up over: partial sums in lanes, or
    outputs in lanes, whose weights lie apart or are copied."""
    a = te.placeholder((rows, terms), "float32", name="a")
    w = te.placeholder((outputs, terms), "float32", name="w")
    r = te.reduce_axis((0, terms), "r")
    c = te.compute((rows, outputs), lambda y, x: te.sum(a[y, r] * w[x, r], axis=r), name="c")
    s = te.create_schedule(c.op)
    cfg = autotune.get_config()
    cfg.define_knob("lanes", ["partial", "apart", "copied"])
    cfg.define_knob("width", [4, 8, 16, 32])
    cfg.define_knob("rows", [1, 2, 4])
    cfg.define_knob("vectors", [1, 2, 4, 8])
    cfg.define_knob("terms", [1, 2, 4, 8])
    cfg.define_knob("unroll", ["none", "tile", "all"])
    width, partial = cfg["width"].val, cfg["lanes"].val == "partial"
    if partial:
        _, low = s[c].split(s[c].op.reduce_axis[0], factor=width)
        sums = s[s.rfactor(c, low, 2)]
    else:
        sums = s[s.cache_write(c, "local")]
    out = s[c]
    y_outer, y_inner = out.split(out.op.axis[0], factor=cfg["rows"].val)
    x_outer, x_inner = out.split(
        out.op.axis[1], factor=cfg["vectors"].val * (1 if partial else width))
    out.reorder(y_outer, x_outer, y_inner, x_inner)
    sums.compute_at(out, x_outer)
    y, x, *lane = sums.op.axis
    if not partial:
        x, lane[:] = (parts := sums.split(x, factor=width))[0], parts[1:]
        out.vectorize(x_inner)
    top, low = sums.split(sums.op.reduce_axis[0], factor=cfg["terms"].val)
    sums.reorder(top, low, y, x, *lane)
    sums.vectorize(lane[0])
    unrolled = {"none": [], "tile": [y, x], "all": [low, y, x]}
    for axis in unrolled[cfg["unroll"].val]:
        sums.unroll(axis)
    if cfg["lanes"].val == "copied":
        copy = s[s.cache_read(w, "global", [sums.name])]
        column, term = copy.op.axis
        copy.reorder_storage(term, column, factor=width)
        copy.reorder(term, column)
        block, column = copy.split(column, factor=width)
        copy.reorder(block, term, column)
        copy.vectorize(column)
    return s, [a, w, c]


SKETCHED: dict[str, list[Any]] = {
    "conv.lanes": ["o", "x"], "pad.place": ["root", "tile"], "conv.order": ["lanes", "points"],
    "conv.place": ["tile", "outer"], "conv.y.tiles": [1, 2, "all"], "conv.o.tiles": [1, "all"],
    "conv.i": [1, 4]}
"""What is open of the sketch below, apart from its tiles."""


@autotune.template("sketch")
def sketch(channels: int, filters: int, size: int) -> Scheduled:
    """The sketch of a user's 3x3 convolution, bias and relu, some of its choices."""
    tensors = te_workloads.convolution(channels, filters, size)
    cfg = autotune.get_config()
    for name, values in SKETCHED.items():
        cfg.define_knob(name, values)
    cfg.define_knob("tile", list(range(0, 32, 4)))
    values = {name: cfg[name].val for name in SKETCHED}
    lanes = values["conv.lanes"]
    with deciding({"conv.lanes": lanes}) as met:
        derive(tensors[-1:], Target.host())
    tiles = met.knobs[f"conv.tile.{lanes}"].alternatives
    values[f"conv.tile.{lanes}"] = tiles[cfg["tile"].val]
    with deciding(values):
        return derive(tensors[-1:], Target.host()), tensors


ARGUMENTS: dict[str, tuple[int, ...]] = {
    "matmul": (96, 192, 128), "convolution": (16, 32, 28), "depthwise": (4, 56),
    "pointwise": (64, 64, 196), "dense": (4, 256, 256), "sketch": (32, 32, 14)}
"""For each template arguments of which a call takes some tens of microseconds at best."""


def tasks() -> dict[str, Task]:
    """The tasks by name."""
    return {name: autotune.create_task(name, arguments) for name, arguments in ARGUMENTS.items()}
