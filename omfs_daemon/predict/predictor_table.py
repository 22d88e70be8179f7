"""The predictors, by the names that users type."""

from __future__ import annotations

from omfs_daemon.errors import ConfigError
from omfs_daemon.predict.features import FEATURES
from omfs_daemon.predict.gbm import GbmPredictor
from omfs_daemon.predict.ladder import RUNGS, LadderPredictor
from omfs_daemon.predict.prediction import RunTimePredictor
from omfs_daemon.predict.recent import LimitPredictor, MeanPredictor
from omfs_daemon.predict.similar import SimilarPredictor

USER = ("user",)
# Name, kinds of jobs from the most special on, how many of the latest count, and what is predicted from nothing. Murata
# et al. leave the last open: their estimate is a sum of what is known.
_MEANS: tuple[tuple[str, tuple[tuple[str, ...], ...], int | None, float | None], ...] = (
    ("mean", ((),), None, None),
    ("murata", (("command",), ()), None, 0.0),
    ("last2", (USER,), 2, None),
    ("alike2", (("user", "cpus", "limit"), USER), 2, None),
    ("named2", (("user", "name"), USER), 2, None),
)
PREDICTORS = ("limit", *(name for name, *_ in _MEANS), "ladder", "similar", "gbm")


def new_predictor(name: str, rungs: tuple[tuple[str, ...], ...] = RUNGS) -> RunTimePredictor:
    """A predictor that knows nothing yet; ConfigError with all names for one that is not known, and for unknown
    features in the ``rungs`` of the ladder. ``gbm`` is to be trained elsewhere (``gbm_training``)."""
    unknown = sorted({field for rung in rungs for field in rung} - FEATURES)
    if unknown or not all(rungs):
        wrong = f"{unknown[0]!r} is not known" if unknown else "an empty key"
        raise ConfigError(f"keys of the predictor: {wrong}: one or more of {', '.join(sorted(FEATURES))}")
    if name == "limit":
        return LimitPredictor()
    if name == "ladder":
        return LadderPredictor(rungs)
    if name == "similar":
        return SimilarPredictor()
    if name == "gbm":
        return GbmPredictor(rungs)
    for mean in _MEANS:
        if mean[0] == name:
            return MeanPredictor(*mean)
    raise ConfigError(f"predictor {name!r} is not known: one of {', '.join(PREDICTORS)}")
