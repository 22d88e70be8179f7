"""What a real Slurm was recorded to print about limits."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from omfs_daemon.cluster.limits import Limit, Qos, RunningLimits, SiteLicense, SiteLimits, UsageLimits
from omfs_daemon.cluster.nodes import Partition
from omfs_daemon.errors import GatewayError, ParseError
from omfs_daemon.slurm.commands import parse_limits
from omfs_daemon.slurm.commands.command_gateway import CommandGateway
from omfs_daemon.slurm.commands.run_command import CommandOutput
from tests.support.recorded_slurm import FIXTURES, Replay, read, read_ids

MB = 1024**2
RECORDED = FIXTURES / "22.05" / "limits"


@pytest.fixture(scope="module")
def gateway() -> CommandGateway:
    gateway = CommandGateway(runner=Replay(RECORDED))
    gateway.settings()
    return gateway


@pytest.fixture(scope="module")
def limits(gateway: CommandGateway) -> SiteLimits:
    return gateway.limits()


def printed(*words: str) -> str:
    return "\n".join(next(r for r in read(RECORDED) if set(words) <= set(r.arguments)).stdout)


def test_enforced_names_what_is_implied(limits: SiteLimits) -> None:
    assert limits.enforced == {"associations", "limits", "qos"}
    assert list(limits.unread()) == []


def test_association_of_a_job_and_those_above(limits: SiteLimits) -> None:
    user, account, root = limits.chain("bio", "nobody", "main")
    assert (user.text, account.text, root.text) == ("user nobody in account bio", "account bio", "account root")
    assert user.own_jobs == 5
    assert user.limits == UsageLimits(
        job_tres={"cpu": 4}, node_tres={"cpu": 3}, job_tres_seconds={"cpu": 42000}, job_wall=6000.0
    )
    assert (account.limits.jobs, account.limits.tres) == (6, {"cpu": 8, "mem": 4000 * MB, "gres/gpu": 2})
    assert account.limits.wall == Limit(30000.0, 0.0)
    assert account.limits.tres_seconds["cpu"].most == 60000.0
    assert account.limits.running_seconds["cpu"].used > 0
    assert root.limits == UsageLimits()
    assert list(limits.chain("physics", "nobody", "main")) == []


def test_qos_with_flags_and_what_each_user_may_run(limits: SiteLimits) -> None:
    assert limits.qos is not None
    high = limits.qos["high"]
    assert high.by_user == {65534: RunningLimits(3, {"cpu": 6})}
    assert high.by_account == {"bio": RunningLimits(4, {"cpu": 5})}
    assert high.flags == {"OverPartQOS", "PartitionTimeLimit"}
    assert high.has_usage_threshold
    assert (high.limits.job_tres, high.limits.job_least_tres, high.limits.job_wall) == ({"cpu": 7}, {"cpu": 1}, 7200.0)
    normal = limits.qos["normal"]
    assert normal == Qos(
        "normal", by_user={65534: RunningLimits()}, by_account={"bio": RunningLimits()}, flags=frozenset()
    )


def test_reservations_and_licenses(limits: SiteLimits) -> None:
    assert limits.licenses == {"fluent": SiteLicense(5)}
    assert limits.reservations is not None
    maintenance, bio = limits.reservations
    assert (maintenance.nodes, maintenance.users) == ({"n4"}, {"root"})
    assert (bio.nodes, bio.accounts, bio.end - bio.start) == ({"n1", "n3"}, {"bio"}, 3600.0)


def test_limits_of_partitions(gateway: CommandGateway) -> None:
    small = next(partition for partition in gateway.partitions() if partition.name == "small")
    assert small == Partition(
        "small",
        frozenset({"n1", "n2"}),
        up=True,
        priority_tier=5,
        state="DRAIN",
        exclusive_user=True,
        min_nodes=1,
        max_nodes=2,
        max_time=3600.0,
        max_memory_per_node=1000 * MB,
        allow_accounts=frozenset({"bio"}),
        deny_qos=frozenset({"normal"}),
        allow_groups=frozenset({"root"}),
        qos="high",
    )


def test_closed_partition_and_one_without_limits() -> None:
    gateway = CommandGateway(runner=Replay(RECORDED))
    main, _, _, closed = gateway.partitions()
    assert (closed.up, closed.state, closed.deny_accounts, closed.allow_qos) == (False, "INACTIVE", {"bio"}, {"normal"})
    assert closed.max_memory_per_cpu == 500 * MB
    assert (main.default_time, closed.default_time) == (inf, inf)
    assert (main.max_time, main.max_nodes, main.allow_accounts, main.qos) == (inf, 0, None, "")


def test_what_a_job_asks_for() -> None:
    gateway = CommandGateway(runner=Replay(RECORDED))
    gateway.settings()
    ids = {job_id: name for name, job_id in read_ids(RECORDED).items()}
    jobs = {ids[job.id]: job for job in gateway.jobs()}
    assert (jobs["throttled"].array_throttle, jobs["throttled"].exclusive_user) == (2, True)
    assert jobs["reserved"].reservation == "bio"
    assert jobs["single"].singleton
    assert (jobs["runs"].array_throttle, jobs["runs"].reservation, jobs["runs"].singleton) == (0, "", False)


@pytest.mark.parametrize(
    ("missing", "unread"),
    [
        ("assoc_mgr", ["associations and QOS"]),
        ("sacctmgr", ["flags of QOS"]),
        ("reservations", ["reservations"]),
        ("licenses", ["licenses"]),
    ],
)
def test_a_part_that_cannot_be_read_is_none(missing: str, unread: list[str]) -> None:
    replay = Replay(RECORDED)

    def runner(arguments: Any, **more: Any) -> CommandOutput:
        if missing in arguments:
            raise GatewayError("it does not answer")
        return replay(arguments, **more)

    gateway = CommandGateway(runner=runner)
    gateway.settings()
    assert list(gateway.limits().unread()) == unread


def test_limit_that_is_not_modeled_is_named() -> None:
    text = (
        printed("assoc_mgr")
        .replace("MinPrioThresh=", "MinPrioThresh=7")
        .replace("MaxJobsPU", "MaxNewPU=3(1) MaxJobsPU")
    )
    found = parse_limits.parse_association_manager(text)
    assert found.associations["bio", "nobody", ""].limits.not_modeled == {"MinPrioThresh"}
    assert found.qos["high"].by_user[65534].not_modeled == {"MaxNewPU"}


@pytest.mark.parametrize("bad", ["GrpTRES=cpu", "GrpWall=x(0.00)", "GrpTRESMins=cpu=1"])
def test_what_is_not_understood_is_an_error(bad: str) -> None:
    name = bad.partition("=")[0]
    lines = [
        " ".join(bad if word.startswith(f"{name}=") else word for word in line.split(" "))
        for line in printed("assoc_mgr").splitlines()
    ]
    with pytest.raises(ParseError):
        parse_limits.parse_association_manager("\n".join(lines))


def test_qos_that_nobody_uses() -> None:
    title = "    Account Limits\n"
    lines = printed("assoc_mgr").partition("QOS=high")
    unused = lines[2].partition(title)[0] + title + "        No Accounts\n    User Limits\n        No Users\n"
    high = parse_limits.parse_association_manager(lines[0] + lines[1] + unused).qos["high"]
    assert (high.by_user, high.by_account, high.limits.jobs) == ({}, {}, 7)
