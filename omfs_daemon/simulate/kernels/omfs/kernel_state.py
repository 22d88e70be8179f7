"""What the OMFS kernel works on. Jobs, entities and groups are known by index; -1 is none.

Where a sequence by entity is one longer than there are entities, the last is nobody: shorter paths are filled up
with it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from omfs_daemon.simulate.kernels.compiling import Records
from omfs_daemon.simulate.kernels.compiling import part
from omfs_daemon.simulate.workload.workload import Bools
from omfs_daemon.simulate.workload.workload import Floats
from omfs_daemon.simulate.workload.workload import Ints

COMING, IN_LINE, RUNS, VICTIM, GONE, STOPPED, IN_TRANSIT, DONE = range(8)
"""``state``: VICTIM: a stop for it is under way and it holds its CPUs still; GONE: it holds them no longer, but its
beneficiary does not run yet; IN_TRANSIT: others are being stopped for it."""

IDLE, LEAVING, PROMISED, PASS, IN_VAIN, LAST, WAITING, URGENT, HEADS, NUMBER, ROOM_MADE = range(11)
"""``tally``: CPUs that are idle, of victims that still hold them, of beneficiaries that do not run yet; the number of
the pass; whether it looked for victims in vain; the job that started last; how many jobs wait in line, how many of
them are urgent, how many were stopped; stops decided; how often swap area became free."""

NOW, THEN, STOPS_LEFT, RECLAIMS, POOL, MATURE, DECIDED, AGAIN = range(8)
"""``books`` of one pass: CPUs idle now, and when all stops under way are through; what is left of the stops that one
pass may decide; what it has decided; jobs in its pool (-1: not made yet) and CPUs of its mature ones; whether
anything was decided; whether the rest is to be decided anew."""


JOB = np.dtype(
    [(name, np.float64) for name in ("submit", "run", "estimate", "stop", "resume", "queueing", "size")]
    + [(name, np.float64) for name in ("done", "since", "runs_since", "works_from", "start", "finish", "signal")]
    + [(name, np.int64) for name in ("cpus", "leaf", "group", "held_group")]
    + [(name, np.int64) for name in ("state", "turn", "stops", "last_stop", "started_in", "spared")]
    + [(name, np.int64) for name in ("before", "behind", "earlier", "later")]
    + [(name, np.int64) for name in ("first_victim", "next_victim", "beneficiary", "left", "number")]
    + [(name, np.bool_) for name in ("urgent", "fixed", "stoppable", "keeps", "pinned", "rejected", "is_held")]
)
"""A job. What is known of it from the start is named as in ``Jobs``, ``StopCosts`` and ``Case``; besides:

group, held_group  the one in which it waits; where it waits once it is held
done, works_from   seconds of work that are kept; since when it computes, inf: it does not
since, runs_since  its start as Slurm shows it (a swapped job keeps it); its last start
turn               numbers its stretches, so that an end foreseen for an earlier one is known to be void
last_stop          entry in the log of stops
started_in         the pass in which it started last
spared             not to be stopped while no more swap area has become free than then
is_held            it may never be stopped, and waits for its account's entitlement to have room
before, behind     neighbours in its group; earlier, later: among the jobs on CPUs and the suspended ones, by start
first_victim, left, number, signal  of a beneficiary: its victims, how many of them hold CPUs, the number of the
                   decision, when the signal came
next_victim, beneficiary            of a victim
"""

GROUP = np.dtype([(name, np.int64) for name in ("cpus", "head", "tail", "beyond", "shut")])
"""Waiting jobs that are alike, linked in the order of submission. ``beyond``, ``shut``: the pass that found so."""


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
    """``all`` of them (``GROUP``). ``of_leaf``: the regular ones by leaf (``first`` to ``first`` of the next one), the
    smallest first."""

    all: Records
    of_leaf: Ints
    first: Ints
    urgent: Ints
    held: Ints


class State(NamedTuple):
    """By entity: ``used`` and ``fixed`` CPUs with the stops under way, the ``pass_`` ones also with what the pass has
    promised; ``room`` when the pass began; regular jobs ``waiting_at`` it; the least CPUs that the pass looked for
    ``in_vain`` (for regular and for urgent jobs). ``line`` and ``heads``: the trees of waiting and of stopped jobs.
    ``pool``: the jobs that the pass may stop, which of them are mature, and which are gone. ``area``: bytes of swap
    area that are free."""

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
    tally: Ints
    area: Floats


class Notes(NamedTuple):
    """What grows: a heap of what comes due, stretches in which CPUs were held, decided stops, each with the entry of
    the victim's stop before, and beneficiaries whose victims are gone."""

    due: Any
    stretches: Any
    log: Any
    ready: Any


@part
def path_of(tree: Tree, leaf: int) -> Ints:
    """From the leaf up to its top account."""
    return tree.paths[leaf, : tree.depth[leaf]]
