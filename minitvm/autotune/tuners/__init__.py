"""The tuners by name."""

from minitvm.autotune.tuners.base import Tuner
from minitvm.autotune.tuners.genetic import GeneticTuner
from minitvm.autotune.tuners.grid import GridTuner
from minitvm.autotune.tuners.guided import GuidedTuner
from minitvm.autotune.tuners.random import RandomTuner

TUNERS: dict[str, type[Tuner]] = {
    "xgboost": GuidedTuner, "genetic": GeneticTuner, "random": RandomTuner, "grid": GridTuner}

__all__ = ["TUNERS", "GeneticTuner", "GridTuner", "GuidedTuner", "RandomTuner", "Tuner"]
