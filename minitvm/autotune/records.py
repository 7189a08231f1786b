"""What tuning found, one JSON line a measurement, in a file that survives being killed at any byte.

    with Log.open(Path("tune.jsonl")) as log:
        log.records            what was measured before
        log.append(record)     one write of one line

A line says all that is needed to use it elsewhere: the structural hash of what was scheduled and
its workload in words, the features of the target, the steps of the schedule, the times or the kind
of failure. It holds no date and no name of a machine: the same measurements give the same bytes.
A line without its end is one that a kill cut short; it is dropped when the log is opened to go on.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import lzma
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from minitvm.errors import ScheduleError, TuningError
from minitvm.target import Target
from minitvm.te.steps import Step, steps_from_json, steps_to_json

SCHEMA = 1
"""The version of the format; a log of another one is refused."""
PACKED = ".xz"
"""How the name of a log that is compressed ends: to be read, not to be tuned into."""
ERRORS = ("build", "build timeout", "run", "crash", "timeout", "memory", "bounds", "wrong")
"""How a candidate can fail: not compiled, or not in time; refused to run, crashed, not ended, out
of memory, written beyond its outputs, other values."""
IN_PLACE = "network"
"""The `cache` of records that are `in_place`: as the network leaves it."""
NETWORK = "network "
"""How the tasks of records begin that are of a whole network."""
CLASS_FEATURES = ("isa", "vector_bits", "vector_registers", "fma")
"""A schedule fits a target that has these as the one it was tuned for."""


def target_features(target: Target) -> dict[str, Any]:
    """What of a target decides which schedule is good."""
    return {"isa": target.isa, "vector_bits": target.vector_bits,
            "vector_registers": target.vector_registers, "fma": target.fma, "cpu": target.cpu,
            "l1_bytes": target.l1_bytes, "l2_bytes": target.l2_bytes}


@dataclass(frozen=True, slots=True)
class Record:
    """One measurement. `seconds` are the means of a call, one for each repetition; empty with an
    `error`. `config` are the values of knobs. A `contest` other than 0 numbers a comparison of the
    best candidates with the default, in turns; 0 is a trial; below 0 are candidates near the best
    that were measured again in between, in turns. `in_place` names the network in whose runs a
    kernel was timed, where that was not by itself."""

    task: str
    workload: Mapping[str, Any]
    target: Mapping[str, Any]
    config: Mapping[str, Any]
    steps: tuple[Step, ...]
    seconds: tuple[float, ...] = ()
    error: str = ""
    message: str = ""
    contest: int = 0
    threads: int = 1
    cache: str = "warm"
    in_place: str = ""
    key: str = field(init=False, repr=False, compare=False)
    """Names the candidate: equal for equal schedules of a task, measured for the same contest."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", measurement_key(
            self.task, self.target, self.steps, self.contest, self.threads, self.cache,
            self.in_place))

    @property
    def machine(self) -> str:
        """The features of the target, as text."""
        return json.dumps(self.target, sort_keys=True)

    @property
    def conditions(self) -> tuple[str, int, str]:
        """The machine, and how it was timed there: times are only compared where these are equal.
        Those of whole networks are seen together, whatever the threads (`contest`)."""
        return self.machine, 0 if self.in_place else self.threads, self.cache

    @property
    def is_network(self) -> bool:
        """Whether this is the time of a whole network, not of a kernel."""
        return self.task.startswith(NETWORK)

    @property
    def minimum(self) -> float:
        """The least time in seconds; infinite where it failed."""
        return min(self.seconds, default=float("inf"))

    @property
    def median(self) -> float:
        """The median time in seconds; infinite where it failed."""
        return float(np.median(self.seconds)) if self.seconds else float("inf")

    @property
    def noise(self) -> float:
        """How far times spread: the median's excess over the minimum, as a share of it."""
        return self.median / self.minimum - 1 if self.seconds else 0.0

    def to_line(self) -> str:
        """The record as a line of JSON, with its end."""
        data = {"schema": SCHEMA, "task": self.task, "workload": self.workload,
                "target": self.target, "config": self.config,
                "steps": steps_to_json(self.steps), "seconds": self.seconds, "error": self.error,
                "message": self.message, "contest": self.contest, "threads": self.threads,
                "cache": self.cache}
        if self.in_place:
            data["in_place"] = self.in_place
        return json.dumps(data, separators=(",", ":")) + "\n"


def measurement_key(task: str, target: Mapping[str, Any], steps: Sequence[Step], contest: int = 0,
                    threads: int = 1, cache: str = "warm", in_place: str = "") -> str:
    """What a measurement is found by in a log; `target` are its features."""
    place = [in_place] if in_place else []
    return json.dumps([task, target, steps_to_json(steps), contest, threads, cache, *place],
                      sort_keys=True)


