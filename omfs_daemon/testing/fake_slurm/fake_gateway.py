"""The administrator's side of the fake, with faults on request."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from omfs_daemon.cluster.het_jobs import MOST_PARTS
from omfs_daemon.cluster.job_refs import task_ids_of
from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.cluster.limits import SiteLimits
from omfs_daemon.cluster.nodes import Node, Partition
from omfs_daemon.cluster.units import Unit, Units
from omfs_daemon.errors import GatewayError, GatewayTimeout
from omfs_daemon.protocol.exit_codes import REQUEUE_EXIT_HOLD
from omfs_daemon.slurm.commands import values
from omfs_daemon.slurm.gateway import AccountRow, EndedJob, LicenseRow, Licenses, OrderRefusal, SlurmSettings
from omfs_daemon.testing.fake_slurm.controller import FakeSlurm
from omfs_daemon.testing.fake_slurm.fake_job_submit import REFUSED, is_release_refused, is_update_refused, stored_text
from omfs_daemon.testing.fake_slurm.fake_jobs import Record
from omfs_daemon.testing.fake_slurm.fake_licenses import sorted_licenses
from omfs_daemon.testing.fake_slurm.faults import Fault, Faults

Answer = TypeVar("Answer")
Order = Callable[[Record], str | None]

UNKNOWN = "Invalid job id specified"
PENDING = "Job is pending execution"
FINISHED = "Job has already finished"
NOT_BATCH = "Only batch jobs are accepted or processed"
DISABLED = "Requested operation is presently disabled"
BAD_LICENSE = "Invalid license specification"
NOT_RUNNING = "Job is not pending nor running"
BAD_NODE = "Invalid node name specified"
NOT_SUSPENDED = "Job is not suspended"
NOT_NOW = "Job can not be altered now, try again later"
BAD_SIGNAL = "Unknown job signal"
SIGNALS = frozenset(
    ("HUP", "INT", "QUIT", "ABRT", "KILL", "USR1", "USR2", "TERM", "CONT", "STOP", "TSTP", "URG", "ALRM")
)


class FakeGateway:
    """A :class:`~omfs_daemon.slurm.gateway.Gateway` on a :class:`FakeSlurm`."""

    name = "fake"

    def __init__(self, slurm: FakeSlurm, accounts: Sequence[AccountRow] | None = None, **settings: str) -> None:
        self.slurm = slurm
        self.faults = Faults()
        self._accounts = accounts
        self._settings = settings
        self._last: dict[str, Any] = {}
        self.expected: dict[int, float] = {}
        """What ``expected_starts`` answers."""
        self.between: Callable[[], None] = lambda: None
        """Called between the two commands of a release."""

    # -- queries -----------------------------------------------------------------------------------
    def settings(self) -> SlurmSettings:
        timing = self.slurm.timing
        shown = {
            "ClusterName": "fake",
            "BOOT_TIME": self.slurm.booted,
            "NEXT_JOB_ID": str(self.slurm.next_id),
            "PriorityFlags": "ACCRUE_ALWAYS",
            "PriorityType": "priority/multifactor",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_CORE_MEMORY",
            "PreemptMode": "OFF",
            "PreemptType": "preempt/none",
            "RequeueExitHold": REQUEUE_EXIT_HOLD,
            "KillWait": f"{timing.kill_wait:g} sec",
            "MinJobAge": f"{timing.min_job_age:g} sec",
            "AuthInfo": f"cred_expire={timing.requeue_delay - 1:g}",
            "SchedulerParameters": f"batch_sched_delay=0,sched_interval={timing.sched_interval:g}",
            **self._settings,
        }
        return self._ask("settings", lambda: SlurmSettings("22.05.8", shown))

    def jobs(self) -> list[Job]:
        return self._ask("jobs", lambda: [self.faults.applied_to(job) for job in self.slurm.live()])

    def find(self, job: int | str) -> Job | None:
        return self._ask("find", lambda: self._found(job))

    def ended_jobs(self) -> list[EndedJob]:
        def ended() -> list[EndedJob]:
            now, records = self.slurm.now, self.slurm.records.values()
            gone = [record for record in records if record.state is JobState.ENDED]
            return [EndedJob(record.view(now), record.history.outcome) for record in gone]

        return self._ask("ended_jobs", ended)

    def expected_starts(self, job_ids: Sequence[int] = ()) -> dict[int, float]:
        return self._ask("expected_starts", lambda: dict(self.expected))

    def units(self, jobs: Sequence[Job]) -> dict[int, Units]:
        def units_of(job: Job) -> Units:
            return frozenset[Unit]().union(*(taken.units for taken in self.slurm.records[job.id].taken))

        return self._ask("units", lambda: {job.id: units for job in jobs if (units := units_of(job))})

    def nodes(self, names: Collection[str] = ()) -> list[Node]:
        return self._ask("nodes", lambda: [node for node in self.slurm.node_views() if not names or node.name in names])

    def partitions(self) -> list[Partition]:
        return self._ask("partitions", lambda: list(self.slurm.partitions.values()))

    def accounts(self) -> list[AccountRow] | None:
        return self._ask("accounts", lambda: None if self._accounts is None else list(self._accounts))

    def licenses(self) -> list[LicenseRow]:
        return self._ask("licenses", self.slurm.licenses.rows)

    def limits(self) -> SiteLimits:
        return self._ask("limits", self.slurm.site_limits)

    # -- orders ------------------------------------------------------------------------------------
    def hold(self, refs: Sequence[str], comment: str) -> list[OrderRefusal]:
        def order(record: Record) -> str | None:
            if refusal := self._write(record, comment, holds=True):
                return refusal
            self.slurm.set_hold(record, Hold.ADMIN)
            return None

        return self._send("hold", refs, order)

    def release(self, refs: Sequence[str], comment: str) -> list[OrderRefusal]:
        """Two commands: faults of the second one are those of "end_hold"."""
        written: list[Record] = []

        def write(record: Record) -> str | None:
            written.append(record)
            return self._write(record, comment)

        refusals = self._send("release", refs, write)
        if not written:
            return refusals
        self.between()
        unmarked = {refusal.ref for refusal in refusals}
        marked = [ref for ref in refs if ref not in unmarked]
        return refusals + self._send("end_hold", marked, self._release)

    def set_nice(self, refs: Sequence[str], nice: int) -> list[OrderRefusal]:
        def order(record: Record) -> str | None:
            if record.state is JobState.ENDED:
                return FINISHED
            record.nice = nice
            self.slurm.reconsider(record)
            return None

        return self._send("set_nice", refs, order)

    def pin(self, ref: str, nodes: Sequence[str], licenses: Licenses | None = None) -> list[OrderRefusal]:
        if wrong := values.not_licenses(licenses or ()):
            return [OrderRefusal(ref, wrong)]

        def order(record: Record) -> str | None:
            if record.active or record.state is JobState.ENDED or not set(nodes) <= set(self.slurm.fake_nodes):
                return BAD_NODE
            if licenses is not None and not self.slurm.licenses.exist(licenses):
                return BAD_LICENSE
            if licenses is not None:
                self.slurm.set_licenses(record, sorted_licenses(licenses))
            self.slurm.pin(record, frozenset(nodes))
            return None

        return self._send("pin", (ref,), order)

    def set_licenses(self, refs: Sequence[str], licenses: Licenses) -> list[OrderRefusal]:
        if wrong := values.not_licenses(licenses):
            return [OrderRefusal(ref, wrong) for ref in refs]

        def order(record: Record) -> str | None:
            if record.state in (JobState.ENDED, JobState.COMPLETING):
                return FINISHED
            if record.state is JobState.SUSPENDED:
                return NOT_RUNNING
            if not self.slurm.licenses.exist(licenses):
                return BAD_LICENSE
            self.slurm.set_licenses(record, sorted_licenses(licenses))
            return None

        return self._send("set_licenses", refs, order)

    def allow_requeue(self, refs: Sequence[str]) -> list[OrderRefusal]:
        def order(record: Record) -> str | None:
            if record.state in (JobState.ENDED, JobState.COMPLETING):
                return FINISHED
            record.requeue, record.shown = True, None
            return None

        return self._send("allow_requeue", refs, order)

    def requeue(self, refs: Sequence[str]) -> list[OrderRefusal]:
        return self._send("requeue", refs, self._requeue)

    def requeue_ended(self, refs: Sequence[str]) -> list[OrderRefusal]:
        return self._send("requeue_ended", refs, self._requeue_ended)

    def suspend(self, refs: Sequence[str]) -> list[OrderRefusal]:
        return self._send("suspend", refs, self._suspend)

    def resume(self, refs: Sequence[str]) -> list[OrderRefusal]:
        return self._send("resume", refs, self._resume)

    def set_admin_comment(self, refs: Sequence[str], text: str) -> list[OrderRefusal]:
        return self._send("set_admin_comment", refs, lambda record: self._write(record, text))

    def signal(self, ref: str, signal: str, batch_only: bool = False) -> list[OrderRefusal]:
        def order(record: Record) -> str | None:
            if record.state is JobState.ENDED:
                return UNKNOWN
            if not record.active or record.state is JobState.SUSPENDED:
                return NOT_NOW
            if signal not in SIGNALS:
                return f"{BAD_SIGNAL}: {signal}"
            self.slurm.send(record, signal, batch_only)
            return None

        return self._send("signal", (ref,), order)

    # -- orders for one job --------------------------------------------------------------------------
    def _write(self, record: Record, comment: str, holds: bool = False) -> str | None:
        """Write an AdminComment."""
        if record.state is JobState.ENDED:
            return FINISHED
        line = "".join(char if char.isprintable() else " " for char in comment)
        if self.slurm.plugin:
            if is_update_refused(record, line, holds):
                return REFUSED
            line = stored_text(line)
        record.admin_comment, record.shown = line, None
        return None

    def _release(self, record: Record) -> str | None:
        if record.state is JobState.ENDED:
            return FINISHED
        if self.slurm.plugin and is_release_refused(record):
            return REFUSED
        self.slurm.release(record)
        return None

    def _requeue(self, record: Record) -> str | None:
        """``scontrol requeue incomplete``: accepted and without effect for a waiting or ended job."""
        if record.what.interactive:
            return NOT_BATCH
        if record.active and not record.requeue:
            return DISABLED
        if record.active:
            self.slurm.requeue(record, hold=False)
        return None

    def _requeue_ended(self, record: Record) -> str | None:
        """``scontrol requeue``: also of a job that has ended, while Slurm remembers it."""
        if record.state is not JobState.ENDED:
            return self._requeue(record)
        if not record.requeue:
            return DISABLED
        self.slurm.requeue_ended(record)
        return None

    def _suspend(self, record: Record) -> str | None:
        if refusal := _not_active(record):
            return refusal
        if record.state is JobState.RUNNING:
            self.slurm.suspend(record)
        return None

    def _resume(self, record: Record) -> str | None:
        if refusal := _not_active(record):
            return refusal
        if record.state is JobState.RUNNING:
            return NOT_SUSPENDED
        self.slurm.resume(record)
        return None

    def _found(self, job: int | str) -> Job | None:
        array, _, task = str(job).partition("_")
        known = self.slurm.records_of(int(array)) if task else self._of_raw_id(int(array))
        record = next((record for record in known if not task or int(task) in record.tasks), None)
        return None if record is None else self.faults.applied_to(record.view(self.slurm.now))

    def _of_raw_id(self, job_id: int) -> list[Record]:
        """The job with this id, or a heterogeneous one with such a part."""
        records = self.slurm.records
        found = (records.get(first) for first in range(job_id, max(0, job_id - MOST_PARTS), -1))
        nearest = next(filter(None, found), None)
        is_of_it = nearest is not None and job_id - nearest.id <= len(nearest.what.parts)
        return [nearest] if nearest is not None and is_of_it else []

    # -- faults and references ---------------------------------------------------------------------
    def _ask(self, method: str, query: Callable[[], Answer]) -> Answer:
        fault = self._fail(method)
        if fault is Fault.STALE and method in self._last:
            stale: Answer = self._last[method]
            return stale
        self.slurm.catch_up()
        self._last[method] = answer = query()
        if fault is Fault.LATE:
            self._time_out(method)
        return answer

    def _send(self, method: str, refs: Sequence[str], order: Order) -> list[OrderRefusal]:
        fault = self._fail(method)
        if fault is Fault.IGNORE:
            return []
        if fault is Fault.REFUSE:
            return [OrderRefusal(ref, REFUSED) for ref in refs]
        self.slurm.catch_up()
        refusals = [OrderRefusal(ref, message) for ref in refs if (message := self._one(ref, order))]
        if fault is Fault.LATE:
            self._time_out(method)
        return refusals

    def _fail(self, method: str) -> Fault | None:
        fault = self.faults.of(method)
        if fault is Fault.DEAD:
            raise GatewayError(f"{method}: Unable to contact slurm controller (connect failure)")
        if fault is Fault.HANG:
            self._time_out(method)
        return fault

    def _time_out(self, method: str) -> None:
        self.faults.wait()
        raise GatewayTimeout(f"{method}: no answer in time")

    def _one(self, ref: str, order: Order) -> str | None:
        """An order for tasks of which some are unknown is carried out for the others, and refused."""
        records, is_complete = self._resolve(ref)
        messages = [message for record in records if (message := order(record))]
        if messages:
            return messages[0]
        return None if is_complete else UNKNOWN

    def _resolve(self, ref: str) -> tuple[list[Record], bool]:
        """The records that a reference names, and whether there are no others; single pending tasks become jobs of
        their own. Slurm does not take steps (``3_[0-8:2]``), although it prints them."""
        number, _, tasks = ref.partition("_")
        if not number.isdigit() or ":" in tasks:
            return [], False
        records = self.slurm.records_of(int(number))
        if not tasks:
            live = [record for record in records if record.state is not JobState.ENDED]
            return live or records, bool(records)
        try:
            wanted = task_ids_of(tasks.strip("[]"))
        except ValueError:
            return [], False
        known = {task for record in records for task in record.tasks}
        found: list[Record] = []
        for record in records:
            if wanted.issuperset(record.tasks):
                found.append(record)
            else:
                found += [self.slurm.split(record, task) for task in record.tasks if task in wanted]
        return found, wanted <= known


def _not_active(record: Record) -> str | None:
    if record.state is JobState.ENDED:
        return FINISHED
    return None if record.active else PENDING
