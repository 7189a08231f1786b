"""Grid search: all points in their order, the last knob first."""

from __future__ import annotations

from minitvm.autotune.tuners.base import Tuner


class GridTuner(Tuner):
    """Counts through the space."""

    _place = 0

    def next(self) -> int | None:
        """The next point in order."""
        while self._place < len(self.space):
            number, self._place = self._place, self._place + 1
            if number not in self.tried:
                return number
        return None
