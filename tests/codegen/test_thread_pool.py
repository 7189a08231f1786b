"""The thread pool: pieces, concurrent runs, fork, unloading, affinity, what it leaves behind."""

import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest

from minitvm.codegen import jit
from minitvm.codegen.jit import build_kernel, load_program, pool_threads
from minitvm.codegen.link import export
from minitvm.codegen.program import TensorInfo, compile_kernel, make_program, pool
from minitvm.codegen.thread_pool import ENTER, LEAVE, PARALLEL_FOR
from minitvm.errors import InputError
from minitvm.runtime import elf, load
from minitvm.target import Target
from minitvm.tir.text import parse_func

SIZE = 40_000
KERNEL = """
def smooth(A: Buffer((40000,), "float32"), B: Buffer((40000,), "float32")):
    for i in parallel(400):
        for j in range(100):
            B[i * 100 + j] = A[(i * 100 + j + 1) % 40000] * 0.5 + A[i * 100 + j] * 0.25
"""
CALLS = 10
MAIN = """
def main(x: Buffer((40000,), "float32"), y: Buffer((40000,), "float32"),
         weights: Buffer((0,), "uint8"), workspace: Buffer((320000,), "uint8")):
    invoke(smooth, address(x, 0), address(workspace, 0))  #: "a"
{calls}
    invoke(smooth, address(workspace, 0), address(y, 0))  #: "z"
"""
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on PATH")
needs_linux = pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="no /proc")


def program():
    """A model of several parallel kernels, one after the other."""
    target = Target.host()
    there, back = "address(workspace, 0)", "address(workspace, 160000)"
    calls = "\n".join(f'    invoke(smooth, {a}, {b})  #: "b"'
                      for _ in range(CALLS // 2) for a, b in ((there, back), (back, there)))
    kernel = compile_kernel(parse_func(KERNEL), target)
    return make_program("smooth", parse_func(MAIN.format(calls=calls)), [kernel],
                        np.empty(0, np.uint8), [TensorInfo("x", (SIZE,))],
                        [TensorInfo("y", (SIZE,))], target)


def given(seed=0):
    return np.random.default_rng(seed).normal(0, 1, SIZE).astype(np.float32)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    if shutil.which("cc") is None:
        pytest.skip("no C compiler on PATH")
    return export(program(), tmp_path_factory.mktemp("pool") / "smooth.so")


@pytest.fixture(params=["loaded", "in the process"])
def module(request):
    if request.param == "loaded":
        return load(request.getfixturevalue("library"))
    return load_program(program())


def call_pool(name, result, *arguments):
    """A function of the process's own pool."""
    kinds = [type(argument) for argument in arguments]
    return ctypes.CFUNCTYPE(result, *kinds)(jit._pool()[0][name])(*arguments)


def run_region(function, threads, extent, limit=256):
    """Has the pool call a function of (begin, end, number) for all iterations."""

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    def region(context, begin, end, number):
        function(begin, end, number)

    with pool_threads(threads):
        call_pool(PARALLEL_FOR, None, ctypes.cast(region, ctypes.c_void_p), ctypes.c_void_p(),
                  ctypes.c_int64(extent), ctypes.c_int64(limit))


def pieces(threads, extent, limit=256):
    """What was computed by whom: (begin, end, number, thread), in order."""
    found = []

    def region(begin, end, number):
        found.append((begin, end, number, threading.get_native_id()))

    run_region(region, threads, extent, limit)
    return sorted(found)


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 256])
@pytest.mark.parametrize("extent", [1, 2, 7, 1000])
def test_every_iteration_is_computed_once(threads, extent):
    found = pieces(threads, extent)
    ends = [0, *(end for _, end, _, _ in found)]
    assert [begin for begin, _, _, _ in found] == ends[:-1] and ends[-1] == extent
    who = {(number, thread) for _, _, number, thread in found}
    assert len(who) == len(dict(who)) <= min(threads, extent), "a number stands for one thread"
    assert all(number < threads for number, _ in who)
    assert all((number == 0) == (thread == threading.get_native_id()) for number, thread in who)


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_region_is_shared_by_no_more_threads_than_its_limit(limit):
    for _ in range(20):
        assert {number for _, _, number, _ in pieces(8, 100, limit)} <= set(range(limit))


