"""Tuners compared on recorded measurements: how soon each finds what is fast, without a clock.

    python benchmarks/cost_model.py record logs           measure what is missing
    python benchmarks/cost_model.py pack logs             the logs -> benchmarks/data, small
    python benchmarks/cost_model.py compare results.json  about a minute a task
    python benchmarks/cost_model.py show results.json --into docs/tuning.md --plot docs/tuners.svg

`record` measures every point of the tasks of `tuning_tasks.py`, in an order that is random but
always the same, so that what there is of a task is a fair sample of it; it may be ended at any time
and goes on where it was. `compare` runs each tuner on the recorded times with ten seeds: how many
trials it needs until it comes within 5% of the speed of the best point there is, and how good the
best is after so many trials, as a share of that speed; and how well the order that the cost model
gives points that it was not shown agrees with the true one. `show` makes tables of it, into the
place that a document has for them, and a plot.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tuning_tasks import ARGUMENTS, tasks

from minitvm import autotune
from minitvm.autotune.candidates import Candidates
from minitvm.autotune.model import RankModel, rank_correlation
from minitvm.autotune.records import measurement_key, target_features
from minitvm.autotune.task import Task
from minitvm.autotune.tuners import TUNERS

DATA = Path(__file__).parent / "data"
BATCH = 32
FEWEST = 1500
"""A task with fewer measurements is not compared."""
NEAR = 0.95
"""The share of the speed of the best point at which a tuner has found what there is to find."""
SHOWN = (16, 32, 64, 128)
"""The numbers of trials in tables."""
SHOWN_TO_MODEL = (64, 256, 1024)
TIMING = autotune.Timing(repeat=10, min_repeat_ms=0.5)


def order(task: Task) -> list[int]:
    """All points of a task, as they are measured."""
    return [int(n) for n in np.random.default_rng(0).permutation(len(task.space))]


def record(folder: Path, names: Sequence[str], builders: int) -> None:
    """Measures what the logs in a folder lack."""
    options = autotune.MeasureOptions(builders=builders, timing=TIMING)
    with autotune.LocalMeasurer(options) as measurer:
        for name, task in tasks().items():
            if name in names:
                with autotune.Log.open(folder / f"{name}.jsonl") as log:
                    _record_task(task, measurer, log)


def _record_task(task: Task, measurer: autotune.LocalMeasurer, log: autotune.Log) -> None:
    features = target_features(task.target)
    numbers = order(task)
    best = min((r.minimum for r in log.records), default=float("inf"))
    for start in range(0, len(numbers), BATCH):
        wanted = [c for n in numbers[start:start + BATCH] if (c := task.candidate(n)) and log.find(
            measurement_key(task.key, features, c.steps)) is None]
        outcomes = measurer.measure(task, wanted, best) if wanted else []
        for candidate, outcome in zip(wanted, outcomes, strict=True):
            if outcome is not None:
                made = autotune.Record(
                    task.key, task.workload, features, candidate.config, candidate.steps,
                    outcome.seconds, outcome.error, outcome.message)
                log.append(made)
                best = min(best, made.minimum)
        print(f"{task.name}: {min(start + BATCH, len(numbers))} of {len(numbers)} points, the best "
              f"{1e6 * best:.1f} us", flush=True)


# --- what is kept -------------------------------------------------------------------------------


def pack(folder: Path, names: Sequence[str]) -> None:
    """Keeps of logs the least time of each point, in microseconds: by number, null where it failed
    or was not measured."""
    for name, task in tasks().items():
        if name not in names:
            continue
        found = {r.key: r.minimum for r in autotune.read_log(folder / f"{name}.jsonl")}
        features = target_features(task.target)
        times = [found.get(measurement_key(task.key, features, task.candidate(n).steps))
                 for n in range(len(task.space))]
        candidates = Candidates(task)
        kept = {"task": name, "arguments": ARGUMENTS[name], "target": features,
                "schedules": schedules(candidates),
                "microseconds": [None if t is None or t == float("inf") else round(1e6 * t, 2)
                                 for t in times]}
        DATA.mkdir(exist_ok=True)
        data = json.dumps(kept, separators=(",", ":")).encode()
        path = DATA / f"{name}.json.xz"
        path.write_bytes(lzma.compress(data, preset=9))
        print(f"{path}: {sum(t is not None for t in times)} of {len(times)} points")


def schedules(candidates: Candidates) -> str:
    """A digest of the schedules of all points of a task, by number."""
    digest = hashlib.sha256()
    for number in range(len(candidates.task.space)):
        made = candidates.get(number)
        digest.update(repr(made and made.steps).encode())
    return digest.hexdigest()


def recorded(name: str, candidates: Candidates) -> list[float]:
    """The seconds of each point of a task, by number; infinite where there are none."""
    kept = json.loads(lzma.decompress((DATA / f"{name}.json.xz").read_bytes()))
    if kept["schedules"] != schedules(candidates):
        raise SystemExit(f"{name} was recorded with other schedules: record it again")
    return [float("inf") if t is None else 1e-6 * t for t in kept["microseconds"]]


# --- tuners on it -------------------------------------------------------------------------------


def best_so_far(candidates: Candidates, seconds: Sequence[float], tuner: str, seed: int,
                trials: int) -> list[float]:
    """After each trial the speed of the best point as a share of that of the best there is: for so
    many trials, and on until the best comes near. As when a task is tuned, the default point is the
    first trial, and batches are of 16."""
    made = TUNERS[tuner](candidates, seed)
    default = candidates.task.space.default
    made.update([(default, seconds[default])])
    best, least = seconds[default], min(seconds)
    shares = [least / best]
    while len(shares) < trials or shares[-1] < NEAR:
        numbers = made.propose(16)
        if not numbers:
            break
        made.update([(number, seconds[number]) for number in numbers])
        for number in numbers:
            best = min(best, seconds[number])
            shares.append(least / best)
    return shares + shares[-1:] * (trials - len(shares))


def needed(shares: Sequence[float]) -> int:
    """How many trials it took to come near the best; all there were if it never did."""
    return next((place for place, share in enumerate(shares, 1) if share >= NEAR), len(shares))


def held_out(candidates: Candidates, seconds: Sequence[float], count: int, seed: int) -> float:
    """The rank correlation of the model's order of points that it did not learn with the true
    one, when it learnt `count` others."""
    working = [n for n, t in enumerate(seconds) if t < float("inf")]
    chosen = [working[i] for i in np.random.default_rng(seed).permutation(len(working))]
    rows = {n: row for n in chosen if (row := candidates.features(n)) is not None}
    model = RankModel(seed)
    model.fit([rows[n] for n in chosen[:count]], [seconds[n] for n in chosen[:count]])
    rest = chosen[count:]
    return rank_correlation(list(map(float, model.predict([rows[n] for n in rest]))),
                            [-seconds[n] for n in rest])


def compare(path: Path, names: Sequence[str], seeds: int, trials: int) -> None:
    """Adds to the results in a file those of some tasks."""
    for name in names:
        candidates = Candidates(tasks()[name])
        seconds = recorded(name, candidates)
        count = sum(t < float("inf") for t in seconds)
        if count < FEWEST:
            print(f"{name} has {count} measurements, fewer than {FEWEST}: it is left out")
            continue
        curves: dict[str, list[float]] = {}
        found: dict[str, list[int]] = {}
        for tuner in TUNERS:
            runs = [best_so_far(candidates, seconds, tuner, seed, trials)
                    for seed in range(1 if tuner == "grid" else seeds)]
            found[tuner] = [needed(run) for run in runs]
            cut = [run[:trials] for run in runs]
            curves[tuner] = [round(float(v), 4) for v in np.mean(cut, axis=0)]
            print(f"{name}, {tuner}: {np.mean(found[tuner]):.0f} trials; {_row(curves[tuner])}",
                  flush=True)
        correlation = {
            str(n): round(float(np.mean([held_out(candidates, seconds, n, seed)
                                         for seed in range(seeds)])), 3) for n in SHOWN_TO_MODEL}
        results = json.loads(path.read_text()) if path.exists() else {}
        near = sum(min(seconds) / t >= NEAR for t in seconds)
        results[name] = {"points": count, "near": near, "seeds": seeds, "curves": curves,
                         "needed": found, "best_us": 1e6 * min(seconds),
                         "correlation": correlation}
        path.write_text(json.dumps(results))


# --- tables and a plot --------------------------------------------------------------------------


def _row(curve: Sequence[float]) -> str:
    return " | ".join(f"{100 * curve[n - 1]:.0f}" for n in SHOWN if n <= len(curve))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def tables(results: Mapping[str, Any]) -> str:
    """Results in Markdown."""
    means = {tuner: [float(np.mean(found["needed"][tuner])) for found in results.values()]
             for tuner in TUNERS}
    parts = [
        "Trials until within 5% of the speed of the best point, mean of the seeds:\n\n",
        _table(["tuner", *(f"{name} ({found['near']} of {found['points']})"
                           for name, found in results.items()), "mean"],
               [[f"`{tuner}`", *(f"{v:.0f}" for v in row), f"{np.mean(row):.0f}"]
                for tuner, row in means.items()]),
        f"\nPercent of the speed of the best point after {', '.join(map(str, SHOWN))} trials:\n\n",
        _table(["tuner", *results],
               [[f"`{tuner}`", *(_row(found["curves"][tuner]).replace(" | ", " ")
                                 for found in results.values())] for tuner in TUNERS]),
        "\nRank correlation of the model's order of points that it did not learn with the true "
        "one, by how many it learnt:\n\n",
        _table(["learnt", *results],
               [[str(n), *(f"{found['correlation'][str(n)]:.2f}" for found in results.values())]
                for n in SHOWN_TO_MODEL])]
    return "".join(parts)


MARKS = ("<!-- the tables of benchmarks/cost_model.py -->\n", "<!-- their end -->\n")


def write_into(path: Path, text: str) -> None:
    """Replaces the tables of a document, between `MARKS`."""
    before, _, rest = path.read_text().partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not end:
        raise SystemExit(f"{path} has no place for the tables: it needs {MARKS[0]!r}, {MARKS[1]!r}")
    path.write_text(before + MARKS[0] + text + end + after)


def plot_curves(results: Mapping[str, Any], path: Path) -> None:
    """The best so far by trials, a panel for each task; needs matplotlib."""
    import matplotlib
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "tuners"})
    from matplotlib import pyplot

    rows = -(-len(results) // 3)
    figure, axes = pyplot.subplots(rows, 3, figsize=(10, 2.8 * rows), sharex=True, sharey=True,
                                   squeeze=False, layout="constrained")
    for axis, (name, found) in zip(axes.flat, results.items()):
        for tuner, curve in found["curves"].items():
            axis.plot(range(1, len(curve) + 1), [round(100 * v, 1) for v in curve], label=tuner)
        axis.set_title(name, fontsize=10)
    figure.supxlabel("trials", fontsize=10)
    figure.supylabel("best so far, % of the speed of the fastest", fontsize=10)
    axes[0][0].legend(fontsize=8)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Tuners on recorded measurements.")
    parser.add_argument("do", choices=("record", "pack", "compare", "show"))
    parser.add_argument("path", type=Path, help="the folder of logs, or the file of results")
    parser.add_argument("tasks", nargs="*", default=[])
    parser.add_argument("--builders", type=int, default=2, help="processes that compile")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--trials", type=int, default=SHOWN[-1])
    parser.add_argument("--plot", type=Path, help="where `show` plots the curves")
    parser.add_argument("--into", type=Path, help="the document whose tables `show` replaces")
    given = parser.parse_args()
    names = given.tasks or list(ARGUMENTS)
    match given.do:
        case "record":
            record(given.path, names, given.builders)
        case "pack":
            pack(given.path, names)
        case "compare":
            compare(given.path, names, given.seeds, given.trials)
        case _:
            results = json.loads(given.path.read_text())
            results = {name: results[name] for name in names if name in results}
            print(tables(results))
            if given.into:
                write_into(given.into, tables(results))
            if given.plot:
                plot_curves(results, given.plot)


if __name__ == "__main__":
    main()
