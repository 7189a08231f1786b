"""Instructions of one machine: their meaning in plain Python, the interpreter, the machine code."""

import itertools

import numpy as np
import pytest

from minitvm import dtypes
from minitvm.codegen.jit import build_kernel
from minitvm.codegen.llvm import function_to_llvm
from minitvm.codegen.machine import emit_assembly
from minitvm.errors import CodegenError, VerifyError
from minitvm.target import Target
from minitvm.tir import instructions, ir
from minitvm.tir.interpret import run
from minitvm.tir.text import parse_func, print_func
from minitvm.tir.verify import verify

HOST = Target.host()
FORMS = [(row.name, form.lanes) for row in instructions.TABLE.values() for form in row.forms]
MNEMONICS = {"x86_vpmaddwd": "vpmaddwd", "x86_vpmaddubsw": "vpmaddubsw",
             "x86_vpdpbusd": "vpdpbusd", "arm_sdot": "sdot", "arm_udot": "udot",
             "arm_usdot": "usdot"}


def wrapped(value, dtype):
    low, high = dtypes.integer_range(dtype)
    return (value - low) % (high - low + 1) + low


def pairs(a, b):
    return a[0] * b[0] + a[1] * b[1]


def scalar_meaning(name, groups):
    """One lane of the result, in Python's integers; `groups` are what belongs to the lane."""
    match name, groups:
        case "x86_vpmaddwd", (a, b):
            return wrapped(pairs(a, b), "int32")
        case "x86_vpmaddubsw", (a, b):
            return min(max(pairs(a, b), -32768), 32767)
        case _, ((c,), a, b):
            total = c + sum(x * y for x, y in zip(a, b, strict=True))
            return wrapped(total, instructions.TABLE[name].result)
    raise AssertionError(name)


def kernel(name, lanes):
    """A function of one call, from buffers of exactly its vectors."""
    row = instructions.TABLE[name]
    takes = row.takes(lanes)
    buffers = [ir.buffer(f"p{at}", (dtypes.lanes(dtype),), dtypes.element(dtype))
               for at, dtype in enumerate(takes)]
    out = ir.buffer("out", (lanes,), row.result)

    def ramp(buffer):
        return (ir.Ramp(ir.Const(0), ir.Const(1), buffer.extents()[0]),)

    call = ir.Call(name, tuple(ir.Load(buffer, ramp(buffer)) for buffer in buffers),
                   dtypes.vector(row.result, lanes))
    return ir.PrimFunc("kernel", (*buffers, out), ir.Store(out, ramp(out), call))


def operands(name, lanes, seed):
    """Random ones; of every other seed, the extremes of the dtypes."""
    random = np.random.default_rng(seed)
    arrays = []
    for dtype in instructions.TABLE[name].takes(lanes):
        element, count = dtypes.split(dtype)
        low, high = dtypes.integer_range(element)
        values = random.integers(low, high + 1, count)
        if seed % 2 == 0:
            values = random.choice([low, low + 1, -1 if low else 1, 0, high], count)
        arrays.append(values.astype(element))
    return arrays


@pytest.mark.parametrize(("name", "lanes"), FORMS)
def test_the_interpreter_and_the_machine_do_what_the_scalar_code_says(name, lanes):
    func, row = kernel(name, lanes), instructions.TABLE[name]
    verify(func, "machine")
    compiled = build_kernel(func) if HOST.has_one(row.features(lanes)) else None
    for seed in range(40):
        arrays = operands(name, lanes, seed)
        groups = [array.reshape(lanes, -1).tolist() for array in arrays]
        expected = [scalar_meaning(name, lane) for lane in zip(*groups, strict=True)]
        for execute in (lambda *given: run(func, given), compiled):
            if execute is not None:
                out = np.zeros(lanes, row.result)
                execute(*arrays, out)
                np.testing.assert_array_equal(out, np.array(expected, row.result))


