"""Which holds are ours, by the jobs and by what the journal knows of them; all others are left alone. Pure.

A release is two orders, its mark and the end of the hold. As long as it has not been observed, a job that is held with
its mark may be on its way; after that somebody has held it.
"""

from __future__ import annotations

from dataclasses import replace

from omfs_daemon.cluster.holds import (
    admin_comment_of,
    is_held,
    is_held_after_checkpoint,
    is_held_by_us,
    is_release_unfinished,
)
from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.cluster.marks import MarkWord
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.preemption.state import State

HELD_BY_OTHERS = "[omfs] preempted; somebody else holds it"


def with_refs_of_now(state: State, observation: Observation) -> State:
    """The state with its holds and releases by the references that the jobs have now."""
    held, releasing = observation.as_observed(state.held), observation.as_observed(state.releasing)
    return replace(state, held=held, releasing=releasing)


def is_ours(job: Job, state: State) -> bool:
    """Whether we hold it, or have not finished its release. ``state``: with the references of now."""
    releasing = state.releasing.get(job.ref)
    if releasing is not None and is_release_unfinished(job, releasing):
        return True
    return is_held_by_us(job) or has_lost_mark(job, state)


def is_held_by_others(job: Job, state: State) -> bool:
    """Whether somebody else, or Slurm, holds it: we do not release it. ``state`` as in ``is_ours``."""
    return is_held(job) and not is_ours(job, state)


def has_lost_mark(job: Job, state: State) -> bool:
    """Whether somebody has written over the mark of a hold of ours, or of omfs-run's after a checkpoint for us, or
    slurmctld has forgotten the latter."""
    stored = admin_comment_of(job)
    held_by_us = job.hold is Hold.ADMIN and job.ref in state.held and not stored.mark
    is_before = not stored.mark or (stored.word is MarkWord.RELEASED and not is_known_as_others(job))
    by_omfs_run = job.special_exit or is_held_after_checkpoint(job)
    held_by_exit = by_omfs_run and job.hold is Hold.USER and job.ref in state.preempted and is_before
    return job.state is JobState.PENDING and (held_by_us or held_by_exit)


def is_known_as_others(job: Job) -> bool:
    """Whether somebody else held it when we began to preempt it."""
    return admin_comment_of(job).sentence == HELD_BY_OTHERS
