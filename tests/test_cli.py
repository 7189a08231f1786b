"""The command line: what it writes, what it prints in a pipe and on a terminal, how it ends."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import numpy as np
import onnx.parser
import pytest
from click.testing import CliRunner, Result

import minitvm
from minitvm import cli
from minitvm.errors import MinitvmError, OptionError
from minitvm.testing import zoo

ROOT = Path(__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
COMMAND = [sys.executable, "-m", "minitvm"]
# An output whose name is markup to rich and does not fit into Latin-1, and an input of indices.
MODEL = """
    <ir_version: 8, opset_import: ["": 17]>
    picks (float[3, 4] table, int64[2] rows) => (float[2, 4] picked)
    { picked = Gather <axis = 0> (table, rows) }
"""
ODD_NAME = "[red]p\u2192cked"


def minitvm_command(*words: object) -> Result:
    return CliRunner().invoke(cli.main, [str(word) for word in words])


def output_of(*words: object) -> str:
    result = minitvm_command(*words)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds `picks.onnx`, and `picks.so` compiled from it."""
    folder = tmp_path_factory.mktemp("cli")
    model = onnx.parser.parse_model(MODEL)
    model.graph.node[0].output[0] = model.graph.output[0].name = ODD_NAME
    onnx.save(model, folder / "picks.onnx")
    minitvm.compile(model, name="picks", export=folder / "picks.so")
    return folder


# --- compile ------------------------------------------------------------------------------------


def test_compile_writes_library_header_and_sample(folder, tmp_path):
    shown = output_of("compile", folder / "picks.onnx", "-o", tmp_path / "net.so", "--name", "p-1")
    assert sorted(os.listdir(tmp_path)) == ["net.so", "p_1.h", "p_1_sample.c"]
    assert minitvm.load(tmp_path / "net.so").name == "p_1"
    line = next(line for line in shown.splitlines() if line.startswith("target "))
    assert line.split(maxsplit=1)[1] == str(minitvm.Target.host())  # whole, on one line
    written = next(line for line in shown.splitlines() if line.startswith("written "))
    assert "net.so" in written and "p_1.h" in written and "p_1_sample.c" in written
    assert "\x1b" not in shown and "\u2502" not in shown
    assert f"{ODD_NAME}: float32[2, 4]" in shown


def test_the_output_is_by_default_beside_the_model(folder, tmp_path):
    model = tmp_path / "other.onnx"
    model.write_bytes((folder / "picks.onnx").read_bytes())
    assert output_of("compile", model, "--quiet") == ""
    assert minitvm.load(tmp_path / "other.so").name == "other"


def test_a_report_as_json(folder, tmp_path):
    report = json.loads(output_of("compile", folder / "picks.onnx", "-o", tmp_path / "net.so",
                                  "--json", "--opt-level", 0))
    assert report["inputs"] == [{"name": "table", "dtype": "float32", "shape": [3, 4]},
                                {"name": "rows", "dtype": "int64", "shape": [2]}]
    assert report["size_bytes"] == (tmp_path / "net.so").stat().st_size
    assert report["kernels"] == report["kernel_calls"] == 1
    assert all(Path(file).exists() for file in report["files"]) and len(report["files"]) == 3
    assert minitvm.load(tmp_path / "net.so").metadata["opt_level"] == 0


def test_shapes_targets_and_dumps_are_passed_on(tmp_path):
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[N, M] x) => (float[N, M] y)'
        " { y = Relu (x) }")
    onnx.save(model, tmp_path / "open.onnx")
    target = minitvm.Target.host()
    plain = f"llvm -mtriple={target.triple} -mcpu={target.cpu}"
    output_of("compile", tmp_path / "open.onnx", "--shape", "x=2, 5", "--target", plain,
              "--dump", tmp_path / "passes", "-q")
    loaded = minitvm.load(tmp_path / "open.so")
    assert loaded.inputs[0].shape == (2, 5)
    assert loaded.metadata["target"] == str(minitvm.Target(plain))
    assert (tmp_path / "passes" / "main.tir").exists()
    assert len(list((tmp_path / "passes" / "relay").glob("*.txt"))) > 1


