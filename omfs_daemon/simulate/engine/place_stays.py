"""From the stays of jobs on places to segments by use."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.simulate.engine.checkpoint_scheme import PeriodicCheckpoints
from omfs_daemon.simulate.engine.outcome import Segments, Use

_ROUNDING = 1e-6
"""Seconds; positions are sums of seconds."""


class PlaceStays(NamedTuple):
    """One entry a stay, in seconds: a job reads its checkpoint up to ``works_from``, computes up to ``end``, and if it
    is stopped then, writes one up to ``gone``. ``done``: work that was safe before, ``kept``: that is after it.

    place      its number; 0 where there are none
    preemptor  for which job it was stopped; -1: it was not
    cost       what that cost by the policy's reckoning
    """

    job: Ints
    place: Ints
    preemptor: Ints
    begin: Floats
    works_from: Floats
    end: Floats
    gone: Floats
    done: Floats
    kept: Floats
    cost: Floats


class _Part(NamedTuple):
    stay: Ints
    begin: Floats
    end: Floats
    use: Ints


def segments_of(stays: PlaceStays, periodic: PeriodicCheckpoints, seconds: Floats) -> Segments:
    """What each place was held for; ``periodic`` and ``seconds``, of one checkpoint, by job."""
    every = np.arange(len(stays.job))
    parts = [
        _part(every, stays.begin, stays.works_from, Use.RESUME),
        *_computing(stays, periodic, seconds),
        _part(every, stays.end, stays.gone, Use.PREEMPTION),
    ]
    stay, begin, end, use = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    there = begin < end
    return Segments(stays.job[stay[there]], begin[there], end[there], use[there])


def _computing(stays: PlaceStays, periodic: PeriodicCheckpoints, seconds: Floats) -> list[_Part]:
    """Work, and the periodic checkpoints between."""
    interval, write = periodic.interval[stays.job], seconds[stays.job]
    cycle = interval + write
    left = np.maximum(periodic.most[stays.job] - np.round(stays.done / interval).astype(np.int64), 0)
    begun = np.ceil((stays.end - stays.works_from) / cycle - _ROUNDING).astype(np.int64)
    rounds = np.minimum(np.maximum(begun, 0), left)
    # One more, without a checkpoint behind it.
    stay = np.repeat(np.arange(len(rounds)), rounds + 1)
    number = np.arange(len(stay)) - np.repeat(np.cumsum(rounds + 1) - (rounds + 1), rounds + 1)
    last = number == rounds[stay]
    begin = stays.works_from[stay] + number * cycle[stay]
    until = np.where(last, np.inf, begin + interval[stay])
    is_kept = stays.done[stay] + number * interval[stay] < stays.kept[stay] - _ROUNDING
    ends = stays.end[stay]
    work = _Part(stay, begin, np.minimum(until, ends), np.where(is_kept, Use.WORK, Use.LOST).astype(np.int64))
    written = np.where(last, ends, np.minimum(begin + cycle[stay], ends))
    return [work, _part(stay, np.where(last, ends, np.minimum(until, ends)), written, Use.CHECKPOINT)]


def _part(stay: Ints, begin: Floats, end: Floats, use: Use) -> _Part:
    return _Part(stay, begin, end, np.full(len(stay), use, dtype=np.int64))
