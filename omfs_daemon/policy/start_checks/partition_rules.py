"""Whether a partition and the licenses let a job start."""

from __future__ import annotations

from collections.abc import Iterator

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.limits import SiteLimits
from omfs_daemon.cluster.nodes import Partition
from omfs_daemon.policy.start_checks.answer import Answer
from omfs_daemon.policy.start_checks.limit_rules import no, unknown
from omfs_daemon.policy.start_checks.limit_use import LimitUse


def of_partition(job: Job, partition: Partition, limits: SiteLimits) -> Iterator[Answer]:
    name = f"partition {partition.name}"
    if not partition.up:
        yield no(f"Partition{partition.state.capitalize()}", f"{name} is {partition.state}")
    if partition.allow_accounts is not None and job.account not in partition.allow_accounts:
        yield no("AccountNotAllowed", f"{name} does not allow account {job.account}")
    elif partition.allow_accounts is None and job.account in partition.deny_accounts:
        yield no("AccountNotAllowed", f"{name} denies account {job.account}")
    if partition.allow_qos is not None and job.qos not in partition.allow_qos:
        yield no("QOSNotAllowed", f"{name} does not allow QOS {job.qos}")
    elif partition.allow_qos is None and job.qos in partition.deny_qos:
        yield no("QOSNotAllowed", f"{name} denies QOS {job.qos}")
    over_time = job.time_limit > partition.max_time
    over_nodes = 0 < partition.max_nodes < job.request.nodes
    few_nodes = 0 < job.request.max_nodes < partition.min_nodes
    for is_over, flag, word, text in (
        (over_time, "PartitionTimeLimit", "PartitionTimeLimit", f"allows {partition.max_time / 60:g} minutes"),
        (over_nodes, "PartitionMaxNodes", "PartitionNodeLimit", f"allows {partition.max_nodes} nodes"),
        (few_nodes, "PartitionMinNodes", "PartitionNodeLimit", f"wants {partition.min_nodes} nodes"),
    ):
        level = (limits.qos or {}).get(job.qos)
        if is_over and (limits.qos is None or (level is not None and level.flags is None)):
            yield unknown(f"whether QOS {job.qos} lifts limits of {name} is not known")
        elif is_over and (level is None or level.flags is None or flag not in level.flags):
            yield no(word, f"{name} {text}")
    request = job.request
    if (
        0
        < partition.max_memory_per_node
        < max(request.memory_per_node, request.memory_per_cpu * request.min_cpus_per_node)
    ):
        yield no("MaxMemPerLimit", f"{name} allows {partition.max_memory_per_node // 1024**2} MB on a node")
    if partition.max_memory_per_cpu > 0 and (
        request.memory_per_node or request.memory_per_cpu > partition.max_memory_per_cpu
    ):
        yield unknown(f"{name} has a limit of memory for each CPU")


def of_licenses(job: Job, limits: SiteLimits, use: LimitUse) -> Iterator[Answer]:
    if job.licenses and limits.licenses is None:
        yield unknown("the licenses cannot be read")
        return
    for name, count in job.licenses:
        known = (limits.licenses or {}).get(name)
        if known is None:
            if "|" in name:
                yield unknown(f"it takes one of several licenses: {name}")
            continue
        used = use.license(name)
        if known.remote:
            yield unknown(f"license {name} is shared with others")
        elif used + count > known.total:
            yield no("Licenses", f"{known.total} of license {name} exist, and {used} are used")
        elif used + count > known.total - known.reserved:
            yield unknown(f"{known.reserved} of license {name} are reserved")
