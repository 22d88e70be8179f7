"""The file in which the daemon tells the submit plug-in how much room each account has: ``admission`` beside the
heartbeat. job_submit.lua lets in what fits without a hold, and counts it until a newer file has seen it.

    omfs admission 1 1700000000.123     when Slurm was asked; the rest is as of then
    levels 12 0 40                      CPUs left by level: one for each entity of the account tree
    threads 2                           most threads of a core; absent where a request does not tell the CPUs
    limits enforced                     EnforcePartLimits
    account 2,0 physics                 the levels at which jobs of the account count; "all": it owns all CPUs
    others 1                            the same for all other accounts
    nodes 4 64 256000 main              of a partition: nodes, most CPUs and most MB of one node
    end
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from omfs_daemon.cluster.accounts import AccountNode, AccountTree
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.daemon.heartbeat import write_for_slurmctld

ADMISSION_FILE = "admission"
"""Its name in ``daemon.run_dir``; the plug-in takes it from the directory of the heartbeat."""

_MB = 1 << 20


def write_admission(
    path: Path, snapshot: Snapshot, tree: AccountTree, room: Iterable[int], settings: Mapping[str, str]
) -> None:
    """``room``: by entity, from the plan for the snapshot; ``settings``: Slurm's. Errors: OSError."""
    write_for_slurmctld(path, admission_text(snapshot, tree, room, settings))


def admission_text(snapshot: Snapshot, tree: AccountTree, room: Iterable[int], settings: Mapping[str, str]) -> str:
    """The text of the file; of other accounts only where every name can be written."""
    lines = [f"omfs admission 1 {snapshot.taken:.3f}", f"levels {' '.join(map(str, room))}"]
    if does_request_tell_cpus(settings):
        lines.append(f"threads {max((node.threads for node in snapshot.nodes.values()), default=1)}")
    if settings.get("EnforcePartLimits", "NO").upper() != "NO":
        lines.append("limits enforced")
    names = [entitlement.name for entitlement in tree.entitlements]
    lines += [f"account {_levels(tree.leaf(name))} {name}" for name in names]
    lines.append(f"others {_levels(tree.leaf(''))}")
    for name, partition in snapshot.partitions.items():
        here = [snapshot.nodes[node] for node in partition.nodes if node in snapshot.nodes]
        lines.append(f"nodes {len(here)} {_most(here)} {name}")
    if any(not line.isprintable() for line in lines):
        return ""
    return "\n".join([*lines, "end", ""])


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


def _levels(leaf: AccountNode) -> str:
    return "all" if leaf.owns_all else ",".join(map(str, leaf.path))


def _most(nodes: list[Node]) -> str:
    cpus = max((node.cpus for node in nodes), default=0)
    return f"{cpus} {max((node.memory for node in nodes), default=0) // _MB}"
