"""The cost model: features of candidates that were measured -> scores of those that were not.

Gradient-boosted trees learn the *order* of candidates (a pairwise rank loss), as only that matters:
a higher score is a faster candidate. A model is learnt afresh each time; with some thousand rows
that takes a fraction of a second. One thread and a fixed seed: equal data give equal scores.
Source: "Learning to Optimize Tensor Programs", arXiv 1805.08166.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minitvm.errors import TuningError

ROUNDS = 60
GRADES = 31
"""How finely speeds are told apart: a rank loss takes whole grades."""
FEWEST = 8
"""Fewer measurements say nothing."""
PARAMETERS = {
    "objective": "rank:pairwise", "max_depth": 4, "eta": 0.2, "gamma": 1e-4, "lambda": 1.0,
    "min_child_weight": 0.1, "nthread": 1, "lambdarank_pair_method": "mean",
    "lambdarank_num_pair_per_sample": 8, "lambdarank_unbiased": False, "verbosity": 0,
}


def grades(seconds: np.ndarray) -> np.ndarray:
    """Speeds as whole numbers from 0 (failed) to `GRADES` (the fastest)."""
    best = float(np.min(seconds))
    speed = np.where(np.isfinite(seconds), best / np.maximum(seconds, 1e-12), 0.0)
    whole: np.ndarray = np.ceil(speed * GRADES).astype(np.int32)
    return whole


class RankModel:
    """Scores by features."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._trees: Any = None

    @property
    def is_fitted(self) -> bool:
        """Whether it has learnt anything."""
        return self._trees is not None

    def fit(self, features: Sequence[np.ndarray], seconds: Sequence[float]) -> None:
        """Learns from measurements; infinite seconds are failures. Too few change nothing."""
        times = np.array(seconds)
        if len(features) < FEWEST or not np.isfinite(times).any():
            return
        xgboost = load_xgboost()
        rows = xgboost.DMatrix(np.stack(features), label=grades(times), nthread=1)
        rows.set_group([len(features)])
        self._trees = xgboost.train({**PARAMETERS, "seed": self._seed}, rows, ROUNDS)

    def predict(self, features: Sequence[np.ndarray]) -> np.ndarray:
        """A score for each candidate, higher is faster; zeros where nothing was learnt."""
        if self._trees is None or not features:
            return np.zeros(len(features))
        rows = load_xgboost().DMatrix(np.stack(features), nthread=1)
        scores: np.ndarray = self._trees.predict(rows)
        return scores


def load_xgboost() -> Any:
    """The package; raises `TuningError` where it is not installed."""
    try:
        import xgboost
    except ImportError:
        raise TuningError("the tuner 'xgboost' needs the package xgboost: install "
                          "minitvm[tune], or use --tuner genetic") from None
    return xgboost


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's: 1 where two sequences have the same order, -1 where the opposite one."""
    ranks = [np.argsort(np.argsort(np.asarray(values), kind="stable")) for values in
             (first, second)]
    if len(ranks[0]) < 2:
        return 0.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])
