"""The numbered examples run as they are, and show what they promise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = {path.name[:2]: path for path in sorted((ROOT / "examples").glob("[0-9]*.py"))}
TITLE = re.compile(r"^=== (.*?) =+$", re.MULTILINE)


def output_of(number: str, folder: Path, *words: str) -> str:
    done = subprocess.run([sys.executable, EXAMPLES[number], *words], cwd=folder, text=True,
                          capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    assert not os.listdir(folder), "an example leaves files behind"
    return done.stdout


@pytest.mark.parametrize("path", EXAMPLES.values(), ids=lambda path: path.name)
def test_examples_are_short_and_say_how_they_run(path):
    text = path.read_text()
    assert len(text.splitlines()) < 100
    assert f"    python examples/{path.name}" in text


def test_a_matmul_gets_faster_step_by_step(tmp_path):
    printed = output_of("01", tmp_path)
    speeds = [float(number) for number in re.findall(r"^ *([\d.]+) GFLOP/s", printed, re.MULTILINE)]
    assert len(speeds) == 4
    assert min(speeds[2:]) > 5 * speeds[0]  # most of it, on a machine with other work too
    assert "in vectorized(" in printed and "C.local[" in printed


def test_a_convolution_is_shown_at_every_level(tmp_path):
    printed = output_of("02", tmp_path)
    titles = TITLE.findall(printed)
    levels = [title.split(":")[0].split(",")[0] for title in titles]
    assert levels == ["relay", "relay", "te", "te", "te", "te", "tir", "tir", "tir", "LLVM IR",
                      "assembly", "the result"]
    sections = [section.strip() for section in TITLE.split(printed)[2::2]]
    assert all(sections)
    assert "for n in range(1):" in sections[3] and "vectorized" not in sections[3]
    assert "vectorized" in sections[5]  # after all steps
    assert re.search(r"fmul contract <\d+ x float>", sections[9])


def test_a_convolution_is_shown_for_another_machine(tmp_path):
    printed = output_of("02", tmp_path, "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76")
    assert "fmla\t" in printed
    assert "the result" not in "".join(TITLE.findall(printed))


def test_an_operator_of_ones_own_is_one_kernel_either_way(tmp_path):
    printed = output_of("03", tmp_path).splitlines()
    assert [line.split(":")[0] for line in printed] == ["computed whole", "attached by compute_at"]
    assert all("1 kernel, fused_my_linear_prelu_multiply_" in line for line in printed)
    assert printed[0].split()[-1] != printed[1].split()[-1]  # two kernels: the attribute counts


def test_a_pass_of_ones_own_changes_what_it_says(tmp_path):
    before, after = output_of("04", tmp_path).split("After,")
    assert before.count("divide(") == 2 and after.count("divide(") == 1
    assert "multiply(x, const(0.25" in after


def test_a_fusion_rule_makes_one_kernel(tmp_path):
    usual, ruled = output_of("05", tmp_path).split("with the rule:")
    kernel = "fused_nn_dense_nn_relu_nn_dense_sigmoid"
    assert kernel in ruled and kernel not in usual
    assert "FuseOps" in usual and "FuseOps" in ruled


def test_a_shared_trunk_is_computed_once(tmp_path):
    printed = output_of("06", tmp_path)
    apart, together = (list(map(int, re.findall(r"(\d+) (?:and|kernel)", line)))
                       for line in printed.splitlines()[:2])
    assert together[0] == sum(apart) - (apart[0] - 1)  # each model has one kernel of its own
    assert printed.count("fused_nn_conv2d_nn_relu_2(") == 1


def test_a_product_of_bytes_takes_the_instruction_of_the_machine(tmp_path):
    printed = output_of("07", tmp_path)
    for machine, found in (("AVX512-VNNI", "vpdpbusd\t%zmm"), ("AVX-VNNI", "{vex}\tvpdpbusd"),
                           ("AVX2, a loop", "no such instruction"), ("ARM with i8mm", "usdot\t")):
        assert re.search(rf"^{machine} +{re.escape(found)}", printed, re.MULTILINE)
    assert printed.count(", exact") == 2 and "its read of A is not like that of a" in printed


def test_a_server_with_threads_answers(tmp_path):
    assert output_of("08", tmp_path) == "40 of 40 answers right, by 4 threads\n"


def test_a_server_with_processes_shares_its_weights(tmp_path):
    printed = output_of("09", tmp_path)
    assert re.match(r"60 of 60 answers right, by [123] processes\n", printed)
    assert "of 4096 KB of weights, each has 0 KB to itself" in printed
