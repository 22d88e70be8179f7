"""When the waiting jobs of a snapshot will start: its queue in the order of the planner's pass. Pure.

What starts now by the plan comes first, then the preemptors of its preemptions (their victims come back as preempted
jobs), urgent jobs, real-time jobs that are due, preempted jobs, jobs within their account's entitlement, and all
others, each in Slurm's order. Non-preemptible jobs also need room in their account's entitlement, the tasks of an array
with a throttle a place in it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from omfs_daemon.cluster.holds import is_held, is_held_by_us
from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.snapshot import PreemptionHistory, Snapshot
from omfs_daemon.policy.arrays.job_arrays import cpus_held, task_refs
from omfs_daemon.policy.arrays.node_arrays import NodeArrays
from omfs_daemon.policy.plan import Plan
from omfs_daemon.policy.realtime_standing import is_first_on_idle
from omfs_daemon.policy.rules import laws
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.policy.rules.job_kinds import JobKind, JobKinds
from omfs_daemon.policy.rules.queue_order import queue_order
from omfs_daemon.predict.prediction import Prediction
from omfs_daemon.predict.run_draws import run_times
from omfs_daemon.predict.start_times import (
    QueuedJob,
    RunningUse,
    StartProbe,
    StartQuantiles,
    quantiles,
    start_times,
)
from omfs_daemon.starts.own_nodes import starts_on_own_nodes
from omfs_daemon.starts.track_record import widened

DRAWS = 100
MOST_QUEUED = 20_000
"""Waiting jobs and tasks that are placed at most; nothing is said of those behind."""
_PREEMPTED_WITHIN = 30.0
"""Seconds that victims are taken to need: an estimate of a start is no better."""
_TURNAROUND = 4.0
"""Seconds at most from the end of a job until the next one runs there, as drawn: epilog and Slurm's pass. On a private
Slurm with sched_interval=1 it was one to two, and none of four starts was before its p90 without this."""
_SHOWN = 3

Predict = Callable[[Sequence[Job]], Sequence[Prediction]]


@dataclass(frozen=True, slots=True)
class StartEstimates:
    """Of one snapshot; ``taken``: its time. ``order``: references of jobs and tasks as they were placed. ``late``: how
    many times their p50 waits have taken (``track_record``)."""

    taken: float
    order: Sequence[str] = ()
    starts: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, DRAWS)))
    running: Sequence[tuple[Job, frozenset[int], float]] = ()
    pools: Mapping[str, frozenset[int]] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    late: float = 1.0

    def of(self, ref: str) -> StartQuantiles | None:
        """Seconds from ``taken``; None if the job was not placed."""
        row = self.rows.get(ref)
        return None if row is None else widened(quantiles(self.starts[row]), self.late)

    def waits_for(self, ref: str) -> list[Job]:
        """The running jobs that hold most of what the job needs until it can start, the largest first."""
        found, mine = self.of(ref), self.pools.get(ref, frozenset())
        if found is None or found.p50 <= 0:
            return []
        ends = [(job, left) for job, pools, left in self.running if left <= found.p50 and not mine.isdisjoint(pools)]
        return [job for job, _ in sorted(ends, key=lambda one: (-cpus_held(one[0]), -one[1], one[0].id))[:_SHOWN]]


class ProbedStart(NamedTuple):
    """Of a job that is not there, seconds from the snapshot's time: its start, and its end. ``run``: how long it is
    predicted to run; ``draws``: the starts that ``start`` is of. inf: never, or not within 35 days."""

    start: StartQuantiles
    end: StartQuantiles
    run: Prediction
    draws: NDArray[np.float64]


def start_estimates(
    snapshot: Snapshot, plan: Plan, history: PreemptionHistory, rules: Rules, predict: Predict, seed: int
) -> StartEstimates:
    """``predict``: the run times of jobs; ``seed``: of the draws."""
    return _Estimate(snapshot, plan, history, rules).made(predict, seed)[0]


def probed_starts(
    snapshot: Snapshot,
    plan: Plan,
    history: PreemptionHistory,
    rules: Rules,
    predict: Predict,
    seed: int,
    probes: Sequence[Job],
) -> list[ProbedStart]:
    """Likewise when each of these jobs would start, were it submitted now, alone: behind all that go first or, if it
    fits into its account's entitlement, behind all that do, or behind everything."""
    return _Estimate(snapshot, plan, history, rules, probes).made(predict, seed)[1]


