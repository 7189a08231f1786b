"""Rounds of engines: who runs when, which ratios come out; the command that shows it."""

import importlib.util
import json
import math
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from click.testing import CliRunner

import minitvm
from minitvm import autotune, cli, cli_options
from minitvm.bench import (
    OURS,
    PEAK,
    TUNED,
    bench,
    compare,
    engines,
    largest_difference,
    rounds,
    workers,
)
from minitvm.bench.workers import Worker, WorkerError, Workers
from minitvm.errors import OptionError, RunError

ROOT = Path(__file__).parents[1]
WEIGHTS = ", ".join(str(i % 7 / 8) for i in range(144))
MODEL = f"""
    <ir_version: 8, opset_import: ["": 17]>
    blur (float[1, 4, 20, N] picture, int64[2] unused)
        => (float[1, 4, 18, M] blurred, int64[2] same)
    <float[4, 4, 3, 3] weights = {{{WEIGHTS}}}>
    {{ blurred = Conv (picture, weights)
      same = Identity (unused) }}
"""
SHAPE = {"picture": (1, 4, 20, 20)}
SHAPE_OPTION = "picture=1,4,20,20"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("bench") / "blur.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    return path


@pytest.fixture(scope="module")
def report(model):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    return bench(model, SHAPE, against=["onnxruntime"], rounds=3)


class Stand:
    """A worker whose calls take what it is told to, instead of an engine."""

    def __init__(self, engine, log, *rounds, outputs=()):
        self.engine = self.name = engine
        self.log, self.left, self.given = log, iter(rounds), list(outputs)

    def load(self, source, inputs, names):
        self.log.append((self.engine, Path(source).name, *names))
        return {"load_seconds": 0.5, "memory_bytes": 7}

    def round(self, calls):
        self.log.append((self.engine, calls))
        return next(self.left)

    def gflops(self):
        self.log.append(PEAK)
        return 10.0

    def outputs(self, path):
        return self.given

    def close(self):
        self.log.append(f"{self.engine} closed")


def test_engines_take_turns_and_ratios_are_by_round(monkeypatch):
    monkeypatch.setattr(rounds, "PAUSE_SECONDS", 0)
    log, steps = [], []
    # the machine is ten times slower in the second round
    ours = Stand(OURS, log, [1, 1, 9], [10, 10, 10], [1, 1, 1])
    other = Stand("other", log, [2, 2], [20, 20], [4, 4])
    found = rounds.measure([ours, other], Stand(PEAK, log), {OURS: 3, "other": 2}, 3, steps.append)
    a, b = (OURS, 3), ("other", 2)
    assert log == [a, b, PEAK, b, a, PEAK, a, b, PEAK] and steps == [0, 1, 2]
    figures = rounds.summary(found, flops=8e9, threads=2)
    other = figures["engines"]["other"]
    assert other["ratio"] == {"by_round": 0.5, "p50": 0.25, "min": 0.5, "quartiles": [0.375, 0.5]}
    assert figures["peak_gflops"] == 10 and figures["engines"][OURS]["gflops"] == 8
    assert figures["engines"][OURS]["share_of_peak"] == 0.4  # of two cores
    assert figures["engines"][OURS]["ratio"] == {"by_round": 1, "p50": 1, "min": 1,
                                                 "quartiles": [1, 1]}
    assert "tuned_ratio" not in other


def test_tuned_minitvm_is_compared_with_all(monkeypatch):
    monkeypatch.setattr(rounds, "PAUSE_SECONDS", 0)
    engines = [Stand(OURS, [], [4], [4]), Stand(TUNED, [], [2], [2]), Stand("other", [], [8], [8])]
    found = rounds.measure(engines, Stand(PEAK, []), {e.engine: 1 for e in engines}, 2, math.sqrt)
    figures = rounds.summary(found, 1.0, 1)["engines"]
    assert [figures[e.engine]["tuned_ratio"]["by_round"] for e in engines] == [0.5, 1, 0.25]
    assert [figures[e.engine]["ratio"]["by_round"] for e in engines] == [1, 2, 0.5]


