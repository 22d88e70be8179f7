"""How well run times were predicted in a simulation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Floats
from omfs_daemon.simulate.engine.conventions import GivenEstimates, prepared
from omfs_daemon.simulate.engine.outcome import Outcome


class PredictionFigures(NamedTuple):
    """Over the jobs that were done; run times below a second count as a second.

    accuracy  mean of the lesser over the greater of predicted and real run time
    median_relative_error  of the error over the real run time
    mean_absolute_error    seconds
    under_predicted        share of the jobs that ran longer than predicted
    """

    name: str
    accuracy: float
    median_relative_error: float
    mean_absolute_error: float
    under_predicted: float

    def as_json(self) -> dict[str, str | float | None]:
        """As in summary.json; null where no job was done."""
        fields = self._asdict()
        del fields["mean_absolute_error"]
        return {name: None if value != value else value for name, value in fields.items()}


def estimates_of(outcome: Outcome) -> Floats:
    """Seconds that each job was taken to run when it came; nan for one that was refused by a policy that learns."""
    if outcome.conventions.learning is not None and outcome.estimate is not None:
        return outcome.estimate
    return prepared(outcome.workload, outcome.conventions).estimate


def has_predictions(outcome: Outcome) -> bool:
    """Whether estimates are neither the users' limits nor exact."""
    return outcome.conventions.learning is not None or isinstance(outcome.conventions.estimates, GivenEstimates)


def prediction_figures(outcome: Outcome, name: str) -> PredictionFigures:
    """``name``: of the estimates, as typed."""
    done = ~np.isnan(outcome.finish)
    if not done.any():
        return PredictionFigures(name, np.nan, np.nan, np.nan, np.nan)
    real, guess = np.maximum(outcome.run[done], 1.0), np.maximum(estimates_of(outcome)[done], 1.0)
    error = np.abs(guess - real)
    return PredictionFigures(
        name=name,
        accuracy=float((np.minimum(real, guess) / np.maximum(real, guess)).mean()),
        median_relative_error=float(np.median(error / real)),
        mean_absolute_error=float(error.mean()),
        under_predicted=float((guess < real).mean()),
    )