def test_shapes_are_read():
    read = cli.parse_shapes(["a=1,3,224,224", "b=c=7", "s="])
    assert read == {"a": (1, 3, 224, 224), "b=c": (7,), "s": ()}


@pytest.mark.parametrize("value", ["", "x", "=1,2", "x=1,a", "x=1,,2", "x=-1", "x=1.5", "x=1;2",
                                   "x=\u0661", "x=0x10", "x=9999999999999999999"])
def test_shapes_that_are_none_are_refused(value):
    with pytest.raises(OptionError, match=r"--shape input=1,3,224,224"):
        cli.parse_shapes([value])


def test_inputs_are_fixed(tmp_path):
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]>
        net (float[N] x, int64 n, float[N] scale) => (float[N] y)
        {
          two = Constant <value = int64 {2}> ()
          is_two = Equal (n, two)
          t = If (is_two) <
            then_branch = g1 () => (float[N] a) { a = Mul (x, scale) },
            else_branch = g2 () => (float[N] b) { b = Add (x, scale) }>
          y = Neg (t)
        }
    """)
    onnx.save(model, tmp_path / "net.onnx")
    np.save(tmp_path / "scale.npy", np.float32([1, 2, 3]))
    output_of("compile", tmp_path / "net.onnx", "--shape", "x=3", "--fix", "n=2",
              "--fix", f"scale={tmp_path / 'scale.npy'}", "-q")
    loaded = minitvm.load(tmp_path / "net.so")
    assert [info.name for info in loaded.inputs] == ["x"]
    np.testing.assert_array_equal(loaded.run({"x": np.float32([1, 2, 4])})["y"], [-1, -4, -12])


def test_fixed_values_are_read():
    read = cli.parse_fixed(["n=16000", "a=b=0.5", "flag=true", "e=-1e-3", "off=false"])
    assert read == {"n": 16000, "a=b": 0.5, "flag": True, "e": -1e-3, "off": False}
    assert type(read["n"]) is int and type(read["flag"]) is bool


@pytest.mark.parametrize(("values", "said"), [
    (["n"], "--fix 'n' is not NAME=NUMBER"), (["=1"], "is not NAME=NUMBER"),
    (["n="], "for example"), (["n=1", "n=2"], "given twice"),
    (["n=none.npy"], "can't be read from 'none.npy'")])
def test_fixed_values_that_are_none_are_refused(values, said):
    with pytest.raises(MinitvmError, match=said):
        cli.parse_fixed(values)


def test_separate_weights(tmp_path):
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]>
        net (float[4, 4] x) => (float[4, 4] y)
        <float[4, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}>
        { y = MatMul(x, w) }
    """)
    onnx.save(model, tmp_path / "net.onnx")
    report = json.loads(output_of("compile", tmp_path / "net.onnx", "--weights", "separate",
                                  "--json"))
    assert [Path(file).name for file in report["files"]] == [
        "net.so", "net.h", "net_sample.c", "net.weights"]
    assert all(Path(file).is_file() for file in report["files"])
    first = output_of("run", tmp_path / "net.so", "--json")
    moved = (tmp_path / "net.weights").rename(tmp_path / "elsewhere")
    (tmp_path / "again").mkdir()
    again = shutil.copy(tmp_path / "net.so", tmp_path / "again")
    result = minitvm_command("run", again)
    assert result.exit_code == cli.REFUSED and "missing or can't be read" in result.stderr
    second = output_of("run", again, "--weights", moved, "--json")
    assert json.loads(first)["outputs"] == json.loads(second)["outputs"]


# --- run ----------------------------------------------------------------------------------------


