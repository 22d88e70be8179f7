"""Preemption by omfs-node on a real Slurm: engines (of mock VEOS) with node licenses, and memory paged out."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from omfs_daemon.cluster.jobs import JobState
from tests.conftest import clear
from tests.support.daemons import dying_at
from tests.support.omfs_node_jobs import NODES, USUAL, Counting, NodesDaemon, Site, count_in_memory, site, swap

pytestmark = pytest.mark.slurm

MB = 1 << 20
SLOW = "bandwidth 5M"
"""Until it is fast again nothing comes in or goes out, however long a busy machine takes to observe it."""
FAST = f"bandwidth {USUAL}"


@pytest.fixture(scope="module", name="site")
def _site() -> Iterator[Site]:
    with site() as made:
        yield made


@pytest.fixture
def omfsd(site: Site) -> Iterator[NodesDaemon]:
    """Not started yet. No job of a test outlives it."""
    directory = Path(tempfile.mkdtemp(prefix="omfsd-"))
    installation = NodesDaemon(site, directory)
    try:
        yield installation
    finally:
        installation.kill()
        clear(site.slurm)
        site.end_of_test()
        shutil.rmtree(directory, ignore_errors=True)


# -- vector engines ---------------------------------------------------------------------------------


def test_an_urgent_job_gets_the_engine_and_its_memory_twice_in_a_row(omfsd: NodesDaemon) -> None:
    omfsd.configure(dry_run=True)
    omfsd.start()
    job = omfsd.count()
    omfsd.wait_usable(job)
    first = omfsd.urgent(stays=True)
    omfsd.wait_until(lambda: omfsd.ask("plan")["actions"], "a plan")
    (action,) = omfsd.ask("plan")["actions"]
    (victim,) = action["victims"]
    assert (action["kind"], action["job"], victim["method"]) == ("preempt for", str(first.id), "ve_swap")
    assert 0.1 < victim["cost_seconds"] < 10, "some 600 MB each way"
    assert omfsd.runs(job.id)
    omfsd.stop()
    omfsd.configure()
    omfsd.start()
    for turn, urgent in ((1, first), (2, None)):
        urgent = urgent or omfsd.urgent(stays=True)
        omfsd.wait_stopped(job)
        assert omfsd.licenses(job) == {}
        omfsd.wait_counting(urgent)  # it would have ended with code 3 without the memory
        omfsd.let_end(urgent.id)
        omfsd.wait_counting(job)
        omfsd.wait_until(lambda: not omfsd.under_way(), "the job to have its licenses again")
        assert omfsd.metric("omfs_preemption_delay_seconds_count", method="ve_swap") == turn
        assert omfsd.metric("omfs_moved_bytes_total", method="ve_swap", direction="out") == turn * 600 * MB
        omfsd.wait_until(
            lambda turn=turn: (
                omfsd.metric("omfs_moved_bytes_total", method="ve_swap", direction="in") == turn * 600 * MB
            ),
            "its return, which the journal has first, to be counted",
        )
    assert omfsd.metric("omfs_preemption_delay_seconds_sum", method="ve_swap") > 2 * 0.28, "at 2 GB/s"
    for stop in omfsd.ask("history")["preemptions"]:
        (victim,) = stop["victims"]
        assert (stop["outcome"], victim["method"], victim["bytes"]) == ("started", "ve_swap", 600 * MB)
        assert victim["preempt_seconds"] > 0.28 and victim["resume_seconds"] > 0.28
    omfsd.assert_all_well()


def test_an_urgent_job_for_any_engine(omfsd: NodesDaemon) -> None:
    """Held by the plug-in until the daemon has chosen a node, and its licenses with it."""
    omfsd.start()
    jobs = [omfsd.count(nodes=[node]) for node in NODES]
    omfsd.wait_usable(*jobs)
    urgent = omfsd.urgent(nodes=(), licenses="ve:16", stays=True)
    omfsd.wait_until(lambda: omfsd.runs(urgent.id), "the urgent job to run")
    (node,) = omfsd.job(urgent.id).on_nodes
    assert omfsd.licenses(urgent) == {f"ve_{node}": 16}
    assert omfsd.job(jobs[NODES.index(node)].id).state is JobState.SUSPENDED
    omfsd.let_end(urgent.id)
    omfsd.assert_all_well()


def test_a_job_with_two_processes_on_engines_of_two_nodes_each(omfsd: NodesDaemon) -> None:
    omfsd.start()
    job = omfsd.count(nodes=NODES, ves=(0, 1))
    omfsd.wait_usable(job)
    urgent = [omfsd.urgent(nodes=[node], ves=(0, 1), stays=True) for node in NODES]
    omfsd.wait_counting(*urgent)
    assert omfsd.job(job.id).state is JobState.SUSPENDED
    omfsd.let_end(*(job.id for job in urgent))
    omfsd.assert_all_well()
    assert omfsd.metric("omfs_moved_bytes_total", method="ve_swap", direction="out") == 4 * 600 * MB


def test_sixteen_jobs_at_once(omfsd: NodesDaemon) -> None:
    omfsd.configure(probe=5)
    omfsd.start()
    jobs = [omfsd.count("50M", ves=[number % 4], slots=1) for number in range(16)]
    omfsd.wait_usable(*jobs)
    urgent = omfsd.urgent("950M", ves=range(4), stays=True)
    omfsd.wait_stopped(*jobs)
    omfsd.wait_counting(urgent)
    omfsd.let_end(urgent.id)
    omfsd.assert_all_well()
    assert omfsd.metric("omfs_preemption_delay_seconds_count", method="ve_swap") == 16


def test_a_swap_area_that_is_too_small_is_known_before_anybody_is_preempted(omfsd: NodesDaemon) -> None:
    omfsd.configure(area=500 * MB)
    omfsd.start()
    jobs = [omfsd.count("300M", slots=8), omfsd.count("300M", slots=8)]
    omfsd.wait_usable(*jobs)
    first = omfsd.urgent("300M", slots=8, count=0)
    omfsd.wait_counting(first)
    (left,) = [job for job in jobs if omfsd.runs(job.id)]
    omfsd.wait_until(lambda: "no room" in omfsd.methods_of(left)["ve_swap"], "the room to be used up")
    asked = len(omfsd.site.asked("out"))
    second = omfsd.urgent("300M", slots=8)
    omfsd.wait_reported(second, "preempting all jobs that may be preempted for it would not free enough")
    assert "preempt for" not in {action["kind"] for action in omfsd.ask("plan")["actions"]}
    omfsd.end(first)
    omfsd.jobs.remove(first)
    omfsd.assert_all_well()
    assert len(omfsd.site.asked("out")) == asked, "nobody was tried in vain"


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("partial PID 200M", "swapped out in part"),
        ("eperm PID", "VEOS did not accept the request"),
        ("lie PID", "no memory was freed"),
        ("efault 1", "cannot open its swap file"),
    ],
)
def test_what_veos_refuses_leaves_the_job_running_and_is_reported(omfsd: NodesDaemon, fault: str, text: str) -> None:
    """Of a job with two processes, one of which is refused; it is spared for a while, then it is tried again."""
    omfsd.configure(retry=4, probe=4)
    omfsd.start()
    job = omfsd.count("300M", ves=(0, 1))  # twice that fits on an engine: what did not become free, and what comes in
    omfsd.wait_usable(job)
    kind, *words = fault.replace("PID", str(omfsd.pids(job)[1])).split()
    with omfsd.site.fault("n1", kind, *words):
        urgent = omfsd.urgent(ves=(0, 1))
        omfsd.wait_reported(urgent, f"job {job.id} could not be preempted (ve_swap)")
        omfsd.wait_reported(urgent, text)
        omfsd.wait_counting(job)
        omfsd.wait_until(lambda: omfsd.licenses(job) == {"ve_n1": 16}, "its licenses to be given back")
    omfsd.wait_counting(urgent)
    omfsd.assert_all_well()


def test_pps_that_is_switched_off_is_known_before(omfsd: NodesDaemon) -> None:
    with omfsd.site.fault("n1", "enotsup", 2):
        omfsd.start()
        job = omfsd.count()
        omfsd.wait_counting(job)
        urgent = omfsd.urgent()
        omfsd.wait_reported(urgent, "preempting all jobs that may be preempted for it would not free enough")
        wait_unsupported(omfsd, job)
        omfsd.wait_until(lambda: "ve_swap │ can be used on 1 of 2 nodes" in checked(omfsd), "the node in the check")
    omfsd.wait_counting(urgent)
    omfsd.assert_all_well()


def wait_unsupported(omfsd: NodesDaemon, job: Counting) -> None:
    wanted = {"ve_swap": "one of its nodes does not support it"}
    omfsd.wait_until(lambda: omfsd.methods_of(job) == wanted, "the reason")


def checked(omfsd: NodesDaemon) -> str:
    """What ``omfs check`` prints, on one line."""
    return " ".join(omfsd.omfs("check", check=False).stdout.split())


def test_a_swap_in_waits_for_memory(omfsd: NodesDaemon) -> None:
    omfsd.configure(limit=3, retry=4)
    omfsd.start()
    job = omfsd.count()
    omfsd.wait_usable(job)
    urgent = omfsd.urgent("500M", stays=True)
    omfsd.wait_counting(urgent)
    stranger = omfsd.site.engines["n1"].program(0, "500M")
    omfsd.let_end(urgent.id)
    omfsd.wait_until(lambda: omfsd.completed([urgent.id]), "the urgent job to end")
    asked = len(omfsd.site.asked("in"))
    omfsd.wait_until(lambda: len(omfsd.site.asked("in")) > asked + 1, "a second try")
    assert omfsd.job(job.id).state is JobState.SUSPENDED
    stranger.kill()
    omfsd.assert_all_well()


def test_a_process_that_veos_kills(omfsd: NodesDaemon) -> None:
    """Its job fails, and nothing of it stays."""
    omfsd.start()
    job = omfsd.count(ves=(0, 1))
    omfsd.wait_usable(job)
    pid = omfsd.pids(job)[0]
    urgent = omfsd.urgent(stays=True)
    omfsd.wait_stopped(job)
    with omfsd.site.fault("n1", "kill", pid):
        omfsd.let_end(urgent.id)
        omfsd.wait_until(lambda: omfsd.gateway.find(job.id).state is JobState.ENDED, "its job to end")
    omfsd.wait_until(lambda: omfsd.completed([urgent.id]), "the urgent job to end")
    omfsd.wait_until(lambda: not omfsd.under_way(), "it to be forgotten")
    assert "FAILED" in omfsd.slurm.command("scontrol", "show", "job", str(job.id)).stdout
    job.assert_without_gap()
    assert (omfsd.site.violations(), omfsd.site.held_licenses()) == ([], {})


def test_omfs_node_hangs(omfsd: NodesDaemon) -> None:
    omfsd.configure(limit=3, retry=4)
    omfsd.start()
    job = omfsd.count()
    omfsd.wait_usable(job)
    with omfsd.site.hanging("out", "n1"):
        urgent = omfsd.urgent()
        omfsd.wait_reported(urgent, "a job could not be preempted; undone")
        omfsd.wait_counting(job)
    omfsd.wait_counting(urgent)
    omfsd.assert_all_well()


def test_omfs_node_is_missing(omfsd: NodesDaemon) -> None:
    omfsd.configure(command=omfsd.directory / "nothing")
    omfsd.start()
    job = omfsd.count()
    omfsd.wait_counting(job)
    urgent = omfsd.urgent()
    omfsd.wait_reported(urgent, "preempting all jobs that may be preempted for it would not free enough")
    wait_unsupported(omfsd, job)
    found = lambda: omfsd.omfs("check", "--json", check=False).stdout  # noqa: E731
    omfsd.wait_until(lambda: "2 of 2 do not answer, n1: cannot run" in found(), "the nodes in the check")
    assert "No such file" in found()
    omfsd.end(urgent)
    assert omfsd.runs(job.id)


def test_the_root_process_dies(omfsd: NodesDaemon) -> None:
    assert omfsd.program.user != "root", "the clone and a Python with its packages must be readable for others"
    omfsd.configure(retry=4)
    omfsd.start()
    job = omfsd.count()
    omfsd.wait_usable(job)
    assert omfsd.process is not None
    (root,) = (process for process in psutil.Process(omfsd.process.pid).children() if process.uids().real == 0)
    root.kill()
    urgent = omfsd.urgent()
    omfsd.wait_until(lambda: "root_process_ended" in omfsd.log.read_text(), "the daemon to miss it")
    wait_unsupported(omfsd, job)
    omfsd.wait_until(lambda: omfsd.runs(job.id), "the job to run on")
    omfsd.stop()
    omfsd.start()
    omfsd.wait_counting(urgent)
    omfsd.assert_all_well()


DYING_BEFORE_SUSPEND = """
import os, signal
from omfs_daemon.slurm.commands.command_gateway import CommandGateway
CommandGateway.suspend = lambda self, refs: os.kill(os.getpid(), signal.SIGKILL)
from omfs_daemon.cli.omfsd import run
run()
"""
DYING_AFTER_RESUME = """
import os, signal
from omfs_daemon.slurm.commands.command_gateway import CommandGateway
resume = CommandGateway.resume
def resume_and_die(self, refs):
    resume(self, refs)
    os.kill(os.getpid(), signal.SIGKILL)
