"""Has models trained for a predictor that needs them, in a process of its own.

The daemon itself never loads LightGBM. A training that fails, or takes too long, costs one line in the log: predictions
go on by the model before, or by ``ladder``.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, NamedTuple

import structlog

from omfs_daemon.daemon.learning.run_predictions import RunPredictions
from omfs_daemon.daemon.store.ended_jobs import EndedJobs
from omfs_daemon.errors import FormatError
from omfs_daemon.predict.boosted_trees import trees_from_json
from omfs_daemon.predict.gbm_training import LEAST_JOBS
from omfs_daemon.predict.run_inputs import INPUTS

TRAIN_EVERY = 3600.0
"""Seconds from the begin of one training to the next, at least."""
NEW_JOBS = 100
"""Jobs that must have ended in between."""
DEADLINE = 600.0
"""Seconds that a training may take, at the lowest priority."""
_MODULE = "omfs_daemon.daemon.learning.model_child"
_ROOT = Path(__file__).resolve().parents[3]
_MOST_BYTES = 1 << 27
_SHOWN = 160
_END_TIMEOUT = 5.0


class _UnderWay(NamedTuple):
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    errors: IO[bytes]
    edition: int
    began: float
    stop: Callable[[], object]


class ModelTraining:
    """For one thread. ``child``: the command that prints a model as JSON, after which come the file of ended jobs and
    the seconds that it may take; it reads the file alone, while the daemon writes it."""

    def __init__(
        self,
        store: EndedJobs,
        predictions: RunPredictions,
        clock: Callable[[], float],
        child: Sequence[str] = (sys.executable, "-P", "-m", _MODULE),
        deadline: float = DEADLINE,
    ) -> None:
        self._store, self._predictions, self._clock = store, predictions, clock
        self._child, self._deadline = child, deadline
        self._log = structlog.get_logger("predict")
        self._last, self._failed = -inf, False
        self._under_way: _UnderWay | None = None

    def step(self) -> None:
        """Do what is due; nothing is waited for."""
        if self._under_way is not None:
            self._look_after(self._under_way)
        elif self._is_due():
            self._begin()

    def close(self) -> None:
        """End a training that is under way."""
        if self._under_way is not None:
            self._end(self._under_way)

    def _is_due(self) -> bool:
        lacks = self._predictions.lacks_model
        if not (lacks and not self._failed) and 0 <= self._clock() - self._last < TRAIN_EVERY:
            return False
        return self._store.ended_since(-inf) >= LEAST_JOBS and (
            lacks or self._store.ended_since(self._last) >= NEW_JOBS
        )

    def _begin(self) -> None:
        self._last = self._clock()
        output, errors = TemporaryFile(), TemporaryFile()  # noqa: SIM115 - closed with the process
        variables = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "OMP_NUM_THREADS": "1"}
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
        try:
            process = subprocess.Popen(
                [*self._child, str(self._store.path), str(int(self._deadline))],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env=variables,
                start_new_session=True,
            )
        except OSError as error:
            self._fail(f"cannot run {self._child[0]}: {error.strerror}")
            return
        stop = weakref.finalize(self, _kill, process)
        self._under_way = _UnderWay(process, output, errors, self._predictions.edition, time.monotonic(), stop)

    def _look_after(self, now: _UnderWay) -> None:
        code = now.process.poll()
        if code is None:
            if time.monotonic() - now.began > self._deadline:
                self._end(now)
                self._fail(f"it took longer than {self._deadline:g} s")
            return
        try:
            self._take_over(now, code)
        except FormatError as error:
            self._fail(str(error))
        finally:
            self._end(now)

    def _take_over(self, now: _UnderWay, code: int) -> None:
        now.output.seek(0)
        now.errors.seek(0)
        if code:
            lines = now.errors.read(_MOST_BYTES).decode(errors="replace").strip().splitlines()
            raise FormatError(lines[-1][:_SHOWN] if lines else f"it ended with exit code {code}")
        try:
            found = json.loads(now.output.read(_MOST_BYTES))
        except (ValueError, RecursionError):
            raise FormatError("its process did not write a model") from None
        model = trees_from_json(found, INPUTS)
        self._failed = False
        if self._predictions.use_model(model, now.edition):
            seconds = round(time.monotonic() - now.began, 1)
            self._log.info("model_trained", jobs=model.samples, seconds=seconds)

    def _end(self, now: _UnderWay) -> None:
        self._under_way = None
        now.stop()
        now.output.close()
        now.errors.close()

    def _fail(self, why: str) -> None:
        self._failed = True
        goes_on = "ladder" if self._predictions.lacks_model else "the model before"
        self._log.warning("model_not_trained", error=why, message=f"run times are predicted by {goes_on}")


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):  # stuck in the kernel; it ends later
        process.wait(_END_TIMEOUT)
