"""Nobody is preempted for a job that Slurm would not start: it is released first, and Slurm says why it waits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from omfs_daemon.cluster.jobs import Hold, JobState
from omfs_daemon.cluster.marks import SUBMIT_MARK
from omfs_daemon.daemon import cycle
from omfs_daemon.daemon.questions import Question, Questions
from omfs_daemon.policy.start_checks.answer import Answer, AnswerKind
from omfs_daemon.policy.validator import Verdict, validate
from omfs_daemon.preemption.preemption import Step
from omfs_daemon.slurm.question import GRANTED
from omfs_daemon.testing.fake_slurm.fake_gateway import Fault
from omfs_daemon.testing.fake_slurm.fake_jobs import Record
from omfs_daemon.testing.fake_slurm.scheduler import RESERVED
from tests.support.fake_site import Killed, Site

NEVER = 10_000.0
LIMITS = ("QOSGrpCpuLimit", "AssocMaxJobsLimit", "Licenses", "Reservation", "ReqNodeNotAvail, Reserved for maintenance")
TELLS_NOTHING = ("None", "Priority", RESERVED, "ReqNodeNotAvail, UnavailableNodes:n1")


@pytest.fixture(autouse=True)
def uncertain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether Slurm would start a job is never known beforehand."""

    def uncertain_verdict(*arguments: Any, **options: Any) -> Verdict:
        verdict = validate(*arguments, **options)
        unknown: Mapping[str, Answer] = {p.preemptor: Answer(AnswerKind.UNKNOWN) for p in verdict.preemptions}
        return verdict._replace(answers=unknown)

    monkeypatch.setattr(cycle, "validate", uncertain_verdict)


