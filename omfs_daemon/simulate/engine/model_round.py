"""What a simulation with a trained model knows in one of its rounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from omfs_daemon.accounting.arrays import Floats
from omfs_daemon.predict.boosted_trees import BoostedTrees, no_trees
from omfs_daemon.predict.run_inputs import INPUTS

BY_MODEL = "gbm"
"""The name of the predictor that is trained."""


@dataclass(frozen=True, slots=True, eq=False)
class ModelRound:
    """``trees``: of the median, alone; ``given``, ``made``, ``inputs``, ``coming``: as in ``ModelUse``, written by the
    simulation."""

    trees: BoostedTrees
    given: Floats
    made: Floats
    inputs: Floats
    coming: int


def untrained(jobs: int) -> ModelRound:
    """One in which all of so many jobs come, and nothing has been trained."""
    unknown = np.full(jobs, np.nan)
    return ModelRound(no_trees(1), unknown, unknown.copy(), np.zeros((jobs, INPUTS)), jobs)
