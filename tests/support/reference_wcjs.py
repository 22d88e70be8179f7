"""A slow replay of WCJS on places, from the paper's text and the authors' settings: every rule as a search over all
jobs and places, nothing kept between two events. It shares the laws with the compiled one, and no code besides."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isinf, nan

from omfs_daemon.policy.rules.checkpoint_laws import (
    FILE_SYSTEM_RATE,
    application_checkpoints,
    checkpoint_seconds,
    victim_cost,
    wfp_score,
)
from omfs_daemon.policy.rules.slowdown_laws import running_slowdown, threshold_crossing, waiting_slowdown
from omfs_daemon.predict.prediction import HowEnded, expected_run
from omfs_daemon.predict.predictor_table import new_predictor
from omfs_daemon.simulate.engine.places import Place
from omfs_daemon.simulate.engine.scenario import Scenario
from omfs_daemon.simulate.kernels.running import corrected
from tests.support.reference_predictions import features, predicted_seconds


@dataclass
class Stay:
    """``marks``: when a checkpoint was complete, and the work that it has, the first entry at the begin."""

    job: int
    place: Place
    begin: float
    works_from: float
    marks: list[tuple[float, float]]
    will_end: float
    span: float
    end: float = nan
    gone: float = nan
    preemptor: int = -1

    longest: float = inf

    def expected(self, now: float) -> float:
        """At its limit at the latest, where that counts, unless it has passed too."""
        end = corrected(self.begin, self.span, now)
        return (
            end
            if end <= self.begin + self.longest
            else max(self.begin + self.longest, corrected(self.begin, self.longest, now))
        )


@dataclass
class PlaceReplay:
    """``order``: wfp, wfp-first, wcjs or wcjs-text. After ``run``: start and finish by job, all stays, and each
    decision as (now, preemptor, its cost)."""

    scenario: Scenario
    order: str
    waiting: list[int] = field(default_factory=list)
    due: list[int] = field(default_factory=list)
    running: dict[int, Stay] = field(default_factory=dict)
    leaving: dict[int, tuple[Place, float]] = field(default_factory=dict)
    claims: dict[int, tuple[Place, float, list[int]]] = field(default_factory=dict)
    done: dict[int, float] = field(default_factory=dict)
    start: dict[int, float] = field(default_factory=dict)
    finish: dict[int, float] = field(default_factory=dict)
    stays: list[Stay] = field(default_factory=list)
    decisions: list[tuple[float, int, float]] = field(default_factory=list)
    predicted: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        jobs, setting = self.scenario.workload, self.scenario.realtime
        self.count, self.places = len(jobs), list(setting.layout.places)
        self.submit, self.cpus = jobs.submit.tolist(), jobs.cpus.tolist()
        kill = self.scenario.conventions.kill
        self.run_time = [min(run, limit) if kill else run for run, limit in zip(jobs.run, jobs.limit, strict=True)]
        conventions = self.scenario.conventions
        exact = conventions.estimates is None and conventions.learning is None
        known = zip(self.run_time, jobs.limit, strict=True)
        self.limit = [max(1.0, run if exact or isinf(limit) else limit) for run, limit in known]
        self.believed = list(self.limit)
        learning = self.scenario.conventions.learning
        self.predictor = None if learning is None else new_predictor(learning)
        self.learns = learning is not None and not self.scenario.conventions.for_victims_only
        self.realtime = jobs.realtime.tolist()
        self.seconds = [checkpoint_seconds(n, setting.memory_per_cpu) for n in self.cpus]
        self.category = [
            setting.sizes.category(n, limit, self.scenario.machine.cpus)
            for n, limit in zip(self.cpus, self.limit, strict=True)
        ]

    # -- events ------------------------------------------------------------------------------------------------------
    def run(self) -> PlaceReplay:
        arrived = 0
        stops = self.order.startswith("wcjs")
        while True:
            times = [stay.will_end for stay in self.running.values()] + [at for _, at, _ in self.claims.values()]
            times += self.submit[arrived : arrived + 1]
            times += [self.act_at(job) for job in self.waiting if stops and self.realtime[job]]
            if not times:
                return self
            now = min(times)
            for job in [job for job, stay in self.running.items() if stay.will_end <= now]:
                stay = self.running.pop(job)
                stay.end = stay.gone = self.finish[job] = now
                if self.predictor is not None:
                    of_job = features(self.scenario.workload, job)
                    self.predictor.ended(of_job, self.run_time[job], HowEnded.BY_ITSELF)
            self.release(now)
            while arrived < self.count and self.submit[arrived] <= now:
                if any(place.size >= self.cpus[arrived] for place in self.places):
                    self.predict(arrived)
                    self.waiting.append(arrived)
                arrived += 1
            ripe = [job for job in self.waiting if stops and self.realtime[job] and self.act_at(job) <= now]
            for job in sorted(ripe, key=lambda job: (self.act_at(job), job)):
                self.waiting.remove(job)
                self.due.append(job)
            self.serve(now)

    def predict(self, job: int) -> None:
        if self.predictor is None:
            return
        self.predicted[job] = predicted_seconds(self.predictor, features(self.scenario.workload, job))
        if self.learns:
            self.believed[job] = self.predicted[job]

    def put_off(self, job: int) -> None:
        """A job that was stopped and has done what it was believed to do will take more."""
        if self.learns and self.done[job] >= self.believed[job]:
            limit = float(self.scenario.workload.limit[job])
            more = corrected(0.0, self.believed[job], self.done[job])
            self.believed[job] = more if more <= limit else max(limit, corrected(0.0, limit, self.done[job]))

    def act_at(self, job: int) -> float:
        threshold = self.scenario.realtime.terms.act_at[self.category[job]]
        return threshold_crossing(self.submit[job], self.limit[job], threshold)

    def release(self, now: float) -> None:
        for job, (place, at, victims) in list(self.claims.items()):
            if at <= now:
                del self.claims[job]
                for victim in victims:
                    del self.leaving[victim]
                    self.put_off(victim)
                    self.waiting.append(victim)
                self.begin(job, place, now)

    def serve(self, now: float) -> None:
        self.due.sort(key=lambda job: -waiting_slowdown(self.submit[job], self.limit[job], now))
        for job in list(self.due):
            if self.serve_due(job, now):
                self.due.remove(job)
        if self.due and self.order == "wcjs-text":
            return
        if self.order == "wfp-first":
            self.backfill([job for job in self.waiting if self.realtime[job]], now)
            if any(self.realtime[job] for job in self.waiting):
                return
        self.backfill(list(self.waiting), now)

    # -- places ------------------------------------------------------------------------------------------------------
    def of_size(self, job: int) -> list[Place]:
        size = min(place.size for place in self.places if place.size >= self.cpus[job])
        return [place for place in self.places if place.size == size]

    def holders(self, place: Place) -> set[int]:
        """The jobs that hold a unit of it, those that leave and those that claim included."""
        held = {job: stay.place for job, stay in self.running.items()}
        held |= {job: of for job, (of, _) in self.leaving.items()} | {
            job: of for job, (of, _, _) in self.claims.items()
        }
        return {job for job, other in held.items() if set(other.units) & set(place.units)}

    def free(self, job: int, avoiding: Place | None = None) -> Place | None:
        fitting = [
            place
            for place in self.of_size(job)
            if not self.holders(place) and not (avoiding and set(avoiding.units) & set(place.units))
        ]
        return min(fitting, key=self.blocked, default=None)

    def blocked(self, place: Place) -> int:
        return sum(
            other.size > place.size and bool(set(other.units) & set(place.units)) and not self.holders(other)
            for other in self.places
        )

    # -- one job's stay ----------------------------------------------------------------------------------------------
    def checkpoints(self, job: int) -> tuple[float, int]:
        scheme = self.scenario.realtime.scheme
        if self.realtime[job] or scheme.kind in ("none", "jit"):
            return inf, 0
        if scheme.kind == "sys":
            return scheme.amount, 10**9
        most = application_checkpoints(scheme.amount, self.limit[job], self.seconds[job])
        return self.limit[job] / (most + 1), most

    def course(self, job: int, begin: float, total: float) -> tuple[float, list[tuple[float, float]], float]:
        """When it computes, its checkpoints, and how long it will stay, if it runs so long in all."""
        done = self.done.get(job, 0.0)
        reading = self.seconds[job] if done > 0 else 0.0
        interval, most = self.checkpoints(job)
        marks, earlier = [(begin, done)], round(done / interval)
        while earlier + len(marks) <= most and (earlier + len(marks)) * interval < total - 1e-6:
            # Not added up one by one: events at one instant must stay at one.
            at = begin + reading + len(marks) * (interval + self.seconds[job])
            marks.append((at, done + len(marks) * interval))
        work = max(0.0, total - done)
        return begin + reading, marks, reading + work + (len(marks) - 1) * self.seconds[job]

    def begin(self, job: int, place: Place, now: float) -> None:
        works_from, marks, seconds = self.course(job, now, self.run_time[job])
        span = self.course(job, now, self.believed[job])[2]
        limit = float(self.scenario.workload.limit[job])
        longest = self.course(job, now, limit)[2] if self.learns and limit < inf else inf
        stay = Stay(job, place, now, works_from, marks, now + seconds, span, longest=longest)
        self.running[job] = stay
        self.stays.append(stay)
        self.start.setdefault(job, now)

    def progress(self, stay: Stay, now: float) -> tuple[float, float, float]:
        """Work done; saved; and since when that is."""
        at, saved = [mark for mark in stay.marks if mark[0] <= now][-1]
        interval, most = self.checkpoints(stay.job)
        since = max(0.0, now - max(at, stay.works_from))
        if round(saved / interval) < most:
            since = min(since, interval)
        return min(saved + since, self.run_time[stay.job]), saved, at

    # -- real-time jobs ----------------------------------------------------------------------------------------------
    def serve_due(self, job: int, now: float) -> bool:
        place = self.free(job)
        if place is not None:
            self.begin(job, place, now)
            return True
        costs = [(self.cost(place, now), number) for number, place in enumerate(self.of_size(job))]
        cost, number = min(costs)
        if cost == inf:
            return False
        place = self.of_size(job)[number]
        self.decisions.append((now, job, cost))
        self.stop(job, place, now)
        return True

    def cost(self, place: Place, now: float) -> float:
        return sum(self.cost_of(job, place, now) for job in sorted(self.holders(place)))

    def cost_of(self, job: int, place: Place, now: float) -> float:
        terms, stay = self.scenario.realtime.terms, self.running.get(job)
        if stay is None or self.realtime[job] or stay.place.size > place.size:
            return inf
        worked, _, saved_at = self.progress(stay, now)
        slowdown = max(1.0, running_slowdown(self.submit[job], self.limit[job], now, worked))
        if slowdown > terms.victim_max[self.category[job]]:
            return inf
        weights, expected = terms.weights, self.limit[job]
        if job in self.predicted:
            expected = min(expected, expected_run(self.predicted[job], worked, inf))
        slowdown = max(1.0, running_slowdown(self.submit[job], expected, now, worked))
        return victim_cost(
            self.cpus[job], slowdown, now - saved_at, max(0.0, expected - worked), expected,
            weights.slowdown, weights.checkpoint, weights.remaining,
        )  # fmt: skip

    def stop(self, job: int, place: Place, now: float) -> None:
        setting = self.scenario.realtime
        victims = sorted(self.holders(place))
        writing = []
        for victim in victims:
            stay = self.running.pop(victim)
            worked, saved, _ = self.progress(stay, now)
            stay.end, stay.preemptor = now, job
            writes = setting.scheme.kind == "jit" and worked > saved
            self.done[victim] = worked if writes else saved
            writing += [victim] if writes else []
            self.leaving[victim] = (stay.place, inf)
            stay.gone = now
        shared = sum(setting.memory_per_cpu * self.cpus[one] / FILE_SYSTEM_RATE for one in writing)
        longest = max((self.seconds[one] for one in writing), default=0.0)
        at = now + max(longest, shared if setting.shared_file_system else 0.0)
        for victim in victims:
            if victim in writing:
                next(stay for stay in reversed(self.stays) if stay.job == victim).gone = at
            self.leaving[victim] = (self.leaving[victim][0], at)
        self.claims[job] = (place, at, victims)
        self.release(now)

    # -- the others --------------------------------------------------------------------------------------------------
    def backfill(self, jobs: list[int], now: float) -> None:
        machine = self.scenario.machine.cpus
        score = {job: wfp_score(self.submit[job], self.believed[job], self.cpus[job], machine, now) for job in jobs}
        reserved, shadow = None, inf
        for job in sorted(jobs, key=lambda job: (-score[job], job)):
            in_time = now + self.course(job, now, self.believed[job])[2] <= shadow
            place = self.free(job, None if in_time else reserved)
            if place is not None:
                self.waiting.remove(job)
                self.begin(job, place, now)
            elif reserved is None:
                reserved = min(self.of_size(job), key=lambda place: self.expected_free(place, now))
                shadow = self.expected_free(reserved, now)

    def expected_free(self, place: Place, now: float) -> float:
        def until(job: int) -> float:
            if job in self.running:
                return self.running[job].expected(now)
            if job in self.claims:
                _, at, _ = self.claims[job]
                return at + self.course(job, at, self.believed[job])[2]
            return self.leaving[job][1]

        return max((until(job) for job in self.holders(place)), default=now)
