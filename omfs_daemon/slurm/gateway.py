"""The interface to Slurm that every adapter and the fake implement.

Queries raise :class:`~omfs_daemon.errors.GatewayError` when Slurm does not answer in time or its output cannot be
parsed; they never return a part. Orders take job references (``Job.ref``) and return the refusals. A reference that is
not among them was accepted, which is *not* proof that the order took effect: poll again to see that. Every order may
be sent twice.

``tests/contract/`` tests this contract.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol, TypeGuard

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.limits import SiteLimits
from omfs_daemon.cluster.nodes import Node, Partition
from omfs_daemon.cluster.units import Units


class OrderRefusal(NamedTuple):
    """An order for one job that Slurm refused, with its message."""

    ref: str
    message: str


class SlurmSettings(NamedTuple):
    """The settings of slurm.conf in force, by name as in ``scontrol show config``."""

    version: str
    values: dict[str, str]


ROOT_ACCOUNT = "root"
"""Above all accounts of slurmdbd; jobs may run in it, too."""


class AccountRow(NamedTuple):
    """An account of slurmdbd and its parent ("" for root and under it)."""

    name: str
    parent: str


class LicenseRow(NamedTuple):
    """A license of slurm.conf: how many exist, and how many jobs hold. ``used`` may be above ``total``."""

    name: str
    total: int
    used: int


class EndedJob(NamedTuple):
    """A job that has ended, and the state in which it did, as Slurm names it (``COMPLETED``, ``TIMEOUT``)."""

    job: Job
    state: str


Licenses = Sequence[tuple[str, int]]
"""Names and counts, as in ``Job.licenses``."""


class Gateway(Protocol):
    """One Slurm cluster."""

    @property
    def name(self) -> str:
        """Which adapter this is, for the log and ``omfs check``."""

    # -- queries -----------------------------------------------------------------------------------
    def settings(self) -> SlurmSettings: ...

    def jobs(self) -> list[Job]:
        """All jobs that Slurm lists as not ended (COMPLETING ones too), array tasks as in ``Job``. What somebody has
        changed of the nodes that a waiting job excludes may be as old as ``asked_apart.ALL_AGAIN``. Whole cores are
        counted for waiting jobs once ``nodes`` has been asked for all."""

    def find(self, job: int | str) -> Job | None:
        """One job by its raw id, or by the reference of a task of an array: also an ended one while Slurm still knows
        it (MinJobAge); None if it does not. A task that has not started is found as its array's waiting rest. By raw
        id it takes slurmctld as long whatever others wait. May be called from any thread."""

    def ended_jobs(self) -> list[EndedJob]:
        """The jobs that have ended and that Slurm still remembers (MinJobAge). May be called from any thread."""

    def expected_starts(self, job_ids: Sequence[int] = ()) -> dict[int, float]:
        """When Slurm itself expects waiting jobs to start (squeue --start), by raw id; without those for which it says
        nothing. Of these jobs, and perhaps others; without ids, of all. May be called from any thread."""

    def units(self, jobs: Sequence[Job]) -> dict[int, Units]:
        """Which CPUs and numbered devices these jobs of the last answer of ``jobs`` have, by raw id; suspended ones
        too. Without jobs of which that cannot be read. They stay the same for as long as a job is on its nodes."""

    def nodes(self, names: Collection[str] = ()) -> list[Node]:
        """These nodes; without names, all. May be called from any thread."""

    def partitions(self) -> list[Partition]: ...

    def accounts(self) -> list[AccountRow] | None:
        """The accounts in slurmdbd, root among them; None where no accounting runs."""

    def licenses(self) -> list[LicenseRow]:
        """The licenses of slurm.conf; jobs that are suspended or completing still hold theirs."""

    def limits(self) -> SiteLimits:
        """What may keep jobs from starting beside nodes; a part that cannot be read is None, which is no error."""

    # -- orders ------------------------------------------------------------------------------------
    def hold(self, refs: Sequence[str], comment: str) -> list[OrderRefusal]:
        """An administrator's hold, which the owner cannot release; a user's hold becomes one. The AdminComment is
        written in the same step: never one without the other. A running job runs on, and waits once it is requeued."""

    def release(self, refs: Sequence[str], comment: str) -> list[OrderRefusal]:
        """Write the AdminComment, then end any hold, in one step where the adapter can. Slurm computes the priority
        anew; ``nice`` stays, but that of a job that is not held becomes 0."""

    def set_nice(self, refs: Sequence[str], nice: int) -> list[OrderRefusal]:
        """The rank: priority = Slurm's own - nice. Works on held jobs too; on running ones without effect."""

    def pin(self, ref: str, nodes: Sequence[str], licenses: Licenses | None = None) -> list[OrderRefusal]:
        """The waiting job may run on these nodes only (ReqNodeList); no nodes: unpin.

        With ``licenses`` it asks for exactly these from the same moment on; refused, neither is changed.
        """

    def set_licenses(self, refs: Sequence[str], licenses: Licenses) -> list[OrderRefusal]:
        """A waiting job asks for exactly these, a running one holds exactly these; none: ().

        Slurm refuses unknown names, more than exist, and suspended jobs. It does *not* check whether they are free:
        giving a running job what others hold overbooks them, and nothing that asks for them starts until enough
        have been returned.
        """

    def allow_requeue(self, refs: Sequence[str]) -> list[OrderRefusal]:
        """As if submitted with --requeue."""

    def requeue(self, refs: Sequence[str]) -> list[OrderRefusal]:
        """End running (or suspended) jobs and put them back into the queue; those that are held stay held. Without
        effect on jobs that wait or have ended."""

    def requeue_ended(self, refs: Sequence[str]) -> list[OrderRefusal]:
        """Put ended jobs back into the queue; whoever held them holds them still."""

    def suspend(self, refs: Sequence[str]) -> list[OrderRefusal]:
        """Stop running jobs with SIGSTOP; Slurm lets others have their CPUs, not their memory."""

    def resume(self, refs: Sequence[str]) -> list[OrderRefusal]:
        """Resume suspended jobs. Slurm does so *even if their CPUs are taken*: check first."""

    def set_admin_comment(self, refs: Sequence[str], text: str) -> list[OrderRefusal]:
        """As it is; control characters become blanks."""

    def signal(self, ref: str, signal: str, batch_only: bool = False) -> list[OrderRefusal]:
        """A signal by name (``"USR1"``) to the job's steps, or to its batch shell only; a suspended job takes none."""


class ByProcesses(Protocol):
    """What an adapter also offers if each of its calls starts a process, so that fewer calls are faster.

    Its orders may be sent from several threads at a time.
    """

    def pin_and_rank(self, ref: str, nodes: Sequence[str], licenses: Licenses | None, nice: int) -> list[OrderRefusal]:
        """``pin`` and ``set_nice`` in one; refused, either may have been done."""

    def place_and_release(
        self, ref: str, nodes: Sequence[str], licenses: Licenses | None, nice: int, comment: str
    ) -> list[OrderRefusal]:
        """The same, and then ``release``, which is left out if the rest is refused."""


def runs_processes(gateway: object) -> TypeGuard[ByProcesses]:
    """Whether it is ``ByProcesses``, also through a wrapper: ``isinstance`` does not look through one from Python 3.12
    on."""
    return callable(getattr(gateway, "place_and_release", None))
