"""`minitvm tune`: tunes, goes on from its log, and what it found is compiled."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import onnx.parser
import pytest
from click.testing import CliRunner

from minitvm.autotune.records import read_log
from minitvm.cli import main
from minitvm.cli_options import parse_duration
from minitvm.errors import OptionError
from minitvm.report import plot

pytest.importorskip("xgboost")

MODEL = """
    <ir_version: 8, opset_import: ["": 17]>
    two (float[1, 32, 12, 12] image) => (float[1, 64, 12, 12] y)
    <int64[4] size = {64, 32, 1, 1}>
    { w = ConstantOfShape <value = float[1] {0.5}> (size)
      a = Conv (image, w)
      y = Relu (a) }
"""


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "two.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    return path


def command(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


def test_it_tunes_goes_on_and_compiles(model, tmp_path):
    log = tmp_path / "tune.jsonl"
    first = command("tune", model, "--log", log, "--trials", 12, "--tuner", "random", "--json")
    assert first.exit_code == 0, first.output
    report = json.loads(first.stdout)
    assert report["trials"] >= 12 and report["after_seconds"] <= report["before_seconds"]
    assert not any(task["problem"] for task in report["tasks"])
    measured = log.read_bytes()

    again = command("tune", model, "--log", log, "--trials", 12, "--tuner", "random")
    assert again.exit_code == 0 and log.read_bytes() == measured
    assert "times as fast" in again.stdout and "GFLOP/s" in again.stdout
    assert "faster beyond noise" in again.stdout or "kept: other schedules" in again.stdout
    compared = any(row["compared"] for row in report["in_place"]["rows"])
    assert (b'"in_place":"two ' in measured) == compared

    replayed = tmp_path / "replayed.jsonl"
    result = command("tune", model, "--log", replayed, "--trials", 12, "--tuner", "random",
                     "--replay", log, "--json")
    assert result.exit_code == 0 and replayed.read_bytes() == measured
    assert {**json.loads(result.stdout), "log": ""} == {**report, "log": ""}

    compiled = command("compile", model, "--schedules", log, "-o", tmp_path / "two.so", "--json")
    assert compiled.exit_code == 0, compiled.output
    schedules = json.loads(compiled.stdout)["schedules"]
    assert schedules["tuned"] == schedules["total"] == len(report["tasks"])
    plain = command("compile", model, "--schedules", "none", "-o", tmp_path / "two.so")
    assert plain.exit_code == 0 and "tuned" not in plain.stdout


def test_schedules_of_a_log_are_compared_in_the_network(model, tmp_path):
    log, best = tmp_path / "tune.jsonl", tmp_path / "best.jsonl"
    result = command("tune", model, "--log", log, "--trials", 6, "--tuner", "random", "--json",
                     "--no-in-place")
    assert result.exit_code == 0 and json.loads(result.stdout)["in_place"] is None
    assert b"in_place" not in log.read_bytes()
    result = command("pick-best", log, "--model", model, "-o", best, "--json")
    assert result.exit_code == 0, result.output
    compared = json.loads(result.stdout)["in_place"]
    assert compared["network"].startswith("two ") and not compared["problem"]
    of_kernels = {record.task for record in read_log(best) if record.in_place}
    assert len(of_kernels) == (len(compared["rows"])
                               if any(row["compared"] for row in compared["rows"]) else 0)


def test_kills_at_random_moments_cost_nothing_but_what_was_being_measured(tmp_path):
    """A part of `make kills`."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from kill_tuning import check

    assert re.fullmatch(r"killed 3 times, in \d+ runs; \d+ records", check(tmp_path, 3, seed=1))


@pytest.mark.parametrize(("words", "said"), [
    ((), "how long to tune is not given; add --time 10m or --trials 1000"),
    (("--time", "ten minutes"), "--time 'ten minutes' is not a duration"),
    (("--trials", "5", "--replay", "none.jsonl"), "can't be read"),
    (("--trials", "5", "--target", "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76"),
     "can't be timed here"),
])
def test_what_it_refuses(model, tmp_path, words, said):
    result = command("tune", model, "--log", tmp_path / "tune.jsonl", *words)
    assert result.exit_code == 1 and said in result.stderr and result.stderr.startswith("error: ")


def test_durations():
    assert [parse_duration(text) for text in ("90s", "10m", "1.5h")] == [90, 600, 5400]
    for text in ("10", "0m", "m", "-1s", "1e3s"):
        with pytest.raises(OptionError):
            parse_duration(text)


def test_the_curve_falls_from_the_top_left_to_the_bottom_right():
    lines = plot([(1, 8.0), (5, 4.0), (9, 1.0)], "ms", "trials").splitlines()
    assert lines[0].startswith("    8.000 ms |*") and "1.000 ms |" in lines[9]
    assert lines[9].endswith("*") and lines[-1].endswith("9 trials")
    assert sum(line.count("*") for line in lines) == 64
