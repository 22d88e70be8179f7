"""Private real Slurm clusters (four nodes with four CPUs, unless told otherwise), kept full of preemptible jobs, and
omfsd on one."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import psutil

from omfs_daemon.config.job_submit_conf import plugin_settings
from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.api.client import Client
from omfs_daemon.errors import OmfsError
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm, SubmitGate
from omfs_daemon.testing.local_slurm.slurm_conf import Shape

ROOT = Path(__file__).parents[1]
PLUGIN = ROOT / "plugins" / "job_submit.lua"
NODES, CPUS = 4, 4
TUNED = "batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1"
LOW, HIGH = "low", "high"
LIMIT = 90.0
CHUNK = 200

_PREEMPT: Mapping[str, tuple[str, str]] = {
    # PreemptMode of the cluster and of the partition of the victims, as slurm.conf(5) has it for partition_prio
    "requeue": ("REQUEUE", "PreemptMode=REQUEUE"),
    "suspend": ("SUSPEND,GANG", "PreemptMode=SUSPEND OverSubscribe=FORCE:1"),
}

_OMFS = """
[slurm]
conf = "{conf}"
[daemon]
state_dir = "{directory}/state"
run_dir = "{directory}/run"
log_level = "debug"
[policy]
quantum_seconds = 0
max_preemptions_per_hour = 1000
[metrics]
enabled = false
[entitlements.regular]
percent = 100
[[class]]
name = "urgent"
partition = ["high"]
urgent = true
[[class]]
name = "regular"
methods = ["requeue", "suspend"]
"""


class Start(NamedTuple):
    """One urgent job: when its sbatch began and ended, and when its script ran (seconds since the epoch)."""

    job: int
    submitted: float
    taken: float
    ran: float

    @property
    def seconds(self) -> float:
        return self.ran - self.submitted


class Cluster:
    """One of the clusters. ``preempt``: how Slurm itself preempts ("" if it does not), ``daemon``: whether omfsd is
    there, with the plug-in; ``tuned``: scheduler parameters as recommended, or Slurm's own."""

    def __init__(
        self, preempt: str = "", tuned: bool = True, daemon: bool = False, nodes: int = NODES, cpus: int = CPUS
    ) -> None:
        self.nodes, self.cpus = nodes, cpus
        self.directory = Path(tempfile.mkdtemp(prefix="omfs-latency-"))
        self.directory.chmod(0o755)
        mode, of_low = _PREEMPT.get(preempt, ("", ""))
        options = {
            "MaxJobCount": "50000",
            "MaxArraySize": "20001",
            "SchedulerParameters": TUNED if tuned else "",
            "PreemptType": "preempt/partition_prio" if preempt else "preempt/none",
            "PreemptMode": mode,
        }
        partitions = (
            f"PartitionName={LOW} Nodes=ALL PriorityTier=1 {of_low}",
            f"PartitionName={HIGH} Nodes=ALL PriorityTier=10 {'PreemptMode=OFF' if preempt else ''}",
        )
        self.omfsd = Omfsd(self.directory / "omfsd") if daemon else None
        gate = self.omfsd.gate() if self.omfsd else None
        shape = Shape(nodes, cpus, options=options, partitions=partitions)
        self.slurm = LocalSlurm(self.directory / "slurm", shape, gate=gate)
        self._turns = 0

    def __enter__(self) -> Self:
        try:
            self.slurm.start()
            if self.omfsd is not None:
                self.omfsd.configure(self.slurm.conf)
                self.omfsd.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self.omfsd is not None:
                self.omfsd.end()
            self.slurm.stop()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    # -- jobs ------------------------------------------------------------------------------------------------------
    def submit(self, script: str, *options: str) -> int:
        return self.slurm.submit(script, "--output=/dev/null", "--no-kill", *options)

    def fill(self, method: str, seconds: float = 7200) -> None:
        """Until the machine is full of regular jobs that run (for so long), and of nothing else."""
        for _ in range(self.nodes - len(self._regular("RUNNING"))):
            self.submit(_sleep(seconds), *regular(method, self.cpus))
        self.wait(self._is_full, "a machine full of regular jobs")

    def queue(self, jobs: int, method: str, seconds: float = 7200) -> None:
        """So many waiting jobs, each with a record of its own: tasks of an array that are touched one by one."""
        if not jobs:
            return
        for begin in range(0, jobs, CHUNK):  # a split takes Slurm longer the more tasks an array has
            count = min(CHUNK, jobs - begin)
            array = self.submit(_sleep(seconds), *regular(method, self.cpus), f"--array=1-{count}")
            refs = ",".join(f"{array}_{task}" for task in range(1, count + 1))
            self.slurm.command("scontrol", "update", f"jobid={refs}", "name=waits")
        waiting = len(self._states("PENDING"))
        if waiting < jobs:
            raise RuntimeError(f"{waiting} jobs wait instead of {jobs}")

    def start_urgent(self) -> Start:
        """Submit an urgent job of a whole node, wait until it runs, and make sure that its CPUs are its own."""
        self._turns += 1
        stamp = self.slurm.output / f"stamp{self._turns}"
        script = f"#!/bin/bash\necho $EPOCHREALTIME > {stamp}.new && mv {stamp}.new {stamp}\nsleep 600\n"
        submitted = time.time()
        job = self.submit(script, "--partition=high", "--account=alarm", "--nodes=1", f"--ntasks={self.cpus}")
        taken = time.time()
        self.wait(stamp.exists, "the urgent job to run", 0.002)
        ran = float(stamp.read_text())
        stamp.unlink()
        self.wait(lambda: self._is_real(job), "the urgent job to have CPUs of its own")
        return Start(job, submitted, taken, ran)

    def end_urgent(self, job: int, method: str, backlog: bool) -> None:
        """Take the urgent job away, with those that were preempted for it, and have the machine full again."""
        self.slurm.command("scancel", str(job))
        if not backlog:
            self.cancel("PENDING")
        if method == "suspend":
            self.cancel("SUSPENDED")
        self.wait(lambda: not self._states("COMPLETING") and str(job) not in self._states("RUNNING"), "its end")
        if not backlog:
            self.wait(lambda: self.omfsd is None or self.omfsd.rests(), "omfsd to be done")
            self.fill(method)
        self.wait(self._is_full, "a machine full of regular jobs")
        self.wait(lambda: self.omfsd is None or self.omfsd.rests(), "omfsd to be done")

    def cancel(self, state: str) -> None:
        """All regular jobs in a state."""
        self.slurm.command("scancel", f"--partition={LOW}", f"--state={state}", check=False)

    def _is_full(self) -> bool:
        listed = ("squeue", "--noheader", "--states=RUNNING,COMPLETING,SUSPENDED,CONFIGURING", "--format=%P %t")
        return self.slurm.command(*listed).stdout.split("\n")[:-1] == [f"{LOW} R"] * self.nodes

    def _is_real(self, job: int) -> bool:
        running = self._states("RUNNING")
        return str(job) in running and len(running) == self.nodes

    def _states(self, states: str) -> list[str]:
        """Jobs in one of these states, by id."""
        return self.slurm.command("squeue", "--noheader", "--array", f"--states={states}", "--format=%A").stdout.split()

    def _regular(self, state: str) -> list[str]:
        listed = ("squeue", "--noheader", f"--partition={LOW}", f"--states={state}", "--format=%A")
        return self.slurm.command(*listed).stdout.split()

    def wait(self, condition: Callable[[], object], what: str, pause: float = 0.1) -> None:
        """Not so often that the asking itself is what keeps the machine busy."""
        end = time.monotonic() + LIMIT
        while not condition():
            if time.monotonic() > end:
                said = self.omfsd.tail() if self.omfsd else ""
                jobs = self.slurm.command("squeue", "--states=all").stdout[-2000:]
                raise RuntimeError(f"waited {LIMIT:g} s for {what}:\n{jobs}\n{said}")
            time.sleep(pause)

    def controller_seconds(self) -> float:
        """Of processors, that slurmctld has used so far."""
        return cpu_seconds(int((self.slurm.directory / "slurmctld.pid").read_text()))

    def started(self) -> int:
        """How many jobs Slurm has started so far (sdiag)."""
        found = re.search(r"^Jobs started: +(\d+)", self.slurm.command("sdiag").stdout, re.M)
        return int(found[1]) if found else 0

    def calls(self) -> dict[str, int]:
        """What slurmctld was asked so far, by kind of call (sdiag)."""
        said = self.slurm.command("sdiag").stdout
        part = said.partition("by message type")[2].partition("by user")[0]
        return {name: int(count) for name, count in re.findall(r"^\s+(\w+) +\( *\d+\) +count:(\d+)", part, re.M)}


