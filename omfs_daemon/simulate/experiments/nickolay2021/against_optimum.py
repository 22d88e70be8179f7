"""Policies beside the optimum in hindsight, on small logs (Nickolay et al. 2021, section 7.3, Table 3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import nan
from typing import NamedTuple

import numpy as np

from omfs_daemon.policy.rules.checkpoint_laws import ACT_AT
from omfs_daemon.policy.rules.realtime_terms import JobSize, RealtimeTerms
from omfs_daemon.policy.rules.slowdown_laws import SHORT_SECONDS
from omfs_daemon.simulate.engine.conventions import Conventions, UserLimits
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.engine.places import layout_named
from omfs_daemon.simulate.engine.realtime_setting import RealtimeSetting
from omfs_daemon.simulate.engine.scenario import Machine, Scenario
from omfs_daemon.simulate.experiments.nickolay2021.small_log_maker import (
    LIMIT_FACTOR,
    MEMORY_PER_CPU,
    SMALL_UNIT,
    make_small_log,
)
from omfs_daemon.simulate.optimum.instance import SmallLog
from omfs_daemon.simulate.workload.workload import workload

ON_SMALL_LOGS = ("wcjs", "replan")
"""The policies that are measured: the prefixes of their columns."""
_NARROW = 4096


@dataclass(frozen=True, slots=True)
class OptimumRow:
    """Mean slowdowns of one log; status, bound: of the optimum; ms: that the searches for a plan took."""

    seed: int
    status: str
    optimum_batch: float
    optimum_realtime: float
    bound: float
    wcjs_batch: float
    wcjs_realtime: float
    replan_batch: float
    replan_realtime: float
    replan_ms_p50: float
    replan_ms_p99: float


class MeanSlowdowns(NamedTuple):
    batch: float
    realtime: float


def small_log_scenario(log: SmallLog, exact: bool = False) -> Scenario:
    """Limits are 1.5 times the run time, or with ``exact`` the run times themselves; narrow is up to 4,096 nodes, as on
    the whole of Mira."""
    jobs = workload(
        f"log {log.name}",
        np.array([job.submit for job in log.jobs], dtype=np.float64),
        np.array([job.size for job in log.jobs], dtype=np.int64),
        np.array([job.run for job in log.jobs], dtype=np.float64),
        job_id=np.array([job.job_id for job in log.jobs], dtype=np.int64),
        limit=np.array([LIMIT_FACTOR * job.run for job in log.jobs]),
        realtime=np.array([job.realtime for job in log.jobs]),
    )
    setting = RealtimeSetting(
        layout=layout_named(f"aligned:{SMALL_UNIT}", log.cpus),
        shared_file_system=False,
        memory_per_cpu=MEMORY_PER_CPU,
        terms=RealtimeTerms(act_at=ACT_AT),
        sizes=JobSize(100 * _NARROW / log.cpus, SHORT_SECONDS),
    )
    return Scenario(jobs, Machine(log.cpus), Conventions(None if exact else UserLimits(), kill=False), realtime=setting)


def mean_slowdowns(outcome: Outcome) -> MeanSlowdowns:
    """Without a bound (Definition 1)."""
    slowdown = (outcome.finish - outcome.workload.submit) / outcome.workload.run
    realtime = outcome.workload.realtime
    return MeanSlowdowns(float(slowdown[~realtime].mean()), float(slowdown[realtime].mean()))


def optimum_rows(
    seeds: Sequence[int], seconds: float, clock: Callable[[], float], progress: Callable[[int], None]
) -> Iterator[OptimumRow]:
    """One a log; at most so many seconds for each optimum. Logs that cannot hold 1.2 have the status infeasible."""
    # These load slowly, and the solver is an extra.
    from omfs_daemon.simulate.optimum.solve import OptimumOptions, find_optimum
    from omfs_daemon.simulate.policies.realtime_replan import timed_replan
    from omfs_daemon.simulate.policies.wcjs import wcjs

    options = OptimumOptions(seconds=seconds)
    for done, seed in enumerate(seeds):
        log = make_small_log(seed)
        best = find_optimum(log, options, clock)
        held = best.limit is not None and best.limit <= options.limit
        scenario = small_log_scenario(log)
        replanned = timed_replan(scenario, False, clock)
        under_wcjs, under_replan = mean_slowdowns(wcjs(scenario)), mean_slowdowns(replanned.outcome)
        middle, most = 1e3 * np.quantile(replanned.seconds, (0.5, 0.99))
        yield OptimumRow(
            seed=seed,
            status=best.status if held else "infeasible",
            optimum_batch=_number(best.batch_sd),
            optimum_realtime=_number(best.realtime_sd),
            bound=_number(best.bound),
            wcjs_batch=under_wcjs.batch,
            wcjs_realtime=under_wcjs.realtime,
            replan_batch=under_replan.batch,
            replan_realtime=under_replan.realtime,
            replan_ms_p50=float(middle),
            replan_ms_p99=float(most),
        )
        progress(done + 1)


def _number(figure: float | None) -> float:
    return nan if figure is None else figure
