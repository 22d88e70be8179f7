"""Quantiles by a trained model, whose inputs are the latest run times of jobs that are alike."""

from __future__ import annotations

from collections.abc import Sequence

from omfs_daemon.predict.boosted_trees import BoostedTrees
from omfs_daemon.predict.features import JobFeatures
from omfs_daemon.predict.ladder import RUNGS, LadderPredictor
from omfs_daemon.predict.prediction import HowEnded, Prediction, RunTimePredictor, clipped, sample_of
from omfs_daemon.predict.run_inputs import LatestRuns, RunInputs, seconds_of
from omfs_daemon.predict.tree_sums import TreeSums

_WITHOUT = "ladder, as gbm has no model yet"


class GbmPredictor(RunTimePredictor):
    """Learns run times as they come, but is trained elsewhere; until it is, ``ladder`` answers, and says so.

    A run time that was cut at the limit teaches as it is: quantiles of what is cut at the limit are those of the run
    times, cut there (Powell 1986), and the limit is an input.
    """

    name = "gbm"

    def __init__(self, rungs: Sequence[tuple[str, ...]] = RUNGS) -> None:
        self._ladder = LadderPredictor(rungs)
        self._latest = LatestRuns()
        self._sums: TreeSums | None = None
        self._samples = 0

    @property
    def is_trained(self) -> bool:
        return self._sums is not None

    def use(self, model: BoostedTrees) -> None:
        """From now on. Its quantiles are 0.1, 0.5, and 0.9."""
        self._sums, self._samples = TreeSums(model), model.samples

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
        """See ``RunTimePredictor``. One alone takes as long as dozens at once."""
        return self.predict_all([job])[0]

    def predict_all(self, jobs: Sequence[JobFeatures]) -> list[Prediction]:
        """See ``RunTimePredictor``."""
        if self._sums is None:
            by_ladder = self._ladder.predict_all(jobs)
            return [found._replace(key=f"{_WITHOUT}: {found.key}") for found in by_ladder]
        values = self._latest.inputs_of_all(jobs)
        known = zip(jobs, values[:, 0].tolist(), self._sums.of(values).tolist(), strict=True)
        return [self._prediction(job, *(seconds_of(guess, one) for one in sums)) for job, guess, sums in known]

    def _prediction(self, job: JobFeatures, low: float, middle: float, high: float) -> Prediction:
        # Swanson's rule for a mean that is known by these three quantiles.
        mean = 0.3 * min(low, middle) + 0.4 * middle + 0.3 * max(middle, high)
        return clipped(low, middle, high, mean, job, "a model of all", self._samples)
