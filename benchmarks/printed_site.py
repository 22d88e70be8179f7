"""A made-up, full cluster as Slurm's commands print it, and a runner that answers like them, at no cost."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from omfs_daemon.cluster.marks import SUBMIT_MARK
from omfs_daemon.slurm.commands.run_command import CommandOutput
from omfs_daemon.slurm.commands.squeue_fields import JobRow

NOW = 1_800_000_000
CPUS, MEMORY_MB = 64, 256 * 1024
SECRET = "d41d8cd98f00b204"  # noqa: S105 - that of no one
_SEPARATOR = f"<{SECRET}>"
_NOTHING, _NONE = "(null)", "N/A"
_CONFIG = "SLURM_VERSION = 22.05.8\nSelectTypeParameters = CR_CPU_MEMORY\nBOOT_TIME = 1\n"

_WAITING = JobRow(
    job_id="",
    array_job_id="",
    array_task_id=_NONE,
    het_job_id=_NONE,
    state="PENDING",
    reason="Priority",
    partition="main",
    user="u",
    uid="1001",
    account="",
    qos="normal",
    tres="",
    cpus="",
    tasks="1",
    min_cpus="1",
    nodes="1",
    max_nodes="0",
    min_memory="",
    tres_per_job=_NONE,
    tres_per_node=_NONE,
    tres_per_socket=_NONE,
    tres_per_task=_NONE,
    tasks_per_node=_NONE,
    cpus_per_tres=_NONE,
    over_subscribe="OK",
    features=_NOTHING,
    licenses=_NOTHING,
    required_nodes="",
    node_list="",
    priority="",
    nice="0",
    submit=str(NOW - 20_000),
    eligible=str(NOW - 20_000),
    dependency=_NOTHING,
    reservation=_NOTHING,
    start=_NONE,
    time_used="0:00",
    time_limit="1-00:00:00",
    deadline=_NONE,
    restarts="0",
    requeue="1",
    batch="1",
    name="job.sh",
    comment="omfs:method=requeue",
    admin_comment=_NOTHING,
)


class PrintedSite:
    """Rows of jobs by id, their ExcNodeList, and the nodes: each 64 CPUs and 256 GB, a quarter of them with GPUs.

    ``owners``: accounts whose jobs wait; ``borrowers``: accounts whose jobs run. All draws come from one seed.
    """

    def __init__(self, nodes: int, owners: int = 25, borrowers: int = 20, seed: int = 1) -> None:
        self.random = random.Random(seed)  # noqa: S311 - a benchmark, not a secret
        self.rows: dict[int, JobRow] = {}
        self.excluded: dict[int, str] = {}
        self.nodes = nodes
        self._owners, self._borrowers = owners, borrowers
        self._details: dict[int, str] = {}
        self._ended: list[tuple[int, str]] = []
        self._texts: dict[int, str] = {}
        self._next = 1

    # -- jobs ------------------------------------------------------------------------------------------------
    def fill(self) -> None:
        """Jobs on all CPUs of all nodes; every tenth pair of nodes starts with a job on both."""
        draw = self.random
        for node in range(self.nodes):
            left = CPUS
            if node % 20 < 2 and node - node % 20 + 1 < self.nodes:
                left -= 32
                if node % 20 == 0:
                    self._start(f"n[{node}-{node + 1}]", 64, 2)
            while left > 0:
                cpus = min(left, draw.choice([1, 4, 8, 16, 32, 64]))
                left -= cpus
                self._start(f"n{node}", cpus, 1)

    def queue(self, count: int) -> None:
        """So many waiting jobs."""
        draw = self.random
        for _ in range(count):
            nodes = draw.choice([1, 1, 1, 2, 4, 8])
            cpus, per_cpu = draw.choice([1, 2, 4, 8, 16, 32, 64]) * nodes, draw.choice([1, 2, 4]) * 1024
            held = draw.random() < 0.1
            self._add(
                _WAITING._replace(
                    partition="urgent" if draw.random() < 0.002 else "main",
                    account=f"a{draw.randrange(self._owners)}",
                    tres=f"cpu={cpus},mem={cpus * per_cpu}M,node={nodes},billing={cpus}",
                    cpus=str(cpus),
                    nodes=str(nodes),
                    max_nodes=str(nodes),
                    min_memory=f"{per_cpu}M",
                    tres_per_node=f"gres:gpu:{draw.choice([1, 2, 4])}" if draw.random() < 0.1 else _NONE,
                    submit=str(NOW - draw.randrange(20_000)),
                    priority="0" if held else str(1 + draw.randrange(10_000)),
                    time_limit=draw.choice(["10:00", "1:00:00", "1-00:00:00"]),
                    comment=_NOTHING if held else _WAITING.comment,
                    reason="JobHeldAdmin" if held else "Priority",
                    admin_comment=SUBMIT_MARK if held else _NOTHING,
                )
            )

    def queue_arrays(self, count: int, tasks: int) -> None:
        """So many arrays, each with so many waiting tasks of one CPU."""
        for _ in range(count):
            self._add(
                _WAITING._replace(
                    array_task_id=f"0-{tasks - 1}",
                    account=f"a{self.random.randrange(self._owners)}",
                    tres="cpu=1,mem=1024M,node=1,billing=1",
                    cpus="1",
                    min_memory="1024M",
                    priority=str(1 + self.random.randrange(10_000)),
                )
            )

    def exclude(self, lists: int) -> None:
        """Every second waiting job has one of so many different ``--exclude`` lists, of about a tenth of the nodes."""
        draw = self.random
        first = [draw.randrange(self.nodes) for _ in range(lists)]
        length = max(1, self.nodes // 10)
        known = [f"n[{begin}-{begin + length}],n{draw.randrange(self.nodes)}" for begin in first]
        for number in self._waiting()[::2]:
            self.excluded[number] = draw.choice(known)

    def change(self, count: int) -> None:
        """Ten seconds later: a quarter each of so many jobs ended, started there, were submitted, got a priority."""
        draw, part = self.random, max(1, count // 4)
        self._texts.clear()
        for number, row in self.rows.items():
            if row.state == "RUNNING":
                minutes, _, seconds = row.time_used.rpartition(":")
                used = int(minutes.rpartition(":")[2]) * 60 + int(seconds) + 10
                self.rows[number] = row._replace(time_used=f"{used // 60}:{used % 60:02}")
        running = [number for number, row in self.rows.items() if row.state == "RUNNING" and row.nodes == "1"]
        for number in draw.sample(running, min(part, len(running))):
            row = self.rows.pop(number)
            self._start(row.node_list, int(row.cpus), 1)
        waiting = self._waiting()
        for number in draw.sample(waiting, min(part, len(waiting))):
            row = self.rows[number]
            self.rows[number] = row._replace(priority=str(int(row.priority) + 1) if row.priority != "0" else "0")
        for number in draw.sample(waiting, min(part, len(waiting) // 2)):
            first, _, last = self.rows[number].array_task_id.partition("-")
            if last:
                self.rows[number] = self.rows[number]._replace(array_task_id=f"{int(first) + 1}-{last}")
        self.queue(part)

    def _waiting(self) -> list[int]:
        return [number for number, row in self.rows.items() if row.state == "PENDING"]

    def _start(self, names: str, cpus: int, nodes: int) -> None:
        draw = self.random
        used = draw.randrange(60, 18_000)
        number = self._add(
            _WAITING._replace(
                state="RUNNING",
                reason="None",
                account=f"a{draw.randrange(self._borrowers)}",
                tres=f"cpu={cpus},mem={cpus * 2048}M,node={nodes},billing={cpus}",
                cpus=str(cpus),
                nodes=str(nodes),
                min_memory="2048M",
                node_list=names,
                priority=str(1 + draw.randrange(10_000)),
                start=str(NOW - used),
                time_used=f"{used // 60}:{used % 60:02}",
                comment=_WAITING.comment if draw.random() < 0.7 else _NOTHING,
            )
        )
        if nodes > 1:
            ids = f"0-{cpus // nodes - 1}"
            row = self.rows[number]
            self._details[number] = (
                f"JobId={number} JobName={row.name} UserId=u(1001) GroupId=u(1001) MCS_label=N/A Priority=1 Nice=0 "
                f"Account={row.account} QOS=normal JobState=RUNNING NodeList={names} JOB_GRES=(null)   "
                f"Nodes={names} CPU_IDs={ids} Mem={cpus // nodes * 2048} GRES= MinCPUsNode=1 Comment=\n"
            )

    def _add(self, row: JobRow) -> int:
        number, self._next = self._next, self._next + 1
        self.rows[number] = row._replace(job_id=str(number), array_job_id=str(number))
        return number

    # -- what the commands print -----------------------------------------------------------------------------
    def details(self) -> str:
        """``scontrol -o -d show job``, of the jobs on several nodes; the others are as long here as they are there."""
        filler = "JobName=job.sh UserId=u(1001) GroupId=u(1001) MCS_label=N/A Priority=1 Nice=0 " + "x" * 500 + "\n"
        return "".join(self._details.get(number, f"JobId={number} {filler}") for number in self.rows)

    def nodes_text(self) -> str:
        return "".join(
            f"NodeName=n{i} CPUAlloc=0 CPUEfctv={CPUS} CPUTot={CPUS} RealMemory={MEMORY_MB} AllocMem=0 State=ALLOCATED "
            f"Gres={'gpu:4' if i % 4 == 0 else _NOTHING} Partitions=main,urgent\n"
            for i in range(self.nodes)
        )

    def partitions_text(self) -> str:
        nodes = f"n[0-{self.nodes - 1}]"
        return "".join(
            f"PartitionName={name} AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=YES QoS=N/A DefaultTime=NONE "
            f"DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes=UNLIMITED MaxTime=UNLIMITED "
            f"MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED Nodes={nodes} PriorityJobFactor=1 PriorityTier=1 "
            f"RootOnly=NO ReqResv=NO OverSubscribe=NO OverTimeLimit=NONE PreemptMode=OFF State=UP "
            f"TotalCPUs={self.nodes * CPUS} TotalNodes={self.nodes} SelectTypeParameters=NONE JobDefaults=(null)\n"
            for name in ("main", "urgent")
        )

    def squeue_text(self) -> str:
        """``squeue -O`` with the format that the gateway asks for."""
        return "".join(_SEPARATOR.join(row) + _SEPARATOR + "\n" for row in self.rows.values())

    def excluded_text(self) -> str:
        return "".join(
            f"{number}{_SEPARATOR}{self.excluded.get(number, '')}{_SEPARATOR}\n" for number in self._waiting()
        )


class Answers:
    """A runner for the gateway that answers from texts made beforehand; ``update`` makes them anew."""

    def __init__(self, site: PrintedSite) -> None:
        self._site = site
        self._texts: dict[str, str] = {}
        self.update()

    def update(self) -> None:
        site = self._site
        self._texts = {
            "rows": site.squeue_text(),
            "excluded": site.excluded_text(),
            "nodes": site.nodes_text(),
            "partitions": site.partitions_text(),
            "job": site.details(),
            "config": _CONFIG,
        }

    @property
    def rows(self) -> str:
        return self._texts["rows"]

    def __call__(
        self,
        arguments: Sequence[str],
        *,
        timeout: float,
        conf: Path | None = None,
        check: bool = True,
        variables: Mapping[str, str] | None = None,
    ) -> CommandOutput:
        del timeout, conf, check
        if arguments[0] == "squeue" and "--version" in arguments:
            return CommandOutput("slurm 22.05.8", "", 0)
        if arguments[0] == "squeue":
            which = "rows" if "SQUEUE_FORMAT2" in (variables or {}) else "excluded"
            return CommandOutput(self._named(which, arguments), "", 0)
        return CommandOutput(self._one_job(arguments) or self._texts[arguments[arguments.index("show") + 1]], "", 0)

    def _named(self, which: str, arguments: Iterable[str]) -> str:
        """The rows of the jobs that the arguments name, of all without any."""
        listed = next((argument for argument in arguments if argument.startswith("--jobs=")), "")
        if not listed:
            return self._texts[which]
        wanted = set(listed.partition("=")[2].split(","))
        lines = self._texts[which].split("\n")
        return "".join(f"{line}\n" for line in lines if line.partition(_SEPARATOR)[0] in wanted)

    def _one_job(self, arguments: Sequence[str]) -> str:
        if arguments[-2:-1] != ["job"] or not re.fullmatch(r"\d+", arguments[-1]):
            return ""
        start = f"JobId={arguments[-1]} "
        return "".join(f"{line}\n" for line in self._texts["job"].split("\n") if line.startswith(start))
