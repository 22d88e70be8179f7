"""What operators do to single jobs: let them go, and exempt them from being preempted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

import structlog

from omfs_daemon.cluster.exemptions import Exemption, ExemptKind
from omfs_daemon.cluster.het_jobs import stored_marks
from omfs_daemon.cluster.holds import admin_comment_of, is_held
from omfs_daemon.cluster.job_refs import asked_ref, asked_tasks, brief_ref, tasks_ref
from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.marks import MarkWord, compose_admin_comment
from omfs_daemon.cluster.scope import is_out_of_scope
from omfs_daemon.daemon.api.callers import Caller
from omfs_daemon.daemon.api.controls import DaemonControls
from omfs_daemon.daemon.api.cycle_report import LatestPoll
from omfs_daemon.daemon.api.exempt_view import ExemptView, exempt_view, named
from omfs_daemon.daemon.api.operations import DoneView
from omfs_daemon.daemon.api.why_view import asked_job, listed_job
from omfs_daemon.daemon.store.audit_log import AuditLog
from omfs_daemon.daemon.store.entitlement_store import EntitlementStore
from omfs_daemon.daemon.store.exemption_store import ExemptionStore
from omfs_daemon.daemon.store.history_database import HistoryDatabase
from omfs_daemon.errors import ConfigError, ControlError, GatewayError
from omfs_daemon.preemption.records import JobEvent
from omfs_daemon.slurm.gateway import Gateway


class OperatorActs:
    """Each is in the audit log before it is carried out. ConfigError and ControlError reach the caller as one line."""

    def __init__(
        self,
        gateway: Gateway,
        latest: LatestPoll,
        history_database: HistoryDatabase,
        entitlements: EntitlementStore,
        exemptions: ExemptionStore,
        audit: AuditLog,
        controls: DaemonControls,
        clock: Callable[[], float],
    ) -> None:
        self._gateway = gateway
        self._latest = latest
        self._history_database = history_database
        self._entitlements = entitlements
        self._exemptions = exemptions
        self.audit = audit
        self._controls = controls
        self._clock = clock
        self._log = structlog.get_logger("control")

    def release(self, caller: Caller, text: str) -> DoneView:
        """As an administrator's release: what it names is not held again while it waits."""
        held = [(record, _asked_of(record, text)) for record in self._records(text) if is_held(record)]
        held = [(record, ref) for record, ref in held if ref]
        if not held:
            raise ControlError(f"job {text}: is not held")
        self.audit.record_or_refuse("release", caller, job=text)
        for record, released in held:
            stored = admin_comment_of(record)
            sentence = f"released by {caller.user} with omfs release"
            expected = stored_marks(record)
            comment = compose_admin_comment(MarkWord.ADMIN_RELEASED.value, expected, sentence, stored.foreign)
            if refusals := self._gateway.release([released], comment):
                raise ControlError(f"job {released}: {refusals[0].message}")
            event = JobEvent(self._clock(), released, record.user, record.account, "released", sentence)
            self._history_database.record_events([event])
        self._log.warning("job_released", job=text, by=caller.user)
        self._controls.wake()
        done = ", ".join(brief_ref(ref) for _, ref in held) if "_[" in text else text
        return DoneView(done=f"job {done} is released, and not held again while it waits")

    def _records(self, text: str) -> list[Job]:
        """As Slurm lists them: of an array, whose tasks may be held by several, all, and of a heterogeneous job that is
        set aside all parts. ConfigError if it names none."""
        ref = _array_of(text) or asked_job(text)
        job, snapshot = listed_job(self._latest.report, ref), self._latest.report.snapshot
        if job is None or snapshot is None:
            raise ControlError(f"job {text}: Slurm does not list it")
        if is_out_of_scope(job):
            raise ControlError(f"job {text}: is not in scope: use scontrol release")
        if "+" in job.ref:
            whole = job.ref.partition("+")[0]
            return [one for one in snapshot.jobs.values() if one.ref.partition("+")[0] == whole]
        tasks = [one for one in snapshot.jobs.values() if ref.isdecimal() and one.array_id == int(ref)]
        return tasks or [job]

    def exempt(self, caller: Caller, name: str, until: float | None) -> DoneView:
        if until is not None and until <= self._clock():
            raise ConfigError("until: must be a time to come")
        kind, exact = named(name, self._account_names())
        if kind is ExemptKind.JOB:
            exact = self._listed(exact)
        self._exemptions.add(Exemption(kind, exact, until), caller)
        self._controls.exemptions_changed()
        self._controls.wake()
        self._log.warning("exempted", kind=kind.value, name=exact, until=until, by=caller.user)
        whose = f"job {exact} is" if kind is ExemptKind.JOB else f"jobs of {kind.value} {exact} are"
        return DoneView(done=f"{whose} never preempted{_until_text(until)}")

    def _listed(self, ref: str) -> str:
        """The job's name, which of a part of a heterogeneous one is that of the whole. Of what Slurm does not list
        nobody knows whose job it will be."""
        job, (whole, is_part, _) = listed_job(self._latest.report, ref), ref.partition("+")
        if job is None:  # or it came after the last poll
            try:
                job = self._gateway.find(whole)
            except GatewayError as error:
                raise ControlError(f"job {ref}: Slurm does not answer: {error}") from error
        if job is None or job.state is JobState.ENDED or (is_part and not job.parts):
            raise ControlError(f"job {ref}: Slurm does not list it")
        return job.ref if job.parts else ref

    def end_exemption(self, caller: Caller, name: str) -> DoneView:
        whole = name.partition("+")[0] if asked_ref(name) else name
        known = [one for one in self._exemptions.exemptions.all if whole in (one.name, f"{one.kind.value}={one.name}")]
        if len(known) > 1:
            raise ConfigError(f"{name!r}: is exempted as user and as account: write user={name} or account={name}")
        if not known:
            raise ControlError(f"{name}: is not exempted")
        kind, exact = known[0].kind, known[0].name
        self._exemptions.remove(kind, exact, caller)
        self._controls.exemptions_changed()
        self._controls.wake()
        self._log.warning("exemption_ended", kind=kind.value, name=exact, by=caller.user)
        return DoneView(done=f"{kind.value} {exact} is no longer exempted")

    def exemptions(self) -> ExemptView:
        return exempt_view(self._exemptions.exemptions, self._clock())

    def _account_names(self) -> set[str]:
        """Those of slurmdbd; without it those of the entitlements and of the jobs."""
        rows, snapshot = None, self._latest.report.snapshot
        with suppress(GatewayError):
            rows = self._gateway.accounts()
        if rows is not None:
            return {row.name for row in rows}
        jobs = () if snapshot is None else snapshot.jobs.values()
        return {one.name for one in self._entitlements.entitlements} | {job.account for job in jobs}


def _array_of(text: str) -> str:
    """The array of a list of its tasks; "" of anything else. ConfigError for a list that does not name them all."""
    try:
        asked = asked_tasks(text)
    except ValueError:
        array = text.partition("_")[0]
        raise ConfigError(f"job = {text[:40]!r}: must name each task: name the array, {array}, or one task") from None
    return "" if asked is None else str(asked[0])


def _asked_of(record: Job, text: str) -> str:
    """What of a record was asked for: of a waiting array only the tasks that are named, which Slurm then lists by
    themselves; "" if it has none of them."""
    asked = asked_tasks(text)
    if asked is None:
        return text if "_" in text else record.ref
    tasks = [task for task in record.task_ids if any(task in some for some in asked[1])]
    return tasks_ref(asked[0], tasks) if tasks else ""


def _until_text(until: float | None) -> str:
    if until is None:
        return ""
    return f" until {datetime.fromtimestamp(until).astimezone().isoformat(sep=' ', timespec='seconds')}"
