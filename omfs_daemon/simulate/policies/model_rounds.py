"""Simulations with a model that is trained at the end of each simulated day, on jobs that have ended by then.

Compiled kernels cannot train. So the whole is simulated once for each day on which jobs come: with what was predicted
of all that came before, with predictions of the jobs of that day by the model of the day before, and with the limits of
all that come later. These cannot change what happens up to that day's end, when the next model is trained.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from omfs_daemon.accounting.arrays import Floats
from omfs_daemon.predict.boosted_trees import BoostedTrees
from omfs_daemon.predict.gbm_training import trained, training_rows
from omfs_daemon.predict.run_inputs import target_of
from omfs_daemon.simulate.engine.model_round import untrained
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.engine.scenario import Scenario

DAY = 86400.0
_MEDIAN = (0.5,)


def in_rounds(simulate: Callable[[Scenario], Outcome], scenario: Scenario) -> Outcome:
    """The outcome of the last round; ConfigError without LightGBM."""
    conventions, days = scenario.conventions, np.floor(scenario.workload.submit / DAY)
    now, outcome = untrained(len(days)), None
    for day in np.unique(days).tolist():
        trees = now.trees if outcome is None else _trees(outcome, now.inputs, day * DAY) or now.trees
        now = replace(now, trees=trees, coming=int(np.searchsorted(days, day, side="right")))
        outcome = simulate(replace(scenario, conventions=replace(conventions, model=now)))
        now.given[: now.coming] = now.made[: now.coming]
    if outcome is None:
        return simulate(scenario)
    return replace(outcome, conventions=conventions)


def _trees(outcome: Outcome, inputs: Floats, until: float) -> BoostedTrees | None:
    """Trained on what had ended before then; None if that is too little."""
    rows = training_rows(outcome.finish, until)
    if not len(rows):
        return None
    runs = zip(inputs[rows, 0].tolist(), outcome.run[rows].tolist(), strict=True)
    return trained(inputs[rows], np.array([target_of(guess, run) for guess, run in runs]), _MEDIAN)
