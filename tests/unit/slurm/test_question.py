"""How root asks Slurm whether it would start a job: what is said, by whom, and what is left behind."""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from omfs_daemon.cluster.jobs import Job, JobRequest, JobState
from omfs_daemon.cluster.nodes import Partition
from omfs_daemon.errors import GatewayError, GatewayTimeout
from omfs_daemon.slurm import question
from omfs_daemon.slurm.commands.command_gateway import CommandGateway
from omfs_daemon.slurm.commands.run_command import CommandOutput
from omfs_daemon.slurm.question import GRANTED, answers_questions, copy_options, put_question

PARTITIONS = [Partition("small", frozenset(["n1"])), Partition("main", frozenset(["n1", "n2"]))]
OWNER = pwd.getpwnam("nobody").pw_uid
JOB = Job(
    id=7,
    ref="7",
    user="nobody",
    uid=OWNER,
    account="bio",
    state=JobState.PENDING,
    request=JobRequest(4, nodes=2, max_nodes=2, partitions=("small", "main"), memory_per_cpu=100 << 20, features="a|b"),
    submit=0.0,
    qos="high",
    licenses=(("matlab", 1),),
    time_limit=90.0,
)
UNASKED = ("salloc", "--immediate", "--no-shell", "--chdir=/")
BUSY = CommandOutput("", "salloc: error: Unable to allocate resources: Requested nodes are busy\n", 1)


class Slurm:
    """What root reads of slurmctld, and runs. ``answer``: of salloc, or the error that running it raises."""

    def __init__(self, job: Job | None, answer: CommandOutput | GatewayError) -> None:
        self.found = job
        self.answer = answer
        self.ran: list[tuple[str, ...]] = []
        self.permits: Path | None = None
        self.nonce = self.permit = ""
        self.copies = ""  # as squeue shows those that have not ended

    def rows(self, job_ids: Sequence[int]) -> list[Any]:
        return [SimpleNamespace(job_id="7_1"), SimpleNamespace(job_id="7")] if self.found and job_ids == [7] else []

    def jobs_of(self, rows: Sequence[Any], _excluded: object) -> list[Job]:
        assert [row.job_id for row in rows] == ["7"]
        return [cast(Job, self.found)]

    def partitions(self) -> list[Partition]:
        return PARTITIONS

    def run(self, arguments: Sequence[str], variables: dict[str, str], **_options: object) -> CommandOutput:
        self.ran.append(tuple(arguments))
        if "salloc" not in arguments:
            shown = self.copies if "--format=%i" in arguments else "(null)\n"
            return CommandOutput(shown if arguments[0] == "squeue" else "", "", 0)
        assert self.permits is not None
        self.nonce = variables["SALLOC_WCKEY"].removeprefix("omfs:")
        self.permit = (self.permits / self.nonce).read_text()
        if isinstance(self.answer, GatewayError):
            raise self.answer
        return self.answer

    def ask(self) -> str:
        assert self.permits is not None
        return put_question(cast(CommandGateway, self), 7, ["n1", "n2"], None, self.permits, os.getuid())


@pytest.fixture
def permits(tmp_path: Path) -> Path:
    directory = tmp_path / "questions"
    directory.mkdir(mode=0o700)
    return directory