def test_calls_fill_a_rounds_time():
    slow, quick = Stand("slow", [], [0.3, 0.2, 0.4]), Stand("quick", [], [1e-3, 2e-3, 9])
    empty = Stand("empty", [], [0.0] * 3)
    assert rounds.calls_for([slow, quick, empty], 0.05) == {"slow": 1, "quick": 50, "empty": 2000}


def test_differences():
    one = np.array([1.0, -2.0], np.float32)
    assert largest_difference([one], [one]) == 0
    assert largest_difference([one + np.float32(0.5)], [one]) == 0.25
    assert largest_difference([one, 2 * one], [one, one]) == 1
    nan = np.array([np.nan, 1], np.float32)
    assert largest_difference([nan], [nan]) == 0
    empty = np.zeros((0, 3), np.float32)
    assert largest_difference([empty], [empty]) == 0
    for mine, theirs in (([nan], [one]), ([one], [nan]), ([one], []), ([one], [one[:1]]),
                         ([one], [0 * one]), ([np.array([1, np.inf])], [np.array([1.0, 2.0])])):
        assert largest_difference(mine, theirs) == np.inf


def test_a_report_says_all(report, model):
    data, compiled = report
    assert json.loads(json.dumps(data)) == data
    assert data["model"] == "blur" and data["rounds"] == 3 and data["peak_gflops"] > 1
    artifact = data["artifact"]
    assert artifact["kernels"] == len(compiled.kernels) and artifact["size_bytes"] > 1000
    assert artifact["compile_seconds"] > 0
    (group,) = data["threads"]
    ours, theirs = group["engines"]
    assert group["threads"] == 1 and ours["engine"] == OURS
    assert theirs["engine"].startswith("onnxruntime ")
    assert ours["ratio"] == {"by_round": 1, "p50": 1, "min": 1, "quartiles": [1, 1]}
    assert ours["difference"] == 0
    assert 0 < theirs["difference"] < 1e-5  # different sums, equal results
    assert theirs["ratio"]["min"] == pytest.approx(
        ours["milliseconds"]["min"] / theirs["milliseconds"]["min"])
    assert len(theirs["round_milliseconds"]) == 3
    assert ours["milliseconds"]["runs"] == sum(map(len, ours["round_milliseconds"]))
    assert theirs["memory_bytes"] >= 0 and theirs["first_seconds"] > 0


def stand_in(monkeypatch, log, results):
    """Engines that only say what they are told, for those of `bench`; each takes a second."""
    monkeypatch.setattr(rounds, "PAUSE_SECONDS", 0)
    monkeypatch.setattr(engines, "missing_packages", lambda name: [])

    def start(self, engine, threads=1, target="llvm"):
        worker = Stand(engine, log, *[[1.0] * 3] * 9, outputs=results.get(engine, ()))
        self.started.append(worker)
        log.append(f"{engine} on {threads}")
        return worker

    monkeypatch.setattr(Workers, "start", start)


def test_wrong_results_would_be_seen(model, monkeypatch):
    """An engine that gives something else stands out by its difference."""
    ours = [np.ones((1, 4, 18, 18), np.float32)]
    stand_in(monkeypatch, [], {OURS: ours, "onnxruntime": [np.zeros_like(ours[0])]})
    data, _ = bench(model, SHAPE, against=["onnxruntime"], rounds=1)
    assert data["threads"][0]["engines"][1]["difference"] == np.inf


def test_each_number_of_threads_has_processes_of_its_own(model, monkeypatch):
    log = []
    stand_in(monkeypatch, log, {})
    bench(model, SHAPE, against=["torch"], threads=[1, 2], rounds=1)
    loads = [(OURS, "model.so", "picture", "unused"), ("torch", "blur.onnx", "picture", "unused")]
    calls = [(OURS, 3), ("torch", 3), (OURS, 1), ("torch", 1), PEAK]
    closed = [f"{OURS} closed", "torch closed"]
    assert log == ["peak on 1",
                   f"{OURS} on 1", "torch on 1", *loads, *calls, *closed,
                   f"{OURS} on 2", "torch on 2", *loads, *calls, *closed, "peak closed"]


