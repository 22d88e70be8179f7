"""The file that tells the submit plug-in what it may let in; what the plug-in does with it:
``integration/test_job_submit_admission.py``."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.daemon.admission_file import admission_text, does_request_tell_cpus
from omfs_daemon.policy.rules.classes import Rules
from tests.support.policy_builders import array, held, nodes, rules, running, snapshot, waiting

SETTINGS = {
    "SelectTypeParameters": "CR_CORE_MEMORY",
    "AllowSpecResourcesUsage": "No",
    "JobSubmitPlugins": "lua",
}


def text(by: Rules, room: tuple[int, ...] = (), jobs: Sequence[Job] = (), **settings: str) -> str:
    cluster = [*nodes(2, cpus=8, threads=2), *nodes(1, cpus=4, memory=2)]
    return admission_text(snapshot(cluster, jobs, 1000.5), by, room, {**SETTINGS, **settings})


def test_the_text() -> None:
    assert text(rules(bio=50, bio__genes=50), (10, 5, 4, 3)).splitlines() == [
        "omfs admission 1 1000.500",
        "threads 2",
        "level 0 10",
        "level 1 5",
        "level 2 4",
        "level 3 3",
        "nodes main 2 8 16384",
        "accounts",
        "account bio 2,0",
        "account genes 1,0",
        "others 3",
        "end",
    ]


def test_an_account_that_owns_all_cpus_has_no_levels() -> None:
    assert "account bio all\n" in text(rules(bio=100))
    assert "others all\n" in text(rules())


@pytest.mark.parametrize("name", ["a\nothers all", "a\rb", "\x00", "a b"])
def test_a_name_that_is_more_than_a_name_lets_nobody_in(name: str) -> None:
    assert text(rules(**{name: 50.0}), (1, 1)) == ""


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
    assert "threads" not in text(rules(bio=50), **{setting: value})


def test_nothing_is_certain_before_slurm_has_printed_its_settings() -> None:
    assert not does_request_tell_cpus({})


def test_new_jobs_that_were_let_in_are_named() -> None:
    jobs = [
        waiting(1, "bio", non_preemptible=True, submit=999.0),
        running(2, "genes", comment="", submit=998.0, priority=1),
        running(3, "genes", submit=998.0, priority=1),
        running(4, "genes", comment="", submit=900.0, priority=1),
        running(5, "genes", comment="", submit=998.0, priority=1, restarts=1),
        running(6, "genes", comment="", submit=998.0, priority=1, admin_comment="omfs:rel:1"),
        held(7, "bio", submit=998.0),
        array(8, 2, "bio", comment="", submit=998.0, priority=1),
    ]
    lines = text(rules(bio=50, bio__genes=50), (), jobs).splitlines()
    assert [line for line in lines if line.startswith("seen")] == ["seen 2 1 998 1", "seen 1 1 999 2"]