@pytest.fixture
def slurm(permits: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    made = Slurm(JOB, BUSY)
    made.permits = permits
    monkeypatch.setattr(question, "run_command", made.run)
    return made


def test_a_copy_is_asked_for_as_the_jobs_owner(slurm: Slurm, permits: Path) -> None:
    assert slurm.ask() == "Unable to allocate resources: Requested nodes are busy"
    (command,) = [ran for ran in slurm.ran if "salloc" in ran]
    assert command[:2] == ("setpriv", f"--reuid={OWNER}")
    assert {"--immediate", "--no-shell", "--nodelist=n1,n2", "--partition=main", "--qos=high"} < set(command)
    assert slurm.nonce
    assert slurm.nonce not in " ".join(command), "everybody can read a command's arguments"
    first, *permitted = slurm.permit.splitlines()
    assert first.split()[0] == str(OWNER)
    assert command[command.index("salloc") :] == (*UNASKED, *permitted), "all that it says"
    assert not list(permits.iterdir())
    assert not [ran for ran in slurm.ran if ran[0] == "scancel"]


@pytest.mark.parametrize("answer", [CommandOutput("", "salloc: Granted job allocation 9\n", 0), GatewayTimeout("late")])
def test_a_copy_that_started_or_may_have_is_canceled(
    answer: CommandOutput | GatewayError, slurm: Slurm, permits: Path
) -> None:
    slurm.answer = answer
    if isinstance(answer, GatewayError):
        with pytest.raises(GatewayTimeout):
            slurm.ask()
    else:
        assert slurm.ask() == GRANTED
    name = next(each for ran in slurm.ran for each in ran if each.startswith("--job-name="))
    assert slurm.ran[-1] == ("scancel", f"--user={OWNER}", name.replace("--job-name", "--name"))
    assert not list(permits.iterdir())


@pytest.mark.parametrize("answer", [BUSY, CommandOutput("", "", -9)])
def test_k35_whatever_salloc_says_no_copy_is_left(answer: CommandOutput, slurm: Slurm) -> None:
    """Its owner can kill it, and put the question in its place."""
    slurm.answer, slurm.copies = answer, "9\n"
    assert slurm.ask() == GRANTED
    assert slurm.ran[-1][0] == "scancel"


def test_k35_a_request_that_would_end_its_line_is_not_asked_for(slurm: Slurm) -> None:
    slurm.found = replace(JOB, request=replace(JOB.request, features="a\n--partition=other"))
    with pytest.raises(GatewayError):
        slurm.ask()
    assert not slurm.nonce


@pytest.mark.parametrize(
    "job", [None, replace(JOB, uid=0), replace(JOB, state=JobState.RUNNING), replace(JOB, set_aside="cannot be read")]
)
def test_nothing_is_asked_of_other_jobs(job: Job | None, slurm: Slurm) -> None:
    slurm.found = job
    with pytest.raises(GatewayError):
        slurm.ask()
    assert not [ran for ran in slurm.ran if "salloc" in ran]


def test_a_directory_that_is_not_slurmusers_alone_is_refused(slurm: Slurm, permits: Path) -> None:
    permits.chmod(0o755)
    with pytest.raises(GatewayError, match="SlurmUser"):
        slurm.ask()
    permits.rmdir()
    permits.symlink_to(permits.parent)
    with pytest.raises(OSError):
        slurm.ask()
    assert not slurm.nonce


def test_the_options_say_what_the_job_requests() -> None:
    assert copy_options(JOB, ["n1", "n2"], PARTITIONS) == [
        "--partition=main", "--account=bio", "--qos=high", "--ntasks=4", "--nodes=2-2", "--mem-per-cpu=100M",
        "--constraint=a|b", "--licenses=matlab:1", "--time=2",
    ]  # fmt: skip
    plain = replace(JOB, account="", qos="", request=JobRequest(1, partitions=("main",), exclusive=True), licenses=())
    found = copy_options(replace(plain, time_limit=float("inf")), ["n1"], PARTITIONS)
    assert found == ["--partition=main", "--ntasks=1", "--nodes=1", "--exclusive", "--time=UNLIMITED"]


@pytest.mark.parametrize(
    "job",
    [
        replace(JOB, request=replace(JOB.request, gres=(("gpu", 1),))),
        replace(JOB, array_id=7, task_ids=(1,)),
        replace(JOB, eligible=float("inf")),
        replace(JOB, request=replace(JOB.request, partitions=("other",))),
    ],
)
def test_a_copy_that_would_say_something_else_is_not_asked_for(job: Job) -> None:
    with pytest.raises(GatewayError):
        copy_options(job, ["n1", "n2"], PARTITIONS)


@pytest.mark.parametrize(
    ("settings", "answers"),
    [
        ({"PreemptType": "preempt/none"}, True),
        ({"PreemptType": "preempt/none", "SchedulerParameters": "defer_batch,sched_interval=1"}, True),
        ({"PreemptType": "preempt/none", "SchedulerParameters": "sched_interval=1,defer"}, False),
        ({"PreemptType": "preempt/partition_prio"}, False),
        ({}, False),
    ],
)
def test_where_slurm_defers_or_preempts_itself_it_is_not_asked(settings: dict[str, str], answers: bool) -> None:
    assert answers_questions(settings) is answers
