"""Shared libraries: what they export and need; they run from C; failures leave nothing."""

import os
import shutil
import subprocess

import numpy as np
import pytest
from toy import SIZE, WEIGHTS, toy_input, toy_program, toy_result

from minitvm.codegen import link
from minitvm.codegen.jit import load_program
from minitvm.codegen.link import Linker, export, find_linker
from minitvm.codegen.program import TensorInfo, make_program, program_objects
from minitvm.codegen.weights import write_weights_object
from minitvm.errors import CodegenError, LinkError
from minitvm.runtime import abi, elf, load
from minitvm.runtime.seal import read_seal
from minitvm.target import Target
from minitvm.tir.text import parse_func

HOST = Target.host()
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on PATH")


@needs_compiler
def test_the_library_exports_the_interface_and_needs_libc_alone(tmp_path):
    path = export(toy_program(), tmp_path / "toy.so")
    facts = elf.read_library(path)
    assert facts.exported == set(abi.function_names("toy.model-1"))
    assert all(name.startswith(("libc.", "libm.", "libpthread.")) for name in facts.needed)
    assert facts.machine == elf.MACHINES[HOST.isa]
    assert sorted(os.listdir(tmp_path)) == ["toy.so", "toy_model_1.h", "toy_model_1_sample.c"]
    assert read_seal(path).intact


@needs_compiler
def test_equal_programs_give_equal_bytes_and_no_path_in_them(tmp_path):
    first = export(toy_program(), tmp_path / "a.so").read_bytes()
    (tmp_path / "elsewhere").mkdir()
    second = export(toy_program(), tmp_path / "elsewhere" / "b.so").read_bytes()
    assert first == second
    assert str(tmp_path).encode() not in first and b".debug" not in first


def test_equal_programs_give_equal_objects_each_time():
    first = program_objects(toy_program())
    assert all(program_objects(toy_program()) == first for _ in range(40))


@pytest.mark.parametrize("linker", ["ld.bfd", "ld.gold", "ld.lld"])
def test_linkers_keep_the_seal(linker, tmp_path, monkeypatch):
    if shutil.which(linker) is None:
        pytest.skip(f"{linker} is not on PATH")
    monkeypatch.setenv(link.OVERRIDE, linker)
    assert read_seal(export(toy_program(), tmp_path / "toy.so")).intact


@needs_compiler
def test_the_c_sample_builds_without_warnings_and_runs(tmp_path):
    export(toy_program(), tmp_path / "toy.so")
    x = toy_input()
    x.tofile(tmp_path / "x.bin")
    for compiler in (["cc", "-std=c99"], ["cc", "-std=c11"], ["cc", "-std=gnu17"],
                     ["c++", "-x", "c++", "-std=c++11"], ["c++", "-x", "c++"]):
        if shutil.which(compiler[0]) is None:
            continue
        strict = [*compiler, "-pedantic", "-Wall", "-Wextra", "-Werror"]
        subprocess.run([*strict, "toy_model_1_sample.c", "-x", "none", "./toy.so", "-o", "sample"],
                       cwd=tmp_path, check=True)
        result = subprocess.run(["./sample", "x.bin"], cwd=tmp_path, check=True,
                                capture_output=True, text=True)
        name, *values = result.stdout.split()
        assert name == "y:"
        np.testing.assert_array_equal(np.array(values, np.float32), toy_result(x)[:5])


