"""Compiled models in programs in C and C++: several at once, odd names, memory checked by tools."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import minitvm
from minitvm.runtime import abi
from minitvm.runtime.tensor_info import random_arrays

HOST = minitvm.Target.host()
KNOWN = "llvm -mcpu=x86-64-v3" if HOST.isa == "x86_64" else str(HOST)
"""A target that tools which simulate a processor know: they lack the newest instructions."""

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on PATH"),
    pytest.mark.skipif(not minitvm.Target(KNOWN).is_host(), reason=f"can't run {KNOWN}"),
]
STRICT = ["cc", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]
IMAGES = """
    <ir_version: 8, opset_import: ["": 17]>
    images (float[1, 20, 9, 9] image) => (float[1, 24, 9, 9] mixed, float[1, 24] mean)
    <int64[4] filter_shape = {24, 20, 3, 3}, int64[2] flat = {1, 24}>
    {
        filter = ConstantOfShape <value = float[1] {0.125}> (filter_shape)
        summed = Conv <pads = [1, 1, 1, 1]> (image, filter)
        mixed = Relu (summed)
        pooled = GlobalAveragePool (mixed)
        mean = Reshape (pooled, flat)
    }
"""
WORDS = """
    <ir_version: 8, opset_import: ["": 17]>
    words (float[6, 40] x, int64[3] rows) => (float[3, 40] y)
    <int64[2] square = {40, 40}>
    {
        w = ConstantOfShape <value = float[1] {0.5}> (square)
        picked = Gather <axis = 0> (x, rows)
        product = MatMul (picked, w)
        y = Softmax (product)
    }
"""


def compiled(text: str) -> minitvm.CompiledModule:
    return minitvm.compile(onnx.parser.parse_model(text), target=KNOWN)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`images.so` with its weights beside it, `words.so` with its weights inside, and inputs."""
    folder = tmp_path_factory.mktemp("c programs")
    for text, weights in ((IMAGES, "separate"), (WORDS, "embedded")):
        module = compiled(text)
        module.export(folder / f"{module.program.name}.so", weights=weights)
        for info, value in random_arrays(module.program.inputs).items():
            value.tofile(folder / f"{info}.bin")
    return folder


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


def shown(name: str, folder: Path) -> str:
    """What the sample prints of what Python computes: five numbers of each output."""
    module = minitvm.load(folder / f"{name}.so")
    results = module.run(random_arrays(module.inputs))
    lines = [f"{info.name}:" + "".join(f" {value:.9g}" for value in results[info.name].flat[:5])
             for info in module.outputs]
    return "\n".join(lines) + "\n"


def build_sample(folder: Path, name: str, *options: str) -> None:
    run(folder, *STRICT, *options, f"{name}_sample.c", f"./{name}.so", "-o", f"{name}_sample")


@pytest.mark.parametrize(("name", "inputs"), [("images", ["image"]), ("words", ["x", "rows"])])
def test_samples_compute_what_python_computes(folder, name, inputs):
    build_sample(folder, name)
    files = [f"{tensor}.bin" for tensor in inputs]
    assert run(folder, f"./{name}_sample", *files) == shown(name, folder)


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not on PATH")
@pytest.mark.parametrize("name", ["images", "words"])
def test_valgrind_finds_nothing(folder, name):
    """No access outside of what the sample allocated, nothing used before it was set, no leak."""
    build_sample(folder, name, "-g")
    run(folder, "valgrind", "-q", "--error-exitcode=9", "--leak-check=full",
        "--errors-for-leak-kinds=all", f"./{name}_sample")


@pytest.mark.parametrize("name", ["images", "words"])
def test_the_address_sanitizer_finds_nothing(folder, name):
    options = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    probe = subprocess.run([*STRICT, *options, f"{name}_sample.c", f"./{name}.so", "-o", "checked"],
                           cwd=folder, capture_output=True, text=True)
    if "asan" in probe.stderr or "ubsan" in probe.stderr:
        pytest.skip("the C compiler has no sanitizers")
    assert probe.returncode == 0, probe.stderr
    assert run(folder, "./checked").count(":") == (2 if name == "images" else 1)


