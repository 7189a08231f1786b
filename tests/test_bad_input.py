"""Whatever is wrong with a file, a name, a shape or a place: one sentence, and nothing left behind.

From Python it is a `MinitvmError`; from the command line `error: ...` and the exit status 1.
"""

from __future__ import annotations

import ctypes.util
import errno
import functools
import os
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import minitvm
from minitvm import cli
from minitvm.codegen import cpu_check
from minitvm.errors import (
    InputError,
    LinkError,
    LoadError,
    LoweringError,
    MinitvmError,
    ModelError,
    OptionError,
    TargetError,
)
from minitvm.runtime import abi, elf
from minitvm.runtime.seal import seal

ROOT = Path(__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
HOST = minitvm.Target.host()
needs_linker = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on PATH")
MODEL = """
    <ir_version: 8, opset_import: ["": 17]>
    small (float[1, 2, 4, 4] image, float[N, 4] scale) => (float[N, 4] result)
    <float[4, 2, 1, 1] weights = {1, -2, 3, -4, 5, -6, 7, -8}, int64[2] size = {1, -1}>
    {
        [mix] mixed = Conv <kernel_shape = [1, 1], strides = [1, 1]> (image, weights)
        [limit] limited = Relu (mixed)
        [average] averaged = GlobalAveragePool (limited)
        [flat] flattened = Reshape (averaged, size)
        [scaled] result = Mul (flattened, scale)
    }
"""
SHAPES = {"scale": (1, 4)}
INPUTS = {"image": np.ones((1, 2, 4, 4), np.float32), "scale": np.ones((1, 4), np.float32)}


def small_model() -> onnx.ModelProto:
    return onnx.parser.parse_model(MODEL)


@functools.cache
def small_compiled() -> minitvm.CompiledModule:
    return minitvm.compile(small_model(), SHAPES)


def refuses(kind: type[MinitvmError], message: str, action: Callable[..., object],
            *arguments: object, **options: object) -> None:
    with pytest.raises(kind, match=message) as caught:
        action(*arguments, **options)
    text = str(caught.value)
    assert "Traceback" not in text and text.strip() == text and text


def command_refuses(message: str, *words: object) -> None:
    result = CliRunner().invoke(cli.main, [str(word) for word in words])
    assert result.exit_code == cli.REFUSED, result.output
    assert result.stdout == "" and result.stderr.startswith("error: "), result.output
    assert message in result.stderr


# --- models -------------------------------------------------------------------------------------


def test_files_that_are_no_model(tmp_path):
    good = small_model().SerializeToString()
    contents = {"text.onnx": b"hello, world\n" * 9, "empty.onnx": b"", "zeros.onnx": bytes(1000),
                "cut.onnx": good[:len(good) // 2], "picture.onnx": b"\x89PNG\r\n\x1a\n" + bytes(99)}
    for name, data in contents.items():
        file = tmp_path / name
        file.write_bytes(data)
        refuses(ModelError, f"{name} is not an ONNX model", minitvm.compile, file)
        refuses(ModelError, "the model is not an ONNX model", minitvm.compile, data)
        command_refuses("is not an ONNX model", "compile", file)
    refuses(ModelError, "cannot be read: Is a directory", minitvm.compile, tmp_path)
    refuses(ModelError, "cannot be read: No such file",
            minitvm.compile, tmp_path / "none.onnx")
    command_refuses("No such file", "compile", tmp_path / "none.onnx")
    command_refuses("Is a directory", "compile", tmp_path, "-o", tmp_path / "x.so")
    refuses(ModelError, "not int", minitvm.compile, 7)
    refuses(ModelError, "cannot be read", minitvm.compile, "nul\0byte.onnx")
    assert sorted(os.listdir(tmp_path)) == sorted(contents)


def test_a_model_with_missing_weights():
    model = small_model()
    del model.graph.initializer[0]
    refuses(ModelError, 'node "mix" .* reads "weights", which is no graph input, no initializer',
            minitvm.compile, model, SHAPES)


def test_shapes_that_are_missing_or_wrong(tmp_path):
    model = small_model()
    refuses(ModelError, r'input "scale" has the open size N in dimension 0: .*--shape "scale=1,4"',
            minitvm.compile, model)
    for shapes, message in {
        ("scale", (1, 5)): "does not fit",
        ("scale", (1, 4, 1)): "has 3 dimensions",
        ("scale", (0, 4)): "positive",
        ("scale", (-1, 4)): "positive",
        ("scael", (1, 4)): "no input \"scael\"; did you mean scale",
        ("image", (1, 2, 4, 5)): "does not fit",
    }.items():
        refuses(ModelError, message, minitvm.compile, model, dict([shapes]))
    for value in (4, "1,4", (1.0, 4), (None, 4)):
        refuses(OptionError, "sequence of integers", minitvm.compile, model, {"scale": value})
    assert minitvm.compile(model, {"scale": np.array([1, 4])}).program.inputs[1].shape == (1, 4)
    onnx.save(model, tmp_path / "model.onnx")
    command_refuses('--shape "scale=1,4"', "compile", tmp_path / "model.onnx")
    command_refuses("did you mean scale", "compile", tmp_path / "model.onnx", "--shape", "scal=1,4")
    command_refuses("is not NAME=DIM", "compile", tmp_path / "model.onnx", "--shape", "scale=1x4")
    command_refuses("given twice", "compile", tmp_path / "model.onnx", "--shape", "scale=1,4",
                    "--shape", "scale=1,4")


@pytest.mark.parametrize("text", [
    "g (float[70000, 70000] x) => (float[N] y) { y = Relu (x) }",
    "g (float[1] x) => (float[N] y) <int64[2] s = {70000, 70000}> { y = Expand (x, s) }",
    "g (float[1] x) => (float[N] y) <int64[2] s = {5000000000, 0}> { y = Pad (x, s) }",
])
def test_tensors_beyond_all_bounds(text):
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    refuses(LoweringError, "elements; a tensor may have", minitvm.compile, model)


def variants(data: bytes, count: int, seed: int):
    """Copies of some bytes, each cut, or with bits flipped, or with bytes replaced or moved."""
    generator = random.Random(seed)
    for _ in range(count):
        changed = bytearray(data)
        place = generator.randrange(len(data))
        match generator.randrange(5):
            case 0:
                del changed[place:]
            case 1:
                changed[place] ^= 1 << generator.randrange(8)
            case 2:
                changed[place] = generator.choice((0, 1, 127, 128, 255))
            case 3:
                del changed[place:place + generator.randrange(1, 12)]
            case _:
                changed[place:place] = changed[place:place + generator.randrange(1, 12)]
        yield bytes(changed)


def test_damaged_models_are_compiled_or_refused():
    outcomes = {"compiled": 0, "refused": 0}
    for data in variants(small_model().SerializeToString(), 500, seed=1):
        try:
            minitvm.compile(data, SHAPES)
            outcomes["compiled"] += 1
        except MinitvmError as error:
            assert str(error)
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 5, outcomes


@given(st.binary(max_size=200))
def test_any_bytes_are_compiled_or_refused(data):
    with pytest.raises(MinitvmError):
        minitvm.compile(data)


# --- options ------------------------------------------------------------------------------------


def test_unknown_targets_options_levels_and_passes(tmp_path):
    model = small_model()
    for target, message in {
        "cuda": "does not start with 'llvm'",
        "": "does not start with 'llvm'",
        "llvm -mcpu=skylaek": "did you mean skylake",
        "llvm -mcup=skylake": "did you mean -mcpu",
        "llvm -mcpu=generic -mattr=+avx3": "LLVM knows no feature 'avx3'",
        "llvm -mtriple=sparc-linux -mcpu=generic": "names no machine that minitvm knows",
        "llvm -mcpu": "needs a value",
        "llvm -l1-bytes=many -mcpu=generic": "must be a positive integer",
    }.items():
        if target:
            refuses(TargetError, message, minitvm.compile, model, SHAPES, target)
        refuses(TargetError, message, minitvm.Target, target)
    refuses(TargetError, "not from a int", minitvm.Target, 5)
    for level in (-1, 5, "3", None, 2.5):
        refuses(OptionError, "opt_level is", minitvm.PassContext, opt_level=level)
    refuses(OptionError, "opt_level is 9", minitvm.compile, model, SHAPES, opt_level=9)
    refuses(OptionError, "did you mean relay.fuse_max_depth",
            minitvm.PassContext, config={"relay.fuse_depth": 3})
    with minitvm.PassContext(disabled_pass=["FuseOp"]):
        refuses(OptionError, "no pass named 'FuseOp'; did you mean FuseOps",
                minitvm.compile, model, SHAPES)
    onnx.save(model, tmp_path / "model.onnx")
    words = ("compile", tmp_path / "model.onnx", "--shape", "scale=1,4")
    command_refuses("did you mean skylake", *words, "--target", "llvm -mcpu=skylaek")
    command_refuses("opt_level is 7", *words, "--opt-level", 7)
    assert os.listdir(tmp_path) == ["model.onnx"]


# --- inputs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("change, message", [
    ({"imag": INPUTS["image"]}, "no input 'imag'; did you mean 'image'"),
    ({"image": None}, "is a NoneType"),
    ({"image": INPUTS["image"].tolist()}, "is a list; give a numpy array"),
    ({"image": INPUTS["image"].astype(np.float64)}, "dtype float64; the model takes float32"),
    ({"image": INPUTS["image"].astype(object)}, "dtype object"),
    ({"image": INPUTS["image"][0]}, "has 3 dimensions"),
    ({"image": np.ones((1, 2, 4, 5), np.float32)}, r"shape \[1, 2, 4, 5\]"),
])
def test_inputs_that_do_not_fit(change, message):
    module = small_compiled()
    refuses(InputError, message, module.run, {**INPUTS, **change})


def test_inputs_that_are_missing_or_no_mapping():
    module = small_compiled()
    refuses(InputError, "needs another input: scale", module.run, {"image": INPUTS["image"]})
    refuses(InputError, "needs another input: image.*, scale", module.run, {})
    refuses(InputError, "takes a mapping", module.run, list(INPUTS.values()))


def test_arrays_of_any_memory_layout_work():
    module = small_compiled()
    image = np.random.default_rng(0).standard_normal((1, 2, 4, 4)).astype(np.float32)
    expected = module.run({**INPUTS, "image": image})["result"]
    wide = np.zeros((1, 2, 8, 12), np.float32)
    wide[:, :, ::2, ::3] = image
    for array in (wide[:, :, ::2, ::3], np.asfortranarray(image), image[:, ::-1].copy()[:, ::-1]):
        np.testing.assert_array_equal(module.run({**INPUTS, "image": array})["result"], expected)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler on PATH")
    path = tmp_path_factory.mktemp("library") / "small.so"
    small_compiled().export(path)
    return path


def test_array_files_that_are_none(library, tmp_path):
    np.save(tmp_path / "good.npy", INPUTS["image"])
    good = (tmp_path / "good.npy").read_bytes()
    np.save(tmp_path / "object.npy", np.array([{}]), allow_pickle=True)
    np.savez(tmp_path / "many.npz", image=INPUTS["image"])
    files = {"cut.npy": good[:-1], "header.npy": good[:40], "empty.npy": b"", "text.npy": b"1, 2\n",
             "huge.npy": good.replace(b"(1, 2, 4, 4)", b"(1<<60, 99)"[:12].ljust(12))}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    for name in (*files, "object.npy", "many.npz", "none.npy", "."):
        command_refuses("the input 'image' can't be read", "run", library, "--input",
                        f"image={tmp_path / name}")
    command_refuses("--input 'image' is not NAME=FILE.npy", "run", library, "--input", "image")
    command_refuses("did you mean 'image'", "run", library, "--input",
                    f"imag={tmp_path / 'good.npy'}")
    command_refuses("given twice", "run", library, *2 * ("--input", f"image={tmp_path}/good.npy"))
    command_refuses("has 4 dimensions", "run", library, "--input", f"scale={tmp_path}/good.npy")
    for data in variants(good, 300, seed=2):
        (tmp_path / "damaged.npy").write_bytes(data)
        try:
            cli.read_inputs([f"image={tmp_path / 'damaged.npy'}"], ["image"])
        except MinitvmError as error:
            assert "the input 'image' can't be read" in str(error)


# --- places to write ----------------------------------------------------------------------------


@needs_linker
def test_places_where_nothing_can_be_written(tmp_path):
    onnx.save(small_model(), tmp_path / "model.onnx")
    before = (tmp_path / "model.onnx").read_bytes()
    words = ("compile", tmp_path / "model.onnx", "--shape", "scale=1,4")
    command_refuses("does not exist", *words, "-o", tmp_path / "none" / "model.so")
    command_refuses("is a folder", *words, "-o", tmp_path)
    command_refuses("nothing can be written to the folder '/proc'", *words, "-o", "/proc/model.so")
    command_refuses("is the model itself", *words, "-o", tmp_path / "model.onnx")
    command_refuses("the name of its C header", *words, "-o", tmp_path / "model.h")
    command_refuses("the dump can't be written", *words, "--dump", "/proc/dump")
    command_refuses("the dump can't be written", *words, "--dump", tmp_path / "model.onnx")
    steps: list[object] = []
    refuses(LinkError, "does not exist", minitvm.compile, tmp_path / "model.onnx", SHAPES,
            export=tmp_path / "none" / "model.so", progress=lambda *step: steps.append(step))
    assert steps == []  # it was said before anything was compiled
    assert os.listdir(tmp_path) == ["model.onnx"]
    assert (tmp_path / "model.onnx").read_bytes() == before


def test_outputs_that_can_not_be_written(library, tmp_path):
    (tmp_path / "file").write_text("")
    command_refuses("the outputs can't be written", "run", library, "--output", tmp_path / "file")
    command_refuses("the outputs can't be written", "run", library, "--output", "/proc/out")


@needs_linker
def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    """Space runs out when the library is moved into place."""
    target = tmp_path / "small.so"
    target.write_text("what was there before")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    refuses(LinkError, "No space left on device", small_compiled().export, target)
    refuses(InputError, "No space left on device",
            cli.write_outputs, tmp_path, {"y": np.ones(3)})
    assert os.listdir(tmp_path) == ["small.so"]
    assert target.read_text() == "what was there before"


@needs_linker
def test_files_that_may_not_grow(tmp_path):
    """As if the disk were full: the linker, or whoever writes first, can't write 8 KiB."""
    onnx.save(small_model(), tmp_path / "model.onnx")
    done = subprocess.run(
        [sys.executable, "-m", "minitvm", "compile", "model.onnx", "--shape", "scale=1,4"],
        cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)))
    assert done.returncode == cli.REFUSED and done.stderr.startswith("error: "), done.stderr
    assert "Traceback" not in done.stderr and os.listdir(tmp_path) == ["model.onnx"]


