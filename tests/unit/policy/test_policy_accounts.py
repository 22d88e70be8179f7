"""Which account may take from which, and usage rows."""

from __future__ import annotations

from omfs_daemon.cluster.accounts import OTHERS
from omfs_daemon.policy.rules.account_paths import may_take
from tests.support.policy_builders import decide, nodes, rules, running, tree, waiting


def test_may_take_on_one_level() -> None:
    owners = tree(bio=50, physics=50)
    bio, physics = owners.leaf("bio").path, owners.leaf("physics").path
    entitled = owners.entitled(8)
    assert may_take([4, 5, 0], entitled, bio, physics)
    assert not may_take([4, 4, 0], entitled, bio, physics)  # the giver is not above
    assert not may_take([5, 5, 0], entitled, bio, physics)  # the taker would be
    assert not may_take([4, 9, 0], entitled, bio, bio)  # never from itself


def test_may_take_checks_all_levels_on_the_givers_side_and_the_top_on_the_takers() -> None:
    owners = tree(bio=50, bio__genes=50, bio__cells=50, physics=50)
    genes, cells, physics = (owners.leaf(name).path for name in ("genes", "cells", "physics"))
    entitled = owners.entitled(16)  # bio 8, genes 4, cells 4, bio's rest 0, physics 8
    assert may_take([8, 7, 1, 0, 9, 0], entitled, cells, physics)
    assert may_take([8, 7, 1, 0, 9, 0], entitled, genes, physics)  # genes is above, but bio as a whole is not
    assert may_take([8, 7, 1, 0, 8, 0], entitled, cells, genes)  # among siblings only the siblings count
    assert not may_take([8, 7, 1, 0, 8, 0], entitled, physics, genes)  # bio as a whole is not above
    assert may_take([9, 5, 4, 0, 7, 0], entitled, physics, genes)
    assert not may_take([9, 5, 4, 0, 7, 0], entitled, physics, cells)  # cells itself is not above


def test_rows_of_accounts() -> None:
    jobs = [running(1, "bio", 4, "n0"), running(2, "bio", 2, "n1"), waiting(3, "physics", 3), waiting(4, "x", 2)]
    rows = {row.account: row for row in decide(nodes(2), jobs, rules(bio=50, physics=25)).accounts}
    assert (rows["bio"].entitled, rows["bio"].used, rows["bio"].borrowed, rows["bio"].lent) == (4, 6, 2, 0)
    assert (rows["physics"].entitled, rows["physics"].used, rows["physics"].pending) == (2, 0, 3)
    assert rows["physics"].lent == rows[OTHERS].lent == 1
    assert sum(row.lent for row in rows.values()) <= sum(row.borrowed for row in rows.values())
