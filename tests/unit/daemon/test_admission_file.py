"""The file that tells the submit plug-in what it may let in; what the plug-in does with it:
``integration/test_job_submit_admission.py``."""

from __future__ import annotations

import pytest

from omfs_daemon.cluster.accounts import AccountTree
from omfs_daemon.daemon.admission_file import admission_text, does_request_tell_cpus
from tests.support.policy_builders import nodes, snapshot, tree

SETTINGS = {
    "SelectTypeParameters": "CR_CORE_MEMORY",
    "AllowSpecResourcesUsage": "No",
    "EnforcePartLimits": "NO",
    "JobSubmitPlugins": "lua",
}


def text(by: AccountTree, room: tuple[int, ...] = (), **settings: str) -> str:
    cluster = [*nodes(2, cpus=8, threads=2), *nodes(1, cpus=4, memory=2)]
    return admission_text(snapshot(cluster, [], 1000.5), by, room, {**SETTINGS, **settings})


def test_the_text() -> None:
    assert text(tree(bio=50, bio__genes=50), (10, 5, 4, 3)).splitlines() == [
        "omfs admission 1 1000.500",
        "levels 10 5 4 3",
        "threads 2",
        "account 2,0 bio",
        "account 1,0 genes",
        "others 3",
        "nodes 2 8 16384 main",
        "end",
    ]


def test_an_account_that_owns_all_cpus_has_no_levels() -> None:
    assert "account all bio\n" in text(tree(bio=100))
    assert "others all\n" in text(tree())


def test_limits_of_partitions_that_slurm_enforces() -> None:
    assert "limits enforced\n" in text(tree(), EnforcePartLimits="ANY")


@pytest.mark.parametrize("name", ["a\nothers all", "a\rb", "\x00"])
def test_a_name_that_is_more_than_a_name_lets_nobody_in(name: str) -> None:
    assert text(tree(**{name: 50.0}), (1, 1)) == ""


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("SelectTypeParameters", "CR_SOCKET_MEMORY"),
        ("SelectTypeParameters", "NONE"),
        ("AllowSpecResourcesUsage", "Yes"),
        ("MaxMemPerCPU", "1000"),
        ("JobSubmitPlugins", "lua,all_partitions"),
        ("JobSubmitPlugins", ""),
    ],
)
def test_where_slurm_may_allocate_more_than_requested_sizes_are_not_certain(setting: str, value: str) -> None:
    assert does_request_tell_cpus(SETTINGS)
    assert not does_request_tell_cpus({**SETTINGS, setting: value})
    assert "threads" not in text(tree(bio=50), **{setting: value})


def test_nothing_is_certain_before_slurm_has_printed_its_settings() -> None:
    assert not does_request_tell_cpus({})
