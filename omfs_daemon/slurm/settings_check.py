"""Check Slurm's settings for preemption by omfsd; each finding has a fix. Pure.

The thresholds come from measurements on Slurm 22.05 (docs/operating.md) and from slurm.conf(5).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from pathlib import Path
from typing import NamedTuple

from omfs_daemon.cluster.accounts import Entitlement, cut_text
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.errors import ParseError
from omfs_daemon.slurm.gateway import AccountRow, SlurmSettings
from omfs_daemon.slurm.releases import OLDEST, SlurmRelease, untested_release
from omfs_daemon.slurm.submit_plugin import PlugIn

_CRED_EXPIRE_DEFAULT = 120
_CRED_EXPIRE_MIN = 5  # slurmctld logs an error about less, and takes the default
_CRED_EXPIRE_FIX = "AuthInfo=cred_expire=5, and restart slurmctld: scontrol reconfigure does not change it"
_KILL_WAIT_ENOUGH = 10


class Level(StrEnum):
    """FAIL: a promise of omfsd does not hold. WARN: it holds late, or as best effort."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(NamedTuple):
    """One setting that was checked; ``fix``: what to do about it, "" if it is right."""

    level: Level
    subject: str
    what: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class SiteFacts:
    """What the settings do not show.

    uid          of the user that omfsd runs as
    admin_level  their AdminLevel in slurmdbd ("Operator", "Administrator"); "" if none or unknown
    heartbeat    the file that omfsd writes; ``heartbeat_age`` in seconds, None if there is none
    operators    the uids with the AdminLevel Operator
    watched      the heartbeat file in the plug-in's omfs_job_submit.conf; ``max_age``, ``daemon_uid``,
                 ``privileged_uids``, ``operator_uids`` are from there too
    poll_seconds of the configuration
    running      whether omfsd answers
    entitlements those in force
    cpus         of which they are parts
    """

    uid: int
    admin_level: str
    operators: frozenset[str]
    plugin: PlugIn
    heartbeat: Path
    heartbeat_age: float | None
    watched: Path
    max_age: float
    daemon_uid: str
    privileged_uids: frozenset[str]
    operator_uids: frozenset[str]
    poll_seconds: float
    running: bool
    entitlements: Sequence[Entitlement]
    cpus: int


def passed(found: Iterable[Finding]) -> bool:
    """Whether nothing fails; warnings pass."""
    return all(finding.level is not Level.FAIL for finding in found)


def no_connection(error: Exception) -> Finding:
    fix = "check that slurmctld runs, and slurm.conf in the [slurm] table: the path of the cluster's slurm.conf"
    return Finding(Level.FAIL, "connection", f"Slurm does not answer: {error}", fix)


def connection_finding(gateway: str, why: str, nodes: Sequence[Node]) -> Finding:
    """``why``: why this gateway was chosen."""
    up = sum(node.up for node in nodes)
    what = f"{gateway} ({why})" if why else gateway
    what = f"{what}: {up} of {len(nodes)} nodes are up"
    if not up:
        return Finding(Level.FAIL, "connection", what, "bring nodes up: sinfo -R says why they are not")
    return Finding(Level.OK, "connection", what)


def accounts_finding(rows: Sequence[AccountRow] | None) -> Finding:
    """Every account with an entitlement is known; ``rows`` is None where no accounting runs."""
    if rows is None:
        return Finding(Level.OK, "accounts", "no accounting runs: account names are taken from the jobs")
    return Finding(Level.OK, "accounts", f"slurmdbd knows {len(rows)} accounts, including all with entitlements")


def findings(settings: SlurmSettings, facts: SiteFacts) -> list[Finding]:
    """All settings that were checked, right ones included, in the order in which to fix them."""
    values = settings.values
    return [
        _version(settings.version),
        _permissions(values, facts),
        _priority(values),
        _priority_flags(values),
        _credential(values),
        _requeue(values),
        _kill_wait(values),
        _scheduler(values),
        _plug_in(values, facts),
        *_users(values, facts),
        _preempt_type(values),
        _select(values),
        _memory(values),
        _entitlements(facts.entitlements, facts.cpus),
    ]