def test_tuned_schedules_are_one_more_engine(model):
    """Of real schedules: what they make has the same results, and both are measured."""
    task = max(autotune.extract_tasks(model, SHAPE), key=lambda task: len(task.space))
    steps = task.candidate(len(task.space) - 1).steps
    data, compiled = bench(model, SHAPE, schedules={task.key: steps}, rounds=1)
    plain, tuned = data["threads"][0]["engines"]
    assert (plain["engine"], tuned["engine"]) == (OURS, TUNED)
    assert tuned["difference"] < 1e-5 and tuned["tuned_ratio"]["by_round"] == 1
    assert plain["tuned_ratio"]["by_round"] == pytest.approx(1 / tuned["ratio"]["by_round"])
    default, other = (minitvm.compile(model, SHAPE, schedules=schedules).program.kernels
                      for schedules in ({}, {task.key: steps}))
    objects = [kernel.object for kernel in compiled.program.kernels]
    assert objects == [kernel.object for kernel in default]  # not the tuned ones, to profile
    assert objects != [kernel.object for kernel in other]


@pytest.mark.parametrize("options, message", [
    ({"against": ["tensorrt"]}, "no engine 'tensorrt' .* there are onnxruntime, openvino, torch"),
    ({"rounds": 0}, "0 rounds .* measure nothing"),
    ({"threads": []}, "measure nothing"),
])
def test_unfit_options_are_refused(model, options, message):
    with pytest.raises(OptionError, match=message):
        bench(model, SHAPE, **options)


def test_an_engine_that_is_not_installed_is_said(model, monkeypatch):
    monkeypatch.setattr(engines.importlib.util, "find_spec",
                        lambda name: None if name in ("openvino", "onnx2torch") else name)
    with pytest.raises(OptionError, match=r"openvino is not installed; .* pip install openvino"):
        bench(model, SHAPE, against=["openvino"])
    with pytest.raises(OptionError, match=r"torch is not installed; .* pip install onnx2torch$"):
        bench(model, SHAPE, against=["torch"])
    assert engines.installed_peers() == ["onnxruntime"]


def test_an_engine_that_fails_is_said(model, tmp_path, monkeypatch):
    def fail(model, inputs, threads):
        raise ValueError("no such thing\nat all")

    monkeypatch.setattr(engines, "missing_packages", lambda name: [])
    monkeypatch.setitem(engines.PEERS, "openvino", engines.Peer(fail, ("openvino",)))
    with pytest.raises(RunError, match="openvino can't run the model: no such thing; leave it out"):
        engines.load_engine("openvino", "model.onnx", {}, 1)
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    monkeypatch.setattr(compare, "_model_file", lambda model, folder: broken)
    with pytest.raises(WorkerError, match=r"onnxruntime can't run the model: .*; leave it"):
        bench(model, SHAPE, against=["onnxruntime"], rounds=1)


def test_a_process_that_ended_is_said():
    with Workers() as started:
        worker = started.start("minitvm")
        with pytest.raises(WorkerError, match=r"No such file or directory: 'nowhere\.npz'"):
            worker.load("nowhere.so", "nowhere.npz", [])
        worker.process.kill()
        with pytest.raises(WorkerError, match="the process of minitvm ended with -9"):
            worker.round(1)


def test_nothing_waits_for_engines_after_an_interruption():
    """Even those that never answer."""
    sleeper = Worker.__new__(Worker)
    sleeper.engine = "sleeper"
    sleeper.process = subprocess.Popen(["sleep", "1000"], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True)
    with pytest.raises(KeyboardInterrupt), Workers() as started:
        started.started.append(sleeper)
        raise KeyboardInterrupt
    assert sleeper.process.returncode == -9


