"""What of a site's Slurm helps, hurts or forbids preemption by omfsd, each with its mend. Pure.

The thresholds come from measurements on Slurm 22.05 (docs/operating.md) and from slurm.conf(5).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from pathlib import Path
from typing import NamedTuple

from omfs_daemon.errors import ParseError
from omfs_daemon.cluster.accounts import AccountShare
from omfs_daemon.slurm.gateway import SlurmSettings
from omfs_daemon.slurm.releases import OLDEST
from omfs_daemon.slurm.releases import Release
from omfs_daemon.slurm.releases import untried

_CRED_EXPIRE_DEFAULT = 120
_CRED_EXPIRE_LEAST = 5  # slurmctld logs an error about less, and takes the default
_KILL_WAIT_ENOUGH = 10


class Level(StrEnum):
    """FAIL: a promise of omfsd does not hold. WARN: it holds late, or as best effort."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(NamedTuple):
    """One thing looked at; ``mend`` says what to do about it and is "" when it is right."""

    level: Level
    subject: str
    what: str
    mend: str = ""


class PlugIn(StrEnum):
    """The job_submit.lua beside slurm.conf."""

    OURS = "ours"
    ANOTHER = "another"
    MISSING = "missing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Facts:
    """What the settings do not tell.

    uid          of whoever will tell Slurm what to do: the user that runs omfsd
    admin_level  his AdminLevel in slurmdbd ("Operator", "Administrator"); "" if none or unknown
    heartbeat    the file that omfsd writes; ``heartbeat_age`` in seconds, None if there is none
    watched      the file that the plug-in looks at (its omfs_job_submit.conf), and ``max_age``, ``privileged_uids``
                 from there
    poll_seconds of the configuration
    running      whether omfsd answers
    shares       the entitlements in force
    """

    uid: int
    admin_level: str
    plugin: PlugIn
    heartbeat: Path
    heartbeat_age: float | None
    watched: Path
    max_age: float
    privileged_uids: frozenset[str]
    poll_seconds: float
    running: bool
    shares: Sequence[AccountShare]


def findings(settings: SlurmSettings, facts: Facts) -> list[Finding]:
    """All that was looked at, what is right included, in the order in which one would mend it."""
    values = settings.values
    return [
        _version(settings.version),
        _permissions(values, facts),
        _priority(values),
        _credential(values),
        _requeue(values),
        _kill_wait(values),
        _scheduler(values),
        _plug_in(values, facts),
        *_releases(values, facts),
        _preempt_type(values),
        _select(values),
        _memory(values),
        _entitlements(facts.shares),
    ]


def _version(version: str) -> Finding:
    try:
        release = Release.of(version)
    except ParseError as error:
        return Finding(Level.WARN, "version", str(error))
    if release < OLDEST:
        return Finding(Level.FAIL, "version", f"Slurm {version} is too old", f"upgrade to Slurm {OLDEST} or newer")
    if warning := untried(version):
        return Finding(Level.WARN, "version", warning, "try it on a test cluster first")
    return Finding(Level.OK, "version", f"Slurm {version}")


def _permissions(values: dict[str, str], facts: Facts) -> Finding:
    number = re.search(r"\((\d+)\)", values.get("SlurmUser", ""))
    if facts.uid == 0 or (number and int(number[1]) == facts.uid):
        return Finding(Level.OK, "permissions", f"uid {facts.uid} may tell Slurm all that omfsd needs")
    if facts.admin_level.lower() in ("operator", "administrator"):
        return Finding(
            Level.WARN,
            "permissions",
            f"uid {facts.uid} is {facts.admin_level}: enough for jobs, but an operator cannot reconfigure Slurm",
            "run omfsd as root or as SlurmUser",
        )
    return Finding(
        Level.FAIL,
        "permissions",
        f"uid {facts.uid} may not hold, requeue or suspend other users' jobs",
        "run omfsd (and this check) as root or as SlurmUser",
    )


def _priority(values: dict[str, str]) -> Finding:
    kind = values.get("PriorityType", "")
    if kind == "priority/multifactor":
        return Finding(Level.OK, "PriorityType", kind)
    return Finding(
        Level.FAIL,
        "PriorityType",
        f"under {kind or 'no priority plug-in'} an owner's `scontrol update nice=` releases any hold, "
        "and nice wraps round",
        "PriorityType=priority/multifactor",
    )


