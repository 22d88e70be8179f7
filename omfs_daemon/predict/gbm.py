"""Quantiles by a trained model, whose inputs are the latest run times of jobs that are alike."""

from __future__ import annotations

from collections.abc import Sequence

from omfs_daemon.predict.boosted_trees import BoostedTrees
from omfs_daemon.predict.features import JobFeatures
from omfs_daemon.predict.ladder import RUNGS, LadderPredictor
from omfs_daemon.predict.prediction import HowEnded, Prediction, clipped, sample_of
from omfs_daemon.predict.run_inputs import LatestRuns, RunInputs, seconds_of

_WITHOUT = "ladder, as gbm has no model yet"


class GbmPredictor:
    """Learns run times as they come, but is trained elsewhere; until it is, ``ladder`` answers, and says so.

    A run time that was cut at the limit teaches as it is: quantiles of what is cut at the limit are those of the run
    times, cut there (Powell 1986), and the limit is an input.
    """

    name = "gbm"

    def __init__(self, rungs: Sequence[tuple[str, ...]] = RUNGS) -> None:
        self._ladder = LadderPredictor(rungs)
        self._latest = LatestRuns()
        self._model: BoostedTrees | None = None

    @property
    def is_trained(self) -> bool:
        return self._model is not None

    def use(self, model: BoostedTrees) -> None:
        """From now on. Its quantiles are 0.1, 0.5, and 0.9."""
        self._model = model

    def ended(self, job: JobFeatures, run: float, how: HowEnded) -> bool:
        """See ``RunTimePredictor``."""
        if sample_of(run, how) is None:
            return False
        self._latest.ended(job, run)
        return self._ladder.ended(job, run, how)

    def inputs(self, job: JobFeatures) -> RunInputs:
        """What the model is given of this job, or learns of it once it has ended."""
        return self._latest.inputs(job)

    def predict(self, job: JobFeatures) -> Prediction:
        """See ``RunTimePredictor``."""
        if self._model is None:
            found = self._ladder.predict(job)
            return found._replace(key=f"{_WITHOUT}: {found.key}")
        guess, values = self._latest.inputs(job)
        low, middle, high = (seconds_of(guess, float(one)) for one in self._model.sums(values))
        # Swanson's rule for a mean that is known by these three quantiles.
        mean = 0.3 * min(low, middle) + 0.4 * middle + 0.3 * max(middle, high)
        return clipped(low, middle, high, mean, job, "a model of all", self._model.samples)
