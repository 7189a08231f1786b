"""Tasks whose whole spaces are small enough to measure: what tuners are compared on.

Each is a template of a few thousand points, all of them legal, that a search can do well or badly
in: tiles that spill registers or starve them, orders that leave the caches, loops that are not
unrolled.
"""

from __future__ import annotations

from minitvm import autotune, te
from minitvm.autotune.task import Scheduled, Task


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


LANES = 8


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
    cfg.define_knob("points", [1, 2, 4, 7, 8, 14, 28, 56])
    cfg.define_knob("rows", [1, 2, 4])
    cfg.define_knob("order", ["points", "taps"])
    cfg.define_knob("unroll", ["none", "points", "taps", "all"])
    cfg.define_knob("local", [False, True])
    out, work = s[conv], s[conv]
    if cfg["local"].val:
        work = s[s.cache_write(conv, "local")]
    b, y, x, lane = out.op.axis
    y_outer, y_inner = out.split(y, factor=cfg["rows"].val)
    x_outer, x_inner = out.split(x, factor=cfg["points"].val)
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
    if cfg["unroll"].val in ("points", "all"):
        for axis in inner:
            work.unroll(axis)
    if cfg["unroll"].val in ("taps", "all"):
        for axis in taps:
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


ARGUMENTS: dict[str, tuple[int, ...]] = {
    "matmul": (96, 192, 128), "convolution": (16, 32, 28), "depthwise": (4, 56)}
"""For each template arguments of which a call takes some tenths of a millisecond at best."""


def tasks() -> dict[str, Task]:
    """The tasks by name."""
    return {name: autotune.create_task(name, arguments) for name, arguments in ARGUMENTS.items()}
