"""Predictions in the daemon: what learns, what is kept, and the estimates of starts that requests share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from threading import Lock

import structlog

from omfs_daemon.accounting.ended_days import AccountedEnd, asked_ends
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.snapshot import PreemptionHistory, Snapshot
from omfs_daemon.config.build import rules
from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.learning.accounting_reader import AccountingReader
from omfs_daemon.daemon.learning.learned_jobs import LearnedJobs
from omfs_daemon.daemon.learning.learner import Learner, LearnerThread
from omfs_daemon.daemon.learning.model_training import ModelTraining
from omfs_daemon.daemon.learning.run_predictions import RunPredictions
from omfs_daemon.daemon.learning.start_record import StartRecord
from omfs_daemon.daemon.learning.victim_predictions import Remaining, VictimPredictions, no_predictions
from omfs_daemon.daemon.store.audit_log import AuditLog, Changer
from omfs_daemon.daemon.store.ended_jobs import EndedJobs, Foreseen, ScoredJob
from omfs_daemon.daemon.store.file_format import ENDED_JOBS
from omfs_daemon.daemon.store.journal import Journal
from omfs_daemon.errors import ConfigError, ControlError, FormatError, GatewayError, UnansweredError
from omfs_daemon.policy.plan import Plan
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.predict.gbm import GbmPredictor
from omfs_daemon.predict.gbm_training import require_lightgbm
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.slurm.gateway import Gateway
from omfs_daemon.starts.start_estimates import (
    ProbedStart,
    StartEstimates,
    at,
    probed_starts,
    start_estimates,
)
from omfs_daemon.starts.track_record import widened

_KEEPS, _KEEPS_WITHOUT = 15.0, 1.0
"""Seconds for which an estimate of the queue is shown before a newer poll is used; one without the job asked for."""
_DAY = 86400.0
_MOST_DAYS = 3650


Latest = Callable[[], tuple[Snapshot, Plan] | None]
ObserveEnded = Callable[[int, Iterable[ScoredJob]], None]


class PredictionService:
    """Usable from several threads.

    latest   the newest snapshot and its plan; None before the first
    observe  called with the number of jobs that are known, and jobs that have ended of which something was foreseen
    """

    def __init__(
        self,
        *,
        config: Config,
        store: EndedJobs,
        gateway: Gateway,
        latest: Latest,
        journal: Journal,
        settings: Callable[[], Settings],
        observe: ObserveEnded,
        clock: Callable[[], float],
    ) -> None:
        section = config.predict
        self.store = store
        self.runs = RunPredictions(section.predictor, section.keys, section.keep_names)
        self._gateway, self._latest, self._journal, self._settings = gateway, latest, journal, settings
        self._clock = clock
        self._config = config
        self._starts = StartRecord(store, int(clock()))
        self._lock = Lock()
        self._estimates: dict[bool, StartEstimates] = {}
        """By whether every job runs to its limit."""
        training = ModelTraining(store, self.runs, clock) if section.predictor == GbmPredictor.name else None
        self.learned = LearnedJobs(
            store, self.runs, lambda ends: observe(store.count(), store.scored_of(ends)), training
        )
        self.accounting = AccountingReader(self.learned, self._ask_day, clock)
        self.learner = Learner(
            gateway=gateway,
            learned=self.learned,
            accounting=self.accounting,
            starts=self._starts,
            keep_names=section.keep_names,
            foresee=self._foresee,
            clock=clock,
        )
        self.thread = LearnerThread(self.learner.step)
        if store.is_new and section.learn_days:
            store.ask_to_learn(max(0.0, clock() - section.learn_days * _DAY), clock())

    def close(self) -> None:
        self.thread.close()
        self.learned.close()
        self.store.close()

    def observe(self, snapshot: Snapshot) -> None:
        """After each full poll."""
        if self.learner.observe(snapshot):
            self.thread.wake()

    def remaining(self) -> Remaining:
        """What the choice of victims counts with; for one thread."""
        return VictimPredictions(self.runs).of if self._config.predict.use_for_victims else no_predictions

    @property
    def keep_names(self) -> bool:
        """Whether names of jobs are kept as they are."""
        return self._config.predict.keep_names

    def _has_accounting(self) -> bool:
        return self._gateway.settings().values.get("AccountingStorageType") == "accounting_storage/slurmdbd"

    def _ask_day(self, begin: float, until: float) -> list[AccountedEnd] | None:
        return asked_ends(begin, until, self._config.slurm.conf, self.keep_names) if self._has_accounting() else None

    # -- requests --
    def learn(self, since: float) -> None:
        """Read accounting since then; ControlError where there is none."""
        now = self._clock()
        if not now - _MOST_DAYS * _DAY <= since < now:
            raise ConfigError(f"--since: must be a time within the last {_MOST_DAYS} days")
        try:
            if not self._has_accounting():
                raise ControlError("Slurm has no accounting in slurmdbd: run times are learned from jobs as they end")
        except GatewayError as error:
            raise ControlError(f"nothing is learned: {error}") from None
        self.accounting.learn_from(since, now)
        self.thread.wake()

    def forget(self, user: str, who: Changer) -> int:
        """Delete what is kept of a user; how many jobs that were. It is recorded before it is done."""
        audit = AuditLog(self._config.daemon.state_dir, self._clock)
        audit.record_or_refuse("forget", who, changed=[f"predict: what was learned from jobs of {user} is deleted"])
        count = self.store.forget_user(user, self._clock())
        self._starts.load()
        self.learned.learn_anew()
        structlog.get_logger("predict").warning("user_forgotten", by=who.user, user=user, jobs=count)
        return count

    # -- starts --
    def estimates(self, at_limit: bool = False, needed: Sequence[str] = ()) -> StartEstimates:
        """Of the latest full poll, or of one a few seconds before it; ControlError before the first.

        at_limit  as if every job ran to its limit
        needed    jobs that may have been submitted since the last estimate
        """
        latest = self._latest()
        if latest is None:
            raise UnansweredError("Slurm has not answered yet: try again")
        snapshot, plan = latest
        with self._lock:
            known = self._estimates.get(at_limit)
            age = 0.0 if known is None else snapshot.taken - known.taken
            keeps = _KEEPS if known is None or all(ref in known.rows for ref in needed) else _KEEPS_WITHOUT
            if known is None or not 0 <= age < keeps:
                known = self._estimates[at_limit] = self._estimated(snapshot, plan, at_limit)
        return known

    def _estimated(self, snapshot: Snapshot, plan: Plan, at_limit: bool) -> StartEstimates:
        now = self.rules
        history = self._journal.state.preemption_history(now.methods)
        predict = self.runs.at_limits if at_limit else self.runs.of
        found = start_estimates(snapshot, plan, history, now, predict, int(snapshot.taken))
        return found if at_limit else replace(found, late=self._starts.late)

    @property
    def rules(self) -> Rules:
        """Those in force."""
        return self._settings().rules

    def probed(self, make: Callable[[Snapshot, Rules], Sequence[Job]]) -> tuple[float, list[ProbedStart]]:
        """When jobs that are not there would start, and the time from which that is counted: ``make`` makes them for
        the latest snapshot; ControlError before the first."""
        latest = self._latest()
        if latest is None:
            raise UnansweredError("Slurm has not answered yet: try again")
        (snapshot, plan), now = latest, self.rules
        jobs, history = make(snapshot, now), self._journal.state.preemption_history(now.methods)
        seed = int(snapshot.taken)
        found = probed_starts(snapshot, plan, history, now, self.runs.of, seed, jobs) if jobs else []
        late = self._starts.late
        return snapshot.taken, [one._replace(start=widened(one.start, late)) for one in found]

    def probed_elsewhere(self, snapshot: Snapshot, jobs: Sequence[Job]) -> list[ProbedStart]:
        """Likewise on another cluster, where jobs start in Slurm's order."""
        plan, nobody = Plan(snapshot.taken, snapshot.taken), rules(Config(), ())
        seed = int(snapshot.taken)
        return probed_starts(snapshot, plan, PreemptionHistory(), nobody, self.runs.of, seed, jobs) if jobs else []

    def starts_held(self) -> tuple[float | None, int]:
        """The share of the latest starts that came no later than their p90 was (``TrackRecord.held``)."""
        return self._starts.held()

    def expected_by_slurm(self, job_ids: Sequence[int]) -> dict[int, float]:
        """Slurm's own estimates; none if it does not answer."""
        try:
            return self._gateway.expected_starts(job_ids)
        except GatewayError as error:
            structlog.get_logger("predict").warning("starts_not_asked", error=str(error))
            return {}

    def _foresee(self, due: Sequence[Job], known: set[int]) -> list[Foreseen]:
        """Note the starts of jobs that wait; what is foreseen of those that are not known."""
        estimates = self.estimates(needed=[job.ref for job in due])
        self._starts.note(due, estimates)
        fresh = [job for job in due if job.id not in known]
        if not fresh:
            return []
        slurms, found, now = self.expected_by_slurm([]), [], self._clock()
        for job, run in zip(fresh, self.runs.of(fresh), strict=True):
            if not isfinite(run.p90):  # it has no limit, and nothing is known of such jobs
                continue
            start = estimates.of(job.ref)
            p50 = None if start is None else at(estimates.taken, start.p50)
            p90 = None if start is None else at(estimates.taken, start.p90)
            slurm = slurms.get(job.id)
            found.append(Foreseen(job.id, job.user, self.runs.name, run.p50, run.p90, now, p50, p90, slurm))
        return found


def open_predictions(
    config: Config,
    gateway: Gateway,
    latest: Latest,
    journal: Journal,
    settings: Callable[[], Settings],
    observe: ObserveEnded,
    clock: Callable[[], float],
) -> PredictionService | str:
    """The service, or why there is none. Then ``when``, ``where``, and their like are refused, and time limits alone
    count in the choice of victims, whatever ``predict.use_for_victims`` says. ConfigError if the predictor needs what
    is not installed."""
    if not config.predict.enabled:
        return "predictions are off: predict.enabled is false"
    if config.predict.predictor == GbmPredictor.name:
        require_lightgbm()
    path: Path = config.daemon.state_dir / ENDED_JOBS.name
    try:
        store = EndedJobs(path, config.predict.max_jobs)
    except (FormatError, OSError) as error:
        structlog.get_logger("predict").error("predictions_off", error=str(error))
        return f"predictions are off: {error}"
    return PredictionService(
        config=config,
        store=store,
        gateway=gateway,
        latest=latest,
        journal=journal,
        settings=settings,
        observe=observe,
        clock=clock,
    )
