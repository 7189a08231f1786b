"""The records of a class come with minitvm, apply on each machine of the class, and no other."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner
from tiny_models import two_convolutions

from minitvm import autotune, te
from minitvm.autotune import shipped_records
from minitvm.autotune.records import Record, read_log, target_features, write_records
from minitvm.autotune.shipped_records import CLASSES, DATA, machine_class
from minitvm.cli import main
from minitvm.errors import LoweringError, MinitvmError, ScheduleError
from minitvm.relay.onnx import from_onnx
from minitvm.target import Target
from minitvm.te.steps import Split
from minitvm.testing import zoo

KERNELS = 3
"""Of the model that is tuned here: two convolutions, and a change of layout."""
ROOT = Path(__file__).parents[2]
X86 = "llvm -mtriple=x86_64-linux-gnu -mcpu="
OF_CLASS = {
    "x86-64-v3": ["x86-64-v3", "haswell", "skylake", "znver3 -l1-bytes=32768 -l2-bytes=524288",
                  "alderlake -l1-bytes=49152 -l2-bytes=1310720 -num-cores=8",
                  "x86-64 -mattr=+avx2,+fma"],
    "x86-64-v4": ["x86-64-v4", "skylake-avx512 -l2-bytes=1048576", "icelake-server", "znver4",
                  "sapphirerapids -num-cores=56 -l1-bytes=49152 -l2-bytes=2097152"],
    None: ["x86-64", "x86-64-v2", "sandybridge", "bdver2", "haswell -mattr=-fma",
           "x86-64-v3 -mattr=+avx512f"],
}
PAIRS = [(name, text) for name, texts in OF_CLASS.items() for text in texts]


@pytest.mark.parametrize(("name", "text"), PAIRS)
def test_the_class_of_a_machine(name, text):
    assert machine_class(Target(X86 + text)) == name


def test_other_machines_have_no_class():
    assert machine_class(Target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76")) is None
    assert set(OF_CLASS) == {*CLASSES, None}


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "two.onnx"
    onnx.save(two_convolutions(), path)
    return path


@pytest.fixture
def data(model, tmp_path, monkeypatch):
    """A folder of records of each class: of every kernel another schedule is twice as fast as the
    default one, which is not true."""
    folder = tmp_path / "data"
    for name in CLASSES:
        rows = []
        for task in autotune.extract_tasks(model, target=f"{X86}{name} -l2-bytes=1048576"):
            other = next(candidate for number in range(len(task.space))
                         if (candidate := task.candidate(number)).steps != task.default.steps)
            rows += [Record(task.key, task.workload, target_features(task.target), c.config,
                            c.steps, (seconds,) * 4, contest=1)
                     for c, seconds in ((task.default, 2e-3), (other, 1e-3))]
        assert len(rows) == 2 * KERNELS
        write_records(folder / f"{name}.jsonl{'.xz' if name.endswith('3') else ''}", rows)
    monkeypatch.setattr(shipped_records, "DATA", folder)
    return folder


@pytest.mark.parametrize(("name", "text"), PAIRS)
def test_records_of_a_class_apply_on_its_machines_alone(model, data, name, text):
    """Whatever the CPU's name, its caches and cores are, the kernels are the same ones."""
    target = Target(X86 + text)
    history = autotune.shipped(target)
    keys = [task.key for task in autotune.extract_tasks(model, target=target)]
    found = [key for key in keys if history(key) is not None]
    assert keys and found == ([] if name is None else keys)
    made = {record.target["vector_bits"] for record in history.records}
    assert made == ({CLASSES[name][0]} if name else set())


def test_no_file_is_no_error(tmp_path):
    assert autotune.shipped("llvm -mcpu=x86-64-v3", tmp_path / "none").best == {}


