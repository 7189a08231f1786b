"""Files that are no model, or no longer one, or not for this machine: one sentence, no crash."""

import ctypes.util
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy import toy_input, toy_program, toy_result

from minitvm.codegen import cpu_check
from minitvm.codegen.link import export
from minitvm.errors import InputError, LoadError
from minitvm.runtime import elf, load
from minitvm.runtime.seal import seal
from minitvm.target import Target

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on PATH")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return export(toy_program(), tmp_path_factory.mktemp("model") / "toy.so")


def refuses(path, message="."):
    with pytest.raises(LoadError, match=message) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_a_model_loads_and_runs(model):
    module = load(model)
    x = toy_input()
    np.testing.assert_array_equal(module.run({"x": x})["y"], toy_result(x))
    assert module.name == "toy_model_1" and module.metadata["name"] == "toy.model-1"
    assert repr(module) == "<Module toy_model_1: (x: float32[10, 100]) -> (y: float32[1000])>"
    for count in (0, -1, 257, 1.5, True, "2"):
        with pytest.raises(InputError, match="an integer from 1 to 256"):
            load(model, threads=count)


def test_what_is_no_model(tmp_path):
    refuses(tmp_path / "none.so", "No such file")
    refuses(tmp_path, "Is a directory")
    text = tmp_path / "text.so"
    text.write_text("hello" * 100)
    refuses(text, "is not an ELF shared library")
    text.write_text("")
    refuses(text, "too short")
    refuses(sys.executable, "not a minitvm model|not a shared library")
    libm = ctypes.util.find_library("m")
    system = [path for path in (f"/lib/x86_64-linux-gnu/{libm}", f"/lib/aarch64-linux-gnu/{libm}",
                                f"/lib64/{libm}") if Path(path).exists()]
    for path in system:
        refuses(path, "not a minitvm model: it has no note of minitvm's")


def test_a_library_that_only_looks_like_a_model_is_not_run(tmp_path):
    """It exports the names, and would end the process in its constructor."""
    source = tmp_path / "evil.c"
    source.write_text("""
#include <stdlib.h>
__attribute__((constructor)) static void start(void) { abort(); }
int minitvm_abi_version(void) { abort(); }
const char *minitvm_model_name(void) { abort(); }
const char *minitvm_error_text(int code) { (void)code; abort(); }
int minitvm_check_cpu(void) { abort(); }
""")
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", tmp_path / "evil.so"], check=True)
    refuses(tmp_path / "evil.so", "not a minitvm model")


