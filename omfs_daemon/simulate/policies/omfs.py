"""OMFS: lend idle CPUs to anybody, take them back by preemption (Zvi & Oren; ``omfs_daemon/policy``)."""

from __future__ import annotations

import numpy as np

from omfs_daemon.accounting.arrays import Ints
from omfs_daemon.cluster.accounts import AccountTree
from omfs_daemon.policy.rules.account_paths import path_sides
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.simulate.engine.omfs_case import OmfsCase, Trail, case_of, outcome_of
from omfs_daemon.simulate.engine.outcome import Outcome, Segments
from omfs_daemon.simulate.engine.planner_engine import planner_engine
from omfs_daemon.simulate.engine.scenario import Scenario
from omfs_daemon.simulate.kernels.compiling import Records
from omfs_daemon.simulate.kernels.omfs.job_queue import no_jobs
from omfs_daemon.simulate.kernels.omfs.kernel_state import (
    GROUP,
    IDLE,
    JOB,
    LAST_STARTED,
    Groups,
    KernelState,
    Terms,
    Tree,
)
from omfs_daemon.simulate.kernels.omfs.omfs_kernel import omfs_kernel
from omfs_daemon.simulate.kernels.run_history import RunHistory
from omfs_daemon.simulate.policies.run_predictor import learned_in, predicted_of

URGENT, HELD, NON_PREEMPTIBLE, REQUEUE, SUSPEND = range(5)
"""Kinds of waiting jobs; those of one kind, leaf and size are alike."""


JOB_KNOWN = (
    "submit", "cpus", "run", "estimate", "preemption", "resume", "queueing", "size",
    "leaf", "urgent", "non_preemptible", "preemptible", "keeps", "pinned", "rejected",
)  # fmt: skip
"""What is known of a job from the start."""


def omfs(scenario: Scenario) -> Outcome:
    """A counter of CPUs is simulated by the kernel, a machine of nodes by the daemon's planner."""
    if scenario.machine.nodes:
        return planner_engine(scenario)
    case = case_of(scenario)
    return outcome_of(scenario, case, trail_by_kernel(scenario, case))


def trail_by_kernel(scenario: Scenario, case: OmfsCase) -> Trail:
    """What becomes of the jobs on a counter of CPUs."""
    tree = _tree(scenario.rules.tree, case.entitled)
    jobs, groups = _jobs(scenario, case)
    terms = _terms(scenario.rules, case, scenario.machine.cpus)
    state = _state(len(jobs), len(case.entitled), terms, learned_in(scenario))
    (job, begin, until, use), (at, victim, preemptor) = omfs_kernel(jobs, tree, terms, groups, state)
    start, finish, preemptions = (np.ascontiguousarray(jobs[name]) for name in ("start", "finish", "preemptions"))
    segments, estimate = Segments(job, begin, until, use), predicted_of(jobs, scenario)
    return Trail(start, finish, preemptions, segments, at, victim, preemptor, estimate)


def _terms(rules: Rules, case: OmfsCase, cpus: int) -> Terms:
    return Terms(
        cpus=cpus,
        quantum=float(rules.quantum),
        preemptions_per_hour=rules.max_preemptions_per_hour,
        preemptions_per_pass=rules.max_preemptions_per_cycle,
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
            both = path_sides(taker.path, giver.path)
            top[taker.index, giver.index], parted[taker.index, giver.index] = both.taker, len(both.givers)
    return Tree(
        entitled=np.append(entitled, 0),
        paths=paths,
        depth=depth,
        top=top,
        parted=parted,
        leaves=np.array([leaf.index for leaf in leaves], dtype=np.int64),
    )


def _jobs(scenario: Scenario, case: OmfsCase) -> tuple[Records, Groups]:
    """The jobs, none of which has come yet, and the groups in which they will wait."""
    urgent, costs = scenario.workload.urgent, case.costs
    kind = np.select([urgent, case.non_preemptible, costs.pinned], [URGENT, NON_PREEMPTIBLE, SUSPEND], REQUEUE)
    alike = np.stack((case.leaf, case.jobs.cpus, kind), axis=1)
    held = alike[case.non_preemptible].copy()
    held[:, 2] = HELD
    patterns, numbers = np.unique(np.concatenate((alike, held)), axis=0, return_inverse=True)
    numbers = numbers.reshape(-1)
    jobs = np.zeros(len(urgent), dtype=JOB)
    known = {**case.jobs._asdict(), **costs._asdict(), **case._asdict(), "urgent": urgent}
    for name in JOB_KNOWN:
        jobs[name] = known[name]
    jobs["group"] = numbers[: len(urgent)]
    jobs["held_group"][case.non_preemptible] = numbers[len(urgent) :]
    for name in ("last_preemption", "started_in", "spared", "before", "behind", "earlier", "later", "number"):
        jobs[name] = -1
    for name in ("since", "runs_since", "start", "finish", "signal"):
        jobs[name] = np.nan
    jobs["works_from"] = np.inf
    return jobs, _groups(patterns, len(case.entitled))


def _groups(patterns: Ints, entities: int) -> Groups:
    """``patterns``: leaf, CPUs and kind of each group, in ascending order."""
    leaf, cpus, kind = patterns.T
    groups = np.full(len(leaf), -1, dtype=GROUP)
    groups["cpus"] = cpus
    regular = np.flatnonzero(kind != URGENT)
    regular = regular[np.lexsort((cpus[regular], leaf[regular]))]
    return Groups(
        all=groups,
        of_leaf=regular,
        first=np.searchsorted(leaf[regular], np.arange(entities + 1)).astype(np.int64),
        urgent=np.flatnonzero(kind == URGENT),
        held=np.flatnonzero(kind == HELD),
    )


def _state(jobs: int, entities: int, terms: Terms, history: RunHistory) -> KernelState:
    """Nothing has happened yet."""

    def zeros(length: int) -> Ints:
        return np.zeros(length, dtype=np.int64)

    tally = zeros(11)
    tally[IDLE], tally[LAST_STARTED] = terms.cpus, -1
    return KernelState(
        used=zeros(entities + 1),
        non_preemptible=zeros(entities + 1),
        pass_used=zeros(entities + 1),
        pass_non_preemptible=zeros(entities + 1),
        room=zeros(entities + 1),
        waiting_at=zeros(entities + 1),
        in_vain=np.zeros((2, entities + 1), dtype=np.int64),
        queued=no_jobs(jobs),
        preempted=no_jobs(jobs),
        candidates=zeros(jobs),
        mature=np.zeros(jobs, dtype=np.bool_),
        gone=np.zeros(jobs, dtype=np.bool_),
        tally=tally,
        area=np.array([terms.area]),
        history=history,
    )
