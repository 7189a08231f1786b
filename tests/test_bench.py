"""Rounds of engines: who runs when, which ratios come out; the command that shows it."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from click.testing import CliRunner

from minitvm import bench as benching
from minitvm import cli
from minitvm.bench import OURS, Engine, bench, largest_difference, measure_rounds
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


class Clock:
    """Time that passes only when an engine says so."""

    def __init__(self):
        self.now = 0.0
        self.ran = []

    def __call__(self):
        return self.now

    def engine(self, name, *seconds):
        left = iter(seconds)

        def run():
            self.ran.append(name)
            self.now += next(left)
            return []

        return Engine(name, run, 0.0)


def test_engines_take_turns_and_ratios_are_by_round(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(benching.time, "perf_counter", clock)
    monkeypatch.setattr(benching, "WARM_UP", 1)
    # the machine is ten times slower in the second round
    a = clock.engine("a", 99, 1, 1, 10, 10, 1, 1)
    b = clock.engine("b", 99, 2, 2, 20, 20, 4, 4)
    steps = []
    found = measure_rounds([a, b], 3, 2, lambda: 50.0, lambda *step: steps.append(step))
    assert "".join(clock.ran) == "ab" + "aabb" + "bbaa" + "aabb"
    assert found.times == {"a": [[1, 1], [10, 10], [1, 1]], "b": [[2, 2], [20, 20], [4, 4]]}
    assert found.ratio_by_round("a", "b") == 0.5
    assert (found.result("a").p50, found.result("b").minimum) == (1, 2)
    assert found.peak_gflops == [50.0] * 3
    assert steps == [("measuring", done, 3) for done in (0, 1, 2, 3)]


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
    assert set(ours["ratio"].values()) == {1.0} and ours["difference"] == 0
    assert 0 < theirs["difference"] < 1e-5  # different sums, equal results
    assert theirs["ratio"]["min"] == pytest.approx(
        ours["milliseconds"]["min"] / theirs["milliseconds"]["min"])
    assert len(theirs["round_milliseconds"]) == 3
    assert ours["milliseconds"]["runs"] % 3 == 0


def test_wrong_results_would_be_seen(model, monkeypatch):
    """An engine that gives something else stands out by its difference."""
    monkeypatch.setitem(benching.PEERS, "onnxruntime", lambda model, inputs, threads: Engine(
        "other", lambda: [np.zeros((1, 4, 18, 18), np.float32), inputs["unused"]], 0.0))
    monkeypatch.setattr(benching, "installed_peers", lambda: ["onnxruntime"])
    data, _ = bench(model, SHAPE, against=["onnxruntime"], rounds=1)
    assert data["threads"][0]["engines"][1]["difference"] == np.inf


@pytest.mark.parametrize("options, message", [
    ({"against": ["tensorrt"]}, "no engine 'tensorrt' .* there are onnxruntime, openvino"),
    ({"rounds": 0}, "0 rounds .* measure nothing"),
    ({"threads": []}, "measure nothing"),
])
def test_unfit_options_are_refused(model, options, message):
    with pytest.raises(OptionError, match=message):
        bench(model, SHAPE, **options)


def test_an_engine_that_is_not_installed_or_fails_is_said(model, monkeypatch):
    monkeypatch.setattr(benching, "installed_peers", lambda: [])
    with pytest.raises(OptionError, match=r"openvino is not installed; .* pip install openvino"):
        bench(model, SHAPE, against=["openvino"])

    def fail(model, inputs, threads):
        raise ValueError("no such thing\nat all")

    monkeypatch.setattr(benching, "installed_peers", lambda: ["openvino"])
    monkeypatch.setitem(benching.PEERS, "openvino", fail)
    with pytest.raises(RunError, match="openvino can't run the model: no such thing; leave it out"):
        bench(model, SHAPE, against=["openvino"], rounds=1)


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
