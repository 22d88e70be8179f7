"""A private Slurm of two nodes with mock vector engines each, counted by licenses, and jobs that count on them."""

from __future__ import annotations

import json
import os
import random
import subprocess
import tempfile
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from deploy import zipapps
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.config.schema import MetricsSection
from omfs_daemon.testing.local_slurm.daemon_program import daemon_program
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm, SubmitGate
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from tests.support.daemons import ROOT, Daemon
from tests.support.mock_veos import Veos
from tests.support.waiting import LIMIT, wait_until

USER = "nobody"
NODES = ("n1", "n2")
VES = 4
SLOTS = 16
"""Licenses ``ve_n1``: each stands for a quarter of one of four engines, so that many small jobs fit."""
NODE_LICENSES = "ve_{node},mem_{node}"
LICENSES = f"ve_n1:{SLOTS},ve_n2:{SLOTS},mem_n1:{SLOTS},mem_n2:{SLOTS},ve:9999"
AREA = 1 << 30
METRICS_PORT = MetricsSection().port
USUAL = "2G"
"""Bytes a second that an engine moves."""

CONFIG = """
[slurm]
conf = "{conf}"
poll_seconds = 0.3
[daemon]
user = "{user}"
state_dir = "{directory}/state"
run_dir = "{run}"
dry_run = {dry_run}
failsafe_grace_seconds = 2
[policy]
quantum_seconds = 0
preempt_timeout_seconds = {longest}
start_timeout_seconds = {longest}
retry_after_seconds = {retry}
max_preemptions_per_hour = 100
[metrics]
address = "{address}"
[nodes]
worker = "local"
command = ["{command}"]
probe_seconds = {probe}
[methods.ve_swap]
preempt_timeout_seconds = {limit}
[methods.ve_swap.options]
ves = {ves}
area = {area}
poll_seconds = 0.02
settle_seconds = 3
call_seconds = {longest}
[methods.pageout]
preempt_timeout_seconds = {limit}
[methods.pageout.options]
margin = {margin}
[[node_license]]
license = "ve_{{node}}"
kind = "devices"
anywhere = "ve"
[[node_license]]
license = "mem_{{node}}"
kind = "memory"
[entitlements.bio]
percent = 50
[entitlements.physics]
percent = 50
[[class]]
name = "urgent"
partition = ["urgent"]
urgent = true
[[class]]
name = "beamline"
account = ["beamline"]
realtime = true
slowdown_bound = 2.0
act_at = 1.0
[[class]]
name = "regular"
methods = {methods}
default = {methods}
"""

# All slurmds share this host, so this stands before omfs-node: it gives each node engines of its own, and does what a
# test wants to go wrong. The request is handed on by a pipe, which takes 64 KiB.
GO_BETWEEN = """#!/usr/bin/python3
import json, os, sys, time
here = os.path.dirname(os.path.abspath(__file__))
request = json.load(sys.stdin)
node, do = request["node"], request["do"]
options = request["options"].get("ve_swap", {}) if do == "probe" else request["options"]
if request.get("method", "ve_swap") == "ve_swap":
    options["library"] = "%s/%s/libveosinfo.so" % (here, node)
with open("%s/asked" % here, "a") as log:
    log.write("%s %s %s\\n" % (do, node, request.get("job", 0)))
while os.path.exists("%s/hang.%s.%s" % (here, do, node)):
    time.sleep(0.1)
read, write = os.pipe()
os.write(write, json.dumps(request).encode())
os.close(write)
os.dup2(read, 0)
os.execv(here + "/omfs-node", [here + "/omfs-node"])
"""


