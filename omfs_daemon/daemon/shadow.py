"""What the daemon would have done, in a dry run: kept in the history for ``omfs shadow``.

Each decision is judged alone: the jobs that it would have moved stay where they are, so that later decisions are those
for the cluster as it really is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf

from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.daemon.store.history_database import HistoryDatabase
from omfs_daemon.daemon.store.shadow_rows import ShadowKind, ShadowRow
from omfs_daemon.policy.plan import Plan, PlannedPreemption
from omfs_daemon.policy.rules.classes import classify
from omfs_daemon.policy.start_checks.answer import AnswerKind
from omfs_daemon.policy.validator import Verdict
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.preemption.settings import Settings

WATCHED_EVERY = 60.0
"""Seconds after which the time that was watched is written again; a longer gap between two cycles was not watched."""


class Shadow:
    """The decisions whose jobs still wait are read from the history at first, so that a restart counts none twice."""

    def __init__(self, history_database: HistoryDatabase) -> None:
        self._history_database = history_database
        self._waiting: dict[str, ShadowRow] | None = None
        self._held: set[str] = set()
        self._watched: ShadowRow | None = None

    @property
    def asked_for(self) -> dict[str, int | str]:
        """Jobs that may have come and gone between two polls."""
        return {ref: int(ref) if ref.isdecimal() else ref for ref in self._waiting or ()}

    def observe(self, plan: Plan, verdict: Verdict, observation: Observation, now: float, settings: Settings) -> None:
        """Record what is new in this cycle."""
        waiting = self._read()
        rows = [*self._ended(waiting, observation)]
        for planned in verdict.preemptions:
            job = observation.job(planned.preemptor)
            if job is not None and planned.preemptor not in waiting:
                waiting[planned.preemptor] = _start(planned, job, verdict, now, settings)
                rows.append(waiting[planned.preemptor])
                rows += _preemptions(planned, observation, now, settings)
        rows += self._holds(plan, observation, now, settings)
        self._history_database.record_shadow([*rows, *self._time_watched(now)])

    def end(self, now: float) -> None:
        """No dry run any more: what becomes of waiting jobs from now on is no longer as without the daemon."""
        if waiting := self._read():
            self._history_database.record_shadow([row._replace(ended=now, started=True) for row in waiting.values()])
            waiting.clear()
        self._watched = None

    def _read(self) -> dict[str, ShadowRow]:
        if self._waiting is None:
            rows = self._history_database.shadow(0.0)
            self._waiting = {row.job: row for row in rows if row.kind == ShadowKind.START and row.ended is None}
            self._held = {row.job for row in rows if row.kind == ShadowKind.HOLD}
        return self._waiting

    def _ended(self, waiting: dict[str, ShadowRow], observation: Observation) -> Iterator[ShadowRow]:
        for ref, row in list(waiting.items()):
            job = observation.job(ref)
            if job is not None and not job.holds_cpus:
                continue
            job = job or observation.ended(ref)
            start = job.start if job is not None and job.state is not JobState.PENDING else None
            del waiting[ref]
            if start is not None and start >= int(row.begun):  # Slurm's times are whole seconds
                yield row._replace(ended=max(start, row.begun), started=True)
            else:
                yield row._replace(ended=row.begun)

    def _holds(self, plan: Plan, observation: Observation, now: float, settings: Settings) -> Iterator[ShadowRow]:
        """One row for a job, or for an array: which of its tasks wait changes all the time."""
        for change in plan.holds:
            job = observation.job(change.ref)
            name = "" if job is None else str(job.array_id or job.id)
            if job is not None and name not in self._held:
                self._held.add(name)
                yield _row(ShadowKind.HOLD, job, now, settings)._replace(job=name)

    def _time_watched(self, now: float) -> Iterator[ShadowRow]:
        before = self._watched
        if before is None or before.ended is None or not 0 <= now - before.ended <= 2 * WATCHED_EVERY:
            self._watched = ShadowRow(ShadowKind.WATCHED, "", now, ended=now)
            yield self._watched
        elif now - before.ended >= WATCHED_EVERY:
            self._watched = before._replace(ended=now)
            yield self._watched


def _start(planned: PlannedPreemption, job: Job, verdict: Verdict, now: float, settings: Settings) -> ShadowRow:
    answer = verdict.answers.get(planned.preemptor)
    is_certain = answer is None or answer.kind is not AnswerKind.UNKNOWN
    row = _row(ShadowKind.START, job, now, settings)
    patience = _patience(planned, settings) if is_certain else inf
    return row._replace(job=planned.preemptor, cpus=sum(each.cpus for each in planned.allocations), patience=patience)


def _patience(planned: PlannedPreemption, settings: Settings) -> float:
    """The most seconds until the preemptor runs: later the preemption would have been undone. Quick victims wait for
    the careful ones."""
    limits: Mapping[str, float] = settings.preempt_timeouts
    careful = {victim.method for victim in planned.victims if settings.methods[victim.method].traits.is_careful}
    quick = {victim.method for victim in planned.victims} - careful
    slowest = [max(limits.get(name, settings.preempt_timeout) for name in names) for names in (careful, quick) if names]
    return sum(slowest) + settings.start_timeout


def _preemptions(
    planned: PlannedPreemption, observation: Observation, now: float, settings: Settings
) -> Iterator[ShadowRow]:
    for victim in planned.victims:
        job = observation.job(victim.ref)
        if job is not None:
            keeps = settings.rules.method(victim.method).keeps_work
            row = _row(ShadowKind.PREEMPTION, job, now, settings)
            lost = 0.0 if keeps else job.run_time * victim.cpus
            yield row._replace(cpus=victim.cpus, method=victim.method, preemptor=planned.preemptor, lost=lost)


def _row(kind: ShadowKind, job: Job, now: float, settings: Settings) -> ShadowRow:
    name = classify(settings.rules, job).name
    return ShadowRow(kind, job.ref, now, job.user, job.account, name, job.request.cpus * job.tasks)