# --- libraries ----------------------------------------------------------------------------------


def resealed(path: Path, change: Callable[[bytearray], object]) -> None:
    """Changes the bytes of a library and makes it look untouched."""
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)
    seal(path)


def test_libraries_that_are_no_model(library, tmp_path):
    copy = tmp_path / "copy.so"
    cases = {"": "too short", "hello" * 99: "is not an ELF shared library"}
    for text, message in cases.items():
        copy.write_text(text)
        refuses(LoadError, message, minitvm.load, copy)
        command_refuses(message, "run", copy)
    data = library.read_bytes()
    for size in (10, 64, 1000, len(data) // 2, len(data) - 1):
        copy.write_bytes(data[:size])
        refuses(LoadError, ".", minitvm.load, copy)
    refuses(LoadError, "null byte", minitvm.load, "nul\0byte.so")
    command_refuses("No such file", "run", tmp_path / "none.so")
    command_refuses("Is a directory", "run", tmp_path)
    numpy_core = next(Path(np.__file__).parent.glob("_core/_multiarray_umath.*.so"))
    libm = Path("/").glob(f"lib*/**/{ctypes.util.find_library('m')}")
    for place in (numpy_core, *libm):
        refuses(LoadError, "is not a minitvm model", minitvm.load, place)
    onnx.save(small_model(), tmp_path / "model.onnx")
    command_refuses("minitvm compile", "run", tmp_path / "model.onnx")


def test_a_library_for_another_architecture(library, tmp_path):
    copy = tmp_path / "copy.so"
    shutil.copy(library, copy)
    other = next(name for name in elf.MACHINES if name != HOST.isa)
    machine = elf.MACHINES[other].to_bytes(2, "little")
    resealed(copy, lambda data: data.__setitem__(slice(18, 20), machine))
    refuses(LoadError, f"was compiled for {other}, and this machine is", minitvm.load, copy)
    command_refuses(f"was compiled for {other}", "run", copy)


def test_code_for_another_machine_is_compiled_and_not_run(tmp_path, monkeypatch):
    other = ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76" if HOST.isa == "x86_64"
             else "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3")
    compiled = minitvm.compile(small_model(), SHAPES, other)
    refuses(TargetError, "can't run on this machine", compiled.run, INPUTS)
    monkeypatch.setenv("PATH", str(tmp_path))
    refuses(LinkError, "no linker for .* was found; install", minitvm.compile, small_model(),
            SHAPES, other, export=tmp_path / "small.so")
    assert os.listdir(tmp_path) == []


