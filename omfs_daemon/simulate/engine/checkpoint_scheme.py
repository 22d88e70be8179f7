"""How regular jobs write checkpoints (Nickolay et al. 2021, section 4.2 and Table 1)."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting import bounds
from omfs_daemon.accounting.arrays import Bools, Floats, Ints
from omfs_daemon.errors import ConfigError
from omfs_daemon.policy.rules.checkpoint_laws import FILE_SYSTEM_RATE, application_checkpoints, checkpoint_seconds

_UNLIMITED = 2**40


@dataclass(frozen=True, slots=True)
class CheckpointScheme:
    """``kind``: none (a stopped job starts over), sys (every ``amount`` seconds of work), app (so many, evenly spread,
    that they take ``amount`` percent of the time limit at most), jit (one is written when the job is stopped)."""

    kind: str = "jit"
    amount: float = 0.0

    @property
    def writes_when_stopped(self) -> bool:
        return self.kind == "jit"

    @property
    def name(self) -> str:
        """As typed."""
        return f"{self.kind}:{self.amount:g}" if self.kind in ("sys", "app") else self.kind

    def sentence(self) -> str:
        """For people, beside every result."""
        return {
            "none": "no checkpoints: a stopped job starts over",
            "sys": f"every {self.amount:g} s of work the system writes a checkpoint of each regular job",
            "app": f"regular jobs write checkpoints, evenly spread, for {self.amount:g} % of their limit at most",
            "jit": "a job's checkpoint is written when it is stopped, and who takes its place waits for that",
        }[self.kind]


JUST_IN_TIME = CheckpointScheme()


class PeriodicCheckpoints(NamedTuple):
    """One entry per job. ``interval``: seconds of work between two; ``most``: how many at most; 0: none."""

    interval: Floats
    most: Ints


class CheckpointCosts(NamedTuple):
    """One entry per job, in seconds: to write or to read one, and for which one occupies what all share."""

    seconds: Floats
    queueing: Floats


def scheme_named(text: str) -> CheckpointScheme:
    """ConfigError for another word, and for an amount that is not allowed."""
    kind, colon, amount_text = text.partition(":")
    if text in ("none", "jit"):
        return CheckpointScheme(text)
    try:
        amount = float(amount_text)
    except ValueError:
        amount = -1.0
    most = {"sys": float(bounds.SECONDS), "app": 100.0}.get(kind, 0.0)
    least = {"sys": 1.0}.get(kind, 0.0)
    if not colon or not isfinite(amount) or not (least <= amount <= most and amount > 0):
        raise ConfigError(
            f"--scheme {text!r}: must be none, jit, sys:SECONDS from 1 on, or app:PERCENT above 0, 100 at most"
        )
    return CheckpointScheme(kind, amount)


def checkpoint_costs(cpus: Ints, memory: Floats, memory_per_cpu: float, shared: bool) -> CheckpointCosts:
    """``memory``: bytes of each job, 0: not known, then by ``memory_per_cpu``; ``shared``: all that are written at
    once share the file system's rate."""
    own = np.where(memory > 0, memory / cpus, memory_per_cpu)
    alike, number = np.unique(np.stack((cpus.astype(np.float64), own)), axis=1, return_inverse=True)
    known = [checkpoint_seconds(int(count), float(each)) for count, each in alike.T]
    seconds = np.array(known, dtype=np.float64)[number.reshape(-1)]
    queueing = own * cpus / FILE_SYSTEM_RATE if shared else np.zeros(len(cpus))
    return CheckpointCosts(seconds, queueing)


def periodic_checkpoints(
    scheme: CheckpointScheme, limit: Floats, seconds: Floats, regular: Bools
) -> PeriodicCheckpoints:
    """Of jobs with these limits whose checkpoints take so many seconds; only regular jobs write any."""
    count = len(limit)
    if scheme.kind == "sys":
        return PeriodicCheckpoints(np.full(count, scheme.amount), np.where(regular, _UNLIMITED, 0).astype(np.int64))
    if scheme.kind != "app":
        return PeriodicCheckpoints(np.ones(count), np.zeros(count, dtype=np.int64))
    each = (
        application_checkpoints(scheme.amount, float(of_limit), float(write))
        for of_limit, write in zip(limit, seconds, strict=True)
    )
    most = np.where(regular, np.fromiter(each, dtype=np.int64, count=count), 0)
    return PeriodicCheckpoints(np.where(most > 0, limit / (most + 1), 1.0), most)