def network_task(schedules: Mapping[str, Sequence[Step]]) -> str:
    """The task of records of a whole network, its kernels with these schedules by their structural
    hashes, and default ones."""
    text = json.dumps({key: steps_to_json(steps) for key, steps in schedules.items()},
                      sort_keys=True)
    return f"{NETWORK}{hashlib.sha256(text.encode()).hexdigest()[:24]}"


def parse_line(line: str, place: str) -> Record:
    """The record in a line; `place` names it in the `TuningError` for what is none."""
    try:
        data = json.loads(line)
    except ValueError as error:
        raise TuningError(f"{place} is not JSON: {error}; a tuning log has a record on each line"
                          ) from None
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != SCHEMA:
        raise TuningError(f"{place} has the schema {schema!r}; this minitvm reads {SCHEMA}: "
                          "tune again into another file")
    try:
        fields = {name: kind(data[name]) for name, kind in _FIELDS.items()
                  if name in data or name not in _OPTIONAL}
        return Record(**fields)
    except (KeyError, TypeError, ValueError, ScheduleError) as error:
        raise TuningError(f"{place} is no record of schema {SCHEMA}: "
                          f"{type(error).__name__}: {error}") from None


def frozen(value: Any) -> Any:
    """The values of a config as recipes use them: tuples for JSON's lists."""
    return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is no JSON object")
    return value


def _seconds(values: Any) -> tuple[float, ...]:
    seconds = tuple(float(value) for value in values)
    if not all(0 <= value < float("inf") for value in seconds):
        raise ValueError(f"{values!r} are no times")
    return seconds


_FIELDS: dict[str, Any] = {
    "task": str, "workload": _mapping, "target": _mapping,
    "config": lambda value: {name: frozen(item) for name, item in _mapping(value).items()},
    "steps": steps_from_json, "seconds": _seconds, "error": str, "message": str, "contest": int,
    "threads": int, "cache": str, "in_place": str,
}
_OPTIONAL = ("in_place",)
"""What older logs do not have."""


def parse_log(data: bytes, name: str) -> tuple[list[Record], int]:
    """The records of a log, and how many of its bytes they take: a line that was cut short at the
    end is left out."""
    whole = data.rfind(b"\n") + 1
    lines = data[:whole].decode(errors="replace").splitlines()
    records = [parse_line(line, f"line {number} of {name}")
               for number, line in enumerate(lines, 1) if line.strip()]
    return records, whole


def read_log(path: Path) -> list[Record]:
    """The records of a log, which another process may be writing; one whose name ends in `.xz` is
    compressed. Raises `TuningError`."""
    try:
        data = path.read_bytes()
        return parse_log(lzma.decompress(data) if path.suffix == PACKED else data, str(path))[0]
    except (OSError, lzma.LZMAError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise TuningError(f"the tuning log {str(path)!r} can't be read: {reason}") from None


def write_records(path: Path, records: Iterable[Record]) -> None:
    """Writes a log that is complete, compressed if its name ends in `.xz`; it appears whole or not
    at all. Raises `TuningError`."""
    data = "".join(record.to_line() for record in records).encode()
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(lzma.compress(data) if path.suffix == PACKED else data)
        os.replace(beside, path)
    except OSError as error:
        raise TuningError(f"the records can't be written to {str(path)!r}: "
                          f"{error.strerror or error}") from None
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()


class Log:
    """A log that is open to be written on. One process at a time may have it."""

    def __init__(self, path: Path, handle: int, records: Sequence[Record]) -> None:
        self.path, self._handle = path, handle
        self.records = list(records)
        self._found = {record.key: record for record in records}

    @staticmethod
    def open(path: Path) -> Log:
        """Opens a log, made where there is none, to go on with it. Raises `TuningError`."""
        if path.suffix == PACKED:
            raise TuningError(f"the tuning log {str(path)!r} is compressed and can't grow; "
                              "name one without .xz")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise TuningError(f"the tuning log {str(path)!r} can't be written: "
                              f"{error.strerror or error}") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            records, whole = parse_log(path.read_bytes(), str(path))
            os.ftruncate(handle, whole)
        except BlockingIOError:
            os.close(handle)
            raise TuningError(f"another process is tuning into {str(path)!r}; "
                              "name another log, or wait for it") from None
        except BaseException:
            os.close(handle)
            raise
        return Log(path, handle, records)

    def find(self, key: str) -> Record | None:
        """The record of a measurement that was made before."""
        return self._found.get(key)

    def append(self, record: Record) -> None:
        """Writes a record, by one system call; raises `TuningError` where the disk is full."""
        line = record.to_line().encode()
        try:
            written = os.write(self._handle, line)
            if written < len(line):
                os.ftruncate(self._handle, os.fstat(self._handle).st_size - written)
                raise OSError(0, "the disk is full")
        except OSError as error:
            raise TuningError(f"the tuning log {str(self.path)!r} can't be written: "
                              f"{error.strerror or error}") from None
        self.records.append(record)
        self._found[record.key] = record

    def close(self) -> None:
        """Lets others write."""
        os.close(self._handle)

    def __enter__(self) -> Log:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()