@needs_linker
def test_a_library_of_another_version(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(abi, "ABI_VERSION", abi.ABI_VERSION + 6)
        small_compiled().export(tmp_path / "newer.so")
    refuses(LoadError, f"version {abi.ABI_VERSION + 6} of the interface and this runtime version",
            minitvm.load, tmp_path / "newer.so")
    command_refuses("compile it again", "run", tmp_path / "newer.so")


@needs_linker
@pytest.mark.skipif(HOST.isa != "x86_64", reason="names a processor of x86-64")
def test_a_library_for_a_better_processor(tmp_path, monkeypatch):
    better = "llvm -mcpu=diamondrapids"
    if minitvm.Target(better).is_host():
        monkeypatch.setitem(cpu_check.X86_FEATURES, "sse3", (0x80FFFFFF, 0, 1, 1))  # no such leaf
    compiled = minitvm.compile(small_model(), SHAPES, better, export=tmp_path / "better.so")
    done = subprocess.run([sys.executable, "-m", "minitvm", "run", tmp_path / "better.so"],
                          capture_output=True, text=True, env=ENVIRONMENT)  # it might end Python
    assert done.returncode == cli.REFUSED, done
    assert "the model can't run here: this machine's processor lacks instructions" in done.stderr
    refuses(LoadError, "processor lacks", minitvm.load, tmp_path / "better.so")
    if not minitvm.Target(better).is_host():
        refuses(TargetError, "can't run on this machine", compiled.run, INPUTS)


LOAD_ALL = """
import sys, minitvm
from pathlib import Path
from minitvm.runtime.tensor_info import random_arrays
def results(path):
    module = minitvm.load(path)
    return {name: value.tobytes() for name, value in
            module.run(random_arrays(module.inputs)).items()}
expected, refused = results(sys.argv[2]), 0
for path in sorted(Path(sys.argv[1]).glob("*.so")):
    try:
        if results(path) != expected:
            print(path.name, "computes something else")
    except minitvm.MinitvmError:
        refused += 1
print(refused)
"""


def test_damaged_libraries_are_refused_and_crash_nothing(library, tmp_path):
    """Every header and table is tried, in a process of its own, since a crash would end it. What is
    loaded all the same is changed where nothing is read: it computes what it did."""
    data = library.read_bytes()
    head = [bytes(piece) + data[1024:] for piece in variants(data[:1024], 250, seed=3)]
    tables = [data[:-4096] + bytes(piece) for piece in variants(data[-4096:], 100, seed=4)]
    for index, changed in enumerate((*head, *tables)):
        if changed != data:
            (tmp_path / f"{index:03}.so").write_bytes(changed)
    done = subprocess.run([sys.executable, "-c", LOAD_ALL, tmp_path, library],
                          capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0 and done.stdout.strip().isdigit(), done.stdout + done.stderr
    assert int(done.stdout) > 250