@needs_compiler
def test_c_gets_error_codes(tmp_path):
    export(toy_program(), tmp_path / "toy.so")
    (tmp_path / "errors.c").write_text("""
#include <stdio.h>
#include "toy_model_1.h"
static _Alignas(64) float x[1001], y[1000];
static _Alignas(64) char workspace[100000];
static int32_t run(void *in, const int64_t *shape, void *out, void *space, int32_t threads) {
  minitvm_tensor input = {in, shape}, output = {out, NULL};
  return toy_model_1_run(&input, &output, space, threads);
}
int main(void) {
  int64_t right[] = {10, 100}, wrong[] = {100, 10};
  if (toy_model_1_workspace_bytes() > sizeof workspace) return 1;
  printf("%d %d %d %d %d %d %d %d %d %s|%s\\n", run(x, right, y, workspace, 1),
         run(NULL, NULL, y, workspace, 1), run(x, NULL, NULL, workspace, 1),
         run(x, NULL, y, NULL, 1), run(x, NULL, y, workspace, 0), run(x, wrong, y, workspace, 1),
         run((char *)x + 1, NULL, y, workspace, 1), run(x + 1, NULL, y, workspace, 1),
         toy_model_1_run(NULL, NULL, workspace, 1), minitvm_error_text(4), minitvm_error_text(99));
  return 0;
}
""")
    subprocess.run(["cc", "errors.c", "./toy.so", "-o", "errors"], cwd=tmp_path, check=True)
    result = subprocess.run(["./errors"], cwd=tmp_path, check=True, capture_output=True, text=True)
    codes, texts = result.stdout.rsplit(" ", 1)[0], result.stdout
    assert codes.startswith("0 1 1 1 2 4 5 0 1 ")
    assert abi.ERROR_TEXTS[abi.ErrorCode.WRONG_SHAPE] + "|" + abi.UNKNOWN_ERROR in texts


@needs_compiler
def test_a_failing_linker_leaves_no_files(tmp_path):
    broken = tmp_path / "broken-linker"
    broken.write_text("#!/bin/sh\necho 'ld: cannot find -lm' >&2\nexit 1\n")
    broken.chmod(0o755)
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(LinkError, match="status 1") as caught:
        export(toy_program(), out / "toy.so", Linker((str(broken),)))
    assert "cannot find -lm" in str(caught.value) and "-shared" in str(caught.value)
    assert os.listdir(out) == []


@needs_compiler
def test_a_linker_that_makes_something_else_is_found_out(tmp_path):
    """One that exports everything, one that makes no library, one that needs more than libc."""
    for body, message in (
        ('exec cc "$@" -Wl,--version-script=/dev/null', "exported|linking"),
        ('while [ "$1" != -o ]; do shift; done; echo hello > "$2"', "too short|not an ELF"),
    ):
        script = tmp_path / "linker"
        script.write_text(f"#!/bin/sh\n{body}\n")
        script.chmod(0o755)
        with pytest.raises(LinkError, match=message):
            export(toy_program(), tmp_path / "toy.so", Linker((str(script),)))
        assert not (tmp_path / "toy.so").exists()


def test_missing_folders_and_linkers_are_said_before_compiling(tmp_path, monkeypatch):
    linker = Linker(("cc",))
    with pytest.raises(LinkError, match="does not exist"):
        export(toy_program(), tmp_path / "none" / "toy.so", linker)
    with pytest.raises(LinkError, match="is a folder"):
        export(toy_program(), tmp_path, linker)
    monkeypatch.setenv(link.OVERRIDE, "no-such-linker --fast")
    with pytest.raises(LinkError, match="MINITVM_LINKER names 'no-such-linker --fast'"):
        find_linker(HOST)
    monkeypatch.delenv(link.OVERRIDE)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(LinkError, match=r"install gcc or clang .*ziglang"):
        find_linker(HOST)


@pytest.mark.skipif(shutil.which("ld") is None, reason="no bare linker on PATH")
def test_a_bare_linker_can_be_named(tmp_path, monkeypatch):
    monkeypatch.setenv(link.OVERRIDE, "ld")
    linker = find_linker(HOST)
    assert not linker.is_driver
    path = export(toy_program(), tmp_path / "toy.so")
    x = toy_input()
    np.testing.assert_array_equal(load(path).run({"x": x})["y"], toy_result(x))


def test_weights_are_in_the_object_byte_for_byte(tmp_path):
    weights = np.random.default_rng(0).integers(0, 256, 5_000_001).astype(np.uint8)
    for target in (HOST, Target("llvm -mtriple=aarch64-linux-gnu -mcpu=generic")):
        write_weights_object(weights, target, tmp_path / "w.o")
        data = (tmp_path / "w.o").read_bytes()
        section = next(s for s in elf.read_sections(data) if s.name == ".rodata.weights")
        assert data[section.offset:section.offset + section.size] == weights.tobytes()
        assert elf.header(data)[1] == elf.MACHINES[target.isa]


