"""What Slurm and the plug-in refuse to whom, on the fake."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from omfs_daemon.cluster.holds import WAIT_WORD
from omfs_daemon.cluster.jobs import Hold, JobRequest, JobState
from omfs_daemon.testing.fake_slurm.controller import FakeSlurm
from omfs_daemon.testing.fake_slurm.fake_jobs import Record, Submission
from omfs_daemon.testing.fake_slurm.people import Actor, People

ROOT, OPERATOR, OWNER = Actor
OURS = {"hold": Hold.ADMIN, "admin_comment": "omfs:held:3 why | theirs"}


class Job:
    """On one node of four CPUs: the job runs, or waits if it is held or ``behind`` another one."""

    def __init__(self, plugin: bool = True, behind: bool = False, **job: object) -> None:
        self.now = 0.0
        self.slurm = FakeSlurm.uniform(lambda: self.now, nodes=1)
        self.slurm.plugin = plugin
        if behind:
            self.slurm.submit(Submission(JobRequest(4), run_time=100.0))
        self.id = self.slurm.submit(Submission(JobRequest(4), **job))  # type: ignore[arg-type]
        self.people = People(self.slurm)

    @property
    def record(self) -> Record:
        return self.slurm.records[self.id]

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.slurm.catch_up()


Act = Callable[[Job, Actor], bool]
GUARDED: dict[str, Act] = {
    "hold": lambda job, actor: job.people.hold(job.id, actor),
    "release": lambda job, actor: job.people.release(job.id, actor),
    "nice": lambda job, actor: job.people.set_nice(job.id, actor, 70),
    "partition": lambda job, actor: job.people.set_partition(job.id, actor, "main"),
    "account": lambda job, actor: job.people.set_account(job.id, actor, "other"),
    "qos": lambda job, actor: job.people.set_qos(job.id, actor, "other"),
    "nodes": lambda job, actor: job.people.set_nodes(job.id, actor, "n1"),
    "licenses": lambda job, actor: job.people.set_licenses(job.id, actor),
    "method": lambda job, actor: job.people.set_comment(job.id, actor, "omfs:method=suspend"),
}
FREE: dict[str, Act] = {
    "time_limit": lambda job, actor: job.people.set_time_limit(job.id, actor, 50.0),
    "words": lambda job, actor: job.people.set_comment(job.id, actor, "words"),
    "begin": lambda job, actor: job.people.set_begin(job.id, actor, 50.0),
    "dependency": lambda job, actor: job.people.set_dependency(job.id, actor, 1),
}


@pytest.mark.parametrize("act", GUARDED)
def test_the_plug_in_keeps_owners_from_what_we_hold(act: str) -> None:
    assert not GUARDED[act](Job(**OURS), OWNER)
    assert GUARDED[act](Job(behind=True), OWNER)
    assert GUARDED[act](Job(**OURS), ROOT)


@pytest.mark.parametrize("act", FREE)
def test_what_changes_neither_hold_nor_rank_is_everybodys(act: str) -> None:
    assert all(FREE[act](Job(behind=True, **OURS), actor) for actor in Actor)


def test_operators_may_not_hold_or_release_what_we_hold() -> None:
    for act in ("hold", "release"):
        assert not GUARDED[act](Job(**OURS), OPERATOR)
        assert GUARDED[act](Job(plugin=False, **OURS), OPERATOR)
    job = Job(admin_comment="omfs:rel:3")
    assert GUARDED["hold"](job, OPERATOR)
    assert job.record.admin_comment == "omfs:rel:3", "Operators write no AdminComment"


def test_only_root_writes_the_admin_comment_and_no_mark() -> None:
    job = Job(**OURS)
    assert not any(job.people.set_admin_comment(job.id, actor, "new") for actor in (OPERATOR, OWNER))
    assert not job.people.set_admin_comment(job.id, ROOT, "omfs:rel:4")
    assert job.people.set_admin_comment(job.id, ROOT, "new")
    assert job.record.admin_comment == "omfs:held:3 why | new"
    job = Job(plugin=False, **OURS)
    assert job.people.set_admin_comment(job.id, ROOT, "new")
    assert job.record.admin_comment == "new"


def test_owners_neither_suspend_nor_raise() -> None:
    job = Job(nice=5, time_limit=100.0)
    people = job.people
    assert not any(
        [
            people.suspend(job.id, OWNER),
            people.top(job.id, OWNER),
            people.set_nice(job.id, OWNER, 4),
            people.set_nice(job.id, OWNER, -1),
            people.set_priority(job.id, OWNER, 10**6),
            people.set_time_limit(job.id, OWNER, 200.0),
        ]
    )
    assert people.suspend(job.id, OPERATOR)
    assert people.suspend(job.id, ROOT), "taken, but one suspension remains"
    assert not people.resume(job.id, OWNER)
    assert people.resume(job.id, OPERATOR)
    assert job.record.state is JobState.RUNNING
    assert people.set_time_limit(job.id, OPERATOR, 200.0)
    job.wait(199.0)
    assert job.record.state is JobState.RUNNING
    job.wait(2.0)
    assert job.record.history.outcome == "TIMEOUT"


def test_what_is_held_takes_no_priority() -> None:
    job = Job(**OURS)
    assert not job.people.set_priority(job.id, ROOT, 7)
    job = Job(behind=True, nice=5)
    assert job.people.set_priority(job.id, ROOT, 7)
    assert (job.record.priority, job.record.nice) == (7, 0)


def test_owners_choose_another_method_but_never_none() -> None:
    job = Job(comment="omfs:method=requeue")
    assert job.people.set_comment(job.id, OWNER, "omfs:method=suspend")
    assert not job.people.set_comment(job.id, OWNER, "words")
    assert job.record.comment == "omfs:method=suspend"


def test_a_running_job_keeps_its_place() -> None:
    job = Job()
    for act in ("partition", "account", "nodes"):
        assert not GUARDED[act](job, ROOT)
    for act in ("begin", "dependency"):
        assert not FREE[act](job, ROOT)


def test_top_takes_priority_from_the_users_other_jobs() -> None:
    job = Job(behind=True, priority=100)
    other = job.slurm.submit(Submission(JobRequest(4), priority=100, nice=-10))
    assert job.people.top(job.id, ROOT)
    assert job.record.priority > job.slurm.records[other].priority
    assert job.record.nice + job.slurm.records[other].nice == -10


def test_a_release_by_the_owner_leads_to_the_gate() -> None:
    job = Job(hold=Hold.USER)
    assert job.people.release(job.id, OWNER)
    assert (job.record.hold, job.record.comment) == (Hold.USER, WAIT_WORD)
    job.wait(10.0)
    assert job.record.state is JobState.PENDING
    assert job.people.hold(job.id, OWNER)
    assert job.record.comment == "", "held by its owner again"
    job = Job(hold=Hold.USER, comment="omfs:method=requeue")
    assert job.people.release(job.id, OWNER)
    assert job.record.hold is Hold.NONE


def test_so_does_a_change_after_which_we_must_decide_anew() -> None:
    job = Job(behind=True)
    assert job.people.set_begin(job.id, OWNER, 5.0)
    assert (job.record.hold, job.record.comment) == (Hold.USER, WAIT_WORD)


def test_a_dependency_ends_with_the_other_job() -> None:
    job = Job(behind=True)
    assert job.people.set_dependency(job.id, ROOT, 1)
    job.wait(50.0)
    assert job.record.depends
    job.wait(60.0)
    assert job.record.state is JobState.RUNNING


def test_requeuehold_is_for_jobs_that_run() -> None:
    assert not Job(behind=True).people.requeue_hold(2)
    job = Job()
    assert job.people.requeue_hold(job.id)
    job.wait(1.0)
    assert (job.record.state, job.record.hold) == (JobState.PENDING, Hold.USER)
