"""The examples run as they are, with the published weights or, without a network, random ones."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import minitvm

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "mobilenet_v2.py"

pytest.importorskip("PIL", reason="the example reads pictures with Pillow")
pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on PATH")


def run_example(folder: Path, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", **variables}
    return subprocess.run([sys.executable, EXAMPLE, *map(str, words)], cwd=folder, text=True,
                          capture_output=True, env=environment)


@pytest.mark.parametrize("picture, expected", [(None, "Egyptian cat"), ("coffee.png", "espresso")])
def test_mobilenet_v2_sees_what_is_there(picture, expected, tmp_path):
    words = [] if picture is None else [ROOT / "examples" / "data" / picture]
    done = run_example(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    files = ["mobilenet_v2.h", "mobilenet_v2.so", "mobilenet_v2_sample.c"]
    assert sorted(os.listdir(tmp_path)) == files
    module = minitvm.load(tmp_path / "mobilenet_v2.so")
    zeros = np.zeros((1, 3, 224, 224), np.float32)
    assert np.isfinite(module.run({"input": zeros})["logits"]).all()
    probabilities = [float(text) for text in re.findall(r"(\d+\.\d\d)%", done.stdout)]
    assert len(probabilities) == 5 and probabilities == sorted(probabilities, reverse=True)
    if "RANDOM weights" not in done.stdout:
        first = next(line for line in done.stdout.splitlines() if "%" in line)
        assert expected in first


def test_without_a_network_the_weights_are_random_and_it_is_said(tmp_path):
    """pip finds no index, and the cache of fetched weights is empty; kernels are compiled anew."""
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_NO_INDEX": "1",
               "PIP_CONFIG_FILE": os.devnull, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    (tmp_path / "work").mkdir()
    done = run_example(tmp_path / "work", **nowhere)
    assert done.returncode == 0, done.stderr
    assert "Using RANDOM weights" in done.stdout and "pip could not download" in done.stdout
    assert len(re.findall(r"\d+\.\d\d%", done.stdout)) == 5
    assert re.search(r"\(0 of \d+ kernels from the cache\)", done.stdout)


def test_what_is_no_picture_is_said_in_a_line(tmp_path):
    for words in ([EXAMPLE], [tmp_path / "none.png"], [tmp_path]):
        done = run_example(tmp_path, *words)
        assert done.returncode == 1 and done.stdout == ""
        assert done.stderr.startswith("error: ") and "can't be read as a picture" in done.stderr
        assert len(done.stderr.splitlines()) == 1