CommandGateway.resume = resume_and_die
from omfs_daemon.cli.omfsd import run
run()
"""


@pytest.mark.parametrize(
    "code",
    [
        dying_at("stopping", after_orders=True),
        DYING_BEFORE_SUSPEND,
        dying_at("starting", after_orders=False),
        dying_at("done", after_orders=True),
        DYING_AFTER_RESUME,
    ],
    ids=["swap_out_ordered", "licenses_taken", "suspended", "urgent_runs", "resumed"],
)
def test_killed_and_started_again(omfsd: NodesDaemon, code: str) -> None:
    omfsd.start(code)
    job = omfsd.count()
    omfsd.wait_usable(job)
    urgent = omfsd.urgent()
    omfsd.wait_for_death()
    if code == DYING_BEFORE_SUSPEND:
        assert (omfsd.job(job.id).state, omfsd.licenses(job)) == (JobState.RUNNING, {})
    omfsd.start()
    omfsd.wait_until(lambda: omfsd.completed([urgent.id]), "the urgent job to end")
    omfsd.assert_all_well()


@pytest.mark.parametrize("sub", ["o", "i"], ids=["out", "in"])
def test_killed_in_the_middle_of_a_swap(omfsd: NodesDaemon, sub: str) -> None:
    omfsd.start()
    job = omfsd.count()
    omfsd.wait_usable(job)
    if sub == "o":
        omfsd.site.engines["n1"].ask(SLOW)
    urgent = omfsd.urgent(stays=True)
    if sub == "i":
        omfsd.wait_swapping(job, "s")
        omfsd.site.engines["n1"].ask(SLOW)
        omfsd.let_end(urgent.id)
    omfsd.wait_swapping(job, sub)
    omfsd.kill()
    omfsd.site.engines["n1"].ask(FAST)
    omfsd.start()
    if sub == "o":
        omfsd.let_end(urgent.id)
    omfsd.wait_until(lambda: omfsd.completed([urgent.id]), "the urgent job to end")
    omfsd.assert_all_well()


def test_the_failsafe_brings_everything_back(omfsd: NodesDaemon) -> None:
    omfsd.start()
    jobs = [omfsd.count(nodes=[node]) for node in NODES]
    omfsd.wait_usable(*jobs)
    urgent = omfsd.urgent(stays=True)
    omfsd.wait_stopped(jobs[0])
    omfsd.site.engines["n2"].ask(SLOW)
    second = omfsd.urgent(nodes=["n2"])
    omfsd.wait_swapping(jobs[1], "o", "n2")
    omfsd.kill()
    omfsd.site.engines["n2"].ask(FAST)
    omfsd.let_end(urgent.id)
    omfsd.wait_until(lambda: omfsd.completed([urgent.id]), "the urgent job to end")
    omfsd.wait_until(
        lambda: omfsd.omfs("failsafe", check=False).returncode == 0 and all(omfsd.runs(job.id) for job in jobs),
        "the failsafe to be done",
    )
    omfsd.wait_counting(*jobs)
    assert [omfsd.licenses(job) for job in jobs] == [job.licenses for job in jobs]
    omfsd.end(jobs[1])
    omfsd.wait_until(lambda: omfsd.completed([second.id]), "the other urgent job to end")
    for job in jobs:
        job.assert_without_gap()
    assert omfsd.violations() == []


def test_a_victim_is_canceled_while_it_is_swapped_out(omfsd: NodesDaemon) -> None:
    omfsd.start()
    job = omfsd.count()
    omfsd.wait_usable(job)
    urgent = omfsd.urgent(stays=True)
    omfsd.wait_stopped(job)
    omfsd.wait_counting(urgent)
    pids = omfsd.pids(job)
    omfsd.end(job)
    omfsd.wait_until(lambda: not any(omfsd.sub(str(pid)) for pid in pids), "VEOS to release it")
    omfsd.let_end(urgent.id)
    omfsd.jobs.remove(job)
    omfsd.known_violations = omfsd.site.violations()  # Slurm continues the processes that it kills
    omfsd.assert_all_well()
    job.assert_without_gap()


@pytest.mark.parametrize("moment", ["swap_out", "resume"])
def test_the_nodes_slurmd_dies(omfsd: NodesDaemon, moment: str) -> None:
    """Slurm's orders do not reach the node then; the job goes on all the same once it is back."""
    omfsd.start()
    job = omfsd.count(nodes=["n2"])
    omfsd.wait_usable(job)
    try:
        if moment == "swap_out":
            omfsd.site.engines["n2"].ask(SLOW)
        urgent = omfsd.urgent(nodes=["n2"], stays=moment == "resume")
        omfsd.wait_swapping(job, {"swap_out": "o", "resume": "s"}[moment], "n2")
        if moment == "resume":
            omfsd.wait_counting(urgent)
            omfsd.site.engines["n2"].ask(SLOW)
            omfsd.end(urgent)
            omfsd.jobs.remove(urgent)
            omfsd.wait_swapping(job, "i", "n2")
        omfsd.slurm.stop_node("n2", signal.SIGKILL)
        omfsd.site.engines["n2"].ask(FAST)
        if moment == "resume":
            omfsd.wait_swapping(job, "a", "n2")
            omfsd.wait_state(JobState.RUNNING, job)
        else:
            omfsd.wait_stopped(job)
    finally:
        omfsd.slurm.start_node("n2")
    omfsd.assert_all_well()


