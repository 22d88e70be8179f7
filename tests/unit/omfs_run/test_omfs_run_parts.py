"""The launcher's small parts: its word, its place below the batch shell, arguments, ways to leave, room, signals."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omfs_daemon.omfs_run import arguments
from omfs_daemon.omfs_run import run_tool as call
from omfs_daemon.omfs_run.batch_script import look as form_look
from omfs_daemon.omfs_run.drivers import processes
from omfs_daemon.omfs_run import disk_space as space
from omfs_daemon.protocol import job_comment as word
from omfs_daemon.omfs_run.arguments import Misused
from omfs_daemon.omfs_run.job_exit import EXIT
from omfs_daemon.omfs_run.job_exit import NONE
from omfs_daemon.omfs_run.job_exit import REQUEUE
from omfs_daemon.omfs_run.job_exit import Desk
from omfs_daemon.omfs_run.job_exit import way_out
from omfs_daemon.omfs_run.drivers.driver import CannotStop
from omfs_daemon.omfs_run.batch_script import Form
from omfs_daemon.omfs_run.signals import Inbox
from omfs_daemon.omfs_run import slurm_job
from omfs_daemon.omfs_run.slurm_job import Settings
from omfs_daemon.omfs_run.slurm_job import SlurmJob
from tests.helpers import wait_until


# -- the word ---------------------------------------------------------------------------------------
def test_the_word_is_put_in_place_and_the_rest_is_kept() -> None:
    first = word.make(0, "ready", {"method": "dmtcp"})
    assert first == "omfs:run=0:ready:method=dmtcp"
    assert word.put("", first) == first
    assert word.put("my job", first) == f"my job {first}"
    second = word.make(1, "ready", {"method": "dmtcp", "from": 3, "seconds": 1.254, "lost": 0.0})
    assert second == "omfs:run=1:ready:method=dmtcp:from=3:seconds=1.25:lost=0.00"
    assert word.put(f"a  {first}\tomfs:wait", second) == f"a  {second}\tomfs:wait"
    assert word.put(f"{first} {first}", second).split() == [second]
    assert word.put("xomfs:run=7", first) == f"xomfs:run=7 {first}"


def test_a_value_never_breaks_the_word() -> None:
    assert word.make(0, "failed", {"why": "a b:c=d\n"}) == "omfs:run=0:failed:why=a_b_c_d_"


@pytest.mark.parametrize("comment", ["", "omfs:run=", "omfs:run=1", "omfs:run=x:ready", "omfs:run=-1:ready"])
def test_what_is_no_word_is_none(comment: str) -> None:
    assert word.find(comment) is None


def test_a_word_is_read_back() -> None:
    assert word.find("a omfs:run=2:ready:method=criu:from=1 b") == (2, "ready", {"method": "criu", "from": "1"})


def test_methods_of_a_comment() -> None:
    assert word.methods("x omfs:method=ve_swap,criu omfs:method=dmtcp,,") == ["ve_swap", "criu", "dmtcp"]


# -- where we are -----------------------------------------------------------------------------------
def proc(tmp_path: Path, *above: tuple[int, int, bool]) -> str:
    for pid, parent, catches in above:
        (tmp_path / str(pid)).mkdir()
        mask = 1 << (signal.SIGUSR1 - 1) if catches else 0
        (tmp_path / str(pid) / "status").write_text(f"Name:\tx\nPPid:\t{parent}\nSigCgt:\t{mask:016x}\n")
    return str(tmp_path)


def test_the_batch_shell_itself_can_be_asked(tmp_path: Path) -> None:
    assert form_look({"SLURM_TASK_PID": "50"}, 50, proc(tmp_path)) == Form(True, "")


@pytest.mark.parametrize(("shell", "between", "safe"), [(1, 1, 1), (1, 0, 0), (0, 1, 0)])
def test_below_it_every_shell_must_catch_the_signal(tmp_path: Path, shell: int, between: int, safe: int) -> None:
    place = proc(tmp_path, (50, 40, bool(shell)), (60, 50, bool(between)), (70, 60, False))
    found = form_look({"SLURM_TASK_PID": "50"}, 70, place)
    assert (found.is_shell, found.fault == "") == (False, bool(safe))


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "no batch job"),
        ({"SLURM_TASK_PID": "x"}, "no batch job"),
        ({"SLURM_TASK_PID": "50", "SLURM_STEP_ID": "0"}, "srun"),
        ({"SLURM_TASK_PID": "51"}, "container"),
        ({"SLURM_TASK_PID": "50", "SLURM_HET_SIZE": "2"}, "several components"),
    ],
)
def test_elsewhere_it_cannot(tmp_path: Path, environment: dict[str, str], said: str) -> None:
    assert said in form_look(environment, 50, proc(tmp_path, (50, 1, True))).fault


@pytest.mark.parametrize(
    ("text", "covered"), [("101-109", True), ("7,101", True), ("102-109", False), ("(null)", False), ("", False)]
)
def test_codes_that_hold(text: str, covered: bool) -> None:
    assert Settings(text, True).covers(101) is covered


@pytest.mark.parametrize(
    ("shell", "codes", "requeue", "way", "said"),
    [
        (True, "101-109", False, EXIT, ""),
        (True, "101", True, REQUEUE, ""),  # 102 would be a failure
        (True, "", True, REQUEUE, ""),
        (True, "", False, NONE, "RequeueExitHold"),
        (False, "101-109", True, REQUEUE, ""),  # the script may swallow the code
        (False, "101-109", False, NONE, "--requeue"),
    ],
)
def test_the_way_to_leave(shell: bool, codes: str, requeue: bool, way: str, said: str) -> None:
    chosen, fault = way_out(Form(shell, ""), Settings(codes, requeue))
    assert chosen == way and said in fault and bool(said) == bool(fault)
    assert way_out(Form(shell, "no"), Settings(codes, requeue)) == (way, "no")


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


def test_the_word_is_told_in_the_order_of_what_happened(commands: dict[str, Any]) -> None:
    commands["squeue"] = ["9 mine (x) \n", "9 (null)\n"]
    job = SlurmJob({"SLURM_JOB_ID": "9", "SLURM_RESTART_COUNT": "2"})
    job.tell("stopping", {})
    job.tell("stopped", {"bytes": 4})
    job.flush()
    told = [each[-1] for each in commands["ran"] if each[0] == "scontrol"]
    assert told == ["comment=mine (x) omfs:run=2:stopping", "comment=omfs:run=2:stopped:bytes=4"]


def test_a_word_that_cannot_be_put_changes_nothing_else(commands: dict[str, Any], capfd: Any) -> None:
    commands["squeue"] = call.CallFailed("squeue: no answer within 10 s")
    job = SlurmJob({"SLURM_JOB_ID": "9"})
    job.tell("ready", {})
    job.flush()
    assert "no answer within 10 s" in capfd.readouterr().err


def test_tasks_are_named_by_their_array(commands: dict[str, Any]) -> None:
    job = SlurmJob({"SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "9", "SLURM_ARRAY_TASK_ID": "3"})
    assert job.reference == "9_3"


def test_what_slurm_says_of_holding(commands: dict[str, Any]) -> None:
    commands["scontrol show"] = "JobRequeue = 1\nRequeueExit             = 5\nRequeueExitHold         = 101-109\n"
    commands["scontrol --oneliner"] = "JobId=9 JobName= Requeue=1 Priority=1 Requeue=0 Restarts=0 Comment=x\n"
    assert SlurmJob({"SLURM_JOB_ID": "9"}).settings() == ("101-109", False)


def leaving(way: Form, settings: Settings, inbox: Inbox) -> Desk:
    desk = Desk(SlurmJob({"SLURM_JOB_ID": "9"}), way, inbox)
    desk.job.settings = lambda: settings  # type: ignore[method-assign]
    desk.look()
    return desk


def test_a_stop_below_a_script_ends_with_a_requeue_that_is_tried_again(commands: dict[str, Any]) -> None:
    inbox = Inbox()
    refused = call.CallFailed("Unable to contact slurm controller")
    commands["scontrol requeuehold"] = [refused] * 9 + [""]
    assert leaving(Form(False, ""), Settings("", True), inbox).leave(101) == 101
    assert len(commands["ran"]) == 10


def test_a_requeue_that_slurm_refuses_is_given_up(commands: dict[str, Any], capfd: Any) -> None:
    commands["scontrol requeuehold"] = call.CallFailed("Requested operation is presently disabled")
    assert leaving(Form(False, ""), Settings("", True), Inbox()).leave(101) == 101
    assert len(commands["ran"]) == 5 and "is kept" in capfd.readouterr().err


def test_the_batch_shell_leaves_by_its_code_alone(commands: dict[str, Any]) -> None:
    assert leaving(Form(True, ""), Settings("101-109", True), Inbox()).leave(101) == 101
    assert commands["ran"] == []


def test_commands_have_a_limit_and_are_ended(tmp_path: Path) -> None:
    with pytest.raises(call.CallFailed, match=r"no answer within 0.2 s"):
        call.call(["sleep", "1000"], 0.2)
    with pytest.raises(call.CallFailed, match="cannot run"):
        call.call([str(tmp_path / "none")], 1)
    with pytest.raises(call.CallFailed, match="exit 3: last"):
        call.answer(["sh", "-c", "echo first >&2; echo last >&2; exit 3"], 5)


# -- arguments --------------------------------------------------------------------------------------
def test_options_end_where_the_program_begins() -> None:
    found = arguments.parse(["--method", "criu", "prog", "--method", "x", "--", "-v"], {"OMFS_METHOD": "dmtcp"})
    assert (found.method, found.command) == ("criu", ["prog", "--method", "x", "--", "-v"])
    assert arguments.parse(["--", "-odd"], {"OMFS_METHOD": "dmtcp"})[:2] == (["-odd"], "dmtcp")
    assert arguments.parse(["--signal", "term", "--if-lost", "fresh", "p"], {})[3:] == (signal.SIGTERM, 300.0, True)


@pytest.mark.parametrize(
    "words",
    ["", "--", "--method x p", "--within 0 p", "--within nan p", "--signal KILL p", "--signal 9 p", "--metho criu p"],
)
def test_wrong_usage_is_one_line(words: str) -> None:
    with pytest.raises(Misused) as error:
        arguments.parse(words.split(), {})
    assert "\n" not in str(error.value)


def test_an_unknown_method_in_the_environment_is_refused() -> None:
    with pytest.raises(Misused, match="must be one of dmtcp, criu, application"):
        arguments.parse(["p"], {"OMFS_METHOD": "x"})


def test_the_directory_of_checkpoints() -> None:
    plain, given = arguments.parse(["p"], {}), arguments.parse(["--dir", "/d", "p"], {})
    assert arguments.directory(given, {"OMFS_CKPT_DIR": "/c"}, "9") == "/d"
    assert arguments.directory(plain, {"OMFS_CKPT_DIR": "/c", "SLURM_SUBMIT_DIR": "/s"}, "9") == "/c/9"
    assert arguments.directory(plain, {"SLURM_SUBMIT_DIR": "/s"}, "9") == "/s/omfs-checkpoint.9"


# -- room and processes -----------------------------------------------------------------------------
def test_room_is_what_all_processes_hold_and_some_more(tmp_path: Path) -> None:
    shell = subprocess.Popen(["sh", "-c", "sleep 100 & sleep 100 & wait"])
    try:
        wait_until(lambda: len(processes.tree(shell.pid)) == 3, 10, "its children")
        least = 3 * space.PER_PROCESS + space.MARGIN
        assert least < space.needed(shell.pid) < least + 50e6
        space.require_room(str(tmp_path), shell.pid)
        assert list(tmp_path.iterdir()) == []
    finally:
        assert processes.end(processes.tree(shell.pid))
        shell.wait()


def test_no_room_is_told_with_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "needed", lambda pid: 10**18)
    with pytest.raises(CannotStop, match="MB free, a checkpoint may take") as error:
        space.require_room(str(tmp_path), 1)
    assert (error.value.why, error.value.alive) == ("no_space", True)


def test_a_directory_that_takes_no_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(CannotStop, match="No such file") as error:
        space.require_room(str(tmp_path / "none"), 1)
    assert error.value.why == "not_writable"
