"""It is a compiler: kernels come from schedules, objects from text, and equal input gives equal
bytes, in another process and from the cache too."""

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import networks
import numpy as np
import pytest
from networks import HOST, context, small_network

import minitvm
from minitvm.codegen.program import compile_kernel
from minitvm.driver import compile_fused, optimize
from minitvm.relay.lower import canonical, lower_function, schedule_function, to_te
from minitvm.relay.onnx import from_onnx
from minitvm.relay.structural_hash import structural_hash
from minitvm.relay.text import parse_module, print_module
from minitvm.te import Schedule
from minitvm.te.steps import from_json, to_json
from minitvm.testing import zoo
from minitvm.tir.text import parse_func, print_func


def primitive_functions(module):
    return {name: canonical(function) for name, function in module.functions.items()
            if function.is_primitive and not function.attrs.get("reshape_only")}


def test_every_kernel_comes_from_a_schedule(mobilenet):
    """Each kernel has a schedule with steps; those alone, as data, give the same loop nest."""
    functions = primitive_functions(mobilenet.compiled.relay)
    assert len(functions) == len(mobilenet.compiled.kernels)
    for name, function in functions.items():
        schedule = schedule_function(to_te(function), HOST)
        assert schedule.steps, name
        steps = [from_json(to_json(step)) for step in schedule.steps]
        assert tuple(steps) == schedule.steps
        assert Schedule.replay(schedule.outputs, steps).show() == schedule.show()
        assert (print_func(lower_function(name, function, HOST, steps))
                == print_func(lower_function(name, function, HOST))), name


def test_the_text_of_a_kernel_is_all_of_it(mobilenet):
    """Parsing the printed tir of each kernel and compiling that gives the same object."""
    for kernel in mobilenet.compiled.kernels:
        func = parse_func(kernel.text)
        assert print_func(func) == kernel.text
        assert compile_kernel(func, HOST).object == kernel.object, kernel.name


_EXPORT = """
import sys
from networks import no_cache, context, small_network
import minitvm
options = {"cache.directory": sys.argv[2]} if len(sys.argv) > 2 else {"cache.directory": None}
with context(config=options):
    compiled = minitvm.compile(small_network(), name="small", export=sys.argv[1])
print(compiled.cache_hits, len(compiled.kernels))
"""


def export_elsewhere(path, *cache, seed):
    """Exports the small network in another process; gives (cache hits, kernels)."""
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": os.pathsep.join(
        [str(Path(networks.__file__).parent), *filter(None, sys.path)])}
    done = subprocess.run([sys.executable, "-c", _EXPORT, str(path), *map(str, cache)],
                          env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return tuple(map(int, done.stdout.split()))


def test_equal_input_gives_equal_bytes(tmp_path):
    """In two processes with different hash seeds; without a cache, with a cold and a warm one."""
    runs = {
        "plain": export_elsewhere(tmp_path / "plain.so", seed=1),
        "other": export_elsewhere(tmp_path / "other.so", seed=2),
        "cold": export_elsewhere(tmp_path / "cold.so", tmp_path / "cache", seed=3),
        "warm": export_elsewhere(tmp_path / "warm.so", tmp_path / "cache", seed=4),
    }
    hits = {name: found for name, (found, _) in runs.items()}
    kernels = runs["plain"][1]
    assert hits == {"plain": 0, "other": 0, "cold": 0, "warm": kernels}
    digests = {name: hashlib.sha256((tmp_path / f"{name}.so").read_bytes()).hexdigest()
               for name in runs}
    assert len(set(digests.values())) == 1, digests
    headers = {(tmp_path / "small.h").read_text()}
    assert len(headers) == 1


@pytest.fixture(scope="module")
def dumped(tmp_path_factory, in_kernel_cache):
    folder = tmp_path_factory.mktemp("dump")
    compiled = minitvm.compile(zoo.mobilenet_v2(0, image=32, width=0.35), dump=folder)
    return folder, compiled


def test_dumps_hold_every_pass_in_order(dumped):
    folder, compiled = dumped
    for stage in (folder / "relay", *(folder / "kernels").iterdir()):
        names = sorted(path.name for path in stage.glob("*.txt"))
        assert names[0] == "000_input.txt" and len(names) > 1
        assert all(re.fullmatch(r"\d{3}_\w+\.txt", name) for name in names)
    assert {path.name for path in (folder / "kernels").iterdir()} == {
        kernel.name for kernel in compiled.kernels}
    passes = {path.stem.split("_", 1)[1] for path in (folder / "relay").glob("*.txt")}
    assert {"FoldScaleAxis", "AlterOpLayout", "FuseOps"} <= passes


def test_dumped_relay_reads_and_prints_the_same(dumped):
    folder, compiled = dumped
    with np.load(folder / "relay" / "constants.npz") as archive:
        constants = {f"sha256:{name}": archive[name] for name in archive.files}
    texts = [path.read_text() for path in sorted((folder / "relay").glob("*.txt"))]
    for text in texts:
        assert print_module(parse_module(text, constants)) == text
    assert texts[-1] == print_module(compiled.relay)


def test_dumped_tir_reads_and_prints_the_same(dumped):
    folder, compiled = dumped
    last = {}
    for path in sorted((folder / "kernels").rglob("*.txt")):
        last[path.parent.name] = text = path.read_text()
        assert print_func(parse_func(text)) == text, path
    for kernel in compiled.kernels:
        assert compile_kernel(parse_func(last[kernel.name]), HOST).object == kernel.object
    text = (folder / "main.tir").read_text()
    assert print_func(parse_func(text)) == text == print_func(compiled.main)


def test_a_schedule_from_data_replaces_the_default():
    """`schedules` by structural hash: the kernel follows the steps given, and none gives loops as
    written."""
    module = from_onnx(small_network(), {})
    with context():
        fused = optimize(module, HOST)
    hashes = {structural_hash(f): () for f in primitive_functions(fused).values()}
    plain = minitvm.compile(small_network(), schedules=hashes)
    default = minitvm.compile(small_network())
    assert {k.text.split("(")[0] for k in plain.kernels}.isdisjoint(
        k.text.split("(")[0] for k in default.kernels)
    x = {"input": networks.image(1, 3, 20, 20)}
    networks.assert_close(plain.run(x), default.run(x))
    assert not any("unrolled" in kernel.text for kernel in plain.kernels)


def test_a_schedule_of_no_kernel_is_a_remark():
    compiled = minitvm.compile(small_network(), schedules={"sha256:none": ()})
    assert any("sha256:none" in str(remark) for remark in compiled.remarks)


def test_threads_are_set_and_one_graph_is_compiled_with_several_schedules():
    module = optimize(from_onnx(small_network(), {}), HOST)
    plain = compile_fused(module, HOST, {})
    assert plain.threads == 1
    plain.threads = 2
    assert plain.threads == plain.runtime.threads == 2
    functions = primitive_functions(module)
    assert set(plain.structures) == {kernel.name for kernel in plain.kernels}
    assert set(plain.structures.values()) == set(map(structural_hash, functions.values()))
    key = next(iter(plain.structures.values()))
    other = compile_fused(module, HOST, {key: ()})
    assert [kernel.text for kernel in other.kernels if other.structures[kernel.name] != key] == [
        kernel.text for kernel in plain.kernels if plain.structures[kernel.name] != key]
    assert other.kernels != plain.kernels and not other.unfit