def test_run_computes_and_writes_what_the_library_computes(folder, tmp_path):
    table = np.arange(12, dtype="float32").reshape(3, 4)
    np.save(tmp_path / "table.npy", np.asfortranarray(table))
    np.save(tmp_path / "rows.npy", np.array([2, 0]))
    shown = output_of("run", folder / "picks.so", "--input", f"table={tmp_path / 'table.npy'}",
                      "--input", f"rows={tmp_path / 'rows.npy'}", "--output", tmp_path / "out")
    (written,) = (tmp_path / "out").iterdir()
    assert written.name == "_red_p_cked.npy" and str(written) in shown
    np.testing.assert_array_equal(np.load(written), table[[2, 0]])
    assert "random" not in shown and "1 run: median" in shown
    row = next(line for line in shown.splitlines() if line.startswith(ODD_NAME))
    assert row.split()[-3:] == ["0", "5.5", "11"]


def test_random_inputs_are_the_same_each_time_and_named(folder, tmp_path):
    words = ("run", folder / "picks.so", "--repeat", 3, "--json", "--output")
    first, second = (json.loads(output_of(*words, tmp_path / name)) for name in "ab")
    assert first["random_inputs"] == ["table", "rows"] and first["runs"] == 3
    assert first["milliseconds"]["min"] <= first["milliseconds"]["median"]
    assert first["outputs"] == second["outputs"]
    assert first["outputs"][0]["name"] == ODD_NAME and first["outputs"][0]["shape"] == [2, 4]


def test_names_that_hold_an_equals_sign_are_known_from_the_model(tmp_path):
    np.save(tmp_path / "x=1.npy", np.ones(3))
    file = tmp_path / "x=1.npy"
    assert list(cli.read_inputs([f"a=b={file}"], ["a", "a=b"])) == ["a=b"]
    assert list(cli.read_inputs([f"c={file}"], ["a"])) == ["c"]


def test_names_of_outputs_become_names_of_files(tmp_path):
    names = ["a/b", "a_b", "", "..", "/etc/passwd", "x" * 500, "tab\tand\0nul"]
    results = {name: np.full(2, index) for index, name in enumerate(names)}
    files = cli.write_outputs(tmp_path / "deep" / "out", results)
    assert sorted(files) == sorted((tmp_path / "deep" / "out").iterdir())
    for index, file in enumerate(files):
        np.testing.assert_array_equal(np.load(file), np.full(2, index))


def test_what_json_can_not_hold_is_null():
    described = cli._describe("y", np.array([1.0, np.nan]))
    assert described["min"] is None and json.dumps(described, allow_nan=False)
    assert cli._describe("y", np.empty((0, 2)))["mean"] is None
    assert cli._describe("y", np.array([True, False]))["mean"] == 0.5


# --- ops, help, version -------------------------------------------------------------------------


def test_ops_lists_what_the_importer_knows():
    supported = minitvm.supported_onnx_operators()
    lines = output_of("ops").splitlines()[1:]
    rows = dict(map(str.split, lines))
    assert rows == {name: f"{low}-{high}" for name, (low, high) in supported.items()}
    assert json.loads(output_of("ops", "--json")) == {n: list(v) for n, v in supported.items()}


def test_version_and_module():
    done = subprocess.run([*COMMAND, "--version"], capture_output=True, text=True, env=ENVIRONMENT)
    assert done.stdout == f"minitvm, version {minitvm.__version__}\n" and done.returncode == 0


@pytest.mark.parametrize("command", list(cli.main.commands.values()), ids=lambda c: c.name)
def test_help_explains_every_option_with_an_example(command):
    assert f"minitvm {command.name}" in (command.help or "")
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.help and option.help.endswith("."), option.name
            if not option.is_flag:
                longest = max(option.opts, key=len)
                assert re.search(f"such as ({'|'.join(option.opts)}) ", option.help), longest
    shown = output_of(command.name, "--help")
    assert all(opt in shown for option in command.params for opt in option.opts if "--" in opt)