@pytest.mark.parametrize("name", [name for name in engines.PEERS if name != "torch.compile"])
def test_each_peer_computes_what_minitvm_does(name, tmp_path):
    for package in engines.PEERS[name].packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    text = """
        <ir_version: 8, opset_import: ["": 17]>
        net (float[1, 4, 9, 9] b, float[9] a) => (float[1, 4, 9, 9] sum, float[9] negative)
        <float[4] weights = {1, 2, 3, 4}>
        { sum = Add (b, a)
          negative = Neg (a) }
    """
    path = tmp_path / "net.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    random = np.random.default_rng(0)
    arrays = {"a": random.random(9, np.float32), "b": random.random((1, 4, 9, 9), np.float32)}
    names = workers.save_arrays(tmp_path / "inputs.npz", arrays)
    with Workers() as started:
        worker = started.start(name, 2)
        facts = worker.load(str(path), str(tmp_path / "inputs.npz"), names)
        assert facts["load_seconds"] > 0 and worker.name.startswith(f"{name} ")
        assert len(worker.round(2)) == 2
        total, negative = worker.outputs(str(tmp_path / "outputs.npz"))
    np.testing.assert_array_equal(total, arrays["b"] + arrays["a"])
    np.testing.assert_array_equal(negative, -arrays["a"])


# --- the command --------------------------------------------------------------------------------


def output_of(*words):
    result = CliRunner().invoke(cli.main, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_prints_times_and_profile(model):
    shown = output_of("bench", model, "--shape", SHAPE_OPTION, "--rounds", 1, "--profile")
    lines = shown.splitlines()
    assert lines[0].startswith("blur: compiled in ") and "from the cache" in lines[0]
    assert any(line.startswith("1 thread, 1 round") for line in lines)
    assert any(line.startswith("minitvm ") and " 1.000 " in line for line in lines)
    assert any(line.startswith("all kernels") for line in lines)
    assert "roofline" in shown and "\x1b" not in shown


def test_the_command_prints_json_and_reads_inputs(model, tmp_path):
    np.save(tmp_path / "picture.npy", np.ones((1, 4, 20, 20), np.float32))
    data = json.loads(output_of("bench", model, "--shape", SHAPE_OPTION, "--rounds", 2, "--json",
                                "--profile", "--cold", "--input",
                                f"picture={tmp_path / 'picture.npy'}"))
    assert data["rounds"] == 2 and data["artifact"]["kernels_from_cache"] == 0
    assert data["profile"]["calls"] and data["profile"]["coverage"] > 0
    assert data["threads"][0]["engines"][0]["engine"] == OURS


@pytest.mark.parametrize("words, message", [
    (["--threads", "0"], "--threads '0' is not a list of positive integers"),
    (["--threads", "1,x"], "for example --threads 1,2"),
    (["--threads", ""], "not a list"),
    (["--against", "tvm"], "no engine 'tvm'"),
    (["--shape", "picture=a"], "--shape input=1,3,224,224"),
])
def test_the_command_refuses_in_one_line(model, words, message):
    shape = [] if "--shape" in words else ["--shape", SHAPE_OPTION]
    result = CliRunner().invoke(cli.main, ["bench", str(model), *shape, *words])
    assert result.exit_code == 1 and message in result.stderr
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1


def test_threads_are_read():
    assert cli.parse_threads("1, 2,16") == [1, 2, 16]


def test_the_command_measures_a_log_beside(model, tmp_path):
    log = tmp_path / "tune.jsonl"
    output_of("tune", model, "--shape", SHAPE_OPTION, "--log", log, "--trials", 4)
    shown = output_of("bench", model, "--shape", SHAPE_OPTION, "--rounds", 1, "--schedules", log)
    assert f"kernels by the schedules of {log}" in shown and "tuned by round" in shown
    assert [line.split("  ")[0] for line in shown.splitlines() if line.startswith("minitvm")][
        -2:] == [OURS, TUNED]


def test_schedules_by_name(tmp_path, monkeypatch):
    assert cli_options.read_schedules("none") is None
    with pytest.raises(OptionError, match=r"no schedules come with minitvm for 'llvm .*cortex-a76"):
        cli_options.read_schedules("shipped", "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76")
    known = autotune.apply_history_best([])
    known.best["kernel"] = None
    monkeypatch.setattr(autotune, "shipped", lambda target: known)
    assert cli_options.read_schedules("shipped") is known