def command(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.mark.parametrize("cpu", ["haswell", "x86-64-v4"])
def test_compiling_uses_them_unless_told_otherwise(model, data, tmp_path, cpu):
    words = ["compile", model, "-o", tmp_path / "two.so", "--target", X86 + cpu]
    said = command(*words)
    assert said.exit_code == 0, said.output
    assert "3/3 kernels tuned, by the schedules that come with minitvm" in said.stdout
    report = json.loads(command(*words, "--json").stdout)
    assert report["schedules"] == {"source": "shipped", "tuned": 3, "total": 3, "misses": []}
    tuned = (tmp_path / "two.so").read_bytes()
    plain = command(*words, "--schedules", "none")
    assert plain.exit_code == 0 and "tuned" not in plain.stdout
    assert (tmp_path / "two.so").read_bytes() != tuned


def test_nothing_is_said_where_none_applies(model, data, tmp_path):
    words = ["compile", model, "-o", tmp_path / "two.so", "--target", X86 + "sandybridge"]
    said = command(*words)
    assert said.exit_code == 0 and "tuned" not in said.stdout
    assert "schedules" not in json.loads(command(*words, "--json").stdout)
    log = data / "x86-64-v4.jsonl"
    asked = command(*words, "--schedules", log)
    assert "0/3 kernels tuned" in asked.stdout and "not tuned: " in asked.stdout
    assert "src_layout='NCHW16c'" in asked.stdout and "this kernel has" in asked.stdout


def test_picking_the_best_by_the_command_line(model, data, tmp_path):
    log, best = data / "x86-64-v4.jsonl", tmp_path / "best.jsonl"
    rows = read_log(log)
    more = [replace(row, contest=0, seconds=(5.0,)) for row in rows]
    write_records(tmp_path / "more.jsonl", [*more, *rows])
    said = command("pick-best", tmp_path / "more.jsonl", log, "-o", best)
    assert said.exit_code == 0, said.output
    assert f"{len(rows)} of {3 * len(rows)} records, of 3 kernels" in said.stdout
    assert read_log(best) == rows
    missing = command("pick-best", tmp_path / "none.jsonl", "-o", best)
    assert missing.exit_code == 1 and "can't be read" in missing.stderr


# --- the files in the package -------------------------------------------------------------------


@pytest.fixture(scope="module")
def script():
    """The module benchmarks/record_shipped.py."""
    folder = ROOT / "benchmarks"
    sys.path.insert(0, str(folder))
    spec = importlib.util.spec_from_file_location("record_shipped", folder / "record_shipped.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["record_shipped"] = module
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(folder))


def misfits(path, networks, target):
    """What of a file is of no kernel of the networks, or does not fit it."""
    history = autotune.apply_history_best(path, target)
    tasks = {task.key: task for build in networks
             for task in autotune.extract_tasks(from_onnx(build(), {}), target=target)}
    found = sorted(set(history.best) - set(tasks))
    for key in sorted(set(history.best) & set(tasks)):
        if (steps := history(key)) is not None:
            schedule, params = tasks[key].instantiate()
            try:
                te.lower(te.Schedule.replay(schedule.outputs, steps), list(params))
            except (ScheduleError, LoweringError) as error:
                found.append(f"{tasks[key].name}: {error}")
    return found


def test_files_that_come_fit_the_kernels_of_networks(script):
    """Where a recipe or the fusion changed, records miss or do not fit: record them again."""
    networks = {**script.NETWORKS, "mobilenet_v2": lambda: zoo.mobilenet_v2(weights=0)}
    for path in DATA.glob("*.jsonl*"):
        target = script.class_target(path.name.split(".")[0])
        assert path.name.startswith(f"{machine_class(target)}.jsonl")
        assert misfits(path, map(networks.get, script.USUAL_NETWORKS), target) == [], path.name


def test_a_file_that_does_not_fit_would_be_noticed(script, data, tmp_path):
    target = script.class_target("x86-64-v4")
    assert misfits(data / "x86-64-v4.jsonl", [two_convolutions], target) == []
    rows = read_log(data / "x86-64-v4.jsonl")
    stale = replace(rows[1], steps=(Split("gone", "i", 4),))
    write_records(tmp_path / "stale.jsonl", [rows[0], stale, *rows[2:],
                                             replace(rows[0], task="unknown")])
    unknown, broken = misfits(tmp_path / "stale.jsonl", [two_convolutions], target)
    assert unknown == "unknown" and "gone" in broken


@pytest.mark.network
def test_a_wheel_has_the_files(tmp_path):
    """Built as it would be published, of a tree with a file of each kind."""
    tree = tmp_path / "tree"
    shutil.copytree(ROOT / "minitvm", tree / "minitvm",
                    ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, tree / name)
    folder = tree / "minitvm" / "autotune" / "data"
    for name in ("x86-64-v3.jsonl", "x86-64-v4.jsonl.xz"):
        write_records(folder / name, [])
    done = subprocess.run([sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir",
                           str(tmp_path), str(tree)], capture_output=True, text=True, check=False)
    if done.returncode and "hatchling" in done.stderr + done.stdout:
        pytest.skip("hatchling can't be fetched")
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"minitvm/autotune/data/x86-64-v3.jsonl", "minitvm/autotune/data/x86-64-v4.jsonl.xz",
            "minitvm/cli.py"} <= names


