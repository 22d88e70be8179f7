"""What the OMFS kernel works on. Jobs, entities and groups are known by index; -1 is none.

Where a sequence by entity is one longer than there are entities, the last is nobody: shorter paths are filled up
with it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit
from numba.extending import register_jitable

from omfs_daemon.policy import laws
from omfs_daemon.simulate import set_costs
from omfs_daemon.simulate.workload import Bools, Floats, Ints

for rule in (
    laws.room,
    laws.admits_fixed,
    laws.reaches_at_most,
    laws.all_over,
    laws.add,
    laws.takes_fairly,
    laws.takes_from_borrowers,
    laws.latest_mature_start,
    laws.matures_at,
    laws.counts_in_hour,
    set_costs.set_seconds,
):
    register_jitable(rule)  # the daemon's own rules, compiled as they stand

COMING, IN_LINE, RUNS, VICTIM, GONE, STOPPED, IN_TRANSIT, DONE = range(8)
"""``state``: VICTIM: a stop for it is under way and it holds its CPUs still; GONE: it holds them no longer, but its
beneficiary does not run yet; IN_TRANSIT: others are being stopped for it."""

IDLE, LEAVING, PROMISED, PASS, IN_VAIN, LAST, WAITING, URGENT, HEADS, NUMBER, ROOM_MADE = range(11)
"""``count``: CPUs that are idle, of victims that still hold them, of beneficiaries that do not run yet; the number of
the pass; whether it looked for victims in vain; the job that started last; how many jobs wait in line, how many of
them are urgent, how many were stopped; stops decided; how often swap area became free."""

NOW, THEN, STOPS_LEFT, RECLAIMS, POOL, MATURE, DECIDED, AGAIN = range(8)
"""``books`` of one pass: CPUs idle now, and when all stops under way are through; what is left of the stops that one
pass may decide; what it has decided; jobs in its pool (-1: not made yet) and CPUs of its mature ones; whether
anything was decided; whether the rest is to be decided anew."""


class Cast(NamedTuple):
    """The jobs: seconds, CPUs, leaves, and what it costs to stop them. ``held_group``: of a job that is never stopped,
    once it is held."""

    submit: Floats
    cpus: Ints
    run: Floats
    estimate: Floats
    leaf: Ints
    urgent: Bools
    fixed: Bools
    stoppable: Bools
    keeps: Bools
    pinned: Bools
    stop: Floats
    resume: Floats
    queueing: Floats
    size: Floats
    group: Ints
    held_group: Ints


class Tree(NamedTuple):
    """The tree of accounts. ``paths`` (entity, level), ``depth``; ``top`` and ``parted`` (taker, giver): the topmost
    entity on the taker's side, and how many of the giver's path lie on its own side."""

    entitled: Ints
    paths: Ints
    depth: Ints
    top: Ints
    parted: Ints
    leaves: Ints


class Terms(NamedTuple):
    """The rules' numbers, and those of the costs that are not by job."""

    cpus: int
    quantum: float
    stops_per_hour: int
    stops_per_pass: int
    urgent_may_take_entitled: bool
    latency: float
    area: float


class Groups(NamedTuple):
    """Waiting jobs that are alike, as linked lists in the order of submission. ``of_leaf``: all regular ones by leaf
    (``first`` to ``first`` of the next one), the smallest first. ``beyond``, ``shut``: the pass that found so."""

    cpus: Ints
    leaf: Ints
    of_leaf: Ints
    first: Ints
    urgent: Ints
    held: Ints
    head: Ints
    tail: Ints
    beyond: Ints
    shut: Ints


class State(NamedTuple):
    """By job: ``since``: its start as Slurm shows it (a swapped job keeps it); ``runs_since``: uninterrupted; ``turn``
    numbers its stretches; ``last_stop`` its entry in the log; ``spared``: not stopped until more swap area was free;
    ``is_held``: it may never be stopped, and waits for its account's entitlement to have room.
    By beneficiary: the first of its victims, how many hold CPUs, the number of the decision, when the signal came.
    ``used``, ``fixed``: by entity, with the stops under way; the ``pass_`` ones also with what the pass promised.
    ``line`` and ``heads``: the trees of waiting and of stopped jobs."""

    state: Ints
    before: Ints
    behind: Ints
    done: Floats
    since: Floats
    runs_since: Floats
    works_from: Floats
    turn: Ints
    started_in: Ints
    start: Floats
    finish: Floats
    stops: Ints
    last_stop: Ints
    spared: Ints
    is_held: Bools
    earlier: Ints
    later: Ints
    first_victim: Ints
    next_victim: Ints
    beneficiary: Ints
    left: Ints
    number: Ints
    signal: Floats
    used: Ints
    fixed: Ints
    pass_used: Ints
    pass_fixed: Ints
    room: Ints
    waiting_at: Ints
    in_vain: Ints
    line: Ints
    heads: Ints
    pool: Ints
    mature: Bools
    gone: Bools
    count: Ints
    area: Floats


class Notes(NamedTuple):
    """What grows: a heap of what comes due, stretches in which CPUs were held, decided stops, each with the entry of
    the victim's stop before, and beneficiaries whose victims are gone."""

    due: Any
    stretches: Any
    log: Any
    ready: Any


@njit(cache=True)
def path_of(tree: Tree, leaf: int) -> Ints:
    """From the leaf up to its top account."""
    return tree.paths[leaf, : tree.depth[leaf]]
