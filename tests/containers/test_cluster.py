"""The container cluster of docker-compose.yml: policy and methods across hosts, and faults in mid-preemption.

CI takes one method for each fault; a soak takes all. Figures: build/bench/cluster.json.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from tests.support.amounts import is_soak
from tests.support.container_cluster import (
    BACKUP,
    NETWORK,
    NODES,
    PRIMARY,
    PROJECT,
    ROOT,
    TOLERANT,
    ContainerCluster,
    docker,
)
from tests.support.container_faults import FAULTS, last
from tests.support.container_jobs import METHODS, assert_work_is_whole, install_counter, submit_urgent, submit_victim
from tests.support.container_pair import (
    controller_is_on,
    hanging,
    install_next,
    lay_out_next,
    log_of,
    read_only,
    reinstall_kept,
    restart_omfsd,
)
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
    cluster.wait_state(narrow, "RUNNING")
    # srun gives up if it is suspended while it starts tasks.
    wait_until(lambda: len(cluster.file(f"slurm-{wide}.out").split()) == 8, "the tasks of the wide job")
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


def test_the_backup_goes_on_when_the_host_of_the_primary_hangs_in_mid_preemption(cluster: ContainerCluster) -> None:
    wait_told, told = told_to_end(cluster, "hang")
    victim = cluster.submit(
        wait_told, "--nodelist=n2", "--ntasks=4", "--comment=omfs:method=requeue", account="bio", kind="victim"
    )
    cluster.wait_state(victim, "RUNNING")
    epoch = cluster.status()["pair"]["epoch"]
    with cluster.stopped_at_first_order() as wait_stopped:
        # The backup knows what slurmctld has saved, every five seconds: so the urgent job starts no earlier.
        urgent = cluster.submit(
            wait_told, "--nodelist=n2", "--ntasks=4", "--qos=urgent", "--begin=now+8", account="alarm", kind="urgent"
        )
        wait_stopped()
        with hanging(cluster, PRIMARY):
            wait_until(lambda: cluster.is_active(BACKUP), lambda: f"a takeover: {cluster.status(BACKUP)}")
            assert f'"epoch": {epoch + 1}, "host": "{BACKUP}", "event": "lease_taken"' in log_of(cluster, BACKUP)
            cluster.wait_state(urgent, "RUNNING")
            cluster.wait_state(victim, "PENDING")
    # By its log: the lease soon follows slurmctld back.
    gave_way = re.compile(
        rf'"epoch": {epoch}, .*"lease_lost"(?s:.*)"omfsd on {BACKUP} is active", "event": "standing_by"'
    )
    wait_until(lambda: gave_way.search(log_of(cluster, PRIMARY)), lambda: f"it to give way: {cluster.status()}")
    wait_until(lambda: controller_is_on(cluster, PRIMARY), "slurmctld to come back")
    restart_omfsd(cluster, BACKUP)  # gives up the lease at once, not after 30 seconds
    wait_until(cluster.polls, lambda: f"the way back: {cluster.status()}")
    cluster.wait_state(urgent, "RUNNING")
    cluster.wait_state(victim, "PENDING")
    told()
    cluster.wait_completed(urgent, victim)
    assert (cluster.restarts(urgent), cluster.restarts(victim)) == (0, 1), "nothing is ordered twice"


def test_the_pair_is_upgraded_one_after_the_other_while_jobs_run(cluster: ContainerCluster) -> None:
    wait_told, told = told_to_end(cluster, "upgrade")
    options = ("--ntasks=4", "--comment=omfs:method=suspend")
    running = cluster.submit(wait_told, "--nodelist=n1", *options, account="bio", kind="runs on")
    victim = cluster.submit(wait_told, "--nodelist=n2", *options, account="bio", kind="suspended")
    cluster.wait_state(victim, "RUNNING")
    urgent = cluster.submit(wait_told, "--nodelist=n2", "--ntasks=4", "--qos=urgent", account="alarm", kind="urgent")
    for job in (running, urgent):
        cluster.wait_state(job, "RUNNING")
    jobs = (running, victim, urgent)
    before = {job: (cluster.state(job), cluster.show(job)["StartTime"]) for job in jobs}
    status = cluster.status()
    old, epoch, new = status["version"], status["pair"]["epoch"], f"{status['version']}.post1"
    try:
        for host in (BACKUP, PRIMARY):
            assert "/journal: format" in lay_out_next(cluster, host, new)
            install_next(cluster, host)
            if host == BACKUP:
                wait_until(lambda: cluster.stands_by(BACKUP), lambda: f"it to stand by: {cluster.status(BACKUP)}")
                versions = [cluster.status(each)["version"] for each in (PRIMARY, BACKUP)]
                assert versions == [old, new] and cluster.status()["pair"]["epoch"] == epoch, "both work side by side"
                assert f'"active": "{old}", "own": "{new}"' in log_of(cluster, BACKUP)
        new_acts = lambda: cluster.polls() and cluster.status()["last_poll"]  # noqa: E731
        wait_until(new_acts, lambda: f"the new version to act: {cluster.status()}")
        after = cluster.status()
        assert (after["version"], after["pair"]["epoch"]) == (new, epoch + 1)
        assert [row["job"] for row in after["preempted"]] == [str(victim)], "what it has taken over"
        assert {job: (cluster.state(job), cluster.show(job)["StartTime"]) for job in jobs} == before
        told()
        cluster.wait_completed(*jobs)
        assert [cluster.restarts(job) for job in jobs] == [0, 0, 0]
    finally:
        for host in (BACKUP, PRIMARY):
            reinstall_kept(cluster, host)


def test_without_its_lease_omfsd_gives_no_orders_and_jobs_run_on(cluster: ContainerCluster) -> None:
    wait_told, told = told_to_end(cluster, "read-only")
    job = cluster.submit(wait_told, "--ntasks=4", "--comment=omfs:method=requeue", account="bio", kind="runs on")
    cluster.wait_state(job, "RUNNING")
    line = "/srv/slurm/omfs: Read-only file system: the lease cannot be renewed"
    before = log_of(cluster, PRIMARY).count("lease_not_renewed")
    with read_only(cluster, PRIMARY):
        wait_until(lambda: cluster.status().get("last_error") == line, lambda: f"{line}: {cluster.status()}")
        assert cluster.shell(PRIMARY, "omfs pause 2>&1", check=False) == f"omfs: {line}\n"
        text = "no omfsd is active, and the active slurmctld is on head"
        wait_until(lambda: cluster.status(BACKUP).get("summary") == text, lambda: f"{text}: {cluster.status(BACKUP)}")
    wait_until(cluster.polls, lambda: f"omfsd to act again: {cluster.status()}")
    assert log_of(cluster, PRIMARY).count("lease_not_renewed") == before + 1
    assert cluster.state(job) == "RUNNING" and cluster.restarts(job) == 0
    told()
    cluster.wait_completed(job)


def told_to_end(cluster: ContainerCluster, name: str) -> tuple[str, Callable[[], str]]:
    """A script that runs until the function is called."""
    file = f"/home/alice/end-{name}"
    return f"until [ -e {file} ]; do sleep 0.2; done", lambda: cluster.shell("client", f"touch {file}")


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
