"""Weights in a file of their own: found, shared, checked; every kind of damage has its code."""

import ctypes
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy import WEIGHTS, toy_input, toy_program, toy_result

from minitvm.codegen import link
from minitvm.codegen.link import export, find_linker
from minitvm.codegen.weights_file import loader_object, write_weights_file
from minitvm.errors import LinkError, LoadError, OptionError
from minitvm.runtime import abi, elf, load
from minitvm.runtime.abi import ErrorCode
from minitvm.target import Target

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on PATH")
HOST = Target.host()
NAME = "toy_model_1"
needs_proc = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no /proc")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return export(toy_program(), tmp_path_factory.mktemp("separate") / "toy.so",
                  weights="separate")


def copy_of(model, folder, weights=True):
    """A library that the process has not loaded, with its weights beside it."""
    shutil.copy(model, folder)
    if weights:
        shutil.copy(model.with_name(f"{NAME}.weights"), folder)
    return folder / model.name


def result(module):
    x = toy_input()
    return module.run({"x": x})["y"]


def refuses(library, code, weights=None):
    with pytest.raises(LoadError) as caught:
        load(library, weights=weights)
    message = str(caught.value)
    assert abi.ERROR_TEXTS[code] in message and f"{NAME}.weights" in message, message
    assert "\n" not in message


def test_the_files_and_the_header(model):
    names = {f"{NAME}.h", f"{NAME}_sample.c", f"{NAME}.weights", "toy.so"}
    assert set(os.listdir(model.parent)) == names
    data = model.with_name(f"{NAME}.weights").read_bytes()
    magic, version, start, size, _, _ = struct.unpack_from("<8sIIQQ32s", data)
    assert (magic, version, start, size) == (b"MTVMWGHT", 1, 64, 4032)
    assert len(data) == start + size and data[start:start + 4000] == WEIGHTS.tobytes()
    assert data[start + 4000:] == bytes(32)
    assert WEIGHTS.tobytes()[400:800] not in model.read_bytes()
    embedded = toy_program()
    metadata = load(model).metadata
    assert metadata["weights_file"] == f"{NAME}.weights"
    assert metadata["weights_sha256"] == embedded.weights_sha256 == data[32:64].hex()


def test_it_runs_from_beside_and_from_elsewhere(model, tmp_path):
    for folder in ("beside", "elsewhere", "given"):
        (tmp_path / folder).mkdir()
    beside = copy_of(model, tmp_path / "beside")
    np.testing.assert_array_equal(result(load(beside)), toy_result(toy_input()))
    alone = copy_of(model, tmp_path / "elsewhere", weights=False)
    refuses(alone, ErrorCode.WEIGHTS_UNREADABLE)
    given = shutil.copy(model.with_name(f"{NAME}.weights"), tmp_path / "given" / "my weights")
    np.testing.assert_array_equal(result(load(alone, weights=given)), toy_result(toy_input()))


def test_a_model_with_its_weights_inside_takes_no_file(model, tmp_path):
    path = export(toy_program(), tmp_path / "toy.so")
    weights = model.with_name(f"{NAME}.weights")
    with pytest.raises(LoadError, match="holds its weights itself"):
        load(path, weights=weights)
    module = load(path)
    module.load_weights("nowhere")  # the function is there, and does nothing
    assert module.metadata["weights_file"] is None


