"""What a user gets for MobileNetV2, timing apart: fused kernels, little memory, a small library."""

import re
import shutil
import subprocess

import pytest
from networks import context

from minitvm.driver import optimize
from minitvm.relay.ir import Call, GlobalVar, tensor_type
from minitvm.relay.memory import plan_memory
from minitvm.relay.memory_check import check_plan
from minitvm.relay.memory_plan import size_bytes
from minitvm.relay.onnx import from_onnx
from minitvm.relay.structural_hash import structural_hash
from minitvm.runtime import abi, elf
from minitvm.target import Target
from minitvm.tir import ir
from minitvm.tir.walk import walk_statements

EIGHT_LANES = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3")
MOST_CALLS = 55
MOST_ACTIVATION_BYTES = 28e6
MOST_CODE_BYTES = 400_000


@pytest.fixture(scope="module")
def fused(mobilenet):
    """The graph for a target of eight lanes."""
    with context():
        return optimize(from_onnx(mobilenet.model, {}), EIGHT_LANES)


def kernel_calls(module, plan):
    return [binding for binding in module.main.body.bindings
            if isinstance(binding.value, Call) and isinstance(binding.value.callee, GlobalVar)
            and binding.var not in plan.views]


def test_few_kernels_write_few_bytes(fused):
    plan = plan_memory(fused)
    calls = kernel_calls(fused, plan)
    assert len(calls) <= MOST_CALLS
    written = sum(size_bytes(result) for call in calls for result in plan.results(call.var))
    assert 10e6 < written <= MOST_ACTIVATION_BYTES
    used = {call.value.callee.name for call in calls}
    hashes = [structural_hash(fused.functions[name]) for name in used]
    assert len(set(hashes)) == len(hashes) < len(calls), "equal groups share one function"


def test_every_convolution_is_packed_and_takes_in_what_follows(fused):
    """No batch norm, no clip and no residual addition is left to a kernel of its own."""
    for name, function in fused.functions.items():
        operators = [binding.value.callee.name for binding in function.body.bindings]
        if name == "main" or function.attrs.get("reshape_only"):
            continue
        assert operators[0] in ("nn.conv2d", "nn.global_avg_pool2d", "nn.dense"), operators
        assert "nn.batch_norm" not in operators
        if operators[0] == "nn.conv2d":
            assert tensor_type(function.body.result).shape[-1] == 8


@pytest.mark.parametrize("where", ["host", "eight lanes"])
def test_memory_is_near_the_lower_bound_and_sound(mobilenet, fused, where):
    module = mobilenet.compiled.relay if where == "host" else fused
    plan = mobilenet.compiled.plan if where == "host" else plan_memory(fused)
    check_plan(module, plan)
    assert 0 < plan.lower_bound_bytes <= plan.workspace_bytes <= 1.05 * plan.lower_bound_bytes


def test_the_host_calls_few_kernels_too(mobilenet):
    compiled = mobilenet.compiled
    assert len(compiled.kernels) < compiled.kernel_calls <= MOST_CALLS
    called = {s.callee for s in walk_statements(compiled.main.body) if isinstance(s, ir.Invoke)}
    assert called == {kernel.name for kernel in compiled.kernels}, "no kernel is made in vain"


def test_the_library_is_weights_and_little_else(mobilenet):
    weights = mobilenet.compiled.program.weights.nbytes
    assert weights <= mobilenet.so.stat().st_size <= weights + MOST_CODE_BYTES
    sections = elf.read_sections(mobilenet.so.read_bytes())
    assert not [section.name for section in sections if "debug" in section.name]
    facts = elf.read_library(mobilenet.so)
    assert facts.exported == set(abi.function_names("mobilenet_v2"))
    assert all(name.startswith(("libc.", "libm.")) for name in facts.needed)


@pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf is not on PATH")
def test_another_reader_says_the_same(mobilenet):
    def read(*options):
        return subprocess.run(["readelf", "-W", *options, str(mobilenet.so)], check=True,
                              capture_output=True, text=True).stdout

    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", read("-d"))
    assert needed and set(needed) <= {"libc.so.6", "libm.so.6"}
    rows = [line.split() for line in read("--dyn-syms").splitlines()]
    exported = {row[7] for row in rows if len(row) >= 8 and row[4] == "GLOBAL" and row[6] != "UND"}
    assert exported == set(abi.function_names("mobilenet_v2"))
    assert "debug" not in read("-S")


def test_files_beside_the_library(mobilenet):
    names = {path.name for path in mobilenet.folder.iterdir()}
    assert names == {"mobilenet_v2.so", "mobilenet_v2.h", "mobilenet_v2_sample.c"}