# -- memory paged out -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def swap_file() -> Iterator[None]:
    with swap(1000):
        yield


def swapped(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().split("VmSwap:")[1].split()[0]) * 1024


@pytest.mark.usefixtures("swap_file")
@pytest.mark.parametrize("children", [1, 3])
def test_memory_is_paged_out_for_an_urgent_job_twice_in_a_row(omfsd: NodesDaemon, children: int) -> None:
    omfsd.configure(methods=["pageout"])
    omfsd.start()
    job = count_in_memory(omfsd, 200 * MB // children, children=children)
    omfsd.wait_usable(job, method="pageout")
    for turn in (1, 2):
        urgent = omfsd.urgent("1M", licenses="mem_n1:16", stays=True)
        omfsd.wait_stopped(job)
        assert omfsd.licenses(job) == {}
        pids = omfsd.slurm.command("scontrol", "listpids", str(job.id), "n1").stdout.splitlines()[1:]
        assert sum(swapped(int(line.split()[0])) for line in pids) > 180 * MB
        omfsd.wait_counting(urgent)
        omfsd.let_end(urgent.id)
        omfsd.wait_counting(job)
        omfsd.wait_until(lambda: not omfsd.under_way(), "the job to have its licenses again")
        assert omfsd.metric("omfs_preemption_delay_seconds_count", method="pageout") == turn
        assert omfsd.metric("omfs_moved_bytes_total", method="pageout", direction="out") > turn * 180 * MB
    omfsd.assert_all_well()


@pytest.mark.usefixtures("swap_file")
def test_sixteen_jobs_are_paged_out_at_once(omfsd: NodesDaemon) -> None:
    omfsd.configure(methods=["pageout"], probe=5)
    omfsd.start()
    jobs = [count_in_memory(omfsd, 10 * MB, slots=1) for _ in range(16)]
    omfsd.wait_usable(*jobs, method="pageout")
    urgent = omfsd.urgent("1M", licenses="mem_n1:16", stays=True)
    omfsd.wait_counting(urgent)
    assert {omfsd.job(job.id).state for job in jobs} == {JobState.SUSPENDED}
    omfsd.let_end(urgent.id)
    omfsd.assert_all_well()


@pytest.mark.usefixtures("swap_file")
def test_with_too_little_swap_nobody_is_chosen(omfsd: NodesDaemon) -> None:
    omfsd.configure(methods=["pageout"], margin=(1 << 40))
    omfsd.start()
    job = count_in_memory(omfsd, 50 * MB)
    omfsd.wait_counting(job)
    asked = len(omfsd.site.asked("out"))
    urgent = omfsd.urgent("1M", licenses="mem_n1:16")
    omfsd.wait_reported(urgent, "preempting all jobs that may be preempted for it would not free enough")
    omfsd.wait_until(lambda: "no room" in omfsd.methods_of(job)["pageout"], "the reason")
    assert len(omfsd.site.asked("out")) == asked
    omfsd.end(urgent)
    omfsd.jobs.remove(urgent)
    omfsd.assert_all_well()