DAMAGE = {
    "empty": (lambda data: b"", ErrorCode.WEIGHTS_TRUNCATED),
    "in the magic": (lambda data: data[:5], ErrorCode.WEIGHTS_TRUNCATED),
    "in the header": (lambda data: data[:40], ErrorCode.WEIGHTS_TRUNCATED),
    "behind the header": (lambda data: data[:64], ErrorCode.WEIGHTS_TRUNCATED),
    "by a byte": (lambda data: data[:-1], ErrorCode.WEIGHTS_TRUNCATED),
    "by a half": (lambda data: data[:len(data) // 2], ErrorCode.WEIGHTS_TRUNCATED),
    "longer": (lambda data: data + b"x", ErrorCode.WEIGHTS_DAMAGED),
    "text": (lambda data: b"hello" * 1000, ErrorCode.WEIGHTS_FORMAT),
    "of a later version": (lambda data: data[:8] + b"\2" + data[9:], ErrorCode.WEIGHTS_FORMAT),
    "of another model": (lambda data: data[:32] + bytes(32) + data[64:],
                         ErrorCode.WEIGHTS_OF_ANOTHER_MODEL),
    "another checksum": (lambda data: data[:24] + bytes(8) + data[32:], ErrorCode.WEIGHTS_DAMAGED),
    "another size": (lambda data: data[:16] + b"\xff" * 8 + data[24:], ErrorCode.WEIGHTS_DAMAGED),
    "zeros": (lambda data: data[:64] + bytes(len(data) - 64), ErrorCode.WEIGHTS_DAMAGED),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_has_its_code(model, tmp_path, kind):
    change, code = DAMAGE[kind]
    library = copy_of(model, tmp_path, weights=False)
    weights = tmp_path / f"{NAME}.weights"
    weights.write_bytes(change(model.with_name(weights.name).read_bytes()))
    refuses(library, code)
    weights.unlink()
    shutil.copy(model.with_name(weights.name), weights)  # mended, it loads without a restart
    np.testing.assert_array_equal(result(load(library)), toy_result(toy_input()))


@given(cut=st.integers(0, 4095), flip=st.integers(0, 8 * 4096 - 1))
def test_any_bit_and_any_end_is_found(model, tmp_path_factory, cut, flip):
    folder = tmp_path_factory.mktemp("damaged")
    library = copy_of(model, folder, weights=False)
    weights = folder / f"{NAME}.weights"
    data = model.with_name(weights.name).read_bytes()
    assert len(data) == 4096
    weights.write_bytes(data[:cut])
    refuses(library, ErrorCode.WEIGHTS_TRUNCATED)
    changed = bytearray(data)
    changed[flip // 8] ^= 1 << flip % 8
    weights.write_bytes(changed)
    refuses(library, ErrorCode.WEIGHTS_FORMAT if flip // 8 < 16
            else ErrorCode.WEIGHTS_OF_ANOTHER_MODEL if 32 <= flip // 8 < 64
            else ErrorCode.WEIGHTS_DAMAGED)


def test_what_is_no_file_is_refused(model, tmp_path):
    library = copy_of(model, tmp_path, weights=False)
    weights = tmp_path / f"{NAME}.weights"
    weights.mkdir()
    refuses(library, ErrorCode.WEIGHTS_UNREADABLE)
    weights.rmdir()
    os.mkfifo(weights)  # nobody writes to it: opening must not wait
    refuses(library, ErrorCode.WEIGHTS_UNREADABLE)
    weights.unlink()
    weights.symlink_to(tmp_path / "nowhere")
    refuses(library, ErrorCode.WEIGHTS_UNREADABLE)
    weights.unlink()
    shutil.copy(model.with_name(weights.name), tmp_path / "real")
    weights.symlink_to(tmp_path / "real")
    np.testing.assert_array_equal(result(load(library)), toy_result(toy_input()))


def test_weights_of_a_model_that_differs_by_a_number(model, tmp_path):
    other = WEIGHTS.copy()
    other[500] += 1
    export(toy_program(weights=other), tmp_path / "toy.so", weights="separate")
    weights = tmp_path / f"{NAME}.weights"
    (tmp_path / "first").mkdir()
    refuses(copy_of(model, tmp_path / "first"), ErrorCode.WEIGHTS_OF_ANOTHER_MODEL, weights)


def test_threads_that_come_at_once(model, tmp_path):
    """Each may map the file; all compute the same."""
    library = copy_of(model, tmp_path)
    handle = ctypes.CDLL(str(library))
    codes = []
    start = threading.Barrier(8)

    def first():
        start.wait()
        codes.append(handle[f"{NAME}_load_weights"](None))

    threads = [threading.Thread(target=first) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [0] * 8
    if Path("/proc/self/maps").exists():
        maps = Path("/proc/self/maps").read_text()
        assert len(re.findall(re.escape(str(tmp_path / f"{NAME}.weights")), maps)) == 1


@needs_proc
def test_the_file_is_mapped_read_only_and_shared_by_processes(model, tmp_path):
    library = copy_of(model, tmp_path)
    module = load(library)
    wanted = result(module)
    line = next(line for line in Path("/proc/self/maps").read_text().splitlines()
                if line.endswith(str(tmp_path / f"{NAME}.weights")))
    assert line.split()[1] == "r--s"
    process = os.fork()
    if process == 0:
        os._exit(0 if (result(module) == wanted).all() else 1)
    assert os.waitpid(process, 0)[1] == 0
    opened = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
              if os.path.islink(f"/proc/self/fd/{fd}")]
    assert not [path for path in opened if path.endswith(".weights")]


PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "toy_model_1.h"
static float x[1000], y[1000];
int main(int argc, char **argv) {
  minitvm_tensor input = {x, NULL}, output = {y, NULL};
  void *workspace = aligned_alloc(64, (toy_model_1_workspace_bytes() + 127) / 64 * 64);
  int32_t code = 0;
  if (argc > 1) code = toy_model_1_load_weights(argv[1][0] ? argv[1] : NULL);
  if (code == 0) code = toy_model_1_run(&input, &output, workspace, 1);
  printf("%d %g %s\\n", (int)code, y[8], minitvm_error_text(code));
  free(workspace);
  return 0;
}
"""


def test_c_gets_the_codes_and_finds_the_file(model, tmp_path):
    """By itself from beside the library, whatever the working directory is; or from a path."""
    library = copy_of(model, tmp_path)
    shutil.copy(model.with_name(f"{NAME}.h"), tmp_path)
    (tmp_path / "program.c").write_text(PROGRAM)
    subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", "program.c", "-L.", "-l:toy.so",
                    "-Wl,-rpath,$ORIGIN", "-o", "program"], cwd=tmp_path, check=True)

    def run(*words, cwd=tmp_path):
        done = subprocess.run([tmp_path / "program", *words], cwd=cwd, capture_output=True,
                              text=True, check=True)
        return done.stdout.split(maxsplit=2)

    assert run()[:2] == run("")[:2] == run(cwd="/")[:2] == ["0", "6"]
    weights = tmp_path / f"{NAME}.weights"
    good = weights.read_bytes()
    moved = weights.rename(tmp_path / "moved")
    for words, code in (((), ErrorCode.WEIGHTS_UNREADABLE), (("nowhere",), 9), ((moved,), 0)):
        assert run(*words)[0] == str(int(code))
    for change, code in DAMAGE.values():
        moved.write_bytes(change(good))
        found, _, text = run(moved)
        assert (found, text.strip()) == (str(int(code)), abi.ERROR_TEXTS[code])
    assert library.exists()


def test_the_sample_runs_with_separate_weights(model, tmp_path):
    copy_of(model, tmp_path)
    for file in (f"{NAME}.h", f"{NAME}_sample.c"):
        shutil.copy(model.with_name(file), tmp_path)
    subprocess.run(["cc", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror",
                    f"{NAME}_sample.c", "./toy.so", "-o", "sample"], cwd=tmp_path, check=True)
    done = subprocess.run(["./sample"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("y: 0 0.75 1.5")
    (tmp_path / f"{NAME}.weights").unlink()
    done = subprocess.run(["./sample"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == f"error 9: {abi.ERROR_TEXTS[ErrorCode.WEIGHTS_UNREADABLE]}\n"


def test_deep_folders_do_not_overflow(model, tmp_path):
    """A path longer than the loader's memory is one that is not found, not one that is cut."""
    folder, longest = tmp_path, 4094 - len(f"/{NAME}.weights")
    while len(str(folder)) < longest:
        folder = folder / ("d" * min(90, longest - len(str(folder)) - 1))
    folder.mkdir(parents=True)
    library = copy_of(model, folder)
    program = (f"import ctypes\nm = ctypes.CDLL({str(library)!r})\n"
               f"print(m['{NAME}_load_weights'](None))")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    fits = len(f"{folder}/{NAME}.weights") < 4096
    assert done.stdout == ("0\n" if fits else "9\n"), done


def test_equal_programs_give_equal_files(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    first = export(toy_program(), tmp_path / "a.so", weights="separate")
    second = export(toy_program(), tmp_path / "elsewhere" / "b.so", weights="separate")
    assert first.read_bytes() == second.read_bytes()
    files = [path.with_name(f"{NAME}.weights").read_bytes() for path in (first, second)]
    assert files[0] == files[1]


def test_a_failing_linker_leaves_no_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(link, "_verify", lambda program, library: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        export(toy_program(), tmp_path / "toy.so", weights="separate")
    assert os.listdir(tmp_path) == []
    with pytest.raises(OptionError, match="must be 'embedded' or 'separate'"):
        export(toy_program(), tmp_path / "toy.so", weights="beside")
    with pytest.raises(LinkError, match="name of its C header, its sample or its weights"):
        export(toy_program(), tmp_path / f"{NAME}.weights", weights="separate")


def test_weights_too_large_for_a_library_are_said(tmp_path, monkeypatch):
    monkeypatch.setattr(link, "MAXIMUM_BYTES", 3999)
    with pytest.raises(LinkError, match=r"at most 3999; keep them .* by --weights separate"):
        export(toy_program(), tmp_path / "toy.so")
    path = export(toy_program(), tmp_path / "toy.so", weights="separate")
    np.testing.assert_array_equal(result(load(path)), toy_result(toy_input()))


def test_other_architectures(tmp_path):
    """The loader's object is made for each; linked where there is a linker."""
    for target in (Target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76"),
                   Target("llvm -mtriple=riscv64-linux-gnu -mcpu=generic-rv64")):
        program = toy_program(target)
        head = write_weights_file(program, tmp_path / "w")
        assert head == (tmp_path / "w").read_bytes()[:64]
        data = loader_object(head, "w", target)
        assert elf.header(data) == (1, elf.MACHINES[target.isa])
        try:
            find_linker(target)
        except LinkError:
            continue
        path = export(program, tmp_path / "m.so", weights="separate")
        assert elf.read_library(path).machine == elf.MACHINES[target.isa]


def test_metadata_is_json(model):
    assert json.loads(json.dumps(load(model).metadata))["weights_bytes"] == 4000
