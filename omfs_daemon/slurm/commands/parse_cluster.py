"""Parse what scontrol and sacctmgr print about nodes, partitions, licenses, settings and accounts. Pure and strict.

ParseError quotes what could not be parsed.
"""

from __future__ import annotations

import re

from omfs_daemon.cluster.nodes import Node, Partition
from omfs_daemon.errors import ParseError
from omfs_daemon.slurm import releases
from omfs_daemon.slurm.commands import values
from omfs_daemon.slurm.gateway import ROOT_ACCOUNT, AccountRow, LicenseRow, SlurmSettings

_SHOWN = 160

# Slurm starts jobs on a node only in these states; any other state, known or not, means that it may not.
_NODE_STARTS_JOBS = frozenset({"IDLE", "MIXED", "ALLOCATED", "COMPLETING", "PLANNED", "CLOUD", "DYNAMIC_NORM"})

# On these it lets jobs end that are there, also suspended ones that are resumed: a reboot or a power-down waits for
# them.
_NODE_KEEPS_JOBS = _NODE_STARTS_JOBS | {"DRAIN", "MAINTENANCE", "RESERVED", "REBOOT_REQUESTED", "POWER_DOWN"}
_SILENT = "NOT_RESPONDING"
_NODE_MARKS = {"*": _SILENT, "~": "POWERED_DOWN", "#": "POWERING_UP", "%": "POWERING_DOWN", "!": "POWER_DOWN"}
_PARTITION_STARTS_JOBS = ("UP", "DRAIN")
_NODE_MARKS |= {"$": "MAINTENANCE", "@": "REBOOT_REQUESTED", "^": "REBOOT_ISSUED", "-": "PLANNED"}
_FIELD = re.compile(r"(\S+?)=(\S*)")
_SETTING = re.compile(r"(\S+)\s*=\s?(.*)")


def parse_settings(printed: str) -> SlurmSettings:
    """``scontrol show config``."""
    found: dict[str, str] = {}
    for line in printed.splitlines():
        match = _SETTING.fullmatch(line.strip())
        if match:
            found.setdefault(match[1], values.text(match[2].strip()))
    try:
        return SlurmSettings(found["SLURM_VERSION"], found)
    except KeyError:
        raise ParseError(f"scontrol show config names no SLURM_VERSION: {printed[:_SHOWN]!r}") from None


def parse_nodes(printed: str) -> list[Node]:
    """``scontrol -o show nodes``.

    ``up`` is False for a node that is down, drained, failing, in maintenance or in a reservation, does not respond,
    is powered down or on its way to one of these; also for any unknown state. ``works`` is False for one that is down,
    does not respond, or is powered down, or whose reboot has begun.
    """
    return [_node(fields_of_line(line, "NodeName")) for line in printed_lines(printed, "No nodes in the system")]


def parse_partitions(printed: str) -> list[Partition]:
    """``scontrol -o show partitions``."""
    return [
        _partition(fields_of_line(line, "PartitionName"))
        for line in printed_lines(printed, "No partitions in the system")
    ]


def parse_licenses(printed: str) -> list[LicenseRow]:
    """``scontrol -o show licenses``; including those from slurmdbd (Remote=yes)."""
    return [
        _license(fields_of_line(line, "LicenseName"))
        for line in printed_lines(printed, "No licenses configured in Slurm.")
    ]


def parse_accounts(printed: str) -> list[AccountRow]:
    """``sacctmgr -n -P list associations format=Account,ParentName,User``; rows of users are skipped."""
    rows = []
    for line in printed.splitlines():
        words = line.split("|")
        if len(words) != 3:
            raise ParseError(f"sacctmgr: not an association: {line[:_SHOWN]!r}")
        name, parent, user = words
        if not user:
            rows.append(AccountRow(name, "" if parent == ROOT_ACCOUNT else parent))
    return rows


