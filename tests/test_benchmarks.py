"""The benchmark programs: what they measure, how figures come out, what they do when all is not
well. No test looks at how long anything took."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from minitvm import autotune
from minitvm.bench import OURS, TUNED, workers
from minitvm.target import Target

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
cases, command, tables = (importlib.import_module(f"against.{name}")
                          for name in ("cases", "command", "tables"))
PROGRAM = str(BENCHMARKS / "run.py")


def output_of(*words, status=0):
    done = subprocess.run([sys.executable, PROGRAM, *words], capture_output=True, text=True,
                          check=False)
    assert done.returncode == status, done.stderr
    return done.stdout if status != 2 else done.stderr


# --- cases --------------------------------------------------------------------------------------


def test_the_distinct_convolutions_of_mobilenet_make_up_its_work():
    convs = cases.mobilenet_convs()
    assert len(convs) == len(set(convs)) == 30
    assert str(convs[0]) == "conv 3x3 3->32 224x224 /2"
    assert str(convs[1]) == "depthwise 3x3 32->32 112x112"
    flops, size = cases.work(cases.zoo.mobilenet_v2(weights=0))
    assert flops == 2 * 300774272  # as published: 300 million multiply-adds
    assert 13.5e6 < size < 15e6


@pytest.mark.parametrize(("name", "flops", "size"), [
    ("gemm 64", 2 * 64**3, 4 * 3 * 64 * 64),
    ("batched matmul 12 x 128x32x128", 2 * 12 * 128 * 128 * 32, 4 * 12 * 128 * (64 + 128)),
    ("conv 3x3 64->128 56x56 /2", 2 * 28 * 28 * 128 * 64 * 9,
     4 * (64 * 56 * 56 + 128 * 28 * 28 + 128 * 64 * 9 + 128)),
    ("softmax", 0, 4 * 2 * 12 * 128 * 128),
])
def test_work_is_counted(name, flops, size):
    assert cases.work(cases.operators()[name]()) == (flops, size)


def test_transformers_have_the_work_of_their_products():
    """A layer: four projections, two of the feed-forward, scores and mixing."""
    layer = 128 * 384 * 384 * (4 + 8) + 2 * 128 * 128 * 384
    flops, _ = cases.work(cases.zoo_transformers.minilm(vocabulary=50, layers=2))
    assert flops == 2 * 2 * layer


def test_all_operators_are_models_with_inputs():
    for name, build in cases.operators().items():
        model = build()
        onnx.checker.check_model(model)
        given = cases.arrays(model)
        assert given and all(np.isfinite(array).all() for array in given.values()), name


def test_cases_are_chosen_by_name_part_and_group():
    assert [name for _, name, _ in cases.chosen(["resnet50", "gemm"], False)] == [
        "resnet50", "gemm 64", "gemm 128", "gemm 256", "gemm 512", "gemm 1024"]
    assert [name for _, name, _ in cases.chosen(["softmax"], False)] == ["softmax"]
    groups = [group for group, _, _ in cases.chosen([], False)]
    assert groups.count("networks") == 5 and groups.count("operators") == len(cases.operators())
    assert len(list(cases.chosen([], True))) == 6
    with pytest.raises(LookupError, match="nothing is called 'resnet51'"):
        list(cases.chosen(["resnet51"], False))


# --- figures ------------------------------------------------------------------------------------


def test_the_roofline_is_the_tighter_of_two_limits():
    row = {"flops": 4e6, "bytes": 1e6, "peak_gflops": 100.0, "gigabytes": 50.0, "threads": 1,
           "engines": {OURS: {"milliseconds": {"min": 0.08}}}}
    assert tables.roofline_share(row) == pytest.approx(0.5)
    assert tables.roofline_share({**row, "bytes": 8e6}) == pytest.approx(2)
    assert tables.roofline_share({**row, "threads": 2}) == pytest.approx(0.25)


# --- processes ----------------------------------------------------------------------------------


def test_the_program_measures_and_writes(tmp_path):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    path = tmp_path / "r.json"
    shown = output_of("softmax", "gemm 64", "--rounds", "2", "--against", "onnxruntime",
                      "--threads", "1,2", "--json", str(path))
    assert "ratio to onnxruntime" in shown and shown.count("\nsoftmax") == 2
    assert "differs" not in shown and "failed" not in shown
    report = json.loads(path.read_text())
    assert report["machine"]["cores"] >= 1 and report["rounds"] == 2 and not report["failures"]
    assert [(row["name"], row["threads"]) for row in report["rows"]] == [
        ("softmax", 1), ("softmax", 2), ("gemm 64", 1), ("gemm 64", 2)]
    for row in report["rows"]:
        ours, theirs = row["engines"].values()
        assert ours["difference"] == 0 <= theirs["difference"] < 1e-5
        assert len(theirs["round_milliseconds"]) == len(row["round_peaks"]) == 2
        assert row["peak_gflops"] > 1 and row["gigabytes"] > 0.1
        assert theirs["peak_memory_bytes"] > 1e7 and row["artifact"]["size_bytes"] > 1000


def tiny():
    """A network of one node."""
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, 5)) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", "x", "y")], "tiny", value[:1], value[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def unknown():
    model = tiny()
    model.graph.node[0].op_type = "Bernoulli"
    return model


def test_networks_without_peers_and_with_a_failure(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(cases, "NETWORKS", {"tiny": tiny, "unknown": unknown})
    words = ["unknown", "tiny", "--rounds", "1", "--against", "", "--json", str(tmp_path / "r")]
    assert command.main(words) == 1
    shown = capsys.readouterr().out
    assert "memory MB" in shown and "library MB" in shown and "\ntiny " in shown
    assert "unknown: minitvm failed: " in shown and "Bernoulli" in shown
    report = json.loads((tmp_path / "r").read_text())
    assert list(report["failures"]) == ["unknown"] and len(report["rows"]) == 1


def test_an_engine_that_fails_is_said_and_the_process_goes_on(tmp_path):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    names = workers.save_arrays(tmp_path / "inputs.npz",
                                {"x": np.array([[-1, 2, -3, 4, 0.5]] * 2, np.float32)})
    onnx.save(tiny(), tmp_path / "tiny.onnx")
    worker = workers.Worker("onnxruntime")
    try:
        with pytest.raises(workers.WorkerError, match="onnxruntime can't run the model"):
            worker.load(str(tmp_path / "none.onnx"), str(tmp_path / "inputs.npz"), names)
        facts = worker.load(str(tmp_path / "tiny.onnx"), str(tmp_path / "inputs.npz"), names)
        assert worker.name.startswith("onnxruntime ") and facts["load_seconds"] > 0
        assert len(worker.round(4)) == 4
        (output,) = worker.outputs(str(tmp_path / "out.npz"))
        np.testing.assert_array_equal(output, [[0, 2, 0, 4, 0.5]] * 2)
    finally:
        worker.close()
    with pytest.raises(workers.WorkerError, match="ended with 0"):
        worker.round(1)


def test_another_target_is_said_and_used(monkeypatch, capsys, tmp_path):
    """Code of a plainer machine than this, which has no fused multiply-add, rounds otherwise."""
    monkeypatch.setattr(cases, "NETWORKS", {"tiny": tiny})
    words = ["tiny", "--rounds", "1", "--against", "", "--json", str(tmp_path / "r")]
    assert command.main([*words, "--target", "llvm -mcpu=x86-64"]) == 0
    shown = capsys.readouterr().out
    assert "by code for another machine than this: llvm " in shown and "-mcpu=x86-64\n" in shown
    facts = json.loads((tmp_path / "r").read_text())["machine"]
    assert facts["target"].endswith("-mcpu=x86-64") and facts["host"] == str(Target.host())
    assert command.main(words) == 0
    assert "another machine" not in capsys.readouterr().out


def test_tuned_schedules_are_measured_in_the_same_rounds(monkeypatch, capsys, tmp_path):
    """By a log with a schedule for the one kernel."""
    build = cases.operators()["gemm 64"]
    monkeypatch.setattr(cases, "NETWORKS", {"product": build})
    onnx.save(build(), tmp_path / "product.onnx")
    task = autotune.extract_tasks(tmp_path / "product.onnx")[0]
    with autotune.Log.open(tmp_path / "log") as log, autotune.LocalMeasurer() as measurer:
        autotune.tune_tasks([task], measurer, log, autotune.TuneOptions(trials=2))
    words = ["product", "--rounds", "2", "--against", "", "--json", str(tmp_path / "r")]
    assert command.main([*words, "--schedules", str(tmp_path / "log")]) == 0
    shown = capsys.readouterr().out
    assert f"by the schedules of {tmp_path / 'log'}: " in shown and "tuned by round" in shown
    (row,) = json.loads((tmp_path / "r").read_text())["rows"]
    assert list(row["engines"]) == [OURS, TUNED] and row["tuned_artifact"]["size_bytes"] > 1000
    assert [len(engine["round_milliseconds"]) for engine in row["engines"].values()] == [2, 2]
    assert row["engines"][TUNED]["tuned_ratio"]["by_round"] == 1


def test_engines_that_are_absent_are_said(monkeypatch, capsys):
    monkeypatch.setattr(command, "missing_packages",
                        lambda name: ["onnx2torch"] if name == "torch" else [])
    assert command.absent_peers(["onnxruntime"]) == {"torch": ["onnx2torch"]}
    command.show({"machine": {"cpu": "a CPU", "cores": 1, "date": "today", "target": "llvm",
                              "host": "llvm"}, "rounds": 1, "rows": [], "failures": {},
                  "absent": {"torch": ["onnx2torch"]}})
    assert "torch is not compared with: onnx2torch not installed" in capsys.readouterr().out


@pytest.mark.parametrize(("words", "message"), [
    (["resnet51"], "nothing is called 'resnet51'"),
    (["--against", "tvm"], "there is no engine 'tvm' to compare with; there are onnxruntime"),
    (["--target", "llvm -mcpu=z80"], "LLVM knows no CPU 'z80'"),
    (["--target", "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76"], "can't run on this machine"),
    (["--schedules", "nowhere.jsonl"], "nowhere.jsonl"),
    (["--threads", "1,x"], "no list of numbers"),
    (["--threads", "0"], "no list of numbers"),
    (["--rounds", "-1"], "at least one"),
])
def test_unfit_options_are_refused(words, message):
    assert message in output_of(*words, status=2)


def test_the_plot_shows_each_engine(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    engines = {OURS: {}, "onnxruntime": {"ratio": {"by_round": 0.8, "quartiles": [0.7, 0.9]}}}
    report = {"machine": {"cpu": "a CPU", "date": "today"},
              "rows": [{"name": name, "threads": 1, "engines": engines} for name in "ab"]}
    tables.plot(report, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