def _version(version: str) -> Finding:
    try:
        release = SlurmRelease.of(version)
    except ParseError as error:
        return Finding(Level.WARN, "version", str(error))
    if release < OLDEST:
        return Finding(Level.FAIL, "version", f"Slurm {version} is too old", f"upgrade to Slurm {OLDEST} or newer")
    if warning := untested_release(version):
        return Finding(Level.WARN, "version", warning, "try it on a test cluster first")
    return Finding(Level.OK, "version", f"Slurm {version}")


def slurm_user(values: Mapping[str, str]) -> int | None:
    """The uid of SlurmUser."""
    number = re.search(r"\((\d+)\)", values.get("SlurmUser", ""))
    return int(number[1]) if number else None


def _permissions(values: dict[str, str], facts: SiteFacts) -> Finding:
    subject, fix = "permissions", _own_user(values)
    if facts.uid == 0:
        what = "omfsd runs as root: root's holds and releases of jobs cannot be told from its own"
        return Finding(Level.WARN, subject, what, fix)
    level = facts.admin_level.lower()
    if facts.uid == slurm_user(values) or level == "administrator":
        return Finding(Level.OK, subject, f"uid {facts.uid} may give Slurm all orders that omfsd needs")
    what = "is an Operator, who may not write AdminComment" if level == "operator" else "may not hold other users' jobs"
    return Finding(Level.FAIL, subject, f"uid {facts.uid} {what}", fix)


def _own_user(values: Mapping[str, str]) -> str:
    """How to run omfsd as somebody who may give all orders and is not root."""
    administrator = 'daemon.user = "omfs", a user with AdminLevel=Administrator in slurmdbd'
    if slurm_user(values) != 0:
        own = f'daemon.user = "{values.get("SlurmUser", "slurm").partition("(")[0]}"'
        return f"{own}, or {administrator}"
    if values.get("AccountingStorageType", "").endswith("slurmdbd"):
        return administrator
    return 'SlurmUser=slurm in slurm.conf, and daemon.user = "slurm"'


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


def _priority_flags(values: dict[str, str]) -> Finding:
    flags = values.get("PriorityFlags", "")
    if "ACCRUE_ALWAYS" in flags.upper().split(","):
        return Finding(Level.OK, "PriorityFlags", flags)
    what = "jobs do not age while they are held, so their priority does not rise with the time that they wait"
    return Finding(Level.WARN, "PriorityFlags", what, "PriorityFlags=ACCRUE_ALWAYS (besides what is there)")


def _credential(values: dict[str, str]) -> Finding:
    options = _options(values.get("AuthInfo", ""))
    given = _number(options.get("cred_expire"))
    seconds = given if given is not None and given >= _CRED_EXPIRE_MIN else _CRED_EXPIRE_DEFAULT
    what = f"a requeued job may start again after {seconds + 1:g} s"
    if given is not None and given < _CRED_EXPIRE_MIN:
        what += f" (cred_expire={given:g} is ignored: at least {_CRED_EXPIRE_MIN})"
    if seconds <= 2 * _CRED_EXPIRE_MIN:
        return Finding(Level.OK, "AuthInfo cred_expire", what)
    return Finding(Level.WARN, "AuthInfo cred_expire", what, _CRED_EXPIRE_FIX)


def _requeue(values: dict[str, str]) -> Finding:
    if values.get("JobRequeue", "1").strip() != "0":
        return Finding(Level.OK, "JobRequeue", "batch jobs may be requeued unless they say otherwise")
    return Finding(
        Level.WARN,
        "JobRequeue",
        "batch jobs cannot be requeued unless submitted with --requeue",
        "JobRequeue=1",
    )


