"""A random site with limits that Slurm enforces, and that the plan sees or not; and what must be so on it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, cast

from omfs_daemon.cluster.job_shape import request_in, shape_of_request, shape_on_node
from omfs_daemon.cluster.jobs import Hold, JobRequest, JobState
from omfs_daemon.cluster.limits import (
    Association,
    Qos,
    RunningLimits,
    SiteLicense,
    SiteLimits,
    SiteReservation,
    UsageLimits,
)
from omfs_daemon.cluster.marks import SUBMIT_MARK
from omfs_daemon.daemon.questions import Question, Questions
from omfs_daemon.errors import GatewayError
from omfs_daemon.policy.admission_holds import BELIEF
from omfs_daemon.preemption.doubts import doubted_by_request
from omfs_daemon.preemption.our_holds import is_held_by_others
from omfs_daemon.testing.fake_slurm.fake_jobs import Record, Submission
from tests.support.model_checks import Violation, check_always, described
from tests.support.model_site import Cluster, Event, ModelSite, calm, happen
from tests.support.watched_slurm import GATE

ACCOUNTS = ("bio", "physics")
USERS = ("ann", "bob")
LENDER = "chem"
"""It owns nothing: all its jobs borrow, and any may be preempted for others."""

ENFORCED = frozenset({"associations", "limits", "qos"})
MANY = 10**6
TIME_LIMIT = 600.0
RETRY_AFTER = 20.0

PROMISED = BELIEF + 120.0
"""Seconds, besides back-offs, within which a job starts for which a fair set of victims exists, however many others are
tried before it, or fill its account's share and do not start."""


class Sight(StrEnum):
    """What the plan sees of limits. NOTHING: that they cannot be read; NONE: that there are none."""

    ALL = "all"
    NOTHING = "nothing"
    NONE = "none"


class LimitedCluster(NamedTuple):
    """``tier``: of partition urgent; ``may_ask``: as in ``Settings``."""

    nodes: int = 2
    sight: Sight = Sight.NONE
    tier: int = 1
    may_ask: bool = True


class AnsweringSlurm:
    """Slurm's answers to questions, as ``Questions`` gives them."""

    def __init__(self, site: LimitedSite) -> None:
        self._site = site
        self._answers: dict[int, str] = {}

    def keep(self, wanted: Mapping[int, Question]) -> None:
        self._answers = {number: self._answers.get(number) or self._put(wanted[number]) for number in wanted}

    def answers(self) -> dict[int, str]:
        return self._answers

    def _put(self, question: Question) -> str:
        slurm = self._site.slurm
        record = slurm.records[question.job]
        if record.array_id is not None:
            return ""
        word = slurm.refusal(record, frozenset(question.nodes))
        if word.startswith(("QOS", "Assoc")):
            return "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
        return f"Requested node configuration is not available ({word})" if word else "Requested nodes are busy"


