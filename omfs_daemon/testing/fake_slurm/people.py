"""What people do to jobs by hand: root, an Operator, and the job's owner.

An Operator may do what root may, but write no AdminComment. With the plug-in, owners and Operators are refused what
would undo a hold or preemption of ours; it does not see requeue, suspend, resume, top, or cancel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.testing.fake_slurm.controller import FakeSlurm
from omfs_daemon.testing.fake_slurm.fake_job_submit import (
    commented_by_administrator,
    commented_by_owner,
    is_comment_refused_to_owner,
    is_held_at_gate_after,
    is_refused_to_owner,
    is_text_refused,
)
from omfs_daemon.testing.fake_slurm.fake_jobs import Record
from omfs_daemon.testing.fake_slurm.fake_licenses import sorted_licenses


class Actor(StrEnum):
    ROOT = "root"
    OPERATOR = "operator"
    OWNER = "owner"


class People:
    """Acts on single jobs of a :class:`FakeSlurm`; each returns whether Slurm has taken it."""

    def __init__(self, slurm: FakeSlurm) -> None:
        self._slurm = slurm

    # -- commands ----------------------------------------------------------------------------------
    def hold(self, job_id: int, actor: Actor, by_user: bool = False) -> bool:
        """``scontrol hold``; ``by_user``: ``scontrol uhold``, which sets a hold that the owner can end."""
        if actor is Actor.OWNER:
            return self._slurm.user_hold(job_id)
        return self._slurm.admin_hold(job_id, by_user, is_operator=actor is Actor.OPERATOR)

    def release(self, job_id: int, actor: Actor) -> bool:
        if actor is Actor.OWNER:
            return self._slurm.user_release(job_id)
        return self._slurm.admin_release(job_id, is_operator=actor is Actor.OPERATOR)

    def requeue(self, job_id: int, _actor: Actor = Actor.ROOT) -> bool:
        record = self._record(job_id)
        if not record.active or not record.requeue:
            return False
        self._slurm.requeue(record, hold=False)
        return True

    def requeue_hold(self, job_id: int, _actor: Actor = Actor.ROOT) -> bool:
        return self._slurm.requeue_hold(job_id)

    def suspend(self, job_id: int, actor: Actor) -> bool:
        """Slurm takes it for a suspended job, too, and knows one suspension, which one resume ends."""
        record = self._record(job_id)
        if actor is Actor.OWNER or record.state not in (JobState.RUNNING, JobState.SUSPENDED):
            return False
        if record.state is JobState.RUNNING:
            self._slurm.suspend(record)
        return True

    def resume(self, job_id: int, actor: Actor) -> bool:
        record = self._record(job_id)
        if actor is Actor.OWNER or record.state is not JobState.SUSPENDED:
            return False
        self._slurm.resume(record)
        return True

    def cancel(self, job_id: int, _actor: Actor = Actor.ROOT) -> bool:
        self._slurm.cancel(job_id)
        return True

    def top(self, job_id: int, actor: Actor) -> bool:
        """The job before all others of its user that wait; these give up as much priority as it gets."""
        record = self._record(job_id)
        others = [other for other in self._waiting(record.uid) if other is not record]
        if actor is Actor.OWNER or record not in self._waiting(record.uid):
            return False
        gain = max((other.priority + 1 - record.priority for other in others), default=0)
        for other in others if gain > 0 else ():
            self._set_nice(other, other.nice + gain // len(others))
        self._set_nice(record, record.nice - max(0, gain))
        return True

    # -- updates -----------------------------------------------------------------------------------
    def set_nice(self, job_id: int, actor: Actor, nice: int) -> bool:
        """Owners may only raise it, and none to a negative one."""
        record = self._record(job_id)
        is_refused = actor is Actor.OWNER and nice < max(0, record.nice)
        return not is_refused and self._update(record, actor, lambda: self._set_nice(record, nice))

    def set_priority(self, job_id: int, actor: Actor, priority: int) -> bool:
        """Slurm takes none for a job that is held or suspended, and resets the nice of others. Owners may lower it."""
        record = self._record(job_id)
        if record.priority == 0 or (actor is Actor.OWNER and priority >= record.priority):
            return False

        def change() -> None:
            record.what = replace(record.what, priority=priority)
            self._set_nice(record, 0)

        return self._update(record, actor, change)

    def set_partition(self, job_id: int, actor: Actor, name: str) -> bool:
        record = self._record(job_id)

        def change() -> None:
            record.partitions, record.request = (name,), replace(record.request, partitions=(name,))
            self._decide_anew(record, actor)

        return record.state is JobState.PENDING and self._update(record, actor, change)

    def set_qos(self, job_id: int, actor: Actor, qos: str) -> bool:
        record = self._record(job_id)

        def change() -> None:
            record.what = replace(record.what, qos=qos)
            self._decide_anew(record, actor)

        may_change = record.state is JobState.PENDING or actor is not Actor.OWNER
        return may_change and self._update(record, actor, change)

    def set_account(self, job_id: int, actor: Actor, account: str) -> bool:
        record = self._record(job_id)

        def change() -> None:
            record.what = replace(record.what, account=account)
            self._decide_anew(record, actor)

        return record.state is JobState.PENDING and self._update(record, actor, change)

    def set_nodes(self, job_id: int, actor: Actor, *nodes: str) -> bool:
        """The nodes that it must have."""
        record = self._record(job_id)
        change = lambda: self._slurm.pin(record, frozenset(nodes))  # noqa: E731
        return record.state is JobState.PENDING and self._update(record, actor, change)

    def set_licenses(self, job_id: int, actor: Actor, *licenses: tuple[str, int]) -> bool:
        record = self._record(job_id)

        def change() -> None:
            self._slurm.set_licenses(record, sorted_licenses(licenses))
            self._decide_anew(record, actor)

        may_change = record.state not in (JobState.SUSPENDED, JobState.COMPLETING)
        return may_change and self._update(record, actor, change)

    def set_begin(self, job_id: int, actor: Actor, begin: float) -> bool:
        record = self._record(job_id)

        def change() -> None:
            record.what = replace(record.what, begin=begin)
            record.eligible = max(begin, record.eligible or 0.0)
            self._decide_anew(record, actor)

        return record.state is JobState.PENDING and self._update(record, actor, change, is_guarded=False)

    def set_dependency(self, job_id: int, actor: Actor, after: int) -> bool:
        """It may start once ``after`` has ended."""
        record = self._record(job_id)
        change = lambda: self._slurm.depend(record, after)  # noqa: E731
        return record.state is JobState.PENDING and self._update(record, actor, change, is_guarded=False)

    def set_time_limit(self, job_id: int, actor: Actor, seconds: float) -> bool:
        """Of a job that has started, owners may only lower it (tests/end_to_end/test_realtime_users.py)."""
        record = self._record(job_id)
        if actor is Actor.OWNER and record.state is not JobState.PENDING and seconds > record.what.time_limit:
            return False
        return self._update(record, actor, lambda: self._slurm.set_time_limit(record, seconds), is_guarded=False)

    def set_comment(self, job_id: int, actor: Actor, comment: str) -> bool:
        record = self._record(job_id)
        is_seen = self._slurm.plugin and actor is Actor.OWNER
        if is_seen and is_comment_refused_to_owner(record, comment):
            return False
        written = commented_by_owner(record, comment) if is_seen else comment
        return self._update(record, actor, lambda: self._slurm.set_comment(job_id, written), is_guarded=False)

    def set_admin_comment(self, job_id: int, actor: Actor, text: str) -> bool:
        record = self._record(job_id)
        if actor is not Actor.ROOT or (self._slurm.plugin and is_text_refused(text)):
            return False

        def change() -> None:
            record.admin_comment = commented_by_administrator(record, text) if self._slurm.plugin else text
            record.shown = None

        return self._update(record, actor, change)

    # -- parts of acts -----------------------------------------------------------------------------
    def _record(self, job_id: int) -> Record:
        self._slurm.catch_up()
        return self._slurm.records[job_id]

    def _waiting(self, uid: int) -> list[Record]:
        """The user's jobs that wait and are not held."""
        known = self._slurm.records.values()
        return [one for one in known if one.uid == uid and one.state is JobState.PENDING and one.priority]

    def _update(self, record: Record, actor: Actor, change: Callable[[], None], is_guarded: bool = True) -> bool:
        """``is_guarded``: the plug-in refuses it to the owner of a job that we hold or preempt."""
        guarded = is_guarded and self._slurm.plugin and actor is Actor.OWNER
        if record.state is JobState.ENDED or (guarded and is_refused_to_owner(record)):
            return False
        change()
        self._slurm.reconsider(record)
        return True

    def _set_nice(self, record: Record, nice: int) -> None:
        record.nice = nice
        self._slurm.reconsider(record)

    def _decide_anew(self, record: Record, actor: Actor) -> None:
        """The gate holds a waiting job again if its owner's change may have it start where we must decide."""
        if self._slurm.plugin and actor is Actor.OWNER and is_held_at_gate_after(record):
            self._slurm.hold_at_gate(record)
