"""Entitlements in account trees."""

from __future__ import annotations

from fractions import Fraction

import pytest

from omfs_daemon.cluster.accounts import OTHERS, AccountTree, Entitlement
from omfs_daemon.errors import ConfigError
from tests.support.policy_builders import tree


def named(owners: AccountTree, cpus: int) -> dict[str, int]:
    return dict(zip([entity.name for entity in owners.entities], owners.entitled(cpus), strict=True))


def test_floors_are_exact() -> None:
    third = AccountTree([Entitlement("a", Fraction(100, 3)), Entitlement("b", Fraction(29))])
    assert named(third, 300)["a"] == 100  # 0.333... of 300 in floating point would be 99
    assert named(third, 100)["b"] == 29  # as would 0.29 of 100 be 28


def test_rest_and_others_own_what_is_left() -> None:
    owned = named(tree(bio=50, bio__genes=40, physics=25), 100)
    assert owned == {"bio": 50, "genes": 20, f"bio{OTHERS}": 30, "physics": 25, OTHERS: 25}


def test_jobs_of_an_inner_account_and_of_strangers_have_a_leaf() -> None:
    owners = tree(bio=50, bio__genes=40)
    assert owners.leaf("bio").name == f"bio{OTHERS}"
    assert owners.leaf("nobody").name == OTHERS
    assert owners.leaf("genes").path == (1, 0)


@pytest.mark.parametrize(
    ("entitlements", "message"),
    [
        ([("a", 60, ""), ("b", 41, "")], "add up to 101 %"),
        ([("a", 60, ""), ("b", 60, "a"), ("c", 41, "a")], "under 'a' add up to 101 %"),
        ([("a", 50, ""), ("a", 10, "")], "named twice"),
        ([("a", -1, "")], "percent = -1"),
        ([("a", 101, "")], "percent = 101"),
        ([("a", 10, "nobody")], "parent = 'nobody'"),
        ([("a", 10, "b"), ("b", 10, "a")], "cycle: a -> b -> a"),
        ([(f"a{i}", 10, f"a{i - 1}" if i else "") for i in range(1500)], "must have at most 99 accounts above it"),
        ([("", 10, "")], "not allowed"),
        ([(OTHERS, 10, "")], "not allowed"),
    ],
)
def test_bad_trees_are_refused(entitlements: list[tuple[str, int, str]], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        AccountTree([Entitlement(name, Fraction(percent), parent) for name, percent, parent in entitlements])


def test_a_number_of_cpus_is_the_same_on_every_machine_that_has_them() -> None:
    half, eight = Entitlement("half", Fraction(50)), Entitlement("eight", Fraction(0), "", 8)
    below = [Entitlement("all", Fraction(100), "eight")]
    owners = AccountTree([half, eight, *below])
    assert named(owners, 100) == {"half": 50, "eight": 8, "all": 8, f"eight{OTHERS}": 0, OTHERS: 42}
    assert named(owners, 16) == {"half": 8, "eight": 8, "all": 8, f"eight{OTHERS}": 0, OTHERS: 0}
    assert named(AccountTree([half]), 15)["half"] == 7, "one of four nodes is drained, and a CPU lost"


def test_where_cpus_are_missing_all_are_cut_in_proportion() -> None:
    owners = AccountTree([Entitlement("half", Fraction(50)), Entitlement("eight", Fraction(0), "", 8)])
    assert named(owners, 8) == {"half": 2, "eight": 5, OTHERS: 0}  # 4 and 8 of 8
    assert named(owners, 0) == {"half": 0, "eight": 0, OTHERS: 0}


def test_cpus_beside_all_of_the_machine_are_refused() -> None:
    with pytest.raises(ConfigError, match="add up to 100 %: nothing is left for eight 8 CPUs"):
        AccountTree([Entitlement("all", Fraction(100)), Entitlement("eight", Fraction(0), "", 8)])
    with pytest.raises(ConfigError, match="cpus = -1"):
        AccountTree([Entitlement("less", Fraction(0), "", -1)])
