"""OMFS: lend what is idle to anybody, take it back by stopping (Zvi & Oren; ``omfs_daemon/policy``)."""

from __future__ import annotations

import numpy as np

from omfs_daemon.policy.accounts import AccountTree, sides
from omfs_daemon.policy.rules import Rules
from omfs_daemon.simulate.by_plan.engine import by_plan
from omfs_daemon.simulate.kernels import omfs as kernel
from omfs_daemon.simulate.kernels.omfs_queue import no_jobs
from omfs_daemon.simulate.kernels.omfs_state import Cast, Groups, State, Terms, Tree
from omfs_daemon.simulate.omfs_case import Case, Trail, case_of, outcome_of
from omfs_daemon.simulate.outcome import Outcome, Segments
from omfs_daemon.simulate.setting import Setting
from omfs_daemon.simulate.workload import Ints

URGENT, HELD, FIXED, REQUEUE, SUSPEND = range(5)
"""Kinds of waiting jobs; those of one kind, leaf and size are alike."""


def omfs(setting: Setting) -> Outcome:
    """A counter of CPUs is simulated by the kernel, a machine of nodes by the daemon's planner."""
    if setting.machine.nodes:
        return by_plan(setting)
    case = case_of(setting)
    return outcome_of(setting, case, trail_by_kernel(setting, case))


def trail_by_kernel(setting: Setting, case: Case) -> Trail:
    """What becomes of the jobs on a counter of CPUs."""
    tree = _tree(setting.rules.tree, case.entitled)
    cast, groups = _cast(setting, case, len(case.entitled))
    terms = _terms(setting.rules, case, setting.machine.cpus)
    state = _state(len(cast.cpus), len(case.entitled), terms)
    (job, begin, until, use), (at, victim, beneficiary) = kernel.omfs(cast, tree, terms, groups, state, case.rejected)
    segments = Segments(job, begin, until, use)
    return Trail(state.start, state.finish, state.stops, segments, at, victim, beneficiary)


def _terms(rules: Rules, case: Case, cpus: int) -> Terms:
    return Terms(
        cpus=cpus,
        quantum=float(rules.quantum),
        stops_per_hour=rules.max_stops_per_hour,
        stops_per_pass=rules.max_stops_per_cycle,
        urgent_may_take_entitled=bool(rules.urgent_may_take_entitled),
        latency=float(case.costs.latency),
        area=float(case.costs.area),
    )


def _tree(tree: AccountTree, entitled: Ints) -> Tree:
    """Paths and sides as matrices; the last entity, which owns nothing, is nobody."""
    entities = tree.entities
    count, levels = len(entities), max(len(entity.path) for entity in entities)
    paths = np.full((count + 1, levels), count, dtype=np.int64)
    depth = np.zeros(count + 1, dtype=np.int64)
    top = np.full((count, count), -1, dtype=np.int64)
    parted = np.zeros((count, count), dtype=np.int64)
    leaves = [entity for entity in entities if entity.is_leaf]
    for entity in entities:
        depth[entity.index] = len(entity.path)
        paths[entity.index, : len(entity.path)] = entity.path
    for taker in leaves:
        for giver in leaves:
            both = sides(taker.path, giver.path)
            top[taker.index, giver.index], parted[taker.index, giver.index] = both.taker, len(both.givers)
    return Tree(
        entitled=np.append(entitled, 0),
        paths=paths,
        depth=depth,
        top=top,
        parted=parted,
        leaves=np.array([leaf.index for leaf in leaves], dtype=np.int64),
    )


def _cast(setting: Setting, case: Case, entities: int) -> tuple[Cast, Groups]:
    urgent, jobs, costs = setting.workload.urgent, case.jobs, case.costs
    kind = np.select([urgent, case.fixed, costs.pinned], [URGENT, FIXED, SUSPEND], REQUEUE)
    alike = np.stack((case.leaf, jobs.cpus, kind), axis=1)
    held = alike[case.fixed].copy()
    held[:, 2] = HELD
    patterns, numbers = np.unique(np.concatenate((alike, held)), axis=0, return_inverse=True)
    numbers = numbers.reshape(-1).astype(np.int64)
    held_group = np.full(len(urgent), -1, dtype=np.int64)
    held_group[case.fixed] = numbers[len(urgent) :]
    cast = Cast(
        submit=jobs.submit,
        cpus=jobs.cpus,
        run=np.ascontiguousarray(jobs.run),
        estimate=jobs.estimate,
        leaf=case.leaf,
        urgent=urgent,
        fixed=case.fixed,
        stoppable=costs.stoppable,
        keeps=costs.keeps,
        pinned=costs.pinned,
        stop=costs.stop,
        resume=costs.resume,
        queueing=costs.queueing,
        size=costs.size,
        group=numbers[: len(urgent)],
        held_group=held_group,
    )
    return cast, _groups(patterns, entities)


def _groups(patterns: Ints, entities: int) -> Groups:
    """``patterns``: leaf, CPUs and kind of each group, in ascending order."""
    leaf, cpus, kind = (np.ascontiguousarray(column, dtype=np.int64) for column in patterns.T)
    regular = np.flatnonzero(kind != URGENT)
    regular = regular[np.lexsort((cpus[regular], leaf[regular]))]

    def blank() -> Ints:
        return np.full(len(leaf), -1, dtype=np.int64)

    return Groups(
        cpus=cpus,
        leaf=leaf,
        of_leaf=regular,
        first=np.searchsorted(leaf[regular], np.arange(entities + 1)).astype(np.int64),
        urgent=np.flatnonzero(kind == URGENT),
        held=np.flatnonzero(kind == HELD),
        head=blank(),
        tail=blank(),
        beyond=blank(),
        shut=blank(),
    )


def _state(jobs: int, entities: int, terms: Terms) -> State:
    """Nothing has happened yet."""

    def none() -> Ints:
        return np.full(jobs, -1, dtype=np.int64)

    def zeros(length: int) -> Ints:
        return np.zeros(length, dtype=np.int64)

    count = zeros(11)
    count[0], count[5] = terms.cpus, -1
    return State(
        state=zeros(jobs),
        before=none(),
        behind=none(),
        done=np.zeros(jobs),
        since=np.full(jobs, np.nan),
        runs_since=np.full(jobs, np.nan),
        works_from=np.full(jobs, np.inf),
        turn=zeros(jobs),
        started_in=none(),
        start=np.full(jobs, np.nan),
        finish=np.full(jobs, np.nan),
        stops=zeros(jobs),
        last_stop=none(),
        spared=none(),
        is_held=np.zeros(jobs, dtype=np.bool_),
        earlier=none(),
        later=none(),
        first_victim=none(),
        next_victim=none(),
        beneficiary=none(),
        left=zeros(jobs),
        number=none(),
        signal=np.full(jobs, np.nan),
        used=zeros(entities + 1),
        fixed=zeros(entities + 1),
        pass_used=zeros(entities + 1),
        pass_fixed=zeros(entities + 1),
        room=zeros(entities + 1),
        waiting_at=zeros(entities + 1),
        in_vain=np.zeros((2, entities + 1), dtype=np.int64),
        line=no_jobs(jobs),
        heads=no_jobs(jobs),
        pool=none(),
        mature=np.zeros(jobs, dtype=np.bool_),
        gone=np.zeros(jobs, dtype=np.bool_),
        count=count,
        area=np.array([terms.area]),
    )
