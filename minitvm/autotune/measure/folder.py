"""A temporary folder that does not outlive its owner for long, even if that is killed.

    folder = OwnedFolder()        also removes those whose owners are gone
    folder.path / "1.o"
    folder.close()

The owner holds a lock on the folder itself, which ends with its process, however that ends. Who
makes a folder looks for others that nobody holds any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "minitvm-tune-"


class OwnedFolder:
    """A new folder of this process, `path`; to be closed."""

    def __init__(self) -> None:
        remove_abandoned()
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
            try:
                self._handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
                fcntl.flock(self._handle, fcntl.LOCK_EX)
            except FileNotFoundError:
                continue  # someone took it for abandoned
            if self.path.exists():
                return
            os.close(self._handle)

    def close(self) -> None:
        """Removes it."""
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(self._handle)


def remove_abandoned() -> None:
    """Removes the folders of this user's processes that are gone."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, in use, or gone in between
            _remove_if_abandoned(path)


def _remove_if_abandoned(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(handle).st_uid == os.getuid():
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path)
    finally:
        os.close(handle)
