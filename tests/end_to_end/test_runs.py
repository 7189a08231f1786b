"""Runs: from several threads, without a C compiler, and from caches that are damaged or shared."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import networks
import numpy as np
import pytest
from networks import HOST, context, image, small_network

import minitvm

INPUT = {"input": image(1, 3, 20, 20)}
THREADS = 4


@pytest.fixture(scope="module")
def reference(in_kernel_cache):
    return minitvm.compile(small_network()).run(INPUT)["logits"]


@pytest.mark.parametrize("how", ["loaded", "in process"])
def test_any_number_of_threads_run_one_module(mobilenet, how):
    """Each run gives its own arrays, and the result it gives alone."""
    module = minitvm.load(mobilenet.so) if how == "loaded" else mobilenet.compiled.runtime
    inputs = [{"input": image(1, 3, 224, 224, seed=seed)} for seed in range(THREADS)]
    alone = [module.run(item)["logits"].copy() for item in inputs]
    assert len({item.tobytes() for item in alone}) == THREADS
    barrier = Barrier(THREADS)

    def work(index):
        barrier.wait()
        return [module.run(inputs[index])["logits"] for _ in range(6)]

    with ThreadPoolExecutor(THREADS) as pool:
        results = list(pool.map(work, range(THREADS)))
    arrays = [array for row in results for array in row]
    for row, expected in zip(results, alone, strict=True):
        for got in row:
            np.testing.assert_array_equal(got, expected)
    assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])


def test_the_library_and_the_process_give_the_same(mobilenet):
    loaded = minitvm.load(mobilenet.so)
    np.testing.assert_array_equal(loaded.run(mobilenet.input)["logits"],
                                  mobilenet.compiled.run(mobilenet.input)["logits"])


def test_cold_and_warm(mobilenet, tmp_path):
    """The second compilation takes every kernel from the cache, and gives the same program."""
    first = mobilenet.compiled
    assert first.cache_hits == 0
    with context(config={"cache.directory": str(mobilenet.cache)}):
        second = minitvm.compile(mobilenet.model, target=HOST)
    assert second.cache_hits == len(second.kernels) == len(first.kernels)
    assert second.timer.runs.get("te") is None
    second.export(tmp_path / "again.so")
    assert (tmp_path / "again.so").read_bytes() == mobilenet.so.read_bytes()


def compile_with(cache):
    with context(config={"cache.directory": str(cache)}):
        compiled = minitvm.compile(small_network())
    return compiled.cache_hits, compiled.run(INPUT)["logits"], compiled


def test_damaged_entries_are_made_again(tmp_path, reference):
    compile_with(tmp_path)
    entries = sorted(tmp_path.rglob("*.entry"))
    kept = entries[3].read_bytes()
    entries[0].write_bytes(b"")
    entries[1].write_bytes(b"garbage" * 1000)
    entries[2].write_bytes(entries[2].read_bytes()[:-1])
    entries[3].write_bytes(kept[:200] + bytes([kept[200] ^ 1]) + kept[201:])
    hits, result, compiled = compile_with(tmp_path)
    assert hits == len(entries) - 4 and len(compiled.kernels) == len(entries)
    np.testing.assert_array_equal(result, reference)
    assert entries[3].read_bytes() == kept, "made again as it was"
    assert compile_with(tmp_path)[0] == len(entries)


def test_a_cache_that_can_not_be_written(tmp_path, reference):
    (tmp_path / "file").write_text("in the way")
    hits, result, compiled = compile_with(tmp_path / "file" / "cache")
    assert hits == 0 and any("can't be written" in str(r) for r in compiled.remarks)
    np.testing.assert_array_equal(result, reference)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write to any folder")
def test_a_cache_that_can_only_be_read(tmp_path, reference):
    _, _, first = compile_with(tmp_path)
    for folder in [tmp_path, *tmp_path.iterdir()]:
        folder.chmod(0o555)
    try:
        hits, result, _ = compile_with(tmp_path)
        assert hits == len(first.kernels)
        np.testing.assert_array_equal(result, reference)
        with context(config={"cache.directory": str(tmp_path)}, opt_level=1):
            minitvm.compile(small_network())
    finally:
        for folder in [tmp_path, *tmp_path.iterdir()]:
            folder.chmod(0o755)


_COMPILE = """
import sys
import numpy as np
from networks import context, image, small_network
import minitvm
with context(config={"cache.directory": sys.argv[1] or None}):
    compiled = minitvm.compile(small_network())
np.save(sys.argv[2], compiled.run({"input": image(1, 3, 20, 20)})["logits"])
"""


def start(cache, output, **environment):
    """Compiles and runs the small network in another process."""
    path = os.pathsep.join([str(Path(networks.__file__).parent), *filter(None, sys.path)])
    return subprocess.Popen([sys.executable, "-c", _COMPILE, str(cache), str(output)],
                            env={**os.environ, "PYTHONPATH": path, **environment},
                            stderr=subprocess.PIPE, text=True)


def finish(process):
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors


def test_two_processes_share_a_cache(tmp_path, reference):
    cache = tmp_path / "cache"
    processes = [start(cache, tmp_path / f"{number}.npy") for number in range(2)]
    for number, process in enumerate(processes):
        finish(process)
        np.testing.assert_array_equal(np.load(tmp_path / f"{number}.npy"), reference)
    assert not [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".entry"]
    hits, result, compiled = compile_with(cache)
    assert hits == len(compiled.kernels)
    np.testing.assert_array_equal(result, reference)


def test_no_compiler_is_needed_in_the_process(tmp_path, reference):
    """With nothing on PATH the model compiles and runs; only a shared library needs a linker."""
    finish(start("", tmp_path / "y.npy", PATH=""))
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), reference)