def test_saturation_and_wrapping_happen_at_the_extremes():
    full = [np.full(32, 255, "uint8"), np.full(32, 127, "int8"), np.zeros(16, "int16")]
    run(kernel("x86_vpmaddubsw", 16), full)
    assert (full[2] == 32767).all()
    low = np.full(16, -32768, "int16")
    out = np.zeros(8, "int32")
    run(kernel("x86_vpmaddwd", 8), [low, low, out])
    assert (out == -(2**31)).all()


@pytest.mark.parametrize(("name", "lanes"), FORMS)
def test_each_set_of_features_gives_the_instruction(name, lanes):
    for features in instructions.TABLE[name].features(lanes):
        triple = "aarch64-linux-gnu" if name.startswith("arm") else "x86_64-linux-gnu"
        added = ",".join("+" + feature for feature in features.split(","))
        targets = [Target(f"llvm -mtriple={triple} -mcpu=generic -mattr={added}"),
                   Target(f"llvm -mtriple={triple} -mcpu={instructions.EXAMPLES[features]}")]
        for target in targets:
            assembly = emit_assembly(function_to_llvm(kernel(name, lanes), target), target)
            assert assembly.count(f"{MNEMONICS[name]}\t") == 1


@pytest.mark.parametrize(("name", "lanes"), FORMS)
def test_other_targets_are_refused_and_told_of_one_that_works(name, lanes):
    func, example = kernel(name, lanes), instructions.TABLE[name].features(lanes)[0]
    for text in ("x86_64-linux-gnu -mcpu=generic", "aarch64-linux-gnu -mcpu=cortex-a53"):
        with pytest.raises(CodegenError, match=f"{name} with {lanes} lanes needs") as caught:
            function_to_llvm(func, Target(f"llvm -mtriple={text}"))
        assert f"-mcpu={instructions.EXAMPLES[example]}" in str(caught.value)


@pytest.mark.parametrize(("name", "lanes"), FORMS)
def test_their_text_reads_back(name, lanes):
    func = kernel(name, lanes)
    again = parse_func(print_func(func))
    verify(again, "machine")
    assert print_func(again) == print_func(func)


@pytest.mark.parametrize("lanes", [2, 5])
def test_replicate_repeats_all_lanes(lanes):
    source, out = ir.buffer("x", (lanes,), "int16"), ir.buffer("out", (lanes * 3,), "int16")
    vector = ir.Load(source, (ir.Ramp(ir.Const(0), ir.Const(1), lanes),))
    call = ir.Call("replicate", (vector, ir.Const(3)), f"int16x{3 * lanes}")
    func = ir.PrimFunc("f", (source, out), ir.Store(
        out, (ir.Ramp(ir.Const(0), ir.Const(1), 3 * lanes),), call))
    verify(parse_func(print_func(func)), "machine")
    given = np.arange(lanes).astype("int16")
    for execute in (lambda *arrays: run(func, arrays), build_kernel(func)):
        result = np.zeros(3 * lanes, "int16")
        execute(given, result)
        np.testing.assert_array_equal(result, [*range(lanes)] * 3)


def broken_calls():
    """Calls that are not the one of `kernel`, and what is said of them."""
    good = kernel("x86_vpdpbusd", 8).body.value
    c, a, b = good.arguments
    yield ir.Call(good.name, (c, b, a), good.dtype), "takes int32x8, uint8x32, int8x32, not"
    yield ir.Call(good.name, (c, a), good.dtype), "takes int32x8"
    yield ir.Call(good.name, good.arguments, "int32x6"), "no form that gives int32x6"
    yield ir.Call(good.name, good.arguments, "uint32x8"), "no form that gives uint32x8"
    yield ir.Call("replicate", (c, ir.Const(1)), "int32x8"), "constant of two or more"
    yield ir.Call("replicate", (c, ir.Const(2)), "int32x8"), "gives int32x16"


@pytest.mark.parametrize("number", range(6))
def test_the_verifier_refuses_other_calls(number):
    call, message = next(itertools.islice(broken_calls(), number, None))
    buffers = tuple(dict.fromkeys(argument.buffer for argument in call.arguments
                                  if isinstance(argument, ir.Load)))
    with pytest.raises(VerifyError, match=message):
        verify(ir.PrimFunc("f", buffers, ir.Evaluate(call)), "machine")
