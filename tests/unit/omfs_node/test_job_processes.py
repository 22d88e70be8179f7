"""Which processes omfs-node takes for the job's: real processes, and a stand-in for what Slurm lists."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from omfs_daemon.omfs_node import job_processes as processes
from omfs_daemon.omfs_node.job_lock import JobLock
from omfs_daemon.omfs_node.job_processes import JobProcesses, SlurmCommand
from omfs_daemon.omfs_node.movers import system_calls
from omfs_daemon.omfs_node.movers.mover import CannotMove
from tests.support.waiting import LIMIT, wait_until

NOBODY = 65534
HEADER = "PID JOBID STEPID LOCALID GLOBALID"


def soon() -> float:
    return time.monotonic() + LIMIT


class Lists:
    """A stand-in for scontrol that prints one prepared list after the other; the last one again and again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.program = directory / "scontrol"
        self.say("#!/bin/sh\nexit 1\n")

    def say(self, script: str) -> None:
        self.program.write_text(script)
        self.program.chmod(0o755)

    def show(self, *lists: list[int], step: str = "batch") -> None:
        for number, pids in enumerate(lists, 1):
            rows = [HEADER, *(f"{pid} 7 {step} - -" for pid in pids)]
            (self._directory / f"list{number}").write_text("\n".join(rows) + "\n")
        (self._directory / "turn").write_text("0")
        self.say(
            f"#!/bin/sh\ncd {self._directory}\nturn=$(( $(cat turn) + 1 ))\n"
            f"[ $turn -gt {len(lists)} ] && turn={len(lists)}\necho $turn > turn\ncat list$turn\n"
        )

    def job(self, uid: int = NOBODY) -> JobProcesses:
        return JobProcesses(SlurmCommand(scontrol=str(self.program)), "n1", 7, uid)


@pytest.fixture
def lists(tmp_path: Path) -> Lists:
    return Lists(tmp_path)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "3600"], user=NOBODY)
    yield process
    process.kill()
    process.wait()


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_stopped_and_continued(lists: Lists, sleeper: subprocess.Popen[bytes]) -> None:
    lists.show([sleeper.pid])
    with lists.job() as job:
        assert [process.pid for process in job.stop(soon())] == [sleeper.pid]
        assert state(sleeper.pid) == "T"
        job.resume(all_of_them=False)
    wait_until(lambda: state(sleeper.pid) == "S", "the process to run")


def test_another_users_process_is_never_touched(lists: Lists, sleeper: subprocess.Popen[bytes]) -> None:
    lists.show([sleeper.pid])
    with lists.job(uid=2) as job, pytest.raises(CannotMove) as caught:
        job.stop(soon())
    assert caught.value.why == "wrong_uid"
    assert state(sleeper.pid) != "T"


def test_the_sleeping_process_of_slurms_own_step_is_left_alone(lists: Lists, sleeper: subprocess.Popen[bytes]) -> None:
    lists.show([sleeper.pid], step="extern")
    with lists.job(uid=2) as job:
        assert job.stop(soon()) == []
    assert state(sleeper.pid) != "T"


def test_a_pid_that_is_somebody_elses_by_now_is_never_touched(lists: Lists, sleeper: subprocess.Popen[bytes]) -> None:
    """Slurm listed the pid, its process ended, and another job of the same user has it now: not listed any more."""
    lists.show([sleeper.pid], [])
    with lists.job() as job:
        assert job.stop(soon()) == []
    assert state(sleeper.pid) != "T"


def test_processes_created_during_the_stop_are_stopped(lists: Lists, sleeper: subprocess.Popen[bytes]) -> None:
    with subprocess.Popen(["sleep", "3600"], user=NOBODY) as late:
        lists.show([sleeper.pid], [sleeper.pid], [sleeper.pid, late.pid])
        with lists.job() as job:
            assert {process.pid for process in job.stop(soon())} == {sleeper.pid, late.pid}
        assert state(late.pid) == "T"
        late.kill()


VFORK = """
import os
os.mkfifo("pipe")
opens = [(os.POSIX_SPAWN_OPEN, 0, "pipe", os.O_RDONLY, 0)]
os.posix_spawn("/bin/true", ["true"], {}, file_actions=opens)  # glibc's is a vfork, and its child waits for a writer
"""