def test_recording_them(script, model, tmp_path, monkeypatch, capsys):
    """All of it with a few trials more than the default schedules, and again from the logs."""
    pytest.importorskip("xgboost")
    monkeypatch.setattr(script, "NETWORKS", {"two": two_convolutions})
    monkeypatch.setattr(script, "USUAL_NETWORKS", ("two",))
    monkeypatch.setattr(script, "ROUNDS", 2)
    names = [name for name in CLASSES if script.class_target(name).is_host()]
    if not names:
        pytest.skip("this machine is of no class")
    words = ["two", "--classes", ",".join(names), "--work", str(tmp_path / "work"), "--output",
             str(tmp_path / "data")]
    assert script.main([*words, "--trials", "6", "--tuner", "random"]) == 0
    assert "times as fast as without" in capsys.readouterr().out
    for name in names:
        log = read_log(tmp_path / "work" / f"{name}.jsonl")
        kept = read_log(tmp_path / "data" / f"{name}.jsonl")
        compared = {r.task for r in log if r.in_place and not r.is_network}
        assert {r.task for r in kept} == compared and len(kept) < len(log)
        assert all(r.in_place for r in kept)
        history = autotune.shipped(X86 + name, tmp_path / "data")
        assert len(history.best) == (KERNELS if compared else 0)
    (tmp_path / "data" / f"{names[0]}.jsonl").unlink()
    assert script.main([*words, "--trials", "6", "--tuner", "random"]) == 0
    assert (tmp_path / "data" / f"{names[0]}.jsonl").exists()
    (tmp_path / "work" / f"{names[0]}.two.seconds").write_text("99.5")
    assert script.main([*words, "--classes", names[0], "--time", "99s"]) == 0
    assert "its time is used up" in capsys.readouterr().out


def test_a_network_that_fails_stops_no_other(script, tmp_path, monkeypatch, capsys):
    def broken():
        raise MinitvmError("no such network")

    monkeypatch.setattr(script, "NETWORKS", {"broken": broken, "two": two_convolutions})
    monkeypatch.setattr(script, "USUAL_NETWORKS", ())
    monkeypatch.setattr(script, "ROUNDS", 1)
    name = next((n for n in CLASSES if script.class_target(n).is_host()), None)
    if name is None:
        pytest.skip("this machine is of no class")
    assert script.main(["broken", "two", "--classes", name, "--trials", "2", "--tuner", "random",
                        "--work", str(tmp_path / "work"), "--output", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert f"{name} broken: failed: no such network" in said and f"{name} two: 2 trials" in said
