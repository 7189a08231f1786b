"""Tuners compared on recorded measurements: how soon each finds what is fast, without a clock.

    python benchmarks/cost_model.py record logs           measure what is missing
    python benchmarks/cost_model.py pack logs             the logs -> benchmarks/data, small
    python benchmarks/cost_model.py compare results.json  some minutes a task
    python benchmarks/cost_model.py show results.json --plot docs/tuners.svg

`record` measures every point of the tasks of `tuning_tasks.py`, in an order that is random but
always the same, so that what there is of a task is a fair sample of it; it may be ended at any time
and goes on where it was. `compare` runs each tuner on the recorded times with ten seeds, and shows
the mean of the best so far after so many trials, as a share of the speed of the best point there
is (`show` makes tables of it); and how well the order that the cost model gives points that it was
not shown agrees with the true one.
"""

from __future__ import annotations

import argparse
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
SHOWN = (8, 16, 32, 64, 128, 192)
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
        kept = {"task": name, "arguments": ARGUMENTS[name], "target": features,
                "microseconds": [None if t is None or t == float("inf") else round(1e6 * t, 2)
                                 for t in times]}
        DATA.mkdir(exist_ok=True)
        data = json.dumps(kept, separators=(",", ":")).encode()
        path = DATA / f"{name}.json.xz"
        path.write_bytes(lzma.compress(data, preset=9))
        print(f"{path}: {sum(t is not None for t in times)} of {len(times)} points")


def recorded(name: str) -> list[float]:
    """The seconds of each point of a task, by number; infinite where there are none."""
    kept = json.loads(lzma.decompress((DATA / f"{name}.json.xz").read_bytes()))
    if tuple(kept["arguments"]) != ARGUMENTS[name]:
        raise SystemExit(f"{name} was recorded with other arguments: record it again")
    return [float("inf") if t is None else 1e-6 * t for t in kept["microseconds"]]


# --- tuners on it -------------------------------------------------------------------------------


def best_so_far(candidates: Candidates, seconds: Sequence[float], tuner: str, seed: int,
                trials: int) -> list[float]:
    """After each trial the speed of the best point as a share of that of the best there is. As in
    a session, the default point is the first trial, and batches are of 16."""
    made = TUNERS[tuner](candidates, seed)
    default = candidates.task.space.default
    made.update([(default, seconds[default])])
    best, least = seconds[default], min(seconds)
    shares = [least / best]
    while len(shares) < trials:
        numbers = made.propose(16)
        if not numbers:
            break
        made.update([(number, seconds[number]) for number in numbers])
        for number in numbers:
            best = min(best, seconds[number])
            shares.append(least / best)
    return (shares + shares[-1:] * trials)[:trials]


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
        seconds = recorded(name)
        count = sum(t < float("inf") for t in seconds)
        if count < FEWEST:
            print(f"{name} has {count} measurements, fewer than {FEWEST}: it is left out")
            continue
        candidates = Candidates(tasks()[name])
        curves: dict[str, list[float]] = {}
        for tuner in TUNERS:
            runs = [best_so_far(candidates, seconds, tuner, seed, trials)
                    for seed in range(1 if tuner == "grid" else seeds)]
            curves[tuner] = [round(float(v), 4) for v in np.mean(runs, axis=0)]
            print(f"{name}, {tuner}: {_row(curves[tuner])}", flush=True)
        correlation = {
            str(n): round(float(np.mean([held_out(candidates, seconds, n, seed)
                                         for seed in range(seeds)])), 3) for n in SHOWN_TO_MODEL}
        results = json.loads(path.read_text()) if path.exists() else {}
        results[name] = {"points": count, "seeds": seeds, "best_us": 1e6 * min(seconds),
                         "curves": curves, "correlation": correlation}
        path.write_text(json.dumps(results))


# --- tables and a plot --------------------------------------------------------------------------


def _row(curve: Sequence[float]) -> str:
    return " | ".join(f"{100 * curve[n - 1]:.0f}" for n in SHOWN if n <= len(curve))


def show(results: Mapping[str, Any], plot: Path | None) -> None:
    """Prints results as tables in Markdown; the plot needs matplotlib."""
    heads = " | ".join(map(str, SHOWN))
    for name, found in results.items():
        print(f"\n{name}, {found['points']} points, the best {found['best_us']:.1f} us; percent of "
              f"its speed after so many trials, mean of {found['seeds']} seeds:\n\n"
              f"| tuner | {heads} |\n|---|{'---|' * len(SHOWN)}")
        for tuner, curve in found["curves"].items():
            print(f"| `{tuner}` | {_row(curve)} |")
    print(f"\n| task | {' | '.join(f'{n} known' for n in SHOWN_TO_MODEL)} |\n"
          f"|---|{'---|' * len(SHOWN_TO_MODEL)}")
    for name, found in results.items():
        print(f"| {name} | {' | '.join(f'{v:.2f}' for v in found['correlation'].values())} |")
    if plot is not None:
        _plot(results, plot)


def _plot(results: Mapping[str, Any], path: Path) -> None:
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(results), figsize=(4.2 * len(results), 3.2),
                                   sharey=True, squeeze=False, layout="constrained")
    for axis, (name, found) in zip(axes[0], results.items(), strict=True):
        for tuner, curve in found["curves"].items():
            axis.plot(range(1, len(curve) + 1), [100 * v for v in curve], label=tuner)
        axis.set_title(name)
        axis.set_xlabel("trials")
    axes[0][0].set_ylabel("best so far, % of the fastest")
    axes[0][-1].legend(fontsize=8)
    figure.savefig(path)


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
            show(json.loads(given.path.read_text()), given.plot)


if __name__ == "__main__":
    main()