def _credential(values: dict[str, str]) -> Finding:
    options = _options(values.get("AuthInfo", ""))
    given = _number(options.get("cred_expire"))
    seconds = given if given is not None and given >= _CRED_EXPIRE_LEAST else _CRED_EXPIRE_DEFAULT
    what = f"a requeued job may start again after {seconds + 1:g} s"
    if given is not None and given < _CRED_EXPIRE_LEAST:
        what += f" (cred_expire={given:g} is ignored: at least {_CRED_EXPIRE_LEAST})"
    if seconds <= 2 * _CRED_EXPIRE_LEAST:
        return Finding(Level.OK, "AuthInfo cred_expire", what)
    return Finding(Level.WARN, "AuthInfo cred_expire", what, "AuthInfo=cred_expire=5")


def _requeue(values: dict[str, str]) -> Finding:
    if values.get("JobRequeue", "1").strip() != "0":
        return Finding(Level.OK, "JobRequeue", "batch jobs may be requeued unless they say otherwise")
    return Finding(
        Level.WARN,
        "JobRequeue",
        "batch jobs cannot be requeued unless submitted with --requeue",
        "JobRequeue=1",
    )


def _kill_wait(values: dict[str, str]) -> Finding:
    seconds = _number(values.get("KillWait"))
    if seconds is None:
        return Finding(Level.WARN, "KillWait", f"{values.get('KillWait', 'nothing')!r} is not understood")
    what = f"a stopped job that ignores SIGTERM keeps its CPUs for {seconds:g} s"
    if seconds <= _KILL_WAIT_ENOUGH:
        return Finding(Level.OK, "KillWait", what)
    return Finding(Level.WARN, "KillWait", what, "KillWait=5, or what your jobs need to end cleanly")


def _scheduler(values: dict[str, str]) -> Finding:
    """By slurm.conf(5): batch_sched_delay 3 s, sched_interval 60 s, sched_min_interval 2 us, bf_interval 30 s."""
    options = _options(values.get("SchedulerParameters", ""))
    limits = (
        ("batch_sched_delay", 3.0, 0.0, "0"),
        ("sched_interval", 60.0, 2.0, "1"),
        ("sched_min_interval", 2.0, 100_000.0, "0"),
        ("bf_interval", 30.0, 5.0, "1"),
    )
    slow = [
        (name, mend)
        for name, default, enough, mend in limits
        if (number if (number := _number(options.get(name))) is not None else default) > enough
    ]
    if not slow:
        return Finding(Level.OK, "SchedulerParameters", "Slurm starts a beneficiary at once")
    return Finding(
        Level.WARN,
        "SchedulerParameters",
        f"{', '.join(name for name, _ in slow)}: Slurm may take seconds to start a beneficiary on free CPUs",
        "SchedulerParameters=" + ",".join(f"{name}={mend}" for name, mend in slow) + " (besides what is there)",
    )


def _plug_in(values: dict[str, str], facts: Facts) -> Finding:
    subject = "JobSubmitPlugins"
    effort = "best effort only: non-preemptible jobs beyond entitlement may start before omfsd sees them"
    if "lua" not in values.get("JobSubmitPlugins", "").split(","):
        mend = "install plugins/job_submit.lua beside slurm.conf and set JobSubmitPlugins=lua"
        return Finding(Level.WARN, subject, f"no lua plug-in: {effort}", mend)
    match facts.plugin:
        case PlugIn.MISSING:
            return Finding(
                Level.FAIL,
                subject,
                "lua is on but there is no job_submit.lua beside slurm.conf: Slurm may refuse every job",
                "install plugins/job_submit.lua beside slurm.conf",
            )
        case PlugIn.ANOTHER:
            mend = "call plugins/job_submit.lua from your own job_submit.lua"
            return Finding(Level.WARN, subject, f"job_submit.lua is not omfsd's: {effort}", mend)
        case PlugIn.UNKNOWN:
            return Finding(Level.WARN, subject, "lua is on, but job_submit.lua could not be looked at")
    if facts.watched != facts.heartbeat:
        what = f"the plug-in looks at {facts.watched}, but omfsd writes {facts.heartbeat}: {effort}"
        mend = f"heartbeat={facts.heartbeat} in omfs_job_submit.conf beside slurm.conf"
        return Finding(Level.WARN, subject, what, mend)
    if facts.poll_seconds >= facts.max_age:
        what = (
            f"omfsd looks every {facts.poll_seconds:g} s, but the plug-in takes it for gone after {facts.max_age:g} s"
        )
        mend = f"max_age={ceil(2 * facts.poll_seconds) + 5} in omfs_job_submit.conf, or a smaller slurm.poll_seconds"
        return Finding(Level.WARN, subject, what, mend)
    age = "never written" if facts.heartbeat_age is None else f"{facts.heartbeat_age:.0f} s old"
    if facts.running and (facts.heartbeat_age is None or facts.heartbeat_age > facts.max_age):
        what = f"omfsd runs, but its heartbeat {facts.heartbeat} is {age}: the gate holds nothing"
        mend = "see what omfs status says: it rests while omfsd is paused, in dry run or without an answer of Slurm's"
        return Finding(Level.WARN, subject, what, mend)
    return Finding(Level.OK, subject, f"the plug-in holds jobs at submit while {facts.heartbeat} is fresh ({age})")


