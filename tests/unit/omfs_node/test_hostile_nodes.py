"""What a user can do to omfs-node from inside a job, and a taken-over node to the daemon."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omfs_daemon.daemon.node_client.remote_transport import Remote
from omfs_daemon.daemon.node_client.transport import Transport
from omfs_daemon.omfs_node.job_processes import JobProcesses, SlurmCommand, is_stopped
from omfs_daemon.omfs_node.movers import smaps
from omfs_daemon.omfs_node.movers.mover import CannotMove
from omfs_daemon.omfs_node.movers.pageout import Pageout
from tests.support.waiting import LIMIT, wait_until

NOBODY = 65534


class Job:
    """A job's session of processes, and a stand-in for scontrol that lists all of them at each call."""

    def __init__(self, directory: Path, command: list[str]) -> None:
        self.process = subprocess.Popen(command, user=NOBODY, start_new_session=True, stdout=subprocess.DEVNULL)
        self.scontrol = directory / "scontrol"
        self.scontrol.write_text(
            "#!/bin/sh\necho 'PID JOBID STEPID LOCALID GLOBALID'\n"
            f"for pid in $(ps -s {self.process.pid} -o pid=); do echo $pid 7 batch - -; done\n"
        )
        self.scontrol.chmod(0o755)

    def pids(self) -> list[int]:
        listed = subprocess.run(["ps", "-s", str(self.process.pid), "-o", "pid="], capture_output=True, check=False)
        return [int(word) for word in listed.stdout.split()]

    def found(self) -> JobProcesses:
        return JobProcesses(SlurmCommand(scontrol=str(self.scontrol)), "n1", 7, NOBODY)

    def ask(self, do: str, **more: object) -> dict[str, object]:
        request = {"version": 1, "do": do, "node": "n1", "timeout": LIMIT, "slurm": {"scontrol": str(self.scontrol)}}
        if do != "probe":
            request |= {"method": "pageout", "job": 7, "uid": NOBODY}
        command = [sys.executable, "-m", "omfs_daemon.omfs_node"]
        done = subprocess.run(
            command, input=json.dumps(request | more).encode(), capture_output=True, check=True, timeout=LIMIT
        )
        answer: dict[str, object] = json.loads(done.stdout)
        return answer

    def end(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    jobs: list[Job] = []

    def start(*command: str) -> Job:
        jobs.append(Job(tmp_path, list(command)))
        return jobs[-1]

    yield start
    for one in jobs:
        one.end()


# As a parallel make does.
BUSY_SCRIPT = ("sh", "-c", "for each in $(seq 30); do while :; do sleep 0.1; done & done; wait")


def test_a_script_that_starts_one_program_after_the_other_is_stopped(job: Callable[..., Job]) -> None:
    busy = job(*BUSY_SCRIPT)
    with busy.found() as found:
        stopped = found.stop(time.monotonic() + LIMIT)
        assert busy.process.pid in [process.pid for process in stopped]
        assert all(is_stopped(process) for process in stopped)
        found.resume(all_of_them=True)


def test_a_script_that_starts_one_program_after_the_other_is_brought_in(job: Callable[..., Job]) -> None:
    """It continues as soon as it may; new processes all the time do not keep omfs-node looking for more."""
    busy = job(*BUSY_SCRIPT)
    os.kill(busy.process.pid, signal.SIGSTOP)
    answer = busy.ask("in", **{"continue": True})
    assert answer["ok"], answer
    assert answer["state"] == "running"


def test_a_job_of_more_processes_than_descriptors_is_stopped(job: Callable[..., Job]) -> None:
    """Root's soft limit on a node is 1024: a job with more processes must not be out of reach."""
    many = job("sh", "-c", "for each in $(seq 300); do sleep 3600 & done; wait")
    wait_until(lambda: len(many.pids()) == 301, "the processes")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    ours = len(list(Path("/proc/self/fd").iterdir()))  # of a test runner's worker, which inherits and keeps many
    resource.setrlimit(resource.RLIMIT_NOFILE, (ours + 64, hard))
    try:
        os.killpg(many.process.pid, signal.SIGSTOP)
        answer = many.ask("look")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert answer["ok"], answer
    assert (answer["processes"], answer["stopped"]) == (301, 301)


def test_without_descriptors_nothing_that_runs_is_taken_for_stopped(job: Callable[..., Job]) -> None:
    runs = job("sleep", "3600")
    with runs.found() as found:
        (process,) = found.find(time.monotonic() + LIMIT)
        kept: list[int] = []
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 64, hard))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                while True:
                    kept.append(os.dup(0))
            with pytest.raises(OSError, match="Too many open files"):
                is_stopped(process)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for descriptor in kept:
                os.close(descriptor)


