"""What the OMFS kernel works on. Jobs, entities and groups are known by index; -1 is none.

Where a sequence by entity is one longer than there are entities, the last is nobody: shorter paths are filled up
with it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Bools, Floats, Ints
from omfs_daemon.simulate.kernels.compiling import Records, part
from omfs_daemon.simulate.kernels.run_history import RunHistory

UNSUBMITTED, QUEUED, RUNNING, VICTIM, FREED, PREEMPTED, PREEMPTOR, DONE = range(8)
"""``state``: VICTIM: it is being preempted and still holds its CPUs; FREED: it no longer holds them, but its preemptor
does not run yet; PREEMPTOR: others are being preempted for it."""

(
    IDLE,
    LEAVING,
    PROMISED,
    PASS,
    IN_VAIN,
    LAST_STARTED,
    QUEUED_COUNT,
    URGENT_COUNT,
    PREEMPTED_COUNT,
    NEXT_NUMBER,
    AREA_FREED,
) = range(11)
"""``tally``: CPUs that are idle, of victims that still hold them, of preemptors that do not run yet; the number of
the pass; whether it looked for victims in vain; the job that started last; how many jobs are queued, how many of
them are urgent, how many wait preempted; preemptions decided; how often swap area became free."""

NOW, THEN, PREEMPTIONS_LEFT, RECLAIMS, CANDIDATES, MATURE, DECIDED, AGAIN = range(8)
"""``pass_tally`` of one pass: CPUs idle now, and after all preemptions under way; how many more preemptions the pass
may decide; how many it has decided; its candidates (-1: not listed yet) and the CPUs of the mature ones; whether
anything was decided; whether the rest is to be decided again."""


JOB = np.dtype(
    [(name, np.float64) for name in ("submit", "run", "estimate", "predicted")]
    + [(name, np.float64) for name in ("preemption", "resume", "queueing", "size")]
    + [(name, np.float64) for name in ("done", "since", "runs_since", "works_from", "start", "finish", "signal")]
    + [(name, np.int64) for name in ("cpus", "leaf", "group", "held_group")]
    + [(name, np.int64) for name in ("state", "turn", "preemptions", "last_preemption", "started_in", "spared")]
    + [(name, np.int64) for name in ("before", "behind", "earlier", "later")]
    + [(name, np.int64) for name in ("first_victim", "next_victim", "preemptor", "left", "number")]
    + [
        (name, np.bool_)
        for name in ("urgent", "non_preemptible", "preemptible", "keeps", "pinned", "rejected", "is_held")
    ]
)
"""A job. What is known of it from the start is named as in ``Jobs``, ``SimulatedCosts`` and ``OmfsCase``; besides:

predicted          seconds that it is predicted to run, where that is learned
group, held_group  the one in which it waits; where it waits once it is held
done, works_from   seconds of work that are kept; since when it computes, inf: it does not
since, runs_since  its start as Slurm shows it (a swapped job keeps it); its last start
turn               numbers its segments, so that an end foreseen for an earlier one is known to be void
last_preemption    entry in the log of preemptions
started_in         the pass in which it started last
spared             not to be preempted while no more swap area has become free than then
is_held            non-preemptible, waits until its account's entitlement has room
before, behind     neighbors in its group; earlier, later: among the jobs on CPUs and the suspended ones, by start
first_victim, left, number, signal  of a preemptor: its victims, how many of them hold CPUs, the number of the
                   decision, when the signal came
next_victim, preemptor            of a victim
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
    preemptions_per_hour: int
    preemptions_per_pass: int
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


class KernelState(NamedTuple):
    """By entity: ``used`` and ``non_preemptible`` CPUs after the preemptions under way, the ``pass_`` ones also after
    what the pass has promised; ``room`` when the pass began; regular jobs ``waiting_at`` it; the least CPUs for which
    the pass searched victims ``in_vain`` (for regular and for urgent jobs). ``queued`` and ``preempted``: the trees of
    waiting and of preempted jobs. ``candidates``: the jobs that the pass may preempt, which of them are mature, and
    which are gone. ``area``: bytes of swap area that are free. ``history``: what run times are predicted from."""

    used: Ints
    non_preemptible: Ints
    pass_used: Ints
    pass_non_preemptible: Ints
    room: Ints
    waiting_at: Ints
    in_vain: Ints
    queued: Ints
    preempted: Ints
    candidates: Ints
    mature: Bools
    gone: Bools
    tally: Ints
    area: Floats
    history: RunHistory


class Notes(NamedTuple):
    """What grows: a heap of events, segments in which CPUs were held, decided preemptions, each with the entry of the
    victim's previous one, and preemptors whose victims are gone."""

    due: Any
    segments: Any
    log: Any
    ready: Any


@part
def path_of(tree: Tree, leaf: int) -> Ints:
    """From the leaf up to its top account."""
    return tree.paths[leaf, : tree.depth[leaf]]