def test_a_model_without_weights_inputs_or_workspace(tmp_path):
    main = parse_func("""
def main(y: Buffer((1,), "float32"), weights: Buffer((0,), "uint8"),
         workspace: Buffer((0,), "uint8")):
    y[0] = 4.0  #: "Constant_0"
""")
    program = make_program("9 lives", main, [], np.empty(0, np.uint8), [], [TensorInfo("y", ())],
                           HOST)
    modules = [load_program(program)]
    if shutil.which("cc"):
        modules.append(load(export(program, tmp_path / "m.so")))
    for module in modules:
        assert module.name == "model_9_lives"
        assert module.run({})["y"] == np.float32(4.0) and module.run({})["y"].shape == ()


def test_programs_that_do_not_fit_together_are_refused():
    program = toy_program()
    with pytest.raises(CodegenError, match="calls the kernel 'add_twice', which was not compiled"):
        program_objects(make_program("m", program.main, [], WEIGHTS, program.inputs,
                                     program.outputs, HOST))
    with pytest.raises(CodegenError, match="must have 3"):
        make_program("m", program.main, program.kernels, WEIGHTS, [], program.outputs, HOST)
    assert program.outputs[0].shape[0] == SIZE


def test_objects_for_aarch64_need_no_host(tmp_path):
    """Every object of a model for another machine, the CPU check in it."""
    target = Target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76")
    for data in program_objects(toy_program(target)):
        assert elf.header(data) == (1, elf.MACHINES["aarch64"])
    for target in (Target("llvm -mtriple=riscv64-linux-gnu -mcpu=generic-rv64"),):
        assert program_objects(toy_program(target))


@needs_compiler
def test_awkward_names_and_dtypes_make_sound_c(tmp_path):
    """Names of tensors may hold anything; they must not end a comment or a string of the header."""
    names = ['quote"back\\slash', "100%d*/ /*", "@name@ é\n", ""]
    types = ["bool", "float16", "int64", "uint8"]
    params = ", ".join(f'y{n}: Buffer((3,), "{dtype}")' for n, dtype in enumerate(types))
    body = "\n".join(f'    y{n}[2] = cast(1, "{dtype}")  #: "c"' for n, dtype in enumerate(types))
    main = parse_func(f'def main({params}, weights: Buffer((0,), "uint8"), '
                      f'workspace: Buffer((0,), "uint8")):\n{body}\n')
    outputs = [TensorInfo(name, (3,), dtype) for name, dtype in zip(names, types)]
    program = make_program("ünder-score*/", main, [], np.empty(0, np.uint8), [], outputs, HOST)
    path = export(program, tmp_path / "odd.so")
    stem = abi.c_name("ünder-score*/")
    subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", f"{stem}_sample.c",
                    "./odd.so", "-o", "odd"], cwd=tmp_path, check=True)
    shown = subprocess.run(["./odd"], cwd=tmp_path, check=True, capture_output=True, text=True)
    values = [line.rsplit(":", 1)[1].split() for line in shown.stdout.splitlines()]
    assert values == [["0", "0", "1"], ["0", "0", str(0x3C00)], ["0", "0", "1"], ["0", "0", "1"]]
    assert [info.name for info in load(path).outputs] == names


def test_a_bare_linker_looks_for_pthread_where_libc_may_lack_it(monkeypatch, tmp_path):
    linker = Linker(("ld",), is_driver=False)
    (tmp_path / "libpthread.so.0").touch()
    for folders, wanted in (((str(tmp_path),), True), ((str(tmp_path / "none"),), False)):
        monkeypatch.setattr(link, "_LIBRARY_FOLDERS", folders)
        other = Target("llvm -mtriple=riscv64-linux-gnu -mcpu=generic-rv64")
        words = linker.arguments([], tmp_path / "a.so", tmp_path / "map", other)
        assert ("-l:libpthread.so.0" in words) == wanted and "--as-needed" in words