def kill_wait(values: Mapping[str, str]) -> float:
    """Seconds that a job has between SIGTERM and SIGKILL; 30, Slurm's default, if it cannot be read."""
    found = _number(values.get("KillWait"))
    return 30.0 if found is None else found


def _kill_wait(values: dict[str, str]) -> Finding:
    seconds = _number(values.get("KillWait"))
    if seconds is None:
        return Finding(Level.WARN, "KillWait", f"{values.get('KillWait', 'nothing')!r} is not understood")
    what = f"a requeued job that ignores SIGTERM keeps its CPUs for {seconds:g} s"
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
        (name, fix)
        for name, default, enough, fix in limits
        if (number if (number := _number(options.get(name))) is not None else default) > enough
    ]
    if not slow:
        return Finding(Level.OK, "SchedulerParameters", "Slurm starts a preemptor at once")
    return Finding(
        Level.WARN,
        "SchedulerParameters",
        f"{', '.join(name for name, _ in slow)}: Slurm may take seconds to start a preemptor on free CPUs",
        "SchedulerParameters=" + ",".join(f"{name}={fix}" for name, fix in slow) + " (besides what is there)",
    )


def _plug_in(values: dict[str, str], facts: SiteFacts) -> Finding:
    subject = "JobSubmitPlugins"
    effort = "best effort only: non-preemptible jobs beyond entitlement may start before omfsd sees them"
    if "lua" not in values.get("JobSubmitPlugins", "").split(","):
        fix = "install plugins/job_submit.lua beside slurm.conf and set JobSubmitPlugins=lua"
        return Finding(Level.WARN, subject, f"no lua plug-in: {effort}", fix)
    match facts.plugin:
        case PlugIn.MISSING:
            return Finding(
                Level.FAIL,
                subject,
                "lua is on but there is no job_submit.lua beside slurm.conf: Slurm may refuse every job",
                "install plugins/job_submit.lua beside slurm.conf",
            )
        case PlugIn.ANOTHER:
            fix = "call plugins/job_submit.lua from your own job_submit.lua"
            return Finding(Level.WARN, subject, f"job_submit.lua is not omfsd's: {effort}", fix)
        case PlugIn.UNKNOWN:
            return Finding(Level.WARN, subject, "lua is on, but job_submit.lua could not be read")
    if facts.watched != facts.heartbeat:
        what = f"the plug-in reads {facts.watched}, but omfsd writes {facts.heartbeat}: {effort}"
        fix = f"heartbeat={facts.heartbeat} in omfs_job_submit.conf beside slurm.conf"
        return Finding(Level.WARN, subject, what, fix)
    if facts.poll_seconds >= facts.max_age:
        what = (
            f"omfsd polls every {facts.poll_seconds:g} s, but the plug-in takes it for dead after {facts.max_age:g} s"
        )
        fix = f"max_age={ceil(2 * facts.poll_seconds) + 5} in omfs_job_submit.conf, or a smaller slurm.poll_seconds"
        return Finding(Level.WARN, subject, what, fix)
    age = "never written" if facts.heartbeat_age is None else f"{facts.heartbeat_age:.0f} s old"
    if facts.running and (facts.heartbeat_age is None or facts.heartbeat_age > facts.max_age):
        what = f"omfsd runs, but its heartbeat {facts.heartbeat} is {age}: the gate holds nothing"
        fix = "see omfs status: no heartbeat while omfsd is paused, in dry run, or without an answer from Slurm"
        return Finding(Level.WARN, subject, what, fix)
    return Finding(Level.OK, subject, f"the plug-in holds jobs at submit while {facts.heartbeat} is fresh ({age})")


def _users(values: dict[str, str], facts: SiteFacts) -> list[Finding]:
    """Whether our plug-in knows the daemon and the Operators."""
    if "lua" not in values.get("JobSubmitPlugins", "").split(",") or facts.plugin is not PlugIn.OURS:
        return []
    return [_daemon_uid(facts), *_operators(facts)]


