"""What Slurm's reason for a waiting preemptor proves, once it is released, ranked first, and pinned. Pure.

Slurm checks limits before it looks for resources, so ``Resources`` proves that nothing else is lacking. That is so only
for a job at the top of the queue: of others it reads no limits. A change of rank or nodes resets the reason to
``None``, so any other one that is seen with both as wanted is newer.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto

from omfs_daemon.cluster.holds import is_held
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.preemption.preemption import Preemptor

RESOURCES = "Resources"
"""Slurm's word for a job that lacks nothing but resources on its nodes."""

_CANNOT_RUN = "BadConstraints"  # Slurm holds the job itself then

_SAYS_NOTHING = (
    "None",
    "Priority",  # limits are not read
    "Nodes required for job are",  # jobs of a higher tier, or a job before it on these nodes, hide everything else
    "ReqNodeNotAvail, UnavailableNodes",  # likewise; a node that is really lost is noticed by itself
    "JobHeld",  # not yet as it is now
)


class Proof(Enum):
    """YES: only resources are lacking. NO: Slurm names something else. OPEN: it has not said yet."""

    YES = auto()
    NO = auto()
    OPEN = auto()


ASKED_FOR = 1.5
"""Seconds that the answer to a question is waited for."""

_BUSY = "Requested nodes are busy"
_NO_ANSWER = ("Immediate execution impossible", "partition not available")  # others come first, defer; a drained one
_LIMIT = "violates accounting/QOS policy"


def proof_by_answer(answer: str, job: Job, victims: Iterable[Job]) -> Proof:
    """What Slurm's error proves for a copy of the job; "" is none. A limit may be the victims' own use."""
    if _BUSY in answer:
        return Proof.YES
    mine = {job.account, job.qos, job.user} - {""}
    shares = any(not mine.isdisjoint((other.account, other.qos, other.user)) for other in victims)
    is_open = not answer or any(text in answer for text in _NO_ANSWER) or (_LIMIT in answer and shares)
    return Proof.OPEN if is_open else Proof.NO


def is_asked(job: Job, preemptor: Preemptor) -> bool:
    """Whether the job was observed as Slurm must see it to say why it waits."""
    is_free = not is_held(job) or job.reason.startswith(_CANNOT_RUN)
    is_pinned = job.request.required_nodes == frozenset(preemptor.nodes_to_pin(job))
    return is_free and job.nice == preemptor.nice and is_pinned


def proof_of(job: Job, preemptor: Preemptor) -> Proof:
    """Of a job that ``is_asked``. After a preemption in vain, the reason of then proves nothing."""
    if not job.reason or job.reason.startswith(_SAYS_NOTHING):
        return Proof.OPEN
    return Proof.YES if job.reason == RESOURCES != preemptor.doubted else Proof.NO