def shares(threads, extent, stopped):
    """How many iterations each thread computes while those in `stopped` stay in their first piece
    until all that is left is computed by others."""
    done, all_done = dict.fromkeys(range(threads), 0), threading.Event()
    lock, waited = threading.Lock(), []

    def region(begin, end, number):
        with lock:
            done[number] += end - begin
            if sum(done.values()) == extent:
                all_done.set()
        if number in stopped:
            waited.append(all_done.wait(20))

    run_region(region, threads, extent)
    assert all(waited), "the rest waited for a thread that was stopped"
    return done


def test_others_take_what_a_late_thread_has_left():
    for stopped in ({1}, {0}, {1, 2}, {0, 1, 2}):
        for extent in (8, 64, 1000):
            done = shares(4, extent, stopped)
            assert sum(done.values()) == extent
            first = -(-extent // 4 // 2) + 1
            assert all(done[number] <= first for number in stopped), (done, stopped)


def test_threads_that_keep_pace_compute_contiguous_halves():
    """Each starts at the front of its own range, with half of it."""
    started = threading.Barrier(2)
    first = {}

    def region(begin, end, number):
        if number not in first:
            first[number] = (begin, end)
            started.wait(20)

    run_region(region, 2, 64)
    assert first == {0: (0, 16), 1: (32, 48)}


def test_many_short_regions_with_more_threads_than_processors():
    """Workers come late to most of them, and must not touch those that are over."""
    kernel = build_kernel(parse_func("""
def count(A: Buffer((512,), "int32")):
    for turn in range(5000):
        for i in parallel(32):
            A[i * 16] = A[i * 16] + 1
"""))
    counted = np.zeros(512, np.int32)
    for threads in (2, 3, 8, 32):
        with pool_threads(threads):
            kernel(counted)
    np.testing.assert_array_equal(counted[::16], 4 * 5000)


def test_results_do_not_depend_on_the_number_of_threads(module):
    x = given()
    expected = module.run({"x": x})["y"]
    for threads in (2, 3, 8, 1):
        module.threads = threads
        for _ in range(20):
            assert module.run({"x": x})["y"].tobytes() == expected.tobytes()


def test_eight_callers_run_one_model(module):
    expected = {seed: module.run({"x": given(seed)})["y"] for seed in range(8)}
    module.threads, wrong = 3, []

    def work(seed):
        x = given(seed)
        for _ in range(100):
            if not np.array_equal(module.run({"x": x})["y"], expected[seed]):
                wrong.append(seed)

    callers = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_a_second_run_does_not_wait_for_the_first():
    """It computes on its caller's thread while another holds the pool, and on several after."""
    got = []

    def second():
        got.append(call_pool(ENTER, ctypes.c_int32, ctypes.c_int32(2)))
        got.append(pieces(2, 10))

    with pool_threads(2):
        caller = threading.Thread(target=second)
        caller.start()
        caller.join(20)
        assert got[0] == 0 and [row[:3] for row in got[1]] == [(0, 10, 0)]
        assert call_pool(ENTER, ctypes.c_int32, ctypes.c_int32(2)) == 0
    assert call_pool(ENTER, ctypes.c_int32, ctypes.c_int32(2)) == 1
    call_pool(LEAVE, None)
    assert call_pool(ENTER, ctypes.c_int32, ctypes.c_int32(1)) == 0, "one thread takes no pool"


FORK = """
import os, sys
import numpy as np
from minitvm.runtime import load
module = load(sys.argv[1], threads=3)
x = np.random.default_rng(1).normal(0, 1, 40000).astype(np.float32)
expected = module.run({"x": x})["y"].tobytes()
children = []
for number in range(4):
    child = os.fork()
    if child == 0:
        module.threads = 1 + number
        ok = all(module.run({"x": x})["y"].tobytes() == expected for _ in range(50))
        workers = len(os.listdir("/proc/self/task")) - 1
        os._exit(0 if ok and workers == number else 1)
    children.append(child)
    module.run({"x": x})
states = [os.waitpid(child, 0)[1] for child in children]
assert states == [0, 0, 0, 0], states
assert module.run({"x": x})["y"].tobytes() == expected
"""


@needs_linux
def test_children_of_fork_start_their_own_workers(library):
    subprocess.run([sys.executable, "-c", FORK, str(library)], check=True, timeout=60)


FORK_INSIDE = """
import os, sys, threading
import numpy as np
from minitvm.runtime import load
module = load(sys.argv[1], threads=2)
x = np.random.default_rng(1).normal(0, 1, 40000).astype(np.float32)
expected = module.run({"x": x})["y"].tobytes()
stop = threading.Event()
def work():
    while not stop.is_set():
        module.run({"x": x})
caller = threading.Thread(target=work)
caller.start()
states = []
for _ in range(30):
    child = os.fork()
    if child == 0:
        ok = True
        for threads in (1, 2, 1):
            module.threads = threads
            ok = ok and module.run({"x": x})["y"].tobytes() == expected
        os._exit(0 if ok else 1)
    states.append(os.waitpid(child, 0)[1])
stop.set()
caller.join()
assert not any(states), states
"""


@needs_linux
def test_a_fork_while_another_thread_runs(library):
    subprocess.run([sys.executable, "-c", FORK_INSIDE, str(library)], check=True, timeout=60)


UNLOAD = """
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
typedef struct { void *data; const int64_t *shape; } tensor;
typedef int32_t (*run_function)(const tensor *, tensor *, void *, int32_t);
int main(int argc, char **argv) {
  static float x[40000], y[40000];
  void *workspace = aligned_alloc(64, 1 << 20), *library = dlopen(argv[1], RTLD_NOW);
  run_function run = library ? (run_function)dlsym(library, "smooth_run") : NULL;
  tensor in = {x, NULL}, out = {y, NULL};
  int i;
  for (i = 0; i < 40000; i++) x[i] = 4;
  for (i = 0; run && i < 5; i++)
    if (run(&in, &out, workspace, 4)) return 1;
  if (!run || y[39999] > 1 || y[39999] <= 0 || dlclose(library)) return 2;
  struct timespec pause = {0, atoi(argv[2])};
  nanosleep(&pause, NULL);
  return argc == 3 ? 0 : 3;
}
"""


@needs_compiler
def test_thirty_times_start_run_and_unload(library, tmp_path):
    """Workers that still look for work, and sleeping ones, outlive dlclose."""
    (tmp_path / "unload.c").write_text(UNLOAD)
    subprocess.run(["cc", "unload.c", "-o", "unload", "-ldl"], cwd=tmp_path, check=True)
    for number in range(30):
        pause = (0, 10_000, 2_000_000)[number % 3]
        done = subprocess.run(["./unload", str(library), str(pause)], cwd=tmp_path, timeout=20)
        assert done.returncode == 0, number


def _resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


@needs_linux
def test_runs_take_no_more_memory_or_threads(module):
    module.threads = 3
    x, y = given(), np.empty(SIZE, np.float32)
    run = module.bind([x], [y])
    for _ in range(100):
        run()
    memory, tasks = _resident(), len(os.listdir("/proc/self/task"))
    for _ in range(500):
        run()
    assert _resident() - memory < 1 << 20 and len(os.listdir("/proc/self/task")) == tasks


PIN = """
import os, sys
import numpy as np
from minitvm.runtime import load
allowed = sorted(os.sched_getaffinity(0))
module = load(sys.argv[1], threads=3, cpus=[allowed[0], allowed[-1]])
x = np.ones(40000, np.float32)
def places():
    me = os.getpid()
    return [os.sched_getaffinity(int(t)) for t in sorted(os.listdir("/proc/self/task"), key=int)
            if int(t) != me]
module.run({"x": x})
assert places() == [{allowed[-1]}, {allowed[0]}], places()
module.set_affinity([allowed[0]])
assert places() == [{allowed[0]}, {allowed[0]}], places()
module.set_affinity([])
assert places() == [set(allowed)] * 2, places()
assert os.sched_getaffinity(0) == set(allowed)
"""


@needs_linux
def test_workers_run_where_they_are_told(library):
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", PIN, str(library)], check=True, timeout=60,
                   env=environment)


def test_cpus_that_do_not_exist_are_refused(module):
    for cpus in ([1023], [-1], [2**40], [0] * 257, [os.cpu_count() + 500]):
        with pytest.raises(InputError, match="a CPU that threads may not run on"):
            module.set_affinity(cpus)
    for cpus in ([0.5], 3, "x"):
        with pytest.raises(InputError, match="a list of CPU numbers"):
            module.set_affinity(cpus)
    before = os.sched_getaffinity(0)
    with contextlib.suppress(InputError):
        module.set_affinity([sorted(before)[0], 1023])
    assert os.sched_getaffinity(0) == before


def test_the_pool_compiles_for_every_machine():
    for triple in ("x86_64-linux-gnu", "aarch64-linux-gnu"):
        target = Target(f"llvm -mtriple={triple} -mcpu=generic")
        assert elf.header(pool(target))[1] == elf.MACHINES[target.isa]
    assert pool(Target.host()) == pool(Target.host())
