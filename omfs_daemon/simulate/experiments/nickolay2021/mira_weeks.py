"""The weeks that are replayed: the authors' week of Mira or weeks of its public log, and a week of CEA-Curie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import floor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.accounting.trace_files import VARIABLE, trace
from omfs_daemon.simulate.engine.places import MIRA_CPUS, MIRA_SIZES
from omfs_daemon.simulate.workload.load_trace import load_trace
from omfs_daemon.simulate.workload.read_options import ReadOptions
from omfs_daemon.simulate.workload.workload import Workload, merged, workload

WEEK_FILE = "mira-2018-wk1.csv"
MIRA_FILE = "mira-2018.csv.gz"
CURIE_FILE = "CEA-Curie-2011-2.1-cln.swf.gz"
CURIE_CPUS = 93312

_DAY, WEEK = 86400.0, 604800.0
_AUTHORS_WEEK = (3960522.0, 4565322.0)
_WARM_UP, _COOL_DOWN = WEEK, 2 * _DAY
_LOADS = (0.75, 1.02)
_CURIE_LOAD = 0.9
_BEAMLINE_MINUTES = (1, 15)
_LIMIT_FACTOR = 1.5


class StudyWeek(NamedTuple):
    """``jobs``: also some before and after; figures count submissions from ``begin`` to before ``end``, seconds.

    draws   of the real-time jobs, or None: as many as asked for
    curie   whether the authors' settings for CEA-Curie hold
    """

    jobs: Workload
    begin: float
    end: float
    note: str
    draws: int | None = None
    curie: bool = False


def mira_weeks(directory: Path | None, environment: Mapping[str, str]) -> list[StudyWeek]:
    """The authors' week if its file is there, else each full week of the public log with such a load as theirs;
    ConfigError if neither is."""
    there = week_file(directory, environment)
    if there is not None:
        jobs = replace(load_trace(there).workload, name="mira-wk1")
        note = f"{there.name}: {len(jobs):,} jobs of Mira, of which the seven days from 2018-01-21 count"
        return [StudyWeek(jobs, *_AUTHORS_WEEK, note)]
    loaded = load_trace(trace(MIRA_FILE, directory, environment), ReadOptions(accounts="none")).workload
    weeks = []
    for number in range(floor((loaded.submit.max() - loaded.submit.min()) / WEEK)):
        begin = number * WEEK
        load = _offered_load(loaded, begin)
        if _LOADS[0] <= load <= _LOADS[1]:
            note = f"week {number} of {MIRA_FILE}: offered load {load:.2f}"
            weeks.append(_cut(loaded, f"mira-week{number}", begin, note, draws=1))
    return weeks


def week_file(directory: Path | None, environment: Mapping[str, str]) -> Path | None:
    """The authors' week, beside the traces or where the other inputs of experiments lie; None: it is not there."""
    if directory is None:
        if not environment.get(VARIABLE):
            return None
        directory = Path(environment[VARIABLE])
    paths = directory / WEEK_FILE, directory.parent / "experiments/nickolay2021" / WEEK_FILE
    return next((path for path in paths if path.is_file()), None)


def curie_week(path: Path) -> StudyWeek:
    """The busiest seven days of CEA-Curie whose offered load is at most 0.9, its sizes scaled to Mira's (Eq. 59)."""
    loaded = load_trace(path, ReadOptions(accounts="none")).workload
    scaled = -(-loaded.cpus * MIRA_CPUS // CURIE_CPUS)
    jobs = replace(loaded, cpus=place_sizes(np.minimum(scaled, MIRA_CPUS)))
    days = np.arange(0.0, loaded.submit.max() - WEEK, _DAY)
    loads = np.array([_offered_load(jobs, begin) for begin in days])
    allowed = np.where(loads <= _CURIE_LOAD, loads, -1.0)
    begin, load = float(days[int(allowed.argmax())]), float(allowed.max())
    note = f"{path.name}: the seven days from day {begin / _DAY:.0f}, scaled by Equation 59, offered load {load:.2f}"
    return _cut(jobs, "curie", begin, note)._replace(curie=True)


def with_beamline_jobs(jobs: Workload, share: float, seed: int) -> Workload:
    """All jobs of the log are batch jobs, and real-time jobs come on top: one 512-node block for 1 to 15 minutes, any
    time, with limits of 1.5 times that. The paper takes them from a log that is not published; these are made up."""
    random = np.random.default_rng(seed)
    count = floor(share * len(jobs))
    minutes = random.integers(_BEAMLINE_MINUTES[0], _BEAMLINE_MINUTES[1] + 1, count)
    run = np.array(60 * minutes, dtype=np.float64)
    submit: Floats = np.floor(random.uniform(jobs.submit.min(), jobs.submit.max(), count))
    added = workload(
        "beamline",
        submit,
        np.full(count, MIRA_SIZES[0], dtype=np.int64),
        run,
        accounts=jobs.accounts[:1],
        job_id=np.arange(count) + int(jobs.job_id.max()) + 1,
        limit=np.multiply(run, _LIMIT_FACTOR),
        realtime=np.ones(count, dtype=np.bool_),
    )
    return merged(replace(jobs, realtime=np.zeros(len(jobs), dtype=np.bool_)), added)


def place_sizes(cpus: Ints) -> Ints:
    """The smallest size of a place of Mira that holds each job."""
    sizes = np.array(MIRA_SIZES, dtype=np.int64)
    held: Ints = sizes[np.searchsorted(sizes, cpus)]
    return held


def _offered_load(jobs: Workload, begin: float) -> float:
    inside = (jobs.submit >= begin) & (jobs.submit < begin + WEEK)
    seconds: Floats = place_sizes(jobs.cpus[inside]) * jobs.run[inside]
    return float(seconds.sum() / (MIRA_CPUS * WEEK))


def _cut(jobs: Workload, name: str, begin: float, note: str, draws: int | None = None) -> StudyWeek:
    near = (jobs.submit >= begin - _WARM_UP) & (jobs.submit < begin + WEEK + _COOL_DOWN)
    return StudyWeek(replace(jobs.take(near), name=name), begin, begin + WEEK, note, draws)


def weeks_of(directory: Path | None, environment: Mapping[str, str]) -> Iterator[StudyWeek]:
    """All weeks; Curie's only if its log is there."""
    yield from mira_weeks(directory, environment)
    where = directory or (Path(environment[VARIABLE]) if environment.get(VARIABLE) else None)
    if where is not None and (where / CURIE_FILE).is_file():
        yield curie_week(where / CURIE_FILE)