def test_b04_a_process_that_cannot_be_stopped_fails_in_seconds(
    lists: Lists, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_STUCK", 0.5)
    tmp_path.chmod(0o777)
    with subprocess.Popen([sys.executable, "-c", VFORK], cwd=tmp_path) as parent:
        try:
            wait_until(lambda: state(parent.pid) == "D", "the parent to wait for its child")
            lists.show([parent.pid])
            with lists.job(uid=os.getuid()) as job:
                began = time.monotonic()
                with pytest.raises(CannotMove) as caught:
                    job.stop(soon())
                assert caught.value.why == "timeout" and time.monotonic() < began + LIMIT / 2
                job.resume(all_of_them=False)
        finally:
            with (tmp_path / "pipe").open("w"):
                pass
            parent.kill()


@pytest.mark.parametrize("pid", ["\u00b2", "\u0663", "9" * 5000, "-1", "1_0", "0x7"])
def test_e03_a_pid_that_is_no_number_is_skipped(lists: Lists, sleeper: subprocess.Popen[bytes], pid: str) -> None:
    rows = f"{HEADER}\n{pid} 7 batch\n{sleeper.pid} 7 batch\n{sleeper.pid} {pid} batch\n"
    lists.say(f"#!{sys.executable}\nimport sys\nsys.stdout.buffer.write({rows.encode()!r})\n")
    with lists.job() as job:
        assert [process.pid for process in job.find(soon())] == [sleeper.pid]


def test_who_stood_before_is_not_continued(lists: Lists, sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.send_signal(signal.SIGSTOP)
    wait_until(lambda: state(sleeper.pid) == "T", "the stop")
    lists.show([sleeper.pid])
    with lists.job() as job:
        job.stop(soon())
        job.resume(all_of_them=False)
        assert state(sleeper.pid) == "T"
        job.resume(all_of_them=True)
    wait_until(lambda: state(sleeper.pid) == "S", "the process to run")


def test_we_never_stop_ourselves(lists: Lists) -> None:
    lists.show([os.getpid(), os.getppid(), 1])
    with lists.job(uid=os.getuid()) as job, pytest.raises(CannotMove, match="no process of job 7"):
        job.stop(soon())


def test_a_process_that_ends_meanwhile_is_no_failure(lists: Lists) -> None:
    with subprocess.Popen(["sleep", "3600"], user=NOBODY) as process:
        lists.show([process.pid])
        with lists.job() as job:
            assert len(job.find(soon())) == 1
            process.kill()
            process.wait()
            assert job.all == []
            job.resume(all_of_them=True)


@pytest.mark.parametrize(
    ("script", "seconds", "why"),
    [
        ("echo nonsense", LIMIT, "slurm_failed"),
        ("echo broken >&2; exit 1", LIMIT, "slurm_failed"),
        ("exec sleep 3600", 0.3, "timeout"),
    ],
)
def test_when_slurm_does_not_list_processes(lists: Lists, script: str, seconds: float, why: str) -> None:
    lists.say(f"#!/bin/sh\n{script}\n")
    with lists.job() as job, pytest.raises(CannotMove) as caught:
        job.find(time.monotonic() + seconds)
    assert caught.value.why == why


@pytest.mark.parametrize(
    "message",
    [
        "There are no steps for job 7 on node n1.",
        "JobId=7 does not exist on node n1.",
        "No job steps exist on this node.",
    ],
)
@pytest.mark.parametrize("table", [f"echo {HEADER}", ":"], ids=["22.05", "24.11"])
def test_a_node_without_the_job(lists: Lists, message: str, table: str) -> None:
    lists.say(f"#!/bin/sh\n{table}\necho '{message}' >&2\nexit 1\n")
    with lists.job() as job:
        assert job.stop(soon()) == []


def test_a_scontrol_that_others_can_write_is_not_run(lists: Lists, sleeper: subprocess.Popen[bytes]) -> None:
    lists.show([sleeper.pid])
    lists.program.chmod(0o777)
    with pytest.raises(CannotMove, match="only root can write"):
        processes.ask_slurm(SlurmCommand(scontrol=str(lists.program)), "n1", 7, soon())


def test_a_program_may_have_any_name(tmp_path: Path, lists: Lists) -> None:
    odd = tmp_path / "x) T 1 (S"
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([odd, "3600"]) as process:
        lists.show([process.pid])
        with lists.job(uid=0) as job:
            (found,) = job.find(soon())
            assert not processes.is_stopped(found)
            job.stop(soon())
            assert processes.is_stopped(found)
        process.kill()


def test_the_kernel_can() -> None:
    assert system_calls.can_page_out() == ""


def test_the_lock_is_for_one_at_a_time_and_leaves_nothing(tmp_path: Path) -> None:
    place = tmp_path / "run"
    with JobLock(str(place), "7@n1", soon()):
        with pytest.raises(CannotMove) as caught:
            JobLock(str(place), "7@n1", time.monotonic() + 0.1)
        assert caught.value.why == "busy"
        with JobLock(str(place), "8@n1", soon()):
            pass
    assert list(place.iterdir()) == []
    assert place.stat().st_mode & 0o777 == 0o700


def test_the_locks_directory_must_be_roots_alone(tmp_path: Path) -> None:
    place = tmp_path / "run"
    place.mkdir()
    place.chmod(0o777)
    with pytest.raises(CannotMove, match="0700"):
        JobLock(str(place), "7@n1", soon())
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    with pytest.raises(CannotMove, match="0700"):
        JobLock(str(link), "7@n1", soon())
