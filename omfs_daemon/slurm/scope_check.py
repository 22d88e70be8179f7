"""Check a scope against Slurm: its names, and which entitlements it cannot guarantee. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from omfs_daemon.cluster.accounts import Entitlement
from omfs_daemon.cluster.nodes import Node, Partition
from omfs_daemon.cluster.scope import Scope
from omfs_daemon.slurm.gateway import AccountRow
from omfs_daemon.slurm.settings_check import Finding, Level

_SUBJECT = "scope"


def scope_findings(
    scope: Scope,
    partitions: Sequence[Partition],
    nodes: Sequence[Node],
    rows: Sequence[AccountRow] | None,
    entitlements: Sequence[Entitlement],
) -> list[Finding]:
    """None without a scope. ``rows``: slurmdbd's accounts, None where no accounting runs."""
    if scope.is_everything:
        return []
    known = {row.name for row in rows} if rows is not None else scope.accounts
    found = [
        *_unknown("partitions", scope.partitions - {partition.name for partition in partitions}, "Slurm"),
        *_unknown("accounts", scope.accounts - known, "slurmdbd"),
        *_without_effect(scope, entitlements),
        *_shared_nodes(scope, partitions, nodes),
    ]
    if scope.accounts:
        what = "jobs of other accounts are never preempted: of the nodes that they use nothing is guaranteed"
        found.append(Finding(Level.WARN, _SUBJECT, what, "name all accounts that use the nodes, or accept it"))
    return found or [Finding(Level.OK, _SUBJECT, f"{scope.text}: no other jobs run on their nodes")]


def _unknown(key: str, names: Collection[str], who: str) -> list[Finding]:
    if not names:
        return []
    what = f"scope.{key}: {who} does not know {', '.join(sorted(names))}"
    return [Finding(Level.FAIL, _SUBJECT, what, "correct the name in the configuration, then reload omfsd")]


def _without_effect(scope: Scope, entitlements: Sequence[Entitlement]) -> list[Finding]:
    parents = {entitlement.parent for entitlement in entitlements}
    leaves = {entitlement.name for entitlement in entitlements} - parents
    if not scope.accounts or not (outside := sorted(leaves - scope.accounts)):
        return []
    what = f"{', '.join(outside)}: entitled, but not in scope: nobody is preempted for their jobs"
    return [Finding(Level.WARN, _SUBJECT, what, "add them to scope.accounts, or remove their entitlements")]


def _shared_nodes(scope: Scope, partitions: Sequence[Partition], nodes: Sequence[Node]) -> list[Finding]:
    here = scope.nodes({partition.name: partition for partition in partitions})
    if here is None:
        return []
    others = {one.name: here & one.nodes for one in partitions if one.name not in scope.partitions}
    shared = frozenset[str]().union(*others.values())
    if not shared:
        return []
    cpus = sum(node.cpus for node in nodes if node.name in shared)
    total = sum(node.cpus for node in nodes if node.name in here)
    names = ", ".join(sorted(name for name, common in others.items() if common))
    what = f"{cpus} of {total} CPUs in scope are also in {names}, whose jobs are never preempted: entitlements hold"
    fix = "add these partitions to scope.partitions, or give the scope nodes of its own"
    return [Finding(Level.WARN, _SUBJECT, f"{what} only for what these jobs leave", fix)]
