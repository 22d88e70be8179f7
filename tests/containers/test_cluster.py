"""The container cluster of docker-compose.yml: policy and methods across hosts, and faults in mid-preemption.

CI takes one method for each fault; a soak takes all. Figures: build/bench/cluster.json.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from tests.support.amounts import is_soak
from tests.support.container_cluster import NETWORK, NODES, PROJECT, ROOT, TOLERANT, ContainerCluster, docker
from tests.support.container_faults import FAULTS, last
from tests.support.container_jobs import METHODS, assert_work_is_whole, install_counter, submit_urgent, submit_victim
from tests.support.omfs_node_jobs import swap
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.containers, pytest.mark.xdist_group("the container cluster"), pytest.mark.timeout(1800)]

RESULTS = ROOT / "build" / "bench" / "cluster.json"
TOLD = "/home/alice/both-may-end"

SAMPLE = (
    ("node killed", "requeue"),
    ("node paused", "criu"),
    ("node cut off", "pageout"),
    ("slurmctld killed", "criu"),
    ("slurmdbd away", "suspend"),
    ("MariaDB away", "dmtcp"),
    ("state directory full", "requeue"),
    ("clock off by a minute", "suspend"),
    ("omfsd killed", "ve_swap"),
)
CASES = [(fault, method) for fault in FAULTS for method in METHODS] if is_soak() else list(SAMPLE)


@dataclass
class Figures:
    """What goes into build/bench/cluster.json."""

    faults: int = 0
    recoveries: list[float] = field(default_factory=list)


@pytest.fixture(scope="module")
def deployed() -> Iterator[ContainerCluster]:
    cluster = ContainerCluster()
    with swap(1000):
        cluster.up()
        install_counter(cluster)
        yield cluster
        cluster.down()


@pytest.fixture(scope="module")
def figures() -> Figures:
    return Figures()


@pytest.fixture
def cluster(deployed: ContainerCluster, figures: Figures) -> ContainerCluster:
    deployed.wait_usable()
    return deployed


def test_the_ten_commands_of_the_documentation(cluster: ContainerCluster) -> None:
    commands = _documented()
    assert len(commands) == 10
    printed = {}
    for command in commands[:-1]:
        printed[command] = cluster.bash(command)
        submitted = re.search(r"Submitted batch job (\d+)", printed[command])
        if submitted:
            cluster.submitted[int(submitted[1])] = "documented"
            cluster.wait_state(int(submitted[1]), "RUNNING")
    squeue, history = printed[commands[5]], printed[commands[8]]
    assert squeue.count(" R ") == 3 and squeue.count(" bob ") == 0, squeue
    assert "requeue" in history, history
    cluster.wait_completed(*cluster.submitted)


def test_what_is_taken_on_the_machine_is_named(cluster: ContainerCluster) -> None:
    printed = cluster.bash("deploy/cluster.sh check 2>&1; true")
    assert f"cluster: the network {NETWORK}.0/24 is taken here" in printed
    assert "cluster: port 19090 is taken here: choose another with OMFS_PROMETHEUS_PORT" in printed


def test_every_account_gets_its_entitlement_and_an_urgent_job_starts(cluster: ContainerCluster) -> None:
    borrowers = [
        cluster.submit("sleep 20", "--ntasks=4", "--comment=omfs:method=requeue", account="bio", kind="borrower")
        for _ in NODES
    ]
    for job in borrowers:
        cluster.wait_state(job, "RUNNING")
    owner = cluster.submit("sleep 5", "--ntasks=4", account="physics", kind="owner")
    cluster.wait_state(owner, "RUNNING")
    urgent = submit_urgent(cluster)
    cluster.wait_state(urgent, "RUNNING", "COMPLETED")
    cluster.wait_completed(owner, urgent, *borrowers)
    assert sum(cluster.restarts(job) for job in borrowers) >= 2


def test_users_ask_on_a_login_node_about_their_own_jobs(cluster: ContainerCluster) -> None:
    job = cluster.submit("sleep 5", "--ntasks=1", account="bio", kind="asked about")
    why = lambda user: cluster.shell("client", f"omfs why {job} 2>&1", user=user, check=False)  # noqa: E731
    wait_until(lambda: f"job {job} of alice in bio" in why("alice"), lambda: f"an answer: {why('alice')}")
    assert why("bob") == f"omfs: job {job}: is not yours\n"
    assert "only on omfsd's own host" in cluster.shell("client", "omfs pause 2>&1", user="root", check=False)
    cluster.wait_completed(job)


def test_a_job_of_two_nodes_preempts_and_is_preempted(cluster: ContainerCluster) -> None:
    until_told = f"until [ -e {TOLD} ]; do sleep 0.2; done"
    wide = cluster.submit(
        f"srun --ntasks=8 hostname\n{until_told}", "--nodes=2", "--ntasks=8", "--comment=omfs:method=suspend",
        account="bio", kind="wide",
    )  # fmt: skip
    narrow = cluster.submit(until_told, "--ntasks=4", "--comment=omfs:method=suspend", account="bio", kind="narrow")
    cluster.wait_state(wide, "RUNNING")
    cluster.wait_state(narrow, "RUNNING")
    urgent = cluster.submit("srun hostname", "--nodes=3", "--ntasks=12", "--qos=urgent", account="alarm", kind="urgent")
    cluster.wait_completed(urgent)
    cluster.shell("client", f"touch {TOLD}")
    cluster.wait_completed(wide, narrow)
    hosts = cluster.file(f"slurm-{urgent}.out").split()
    assert sorted(set(hosts)) == sorted(NODES) and len(hosts) == 12
    assert len(set(cluster.file(f"slurm-{wide}.out").split())) == 2
    assert all(cluster.show(job)["SuspendTime"] != "None" for job in (wide, narrow)), "both were suspended"


@pytest.mark.parametrize("method", METHODS)
def test_a_job_is_preempted_by_each_method_and_ends_its_work(cluster: ContainerCluster, method: str) -> None:
    victim = submit_victim(cluster, method)
    urgent = submit_urgent(cluster, f"--nodelist={METHODS[method].node}", *METHODS[method].urgent_options)
    cluster.wait_completed(urgent, victim)
    victims = [
        row for preemption in cluster.omfs("history")["preemptions"] for row in preemption["victims"]
        if row["job"] == str(victim)
    ]  # fmt: skip
    assert [row["method"] for row in victims] == [method]
    assert_work_is_whole(cluster, victim)


@pytest.mark.parametrize(("fault", "method"), CASES, ids=[f"{fault}-{method}" for fault, method in CASES])
def test_a_fault_in_mid_preemption_costs_time_only(
    cluster: ContainerCluster, figures: Figures, fault: str, method: str
) -> None:
    chosen, what = METHODS[method], FAULTS[fault]
    victim = submit_victim(cluster, method)
    # A slurmctld that is killed forgets what it accepted within the last five seconds: the urgent job is eight seconds
    # old before it may start, so that it is not such a job (docs/guarantees.md).
    early = ["--begin=now+8"] if fault == "slurmctld killed" else []
    with cluster.stopped_at_first_order() as wait_stopped:
        urgent = submit_urgent(cluster, f"--nodelist={chosen.node}", *chosen.urgent_options, *early)
        wait_stopped()
        what.begin(cluster, chosen.node)
    figures.faults += 1
    try:
        last(what, cluster, chosen.node)
    finally:
        what.end(cluster, chosen.node)
    ended = time.monotonic()

    def is_over() -> bool:
        cluster.release_forgotten([urgent, victim])
        return all(cluster.state(job) == "COMPLETED" for job in (urgent, victim))

    wait_until(is_over, lambda: f"both jobs: {cluster.story(urgent)}\n{cluster.story(victim)}", TOLERANT)
    figures.recoveries.append(time.monotonic() - ended)
    assert_work_is_whole(cluster, victim)


def test_no_job_is_lost_and_nothing_is_held(cluster: ContainerCluster, figures: Figures) -> None:
    def unaccounted() -> dict[int, str]:
        states = cluster.accounting()
        return {job: states.get(job, "unknown") for job in cluster.submitted if states.get(job) != "COMPLETED"}

    with suppress(AssertionError):  # the figures say so, too
        wait_until(lambda: not unaccounted(), "sacct to have all jobs")
    held = cluster.on("head", "squeue", "-h").splitlines()
    results = {
        "faults": figures.faults,
        "jobs": len(cluster.submitted),
        "lost": len(unaccounted()),
        "held": len(held),
        "longest_recovery_seconds": round(max(figures.recoveries, default=0.0), 1),
    }
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    assert not unaccounted() and not held
    assert cluster.omfs("status")["preemptions_under_way"] == []


def test_the_last_command_of_the_documentation_removes_everything(cluster: ContainerCluster) -> None:
    cluster.bash(_documented()[-1])
    assert docker("ps", "--all", "--quiet", "--filter", f"label=com.docker.compose.project={PROJECT}") == ""
    assert docker("volume", "ls", "--quiet", "--filter", f"label=com.docker.compose.project={PROJECT}") == ""


def _documented() -> list[str]:
    """The ten commands of docs/cluster.md."""
    text = (ROOT / "docs" / "cluster.md").read_text().partition("## Ten commands")[2].partition("\n1. ")[0]
    return [line.strip() for line in text.splitlines() if line.startswith("    ")]