class _Estimate:
    """The pools of units, by what they stand for."""

    def __init__(
        self, snapshot: Snapshot, plan: Plan, history: PreemptionHistory, rules: Rules, probes: Sequence[Job] = ()
    ) -> None:
        self._snapshot, self._plan, self._history = snapshot, plan, history
        self._probes = probes
        self._kinds = JobKinds(rules)
        self._kind_of: dict[int, JobKind] = {}
        self._nodes = NodeArrays(snapshot.nodes, snapshot.partitions)
        self._rules = rules
        jobs = snapshot.jobs.values()
        self._victims = {victim.ref for planned in plan.preemptions for victim in planned.victims}
        self._victims.update(ref for one in history.under_way for ref in one.victims)
        self._running = [job for job in jobs if job.runs and cpus_held(job)]
        self._waiting = [job for job in jobs if self._may_be_placed(job)]
        self._part_of_node = self._parts()
        self._pools: dict[tuple[str, object], int] = {}
        self._totals: list[int] = []
        self._cpus = int(self._nodes.cpus[self._nodes.up].sum())
        self._entitled = rules.tree.entitled(self._cpus)
        self._make_pools()

    def _may_be_placed(self, job: Job) -> bool:
        if job.state is JobState.SUSPENDED:
            return job.ref in self._history.preempted
        is_free = not is_held(job) or is_held_by_us(job)
        return job.state is JobState.PENDING and is_free and job.request.cpus > 0 and job.eligible != inf

    def _parts(self) -> NDArray[np.int64]:
        """By node, a number that it shares with all nodes that serve the same requests, directly or through others.
        A node that a job excludes stays with the others, which most jobs of their partition can use as well."""
        parts = np.arange(len(self._nodes.names), dtype=np.int64)
        every = (job.request for job in (*self._waiting, *self._probes))
        requests = {(one.partitions, one.features): one for one in every}
        for request in requests.values():
            anywhere = replace(request, excluded_nodes=frozenset())
            for suitable in self._nodes.suitable(self._nodes.normalized(anywhere)):
                touched = np.unique(parts[suitable.nodes])
                if len(touched) > 1:
                    parts[np.isin(parts, touched)] = touched[0]
        return parts

    def _make_pools(self) -> None:
        up = self._nodes.up
        for part in np.unique(self._part_of_node[up]).tolist():
            self._add_pool("nodes", part, int(self._nodes.cpus[up & (self._part_of_node == part)].sum()))
        for name, counts in self._nodes.gres.items():
            if ":" not in name:
                self._add_pool("gres", name, int(counts[up].sum()))
        for entity in self._rules.tree.entities:
            self._add_pool("entitled", entity.index, self._entitled[entity.index])
        for job in self._waiting:
            if job.array_throttle and ("array", job.array_id) not in self._pools:
                self._add_pool("array", job.array_id, job.array_throttle)

    def _add_pool(self, kind: str, what: object, total: int) -> None:
        self._pools[kind, what] = len(self._totals)
        self._totals.append(total)

    def made(self, predict: Predict, seed: int) -> tuple[StartEstimates, list[ProbedStart]]:
        order, behind = self._order()
        jobs = list({id(job): job for job, _ in order}.values())
        drawn_of = {id(job): at for at, job in enumerate(jobs)}
        every = [*jobs, *self._running, *self._probes]
        predictions = predict(every)
        limits = [job.time_limit for job in every]
        elapsed = [job.run_time if job.runs or job.state is JobState.SUSPENDED else 0.0 for job in every]
        runs = run_times(predictions, limits, elapsed, DRAWS, seed)
        random = np.random.default_rng(seed + 1)
        runs += random.uniform(0.0, _TURNAROUND, runs.shape)
        used, held = [], []
        for job, left, middle in zip(self._running, *self._left(runs[len(jobs) :]), strict=True):
            units = self._held_units(job)
            used.append(RunningUse(tuple(units.items()), left))
            held.append((job, frozenset(units), middle))
        queue, pools, refs = [], dict[str, frozenset[int]](), []
        placed, places = list[Job](), list[int]()
        seen: set[int] = set()
        for place, (job, ref) in enumerate(order):
            at = drawn_of[id(job)]
            run = runs[at] if id(job) not in seen else random.permutation(runs[at])  # tasks run independently
            seen.add(id(job))
            needs = self._needs(job)
            if needs is None:
                continue
            ready = 0.0 if job.eligible is None else max(0.0, job.eligible - self._plan.now)
            if job.state is JobState.SUSPENDED or job.ref in self._victims:
                run = np.maximum(run - elapsed[at], 1.0)
            queue.append(QueuedJob(needs, run, ready))
            placed.append(job)
            places.append(place)
            pools[ref] = frozenset(pool for pool, _ in needs)
            refs.append(ref)
        probe_runs = runs[len(jobs) + len(self._running) :]
        probes = [
            StartProbe(QueuedJob(self._needs(job) or self._nothing_has_it(), run), bisect_left(places, bound))
            for job, run, bound in zip(self._probes, probe_runs, behind, strict=True)
        ]
        starts = start_times(self._totals, used, queue, DRAWS, probes)
        rows = {ref: row for row, ref in enumerate(refs)}
        for job, ref in order:  # an array is known by its first task
            for other in (job.ref, str(job.id)):
                if ref in rows and other not in rows:
                    rows[other], pools[other] = rows[ref], pools[ref]
        own = starts_on_own_nodes(
            self._nodes,
            self._part_of_node,
            [(job, use.left) for job, use in zip(self._running, used, strict=True)],
            list(zip(placed, queue, strict=True)),
            list(zip(self._probes, probes, strict=True)),
            DRAWS,
        )
        begins = np.maximum(starts[len(queue) :], own)
        runs_of_probes = predictions[len(predictions) - len(probes) :]
        probed = [
            ProbedStart(quantiles(begin), quantiles(begin + probe.job.run), run, begin)
            for begin, probe, run in zip(begins, probes, runs_of_probes, strict=True)
        ]
        return StartEstimates(self._snapshot.taken, refs, starts[: len(queue)], held, pools, rows), probed

    def _left(self, runs: NDArray[np.float64]) -> tuple[NDArray[np.float64], list[float]]:
        """Seconds that the running jobs will run still, by draw, and their medians; ``runs``: those in all, by draw."""
        elapsed = np.array([job.run_time for job in self._running], dtype=np.float64)
        left = np.maximum(runs[: len(elapsed)] - elapsed[:, None], 1.0)
        left[[job.ref in self._victims for job in self._running]] = _PREEMPTED_WITHIN
        return left, np.median(left, axis=1).tolist()

    def _nothing_has_it(self) -> tuple[tuple[int, int], ...]:
        """What no pool has enough of."""
        return ((0, self._totals[0] + 1),)

    # -- what jobs need --
    def _kind(self, job: Job) -> JobKind:
        found = self._kind_of.get(id(job))  # of the snapshot, which outlives this
        if found is None:
            found = self._kind_of[id(job)] = self._kinds.of(job)
        return found

    def _held_units(self, job: Job) -> dict[int, int]:
        units: dict[int, int] = {}
        for node, cpus, _ in job.allocations:
            at = self._nodes.index.get(node)
            if at is not None and self._nodes.up[at]:
                pool = self._pools["nodes", int(self._part_of_node[at])]
                units[pool] = units.get(pool, 0) + cpus
        self._add_gres(job, max(1, len(job.allocations)), units)
        kind = self._kind(job)
        if kind.non_preemptible and kind.counts:
            self._add_entitled(job, cpus_held(job), units)
        if ("array", job.array_id) in self._pools:
            units[self._pools["array", job.array_id]] = 1
        return units

    def _needs(self, job: Job) -> tuple[tuple[int, int], ...] | None:
        """None if no node suits it."""
        if job.state is JobState.SUSPENDED:
            return tuple(self._held_units(job).items())
        request = self._nodes.normalized(job.request)
        suitable = next((one for one in self._nodes.suitable(request) if len(one.nodes)), None)
        if suitable is None:
            return None
        cpus = self._nodes.cpus_of(request)
        units = {self._pools["nodes", int(self._part_of_node[suitable.nodes[0]])]: cpus}
        self._add_gres(job, request.nodes, units)
        kind = self._kind(job)
        if kind.non_preemptible and kind.counts:
            self._add_entitled(job, cpus, units)
        if job.array_throttle:
            units[self._pools["array", job.array_id]] = 1
        return tuple(units.items())

    def _add_gres(self, job: Job, nodes: int, units: dict[int, int]) -> None:
        for name, count in job.request.gres:
            pool = self._pools.get(("gres", name.partition(":")[0]))
            if pool is not None and count:
                units[pool] = units.get(pool, 0) + count * nodes

    def _add_entitled(self, job: Job, cpus: int, units: dict[int, int]) -> None:
        """An entitlement to the whole cluster keeps nobody waiting."""
        for index in self._kind(job).leaf.path:
            if self._entitled[index] < self._cpus:
                units[self._pools["entitled", index]] = cpus

    # -- the order --
    def _order(self) -> tuple[list[tuple[Job, str]], list[int]]:
        """Each job, or each task of an array, that waits, and victims, which will; and behind how many of these each
        probe would come."""
        plan = self._plan
        firsts: Iterable[Iterable[str]] = (
            (start.ref for start in plan.starts),
            (resume.ref for resume in plan.resumes),
            (one.preemptor for one in self._history.under_way),
            (planned.preemptor for planned in plan.preemptions),
            (start.ref for start in plan.promises),
            plan.urgent,
            (one.ref for one in plan.realtime if one.is_due),
            (one.ref for one in plan.realtime if is_first_on_idle(one.limit, self._kinds.rules)),
        )
        rank: dict[str, int] = {}
        for refs in firsts:
            for ref in refs:
                rank.setdefault(ref, len(rank))
        by_queue = [self._waiting[at] for at in queue_order(self._waiting)]
        victims = [job for job in self._running if job.ref in self._victims]
        entries = [(job, ref) for job in [*victims, *by_queue] for ref in _some_tasks(job)][:MOST_QUEUED]
        is_entitled = self._entitled_entries(entries)
        behind = len(rank)

        def key(at: int) -> tuple[int, int]:
            job, ref = entries[at]
            first = min(rank.get(ref, behind), rank.get(job.ref, behind))
            if first < behind:
                return first, at
            is_preempted = ref in self._history.preempted or job.ref in self._victims
            return behind + (0 if is_preempted else 1 if is_entitled[at] else 2), at

        keys = sorted(key(at) for at in range(len(entries)))
        bounds = []
        for job, fits in zip(self._probes, is_entitled[len(entries) :], strict=True):
            last = behind - 1 if self._is_first(job) else behind + (1 if fits else 2)
            bounds.append(bisect_right(keys, last, key=lambda one: one[0]))
        return [entries[at] for _, at in keys], bounds

    def _is_first(self, job: Job) -> bool:
        """Whether it would come before all regular jobs."""
        job_class = self._kind(job).job_class
        is_realtime = job_class.realtime is not None
        return job_class.urgent or (is_realtime and is_first_on_idle(job.time_limit, self._kinds.rules))

    def _entitled_entries(self, entries: Sequence[tuple[Job, str]]) -> list[bool]:
        """Which of them fit into what their account uses less than it is entitled to; then which probes would."""
        used = [0] * len(self._entitled)
        for job in self._running:
            if job.ref not in self._victims and self._kind(job).counts:
                laws.add_cpus(used, self._kind(job).leaf.path, cpus_held(job))
        found = []
        for job, _ in entries:
            path = self._kind(job).leaf.path
            fits = job.request.cpus <= laws.room(used, self._entitled, path)
            if fits:
                laws.add_cpus(used, path, job.request.cpus)
            found.append(fits)
        paths = ((job.request.cpus, self._kind(job).leaf.path) for job in self._probes)
        return [*found, *(cpus <= laws.room(used, self._entitled, path) for cpus, path in paths)]


_MOST_TASKS = 2000


def _some_tasks(job: Job) -> list[str]:
    """Of an array the first tasks: more of one would not start before their estimates are made anew."""
    return task_refs(job)[:_MOST_TASKS]


def at(taken: float, seconds: float) -> float | None:
    """The time, None for never."""
    return taken + seconds if isfinite(seconds) else None