class Site:
    """The cluster, its engines and what lies beside them; directories that other users can enter."""

    def __init__(self, directory: Path, slurm: LocalSlurm, engines: Mapping[str, Veos]) -> None:
        self.directory = directory
        self.slurm = slurm
        self.engines = engines
        self.run = directory / "run"
        self.command = directory / "go-between"

    def violations(self) -> list[str]:
        return [text for engine in self.engines.values() for text in engine.violations()]

    def asked(self, do: str) -> list[str]:
        """The requests to omfs-node: node and job."""
        log = self.directory / "asked"
        lines = log.read_text().splitlines() if log.exists() else []
        return [line.partition(" ")[2] for line in lines if line.startswith(f"{do} ")]

    @contextmanager
    def hanging(self, do: str, node: str) -> Iterator[None]:
        """omfs-node hangs on this node at this request."""
        mark = self.directory / f"hang.{do}.{node}"
        mark.touch()
        try:
            yield
        finally:
            mark.unlink()

    @contextmanager
    def fault(self, node: str, kind: str, *words: object) -> Iterator[None]:
        """A fault of mock VEOS; see docs/ve-swap.md."""
        self.engines[node].ask(" ".join(map(str, ("fault", kind, *words))))
        try:
            yield
        finally:
            with suppress(AssertionError):  # the process has ended
                self.engines[node].ask(" ".join(map(str, ("unfault", kind, *words[:1]))))

    def held_licenses(self) -> dict[str, int]:
        """Licenses in use in Slurm, without zeros."""
        printed = self.slurm.command("scontrol", "-o", "show", "licenses").stdout
        rows = [dict(word.split("=", 1) for word in line.split()) for line in printed.splitlines() if "=" in line]
        return {row["LicenseName"]: int(row["Used"]) for row in rows if row["Used"] != "0"}

    def end_of_test(self) -> None:
        """Nobody left on an engine."""
        for engine in self.engines.values():
            engine.ask(f"bandwidth {USUAL}")
            wait_until(lambda engine=engine: not any(e["processes"] for e in engine.show()["engines"]), "empty VEs")  # type: ignore[misc]


