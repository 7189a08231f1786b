"""Every operation, of every dtype, at several vector widths, with a tail: as interpreted."""

import numpy as np
import pytest
from differential import TARGETS, check, elementwise, empty_outputs, special_values

from minitvm import dtypes
from minitvm.codegen.jit import build_kernel
from minitvm.tir import ir

SIZE = 77
WIDTHS = (1, 4, 16)
INTEGERS = [name for name in dtypes.SCALARS if dtypes.is_int(name)]
FLOATS = [name for name in dtypes.SCALARS if dtypes.is_float(name)]


def run(name, inputs, results, arrays, lanes, targets=TARGETS):
    func = elementwise(name, inputs, results, SIZE, lanes)
    return check(func, [*arrays, *empty_outputs(func, len(arrays))], targets)


def operation(op):
    return lambda a, b, *_: ir.Binary(op, a, b)


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_operations(dtype, lanes):
    a, b = special_values(dtype, SIZE, 1), special_values(dtype, SIZE, 2)
    shift = np.random.default_rng(3).integers(0, dtypes.bits(dtype), SIZE).astype(a.dtype)
    divisor = np.where(b == 0, 3, b).astype(a.dtype)
    pairs = ("add", "sub", "mul", "min", "max", "bitand", "bitor", "bitxor")
    results = [operation(op) for op in pairs]
    results += [lambda a, b, s, d, op=op: ir.Binary(op, a, d) for op in ("floordiv", "floormod")]
    results += [lambda a, b, s, d, op=op: ir.Binary(op, a, s) for op in ("shl", "shr")]
    results += [lambda a, b, s, d, op=op: ir.Compare(op, a, b) for op in ir.COMPARE_OPS]
    results += [lambda a, *_, op=op, c=c: ir.Binary(op, a, ir.convert(c, a.dtype))
                for op in ("floordiv", "floormod", "max", "min") for c in (1, 7, 8)]
    results.append(lambda a, *_: ir.Call("abs", (a,), a.dtype))
    run("integers", [dtype] * 4, results, [a, b, shift, divisor], lanes, TARGETS[:1])


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_float_operations(dtype, lanes):
    a, b = special_values(dtype, SIZE, 1), special_values(dtype, SIZE, 2)
    results = [operation(op) for op in ("add", "sub", "mul", "div")]
    results += [lambda a, b, op=op: ir.Compare(op, a, b) for op in ir.COMPARE_OPS]
    results += [lambda a, b, op=op: unsigned_zero(ir.Binary(op, a, b)) for op in ("min", "max")]
    results += [lambda a, b, op=op, c=c: unsigned_zero(ir.Binary(op, a, ir.convert(c, a.dtype)))
                for op in ("min", "max") for c in (0.0, 6.0, float("inf"))]
    results += [lambda a, b, op=op: ir.Binary(op, ir.convert(1.5, a.dtype), a)
                for op in ("min", "max", "sub", "div")]
    results += [lambda a, b, name=name: ir.Call(name, (a,), a.dtype)
                for name in ("sqrt", "floor", "ceil", "trunc", "round", "abs")]
    results += [lambda a, b, name=name: ir.Call(name, (a,), dtypes.vector("bool", lanes_of(a)))
                for name in ("isnan", "isinf")]
    run("floats", [dtype] * 2, results, [a, b], lanes)


def unsigned_zero(value):
    """Which of two zeros min and max give is left open, as numpy leaves it."""
    return ir.Binary("add", value, ir.convert(0.0, value.dtype))


def lanes_of(expr):
    return dtypes.lanes(expr.dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_floor_division_of_floats_is_numpys(dtype):
    a, b = special_values(dtype, SIZE, 1), special_values(dtype, SIZE, 2)
    func = elementwise("divide", [dtype] * 2, [operation("floordiv"), operation("floormod")],
                       SIZE, 4)
    arrays = [a, b, *empty_outputs(func, 2)]
    build_kernel(func)(*arrays)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(arrays[2], np.floor_divide(a, b))
        np.testing.assert_array_equal(arrays[3], np.mod(a, b))


@pytest.mark.parametrize("lanes", WIDTHS)
def test_bool_operations(lanes):
    a, b = special_values("bool", SIZE, 1), special_values("bool", SIZE, 2)
    results = [ir.And, ir.Or, lambda a, b: ir.Not(a)]
    results += [lambda a, b, op=op: ir.Compare(op, a, b) for op in ("eq", "ne")]
    results += [lambda a, b: ir.Select(a, b, ir.Not(b))]
    run("bools", ["bool", "bool"], results, [a, b], lanes)


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("source", list(dtypes.SCALARS))
def test_casts(source, lanes):
    values = special_values(source, SIZE, 4)
    if dtypes.is_float(source):  # beyond the integer's range numpy leaves it to the machine
        values = np.where(np.abs(values) < 100, values, 7).astype(values.dtype)
        values[:3] = (-0.0, 99.9, 1e-3)
        values = np.abs(values)
    results = [lambda a, dtype=dtype: ir.Cast(dtypes.vector(dtype, lanes_of(a)), a)
               for dtype in dtypes.SCALARS if dtype != source]
    run("casts", [source], results, [values], lanes)


def test_double_to_half_rounds_once():
    halves = np.arange(0, 2**15, 37, dtype=np.uint16).view(np.float16).astype(np.float64)
    halves = halves[np.isfinite(halves)]
    middle = (halves[:-1] + halves[1:]) / 2
    values = np.concatenate([halves, middle, np.nextafter(middle, 0), np.nextafter(middle, 1e9)])
    func = elementwise("halves", ["float64"],
                       [lambda a: ir.Cast(dtypes.vector("float16", lanes_of(a)), a)],
                       len(values), 8)
    check(func, [values, *empty_outputs(func, 1)], TARGETS)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_no_integer_operation_ends_the_process(dtype):
    """Division by zero, of the least by -1, and shifts too far: numpy's answer, not a signal."""
    low, high = dtypes.integer_range(dtype)
    kind = dtypes.to_numpy(dtype)
    a = np.array([low, high, 5, 0, low], kind)
    b = np.array([-1 % (high + 1) if not low else -1, 0, 0, 0, high], kind)
    func = elementwise("edge", [dtype] * 2,
                       [operation(op) for op in ("floordiv", "floormod", "shl", "shr")], 5, 4)
    arrays = [a, b, *empty_outputs(func, 2)]
    build_kernel(func)(*arrays)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(arrays[2], a // b)
        np.testing.assert_array_equal(arrays[3], a % b)
