"""Many simulations at once: on this machine's cores, or as an array job of Slurm.

Simulations share nothing, so they are handed out whole; results come back in the order of the cases, whoever was first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from omfs_daemon.errors import ConfigError
from omfs_daemon.errors import OmfsError
from omfs_daemon.simulate.engine.scenario import Machine
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.policies.policy_table import policy_named
from omfs_daemon.simulate.engine.scenario import Setting
from omfs_daemon.simulate.workload.workload import workload

# Seconds between looks at Slurm's answer, which submitit itself asks for less often.
_POLL = 1.0

Result = TypeVar("Result")
Got = TypeVar("Got")

# Takes how many cases are done, how many there are, and the name of the one that was done last.
Progress = Callable[[int, int, str], None]


class SweepError(OmfsError):
    """A simulation of a sweep failed; the text names it."""


@dataclass(frozen=True, slots=True)
class Case:
    """One simulation of a sweep. ``name`` is for people, ``policy`` as typed."""

    name: str
    policy: str
    setting: Setting


@dataclass(frozen=True, slots=True)
class Slurm:
    """Where an array job runs. ``folder`` must be seen by all nodes; submitit keeps its files there.

    cluster  "slurm"; "local" runs the same files as processes of this machine
    minutes  time limit of each simulation; memory_gb, of each
    at_once  how many run at one time
    """

    folder: Path
    partition: str
    cluster: str = "slurm"
    minutes: int = 60
    memory_gb: int = 4
    at_once: int = 64


@dataclass(frozen=True, slots=True)
class _Work(Generic[Result]):
    """A case and what is wanted of it, as it is sent to a worker."""

    case: Case
    summarise: Callable[[Outcome], Result]

    def __call__(self) -> Result:
        try:
            return self.summarise(policy_named(self.case.policy).simulate(self.case.setting))
        except Exception as error:
            raise _failed(self.case, error) from error


def run_all(
    cases: Sequence[Case],
    summarise: Callable[[Outcome], Result],
    where: int | Slurm = 1,
    progress: Progress | None = None,
) -> list[Result]:
    """What ``summarise`` makes of each case's outcome, in the order of the cases; SweepError for the first that fails.

    ``where``: so many processes of this machine (1: this one), or Slurm. ``summarise`` is done by the worker, so that
    little comes back; it must be a function of a module.
    """
    for case in cases:
        _result(case, partial(policy_named, case.policy))
    work = [_Work(case, summarise) for case in cases]
    results: dict[int, Result] = {}
    for index, result in _done(work, where):
        results[index] = result
        if progress is not None:
            progress(len(results), len(cases), cases[index].name)
    return [results[index] for index in range(len(cases))]


def compile_for(policies: Iterable[str]) -> None:
    """Compile what these policies need, once, into numba's cache, so that workers only load it."""
    submit, cpus, run = np.zeros(2), np.ones(2, dtype=np.int64), np.ones(2)
    tiny = Setting(workload("two jobs", submit, cpus, run, urgent=np.array([False, True])), Machine(1))
    for name in dict.fromkeys(policies):
        policy_named(name).simulate(tiny)


def _done(work: Sequence[_Work[Result]], where: int | Slurm) -> Iterator[tuple[int, Result]]:
    """Index and result of each piece of work, as they are done."""
    if isinstance(where, Slurm):
        yield from _through_slurm(work, where)
    elif where < 1:
        raise ConfigError(f"workers = {where}: must be at least 1")
    elif where == 1 or len(work) < 2:
        yield from ((index, one()) for index, one in enumerate(work))
    else:
        yield from _on_cores(work, where)


def _on_cores(work: Sequence[_Work[Result]], workers: int) -> Iterator[tuple[int, Result]]:
    compile_for(one.case.policy for one in work)
    # Fresh processes: a forked one would inherit the locks of threads that it does not have.
    with ProcessPoolExecutor(min(workers, len(work)), mp_context=get_context("spawn")) as pool:
        futures: dict[Future[Result], int] = {pool.submit(one): index for index, one in enumerate(work)}
        try:
            for future in as_completed(futures):
                yield futures[future], _result(work[futures[future]].case, future.result)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _through_slurm(work: Sequence[_Work[Result]], slurm: Slurm) -> Iterator[tuple[int, Result]]:
    import submitit  # only who has a cluster needs it

    compile_for(one.case.policy for one in work)
    executor = submitit.AutoExecutor(slurm.folder, cluster=slurm.cluster)
    executor.update_parameters(name="omfs-sweep", timeout_min=slurm.minutes, mem_gb=slurm.memory_gb, cpus_per_task=1)
    if slurm.cluster == "slurm":
        executor.update_parameters(slurm_partition=slurm.partition, slurm_array_parallelism=slurm.at_once)
    with executor.batch():
        jobs = [executor.submit(one) for one in work]
    places = {job: index for index, job in enumerate(jobs)}
    try:
        for job in submitit.helpers.as_completed(jobs, poll_frequency=_POLL):
            yield places[job], _result(work[places[job]].case, job.result)
    except BaseException:
        for job in jobs:
            job.cancel()
        raise


def _result(case: Case, get: Callable[[], Got]) -> Got:
    """What is got for a case; SweepError that names it, whatever goes wrong."""
    try:
        return get()
    except SweepError:
        raise
    except Exception as error:
        raise _failed(case, error) from error


def _failed(case: Case, error: Exception) -> SweepError:
    why = str(error) if isinstance(error, OmfsError) else f"{type(error).__name__}: {error}"
    return SweepError(f"{case.name} under {case.policy}: {why}")