def _releases(values: dict[str, str], facts: Facts) -> list[Finding]:
    """Whether our plug-in takes the daemon's orders."""
    if "lua" not in values.get("JobSubmitPlugins", "").split(",") or facts.plugin is not PlugIn.OURS:
        return []
    subject, uid = "privileged_uids", str(facts.uid)
    if uid in facts.privileged_uids:
        return [Finding(Level.OK, subject, f"the plug-in takes orders of uid {uid}")]
    what = f"the plug-in takes no orders of uid {uid}: jobs held at submit could not be released"
    mend = f"privileged_uids={','.join(sorted({*facts.privileged_uids, uid} - {''}))} in omfs_job_submit.conf"
    return [Finding(Level.FAIL, subject, what, f"{mend}, or run omfsd (and this check) as one of them")]


def _preempt_type(values: dict[str, str]) -> Finding:
    kind = values.get("PreemptType", "preempt/none")
    if kind in ("preempt/none", "(null)", ""):
        return Finding(Level.OK, "PreemptType", "Slurm leaves preemption to omfsd")
    return Finding(
        Level.WARN,
        "PreemptType",
        f"{kind}: Slurm stops jobs by its own rules as well, whatever the entitlements are",
        "PreemptType=preempt/none",
    )


def _select(values: dict[str, str]) -> Finding:
    kind = values.get("SelectType", "")
    if kind in ("select/cons_tres", "select/cons_res"):
        return Finding(Level.OK, "SelectType", kind)
    mend = "SelectType=select/cons_tres with SelectTypeParameters=CR_Core or CR_Core_Memory"
    return Finding(Level.FAIL, "SelectType", f"{kind or 'none'} gives whole nodes only", mend)


def _memory(values: dict[str, str]) -> Finding:
    """Nothing to mend: what a site must know when it chooses between suspend and requeue."""
    if "memory" in values.get("SelectTypeParameters", "").lower():
        what = "memory is counted: a suspended job keeps its own, so others start only where there is more"
    else:
        what = "memory is not counted: suspended and running jobs together may need more than a node has"
    return Finding(Level.OK, "SelectTypeParameters", what)


def _entitlements(shares: Sequence[AccountShare]) -> Finding:
    total = sum(share.percent for share in shares if not share.parent)
    if not shares:
        mend = "omfs entitlements set ACCOUNT PERCENT"
        return Finding(Level.WARN, "entitlements", "nobody has an entitlement: all are alike", mend)
    if total == 100:
        return Finding(
            Level.WARN,
            "entitlements",
            "the top accounts have all of the machine: accounts that are not named own nothing, only borrow",
            "leave some percent over, if others submit jobs here",
        )
    return Finding(Level.OK, "entitlements", f"{float(100 - total):g} % is left for accounts that are not named")


def _options(text: str) -> dict[str, str]:
    """``"a=1,b"`` as ``{"a": "1", "b": ""}``; Slurm's names are not case-sensitive."""
    pairs = (entry.partition("=") for entry in text.split(",") if entry)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _number(text: str | None) -> float | None:
    """The number at the front (``"30 sec"``); None without one."""
    found = re.match(r"\s*(\d+(?:\.\d+)?)", text or "")
    return float(found[1]) if found else None
