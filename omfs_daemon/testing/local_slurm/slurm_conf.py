"""slurm.conf and gres.conf of a private Slurm: many nodes on one host, no cgroups, no accounting."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from omfs_daemon.protocol.exit_codes import REQUEUE_EXIT_HOLD

_SLURM_USER = "slurm"


@dataclass(frozen=True)
class Shape:
    """How many nodes, what they have, and changes of slurm.conf.

    ``threads``: CPUs of one core. ``memory_mb``: MB per node. ``gres``: one text for every node
    (``"ve:2,gpu:a100:1"``) or one per node name. ``features``: the same. ``partitions``: more lines as in slurm.conf
    (``"PartitionName=x Nodes=n1"``). ``options``: lines of slurm.conf to add or to replace by name; an empty value
    removes the line. ``SlurmUser`` is "slurm", whom Debian's packages make, and may be any user of this host.
    """

    nodes: int = 4
    cpus: int = 4
    threads: int = 1
    memory_mb: int = 8000
    gres: str | Mapping[str, str] = ""
    features: str | Mapping[str, str] = ""
    partitions: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(f"n{number}" for number in range(1, self.nodes + 1))

    @property
    def slurm_user(self) -> str:
        return self.options.get("SlurmUser", _SLURM_USER)


def slurm_conf(directory: Path, shape: Shape, base_port: int, munge_socket: Path | None, lua: bool) -> str:
    """slurm.conf: slurmctld listens on ``base_port``, node n*i* on ``base_port + i``."""
    values = _defaults(directory, base_port)
    if munge_socket is not None:
        values["AuthInfo"] += f",socket={munge_socket}"
    if lua:
        values["JobSubmitPlugins"] = "lua"
    gres_types = sorted({name for text in _per_node(shape.gres, shape).values() for name, _, _ in _gres(text)})
    if gres_types:
        values["GresTypes"] = ",".join(gres_types)
    values |= shape.options
    lines = [f"{name}={value}" for name, value in values.items() if value != ""]
    lines += _nodes(shape, base_port)
    lines += [
        "PartitionName=main Nodes=ALL Default=YES State=UP",
        "PartitionName=urgent Nodes=ALL State=UP",
        *shape.partitions,
    ]
    return "\n".join(lines) + "\n"


def cluster_name(directory: Path) -> str:
    """Slurm refuses a state directory of another cluster name: derived from the directory."""
    return f"omfs{hashlib.blake2s(str(directory).encode(), digest_size=4).hexdigest()}"


def gres_conf(directory: Path, shape: Shape) -> str:
    """gres.conf: counts; a GPU has a file as its device, because slurmd requires one (the caller creates it)."""
    return "".join(
        f"NodeName={node} Name={name}{f' Type={kind}' if kind else ''} Count={count}"
        f"{' File=' + _device_pattern(directory, name, kind, int(count)) if name == 'gpu' else ''}\n"
        for node, text in _per_node(shape.gres, shape).items()
        for name, kind, count in _gres(text)
    )


def device_files(directory: Path, shape: Shape) -> set[Path]:
    """The files that gres.conf names as devices."""
    return {
        directory / "devices" / f"gpu{kind}{number}"
        for text in _per_node(shape.gres, shape).values()
        for name, kind, count in _gres(text)
        if name == "gpu"
        for number in range(int(count))
    }


def _device_pattern(directory: Path, name: str, kind: str, count: int) -> str:
    return f"{directory}/devices/{name}{kind}[0-{count - 1}]"


def _defaults(directory: Path, base_port: int) -> dict[str, str]:
    return {
        "ClusterName": cluster_name(directory),
        "SlurmctldHost": f"{_host()}(127.0.0.1)",
        "SlurmctldPort": str(base_port),
        "SlurmUser": _SLURM_USER,
        "SlurmdUser": "root",
        "AuthType": "auth/munge",
        "AuthInfo": "cred_expire=5",  # else a requeued job waits for 121 s
        "StateSaveLocation": f"{directory}/state",
        "SlurmdSpoolDir": f"{directory}/spool/%n",
        "SlurmctldPidFile": f"{directory}/slurmctld.pid",
        "SlurmdPidFile": f"{directory}/slurmd-%n.pid",
        "SlurmctldLogFile": f"{directory}/log/slurmctld.log",
        "SlurmdLogFile": f"{directory}/log/%n.log",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "AccountingStorageType": "accounting_storage/none",
        "MpiDefault": "none",
        "SwitchType": "switch/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        "DefMemPerCPU": "100",
        "PriorityType": "priority/multifactor",
        "PriorityFlags": "ACCRUE_ALWAYS",
        "PreemptType": "preempt/none",
        "SchedulerParameters": "batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1",
        "JobRequeue": "1",
        "RequeueExitHold": REQUEUE_EXIT_HOLD,
        "KillWait": "5",
        "ReturnToService": "2",
        "SlurmdParameters": "config_overrides",
    }


def _nodes(shape: Shape, base_port: int) -> list[str]:
    gres, features = _per_node(shape.gres, shape), _per_node(shape.features, shape)
    return [
        f"NodeName={name} NodeHostname={_host()} NodeAddr=127.0.0.1 Port={base_port + number}"
        f" CPUs={shape.cpus} Sockets=1 CoresPerSocket={shape.cpus // shape.threads} ThreadsPerCore={shape.threads}"
        f" RealMemory={shape.memory_mb}"
        + (f" Gres={gres[name]}" if gres[name] else "")
        + (f" Feature={features[name]}" if features[name] else "")
        for number, name in enumerate(shape.node_names, start=1)
    ]


def _per_node(value: str | Mapping[str, str], shape: Shape) -> dict[str, str]:
    if isinstance(value, str):
        return dict.fromkeys(shape.node_names, value)
    return {name: value.get(name, "") for name in shape.node_names}


def _gres(text: str) -> list[tuple[str, str, str]]:
    """``"ve:2,gpu:a100:1"`` as (name, type, count)."""
    entries = []
    for entry in filter(None, text.split(",")):
        name, *kind, count = entry.split(":")
        entries.append((name, ":".join(kind), count))
    return entries


def _host() -> str:
    return socket.gethostname().partition(".")[0]
