"""The machine code of MobileNetV2's hot loops: values stay in registers, products are fused."""

import re

import pytest
from networks import CORTEX, HOST

from minitvm.codegen.llvm import function_to_llvm
from minitvm.codegen.machine import emit_assembly
from minitvm.codegen.program import kernel_assembly
from minitvm.codegen.scratch import lift_scratch
from minitvm.driver import optimize
from minitvm.relay.lower import canonical, lower_function
from minitvm.relay.onnx import from_onnx
from minitvm.target import Target
from minitvm.testing import zoo_transformers
from minitvm.testing.assembly import innermost_loops
from minitvm.testing.zoo_layers import LayerBuilder
from minitvm.tir.passes import lower

ACCUMULATOR_STORE = re.compile(r"(v?mov\w*\s+%[xyz]mm|st[rp]\s+q)")
"""A vector written to memory, in either syntax."""

TARGETS = {
    "x86-64-v3": Target("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3"),
    "x86-64-v4": Target("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v4"),
    "cortex-a76": CORTEX,
}


def assembly_of(model, target):
    """The assembly of each kernel of a model for a target, by the kernel's operators."""
    module = optimize(from_onnx(model, {}), target)
    found = {}
    for name, function in module.functions.items():
        if function.is_primitive and not function.attrs.get("reshape_only"):
            func = lift_scratch(lower(lower_function(name, canonical(function), target)))
            found[name] = emit_assembly(function_to_llvm(func, target), target)
    return found


ROW_OPERAND = re.compile(r"v?(mov|fmadd|lea)\w*\s+-?\d*\(%rsp,%\w+(,\d)?\), |ldr\s+q\d+, \[sp, x")
"""What is read from the stack at a variable distance, or its address: of an array, no register."""


def spilled(name, loop):
    """What a loop keeps on the stack. A kernel of two convolutions may read the rows between them
    there, if they are short."""
    rows_between = name.count("nn_conv2d") == 2
    return [line for line in loop.stack_accesses
            if not (rows_between and ROW_OPERAND.match(line))]


def check_hot_loops(assemblies):
    """No innermost loop that multiplies and adds touches the stack; most kernels have such."""
    without = []
    for name, text in assemblies.items():
        hot = [loop for loop in innermost_loops(text) if loop.multiplies_and_adds]
        for loop in hot:
            assert not spilled(name, loop), (name, loop.label, spilled(name, loop))
        if not hot and "conv2d" in name:
            without.append(name)
    assert len(without) <= len(assemblies) // 2, f"convolutions unrolled whole: {without}"
    assert any("conv2d" in name for name in assemblies)


@pytest.mark.parametrize("name", TARGETS)
def test_hot_loops_keep_to_registers(mobilenet, name):
    assemblies = assembly_of(mobilenet.model, TARGETS[name])
    check_hot_loops(assemblies)
    products = "\n".join(assemblies.values())
    if name == "cortex-a76":
        assert "fmla" in products and "v0.4s" in products, "vectors of four floats"
        scalar = [line for line in products.splitlines() if "\tfmadd" in line]
        assert not scalar, scalar[:3]
    else:
        width = "zmm" if name == "x86-64-v4" else "ymm"
        assert "vfmadd" in products and width in products


def test_rows_computed_together_keep_to_registers():
    """Images of 7x7, of which a tile takes two rows where there are 32 registers."""
    net = LayerBuilder({}, 3)
    x = net.activate(net.conv("input", 3, 64, 3), "relu")
    net.pooled(net.conv(x, 64, 64, 3))
    model = net.finish("rows", 1, 7, 64)
    for name in ("x86-64-v3", "x86-64-v4"):
        check_hot_loops(assembly_of(model, TARGETS[name]))


@pytest.mark.parametrize("name", TARGETS)
def test_products_of_transformers_keep_to_registers(name):
    """Dense layers, and attention, whose loops read their operands from the stack but accumulate
    in registers. Not on ARM where GELU follows: LLVM keeps its constants in registers meanwhile."""
    model = zoo_transformers.vit(image=64, classes=10, layers=1)
    functions = optimize(from_onnx(model, {}), TARGETS[name]).functions
    products = 0
    for kernel, text in assembly_of(model, TARGETS[name]).items():
        operators = [b.value.callee.name for b in functions[kernel].body.bindings]
        if name == "cortex-a76" and "gelu" in operators:
            continue
        for loop in innermost_loops(text):
            count = sum("fmadd" in line or "fmla" in line for line in loop.instructions)
            if count < 9 or any("div" in line for line in loop.instructions):
                continue  # powers, or an epilogue such as GELU with its division
            products += 1
            stores = [line for line in loop.stack_accesses if ACCUMULATOR_STORE.match(line)]
            assert not stores, (kernel, loop.label, stores)
            if "nn.attention" not in operators:
                assert not loop.stack_accesses, (kernel, loop.label, loop.stack_accesses)
    assert products >= 5


def test_hot_loops_of_this_machine(mobilenet):
    check_hot_loops({kernel.name: kernel_assembly(kernel, HOST)
                     for kernel in mobilenet.compiled.kernels})


SPILLING = """
.LBB0_1:
	vmovups	(%rsp), %zmm1
	vfmadd231ps	(%rdi), %zmm0, %zmm1
	vmovups	%zmm1, (%rsp)
	decq	%rax
	jne	.LBB0_1
.LBB0_2:
	vfmadd231ps	(%rdi), %zmm0, %zmm1
	jne	.LBB0_2
"""


def test_a_spill_would_be_seen():
    spilling, clean = innermost_loops(SPILLING)
    assert spilling.multiplies_and_adds and clean.multiplies_and_adds
    assert len(spilling.stack_accesses) == 2 and not clean.stack_accesses
    for name in ("nn_conv2d", "nn_conv2d_nn_conv2d"):
        with pytest.raises(AssertionError, match="LBB0_1"):
            check_hot_loops({name: SPILLING})
    indexed = SPILLING.replace("(%rsp)", "64(%rsp,%rdx)")
    with pytest.raises(AssertionError, match="LBB0_1"):
        check_hot_loops({"nn_conv2d_nn_conv2d": indexed})
    reading = "\n".join(line for line in indexed.splitlines() if "zmm1, 64" not in line)
    check_hot_loops({"nn_conv2d_nn_conv2d": reading})
    with pytest.raises(AssertionError, match="LBB0_1"):
        check_hot_loops({"nn_conv2d": reading})


ROTATED = """
kernel:
	jmp	.LBB0_2
.LBB0_1:
	vmovups	%zmm1, (%rdi)
	decq	%rbx
	je	.LBB0_4
.LBB0_2:
	vmovaps	64(%rsp), %zmm1
.LBB0_3:
	vfmadd231ps	(%rdi), %zmm0, %zmm1
	decq	%rax
	je	.LBB0_1
	jmp	.LBB0_3
.LBB0_4:
	retq
"""


def test_an_outer_loop_laid_out_around_the_inner_one_is_no_part_of_it():
    (loop,) = innermost_loops(ROTATED)
    assert loop.label == ".LBB0_3" and not loop.stack_accesses
    assert loop.multiplies_and_adds
