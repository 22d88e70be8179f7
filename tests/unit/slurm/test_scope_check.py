"""Findings about the scope."""

from __future__ import annotations

from omfs_daemon.cluster.accounts import Entitlement
from omfs_daemon.cluster.nodes import Node, Partition
from omfs_daemon.cluster.scope import Scope
from omfs_daemon.slurm.gateway import AccountRow
from omfs_daemon.slurm.scope_check import scope_findings
from omfs_daemon.slurm.settings_check import Level

NODES = [Node(f"n{number}", 4, 1000) for number in range(1, 5)]
OWN, SHARED = Partition("own", frozenset(["n1", "n2"])), Partition("shared", frozenset(["n2", "n3"]))
ROWS = [AccountRow("bio", ""), AccountRow("physics", "")]
ENTITLED = [Entitlement("bio", 50), Entitlement("physics", 50)]  # type: ignore[arg-type]


def found(
    partitions: tuple[str, ...] = (), accounts: tuple[str, ...] = (), shared: bool = True
) -> list[tuple[str, str]]:
    scope = Scope(frozenset(partitions), frozenset(accounts))
    parts = [OWN, SHARED] if shared else [OWN]
    return [(one.level.value, one.what) for one in scope_findings(scope, parts, NODES, ROWS, ENTITLED)]


def test_there_is_nothing_to_say_without_a_scope() -> None:
    assert found() == []


def test_a_scope_with_nodes_of_its_own_is_right() -> None:
    assert found(("own",), shared=False) == [("ok", "partitions own: no other jobs run on their nodes")]


def test_it_names_what_others_on_the_same_nodes_keep_from_it() -> None:
    ((level, what),) = found(("own",))
    assert level == "warn"
    assert what.startswith("4 of 8 CPUs in scope are also in shared, ")


def test_names_that_slurm_does_not_know_fail() -> None:
    lines = found(("own", "wron"), ("bio", "phisics"))
    assert ("fail", "scope.partitions: Slurm does not know wron") in lines
    assert ("fail", "scope.accounts: slurmdbd does not know phisics") in lines


def test_accounts_share_nodes_with_all_others_and_need_no_entitlement_outside() -> None:
    lines = dict(reversed(line) for line in found(accounts=("bio",)))  # type: ignore[misc]
    assert lines.pop("physics: entitled, but not in scope: nobody is preempted for their jobs") == "warn"
    assert set(lines.values()) == {Level.WARN.value}
    assert len(lines) == 1
