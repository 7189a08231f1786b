"""Machine code against the tir interpreter: the same kernel, the same arrays, the same bits."""

import numpy as np

from minitvm import dtypes
from minitvm.codegen.jit import build_kernel
from minitvm.origin import origin
from minitvm.target import Target
from minitvm.tir import interpret, ir

HERE = origin("test")
HOST = Target.host()
TARGETS = [target for target in (HOST, Target("llvm -mcpu=x86-64-v3"), Target("llvm -mcpu=x86-64"))
           if HOST.isa == "x86_64" and target.is_host()] or [HOST]


def buffers(*shapes, dtype="float32"):
    return [ir.buffer(f"B{number}", (size,), dtype) for number, size in enumerate(shapes)]


def special_values(dtype, count, seed=0):
    """`count` values of a dtype, the awkward ones among them."""
    random = np.random.default_rng(seed)
    kind = dtypes.to_numpy(dtype)
    if dtype == "bool":
        return random.integers(0, 2, count).astype(bool)
    if dtypes.is_float(dtype):
        facts = np.finfo(kind)
        odd = [0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0, 0.5, -2.5, facts.max, -facts.max,
               facts.tiny, facts.smallest_subnormal, -facts.smallest_subnormal, 3.0, -3.0]
        values = np.concatenate([np.array(odd, kind), random.normal(0, 5, count).astype(kind)])
    else:
        low, high = dtypes.integer_range(dtype)
        odd = [0, 1, 2, 3, 5, 7, high, low, high - 1, low + 1, -1 % (high + 1), 64]
        odd += [-1, -2, -3, -7] if low else []
        values = np.concatenate([
            np.array(odd, kind), random.integers(low, high, count, kind, endpoint=True)])
    return random.permutation(values)[:count].copy()


def same(got, expected, where=""):
    """Equal bits, all NaNs being one."""
    if got.dtype.kind == "f":
        equal = (got.view(f"u{got.itemsize}") == expected.view(f"u{got.itemsize}")) | (
            np.isnan(got) & np.isnan(expected))
    else:
        equal = got == expected
    wrong = np.flatnonzero(~equal)
    assert not wrong.size, (f"{where}: element {wrong[0]} is {got[wrong[0]]!r}, the interpreter "
                            f"says {expected[wrong[0]]!r}")


FENCE = 64
"""Bytes in front of and behind an array, which no kernel may write to."""


def fenced(array):
    """A copy between fences, and a function that says whether these still stand."""
    memory = np.full(array.nbytes + 2 * FENCE, 0xA5, np.uint8)
    copy = memory[FENCE : FENCE + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy, lambda: bool((memory[:FENCE] == 0xA5).all() and (memory[-FENCE:] == 0xA5).all())


def check(func, arrays, targets=TARGETS[:1], functions=None):
    """Runs a kernel both ways on copies; gives what the interpreter wrote."""
    expected = [array.copy() if isinstance(array, np.ndarray) else array for array in arrays]
    interpret.run(func, expected, functions)
    for target in targets:
        pairs = [fenced(array) if isinstance(array, np.ndarray) else (array, lambda: True)
                 for array in arrays]
        build_kernel(func, target)(*(array for array, _ in pairs))
        for number, ((a, stands), b) in enumerate(zip(pairs, expected)):
            where = f"{func.name} parameter {number} on {target}"
            assert stands(), f"{where}: written to outside of its bounds"
            if isinstance(a, np.ndarray):
                same(a, b, where)
    return expected


def lanes_of(buffer, i, lanes):
    """Elements i * lanes ... of a buffer: a vector, or one element."""
    return ir.Load(buffer, (lanes_at(i, lanes),))


def lanes_at(i, lanes):
    return i if lanes == 1 else ir.Ramp(i * lanes, ir.Const(1), lanes)


def elementwise(name, inputs, results, size, lanes):
    """A kernel that computes `results`, functions from loads to a value, over `size` elements.

    A vector loop over what `lanes` divides, then a scalar loop over the tail.
    """
    sources = [ir.buffer(f"A{number}", (size,), dtype) for number, dtype in enumerate(inputs)]

    def stores(i, count):
        loads = [lanes_of(source, i, count) for source in sources]
        values = [result(*loads) for result in results]
        for number, value in enumerate(values[len(outputs):], len(outputs)):
            outputs.append(ir.buffer(f"R{number}", (size,), dtypes.element(value.dtype)))
        return ir.seq(*(ir.Store(output, (lanes_at(i, count),), value, HERE)
                        for output, value in zip(outputs, values)))

    outputs = []
    i, j = ir.Var("i"), ir.Var("j")
    whole = size // lanes
    body = ir.For(i, ir.Const(0), ir.Const(whole), "serial", stores(i, lanes))
    if whole * lanes < size:
        start = ir.Const(whole * lanes)
        tail = ir.For(j, start, ir.Const(size - whole * lanes), "serial", stores(j, 1))
        body = ir.seq(body, tail)
    return ir.PrimFunc(name, (*sources, *outputs), body)


def empty_outputs(func, count):
    """Arrays for the parameters after the first `count`."""
    return [np.zeros(buffer.extents(), dtypes.to_numpy(buffer.dtype))
            for buffer in func.params[count:]]
