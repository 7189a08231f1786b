"""The tuners by name."""

from minitvm.autotune.tuners.base import Tuner
from minitvm.autotune.tuners.evolution import Evolution, EvolutionTuner
from minitvm.autotune.tuners.genetic import GeneticTuner
from minitvm.autotune.tuners.grid import GridTuner
from minitvm.autotune.tuners.guided import GuidedTuner
from minitvm.autotune.tuners.random import RandomTuner

TUNERS: dict[str, type[Tuner]] = {
    "xgboost": GuidedTuner, "evolution": EvolutionTuner, "genetic": GeneticTuner,
    "random": RandomTuner, "grid": GridTuner}
WITH_MODEL = ("xgboost", "evolution")
"""Those that need the package xgboost."""

__all__ = ["TUNERS", "WITH_MODEL", "Evolution", "EvolutionTuner", "GeneticTuner", "GridTuner",
           "GuidedTuner", "RandomTuner", "Tuner"]
