"""The process in which a model is trained: ``model_child FILE SECONDS`` prints it as JSON.

It reads the file of ended jobs, which the daemon goes on writing. It ends itself after so many seconds, should there be
no daemon any more that would.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from omfs_daemon.daemon.store.ended_jobs import latest_ends
from omfs_daemon.errors import OmfsError
from omfs_daemon.predict.gbm import GbmPredictor
from omfs_daemon.predict.gbm_training import MOST_JOBS, trained
from omfs_daemon.predict.job_ends import JobEnd
from omfs_daemon.predict.run_inputs import target_of

Floats = NDArray[np.float64]

_READ = 5 * MOST_JOBS
"""Ended jobs that are read: what those knew on which the model is trained."""
_LOWEST_PRIORITY = 19


def main(arguments: Sequence[str]) -> int:
    path, seconds = Path(arguments[0]), int(arguments[1])
    with contextlib.suppress(OSError):  # a unit may forbid it
        os.nice(_LOWEST_PRIORITY)
    signal.alarm(seconds + 60)
    try:
        model = trained(*training_set(latest_ends(path, _READ)))
    except (OmfsError, sqlite3.Error, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    json.dump(model.as_json(), sys.stdout)
    return 0


def training_set(ends: Sequence[JobEnd]) -> tuple[Floats, Floats]:
    """Inputs and targets of the latest of these jobs, which are in the order in which they ended: what was known of
    each when it started, of those that had ended by then."""
    predictor, done = GbmPredictor(), 0
    first = max(0, len(ends) - MOST_JOBS)
    values, targets = dict[int, list[float]](), dict[int, float]()
    for at in sorted(range(len(ends)), key=lambda one: ends[one].start):
        while done < len(ends) and ends[done].ended <= ends[at].start:
            learned, how = ends[done], ends[done].how
            if how is not None:
                predictor.ended(learned.features, learned.run, how)
            done += 1
        if at >= first:
            guess, values[at] = predictor.inputs(ends[at].features)
            targets[at] = target_of(guess, ends[at].run)
    chosen = sorted(values)
    return np.array([values[at] for at in chosen]), np.array([targets[at] for at in chosen])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