BOTH = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "images.h"
#include "words.h"
#include "images.h"

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
static int allocations;
void *malloc(size_t size) { allocations++; return __libc_malloc(size); }
void *calloc(size_t count, size_t size) { allocations++; return __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { allocations++; return __libc_realloc(old, size); }
void *mmap(void *at, size_t size, int access, int flags, int file, off_t offset) {
  allocations++;
  return (void *)syscall(SYS_mmap, at, size, access, flags, file, offset);
}

static float image[1620], mixed[1944], mean[24], x[240], y[120];
static int64_t rows[] = {5, 0, 3};

static int both(void *first, void *second, int threads) {
  minitvm_tensor images_in[] = {{image, NULL}}, images_out[] = {{mixed, NULL}, {mean, NULL}};
  minitvm_tensor words_in[] = {{x, NULL}, {rows, NULL}}, words_out[] = {{y, NULL}};
  int code = images_run(images_in, images_out, first, threads);
  return code ? code : words_run(words_in, words_out, second, threads);
}

int main(void) {
  size_t size = (images_workspace_bytes() + words_workspace_bytes() + 256) / 64 * 64;
  char *space = aligned_alloc(64, size);
  char *second = space + (images_workspace_bytes() + 63) / 64 * 64;
  int i, code, first;
  for (i = 0; i < 1620; i++) image[i] = 1;
  for (i = 0; i < 240; i++) x[i] = (float)(i % 40 == 7);
  code = both(space, second, 2);
  first = allocations;
  for (i = 0; i < 10 && code == 0; i++) code = both(space, second, 2);
  printf("%d %d %d %g %g %g %d %d\n", code, first > 0, allocations - first, (double)mixed[0],
         (double)mixed[10], (double)y[0], MINITVM_images_OUTPUTS, MINITVM_words_INPUTS);
  free(space);
  return 0;
}
"""


def test_two_models_in_one_program_allocate_nothing_after_the_first_run(folder):
    (folder / "both.c").write_text(BOTH)
    built = subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", "both.c", "./images.so",
                            "./words.so", "-o", "both"], cwd=folder, capture_output=True, text=True)
    if "__libc_malloc" in built.stderr:
        pytest.skip("the C library is not glibc")
    assert built.returncode == 0, built.stderr
    # A corner of the picture sees 4 pixels of 20 channels, an edge 6, the inside 9.
    assert run(folder, "./both").split() == ["0", "1", "0", "10", "22.5", "0.025", "2", "2"]


def test_models_in_one_process(folder, tmp_path):
    """Two models, one of them twice by the same path and once from a copy, in turn."""
    copy = shutil.copy(folder / "images.so", tmp_path)
    shutil.copy(folder / "images.weights", tmp_path)
    modules = [minitvm.load(folder / "images.so"), minitvm.load(folder / "words.so"),
               minitvm.load(folder / "images.so"), minitvm.load(copy)]
    inputs = [random_arrays(module.inputs) for module in modules]
    first = [module.run(given) for module, given in zip(modules, inputs)]
    for _ in range(3):
        for module, given, wanted in zip(modules, inputs, first):
            for name, value in module.run(given).items():
                np.testing.assert_array_equal(value, wanted[name])
    for name in ("mixed", "mean"):
        np.testing.assert_array_equal(first[0][name], first[2][name])
        np.testing.assert_array_equal(first[0][name], first[3][name])


@pytest.mark.parametrize("stem", ["h", "ok", "OK", "my-model 2.onnx", "int", "class", "minitvm",
                                  "minitvm_abi_version", "main", "2nd", "ünïcode", "tensor"])
def test_odd_names_make_sound_programs(tmp_path, stem):
    """Keywords, what the header itself defines, and what no identifier holds."""
    compiled(WORDS.replace("40", "8")).export(tmp_path / "first.so")
    module = minitvm.compile(onnx.parser.parse_model(WORDS.replace("40", "8")), target=KNOWN,
                             name=stem, export=tmp_path / f"{stem}.so", weights="separate")
    name = abi.c_name(stem)
    languages = [STRICT, ["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-x", "c++"]]
    for compiler in languages:
        if shutil.which(compiler[0]):
            run(tmp_path, *compiler, f"{name}_sample.c", "-x", "none", f"./{stem}.so", "-o",
                "program")
            run(tmp_path, "./program")
    given = random_arrays(module.program.inputs)
    loaded = minitvm.load(tmp_path / f"{stem}.so")
    assert loaded.name == name
    np.testing.assert_array_equal(loaded.run(given)["y"], module.run(given)["y"])


def test_headers_of_many_models_in_one_program(tmp_path):
    names = ["net", "Net", "NET", "h", "ok", "OK", "header_of_net", "net_INPUTS", "class"]
    module = compiled(WORDS.replace("40", "8"))
    for name in names:
        minitvm.compile(onnx.parser.parse_model(WORDS.replace("40", "8")), target=KNOWN, name=name,
                        export=tmp_path / f"{name}.so")
    calls = "".join(f"  total += (int)({name}_workspace_bytes() > 0) + MINITVM_{name}_INPUTS;\n"
                    for name in names)
    (tmp_path / "all.c").write_text(
        '#include <stdio.h>\n' + "".join(f'#include "{name}.h"\n' for name in names)
        + "int main(void) {\n  int total = MINITVM_OK;\n" + calls
        + '  printf("%d", total);\n  return 0;\n}\n')
    run(tmp_path, *STRICT, "all.c", *(f"./{name}.so" for name in names), "-o", "all")
    assert run(tmp_path, "./all") == str(3 * len(names)) and module.program.workspace_bytes


def test_metadata_says_what_a_caller_needs(folder):
    module = minitvm.load(folder / "images.so")
    facts = module.metadata
    assert facts["inputs"] == [{"name": "image", "shape": [1, 20, 9, 9], "dtype": "float32"}]
    assert [row["name"] for row in facts["outputs"]] == ["mixed", "mean"]
    assert facts["abi_version"] == abi.ABI_VERSION and facts["name"] == "images"
    assert facts["workspace_bytes"] == module.workspace_bytes > 0
    assert facts["target"] == str(minitvm.Target(KNOWN))
    assert facts["provenance"].startswith("sha256:") and len(facts["provenance"]) == 71
    assert set(facts["required_features"]) >= ({"avx2", "fma"} if HOST.isa == "x86_64" else set())
    assert facts["maximum_threads"] == abi.MAXIMUM_THREADS


def test_the_class_of_the_documentation_works(tmp_path):
    """The C++ of docs/deploying.md, as it stands there."""
    if shutil.which("c++") is None:
        pytest.skip("no C++ compiler on PATH")
    document = (Path(__file__).parents[2] / "docs" / "deploying.md").read_text()
    code = document.split("```cpp\n")[1].split("```")[0]
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]>
        net (float[8] x) => (float[8] y)
        <float[8] w = {1, 2, 3, 4, 5, 6, 7, 8}>
        { y = Mul (x, w) }
    """)
    minitvm.compile(model, target=KNOWN, export=tmp_path / "net.so", weights="separate")
    (tmp_path / "program.cpp").write_text(code + """
#include <cstdio>
int main() {
  float x[8] = {1, 1, 1, 1, 1, 1, 1, 2}, y[8];
  try {
    Net().run(x, y);
    std::printf("%g %g", y[0], y[7]);
  } catch (const std::exception &error) {
    std::printf("%s", error.what());
  }
}
""")
    run(tmp_path, "c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "program.cpp", "./net.so",
        "-o", "program")
    assert run(tmp_path, "./program") == "1 16"
    (tmp_path / "net.weights").unlink()
    assert run(tmp_path, "./program") == abi.ERROR_TEXTS[abi.ErrorCode.WEIGHTS_UNREADABLE]