def full_site(directory: Path, hosts: int = 4, victims: int | None = None, **settings: Any) -> tuple[Site, list[int]]:
    site = Site(directory, hosts=hosts, **settings)
    jobs = [site.submit("bio", run_time=NEVER, cpus=4 * hosts // (victims or hosts)) for _ in range(victims or hosts)]
    site.run(2)
    assert site.runs(*jobs)
    return site, jobs


def held_job(site: Site, account: str = "physics", **more: Any) -> int:
    """As the gate holds non-preemptible jobs."""
    return site.submit(account, method="", hold=Hold.USER, admin_comment=SUBMIT_MARK, **{"run_time": 5.0, **more})


def outcomes(site: Site) -> list[str]:
    return [past.outcome for past in site.history_database.preemptions(100, 0.0)]


def restarts(site: Site, jobs: list[int]) -> int:
    return sum(len(site.slurm.history[job].starts) - 1 for job in jobs)


def lacks(site: Site, job: int, reason: str) -> None:
    def word(record: Record) -> str:
        return reason if record.id == job else ""

    site.slurm.let_lack(word)


def why(site: Site, job: int) -> str:
    return " ".join(event.text for event in site.history_database.of_job(str(job)))


@pytest.mark.parametrize("is_held", [True, False])
def test_a_job_that_lacks_nothing_but_resources_starts(is_held: bool, tmp_path: Path) -> None:
    site, jobs = full_site(tmp_path)
    physics = held_job(site) if is_held else site.submit("physics", run_time=5)
    site.step()
    (preemption,) = site.journal.state.preemptions.values()
    assert preemption.step is Step.PROVING
    assert site.runs(*jobs)
    site.run_until(lambda: site.runs(physics), limit=5)
    site.run_until(lambda: not site.journal.state.preemptions, limit=5)
    assert outcomes(site) == ["started"]
    assert restarts(site, jobs) == 0, "the victim waits"
    events = [event.event for event in site.history_database.of_job(str(physics))]
    assert events.index("preemption_started") < events.index("started")


@pytest.mark.parametrize("is_held", [True, False])
@pytest.mark.parametrize("reason", LIMITS)
def test_nobody_is_preempted_for_a_job_that_lacks_something_else(reason: str, is_held: bool, tmp_path: Path) -> None:
    site, jobs = full_site(tmp_path)
    physics = held_job(site) if is_held else site.submit("physics", run_time=5)
    site.step(0.0)
    lacks(site, physics, reason)
    site.run(60)
    assert site.runs(*jobs)
    assert restarts(site, jobs) == 0
    assert set(outcomes(site)) == {"not_startable"}
    assert reason in why(site, physics)
    assert not site.job(physics).request.required_nodes
    is_seen = not reason.startswith("ReqNodeNotAvail")  # else it could be had on other nodes
    assert len(outcomes(site)) == 1 or not is_seen, "Slurm's reason is seen as long as it stays"
    lacks(site, 0, "")
    site.run_until(lambda: site.runs(physics), limit=10)


def test_a_job_that_tells_nothing_is_asked_ever_less_often(tmp_path: Path) -> None:
    site, jobs = full_site(tmp_path)
    physics = held_job(site)
    lacks(site, physics, RESERVED)
    site.run(200)
    assert 4 <= len(outcomes(site)) <= 7
    assert restarts(site, jobs) == 0
    lacks(site, 0, "")
    site.run_until(lambda: site.runs(physics), limit=10)
    site.run(1)
    assert outcomes(site)[0] == "started"
    assert not site.journal.state.backoff.shapes


@pytest.mark.parametrize("reason", TELLS_NOTHING)
def test_what_tells_nothing_proves_nothing(reason: str, tmp_path: Path) -> None:
    site, jobs = full_site(tmp_path, hosts=1)
    physics = held_job(site, cpus=2)
    lacks(site, physics, reason)
    site.run(20)
    assert site.runs(*jobs)
    assert set(outcomes(site)) == {"not_proven"}
    lacks(site, 0, "")
    site.run_until(lambda: site.runs(physics), limit=60)


def test_a_job_that_starts_by_itself_meanwhile_needs_no_victims(tmp_path: Path) -> None:
    site, jobs = full_site(tmp_path)
    physics = held_job(site)
    site.step(0.0)
    for job in jobs:
        site.slurm.cancel(job)
    site.run_until(lambda: not site.journal.state.preemptions, limit=5)
    assert outcomes(site) == ["started"]
    assert site.runs(physics)


def test_proofs_on_other_nodes_run_at_once_and_those_on_the_same_one_by_one(tmp_path: Path) -> None:
    site, _ = full_site(tmp_path, victims=16)
    physics = [held_job(site, cpus=1, run_time=NEVER) for _ in range(8)]
    site.step()
    proofs = site.journal.state.preemptions.values()
    assert {preemption.step for preemption in proofs} == {Step.PROVING}
    nodes = [allocation.node for preemption in proofs for allocation in preemption.preemptor.allocations]
    assert len(nodes) == len(set(nodes)) > 1
    site.run_until(lambda: site.runs(*physics), limit=30)
    assert set(outcomes(site)) <= {"started"}


def test_a_release_that_slurm_refuses_preempts_nobody(tmp_path: Path) -> None:
    site, jobs = full_site(tmp_path)
    held_job(site)
    site.gateway.faults.inject(Fault.REFUSE, ["end_hold"])
    site.run(20)
    assert site.runs(*jobs)
    assert set(outcomes(site)) == {"refused_by_slurm"}


def test_a_decision_from_before_a_crash_preempts_nobody(tmp_path: Path) -> None:
    site, jobs = full_site(tmp_path)
    physics = held_job(site)
    site.step(0.0)
    site.die()
    site.now += 2.0  # Slurm says Resources meanwhile
    site.start_daemon()
    assert site.job(physics).reason == "Resources"
    site.step(0.0)
    assert outcomes(site) == ["decision_too_old"]
    assert site.runs(*jobs)
    site.run_until(lambda: site.runs(physics), limit=10)


@pytest.mark.parametrize("reason", ["", "QOSGrpCpuLimit"])
def test_killed_at_any_act_of_a_proof_nothing_is_lost(reason: str, tmp_path: Path) -> None:
    def play(name: str, kill_at: int | None) -> Site:
        directory = tmp_path / name
        directory.mkdir()
        site, jobs = full_site(directory)
        site.fuse.acts, site.fuse.kinds = 0, []
        site.fuse.kill_at = kill_at
        physics = held_job(site)
        lacks(site, physics, reason)
        end = site.now + 30
        while site.now < end:
            try:
                site.step()
            except Killed:
                site.die()
                site.now += 1
                site.start_daemon()
        if reason:
            assert site.runs(*jobs), name
            assert restarts(site, jobs) == 0, name
            assert site.job(physics).state is JobState.PENDING, name
            assert not site.job(physics).request.required_nodes, name
        else:
            assert site.outcomes()[physics] == "COMPLETED", name
            assert restarts(site, jobs) <= 2, name
            assert not site.held(), name
        return site

    whole = play("whole", None)
    assert whole.fuse.acts > 8
    for kill_at in whole.fuse.crash_points():
        play(str(kill_at), kill_at)


def test_what_slurm_refuses_one_user_keeps_no_other_waiting(tmp_path: Path) -> None:
    site, _ = full_site(tmp_path, hosts=2, retry_after=20)
    site.slurm.let_lack(lambda record: "QOSMaxJobsPerUserLimit" if record.what.user == "ann" else "")
    anns = [held_job(site, cpus=1, user="ann") for _ in range(3)]
    site.run(3)
    bobs = held_job(site, cpus=1, user="bob")
    site.run_until(lambda: site.runs(bobs), limit=10)
    site.run(30)
    assert not any(site.slurm.history[job].starts for job in anns)
    assert outcomes(site).count("not_startable") <= 6, "once for all of them, ever less often"


@pytest.mark.parametrize("lacking", ["", RESERVED])
def test_an_urgent_job_waits_for_no_proof(lacking: str, tmp_path: Path) -> None:
    site, jobs = full_site(tmp_path, hosts=1, retry_after=20)
    physics = held_job(site, cpus=2)
    lacks(site, physics, RESERVED)
    site.step(0.2)
    assert [one.step for one in site.journal.state.preemptions.values()] == [Step.PROVING]
    urgent = site.submit("alarm", method="", urgent=True, run_time=5)
    site.step(0.1)
    assert [one.preemptor.ref for one in site.journal.state.preemptions.values()] == [str(urgent)]
    assert outcomes(site) == ["gave_way"]
    site.run_until(lambda: site.runs(urgent), limit=3)
    assert restarts(site, jobs) == 0
    lacks(site, physics, lacking)
    site.run(30)
    assert bool(site.slurm.history[physics].starts) is not bool(lacking)


def test_an_urgent_job_for_which_there_are_no_victims_ends_no_proof(tmp_path: Path) -> None:
    site, _ = full_site(tmp_path, hosts=1)
    physics = held_job(site, cpus=2)
    site.step(0.2)
    urgent = site.submit("alarm", method="", urgent=True, hosts=2)
    site.run_until(lambda: site.runs(physics), limit=10)
    assert "gave_way" not in outcomes(site) and not site.runs(urgent)


# -- after one preemption in vain --------------------------------------------------------------------------------
def blocked_site(directory: Path, urgent: bool) -> tuple[Site, list[int], int]:
    """A job that Slurm does not start although it says that only resources are lacking."""
    site, jobs = full_site(directory, start_timeout=5, retry_after=10)
    account = "alarm" if urgent else "physics"
    blocked = site.submit(account, method="" if urgent else "requeue", urgent=urgent, run_time=5)
    lacks(site, blocked, "Resources")
    return site, jobs, blocked


@pytest.mark.parametrize("urgent", [True, False])
def test_after_one_preemption_in_vain_there_is_no_other(urgent: bool, tmp_path: Path) -> None:
    site, jobs, blocked = blocked_site(tmp_path, urgent)
    site.run(400, step=1.0)
    assert restarts(site, jobs) == 1
    assert site.runs(*jobs)
    assert outcomes(site).count("not_started_in_time") == 1
    assert set(outcomes(site)) <= {"not_started_in_time", "not_startable"}
    state = site.journal.state
    site.die()
    site.start_daemon()
    assert site.journal.state.backoff == state.backoff
    site.slurm.let_lack(lambda _: "")
    site.run(100)
    assert restarts(site, jobs) == 1, "Slurm's reason is the same as before"
    site.slurm.cancel(jobs[0])
    site.run_until(lambda: site.runs(blocked), limit=20)
    site.run(1)
    assert not site.journal.state.backoff.until
    assert not site.journal.state.backoff.shapes


def test_another_reason_than_before_allows_another_preemption(tmp_path: Path) -> None:
    site, jobs, blocked = blocked_site(tmp_path, urgent=True)
    lacks(site, blocked, "Licenses")
    site.run_until(lambda: "not_started_in_time" in outcomes(site), limit=60)
    site.run(60)
    assert site.runs(*jobs)
    site.slurm.let_lack(lambda _: "")
    site.run_until(lambda: site.runs(blocked), limit=10)


def test_others_of_the_same_shape_wait_longer_each_time(tmp_path: Path) -> None:
    site, jobs, _ = blocked_site(tmp_path, urgent=True)
    site.slurm.let_lack(lambda record: "Resources" if record.what.account == "alarm" else "")
    for _ in range(3):
        site.submit("alarm", method="", urgent=True, run_time=5)
    site.run(9)
    assert outcomes(site).count("not_started_in_time") >= 1
    first = outcomes(site).count("not_started_in_time")
    (back_off,) = site.journal.state.backoff.shapes.values()
    assert back_off.until - back_off.since == pytest.approx(10 * 2 ** (back_off.times - 1))
    other = site.submit("alarm", method="", urgent=True, cpus=2, run_time=5)
    site.run_until(lambda: outcomes(site).count("not_started_in_time") > first, limit=8)
    assert str(other) in site.journal.state.backoff.until, "a job of another shape is tried"
    assert restarts(site, jobs) <= 5


# -- the question ------------------------------------------------------------------------------------------------
BUSY = "Unable to allocate resources: Requested nodes are busy"
REFUSED = "Unable to allocate resources: Job violates accounting/QOS policy (job submit limit, user's size)"


class FakeQuestions:
    """Slurm's answer, if there is one; ``asked``: about which jobs, by preemption."""

    def __init__(self, answer: str | None) -> None:
        self.answer = answer
        self.asked: dict[int, Question] = {}
        self._present: dict[int, Question] = {}

    def keep(self, wanted: Mapping[int, Question]) -> None:
        self._present = dict(wanted)
        self.asked |= wanted

    def answers(self) -> dict[int, str]:
        return {} if self.answer is None else dict.fromkeys(self._present, self.answer)


def asking_site(directory: Path, answer: str | None, **settings: Any) -> tuple[Site, list[int], int, FakeQuestions]:
    site, jobs = full_site(directory, may_ask=True, **settings)
    questions = FakeQuestions(answer)
    site.cycle._questions = cast(Questions, questions)
    return site, jobs, site.submit("alarm", method="", urgent=True, run_time=5), questions


@pytest.mark.parametrize("answer", [BUSY, "", "Immediate execution impossible, insufficient priority", None])
def test_an_urgent_job_preempts_unless_slurm_says_that_it_would_not_start(answer: str | None, tmp_path: Path) -> None:
    site, jobs, urgent, questions = asking_site(tmp_path, answer)
    site.step(0.1)
    assert site.runs(*jobs)
    assert [question.job for question in questions.asked.values()] == [urgent]
    assert not site.job(urgent).request.required_nodes, "it is left as it is"
    site.run_until(lambda: site.runs(urgent), limit=5)
    site.run_until(lambda: not site.journal.state.preemptions, limit=5)
    assert len(questions.asked) == 1
    assert outcomes(site) == ["started"]


def test_nobody_is_preempted_for_an_urgent_job_that_slurm_would_not_start(tmp_path: Path) -> None:
    site, jobs, urgent, questions = asking_site(tmp_path, REFUSED)
    site.run(60)
    assert site.runs(*jobs)
    assert restarts(site, jobs) == 0
    assert set(outcomes(site)) == {"not_startable"}
    assert "violates accounting/QOS policy" in why(site, urgent)
    assert len(questions.asked) <= 5, "ever less often"
    questions.answer = BUSY
    site.run_until(lambda: site.runs(urgent), limit=100)


def test_a_limit_may_be_what_a_victim_uses(tmp_path: Path) -> None:
    site, jobs = full_site(tmp_path, may_ask=True)
    site.cycle._questions = cast(Questions, FakeQuestions(REFUSED))
    urgent = site.submit("alarm", method="", urgent=True, run_time=5, user="bio")
    site.run_until(lambda: site.runs(urgent), limit=10)
    assert restarts(site, jobs) <= 1


def test_a_copy_that_would_have_started_preempts_nobody(tmp_path: Path) -> None:
    site, jobs, urgent, _ = asking_site(tmp_path, GRANTED)
    site.step(0.1)
    site.slurm.cancel(jobs.pop())
    site.run_until(lambda: site.runs(urgent), limit=5)
    assert restarts(site, jobs) == 0


@pytest.mark.usefixtures("nodes_polled_with_jobs")
@pytest.mark.parametrize("setting", [{"PreemptType": "preempt/qos"}, {"SchedulerParameters": "sched_interval=1,defer"}])
def test_without_a_question_an_urgent_job_preempts_once(setting: dict[str, str], tmp_path: Path) -> None:
    site, _, urgent, questions = asking_site(tmp_path, REFUSED)
    site.gateway._settings |= setting
    site.run_until(lambda: site.runs(urgent), limit=60)
    assert not questions.asked


def test_a_question_from_before_a_crash_preempts_nobody(tmp_path: Path) -> None:
    site, jobs, urgent, _ = asking_site(tmp_path, None)
    site.step(0.1)
    site.die()
    site.start_daemon()
    site.step(0.1)
    assert outcomes(site) == ["decision_too_old"]
    assert site.runs(*jobs)
    site.run_until(lambda: site.runs(urgent), limit=10)
