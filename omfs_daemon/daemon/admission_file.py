"""The file in which the daemon tells the submit plug-in how much room each account has: ``admission`` beside the
heartbeat. job_submit.lua lets in what fits without a hold, and counts it until a newer file has seen it.

    omfs admission 1 1700000000.123     when Slurm was asked; the rest is as of then
    threads 2                           most threads of a core; absent where a request does not tell the CPUs
    seen 812 1000 1700000000 2          of a job that the plug-in may count still: id, uid, submit, level of its account
    level 0 12                          CPUs left at a level: an entity of the account tree
    nodes main 4 64 256000              of a partition: nodes, most CPUs and most MB of one node
    accounts
    account physics 2,0                 the levels at which jobs of the account count; "all": it owns all CPUs
    others 1                            the same for all other accounts
    end
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import nlargest
from pathlib import Path

from omfs_daemon.cluster.accounts import AccountNode
from omfs_daemon.cluster.holds import is_held
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.daemon.heartbeat import write_for_slurmctld
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.policy.rules.job_kinds import JobKinds

ADMISSION_FILE = "admission"
"""Its name in ``daemon.run_dir``; the plug-in takes it from the directory of the heartbeat."""

_MB = 1 << 20


RECENT = 5
"""Seconds after its submit for which the plug-in counts a job at most, in whole seconds."""

_MOST_SEEN = 32
"""Jobs that a file names; others count for as long as if they had not been seen."""


def write_admission(
    path: Path, snapshot: Snapshot, rules: Rules, room: Iterable[int], settings: Mapping[str, str]
) -> None:
    """``room``: by entity, from the plan for the snapshot; ``settings``: Slurm's. Errors: OSError."""
    write_for_slurmctld(path, admission_text(snapshot, rules, room, settings))


def admission_text(snapshot: Snapshot, rules: Rules, room: Iterable[int], settings: Mapping[str, str]) -> str:
    """The text of the file; "", which lets nobody in, if a name cannot be written."""
    tree, lines = rules.tree, [f"omfs admission 1 {snapshot.taken:.3f}"]
    if does_request_tell_cpus(settings):
        lines.append(f"threads {max((node.threads for node in snapshot.nodes.values()), default=1)}")
    lines += [f"seen {job.id} {job.uid} {int(job.submit)} {level}" for job, level in _let_in(snapshot, rules)]
    lines += [f"level {level} {cpus}" for level, cpus in enumerate(room)]
    for name, partition in snapshot.partitions.items():
        here = [snapshot.nodes[node] for node in partition.nodes if node in snapshot.nodes]
        lines.append(f"nodes {name} {len(here)} {_most(here)}")
    accounts = [entitlement.name for entitlement in tree.entitlements]
    lines += ["accounts", *(f"account {name} {_levels(tree.leaf(name))}" for name in accounts)]
    lines += [f"others {_levels(tree.leaf(''))}", "end", ""]
    are_names = all(name.isprintable() and " " not in name for name in (*accounts, *snapshot.partitions))
    return "\n".join(lines) if are_names else ""


def does_request_tell_cpus(settings: Mapping[str, str]) -> bool:
    """Whether Slurm allocates what is requested, rounded up to cores. More CPUs come with sockets, with memory above
    MaxMemPerCPU, with cores for the system, and where another plug-in changes the request after ours."""
    parameters = settings.get("SelectTypeParameters", "").upper().split(",")
    return (
        bool({"CR_CORE", "CR_CORE_MEMORY", "CR_CPU", "CR_CPU_MEMORY"}.intersection(parameters))
        and "MaxMemPerCPU" not in settings
        and settings.get("AllowSpecResourcesUsage", "").upper() == "NO"
        and settings.get("JobSubmitPlugins", "").split(",")[-1] == "lua"
    )


def _let_in(snapshot: Snapshot, rules: Rules) -> Iterator[tuple[Job, int]]:
    """The newest jobs that the plug-in has let in and counts as a whole, each with the level of its account."""
    kinds = JobKinds(rules)
    for number in nlargest(_MOST_SEEN, snapshot.jobs):
        job = snapshot.jobs[number]
        is_recent = job.submit > snapshot.taken - RECENT and not job.restarts and job.array_id is None
        if is_recent and not job.admin_comment and not is_held(job) and kinds.of(job).non_preemptible:
            yield job, rules.tree.leaf(job.account).index


def _levels(leaf: AccountNode) -> str:
    return "all" if leaf.owns_all else ",".join(map(str, leaf.path))


def _most(nodes: list[Node]) -> str:
    cpus = max((node.cpus for node in nodes), default=0)
    return f"{cpus} {max((node.memory for node in nodes), default=0) // _MB}"
