"""Many simulations at once: on this machine's cores, or as a Slurm job array.

Simulations share nothing, so each is one unit of work; results are in the order of the cases, not of completion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import partial
from io import StringIO
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from omfs_daemon.errors import ConfigError, GatewayError, OmfsError
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.engine.places import layout_named
from omfs_daemon.simulate.engine.realtime_setting import RealtimeSetting
from omfs_daemon.simulate.engine.scenario import Machine, Scenario
from omfs_daemon.simulate.policies.policy_table import policy_named
from omfs_daemon.simulate.workload.workload import workload

if TYPE_CHECKING:
    import submitit

# Seconds between polls of submitit, which itself polls Slurm less often.
_POLL = 1.0

Result = TypeVar("Result")
Found = TypeVar("Found")

# Takes how many cases are done, how many there are, and the name of the one that was done last.
Progress = Callable[[int, int, str], None]


class SweepError(OmfsError):
    """A simulation of a sweep failed; the text names it."""


@dataclass(frozen=True, slots=True)
class SweepCase:
    """One simulation of a sweep. ``name`` is for people, ``policy`` as typed."""

    name: str
    policy: str
    scenario: Scenario


@dataclass(frozen=True, slots=True)
class SlurmArray:
    """Where a job array runs. ``folder`` must be visible to all nodes; submitit keeps its files there.

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
    """A case and the function of its outcome, as sent to a worker."""

    case: SweepCase
    summarize: Callable[[Outcome], Result]

    def __call__(self) -> Result:
        try:
            return self.summarize(policy_named(self.case.policy).simulate(self.case.scenario))
        except Exception as error:
            raise _failed(self.case, error) from error


def run_all(
    cases: Sequence[SweepCase],
    summarize: Callable[[Outcome], Result],
    where: int | SlurmArray = 1,
    progress: Progress | None = None,
) -> list[Result]:
    """What ``summarize`` makes of each case's outcome, in the order of the cases; SweepError for the first that fails.

    ``where``: so many processes of this machine (1: this one), or Slurm. ``summarize`` is done by the worker, so that
    little is transferred; it must be a module-level function.
    """
    for case in cases:
        _result(case, partial(policy_named, case.policy))
    work = [_Work(case, summarize) for case in cases]
    results: dict[int, Result] = {}
    for index, result in _done(work, where):
        results[index] = result
        if progress is not None:
            progress(len(results), len(cases), cases[index].name)
    return [results[index] for index in range(len(cases))]


def compile_for(policies: Iterable[str]) -> None:
    """Compile what these policies need into numba's cache, so that workers only load it."""
    submit, cpus, run = np.zeros(2), np.ones(2, dtype=np.int64), np.ones(2)
    jobs = workload("two jobs", submit, cpus, run, urgent=np.array([False, True]))
    # One policy needs places; the others are compiled alike with and without any.
    tiny = Scenario(jobs, Machine(1), realtime=RealtimeSetting(layout=layout_named("aligned:1", 1)))
    for name in dict.fromkeys(policies):
        policy_named(name).simulate(tiny)


def _done(work: Sequence[_Work[Result]], where: int | SlurmArray) -> Iterator[tuple[int, Result]]:
    """Index and result of each piece of work, as they are done."""
    if isinstance(where, SlurmArray):
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


def _through_slurm(work: Sequence[_Work[Result]], slurm: SlurmArray) -> Iterator[tuple[int, Result]]:
    import submitit  # only needed with a cluster

    compile_for(one.case.policy for one in work)
    jobs = _submitted(work, slurm)
    places = {job: index for index, job in enumerate(jobs)}
    try:
        for job in submitit.helpers.as_completed(jobs, poll_frequency=_POLL):
            yield places[job], _result(work[places[job]].case, job.result)
    except BaseException:
        for job in jobs:
            job.cancel()
        raise


def _submitted(work: Sequence[_Work[Result]], slurm: SlurmArray) -> list[submitit.Job[Result]]:
    """One job array; GatewayError with sbatch's last line if Slurm does not take it."""
    import submitit

    try:
        # submitit prints there what its error says as well.
        with redirect_stderr(StringIO()):
            executor = submitit.AutoExecutor(slurm.folder, cluster=slurm.cluster)
            executor.update_parameters(
                name="omfs-sweep", timeout_min=slurm.minutes, mem_gb=slurm.memory_gb, cpus_per_task=1
            )
            if slurm.cluster == "slurm":
                executor.update_parameters(slurm_partition=slurm.partition, slurm_array_parallelism=slurm.at_once)
            with executor.batch():
                return [executor.submit(one) for one in work]
    except (RuntimeError, OSError) as error:
        said = str(error).strip().splitlines() or ["no message"]
        raise GatewayError(f"partition {slurm.partition}: Slurm took no job: {said[-1]}") from error


def _result(case: SweepCase, get: Callable[[], Found]) -> Found:
    """The result of a call for a case; any error becomes a SweepError that names the case."""
    try:
        return get()
    except SweepError:
        raise
    except Exception as error:
        raise _failed(case, error) from error


def _failed(case: SweepCase, error: Exception) -> SweepError:
    why = str(error) if isinstance(error, OmfsError) else f"{type(error).__name__}: {error}"
    return SweepError(f"{case.name} under {case.policy}: {why}")