@contextmanager
def site() -> Iterator[Site]:
    """Start it; slow enough to be shared by a module."""
    with tempfile.TemporaryDirectory(prefix="omfs-on-nodes-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        engines: dict[str, Veos] = {}
        try:
            for node in NODES:
                engines[node] = Veos(ves=VES, memory="1G", area="1G", bandwidth=USUAL)
                (directory / node).symlink_to(engines[node].directory)
            zipapps.build("omfs-node", directory)
            (directory / "go-between").write_text(GO_BETWEEN)
            (directory / "go-between").chmod(0o755)
            gate = SubmitGate(
                ROOT / "plugins" / "job_submit.lua",
                {
                    "heartbeat": str(directory / "run" / "heartbeat"),
                    "let_in_partitions": "main",
                    "node_licenses": NODE_LICENSES,
                    "any_licenses": "ve",
                },
                daemon_program("slurm").user,
            )
            options = {"Licenses": LICENSES, "SelectTypeParameters": "CR_Core", "DefMemPerCPU": "", "KillWait": "2"}
            shape = Shape(nodes=2, cpus=16, options=options)
            with LocalSlurm(directory / "slurm", shape, gate=gate, limit=LIMIT) as slurm:
                yield Site(directory, slurm, engines)
        finally:
            for engine in engines.values():
                engine.stop()


class Counting:
    """A job whose programs count into files, one each; ``licenses`` are what it asked for."""

    def __init__(self, job_id: int, outputs: Sequence[Path], licenses: str, ends: bool) -> None:
        self.id = job_id
        self.outputs = outputs
        self.licenses = {name: int(count) for name, _, count in (word.partition(":") for word in licenses.split(","))}
        self.ends = ends

    def numbers(self) -> list[list[int]]:
        """Whole lines only."""
        return [
            [int(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else [] for path in self.outputs
        ]

    def assert_without_gap(self) -> None:
        for numbers in self.numbers():
            assert numbers == list(range(1, len(numbers) + 1)), f"job {self.id}: a gap or a repeat"


class NodesDaemon(Daemon):
    """omfsd on such a site."""

    def __init__(self, site: Site, directory: Path) -> None:
        super().__init__(site.slurm, directory)
        self.site = site
        # One of its own: a port of 127.0.0.1 that is free now may be taken when the daemon comes.
        self.address = "127." + ".".join(str(random.randrange(1, 255)) for _ in range(3))
        self.jobs: list[Counting] = []
        self.known_violations = site.violations()
        self.configure()

    def configure(
        self,
        *,
        methods: Sequence[str] = ("ve_swap",),
        limit: float = LIMIT,
        command: Path | None = None,
        area: int = AREA,
        margin: int = 1 << 20,
        probe: float = 2,
        retry: float = 300,
        dry_run: bool = False,
    ) -> None:
        """Write the file; to be done before the start."""
        self.config.write_text(
            CONFIG.format(
                conf=self.slurm.conf,
                user=self.program.user,
                directory=self.directory,
                run=self.site.run,
                address=self.address,
                command=command or self.site.command,
                ves=VES,
                area=area,
                limit=float(limit),
                longest=LIMIT,
                margin=margin,
                probe=float(probe),
                retry=float(retry),
                dry_run=str(dry_run).lower(),
                methods=json.dumps(list(methods)),
            )
        )

    # -- jobs ---------------------------------------------------------------------------------------
    def count(
        self,
        size: str = "600M",
        *,
        count: int = 0,
        stays: bool = False,
        ves: Sequence[int] = (0,),
        slots: int = SLOTS,
        nodes: Iterable[str] = ("n1",),
        licenses: str = "",
        account: str = "bio",
        partition: str = "main",
        more: Sequence[str] = (),
    ) -> Counting:
        """A job with one program on each of these engines of each of its nodes; ``count`` 0: until it is ended.

        One that ``stays`` does not end before ``let_end``, however long a busy machine takes to look at it.
        """
        nodes = tuple(nodes)
        output = _open_directory(self.slurm.output)
        programs = [
            f"{self.site.directory}/$SLURMD_NODENAME/ve_program.py"
            f" --socket {self.site.directory}/$SLURMD_NODENAME/veos.sock"
            f" --ve {ve} --size {size} --count {count} --out {output}/{'$SLURMD_NODENAME' if nodes else 'any'}.{ve}"
            for ve in ves
        ]
        lines = ["pids=", *(f'{program} &\npids="$pids $!"' for program in programs)]
        run = output / "run.sh"
        # Without cgroups (proctrack/linuxproc) Slurm loses programs whose shell has ended: it takes them along.
        waiting = "for p in $pids; do wait $p || { code=$?; kill -9 $pids; exit $code; }; done"
        staying = [f"while {self.stays}; do sleep 0.1; done"] if stays else []
        run.write_text("\n".join([*lines, waiting, *staying, ""]))
        script = f"#!/bin/sh\nexec {'srun ' if len(nodes) > 1 else ''}sh {run}\n"
        licenses = licenses or ",".join(f"ve_{node}:{slots}" for node in nodes)
        where = [f"-w{','.join(nodes)}", f"-N{len(nodes)}"] if nodes else ["-N1"]
        arguments = ["-A", account, "-p", partition, "--ntasks-per-node=1", "-L", licenses, "-o", f"{output}/log"]
        number = self.slurm.submit(script, *arguments, *where, *more, uid=USER)
        outputs = [output / f"{node}.{ve}" for node in nodes or ("any",) for ve in ves]
        job = Counting(number, outputs, licenses, ends=bool(count))
        self.jobs.append(job)
        return job

    def urgent(self, size: str = "600M", *, count: int = 20, **more: Any) -> Counting:
        return self.count(size, count=count, account="alarm", partition="urgent", **more)

    def wait_counting(self, *jobs: Counting, limit: float = LIMIT) -> None:
        """Until every program of each has counted on; of a job that ends by itself, until it has counted at all."""
        before = {job.id: [[] for _ in job.outputs] if job.ends else job.numbers() for job in jobs}

        def counted_on() -> bool:
            return all(
                len(now) > len(then) for job in jobs for now, then in zip(job.numbers(), before[job.id], strict=True)
            )

        self.wait_until(counted_on, f"jobs {list(before)} to count on", limit)

    def wait_state(self, state: JobState, *jobs: Counting, limit: float = LIMIT) -> None:
        ids = {job.id for job in jobs}
        self.wait_until(
            lambda: ids <= {seen.id for seen in self.gateway.jobs() if seen.state is state},
            f"jobs {sorted(ids)} to be {state}",
            limit,
        )

    def wait_stopped(self, *jobs: Counting) -> None:
        self.wait_state(JobState.SUSPENDED, *jobs)

    def pids(self, job: Counting, node: str = "n1") -> list[int]:
        """Of its programs on engines of the node."""
        printed = self.slurm.command("scontrol", "listpids", str(job.id), node).stdout.splitlines()[1:]
        listed = {int(line.split()[0]) for line in printed}
        known = {int(pid) for engine in self.site.engines[node].show()["engines"] for pid in engine["processes"]}
        return sorted(listed & known)

    def licenses(self, job: Counting) -> dict[str, int]:
        return dict(self.job(job.id).licenses)

    # -- state -------------------------------------------------------------------------------------
    def state_for_errors(self) -> str:
        """What a failed test shows."""
        jobs = self.jobs[-4:] if self.process is not None else []
        parts = [self.omfs("why", str(job.id), check=False).stdout for job in jobs]
        held = f"licenses in use: {self.site.held_licenses()}"
        return "\n".join([*self.observation(), held, *parts, self.tail()])

    def metric(self, name: str, **labels: str) -> float:
        """One sample of the page, 0 if there is none yet."""
        with urllib.request.urlopen(f"http://{self.address}:{METRICS_PORT}/metrics", timeout=LIMIT) as page:
            text = page.read().decode()
        wanted = {f'{key}="{value}"' for key, value in labels.items()}
        for line in text.splitlines():
            head, _, value = line.rpartition(" ")
            if head.partition("{")[0] == name and wanted <= set(head.partition("{")[2].rstrip("}").split(",")):
                return float(value)
        return 0.0

    def methods_of(self, job: Counting) -> dict[str, str]:
        """Why each method cannot be used on the job now; "" if it can."""
        return {option["method"]: option["why_not"] for option in self.why(job.id).get("methods", [])}

    def assert_all_well(self) -> None:
        """Those that end by themselves have done so; the others count on and have what they asked for. All work was
        done once; nothing is held, stopped, or taken."""
        endless = [job for job in self.jobs if not job.ends]
        ending = [job for job in self.jobs if job.ends]
        self.wait_until(lambda: self.completed([job.id for job in ending]), "those that end to end")
        self.wait_until(lambda: all(self.runs(job.id) for job in endless), "all others to run")
        self.wait_counting(*endless)
        self.wait_until(lambda: all(self.licenses(job) == job.licenses for job in endless), "licenses to be given back")
        self.wait_until(lambda: not self.under_way(), "nothing to be under way")
        assert not self.held()
        self.end(*endless)
        for job in self.jobs:
            job.assert_without_gap()
        assert self.violations() == []
        assert self.site.held_licenses() == {}

    def violations(self) -> list[str]:
        """Processes that ran while they were swapped out, in this test."""
        return [text for text in self.site.violations() if text not in self.known_violations]

    def under_way(self) -> list[Any]:
        """Preemptions under way, and preempted jobs."""
        status = self.ask("status")
        return [*status["preemptions_under_way"], *status["preempted"]]

    def end(self, *jobs: Counting) -> None:
        """Cancel, and wait until they are gone."""
        for job in jobs:
            self.slurm.command("scancel", str(job.id))
        left = [str(job.id) for job in jobs]
        self.wait_until(lambda: not {job.ref for job in self.gateway.jobs()}.intersection(left), "jobs to be gone")

    def wait_until(self, condition: Callable[[], Any], what: str, limit: float = LIMIT) -> None:
        """Shows the state if it fails."""
        try:
            wait_until(condition, what, limit)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.state_for_errors()}") from None

    def wait_usable(self, *jobs: Counting, method: str = "ve_swap") -> None:
        """Until the daemon has probed the jobs' memory, and could preempt each."""
        self.wait_counting(*jobs)
        seen = len(self.site.asked("probe"))
        self.wait_until(lambda: len(self.site.asked("probe")) >= seen + 2 * len(NODES), "the nodes to be looked at")
        # They are probed together, so one of them is enough.
        self.wait_until(lambda: self.methods_of(jobs[-1])[method] == "", f"{method} to be usable")

    def wait_reported(self, job: Counting, part: str) -> None:
        """Until ``omfs why`` has this text."""
        self.wait_until(lambda: part in self.why_text(job.id), f"{part!r} in why")

    def wait_swapping(self, job: Counting, sub: str, node: str = "n1") -> None:
        """Until VEOS is at it: "o" out, "i" in, "s" is out."""
        pids = [str(pid) for pid in self.pids(job, node)]
        self.wait_until(lambda: any(self.sub(pid, node) == sub for pid in pids), f"sub-status {sub}")

    def sub(self, pid: str, node: str = "n1") -> str:
        known = self.site.engines[node].process(int(pid))
        return "" if known is None else str(known["sub"])


def _open_directory(above: Path) -> Path:
    path = Path(tempfile.mkdtemp(dir=above))
    path.chmod(0o777)
    return path


# Fills memory with what does not compress and counts, looking through it all the time: a damaged part ends the count.
PAGES = """
import hashlib, os, sys, time
size, out = int(sys.argv[1]), sys.argv[2]
parts = [bytearray(os.urandom(size // 10)) for _ in range(10)]
sums = [hashlib.md5(part).digest() for part in parts]
number = 0
with open(out, "w") as file:
    while hashlib.md5(parts[number % 10]).digest() == sums[number % 10]:
        number += 1
        file.write("%d\\n" % number)
        file.flush()
        time.sleep(0.02)
"""


def count_in_memory(omfsd: NodesDaemon, size: int, *, slots: int = SLOTS, children: int = 1) -> Counting:
    """A job on n1 with ``children`` programs of ``size`` bytes each that count forever, with licenses for memory."""
    output = _open_directory(omfsd.slurm.output)
    program = output / "program.py"
    program.write_text(PAGES)
    outputs = [output / str(number) for number in range(children)]
    lines = [f"/usr/bin/python3 {program} {size} {path} &" for path in outputs]
    licenses = f"mem_n1:{slots}"
    script = "\n".join(["#!/bin/sh", *lines, "wait", ""])
    arguments = ["-A", "bio", "-w", "n1", "-n1", "-L", licenses, "-o", f"{output}/log"]
    job = Counting(omfsd.slurm.submit(script, *arguments, uid=USER), outputs, licenses, ends=False)
    omfsd.jobs.append(job)
    return job


@contextmanager
def swap(megabytes: int) -> Iterator[None]:
    """A swap file of the machine, in addition to what there is."""
    descriptor, name = tempfile.mkstemp(prefix="omfs-swap-", dir="/var/tmp")
    try:
        os.posix_fallocate(descriptor, 0, megabytes << 20)
        os.close(descriptor)
        subprocess.run(["mkswap", "-q", name], check=True, timeout=LIMIT)
        subprocess.run(["swapon", name], check=True, timeout=LIMIT)
        try:
            yield
        finally:
            subprocess.run(["swapoff", name], check=True, timeout=LIMIT)
    finally:
        Path(name).unlink()
