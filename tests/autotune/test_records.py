"""Records read back as they were written, and a log survives being cut at any byte."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitvm.autotune.records import Log, Record, parse_line, parse_log, read_log, target_features
from minitvm.errors import TuningError
from minitvm.target import Target
from minitvm.te.steps import Annotate, Reorder, Split

TARGET = target_features(Target("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3"))


def record(number=0, **changes):
    steps = (Split("c", "i", number + 1), Reorder("c", ("i.inner", "i.outer")),
             Annotate("c", "i.inner", "vectorized"))
    fields = {"task": "ab", "workload": {"name": "c"}, "target": TARGET,
              "config": {"tile": (number, 2), "on": True}, "steps": steps,
              "seconds": (1e-6 * (number + 1), 2e-6)}
    return Record(**{**fields, **changes})


times = st.floats(0, 10, allow_nan=False).map(abs)
records = st.builds(
    record, st.integers(0, 50), seconds=st.lists(times).map(tuple), error=st.sampled_from(
        ["", "crash", "wrong"]), message=st.text(), contest=st.integers(0, 3),
    config=st.dictionaries(st.text(), st.integers() | st.text() | st.booleans()))


@given(records)
def test_a_record_reads_as_it_was_written(made):
    line = made.to_line()
    assert line.endswith("\n") and "\n" not in line[:-1]
    again = parse_line(line, "here")
    assert again == made and again.key == made.key and again.to_line() == line


def test_the_key_tells_candidates_and_conditions_apart():
    keys = {record().key, record(1).key, record(contest=1).key, record(threads=2).key,
            record(cache="cold").key, record(task="cd").key, record(target={"isa": "x"}).key}
    assert len(keys) == 7
    assert record(seconds=()).key == record(config={}).key == record().key


def test_a_log_cut_at_any_byte_goes_on_and_loses_one_record_at_most(tmp_path):
    path = tmp_path / "tune.jsonl"
    with Log.open(path) as log:
        for number in range(3):
            log.append(record(number))
    whole = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        with Log.open(path) as log:
            assert len(log.records) == sum(end <= cut for end in ends)
            log.append(record(7))
        again = read_log(path)
        assert again[-1] == record(7) and len(again) == len(log.records)


def test_reading_leaves_out_what_is_being_written(tmp_path):
    path = tmp_path / "tune.jsonl"
    path.write_text(record().to_line() + record(1).to_line()[:40])
    assert read_log(path) == [record()]
    assert path.read_text().count("\n") == 1  # reading changes nothing


def test_two_processes_do_not_write_one_log(tmp_path):
    path = tmp_path / "tune.jsonl"
    with Log.open(path), pytest.raises(TuningError, match="another process is tuning into"):
        Log.open(path)
    Log.open(path).close()


@pytest.mark.parametrize(("line", "said"), [
    ("hello", "line 2 of log is not JSON"),
    ("[1]", "has the schema None; this minitvm reads 1"),
    (json.dumps({"schema": 99}), "has the schema 99; this minitvm reads 1: tune again"),
    (json.dumps({"schema": 1}), "line 2 of log is no record of schema 1: KeyError: 'task'"),
    (record().to_line().replace('["Split"', '["Spilt"').strip(), "not a schedule step"),
    (record().to_line().replace("2e-06", "NaN").strip(), "are no times"),
])
def test_what_is_no_record_is_refused_by_its_line(line, said):
    data = (record().to_line() + line + "\n" + record().to_line()).encode()
    with pytest.raises(TuningError) as error:
        parse_log(data, "log")
    assert said in str(error.value)


def test_a_log_that_cant_be_had_says_so(tmp_path):
    with pytest.raises(TuningError, match="can't be read: No such file"):
        read_log(tmp_path / "none.jsonl")
    with pytest.raises(TuningError, match="can't be written"):
        Log.open(tmp_path)


def test_figures_of_times():
    made = record(seconds=(2.0, 1.0, 4.0))
    assert (made.minimum, made.median, made.noise) == (1.0, 2.0, 1.0)
    assert record(seconds=(), error="crash").minimum == float("inf")
