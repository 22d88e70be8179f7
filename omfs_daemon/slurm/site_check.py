"""Check who can go round the rules of the site, and what omfsd depends on beside slurmctld. Pure.

The rules come from slurm.conf(5) and scontrol(1).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from ipaddress import ip_address

from omfs_daemon.cluster.accounts import Entitlement
from omfs_daemon.errors import OmfsError
from omfs_daemon.slurm.class_check import ClassNames
from omfs_daemon.slurm.gateway import AccountRow
from omfs_daemon.slurm.settings_check import Finding, Level

_IMPLIED = {"safe": ("limits", "associations"), "limits": ("associations",), "qos": ("associations",)}
"""Each word of AccountingStorageEnforce also switches on what is before it."""


def enforced(values: Mapping[str, str]) -> frozenset[str]:
    """What AccountingStorageEnforce switches on."""
    listed = values.get("AccountingStorageEnforce", "none").lower().split(",")
    words = {word.strip() for word in listed} - {"none", ""}
    return frozenset(words.union(*(_IMPLIED.get(word, ()) for word in words)))


def enforcement_finding(
    values: Mapping[str, str], classes: Sequence[ClassNames], entitlements: Sequence[Entitlement]
) -> Finding | None:
    """Whether users can give their jobs any account or QOS; None where nothing goes by them."""
    subject, have = "AccountingStorageEnforce", enforced(values)
    by_account = [f"class {one.name!r}" for one in classes if one.account]
    by_qos = [f"class {one.name!r}" for one in classes if one.qos]
    wrong = []
    if by_account and "associations" not in have:
        wrong.append(f"any user may submit with any account, and {', '.join(by_account)} go by it")
    if by_qos and "qos" not in have:
        wrong.append(f"any user may submit with any QOS, and {', '.join(by_qos)} go by it")
    fix = "AccountingStorageEnforce=associations,limits,qos in slurm.conf, and restart slurmctld"
    if wrong:
        return Finding(Level.FAIL, subject, "; ".join(wrong), fix)
    if entitlements and "associations" not in have:
        what = "any user may submit with any account, and so use what another account owns"
        return Finding(Level.WARN, subject, what, fix)
    if not (by_account or by_qos or entitlements):
        return None
    return Finding(Level.OK, subject, "users may use only the accounts and QOS that are theirs")


def user_top_finding(values: Mapping[str, str]) -> Finding | None:
    """``scontrol top`` changes the nice value of all waiting jobs of its user, which is where omfsd ranks them."""
    if not _has_parameter(values, "enable_user_top"):
        return None
    what = "enable_user_top: `scontrol top` of any user writes over the ranks that omfsd gives their jobs"
    return Finding(Level.WARN, "SchedulerParameters", what, "take enable_user_top out of SchedulerParameters")


def expansion_finding(values: Mapping[str, str]) -> Finding | None:
    """A running job can take over the nodes of another one (slurm.conf(5), SchedulerParameters)."""
    if not _has_parameter(values, "permit_job_expansion"):
        return None
    what = "permit_job_expansion: without the submit gate, a job may take over the nodes of one that is preemptible"
    return Finding(Level.WARN, "SchedulerParameters", what, "take permit_job_expansion out of SchedulerParameters")


def _has_parameter(values: Mapping[str, str], name: str) -> bool:
    """Of SchedulerParameters."""
    return name in (word.strip() for word in values.get("SchedulerParameters", "").lower().split(","))


def private_data_finding(values: Mapping[str, str], uid: int, is_privileged: bool) -> Finding | None:
    """``is_privileged``: the user of omfsd is root, SlurmUser, an Operator, or an Administrator."""
    kinds = values.get("PrivateData", "none").lower()
    if kinds in ("none", "(null)", ""):
        return None
    if is_privileged:
        return Finding(Level.OK, "PrivateData", f"{kinds}: hides nothing from uid {uid}, omfsd's")
    what = f"{kinds}: Slurm hides this from uid {uid}, so that omfsd would decide on a part of the cluster"
    return Finding(Level.FAIL, "PrivateData", what, "run omfsd (and this check) as SlurmUser or an Administrator")


def munge_finding(failure: str) -> Finding:
    """``failure``: what munge says; "" if it works."""
    if not failure:
        return Finding(Level.OK, "munge", "munged answers")
    what = f"munged does not answer, so Slurm does not either: {failure}"
    return Finding(Level.FAIL, "munge", what, "start munged on this host, with the cluster's key and clock")


def slurmdbd_away(error: Exception) -> Finding:
    what = f"slurmdbd does not answer: {error}"
    fix = "start slurmdbd; until then no name of an account or QOS is checked, and omfsd goes on with what it has"
    return Finding(Level.FAIL, "slurmdbd", what, fix)


def slurmdbd_answers(rows: Sequence[AccountRow] | None) -> Finding | None:
    """None where no accounting runs."""
    return None if rows is None else Finding(Level.OK, "slurmdbd", "answers")


def unknown_group(group: str) -> Finding:
    what = f"daemon.operators_group = {group!r}: this host has no such group: nobody but root and SlurmUser may operate"
    return Finding(Level.FAIL, "operators_group", what, "correct the name, or groupadd it")


def metrics_finding(address: str, port: int, addresses: Collection[str], failure: str = "") -> Finding:
    """``addresses``: what the name means; ``failure``: why the address cannot be had."""
    subject, where = "metrics", f"metrics.address = {address!r}"
    if failure:
        what = f"{where}: omfsd cannot listen there: {failure}"
        return Finding(Level.FAIL, subject, what, 'an address of this host, such as "127.0.0.1"')
    if all(_is_loopback(each) for each in addresses):
        return Finding(Level.OK, subject, f"{address}:{port}, for this host only")
    what = f"{where}: everybody who reaches {address}:{port} can read accounts and users: there is no password"
    return Finding(Level.WARN, subject, what, 'address = "127.0.0.1" behind a proxy, or a firewall for Prometheus only')


def login_finding(where: str, addresses: Collection[str], is_metrics: bool, failure: str, munge: str) -> Finding:
    """``addresses``: what ``where`` means; ``is_metrics``: the metrics listen there, too; ``failure``: why the address
    cannot be had; ``munge``: why no request could be read there."""
    subject, named = "login_address", f"daemon.login_address = {where!r}"
    if failure:
        what = f"{named}: omfsd cannot listen there: {failure}"
        return Finding(Level.FAIL, subject, what, "an address of this host")
    if is_metrics:
        return Finding(Level.FAIL, subject, f"{named}: the metrics are served there", "another port")
    if munge:
        what = f"{named}: login nodes get no answer: {munge}"
        return Finding(Level.FAIL, subject, what, "install libmunge2, and start munged with the key of the login nodes")
    if all(_is_loopback(each) for each in addresses):
        what = f"{named}: means this host's loopback, which no login node reaches"
        return Finding(Level.WARN, subject, what, "the address of this host in the cluster's network")
    return Finding(Level.OK, subject, f"{where}, for users on login nodes: their own jobs")


def shared_directory_finding(path: str, failure: str, odd: str) -> Finding:
    """Of two omfsd. ``failure``: why neither can have the lease there; ``odd``: a file that keeps the other one from
    taking over; both "" if there is none."""
    subject = "shared_directory"
    if failure:
        fix = f"mount {path} on both hosts; it must be of omfsd's user, and only that may write there"
        return Finding(Level.FAIL, subject, f"neither omfsd acts: {failure}", fix)
    if odd:
        return Finding(
            Level.FAIL, subject, f"the standby does not take over: {odd} is no lease of omfsd's", "remove it"
        )
    return Finding(Level.OK, subject, f"{path} is there, and only omfsd's user may write there")


def shared_directory_unseen(path: str) -> Finding:
    what = f"{path}: this user may not look there"
    return Finding(Level.WARN, "shared_directory", what, "run omfs check as root, or as omfsd's user")


def is_unspecified(address: str) -> bool:
    """Whether it stands for all addresses of the host."""
    return ip_address(address.partition("%")[0]).is_unspecified


def _is_loopback(address: str) -> bool:
    return ip_address(address.partition("%")[0]).is_loopback


def parent_differences(entitlements: Sequence[Entitlement], rows: Sequence[AccountRow]) -> list[str]:
    """One text for each account whose parent in the configuration is not the next account above it in slurmdbd that has
    an entitlement. Accounts that slurmdbd does not know are left out."""
    above = {row.name: row.parent for row in rows}
    entitled = {entitlement.name for entitlement in entitlements}
    found = []
    for entitlement in entitlements:
        if entitlement.name not in above:
            continue
        theirs = _next_entitled(entitlement.name, above, entitled)
        if theirs != entitlement.parent:
            ours, other = (repr(name) if name else "none" for name in (entitlement.parent, theirs))
            found.append(f"{entitlement.name}: its parent is {ours} in the entitlements, {other} in slurmdbd")
    return found


def _next_entitled(name: str, above: Mapping[str, str], entitled: Collection[str]) -> str:
    seen = {name}
    parent = above.get(name, "")
    while parent and parent not in entitled and parent not in seen:
        seen.add(parent)
        parent = above.get(parent, "")
    return parent if parent in entitled else ""


def parents_findings(entitlements: Sequence[Entitlement], rows: Sequence[AccountRow] | None) -> list[Finding]:
    """One finding for each account whose parents differ."""
    fix = "omfs entitlements set ACCOUNT PERCENT --parent PARENT, or sacctmgr modify account ACCOUNT set parent=PARENT"
    return [Finding(Level.WARN, "accounts", text, fix) for text in parent_differences(entitlements, rows or ())]


def account_of(error: OmfsError) -> Finding:
    return Finding(Level.FAIL, "accounts", str(error), "sacctmgr add account, or correct the name")
