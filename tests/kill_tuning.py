"""Does tuning survive being killed? Kills `minitvm tune` at random moments, each time the same log.

    python tests/kill_tuning.py                  50 times
    python tests/kill_tuning.py --kills 3 --seed 7

After each kill no process of it may live on, and its log must have all records that it had, and be
read again. At last it runs to its end: no record is there twice, and no file is left behind in the
folder of temporary files. Ends with 1, and says what is wrong, where that is not so.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).parent / "autotune"))
from tiny_models import two_convolutions

from minitvm.autotune.records import parse_log

TOKEN = "MINITVM_KILLED_RUN"
"""A variable of the environment that all processes of a run have, by which they are found."""
PATIENCE_SECONDS = 60
"""How long processes may take to notice that they are alone."""


class Killed:
    """One log, and runs of the command into it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self.temporary, self.log = folder / "temporary", folder / "tune.jsonl"
        self.temporary.mkdir()
        onnx.save(two_convolutions(), folder / "two.onnx")
        self.token = f"{os.getpid()}-{seed}-{folder.name}"
        self.known: list[str] = []

    def start(self, trials: int) -> subprocess.Popen[bytes]:
        """The command, in a process that is to be killed or waited for."""
        words = [sys.executable, "-m", "minitvm", "tune", str(self.folder / "two.onnx"), "--log",
                 str(self.log), "--trials", str(trials), "--tuner", "random"]
        environment = {**os.environ, TOKEN: self.token, "TMPDIR": str(self.temporary)}
        return subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL,
                                stderr=(self.folder / "errors").open("wb"))

    def run(self, trials: int) -> float:
        """Lets it run to its end; the seconds that it took."""
        start = time.monotonic()
        status = self.start(trials).wait()
        assert status == 0, f"it ended with {status}: {(self.folder / 'errors').read_text()}"
        return time.monotonic() - start

    def kill(self, trials: int, within: float) -> bool:
        """Kills it after some time up to `within`; whether it was still running."""
        process = self.start(trials)
        try:
            process.wait(self.random.uniform(0, within))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        killed = process.wait() == -signal.SIGKILL
        self.check_processes()
        self.check_log()
        return killed

    def check_processes(self) -> None:
        """No process of the run lives on."""
        end = time.monotonic() + PATIENCE_SECONDS
        while (alive := self.processes()) and time.monotonic() < end:
            time.sleep(0.05)
        assert not alive, f"processes live on: {alive}"

    def processes(self) -> list[int]:
        """Those with the token in their environment."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if f"{TOKEN}={self.token}".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def check_log(self) -> None:
        """The log has what it had, and only its last line may be cut short."""
        data = self.log.read_bytes() if self.log.exists() else b""
        lines = [record.to_line() for record in parse_log(data, "the log")[0]]
        assert lines[:len(self.known)] == self.known, "records are gone"
        assert "".join(lines).encode() == data[:data.rfind(b"\n") + 1], "the log is damaged"
        self.known = lines

    def check_end(self) -> None:
        """Nothing is left but the log, and nothing in it is there twice."""
        self.check_processes()
        self.check_log()
        records = parse_log(self.log.read_bytes(), "the log")[0]
        assert len({record.key for record in records}) == len(records), "records are there twice"
        left = sorted(path.name for path in self.temporary.iterdir())
        assert not left, f"left behind: {left}"


def check(folder: Path, kills: int, seed: int) -> str:
    """All of it; says how often it was killed, and how many records that made."""
    tuning = Killed(folder, seed)
    seconds = tuning.run(6)
    tuning.check_end()
    killed = runs = 0
    while killed < kills:
        killed += tuning.kill(7 + 3 * runs, 1.2 * seconds)
        runs += 1
    tuning.run(7 + 3 * runs)
    tuning.check_end()
    return f"killed {killed} times, in {runs} runs; {len(tuning.known)} records"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(check(Path(folder), arguments.kills, arguments.seed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