@given(cut=st.floats(0, 0.9999), flip=st.integers(0, 2**40))
def test_damaged_models_are_refused(model, tmp_path_factory, cut, flip):
    data = model.read_bytes()
    path = tmp_path_factory.mktemp("damaged") / "toy.so"
    path.write_bytes(data[:int(len(data) * cut)])
    refuses(path)
    changed = bytearray(data)
    changed[flip % len(data)] ^= 1 << (flip // len(data)) % 8
    path.write_bytes(changed)
    refuses_or_is_the_model(path)


def refuses_or_is_the_model(path):
    """A file that is loaded in spite of a change is changed where nothing of it is loaded."""
    try:
        module = load(path)
    except LoadError as error:
        assert "\n" not in str(error)
    else:
        x = toy_input()
        np.testing.assert_array_equal(module.run({"x": x})["y"], toy_result(x))


def test_every_byte_that_is_loaded_is_sealed(model, tmp_path):
    """Every byte of the header and of the tables, and some of all others."""
    data = model.read_bytes()
    with elf.mapped(model) as mapped:
        segments = [s for s in elf.read_segments(mapped) if s.kind == elf.LOAD]
        table, size, count = elf.program_headers(mapped)
    path = tmp_path / "changed.so"
    ranges = [(s.offset, s.offset + s.file_size) for s in segments]
    free = {*range(40, 48), *range(58, 64)}  # where sections are: nothing that is loaded
    free |= {table + number * size + byte for number in range(count)
             for byte in (*range(8, 16), *range(24, 32))}  # places in the file, not in memory
    for place in {*range(table + size * count), *range(0, len(data), 37)}:
        loaded = any(start <= place < end for start, end in ranges) and place not in free
        changed = bytearray(data)
        changed[place] ^= 0x55
        path.unlink(missing_ok=True)  # never over a file that is mapped
        path.write_bytes(changed)
        refuses(path) if loaded else refuses_or_is_the_model(path)


def test_a_stripped_model_loads(model, tmp_path):
    """`strip` writes the tables of sections anew; what is loaded stays what was sealed."""
    tools = [[tool, option] for tool in ("strip", "llvm-strip", "eu-strip", "objcopy")
             for option in ("-g", "--strip-unneeded", "--strip-debug") if shutil.which(tool)]
    if not tools:
        pytest.skip("no strip on PATH")
    x = toy_input()
    for number, command in enumerate(tools):
        path = tmp_path / f"stripped{number}.so"
        shutil.copy(model, path)
        subprocess.run([*command, path], check=True)
        np.testing.assert_array_equal(load(path).run({"x": x})["y"], toy_result(x))
        changed = bytearray(path.read_bytes())
        changed[len(changed) // 3] ^= 1
        path.unlink()
        path.write_bytes(changed)
        refuses_or_is_the_model(path)


def test_a_model_without_tables_of_sections_loads(model, tmp_path):
    """As tools for small devices leave it; and with bytes appended, as package builders do."""
    data = bytearray(model.read_bytes())
    data[40:48], data[58:64] = bytes(8), bytes(6)
    path = tmp_path / "bare.so"
    path.write_bytes(data + b"appended")
    x = toy_input()
    np.testing.assert_array_equal(load(path).run({"x": x})["y"], toy_result(x))


def reseal(path, change):
    """Changes the bytes of a model and makes it look untouched."""
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)
    seal(path)


def test_another_machine_and_another_version(model, tmp_path):
    other = tmp_path / "other.so"
    shutil.copy(model, other)
    machine = next(n for n in elf.MACHINES.values() if n != elf.read_library(model).machine)
    reseal(other, lambda data: data.__setitem__(slice(18, 20), machine.to_bytes(2, "little")))
    refuses(other, f"was compiled for {elf.architecture(machine)}, and this machine is")
    # `minitvm_abi_version` is "mov eax, 1; ret"
    version = b"\xb8\x01\x00\x00\x00\xc3"
    if version in model.read_bytes():
        shutil.copy(model, other)
        reseal(other, lambda data: data.__setitem__(
            slice(0, None), data.replace(version, b"\xb8\x07\x00\x00\x00\xc3")))
        refuses(other, "has version 7 of the interface and this runtime version 1")


def test_a_processor_without_the_features_is_said(tmp_path, monkeypatch):
    """The bit of a reserved leaf stands for a feature that no processor has."""
    if Target.host().isa != "x86_64":
        pytest.skip("the feature bits of x86")
    for place in ((1, 0, 2, 31 - 15), (7, 0, 1, 11), (0x80FFFFFF, 0, 1, 1)):
        if place == (7, 0, 1, 11) and "rtm" in Path("/proc/cpuinfo").read_text():
            continue
        with monkeypatch.context() as patch:
            patch.setitem(cpu_check.X86_FEATURES, "sse3", place)
            path = export(toy_program(), tmp_path / "toy.so")
        refuses(path, "the model can't run here: this machine's processor lacks")


def test_a_model_exported_anew_to_the_same_path_is_loaded_anew(tmp_path):
    x = toy_input()
    first = load(export(toy_program(), tmp_path / "toy.so"))
    weights = np.ones(1000, np.float32)
    second = load(export(toy_program(weights=weights), tmp_path / "toy.so"))
    np.testing.assert_array_equal(second.run({"x": x})["y"], toy_result(x, weights))
    np.testing.assert_array_equal(first.run({"x": x})["y"], toy_result(x))


def test_the_runtime_imports_nothing_of_the_compiler(model):
    program = ("import sys, numpy as np\n"
               "from minitvm.runtime import load\n"
               f"m = load({str(model)!r})\n"
               "print(m.run({'x': np.zeros((10, 100), 'float32')})['y'][:3])\n"
               "rooms = {n.split('.')[1] for n in sys.modules if n.startswith('minitvm.')}\n"
               "assert rooms <= {'runtime', 'errors', 'dtypes'}, rooms\n"
               "assert 'llvmlite' not in sys.modules and 'onnx' not in sys.modules\n")
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