MAPPINGS = """
import ctypes, mmap, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
for turn in range(60000):
    address = libc.mmap(None, 4096, 1 + 2 * (turn % 2), 0x22, -1, 0)
    # Every other one may be written to, so that none are joined.
    ctypes.c_char.from_address(address).value if not turn % 2 else ctypes.memset(address, 1, 1)
print("made", flush=True)
time.sleep(3600)
"""


def test_a_job_of_countless_mappings_does_not_block_the_probe_of_a_node(job: Callable[..., Job]) -> None:
    """What a probe reads of a process must not grow with what its user maps: else none of the node's jobs is known."""
    mapper = job("/usr/bin/python3", "-c", MAPPINGS)
    wait_until(lambda: len(Path(f"/proc/{mapper.process.pid}/maps").read_bytes().splitlines()) > 50_000, "the mappings")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = mapper.ask("probe")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert answer["ok"], answer
    held = answer["jobs"]["7"]["resident"]  # type: ignore[index]
    assert held > 30_000 * 4096
    begun = time.process_time()
    smaps.read_mappings(mapper.process.pid)  # what it would be by each mapping
    assert took < time.process_time() - begun


def test_reading_the_mappings_of_many_processes_ends_in_time(job: Callable[..., Job]) -> None:
    sleeps = job("sleep", "3600")
    with sleeps.found() as found, pytest.raises(CannotMove) as caught:
        Pageout({}).out(found.find(time.monotonic() + LIMIT), time.monotonic() - 1)
    assert caught.value.why == "timeout"


HANGS = """
import time
from omfs_daemon.omfs_node import main
main._HANGS = 0.2
main._JobRequest.do = lambda self: time.sleep(3600)
main.main()
"""


def test_who_hangs_in_a_users_processes_does_not_stay_on_the_node() -> None:
    """Such as one who reads /proc of a process whose memory lies in a file system that never answers."""
    request = {"version": 1, "do": "look", "method": "pageout", "node": "n1", "job": 7, "uid": NOBODY, "timeout": 0.2}
    done = subprocess.run(
        [sys.executable, "-c", HANGS],
        input=json.dumps(request).encode(),
        capture_output=True,
        check=False,
        timeout=LIMIT,
    )
    assert done.returncode == -signal.SIGALRM


# -- a node that was taken over, to the daemon ------------------------------------------------------------------


@pytest.mark.parametrize("what", ["yes x | tr -d '\\n'", "yes", "yes >&2"])
def test_a_node_that_never_stops_talking_costs_the_daemon_neither_memory_nor_time(tmp_path: Path, what: str) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\n{what}\n")
    ssh.chmod(0o755)
    transport: Transport = Remote(["/usr/sbin/omfs-node"], ssh_path=str(ssh), connect_timeout=1)
    used = resource.getrusage(resource.RUSAGE_SELF)
    answer = transport.run(["n1"], {"do": "probe"}, 3)["n1"]
    after = resource.getrusage(resource.RUSAGE_SELF)
    took = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    assert (answer.ok, answer.why) == (False, "bad_answer"), answer
    assert after.ru_maxrss - used.ru_maxrss < 64 * 1024  # KiB
    assert took < 5  # of 9, for which it would have kept a core of the daemon's busy
