"""Jobs of the container cluster: one victim for each method, whose work can be counted, and urgent jobs."""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.container_cluster import ContainerCluster
from tests.support.waiting import wait_until

COUNT = 250
"""Numbers that a victim writes, one every tenth of a second."""

_COUNTER = f"""
import os, sys, time
name = "counts-" + os.environ["SLURM_JOB_ID"]
keep = bytearray(os.urandom(1 << 20)) * int(sys.argv[1])
with open(name, "w") as file:
    for number in range({COUNT}):
        print(number, file=file, flush=True)
        time.sleep(0.1)
"""
_PYTHON = "/usr/bin/python3"


@dataclass(frozen=True)
class Method:
    """``script``: the victim's; ``options``: of its sbatch and of the urgent job's; ``node``: where both run."""

    script: str
    options: tuple[str, ...]
    node: str = "n2"
    urgent_options: tuple[str, ...] = ()


def _python(megabytes: int) -> str:
    return f"{_PYTHON} counter.py {megabytes}"


METHODS = {
    "requeue": Method(f"exec {_python(1)}", ("--comment=omfs:method=requeue",)),
    "suspend": Method(f"exec {_python(1)}", ("--comment=omfs:method=suspend",)),
    "criu": Method(f"exec omfs-run {_python(50)}", ("--comment=omfs:method=criu",)),
    "dmtcp": Method(
        f"export PATH=/opt/dmtcp/bin:$PATH STAND_IN_FAULT=slow\nexec omfs-run {_PYTHON} /opt/dmtcp/programs/count.py"
        f" counts-$SLURM_JOB_ID {COUNT} 0.1",
        ("--comment=omfs:method=dmtcp",),
    ),
    "pageout": Method(f"exec {_python(100)}", ("--comment=omfs:method=pageout",)),
    "ve_swap": Method(
        f"exec {_PYTHON} /opt/mock_veos/ve_program.py --socket /opt/mock_veos/veos.sock --size 1G"
        f" --out counts-$SLURM_JOB_ID --count {COUNT} --interval 0.1",
        ("--comment=omfs:method=ve_swap", "--licenses=ve_n3:1"),
        node="n3",
        urgent_options=("--licenses=ve_n3:1",),
    ),
}


def install_counter(cluster: ContainerCluster) -> None:
    """Put the counting program into alice's home directory."""
    cluster.shell("client", f"cat >counter.py <<'END'\n{_COUNTER}END")


def submit_victim(cluster: ContainerCluster, method: str) -> int:
    """A job of bio's on all CPUs of one node, which can be preempted by this method; returns when it can."""
    chosen = METHODS[method]
    job = cluster.submit(
        chosen.script,
        f"--nodelist={chosen.node}",
        "--ntasks=4",
        *chosen.options,
        account="bio",
        kind=f"victim-{method}",
    )
    wait_until(lambda: _can_be_preempted(cluster, job, method), lambda: f"job {job} to be ready: {cluster.story(job)}")
    return job


def _can_be_preempted(cluster: ContainerCluster, job: int, method: str) -> bool:
    """Whether it counts, and omfsd could preempt it so: omfs-run is ready, or its nodes were probed."""
    assert cluster.state(job) != "COMPLETED", f"job {job} has ended before it was ready: {cluster.story(job)}"
    options = (cluster.omfs("why", str(job)) or {}).get("methods", [])
    return any(row["method"] == method and not row["why_not"] for row in options) and bool(
        cluster.file(f"counts-{job}")
    )


def submit_urgent(cluster: ContainerCluster, *options: str, cpus: int = 4, seconds: float = 3) -> int:
    """A job of alarm's that omfsd makes room for."""
    words = ("--qos=urgent", f"--ntasks={cpus}", *options)
    return cluster.submit(f"sleep {seconds:g}", *words, account="alarm", kind="urgent")


def assert_work_is_whole(cluster: ContainerCluster, job: int) -> None:
    """Every number was written, in order, none twice."""
    lines = [int(line.split()[0]) for line in cluster.file(f"counts-{job}").splitlines()]
    first = lines[0] if lines else 0
    assert lines == list(range(first, first + COUNT)), f"job {job}: {lines}"