def _node(fields: dict[str, str]) -> Node:
    try:
        words = _node_words(fields["State"])
        return Node(
            name=fields["NodeName"],
            # Effective CPUs exclude the cores that are reserved for the system (CoreSpecCount).
            cpus=values.whole(fields.get("CPUEfctv", fields["CPUTot"])),
            memory=values.memory(fields["RealMemory"]),
            up=words <= _NODE_STARTS_JOBS,
            works=words <= _NODE_KEEPS_JOBS,
            silent=_SILENT in words and words - {_SILENT} <= _NODE_STARTS_JOBS,
            state=fields["State"],
            gres=values.pairs(values.gres(fields.get("Gres", ""))),
            features=frozenset(values.names(fields.get("ActiveFeatures", ""))),
            partitions=tuple(values.names(fields.get("Partitions", ""))),
            cpus_taken=values.whole(fields["CPUAlloc"]),
            memory_taken=values.memory(fields["AllocMem"]),
            threads=_cpus_of_a_core(fields),
        )
    except KeyError as error:
        raise ParseError(f"scontrol show node {fields.get('NodeName')}: no {error}") from None


def _cpus_of_a_core(fields: dict[str, str]) -> int:
    """A site may count cores as CPUs, whatever threads they have."""
    cores = values.whole(fields.get("Sockets", "1")) * values.whole(fields.get("CoresPerSocket", fields["CPUTot"]))
    return max(1, values.whole(fields["CPUTot"]) // max(1, cores))


def _node_words(state: str) -> set[str]:
    """``IDLE*+DRAIN`` as {IDLE, NOT_RESPONDING, DRAIN}."""
    words = set()
    for word in state.split("+"):
        bare = word.rstrip("".join(_NODE_MARKS))
        words.add(bare)
        words.update(_NODE_MARKS[mark] for mark in word[len(bare) :])
    return words


def _partition(fields: dict[str, str]) -> Partition:
    try:
        return Partition(
            name=fields["PartitionName"],
            nodes=frozenset(values.node_names(fields["Nodes"])),
            up=fields["State"] in _PARTITION_STARTS_JOBS,
            exclusive=releases.is_exclusive(fields),
            priority_tier=values.whole(fields["PriorityTier"]),
            state=fields["State"],
            exclusive_user=releases.is_exclusive_user(fields),
            min_nodes=values.whole(fields.get("MinNodes", "0")),
            max_nodes=_at_most(fields.get("MaxNodes", "")),
            max_time=values.duration(fields.get("MaxTime", "UNLIMITED")),
            max_memory_per_node=values.memory(_or_zero(fields.get("MaxMemPerNode", ""))),
            max_memory_per_cpu=values.memory(_or_zero(fields.get("MaxMemPerCPU", ""))),
            allow_accounts=_allowed(fields.get("AllowAccounts", "ALL")),
            deny_accounts=frozenset(values.names(fields.get("DenyAccounts", ""))),
            allow_qos=_allowed(fields.get("AllowQos", "ALL")),
            deny_qos=frozenset(values.names(fields.get("DenyQos", ""))),
            allow_groups=_allowed(fields.get("AllowGroups", "ALL")),
            qos=values.text(fields.get("QoS", "")),
            is_default=fields.get("Default", "NO") == "YES",
            default_time=values.duration(values.text(fields.get("DefaultTime", "")) or "UNLIMITED"),
            cpus_per_gpu=values.default_cpus_per_gpu(fields.get("JobDefaults", "")),
        )
    except KeyError as error:
        raise ParseError(f"scontrol show partition {fields.get('PartitionName')}: no {error}") from None


def _allowed(listed: str) -> frozenset[str] | None:
    """None for ALL."""
    return None if listed == "ALL" else frozenset(values.names(listed))


def _at_most(limit: str) -> int:
    return values.whole(_or_zero(limit))


def _or_zero(limit: str) -> str:
    return "0" if limit in ("", "UNLIMITED") else limit


def _license(fields: dict[str, str]) -> LicenseRow:
    try:
        return LicenseRow(fields["LicenseName"], values.whole(fields["Total"]), values.whole(fields["Used"]))
    except KeyError as error:
        raise ParseError(f"scontrol show licenses {fields.get('LicenseName')}: no {error}") from None


def printed_lines(printed: str, none: str) -> list[str]:
    """The lines that are not empty; none where Slurm prints that there is ``none``."""
    return [line for line in printed.splitlines() if line.strip() and line.strip() != none]


def fields_of_line(line: str, first: str) -> dict[str, str]:
    """The first value of every key: free text (an administrator's Reason, Comment) comes last."""
    if not line.startswith(f"{first}="):
        raise ParseError(f"scontrol: not a line with {first}: {line[:_SHOWN]!r}")
    found: dict[str, str] = {}
    for name, value in _FIELD.findall(line):
        found.setdefault(name, value)
    return found
