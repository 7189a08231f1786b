"""The pool's protocol as a C model under ThreadSanitizer; and that it sees what would be wrong."""

import shutil
import subprocess
from pathlib import Path

import pytest

MODEL = Path(__file__).with_name("pool_model.c").read_text()
FAULTS = {
    "late workers take pieces of a later region":
        ("(uint32_t)(word >> 32) != epoch || ", ""),
    "thread 0 does not wait for the others":
        ("if (atomic_fetch_sub(&left, all) != all) await(0, known);",
         "atomic_fetch_sub(&left, all);"),
    "pieces are reported before they are computed":
        ("      region(context, from * extent / pieces, to * extent / pieces);\n",
         "      if (number) atomic_fetch_sub(&left, to - from), done -= to - from;\n"
         "      region(context, from * extent / pieces, to * extent / pieces);\n"),
    "claims are handed out before the fields are stored":
        ("uint32_t epoch = ++epoch_now;",
         "uint32_t epoch = ++epoch_now;\n  for (int64_t n = 1; n < threads; n++)\n"
         "    atomic_store(&slots[n].claim, (uint64_t)epoch << 32 | 1),\n"
         "    atomic_store(&slots[n].word, epoch);\n  sched_yield();"),
}


def run_model(text, folder, turns):
    """The status, and what the sanitizer reports; no status where it never ends."""
    (folder / "model.c").write_text(text)
    command = ["cc", "-O1", "-g", "-fsanitize=thread", "-pthread", "model.c", "-o", "model"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if built.returncode and "sanitize" in built.stderr + built.stdout:
        pytest.skip("the C compiler has no thread sanitizer")
    assert built.returncode == 0, built.stderr
    options = {"TSAN_OPTIONS": "halt_on_error=1:exitcode=66"}
    try:
        done = subprocess.run(["./model", str(turns)], cwd=folder, capture_output=True, text=True,
                              timeout=60, env=options)
    except subprocess.TimeoutExpired:
        return None, "it hangs"
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("the thread sanitizer does not run on this kernel")
    return done.returncode, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on PATH")
def test_the_protocol_has_no_races(tmp_path):
    status, text = run_model(MODEL, tmp_path, 20_000)
    assert status == 0, text


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on PATH")
@pytest.mark.parametrize("fault", FAULTS)
def test_the_model_shows_what_would_be_wrong(fault, tmp_path):
    before, after = FAULTS[fault]
    assert MODEL.count(before) == 1
    status, text = run_model(MODEL.replace(before, after), tmp_path, 20_000)
    assert status != 0, f"{fault}: neither a race nor a wrong result {text}"
