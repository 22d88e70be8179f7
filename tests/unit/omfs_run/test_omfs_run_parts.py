"""Parts of omfs-run: batch script, arguments, how the job is held, disk space."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omfs_daemon.omfs_run import arguments, disk_space, run_tool, slurm_job
from omfs_daemon.omfs_run.arguments import Misused
from omfs_daemon.omfs_run.batch_script import BatchScript, check_batch_script
from omfs_daemon.omfs_run.driver_table import load_driver
from omfs_daemon.omfs_run.drivers import processes
from omfs_daemon.omfs_run.drivers.application import Application
from omfs_daemon.omfs_run.drivers.driver import PER_PROCESS, CannotStart, CannotStop
from omfs_daemon.omfs_run.flow import flow
from omfs_daemon.omfs_run.job_exit import EXIT, NONE, REQUEUE, JobExit, how_to_hold
from omfs_daemon.omfs_run.signals import Inbox
from omfs_daemon.omfs_run.slurm_job import RequeueSettings, SlurmJob
from tests.support.waiting import wait_until


# -- the job comment ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(("comment", "is_told"), [("omfs:method=dmtcp,", True), ("omfs:method=requeue", False)])
def test_a_list_of_methods_that_cannot_be_read_is_told(
    comment: str, is_told: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OMFS_METHOD", raising=False)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_UID", str(os.geteuid()))
    monkeypatch.setattr(SlurmJob, "comment", lambda _: comment)
    monkeypatch.setattr("omfs_daemon.omfs_run.flow.plain", lambda command, inbox: 0)
    assert flow(["true"], Inbox()) == 0
    assert ("needs omfs:method=NAME[,NAME...]" in capfd.readouterr().err) is is_told


# -- the batch script -----------------------------------------------------------------------------------
def proc(tmp_path: Path, *above: tuple[int, int, bool]) -> str:
    for pid, parent, catches in above:
        (tmp_path / str(pid)).mkdir()
        mask = 1 << (signal.SIGUSR1 - 1) if catches else 0
        (tmp_path / str(pid) / "status").write_text(f"Name:\tx\nPPid:\t{parent}\nSigCgt:\t{mask:016x}\n")
    return str(tmp_path)


def test_the_batch_shell_itself_can_be_signaled(tmp_path: Path) -> None:
    assert check_batch_script({"SLURM_TASK_PID": "50"}, 50, proc(tmp_path)) == BatchScript(True, "")


@pytest.mark.parametrize(("shell", "between", "safe"), [(1, 1, 1), (1, 0, 0), (0, 1, 0)])
def test_below_it_every_shell_must_catch_the_signal(tmp_path: Path, shell: int, between: int, safe: int) -> None:
    place = proc(tmp_path, (50, 40, bool(shell)), (60, 50, bool(between)), (70, 60, False))
    found = check_batch_script({"SLURM_TASK_PID": "50"}, 70, place)
    assert (found.is_shell, found.fault == "") == (False, bool(safe))


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({}, "not a batch job"),
        ({"SLURM_TASK_PID": "x"}, "not a batch job"),
        ({"SLURM_TASK_PID": "50", "SLURM_STEP_ID": "0"}, "srun"),
        ({"SLURM_TASK_PID": "51"}, "container"),
        ({"SLURM_TASK_PID": "50", "SLURM_HET_SIZE": "2"}, "heterogeneous"),
    ],
)
def test_elsewhere_it_cannot(tmp_path: Path, environment: dict[str, str], text: str) -> None:
    assert text in check_batch_script(environment, 50, proc(tmp_path, (50, 1, True))).fault


@pytest.mark.parametrize(
    ("text", "covered"), [("101-109", True), ("7,101", True), ("102-109", False), ("(null)", False), ("", False)]
)
def test_codes_that_hold(text: str, covered: bool) -> None:
    assert RequeueSettings(text, True).covers(101) is covered


@pytest.mark.parametrize(
    ("shell", "codes", "requeue", "hold_by", "text"),
    [
        (True, "101-109", False, EXIT, ""),
        (True, "101", True, REQUEUE, ""),  # 102 would be a failure
        (True, "", True, REQUEUE, ""),
        (True, "", False, NONE, "RequeueExitHold"),
        (False, "101-109", True, REQUEUE, ""),  # the script may swallow the code
        (False, "101-109", False, NONE, "--requeue"),
    ],
)
def test_how_the_job_is_held(shell: bool, codes: str, requeue: bool, hold_by: str, text: str) -> None:
    chosen, fault = how_to_hold(BatchScript(shell, ""), RequeueSettings(codes, requeue))
    assert chosen == hold_by and text in fault and bool(text) == bool(fault)
    assert how_to_hold(BatchScript(shell, "no"), RequeueSettings(codes, requeue)) == (hold_by, "no")


# -- Slurm ------------------------------------------------------------------------------------------
@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Slurm's commands as this dictionary answers them, by their first two words; ``ran`` is what was run."""
    answers: dict[str, Any] = {"ran": []}

    def answer(words: list[str], timeout: float) -> str:
        answers["ran"].append(words)
        reply = answers.get(" ".join(words[:2]), answers.get(words[0], ""))
        reply = reply.pop(0) if isinstance(reply, list) else reply
        if isinstance(reply, Exception):
            raise reply
        return str(reply)

    monkeypatch.setattr(slurm_job, "answer", answer)
    monkeypatch.setattr(slurm_job, "_PAUSE", 0.0)
    monkeypatch.setattr(slurm_job, "_END_LIMIT", 0.0)
    yield answers


