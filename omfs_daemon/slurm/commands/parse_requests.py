"""What a job requests, of its row. Until a job starts, Slurm counts some of what it will get not yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from math import ceil
from operator import attrgetter

from omfs_daemon.cluster.jobs import JobRequest, JobState
from omfs_daemon.slurm.commands import values
from omfs_daemon.slurm.commands.gres_nodes import SpreadGres
from omfs_daemon.slurm.commands.site_sizes import SiteSizes
from omfs_daemon.slurm.commands.squeue_fields import JobRow, row_state

_CPU = "cpu"  # of tres-per-task
_GPU = "gpu"

Requests = dict[Hashable, JobRequest]
"""Requests by the text of which they were made, and by themselves: equal ones are one object."""

# What a request does not depend on; the other fields may be the same for many jobs.
_NOT_REQUESTED = {
    *("job_id", "array_job_id", "array_task_id", "het_job_id", "reason", "user", "uid", "account", "qos", "licenses"),
    *("node_list", "priority", "nice", "submit", "eligible", "dependency", "reservation", "start", "time_used"),
    *("time_limit", "deadline", "restarts", "requeue", "batch", "name", "comment", "admin_comment"),
}
_requested = attrgetter(*(name for name in JobRow._fields if name not in _NOT_REQUESTED))


def shared_request(row: JobRow, excluded_nodes: str, site: SiteSizes, known: Requests) -> JobRequest:
    """``known``: the requests of other jobs of the same site."""
    key = (excluded_nodes, _requested(row))
    found = known.get(key)
    if found is None:
        request = _request(row, excluded_nodes, site)
        found = known[key] = known.setdefault(request, request)
    return found


def _request(row: JobRow, excluded_nodes: str, site: SiteSizes) -> JobRequest:
    allocated = values.tres(row.tres)
    shown = values.count(row.cpus)
    node_count, most = _node_counts(row, allocated)
    per_cpu, per_node = _memory(row, allocated, shown, node_count) if site.memory_counts else (0, 0)
    partitions, waits = tuple(values.names(row.partition)), row_state(row) is JobState.PENDING
    least = _cpus_of_task(row)
    # Slurm shows these as the job's own once it has tried to start it; --cpus-per-task overrides them.
    by_default = site.default_cpus_per_gpu(partitions) if waits and least <= 1 else 0
    spread = _spread(row, by_default)
    if waits:  # it gets CPUs on all of these, which Slurm counts only once it runs
        for_gres = spread.least_nodes(site.sizes_in(partitions))
        if most not in (0, values.count(row.nodes)):  # a MaxNodes of NumNodes may be open
            for_gres = min(for_gres, most)
        named = len(values.node_set(row.required_nodes))
        node_count = max(node_count, for_gres, named, values.nodes_with_features(row.features))
    gres = _gres(row, spread.of_each(node_count))
    cpus, per_node_cpus = _cpus(row, shown, node_count, least, gres, spread.cpus_each)
    return JobRequest(
        cpus=cpus,
        nodes=node_count,
        max_nodes=most and max(most, node_count),
        min_cpus_per_node=per_node_cpus,
        memory_per_cpu=per_cpu,
        memory_per_node=per_node,
        gres=values.pairs(gres),
        features=values.text(row.features),
        # OK and YES share nodes; USER and MCS do so with some jobs only, which is not modeled.
        exclusive=row.over_subscribe not in ("OK", "YES"),
        partitions=partitions,
        required_nodes=values.node_set(row.required_nodes),
        excluded_nodes=values.node_set(excluded_nodes),
    )


def _node_counts(row: JobRow, allocated: dict[str, str]) -> tuple[int, int]:
    """The least and the most nodes.

    While a job waits, squeue raises NumNodes to what it takes at the largest node's size, while the TRES hold the
    job's own least number; a MaxNodes that equals the raised number is not the user's either.
    """
    shown, most = values.count(row.nodes), values.count(row.max_nodes)
    least = max(1, values.count(allocated.get("node", row.nodes)))
    tasks_per_node = values.count(values.text(row.tasks_per_node) or "0")
    if tasks_per_node:
        least = max(least, ceil(values.count(row.tasks) / tasks_per_node))
    return least, 0 if least < shown == most else most


def _spread(row: JobRow, default_cpus_per_gpu: int) -> SpreadGres:
    """``default_cpus_per_gpu``: of a job that asks for none itself (slurm.conf(5), DefCpuPerGPU)."""
    # Since 23.11 --cpus-per-task is among them, later licenses are, too ("license/fluent").
    by_task = {
        name: count for name, count in values.gres(row.tres_per_task).items() if name != _CPU and "/" not in name
    }
    tasks, each = max(1, values.whole(row.tasks)), values.gres(row.cpus_per_tres)
    if not each and default_cpus_per_gpu:
        each = {_GPU: default_cpus_per_gpu}
    cpus_per_task = ceil(values.count(row.cpus) / tasks)
    return SpreadGres(values.gres(row.tres_per_job), by_task, tasks, cpus_per_task, each)


def _cpus_of_task(row: JobRow) -> int:
    return max(values.count(row.min_cpus), values.gres(row.tres_per_task).get(_CPU, 1))


def _cpus(
    row: JobRow, shown: int, node_count: int, least: int, gres: Mapping[str, int], each: Mapping[str, int]
) -> tuple[int, int]:
    """(in all, at least on each node). Until a job starts, NumCPUs lacks what follows from its nodes, --mincpus
    (``least``), and --cpus-per-gpu (``each``)."""
    for_gres = sum(number * gres.get(name, 0) for name, number in each.items())
    per_node = min(max(1, least, for_gres), values.MOST_COUNT)
    if row_state(row) is not JobState.PENDING:
        return shown, per_node
    return min(max(shown, node_count * per_node), values.MOST_COUNT), per_node


def _memory(row: JobRow, allocated: dict[str, str], cpus: int, node_count: int) -> tuple[int, int]:
    """(per CPU, per node). MinMemory does not show which it is, but the total does; 0 means all of a node's memory."""
    least = values.memory(row.min_memory)
    total = values.memory(allocated["mem"]) if "mem" in allocated else 0
    if least and total == least * cpus:
        return least, 0
    if least and (total == least * node_count or not total):
        return 0, least
    return 0, ceil(total / node_count)


def _gres(row: JobRow, spread: Mapping[str, int]) -> dict[str, int]:
    """Per node; for requests by job or by task, the largest count on any node (``spread``). What is asked for in
    several ways, as GPUs by job and by node, is limited by the first of these; of types, each counts."""
    counts: dict[str, int] = {}
    for asked in (values.gres(row.tres_per_node), spread, values.gres(row.tres_per_socket)):
        counts |= {name: count for name, count in asked.items() if not counts.get(name)}
    typed = Counter[str]()
    for name, count in counts.items():
        if ":" in name:
            typed[name.partition(":")[0]] += count
    return counts | {name: max(count, counts[name]) for name, count in typed.items()}