class LimitedSite(ModelSite):
    """``limits``: those in force, by kind; ``vain``: how often others were preempted for a job in vain, by the job and
    what Slurm refused it for; ``taken``: the victims of each job, by its runs."""

    def __init__(self, directory: Path, cluster: LimitedCluster) -> None:
        self.limited = cluster
        self.limits: dict[str, int] = {}
        self.changes: Counter[str] = Counter()
        self.vain: Counter[tuple[str, str]] = Counter()
        self.in_vain_at: dict[str, list[float]] = defaultdict(list)
        self.taken: Counter[tuple[str, int, str]] = Counter()
        self.servable_since: dict[int, float] = {}
        self._seen = 0
        super().__init__(directory, Cluster(((4, 0),) * cluster.nodes))
        self.settings = replace(self.settings, retry_after=RETRY_AFTER, start_timeout=5, may_ask=cluster.may_ask)
        self.gateway._settings["PreemptType"] = "preempt/none"
        self.slurm.update_partition("urgent", priority_tier=cluster.tier)
        self._partitions = list(self.slurm.partitions.values())
        self._blind()
        self._enforce()

    def start_daemon(self) -> None:
        super().start_daemon()
        self.cycle._questions = cast(Questions, AnsweringSlurm(self))

    def _blind(self) -> None:
        def unread() -> SiteLimits:
            raise GatewayError("cannot be read")

        if self.limited.sight is Sight.NOTHING:
            self.gateway.limits = unread  # type: ignore[method-assign]
        elif self.limited.sight is Sight.NONE:
            self.gateway.limits = SiteLimits  # type: ignore[method-assign]
            self.gateway.partitions = lambda: self._partitions  # type: ignore[method-assign]

    # -- limits ----------------------------------------------------------------------------------------------
    def set_limit(self, kind: str, amount: int) -> None:
        self.limits[kind] = amount
        self.changes[kind] += 1
        self._enforce()

    def lift(self, kinds: list[str]) -> None:
        for kind in kinds:
            self.limits.pop(kind, None)
        self._enforce()

    def _enforce(self) -> None:
        most = self.limits
        each = RunningLimits(most.get("user jobs"), _cpus(most.get("user cpus")))
        alone = dict.fromkeys(range(70_000), each) if each != RunningLimits() else {}
        high = UsageLimits(jobs=most.get("qos jobs"), tres=_cpus(most.get("qos cpus")))
        of_account = UsageLimits(jobs=most.get("account jobs"), tres=_cpus(most.get("account cpus")))
        associations = {(account, "", ""): Association(account, limits=of_account) for account in ACCOUNTS}
        associations[LENDER, "", ""] = Association(LENDER)
        for account, _, _ in list(associations):
            for user in USERS:
                associations[account, user, ""] = Association(account, user, own_jobs=most.get("own jobs"))
        reservations = []
        if "reservation" in most:
            node = f"n{1 + most['reservation'] % self.limited.nodes}"
            reservations.append(SiteReservation("maintenance", self.now, self.now + MANY, frozenset([node])))
        licenses = {"fluent": SiteLicense(3, reserved=3 if "licenses" in most else 0)}
        by_account = dict.fromkeys((*ACCOUNTS, LENDER), RunningLimits())
        levels = {"high": Qos("high", high, alone, by_account, frozenset())}
        self.slurm.set_limits(SiteLimits(ENFORCED, associations, levels, tuple(reservations), licenses))
        self.slurm.update_partition("main", max_time=60.0 if "time" in most else float("inf"))
        self.slurm.let_lack(self._lacks)
        self.slurm.let_not_fit(self._unfit, is_said=bool(most.get("node", 0) % 2))

    def _unfit(self, record: Record) -> frozenset[str]:
        """A node where jobs of more than one CPU do not fit, although it seems so: Slurm keeps its memory, perhaps."""
        is_meant = "node" in self.limits and record.what.account != LENDER and record.request.cpus > 1
        return frozenset([f"n{1 + self.limits['node'] % self.limited.nodes}"] if is_meant else [])

    def _lacks(self, record: Record) -> str:
        """A false yes: Slurm says so and does not start it, as if a job kept memory, or a whole node for its user."""
        is_meant = record.what.account != LENDER and record.what.user == USERS[0]
        return "Resources" if "resources" in self.limits and is_meant else ""

    # -- users -----------------------------------------------------------------------------------------------
    def submit_limited(self, account: str, kind: str, shape: str, cpus: int, user: str, run_time: int) -> None:
        """``kind`` as in ``model_site.submit``."""
        urgent = kind == "urgent"
        request = JobRequest(cpus, max_nodes=1, partitions=("urgent" if urgent else "main",))
        more: dict[str, Any] = {}
        if kind == "":
            more |= {"hold": Hold.USER, "admin_comment": SUBMIT_MARK}
        match shape:
            case "array":
                more |= {"array": (1, 2, 3), "array_throttle": 1}
            case "license":
                more |= {"licenses": (("fluent", 1),)}
            case "high":
                more |= {"qos": "high"}
        comment = f"omfs:method={kind}" if kind == "requeue" else ""
        job = Submission(
            request,
            user=user,
            account=account,
            run_time=float(run_time),
            time_limit=TIME_LIMIT,
            comment=comment,
            **more,
        )
        with self.slurm.acting(GATE):
            number = self.slurm.submit(job)
            self.submitted.append(number)
            if "hold" in more:
                self.slurm.holders[number] = GATE

    # -- what must be so ------------------------------------------------------------------------------------------
    def check(self) -> None:
        """After each cycle."""
        check_always(self)
        wrongs = [*self._in_vain(), *self._on_doubted_nodes(), *self._starved()]
        if wrongs:
            raise Violation("\n".join([*wrongs, f"limits {self.limits} {self.limited}", "", *described(self)]))

    def _in_vain(self) -> list[str]:
        fresh, self._seen = self.events[self._seen :], len(self.events)
        for event in fresh:
            records = [one for one in self.slurm.records.values() if one.ref == event.job or str(one.id) == event.job]
            if event.event == "not_started_in_time" and records:
                word = self.slurm.refusal(records[0]) or "Resources"
                changes = self.changes["resources"] if word == "Resources" else self.changes
                self.vain[event.job, f"{word} {changes}"] += 1
                self.in_vain_at[records[0].what.account].append(self.now)
            elif event.event == "preempted":
                preemptor = str((event.data or {})["preemptor"])
                runs = len(self.slurm.history[int(preemptor)].starts) if preemptor.isdecimal() else 0
                self.taken[preemptor, runs, event.job] += 1
        found = [f"{times} times in vain for {job}: {word}" for (job, word), times in self.vain.items() if times > 1]
        return found + [
            f"job {victim} was preempted {times} times for job {job}"
            for (job, _, victim), times in self.taken.items()
            if times > 1 and "_" not in job
        ]

    def _on_doubted_nodes(self) -> list[str]:
        """Preemptions for nodes that were known not to serve such jobs."""
        doubts = self.journal.state.backoff.doubts
        return [
            f"preemption {preemption.id} for job {preemption.preemptor.ref} on {allocation.node}, which is doubted"
            for preemption in self.journal.state.preemptions.values()
            for allocation in preemption.preemptor.allocations
            if (doubt := doubts.get(shape_on_node(request_in(preemption.preemptor.shape), allocation.node)))
            and doubt.since < preemption.begun < doubt.until
        ]

    def _starved(self) -> list[str]:
        """Jobs that nothing keeps from starting, for longer than is promised."""
        servable = {record.id: record for record in self.live() if self._is_servable(record)}
        since = {number: self.servable_since.get(number, self.now) for number in servable}
        self.servable_since = since
        return [
            f"job {record.ref} of {record.what.account} could be served since {since[number]}"
            for number, record in servable.items()
            if self.now - since[number] > PROMISED + self._back_off(record)
        ]

    def _back_off(self, record: Record) -> float:
        """The longest that others like it may have caused."""
        times = len(self.in_vain_at[record.what.account])
        return RETRY_AFTER * (2.0 ** min(times, 6) if times else 1)

    def _is_servable(self, record: Record) -> bool:
        """Whether its account is within its entitlement, and jobs that nobody protects have enough of a node."""
        if record.state is not JobState.PENDING or record.what.account == LENDER:
            return False
        job = record.view(self.slurm.now)
        if is_held_by_others(job, self.journal.state) or self.slurm.refusal(
            replace(record, request=record.what.request)
        ):
            return False
        if any(key.startswith("Resources") for ref, key in self.vain if ref == record.ref):
            return False  # nobody knows that it could start now
        running = [one for one in self.live() if one.active]
        account, total = record.what.account, 4 * self.limited.nodes
        used = sum(one.request.cpus for one in running if one.what.account == account)
        if used + record.request.cpus > total // 2:
            return False
        free = {name: node.node.cpus for name, node in self.slurm.fake_nodes.items()}
        for one in running:
            for taken in one.taken:
                free[taken.node] -= 0 if one.what.account == LENDER else taken.allocation.cpus
        reserved = self.slurm.site_limits().reservations or ()
        doubted = doubted_by_request(self.journal.state.backoff.doubts, self.now)
        learned = doubted.get(shape_of_request(record.what.request), frozenset())
        closed = frozenset().union(self._unfit(record), learned, *(one.nodes for one in reserved))
        return any(cpus >= record.request.cpus for name, cpus in free.items() if name not in closed)


def _cpus(most: int | None) -> dict[str, int]:
    return {} if most is None else {"cpu": most}


def play(site: LimitedSite, events: list[Event]) -> None:
    for event in events:
        match event:
            case ("submit", account, kind, shape, cpus, user, run_time):
                site.submit_limited(account, kind, shape, cpus, user, run_time)
            case ("limit", kind, amount):
                site.set_limit(kind, amount)
            case ("lift", kind):
                site.lift([kind])
            case ("wait", seconds):
                end = site.now + seconds
                while site.now < end:
                    site.cycle_once(1.0)
                    site.check()
            case _:
                happen(site, event)


def end(site: LimitedSite) -> None:
    """Limits stay as they are for longer than the first back-offs. Then all are lifted, and every job starts that a
    fair set of victims would serve."""
    calm(site)
    for _ in range(25):
        site.cycle_once(2.0)
        site.check()
    site.lift(list(site.limits))
    end = site.now + 2000
    while site.now < end and any(site._is_servable(record) for record in site.live()):
        site.cycle_once(2.0)
        site.check()
    site.die()
