"""Random search: every point is as likely. What cleverer tuners must beat."""

from __future__ import annotations

from minitvm.autotune.tuners.base import Tuner


class RandomTuner(Tuner):
    """Draws points without regard to what was found."""

    def next(self) -> int | None:
        """A random point."""
        return self.fresh()