def _daemon_uid(facts: SiteFacts) -> Finding:
    subject, uid = "daemon_uid", str(facts.uid)
    fix = f"daemon_uid={uid} in omfs_job_submit.conf, or run omfsd (and this check) as uid {facts.daemon_uid}"
    if uid == facts.daemon_uid:
        return Finding(Level.OK, subject, f"the plug-in accepts orders of uid {uid}")
    if uid in facts.privileged_uids:
        return Finding(Level.WARN, subject, f"the plug-in takes releases of uid {uid} for an administrator's", fix)
    what = f"the plug-in accepts no orders of uid {uid}: jobs held at submit could not be released"
    return Finding(Level.FAIL, subject, what, fix)


def _operators(facts: SiteFacts) -> list[Finding]:
    unknown = ", ".join(sorted(facts.operators - facts.operator_uids, key=int))
    if not unknown:
        return []
    what = f"Operators (uid {unknown}) whom the plug-in takes for other users"
    return [Finding(Level.WARN, "operator_uids", what, "omfs config job-submit > omfs_job_submit.conf")]


def _preempt_type(values: dict[str, str]) -> Finding:
    kind = values.get("PreemptType", "preempt/none")
    if kind in ("preempt/none", "(null)", ""):
        return Finding(Level.OK, "PreemptType", "Slurm leaves preemption to omfsd")
    return Finding(
        Level.WARN,
        "PreemptType",
        f"{kind}: Slurm preempts jobs by its own rules as well, whatever the entitlements",
        "PreemptType=preempt/none",
    )


def _select(values: dict[str, str]) -> Finding:
    kind = values.get("SelectType", "")
    if kind in ("select/cons_tres", "select/cons_res"):
        return Finding(Level.OK, "SelectType", kind)
    fix = "SelectType=select/cons_tres with SelectTypeParameters=CR_Core or CR_Core_Memory"
    return Finding(Level.FAIL, "SelectType", f"{kind or 'none'} allocates whole nodes only", fix)


def _memory(values: dict[str, str]) -> Finding:
    """Nothing to fix: what a site must know to choose between suspend and requeue."""
    if "memory" in values.get("SelectTypeParameters", "").lower():
        what = "memory is allocated: a suspended job keeps its own, so others start only where there is more"
    else:
        what = "memory is not allocated: suspended and running jobs together may need more than a node has"
    return Finding(Level.OK, "SelectTypeParameters", what)


def _entitlements(entitlements: Sequence[Entitlement], cpus: int) -> Finding:
    total = sum(entitlement.percent for entitlement in entitlements if not entitlement.parent)
    if not entitlements:
        fix = "omfs entitlements set ACCOUNT PERCENT"
        return Finding(Level.WARN, "entitlements", "no account has an entitlement: all are equal", fix)
    if total == 100:
        return Finding(
            Level.WARN,
            "entitlements",
            "the top accounts own the whole cluster: accounts without an entitlement can only borrow",
            "leave some percent to others, if they submit jobs here",
        )
    if cut := cut_text(entitlements, cpus):
        return Finding(Level.WARN, "entitlements", cut, "omfs entitlements set ACCOUNT cpus=NUMBER, with less")
    counted = sum(one.cpus or 0 for one in entitlements if not one.parent)
    left = f"{float(100 - total):g} %" + (f" less {counted} CPUs" if counted else "")
    return Finding(Level.OK, "entitlements", f"{left} is left to accounts without an entitlement")


def _options(text: str) -> dict[str, str]:
    """``"a=1,b"`` as ``{"a": "1", "b": ""}``; Slurm's names are not case-sensitive."""
    pairs = (entry.partition("=") for entry in text.split(",") if entry)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _number(text: str | None) -> float | None:
    """The number at the front (``"30 sec"``); None without one."""
    found = re.match(r"\s*(\d+(?:\.\d+)?)", text or "")
    return float(found[1]) if found else None