def _sleep(seconds: float) -> str:
    return f"#!/bin/bash\nexec sleep {seconds:g}\n"


def regular(method: str, cpus: int = CPUS) -> list[str]:
    """Options of a regular job with a node's CPUs."""
    return [
        f"--partition={LOW}",
        "--account=regular",
        "--nodes=1",
        f"--ntasks={cpus}",
        "--requeue",
        f"--comment=omfs:method={method}",
    ]


def cpu_seconds(pid: int) -> float:
    """Of processors, that a process and its children that have ended have used so far."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system + times.children_user + times.children_system


class Omfsd:
    """The daemon as a process of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory / "log"
        self._config = directory / "omfs.toml"
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir()

    def gate(self) -> SubmitGate:
        """As ``omfs config job-submit`` makes it."""
        return SubmitGate(PLUGIN, plugin_settings(Config.model_validate(tomllib.loads(self._text(Path("/none")))), [0]))

    def configure(self, conf: Path) -> None:
        self._config.write_text(self._text(conf))

    def _text(self, conf: Path) -> str:
        return _OMFS.format(conf=conf, directory=self.directory)

    def start(self) -> None:
        """Start it and wait until it has polled Slurm."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", "from omfs_daemon.cli.omfsd import run; run()", "-c", str(self._config)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        end = time.monotonic() + LIMIT
        while not self.rests():
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"omfsd does not start: {self.tail()}")
            time.sleep(0.05)

    def send(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(how)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(20)
        self._process = None

    def cpu_seconds(self) -> float:
        """Of processors, with its commands."""
        return 0.0 if self._process is None else cpu_seconds(self._process.pid)

    def memory(self) -> int:
        """Bytes that it has in memory, without its commands."""
        return 0 if self._process is None else int(psutil.Process(self._process.pid).memory_info().rss)

    def rests(self) -> bool:
        """Whether it has polled Slurm, and no preemption is under way."""
        try:
            status = Client(self.directory / "run" / "omfs.sock").status()
        except OmfsError:
            return False
        return status["last_poll"] is not None and not status["preemptions_under_way"]

    def has_polled(self, since: float) -> bool:
        """Whether it has polled all jobs since then (seconds since the epoch)."""
        try:
            return float(Client(self.directory / "run" / "omfs.sock").status()["last_poll"] or 0.0) >= since
        except OmfsError:
            return False

    def events(self, name: str) -> list[dict[str, Any]]:
        """What it has logged under this name."""
        lines = self.log.read_text().splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return [event for event in found if event.get("event") == name]

    def tail(self) -> str:
        return self.log.read_text()[-3000:] if self.log.exists() else ""
