"""Words of a command line -> shapes, arrays, durations, schedules; what makes no sense is an
`OptionError`."""

from __future__ import annotations

import re
import tokenize
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import numpy as np

from minitvm import autotune
from minitvm.errors import InputError, OptionError


def model_inputs(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command that reads a model the options `--shape` and `--fix`."""
    shape = click.option(
        "--shape", "shapes", multiple=True, metavar="NAME=DIM,DIM,...",
        help="The shape of an input, such as --shape input=1,3,224,224; needed where the model "
             "leaves a size open. May be repeated.")
    fix = click.option(
        "--fix", "fixed", multiple=True, metavar="NAME=VALUE",
        help="Make an input a constant: a number for all of its elements, such as --fix sr=16000, "
             "or an array, such as --fix mask=mask.npy. May be repeated.")
    return shape(fix(command))


def parse_shapes(values: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """`["x=1,3,224,224"]` -> `{"x": (1, 3, 224, 224)}`; `"x="` is the shape of a scalar."""
    shapes: dict[str, tuple[int, ...]] = {}
    for value in values:
        name, equals, dims = value.rpartition("=")
        words = [word.strip() for word in dims.split(",")] if dims.strip() else []
        if not equals or not name or not all(re.fullmatch(r"[0-9]{1,18}", word) for word in words):
            raise OptionError(f"--shape {value!r} is not NAME=DIM,DIM,... with positive integers; "
                              "for example --shape input=1,3,224,224")
        if name in shapes:
            raise OptionError(f"--shape is given twice for the input {name!r}")
        shapes[name] = tuple(int(word) for word in words)
    return shapes


def parse_fixed(values: Sequence[str]) -> dict[str, int | float | bool | np.ndarray]:
    """`["sr=16000", "mask=mask.npy"]` -> `{"sr": 16000, "mask": array}`."""
    fixed: dict[str, int | float | bool | np.ndarray] = {}
    for value in values:
        name, _, word = value.rpartition("=")
        if not name or not word:
            raise OptionError(f"--fix {value!r} is not NAME=NUMBER or NAME=FILE.npy; for example "
                              "--fix sr=16000")
        if name in fixed:
            raise OptionError(f"--fix is given twice for the input {name!r}")
        number = _number(word)
        fixed[name] = _read_array(name, Path(word)) if number is None else number
    return fixed


def _number(word: str) -> int | float | bool | None:
    """The number or truth value that a word is; None for others."""
    if word in ("true", "false"):
        return word == "true"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return None


def parse_cpus(text: str) -> list[int]:
    """`"0,2"` -> `[0, 2]`."""
    words = text.split(",")
    if not all(re.fullmatch(r" *[0-9]{1,4} *", word) for word in words):
        raise OptionError(f"--cpus {text!r} is not a list of CPU numbers; for example --cpus 0,1")
    return [int(word) for word in words]


def read_inputs(values: Sequence[str], known: Sequence[str]) -> dict[str, np.ndarray]:
    """`["x=x.npy"]` -> `{"x": array}`. `known` names decide where a name ends that holds `=`."""
    arrays: dict[str, np.ndarray] = {}
    for value in values:
        names = [name for name in known if value.startswith(f"{name}=")]
        name = max(names, key=len) if names else value.partition("=")[0]
        if "=" not in value or not name:
            raise OptionError(f"--input {value!r} is not NAME=FILE.npy; "
                              "for example --input input=picture.npy")
        if name in arrays:
            raise OptionError(f"--input is given twice for the input {name!r}")
        arrays[name] = _read_array(name, Path(value[len(name) + 1:]))
    return arrays


def _read_array(name: str, file: Path) -> np.ndarray:
    try:
        with file.open("rb") as stream:
            if stream.read(6) != b"\x93NUMPY":
                raise InputError(f"the input {name!r} can't be read: {str(file)!r} is not a .npy "
                                 "file; write one by numpy.save")
            stream.seek(0)
            return np.lib.format.read_array(stream, allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError, tokenize.TokenError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise InputError(f"the input {name!r} can't be read from {str(file)!r}: {reason}") from None


def parse_words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def parse_threads(text: str) -> list[int]:
    """`"1,2"` -> `[1, 2]`."""
    words = parse_words(text)
    if not words or not all(re.fullmatch(r"[1-9][0-9]{0,3}", word) for word in words):
        raise OptionError(f"--threads {text!r} is not a list of positive integers; "
                          "for example --threads 1,2")
    return [int(word) for word in words]


def parse_duration(text: str) -> float:
    """`"10m"` -> 600.0 seconds; also s and h."""
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)(s|m|h)", text.strip())
    if match is None or float(match[1]) <= 0:
        raise OptionError(f"--time {text!r} is not a duration; for example --time 90s, 10m or 2h")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


def read_schedules(word: str, target: str | None = None) -> autotune.ApplyHistoryBest | None:
    """The schedules of a tuning log; for `shipped` those that come with minitvm for the target, for
    `none` None."""
    if word == "none":
        return None
    if word != "shipped":
        return autotune.apply_history_best(word, target)
    known = autotune.shipped(target)
    if not known.best:
        raise OptionError(f"no schedules come with minitvm for '{known.target}'; name a tuning "
                          "log, such as --schedules tune.jsonl, or --schedules none")
    return known
