"""How Slurm is seen and told: the one interface that every adapter and the fake satisfy.

Reading raises :class:`~omfs_daemon.errors.GatewayError` when Slurm does not answer in time or prints
something that is not understood; it never returns a part. Telling takes job references (``Job.ref``) and
returns the refusals; a reference that is not among them was accepted, which is *not* yet proof that it took
effect: whoever depends on that looks again. All orders may be given twice.

The contract, with every sentence a test, is ``tests/contract/``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.cluster.nodes import Partition


class Refusal(NamedTuple):
    """Slurm did not take an order for one job, and what it said."""

    ref: str
    message: str


class SlurmSettings(NamedTuple):
    """The settings of slurm.conf in force, by name as in ``scontrol show config``."""

    version: str
    values: dict[str, str]


class AccountRow(NamedTuple):
    """An account of slurmdbd and its parent ("" under root)."""

    name: str
    parent: str


class LicenceRow(NamedTuple):
    """A licence of slurm.conf: how many there are and how many jobs hold. ``used`` may be above ``total``."""

    name: str
    total: int
    used: int


Licences = Sequence[tuple[str, int]]
"""Names and counts, as in ``Job.licenses``."""


class Gateway(Protocol):
    """One Slurm cluster."""

    @property
    def name(self) -> str:
        """Which adapter this is, for the log and ``omfs check``."""

    # -- seeing ------------------------------------------------------------------------------------
    def settings(self) -> SlurmSettings: ...

    def jobs(self) -> list[Job]:
        """All jobs that Slurm lists as not ended (COMPLETING ones too), array tasks as in ``Job``."""

    def find(self, job_id: int) -> Job | None:
        """One job, ended ones too while Slurm still knows them (MinJobAge); None if it does not."""

    def nodes(self) -> list[Node]: ...

    def partitions(self) -> list[Partition]: ...

    def accounts(self) -> list[AccountRow] | None:
        """The accounts in slurmdbd; None where no accounting runs."""

    def licenses(self) -> list[LicenceRow]:
        """The licences of slurm.conf; jobs that are suspended or completing still hold theirs."""

    # -- telling -----------------------------------------------------------------------------------
    def hold(self, refs: Sequence[str]) -> list[Refusal]:
        """An administrator's hold, which the owner cannot release; a user's hold becomes one."""

    def release(self, refs: Sequence[str]) -> list[Refusal]:
        """End any hold; Slurm computes the priority anew, ``nice`` stays."""

    def set_nice(self, refs: Sequence[str], nice: int) -> list[Refusal]:
        """The rank: priority = Slurm's own - nice. Works on held jobs too; on running ones without effect."""

    def pin(self, ref: str, nodes: Sequence[str], licenses: Licences | None = None) -> list[Refusal]:
        """The waiting job may run on these nodes only (ReqNodeList); no nodes: unpin.

        With ``licenses`` it asks for exactly these from the same moment on; refused, neither is changed.
        """

    def set_licenses(self, refs: Sequence[str], licenses: Licences) -> list[Refusal]:
        """A waiting job asks for exactly these, a running one holds exactly these; none: ().

        Slurm refuses unknown names and more than there are in all, and jobs that are suspended. It does *not* look
        whether they are free: a running job that is given what others hold overbooks them, and until enough have come
        back nothing that asks for them starts.
        """

    def allow_requeue(self, refs: Sequence[str]) -> list[Refusal]:
        """As if submitted with --requeue."""

    def requeue_hold(self, refs: Sequence[str]) -> list[Refusal]:
        """End running (or suspended) jobs and put them back into the queue, held."""

    def suspend(self, refs: Sequence[str]) -> list[Refusal]:
        """Stop running jobs with SIGSTOP; Slurm lets others have their CPUs, not their memory."""

    def resume(self, refs: Sequence[str]) -> list[Refusal]:
        """Let suspended jobs run on. Slurm does so *even if their CPUs are taken*: look first."""

    def set_admin_comment(self, refs: Sequence[str], text: str) -> list[Refusal]:
        """A line for the job's owner; control characters are replaced, quotes kept harmless."""

    def signal(self, ref: str, signal: str, batch_only: bool = False) -> list[Refusal]:
        """A signal by name (``"USR1"``) to the job's steps, or to its batch shell only; a suspended job takes none."""


class Waiting(NamedTuple):
    """Which waiting jobs: those in one of the partitions, and one of the QOS, and one of the accounts; empty: any."""

    partitions: frozenset[str] = frozenset()
    qos: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()


@runtime_checkable
class ByProcesses(Protocol):
    """What an adapter can do besides for which every call is a process of its own: then fewer of them are faster.

    Its telling may be called from several threads at a time.
    """

    def jobs_at_once(self, waiting: Sequence[Waiting]) -> list[Job]:
        """As ``jobs``, but of those that wait only these (or more), which is faster where many wait."""

    def pin_and_rank(self, ref: str, nodes: Sequence[str], licenses: Licences | None, nice: int) -> list[Refusal]:
        """``pin`` and ``set_nice`` in one; refused, either may have been done."""