def test_reports_are_written_in_order(commands: dict[str, Any]) -> None:
    commands["squeue"] = ["9 mine (x) \n", "9 (null)\n"]
    job = SlurmJob({"SLURM_JOB_ID": "9", "SLURM_RESTART_COUNT": "2"})
    job.report("stopping", {})
    job.report("stopped", {"bytes": 4})
    job.flush()
    written = [each[-1] for each in commands["ran"] if each[0] == "scontrol"]
    assert written == ["comment=mine (x) omfs:run=2:stopping", "comment=omfs:run=2:stopped:bytes=4"]


def test_a_report_that_cannot_be_written_changes_nothing_else(commands: dict[str, Any], capfd: Any) -> None:
    commands["squeue"] = run_tool.CallFailed("squeue: no response within 10 s")
    job = SlurmJob({"SLURM_JOB_ID": "9"})
    job.report("ready", {})
    job.flush()
    assert "no response within 10 s" in capfd.readouterr().err


def test_tasks_are_named_by_their_array(commands: dict[str, Any]) -> None:
    job = SlurmJob({"SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "9", "SLURM_ARRAY_TASK_ID": "3"})
    assert job.reference == "9_3"


def test_how_slurm_can_hold_the_job(commands: dict[str, Any]) -> None:
    commands["scontrol show"] = "JobRequeue = 1\nRequeueExit             = 5\nRequeueExitHold         = 101-109\n"
    commands["scontrol --oneliner"] = "JobId=9 JobName= Requeue=1 Priority=1 Requeue=0 Restarts=0 Comment=x\n"
    assert SlurmJob({"SLURM_JOB_ID": "9"}).settings() == ("101-109", False)


def job_exit_of(script: BatchScript, settings: RequeueSettings, inbox: Inbox) -> JobExit:
    job_exit = JobExit(SlurmJob({"SLURM_JOB_ID": "9"}), script, inbox)
    job_exit.job.settings = lambda: settings  # type: ignore[method-assign]
    job_exit.ask_slurm()
    return job_exit


def test_below_a_script_the_job_is_requeued_and_the_requeue_retried(commands: dict[str, Any]) -> None:
    inbox = Inbox()
    refused = run_tool.CallFailed("Unable to contact slurm controller")
    commands["scontrol requeuehold"] = [refused] * 9 + [""]
    assert job_exit_of(BatchScript(False, ""), RequeueSettings("", True), inbox).leave(101) == 101
    assert len(commands["ran"]) == 10


def test_a_requeue_that_slurm_refuses_is_given_up(commands: dict[str, Any], capfd: Any) -> None:
    commands["scontrol requeuehold"] = run_tool.CallFailed("Requested operation is presently disabled")
    assert job_exit_of(BatchScript(False, ""), RequeueSettings("", True), Inbox()).leave(101) == 101
    assert len(commands["ran"]) == 5 and "is kept" in capfd.readouterr().err


def test_the_batch_shell_ends_with_its_exit_code_alone(commands: dict[str, Any]) -> None:
    assert job_exit_of(BatchScript(True, ""), RequeueSettings("101-109", True), Inbox()).leave(101) == 101
    assert commands["ran"] == []


def test_commands_have_a_timeout_and_are_killed(tmp_path: Path) -> None:
    with pytest.raises(run_tool.CallFailed, match=r"no response within 0.2 s"):
        run_tool.run_tool(["sleep", "1000"], 0.2)
    with pytest.raises(run_tool.CallFailed, match="cannot execute"):
        run_tool.run_tool([str(tmp_path / "none")], 1)
    with pytest.raises(run_tool.CallFailed, match="exit code 3: last"):
        run_tool.answer(["sh", "-c", "echo first >&2; echo last >&2; exit 3"], 5)


# -- arguments --------------------------------------------------------------------------------------
def test_options_end_where_the_program_begins() -> None:
    found = arguments.parse_arguments(
        ["--method", "criu", "prog", "--method", "x", "--", "-v"], {"OMFS_METHOD": "dmtcp"}
    )
    assert (found.method, found.command) == ("criu", ["prog", "--method", "x", "--", "-v"])
    assert arguments.parse_arguments(["--", "-odd"], {"OMFS_METHOD": "dmtcp"})[:2] == (["-odd"], "dmtcp")
    given = ["--signal", "term", "--if-lost", "fresh", "--without-child-statuses", "--rehearse", "p"]
    assert arguments.parse_arguments(given, {})[3:] == (signal.SIGTERM, 300.0, True, True, True)
    assert arguments.parse_arguments(["p"], {})[5:] == (False, False, False)


def test_only_dmtcp_rehearses() -> None:
    for driver in (Application(signal.SIGUSR1, ["p"], {}, 0), load_driver("criu")):
        with pytest.raises(CannotStart, match="--rehearse"):
            driver.rehearse_checkpoints()
    load_driver("dmtcp").rehearse_checkpoints()


@pytest.mark.parametrize(
    "words",
    ["", "--", "--method x p", "--within 0 p", "--within nan p", "--signal KILL p", "--signal 9 p", "--metho criu p"],
)
def test_wrong_usage_is_one_line(words: str) -> None:
    with pytest.raises(Misused) as error:
        arguments.parse_arguments(words.split(), {})
    assert "\n" not in str(error.value)


def test_an_unknown_method_in_the_environment_is_refused() -> None:
    with pytest.raises(Misused, match="must be one of dmtcp, criu, application"):
        arguments.parse_arguments(["p"], {"OMFS_METHOD": "x"})


def test_the_directory_of_checkpoints() -> None:
    plain, given = arguments.parse_arguments(["p"], {}), arguments.parse_arguments(["--dir", "/d", "p"], {})
    assert arguments.checkpoint_directory(given, {"OMFS_CKPT_DIR": "/c"}, "9") == "/d"
    assert arguments.checkpoint_directory(plain, {"OMFS_CKPT_DIR": "/c", "SLURM_SUBMIT_DIR": "/s"}, "9") == "/c/9"
    assert arguments.checkpoint_directory(plain, {"SLURM_SUBMIT_DIR": "/s"}, "9") == "/s/omfs-checkpoint.9"


# -- disk space and processes -----------------------------------------------------------------------------
def test_the_needed_space_covers_all_processes(tmp_path: Path) -> None:
    shell = subprocess.Popen(["sh", "-c", "sleep 100 & sleep 100 & wait"])
    try:
        wait_until(lambda: len(processes.process_tree(shell.pid)) == 3, "its children")
        least = 3 * PER_PROCESS + disk_space.MARGIN
        assert least < disk_space.needed_bytes(shell.pid) < least + 50e6
        disk_space.require_space(str(tmp_path), shell.pid)
        assert list(tmp_path.iterdir()) == []
    finally:
        assert processes.kill_processes(processes.process_tree(shell.pid))
        shell.wait()


def test_lacking_space_is_reported_with_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_space, "needed_bytes", lambda pid: 10**18)
    with pytest.raises(CannotStop, match="MB free, a checkpoint may take") as error:
        disk_space.require_space(str(tmp_path), 1)
    assert (error.value.why, error.value.alive) == ("no_space", True)


def test_a_directory_that_is_not_writable_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CannotStop, match="No such file") as error:
        disk_space.require_space(str(tmp_path / "none"), 1)
    assert error.value.why == "not_writable"
