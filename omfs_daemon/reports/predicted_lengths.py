"""How long jobs would have been predicted to run when they became eligible, from those that had ended by then."""

from __future__ import annotations

from math import inf

import numpy as np
import polars as pl

from omfs_daemon.accounting.arrays import Floats
from omfs_daemon.predict.features import JobFeatures, folded_name
from omfs_daemon.predict.ladder import LadderPredictor
from omfs_daemon.predict.prediction import HowEnded

_HOW = {"TIMEOUT": HowEnded.AT_LIMIT, "CANCELLED": HowEnded.CANCELLED, "PREEMPTED": HowEnded.CANCELLED}
_HOW |= dict.fromkeys(("NODE_FAIL", "BOOT_FAIL"), HowEnded.NODE_FAILED)
_FEATURES = ("user", "account", "partition", "qos", "name", "cpus", "limit")


def predicted_lengths(jobs: pl.DataFrame) -> Floats:
    """Seconds, at most the limit; ``jobs``: rows of ``accounting.job_records`` with ``eligible_at``, in its order.

    The median of the ladder predictor (``predict.ladder``); inf: nothing like it had ended, and it has no limit.
    """
    features = [
        JobFeatures(
            user, account, partition, qos, name, folded_name(name), cpus, 1, "", inf if limit is None else limit
        )
        for user, account, partition, qos, name, cpus, limit in jobs.select(_FEATURES).iter_rows()
    ]
    states, runs = jobs["state"].to_list(), jobs["run"].fill_null(0.0).to_list()
    eligible = jobs["eligible_at"].to_numpy()
    ends = jobs["end"].fill_null(inf).to_numpy()
    over = np.argsort(ends, kind="stable")
    predictor = LadderPredictor()
    lengths = np.empty(len(features))
    ended = 0
    for job, time in enumerate(eligible.tolist()):
        while ended < len(over) and ends[over[ended]] <= time:
            at = int(over[ended])
            predictor.ended(features[at], runs[at], _HOW.get(states[at], HowEnded.BY_ITSELF))
            ended += 1
        lengths[job] = predictor.predict(features[job]).p50
    return lengths
