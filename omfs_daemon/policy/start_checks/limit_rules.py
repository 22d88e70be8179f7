"""Whether the limits of QOS and associations let a job start: the use by running jobs and its request within each.

As Slurm does: the first of partition QOS, job QOS (the other way round with the flag OverPartQOS), and associations
that sets a limit decides; of associations every one above counts (resource_limits, "Precedence").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.limits import Limit, Qos, RunningLimits, SiteLimits, UsageLimits
from omfs_daemon.cluster.nodes import Partition
from omfs_daemon.policy.start_checks.answer import Answer, AnswerKind
from omfs_daemon.policy.start_checks.limit_use import JOBS, Amounts, LimitUse, Scope

MARGIN = 0.05
"""A limit on minutes is certain only this part of it away: what is used decays, and grows while jobs run."""

# A name of TRES in Slurm's reasons: in those of groups and minutes, and in those of one job, user, or account.
_IN_GROUP = {"cpu": "Cpu", "mem": "Mem", "node": "Node"}
_OF_ONE = {"cpu": "Cpu{}Limit", "mem": "Memory{}", "node": "Node{}Limit"}


class Holder(NamedTuple):
    """Who has limits: ``prefix`` of Slurm's reasons ("QOS" or "Assoc"), ``scope`` of what counts, ``text`` for people.

    ``own_jobs``: MaxJobs of an association, where no QOS has a limit for users.
    """

    prefix: str
    scope: Scope
    text: str
    limits: UsageLimits
    own_jobs: int | None = None


def no(reason: str, text: str) -> Answer:
    return Answer(AnswerKind.NO, reason, text)


def unknown(text: str) -> Answer:
    return Answer(AnswerKind.UNKNOWN, "", text)


def limit_answers(job: Job, partition: Partition, need: Amounts, use: LimitUse, limits: SiteLimits) -> Iterator[Answer]:
    """What does not let the job start, or may not. ``need``: its TRES."""
    if limits.enforced is None or limits.associations is None or limits.qos is None:
        yield unknown("the limits of accounts and QOS cannot be read")
        return
    if not limits.enforced:
        return
    chain = list(limits.chain(job.account, job.user, partition.name))
    if not chain:
        yield no("InvalidAccount", f"user {job.user} has no association with account {job.account or '(none)'}")
        return
    if "limits" not in limits.enforced:
        return
    levels = [limits.qos[name] for name in dict.fromkeys(filter(None, (partition.qos, job.qos))) if name in limits.qos]
    if len(levels) < len(set(filter(None, (partition.qos, job.qos)))):
        yield unknown(f"the limits of QOS {job.qos} cannot be read")
    if len(levels) == 2 and (levels[1].flags is None or "OverPartQOS" in levels[1].flags):
        levels.reverse()
    for level in levels:
        if level.flags is None or level.has_usage_threshold:
            yield unknown(f"whether UsageThreshold of QOS {level.name} keeps it waiting is not known")
    holders = [[Holder("QOS", ("qos", level.name), f"QOS {level.name}", level.limits)] for level in levels]
    above = [
        Holder(
            "Assoc",
            ("association", one.account, one.user, one.partition) if one.user else ("account", one.account),
            one.text,
            one.limits,
            one.own_jobs,
        )
        for one in chain
    ]
    check = _Check(job, need, use)
    yield from check.of_users_and_accounts(levels)
    if not any(_of_user(level, job).jobs is not None or _of_account(level, job).jobs is not None for level in levels):
        yield from check.own_jobs(above[0])
    # Limits of single jobs were inherited: only those of the job's own association count.
    for precedence, is_group in (([*holders, above], True), ([*holders, above[:1]], False)):
        seen: set[str] = set()
        for group in precedence:
            found: set[str] = set()
            for holder in group:
                yield from check.of_group(holder, seen, found) if is_group else check.of_job(holder, seen, found)
            seen |= found
    if "safe" in limits.enforced and any(holder.limits.tres_seconds for group in (*holders, above) for holder in group):
        yield unknown("its whole time must fit into a limit on minutes (AccountingStorageEnforce=safe)")
    for name in sorted({name for group in (*holders, above) for holder in group for name in holder.limits.not_modeled}):
        yield unknown(f"there is a limit that omfsd does not count: {name}")


class _Check:
    """One job against one holder of limits after the other; ``seen``: limits that others before it have set."""

    def __init__(self, job: Job, need: Amounts, use: LimitUse) -> None:
        self._job, self._need, self._use = job, need, use

    def of_users_and_accounts(self, levels: Sequence[Qos]) -> Iterator[Answer]:
        seen: set[str] = set()
        for level in levels:
            user = ("qos user", level.name, str(self._job.uid))
            account = ("qos account", level.name, self._job.account)
            for scope, limit, whose in (
                (user, _of_user(level, self._job), "User"),
                (account, _of_account(level, self._job), "Account"),
            ):
                text = f"QOS {level.name} for each {whose.lower()}"
                if limit.not_modeled:
                    yield unknown(f"there is a limit that omfsd does not count: {sorted(limit.not_modeled)[0]}")
                if limit.jobs is not None and f"{JOBS} {whose}" not in seen:
                    seen.add(f"{JOBS} {whose}")
                    yield from self._jobs(scope, limit.jobs, f"QOSMaxJobsPer{whose}Limit", text)
                for name, most in limit.tres.items():
                    if f"{name} {whose}" not in seen:
                        seen.add(f"{name} {whose}")
                        prefix = "QOSMax" if whose == "User" else "Max"
                        yield from self._total(scope, name, most, _word(prefix, _OF_ONE, name, f"Per{whose}"), text)

    def own_jobs(self, holder: Holder) -> Iterator[Answer]:
        if holder.own_jobs is not None:
            yield from self._jobs(holder.scope, holder.own_jobs, "AssocMaxJobsLimit", holder.text)

    def of_group(self, holder: Holder, seen: set[str], found: set[str]) -> Iterator[Answer]:
        """What all jobs together may use."""
        limits, prefix = holder.limits, holder.prefix
        if limits.jobs is not None and JOBS not in seen:
            found.add(JOBS)
            yield from self._jobs(holder.scope, limits.jobs, f"{prefix}GrpJobsLimit", holder.text)
        for name, most in limits.tres.items():
            if name not in seen:
                found.add(name)
                word = f"{prefix}Grp{_IN_GROUP.get(name, name)}Limit"
                yield from self._total(holder.scope, name, most, word, holder.text)
        if limits.wall is not None and "wall" not in seen:
            found.add("wall")
            yield from _used_up(limits.wall, f"{prefix}GrpWallLimit", holder.text)
        for name, limit in limits.tres_seconds.items():
            if f"{name} seconds" not in seen:
                found.add(f"{name} seconds")
                yield from _used_up(limit, _minutes(prefix, "Grp", name, "MinutesLimit"), holder.text)
        for name, limit in limits.running_seconds.items():
            if f"{name} running" not in seen:
                found.add(f"{name} running")
                yield from self._running(limit, name, _minutes(prefix, "Grp", name, "RunMinutesLimit"), holder.text)

    def of_job(self, holder: Holder, seen: set[str], found: set[str]) -> Iterator[Answer]:
        """What a single job may use."""
        limits, prefix, job = holder.limits, holder.prefix, self._job
        for kind, listed, per in (("", limits.job_tres, "PerJob"), (" node", limits.node_tres, "PerNode")):
            for name, most in listed.items():
                if name + kind in seen:
                    continue
                found.add(name + kind)
                amount = self._amount(name)
                if amount is None or (kind and amount > most):
                    yield unknown(f"whether it is within a limit of {holder.text} on {name} is not known")
                elif amount > most:
                    yield no(_word(f"{prefix}Max", _OF_ONE, name, per), f"{holder.text} allows {most} {name} for a job")
        for name, least in limits.job_least_tres.items():
            if (amount := self._amount(name)) is None or amount < least:
                yield unknown(f"whether it requests the least {name} of {holder.text} is not known")
        for name, most in limits.job_tres_seconds.items():
            if f"{name} seconds" not in seen:
                found.add(f"{name} seconds")
                amount = self._amount(name)
                if amount is None:
                    yield unknown(f"whether it is within a limit of {holder.text} on {name} is not known")
                elif amount and amount * job.time_limit > most:
                    word = _minutes(prefix, "Max", name, "MinutesPerJobLimit")
                    yield no(word, f"{holder.text} allows a job {most // 60} minutes of {name}")
        if limits.job_wall is not None and "job wall" not in seen:
            found.add("job wall")
            if job.time_limit > limits.job_wall:
                word = f"{prefix}MaxWallDurationPerJobLimit"
                yield no(word, f"{holder.text} allows a job {limits.job_wall / 60:g} minutes")

    def _jobs(self, scope: Scope, most: int, word: str, text: str) -> Iterator[Answer]:
        running = self._use.of(scope)[JOBS]
        if running + 1 > most:
            yield no(word, f"{text} allows {most} running jobs, and {running} run")

    def _total(self, scope: Scope, name: str, most: int, word: str, text: str) -> Iterator[Answer]:
        used, amount = self._use.of(scope)[name], self._amount(name)
        if amount is None:
            yield unknown(f"whether it is within a limit of {text} on {name} is not known")
        elif amount and used + amount > most:
            yield no(word, f"{text} allows {_shown(name, most)}, and {_shown(name, used)} are used")

    def _running(self, limit: Limit, name: str, word: str, text: str) -> Iterator[Answer]:
        """What running jobs may still use shrinks while they run."""
        amount = self._amount(name)
        seconds = inf if amount is None else amount * self._job.time_limit if amount else 0.0
        if amount is not None and seconds > limit.most:
            yield no(word, f"{text} allows running jobs {limit.most / 60:g} minutes of {name} more")
        elif amount != 0 and limit.used + seconds > limit.most * (1 - MARGIN):
            yield unknown(f"whether it is within a limit of {text} on {name} minutes is not known")

    def _amount(self, name: str) -> int | None:
        """How much of it the job needs; None if that is not known."""
        if name.startswith("license/") or name in ("cpu", "node"):
            return self._need[name]
        if name == "mem":
            return self._need[name] or None
        kind, _, device = name.partition("/")
        if kind == "gres":
            return None if any(device in (one, one.partition(":")[0]) for one, _ in self._job.request.gres) else 0
        return None if name == "billing" else 0


def _used_up(limit: Limit, word: str, text: str) -> Iterator[Answer]:
    if limit.used >= limit.most:
        yield no(word, f"{text} has used up its {limit.most / 60:g} minutes")
    elif limit.used > limit.most * (1 - MARGIN):
        yield unknown(f"{text} has nearly used up its {limit.most / 60:g} minutes")


def _of_user(level: Qos, job: Job) -> RunningLimits:
    """The limits for each user are the same for all, and Slurm shows them for those whom it knows."""
    return _own_or_any(level.by_user, job.uid)


def _of_account(level: Qos, job: Job) -> RunningLimits:
    return _own_or_any(level.by_account, job.account)


def _own_or_any(known: Mapping[int, RunningLimits] | Mapping[str, RunningLimits], key: int | str) -> RunningLimits:
    return dict(known).get(key) or next(iter(known.values()), _NOT_SHOWN)  # type: ignore[arg-type]


_NOT_SHOWN = RunningLimits(not_modeled=frozenset({"of a QOS in which Slurm knew no job yet"}))


def _word(prefix: str, words: Mapping[str, str], name: str, per: str) -> str:
    return prefix + words.get(name, f"{name}{{}}").format(per)


def _minutes(prefix: str, kind: str, name: str, ending: str) -> str:
    # "CPU" in those of groups, "Cpu" in those of a job.
    shown = ("CPU" if kind == "Grp" else "Cpu") if name == "cpu" else _IN_GROUP.get(name, name)
    return f"{prefix}{kind}{shown}{ending}"


def _shown(name: str, amount: int) -> str:
    return f"{amount // 1024**2} MB of memory" if name == "mem" else f"{amount} {name}"
