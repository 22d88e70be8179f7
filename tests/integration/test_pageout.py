"""Page-out on a real Slurm, real swap and real processes of another user: what is out, what comes in, what fails."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omfs_daemon.daemon.node_client.transport import Local
from omfs_daemon.daemon.node_client.work_queue import ThreadedWorkQueue
from omfs_daemon.preemption.methods.node_work import NodeAction, NodeWork, NodeWorkState, NodeWorkStatus
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from tests.support.omfs_node_jobs import swap
from tests.support.waiting import LIMIT, wait_until

pytestmark = pytest.mark.slurm

MB = 1024**2
NOBODY = 65534
ROOT = Path(__file__).parents[2]
OMFS_NODE = [sys.executable, "-m", "omfs_daemon.omfs_node"]

# Fills memory with what does not compress, then adds up checksums of parts of it, forever: a line each.
PROGRAM = """
import hashlib, os, sys, time
size, parts, children, share = (int(word) for word in sys.argv[1:5])
def fill():
    return [bytearray(os.urandom(size // parts)) for _ in range(parts)]
memory = fill() if share or not children else []
for child in range(children):
    if os.fork() == 0:
        memory = memory or fill()
        break
name = f"{sys.argv[5]}.{os.getpid()}"
sums = [hashlib.md5(part).hexdigest() for part in memory]
turn = 0
while True:
    bad = sum(hashlib.md5(part).hexdigest() != known for part, known in zip(memory, sums))
    with open(name, "a") as out:
        out.write(f"{turn} {bad}\\n")
    turn += 1
    time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def big_swap() -> Iterator[None]:
    """Of its own: other tests take theirs away when they end."""
    with swap(1000):
        yield


@pytest.fixture
def program(slurm: LocalSlurm) -> Path:
    path = slurm.output / "program.py"
    path.write_text(PROGRAM)
    return path


class Job:
    """A job that counts, and requests to omfs-node about it."""

    def __init__(
        self,
        slurm: LocalSlurm,
        program: Path,
        size: int,
        *,
        children: int = 0,
        allocation: bool = False,
        node: str = "n3",
    ) -> None:
        self.slurm, self.node, self.children = slurm, node, children
        self.output = Path(tempfile.mkdtemp(dir=slurm.output))
        self.output.chmod(0o777)
        python = "/usr/bin/python3"
        line = f"{python} {program} {size * MB} 10 {children} {int(allocation)} {self.output}/count"
        self.id = slurm.submit(f"#!/bin/sh\n{line}\n", f"--nodelist={node}", uid=NOBODY)
        wait_until(lambda: len(self.counts()) == children + 1 and all(self.counts().values()), "the job to count")

    def counts(self) -> dict[int, list[tuple[int, int]]]:
        """What each process has written, complete lines only: turn and damaged parts."""
        found = {}
        for path in self.output.glob("count.*"):
            lines = path.read_text().split("\n")[:-1]
            found[int(path.suffix[1:])] = [(int(a), int(b)) for a, b in (line.split() for line in lines)]
        return found

    def request(self, do: str, **more: object) -> dict[str, Any]:
        return {
            "version": 1,
            "do": do,
            "method": "pageout",
            "node": self.node,
            "job": self.id,
            "uid": NOBODY,
            "timeout": LIMIT,
            "slurm": {"conf": str(self.slurm.conf)},
            **more,
        }

    def ask(self, do: str, **more: object) -> dict[str, Any]:
        return ask(self.request(do, **more))

    def pids(self) -> list[int]:
        return list(self.counts())

    def assert_counts_on(self) -> None:
        """Every process continues where it was, its memory intact."""
        before = self.counts()
        wait_until(lambda: all(len(turns) > len(before[pid]) + 2 for pid, turns in self.counts().items()), "counting")
        for turns in self.counts().values():
            assert turns == [(number, 0) for number in range(len(turns))]

    def assert_stands(self) -> None:
        assert {state(pid) for pid in self.pids()} == {"T"}


def ask(request: dict[str, Any], command: list[str] = OMFS_NODE) -> dict[str, Any]:
    done = subprocess.run(
        command, input=json.dumps(request).encode(), capture_output=True, timeout=LIMIT, cwd=ROOT, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b"\n") == 1
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def memory(pid: int) -> tuple[int, int]:
    """VmRSS and VmSwap in bytes."""
    text = Path(f"/proc/{pid}/status").read_text()
    rss, swapped = (int(text.split(f"{name}:")[1].split()[0]) * 1024 for name in ("VmRSS", "VmSwap"))
    return rss, swapped


@pytest.mark.usefixtures("big_swap")
@pytest.mark.parametrize("prefault", [False, True], ids=["on demand", "prefault"])
def test_out_and_in_twice_without_a_gap(slurm: LocalSlurm, program: Path, prefault: bool) -> None:
    job = Job(slurm, program, 300)
    (pid,) = job.pids()
    for _ in range(2):
        answer = job.ask("out")
        assert answer["ok"], answer
        assert (answer["state"], answer["stopped"]) == ("out", answer["processes"])
        assert answer["freed"] > 270 * MB and answer["bytes"] > 270 * MB
        rss, swapped = memory(pid)
        assert rss < 30 * MB and swapped > 270 * MB
        job.assert_stands()
        assert job.ask("look")["state"] == "out"
        again = job.ask("out")
        assert again["ok"] and again["state"] == "out"
        answer = job.ask("in", options={"prefault": prefault}, **{"continue": False})
        assert answer["ok"]
        job.assert_stands()
        assert (memory(pid)[0] > 270 * MB) is prefault
        assert (answer["bytes"] > 270 * MB) is prefault
        assert job.ask("in", **{"continue": True})["state"] == "running"
        job.assert_counts_on()


@pytest.mark.usefixtures("big_swap")
def test_children_with_memory_of_their_own(slurm: LocalSlurm, program: Path) -> None:
    job = Job(slurm, program, 100, children=3)
    answer = job.ask("out")
    assert answer["ok"], answer
    assert answer["freed"] > 270 * MB and answer["processes"] >= 5
    job.assert_stands()
    assert job.ask("in", **{"continue": True})["ok"]
    job.assert_counts_on()


@pytest.mark.usefixtures("big_swap")
def test_memory_shared_since_a_fork_is_not_claimed_to_be_out(slurm: LocalSlurm, program: Path) -> None:
    job = Job(slurm, program, 300, children=1, allocation=True)
    answer = job.ask("out")
    assert (answer["ok"], answer["why"], answer["state"]) == (False, "not_verified", "running")
    job.assert_counts_on()


def _pids(slurm: LocalSlurm, number: int) -> list[int]:
    rows = slurm.command("scontrol", "listpids", str(number), "n3", check=False).stdout.split("\n")[1:]
    return [int(row.split()[0]) for row in rows if row]


def test_too_little_swap_leaves_the_job_running_untouched(slurm: LocalSlurm, program: Path) -> None:
    job = Job(slurm, program, 100)
    answer = job.ask("out", options={"margin": 1 << 50})
    assert (answer["ok"], answer["why"], answer["state"]) == (False, "no_swap_space", "running")
    assert memory(job.pids()[0])[1] == 0
    job.assert_counts_on()


@pytest.mark.usefixtures("big_swap")
def test_no_time_leaves_the_job_running(slurm: LocalSlurm, program: Path) -> None:
    job = Job(slurm, program, 300)
    answer = job.ask("out", timeout=0.12)
    assert (answer["ok"], answer["why"]) == (False, "timeout"), answer
    job.assert_counts_on()


@pytest.mark.usefixtures("big_swap")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_whenever_omfs_node_is_ended_the_job_can_run_again(
    slurm: LocalSlurm, program: Path, how: signal.Signals
) -> None:
    job = Job(slurm, program, 300)
    for delay in (0.05, 0.15, 0.3):
        process = subprocess.Popen(OMFS_NODE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
        assert process.stdin is not None
        process.stdin.write(json.dumps(job.request("out")).encode())
        process.stdin.close()
        time.sleep(delay)  # not a wait for something: the moment of the kill
        process.send_signal(how)
        process.wait(LIMIT)
        assert process.stdout is not None
        answer = process.stdout.read()
        if how is not signal.SIGKILL and b'"ok": false' in answer:
            job.assert_counts_on()
        answered = job.ask("in", **{"continue": True})
        assert (answered["ok"], answered["state"]) == (True, "running")
        job.assert_counts_on()


@pytest.mark.usefixtures("big_swap")
def test_two_at_once_for_one_job(slurm: LocalSlurm, program: Path) -> None:
    job = Job(slurm, program, 200)
    text = json.dumps(job.request("out")).encode()
    both = [
        subprocess.Popen(OMFS_NODE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
        for _ in range(2)
    ]
    for process in both:
        assert process.stdin is not None
        process.stdin.write(text)
        process.stdin.flush()
    answers = [json.loads(process.communicate(timeout=LIMIT)[0]) for process in both]
    assert [answer["ok"] for answer in answers] == [True, True]
    assert [answer["state"] for answer in answers] == ["out", "out"]
    assert min(answer["bytes"] for answer in answers) < 10 * MB < max(answer["bytes"] for answer in answers)
    assert job.ask("in", **{"continue": True})["ok"]
    job.assert_counts_on()


def test_another_users_uid_touches_nothing(slurm: LocalSlurm, program: Path) -> None:
    job = Job(slurm, program, 10)
    answer = job.ask("out", uid=2)
    assert (answer["ok"], answer["why"]) == (False, "wrong_uid")
    job.assert_counts_on()


def test_processes_created_during_the_stop_are_stopped_too(slurm: LocalSlurm) -> None:
    script = "#!/bin/bash\nwhile :; do (sleep 0.01; sleep 3600) & sleep 0.005; done\n"
    number = slurm.submit(script, "--nodelist=n3", uid=NOBODY)
    wait_until(lambda: len(_pids(slurm, number)) > 20, "many processes")
    request = {"version": 1, "method": "pageout", "node": "n3", "job": number, "uid": NOBODY, "timeout": LIMIT}
    request |= {"slurm": {"conf": str(slurm.conf)}}
    answer = ask(request | {"do": "out"})
    assert answer["ok"], answer
    states = {state(pid) for pid in _pids(slurm, number)}
    assert states <= {"T", "Z"}
    assert answer["stopped"] == answer["processes"] > 20


def test_on_a_suspended_job_only_what_we_stopped_is_continued(slurm: LocalSlurm, program: Path) -> None:
    job = Job(slurm, program, 50)
    slurm.command("scontrol", "suspend", str(job.id))
    wait_until(lambda: state(job.pids()[0]) == "T", "Slurm to stop it")
    answer = job.ask("out", suspended=True, options={"margin": 1 << 50})
    assert (answer["ok"], answer["why"]) == (False, "no_swap_space")
    job.assert_stands()
    slurm.command("scontrol", "resume", str(job.id))
    job.assert_counts_on()


@pytest.mark.usefixtures("big_swap")
def test_a_job_over_two_nodes_by_the_work_queue_suspended_and_resumed_by_slurm(
    slurm: LocalSlurm, program: Path
) -> None:
    """Also a process in a session of its own, which Slurm's suspend stops two seconds later than the others; a resume
    before that has an effect only then, so its SIGCONT is waited for before the job is stopped again."""
    output = Path(tempfile.mkdtemp(dir=slurm.output))
    output.chmod(0o777)
    count = f"/usr/bin/python3 {program} {60 * MB} 10 0 0 {output}/count"
    script = f"#!/bin/sh\nsetsid {count} &\nexec srun {count}\n"
    options = ("--partition=main", "--nodelist=n3,n4", "--nodes=2", "--ntasks-per-node=1")
    job = Job.__new__(Job)
    job.slurm, job.node, job.output = slurm, "n3", output
    job.id = slurm.submit(script, *options, uid=NOBODY)
    wait_until(lambda: len(job.counts()) == 3 and all(job.counts().values()), "the job to count")
    transport = Local([sys.executable, "-m", "omfs_daemon.omfs_node"], variables={"PYTHONPATH": str(ROOT)})
    work_queue = ThreadedWorkQueue(transport, time.time, lambda: None)
    out = NodeWork(
        "x", job.id, NOBODY, ("n3", "n4"), NodeAction.OUT, "pageout", slurm={"conf": str(slurm.conf)}, timeout=LIMIT
    )
    try:
        for _ in range(2):
            seen = _done(work_queue, out)
            assert (seen.state, seen.memory) == (NodeWorkState.DONE, "out"), seen
            assert seen.freed > 160 * MB
            slurm.command("scontrol", "suspend", str(job.id))
            back = replace(out, do=NodeAction.IN, options={"prefault": True})
            assert _done(work_queue, back).state is NodeWorkState.DONE
            job.assert_stands()
            slurm.command("scontrol", "resume", str(job.id))
            wait_until(lambda: "T" not in {state(pid) for pid in job.pids()}, "Slurm's SIGCONT")
            assert _done(work_queue, replace(back, resume=True)).memory == "running"
            job.assert_counts_on()
        seen = _done(work_queue, replace(out, nodes=("n3", "n4", "bad name")))
        assert (seen.state, seen.why) == (NodeWorkState.FAILED, "unreachable")
        job.assert_counts_on()
    finally:
        work_queue.close()


def _done(work_queue: ThreadedWorkQueue, work: NodeWork) -> NodeWorkStatus:
    work_queue.ask(work)
    return wait_until(lambda: _over(work_queue, work.ref), "the work queue")


def _over(work_queue: ThreadedWorkQueue, ref: str) -> NodeWorkStatus | None:
    seen = work_queue.seen(ref)
    return seen if seen is not None and seen.state is not NodeWorkState.UNDER_WAY else None


def test_a_node_without_processes_of_the_job(slurm: LocalSlurm, program: Path) -> None:
    job = Job(slurm, program, 10)
    answers = [job.ask(do, node="n4") for do in ("look", "out", "in")]
    assert [(a["ok"], a["state"], a["processes"]) for a in answers] == [(True, "none", 0)] * 3
    gone = job.ask("look", job=999999)
    assert (gone["ok"], gone["state"]) == (True, "none")


@pytest.mark.usefixtures("big_swap")
def test_probe_reports_free_swap_and_what_jobs_hold(slurm: LocalSlurm, program: Path) -> None:
    job = Job(slurm, program, 100)
    request = {"version": 1, "do": "probe", "node": "n3", "timeout": LIMIT, "slurm": {"conf": str(slurm.conf)}}
    answer = ask(request)
    assert answer["ok"]
    pageout = answer["methods"]["pageout"]
    assert (pageout["usable"], pageout["why"]) == (True, "") and pageout["free"] > 100 * MB
    assert 100 * MB <= answer["jobs"][str(job.id)]["resident"] < 150 * MB