@pytest.mark.parametrize("words, message", [
    (["comple", "x.onnx"], "there is no command 'comple'; did you mean 'compile'?"),
    (["xyz"], "there is no command 'xyz'; there are bench, compile, ops, pick-best, run"),
    (["compile", "x.onnx", "--shap", "x=1"], "--shap"),
    (["compile"], "Missing argument 'MODEL'"),
    (["run", "x.so", "--repeat", "0"], "0 is not in the range"),
    (["compile", "x.onnx", "--opt-level", "three"], "'three' is not a valid integer"),
])
def test_wrong_command_lines(words, message):
    result = minitvm_command(*words)
    assert result.exit_code == 2 and result.stdout == ""
    assert result.stderr.startswith("error: ") and message in result.stderr
    assert "--help'" in result.stderr and len(result.stderr.splitlines()) == 1


# --- pipes, terminals, interruptions ------------------------------------------------------------


def test_a_closed_pipe_is_silent():
    done = subprocess.run([*COMMAND, "ops"], stdout=closed_pipe(), stderr=subprocess.PIPE,
                          env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (cli.BROKEN_PIPE, b"")


def test_closed_streams_are_no_reason_to_fail(folder):
    words = " ".join([*COMMAND, "run", str(folder / "picks.so")])
    done = subprocess.run(["sh", "-c", f"{words} >&- 2>&-"], env=ENVIRONMENT)
    assert done.returncode == 0


def closed_pipe() -> int:
    """The writing end of a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def test_names_outside_of_the_encoding_are_escaped(folder):
    done = subprocess.run([*COMMAND, "run", folder / "picks.so"], capture_output=True,
                          env={**ENVIRONMENT, "PYTHONIOENCODING": "latin-1"})
    assert done.returncode == 0, done.stderr
    assert rb"[red]p\u2192cked" in done.stdout


def on_terminal(*words: object, stream: str, columns: int = 80) -> str:
    """What a command writes to one stream that is a terminal."""
    master, slave = pty.openpty()
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: slave}
    process = subprocess.Popen([*COMMAND, *map(str, words)], **streams,
                               env={**ENVIRONMENT, "TERM": "xterm", "COLUMNS": str(columns)})
    os.close(slave)
    pieces = []
    while True:
        try:
            pieces.append(os.read(master, 65536))
        except OSError:  # what Linux says at the end
            break
    os.close(master)
    assert process.wait() == 0
    return b"".join(pieces).decode()


def test_a_terminal_gets_tables_and_no_name_is_read_as_markup(folder):
    shown = on_terminal("run", folder / "picks.so", stream="stdout")
    assert "\u2502" in shown and ODD_NAME in shown
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert max(map(len, plain.splitlines())) <= 80
    narrow = on_terminal("run", folder / "picks.so", stream="stdout", columns=30)
    assert "\u2026" not in narrow  # folded, never cut


def test_progress_goes_to_a_terminal_alone(folder, tmp_path):
    words = ("compile", folder / "picks.onnx", "-o", tmp_path / "net.so")
    assert "compiling kernels" in on_terminal(*words, stream="stderr")
    assert on_terminal(*words, "--quiet", stream="stderr") == ""
    assert minitvm_command(*words).stderr == ""
    assert "running" in on_terminal("run", tmp_path / "net.so", "--repeat", 5, stream="stderr")


def default_interrupts():
    """What a terminal gives a command; a shell's background job would ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize("number, status, message", [
    (signal.SIGINT, cli.INTERRUPTED, "interrupted\n"), (signal.SIGTERM, cli.TERMINATED, "")])
def test_an_interruption_is_one_line_and_leaves_nothing(number, status, message, tmp_path):
    onnx.save(zoo.mobilenet_v2(weights=0, image=64), tmp_path / "net.onnx")
    dump = tmp_path / "passes" / "kernels"  # made when the first kernel is
    process = subprocess.Popen([*COMMAND, "compile", "net.onnx", "--dump", "passes"],
                               cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                               env=ENVIRONMENT, text=True, preexec_fn=default_interrupts)
    deadline = time.monotonic() + 60
    while not dump.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (status, message)
    assert sorted(os.listdir(tmp_path)) == ["net.onnx", "passes"]
