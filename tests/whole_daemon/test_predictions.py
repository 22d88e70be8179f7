"""Predictions in the daemon, on the fake: what is learned, who is told what, and that nothing is decided by it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from math import inf
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from omfs_daemon.accounting.ended_days import asked_ends
from omfs_daemon.cli.when import chance_lines, when_table
from omfs_daemon.cluster.jobs import Hold, JobRequest
from omfs_daemon.config.load import parse_config
from omfs_daemon.daemon.api.callers import Caller, Role
from omfs_daemon.daemon.api.predict_view import available
from omfs_daemon.daemon.api.shared_core import SharedCore
from omfs_daemon.daemon.learning.prediction_service import PredictionService
from omfs_daemon.daemon.learning.victim_predictions import LEAST_SAMPLES, VictimPredictions
from omfs_daemon.daemon.process import Service
from omfs_daemon.errors import ConfigError, ControlError, DeniedError, GatewayError
from omfs_daemon.predict import gbm_training
from omfs_daemon.predict.prediction import HowEnded
from omfs_daemon.slurm.commands.run_command import CommandOutput
from omfs_daemon.slurm.gateway import EndedJob
from omfs_daemon.terminal.output import when
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission
from omfs_daemon.testing.fake_slurm.faults import Fault
from tests.support.fake_site import ORDERS
from tests.support.state_files import Root
from tests.whole_daemon.test_process import ALICE, BOB, ROOT, Stand

LIMIT = 1000.0
CLASS = "[[class]]\nname = "
URGENT = f'{CLASS}"urgent"\nqos = ["urgent"]\nurgent = true\n'


class LearningStand(Stand):
    """Learns after each cycle, in the test's thread. ``sent``: the orders to Slurm, with their arguments."""

    def __init__(self, directory: Path, predict: str = "") -> None:
        self.predict = predict
        self.sent: list[tuple[object, ...]] = []
        self.ended: dict[int, EndedJob] = {}
        super().__init__(directory)

    def serve(self, dry_run: bool = False, cluster: str = "") -> Service:
        site = self.path.read_text().partition("[predict]")[0]
        site = site if URGENT in site else site.replace(f'{CLASS}"regular"', f'{URGENT}{CLASS}"regular"')
        self.path.write_text(f"{site}[predict]\n{self.predict}\n")
        self.config = parse_config(self.path.read_text(), str(self.path))
        for name in ORDERS:
            setattr(self.gateway, name, self._recorded(name, getattr(type(self.gateway), name)))
        return super().serve(dry_run, cluster)

    def _recorded(self, name: str, order: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(*arguments: object) -> Any:
            self.sent.append((self.now, name, *arguments))
            return order(self.gateway, *arguments)

        return recorded

    @property
    def predictions(self) -> PredictionService:
        return available(self.service.answers.predictions)

    def go(self, seconds: float, step: float = 5.0) -> None:
        end = self.now + seconds
        while self.now < end:
            self.service.once()
            if isinstance(self.service.answers.predictions, PredictionService):
                self.predictions.learner.step()
            self.ended |= {ended.job.id: ended for ended in self.gateway.ended_jobs()}
            self.now += step

    def put(self, user: str, run_time: float, cpus: int = 4, **changes: Any) -> int:
        request = JobRequest(cpus, partitions=("main",), max_nodes=1)
        submission = Submission(request, user=user, account="bio", run_time=run_time, time_limit=LIMIT)
        return self.slurm.submit(replace(submission, **{"comment": "omfs:method=requeue", **changes}))


@pytest.fixture
def stand(tmp_path: Path) -> Any:
    found = LearningStand(tmp_path)
    yield found
    found.service.close()


def countable(stand: LearningStand) -> dict[str, int]:
    """Jobs that end in every way."""
    jobs = {"done": stand.put("alice", 100, name="run_1"), "failed": stand.put("bob", 50)}
    jobs["late"] = stand.put("bob", inf)
    jobs["canceled"] = stand.put("alice", 500)
    jobs["never"] = stand.put("alice", 500)
    stand.go(20)
    stand.slurm.cancel(jobs["canceled"])
    stand.slurm.cancel(jobs["never"])
    jobs["suspended"] = stand.put("alice", 200)
    stand.go(40)
    stand.gateway.suspend([str(jobs["suspended"])])
    stand.go(100)
    stand.gateway.resume([str(jobs["suspended"])])
    stand.go(1200)
    return jobs


def test_jobs_are_learned_from_as_they_end_without_the_time_in_which_they_were_suspended(stand: LearningStand) -> None:
    jobs = countable(stand)
    found = {end.job: end for end in stand.predictions.store.all()}
    assert set(found) == {jobs[name] for name in ("done", "failed", "late", "suspended")}
    assert found[jobs["late"]].how is HowEnded.AT_LIMIT
    runs = [found[jobs[name]].run for name in ("done", "failed", "late", "suspended")]
    assert runs == pytest.approx([100, 50, LIMIT, 200], abs=6)


def test_accounting_teaches_the_same_as_the_jobs_that_were_seen(stand: LearningStand) -> None:
    jobs = countable(stand)
    seen = list(stand.predictions.store.all())

    def sacct(words: Any, **_: Any) -> CommandOutput:
        secret = next(word for word in words if word.startswith("--delimiter=")).partition("=")[2]
        lines = []
        for ended in stand.ended.values():
            job = ended.job
            start = job.start
            end = job.submit if start is None else start + job.run_time
            fields = (
                *(job.id, job.user, job.account, job.partition, job.qos, int(job.submit)),
                *("Unknown" if start is None else int(start), int(end), int(job.run_time)),
                *(int(job.time_limit // 60), job.request.cpus, 1, "cpu=4", ended.state, job.name, job.comment),
            )
            lines.append(secret.join(map(str, fields)) + "\n")
        return CommandOutput("".join(lines), "", 0)

    read = asked_ends(0.0, stand.now + 1, None, False, sacct)
    teaching = {one.end.job: one.end for one in read if one.end.how is not None and one.end.how.teaches}
    assert set(teaching) == {end.job for end in seen}
    for end in seen:
        other = teaching[end.job]
        assert (other.how, other.features.name, other.features.user) == (end.how, end.features.name, end.features.user)
        assert replace(other.features, hour=0, limit=0.0) == replace(end.features, hour=0, limit=0.0)
        assert other.run == pytest.approx(end.run, abs=1)
    # Nothing of it is learned twice.
    stand.predictions.learned.learn([one.end for one in read])
    assert len(list(stand.predictions.store.all())) == len(seen) == len(jobs) - 2


def test_days_of_accounting_are_read_in_turn_and_slurmdbd_may_be_away(stand: LearningStand) -> None:
    stand.go(5)  # no accounting runs: there is nothing to learn at the first start
    reader, asked = stand.predictions.accounting, []
    is_away = True

    def ask(begin: float, end: float) -> list[Any]:
        asked.append((begin, end))
        if is_away:
            raise GatewayError("slurmdbd: connection refused")
        return []

    reader._ask_day, reader._rest = ask, lambda _: None
    reader.learn_from(0.0, 3.5 * 86400)
    assert not reader.read_day()
    assert reader.state.error
    assert not reader.read_day(), "it waits before it asks again"
    assert len(asked) == 1
    is_away = False
    stand.now += 120
    while reader.read_day():
        pass
    assert asked[1:] == [(0, 86400), (86400, 172800), (172800, 259200), (259200, 302400)]
    assert reader.state == (0, "")


def test_predictions_decide_nothing(tmp_path: Path) -> None:
    """The orders of a site with predictions are byte for byte those of one without, and hold none."""

    def orders(name: str, predict: str) -> tuple[list[tuple[object, ...]], list[object]]:
        (tmp_path / name).mkdir()
        stand = LearningStand(tmp_path / name, predict)
        plans: list[object] = []
        for number in range(6):
            stand.put("alice", 90 + 7 * number)
        for number in range(30):
            if number % 7 == 3:
                stand.slurm.submit(
                    Submission(JobRequest(4, partitions=("main",), max_nodes=1), "bob", account="physics", run_time=77)
                )
            stand.go(15)
            plans.append(stand.service.answers._latest.report.plan)
            if predict == "":
                stand.service.answers.plan(ROOT)
        runs = [end.run for end in stand.predictions.store.all()] if predict == "" else []
        assert predict or len(runs) > 5
        stand.service.close()
        return stand.sent, plans

    (with_sent, with_plans) = orders("with", "")
    assert with_sent
    for name, predict in (("off", "enabled = false"), ("victims", "enabled = false\nuse_for_victims = true")):
        sent, plans = orders(name, predict)
        assert repr(with_sent) == repr(sent)
        assert repr(with_plans) == repr(plans)
    text = repr(with_sent)
    assert not any(word in text for word in ("predict", "estimate", "p50", "p90", "will start"))


@pytest.mark.parametrize("uses", [False, True])
def test_victims_are_chosen_by_predictions_only_where_a_site_says_so(tmp_path: Path, uses: bool) -> None:
    """Bob's jobs end long before their limits, so alice's run longest although their limits are shorter."""
    stand = LearningStand(tmp_path, f"use_for_victims = {str(uses).lower()}")
    for user, run_time in (("bob", 50.0), ("alice", 600.0)):
        for number in range(4):
            stand.put(user, run_time + number, cpus=1)
    stand.go(700)
    of_bob = [stand.put("bob", 50) for _ in range(2)]
    of_alice = [stand.put("alice", 600, time_limit=LIMIT - 100) for _ in range(2)]
    stand.go(15)
    seen = stand.service.answers._latest.report.snapshot
    assert seen is not None
    assert all(seen.jobs[number].runs for number in (*of_bob, *of_alice))
    assert bool(seen.remaining) is uses
    urgent = stand.put("alice", 20, qos="urgent")
    stand.service.once()
    (planned,) = stand.service.answers._latest.report.plan.preemptions  # type: ignore[union-attr]
    assert planned.preemptor == str(urgent)
    assert {int(victim.ref) for victim in planned.victims} <= set(of_alice if uses else of_bob)
    stand.service.close()


def test_what_was_predicted_of_a_running_job_stays_until_it_or_its_limit_is_another(
    stand: LearningStand, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(10):
        stand.put("bob", 100 + number, cpus=1)
    stand.go(400)
    number = stand.put("bob", 100)
    stand.go(10)
    seen = stand.service.answers._latest.report.snapshot
    assert seen is not None
    victims = VictimPredictions(stand.predictions.runs)
    before = victims.of(seen)[number]
    run_time = seen.jobs[number].run_time
    assert before.likely == pytest.approx(105 - run_time, abs=10)
    assert before.likely <= before.at_most <= 120
    stand.predictions.runs.learn_anew(())
    assert victims.of(seen)[number] == before
    asked: list[int] = []
    of = stand.predictions.runs.of
    monkeypatch.setattr(stand.predictions.runs, "of", lambda jobs: asked.append(len(jobs)) or of(jobs))
    victims.of(seen)
    assert asked == [], "of what is known the predictor, which others may be using, is not asked"
    longer = seen.with_jobs(seen.taken, [replace(seen.jobs[number], time_limit=2 * LIMIT)])
    assert victims.of(longer) == {}, "nothing is known of it any more"
    assert asked == [1]
    few = VictimPredictions(stand.predictions.runs)
    stand.predictions.runs.learn(list(stand.predictions.store.all())[: LEAST_SAMPLES - 1])
    assert few.of(seen)[number].at_most == seen.jobs[number].remaining(), "too few to say when it will have ended"


def test_a_predictor_that_needs_lightgbm_says_so_at_the_start_and_until_it_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand = LearningStand(tmp_path, 'predictor = "gbm"')
    for number in range(8):
        stand.put("alice", 100 + number)
    stand.go(400)
    waiting = [stand.put("alice", 100) for _ in range(6)][-1]
    stand.go(10)
    view = stand.service.answers.when(ALICE, [str(waiting)], False)
    assert view["jobs"][0]["basis"]["predictor"] == "gbm"
    assert view["jobs"][0]["basis"]["key"] == "ladder, as gbm has no model yet: user+name+cpus"
    stand.service.close()
    monkeypatch.setattr(gbm_training, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=re.escape("pip install 'omfs-daemon[predict]'")):
        stand.serve()


def test_when_tells_a_range_and_why_it_can_say_nothing(stand: LearningStand) -> None:
    for number in range(8):
        stand.put("alice", 100 + number)
    stand.go(400)
    running = [stand.put("bob", 300) for _ in range(4)]
    first = stand.put("alice", 100)
    held = stand.put("alice", 100, hold=Hold.USER)
    later = stand.put("alice", 100, after=(running[0],))
    stand.go(15)
    stand.gateway.expected = {first: stand.now + LIMIT}
    refs = [str(number) for number in (first, running[0], held, later, 4711)]
    view = stand.service.answers.when(ROOT, refs, False)
    (job,) = view["jobs"]
    assert job["job"] == str(first)
    assert job["slurm_start"] == stand.now + LIMIT
    assert job["p10"] is not None and job["p50"] is not None and job["p90"] is not None
    assert view["taken"] <= job["p10"] <= job["p50"] <= job["p90"]
    assert {blocker["job"] for blocker in job["waits_for"]} <= set(map(str, running))
    assert job["basis"]["samples"] == 8
    reasons = {none["job"]: none["why"] for none in view["none"]}
    assert reasons[str(running[0])].startswith("runs since")
    assert "held by its owner" in reasons[str(held)]
    assert "depends on another job" in reasons[str(later)]
    assert "does not list" in reasons["4711"]
    at_limit = stand.service.answers.when(ROOT, [str(first)], True)["jobs"][0]
    assert at_limit["p50"] is not None
    assert at_limit["p50"] >= job["p50"]
    assert "nine chances in ten" in stand.service.answers.why(ROOT, str(first))["start"]
    assert str(first) in [one["job"] for one in stand.service.answers.plan(ROOT)["start_estimate"]]


def test_starts_are_noted_after_each_hour_of_waiting_and_count_as_soon_as_they_have_come(stand: LearningStand) -> None:
    for _ in range(4):
        stand.put("bob", 8000, time_limit=9000)
    stand.go(50)
    first, given_up = (stand.put("alice", 3000, time_limit=4000) for _ in range(2))
    never = stand.put("alice", 100, cpus=400)
    stand.go(4000, 50.0)
    stand.slurm.cancel(given_up)
    noted = {one.job: one for one in stand.predictions.store.noted_starts()}
    assert {job: one.moments for job, one in noted.items()} == {first: 2, given_up: 2, never: 2}
    assert noted[first].began is None
    assert noted[first].p90 < inf == noted[never].p50
    stand.go(4500, 50.0)
    noted = {one.job: one for one in stand.predictions.store.noted_starts()}
    seen = stand.service.answers._latest.report.snapshot
    assert seen is not None and seen.jobs[first].runs
    assert noted[first].began == seen.jobs[first].start
    assert first not in {end.job for end in stand.predictions.store.all()}, "it runs"
    assert set(noted) == {first, never}, "nobody knows when the other would have started"
    assert stand.predictions.starts_held() == (None, 1)
    stand.service.close()
    stand.service = stand.serve()
    assert stand.predictions.starts_held() == (None, 1), "the record outlasts a restart"
    stand.predictions.forget("alice", Root())
    assert stand.predictions.starts_held() == (None, 0)


def test_the_larger_than_the_machine_never_starts(stand: LearningStand) -> None:
    number = stand.put("alice", 100, cpus=400)
    stand.go(10)
    (none,) = stand.service.answers.when(ALICE, [str(number)], False)["none"]
    assert none["why"].startswith(("can never start", "no estimate"))


def test_a_running_job_that_is_to_be_preempted_is_not_among_those_that_will_start(stand: LearningStand) -> None:
    running = {str(stand.put("alice", 500)) for _ in range(4)}
    stand.go(10)
    stand.service.answers.pause(ROOT, "")
    waits = stand.put("bob", 300, account="physics")
    stand.go(10)
    assert stand.service.answers._journal.state.preemptions == {}
    (planned,) = stand.service.answers._foresee().preemptions  # type: ignore[union-attr]
    assert {victim.ref for victim in planned.victims} < running
    assert [one["job"] for one in stand.service.answers.plan(ROOT)["start_estimate"]] == [str(waits)]


def test_users_see_their_own_jobs_only(stand: LearningStand) -> None:
    for _ in range(4):
        stand.put("bob", 300)
    mine = stand.put("alice", 100)
    stand.go(10)
    answers = stand.service.answers
    with pytest.raises(ControlError, match="not yours"):
        answers.when(BOB, [str(mine)], False)
    with pytest.raises(ControlError, match="not yours"):
        answers.predict(BOB, str(mine), "", "")
    with pytest.raises(DeniedError, match="only for themselves"):
        answers.predict(BOB, "", "alice", "x")
    (job,) = answers.when(ALICE, [str(mine)], False)["jobs"]
    assert all(not blocker["job"] and not blocker["user"] for blocker in job["waits_for"])
    assert [one["job"] for one in answers.plan(ALICE)["start_estimate"]] == [str(mine)]
    assert answers.plan(Caller(9, 9, "eve", Role.USER))["start_estimate"] == []
    assert answers.predict(ALICE, "", "", "x")["predictions"][0]["user"] == "alice"


def test_scores_and_metrics_of_what_was_foreseen(stand: LearningStand) -> None:
    for number in range(12):
        stand.put("alice", 100 + number)
    stand.go(700)
    for number in range(8):
        stand.put("alice", 100 + number)
    stand.go(500)
    (score,) = stand.service.answers.score(ROOT, 0.0, "user")["scores"]
    assert score["group"] == ["alice"]
    assert score["jobs"] >= 8
    assert 0 < score["accuracy"] <= 1
    assert score["start_median_error_seconds"] is not None
    assert stand.service.answers.score(BOB, 0.0, "")["scores"] == []
    with pytest.raises(ConfigError, match="partition, user, predictor"):
        stand.service.answers.score(ROOT, 0.0, "weather")
    text = stand.service._metrics.text()
    assert "omfs_predict_jobs 20.0" in text
    assert 'omfs_predict_p90_held_ratio{what="start"}' in text


def test_jobs_that_wait_briefly_are_scored_although_others_are_requeued_for_each(stand: LearningStand) -> None:
    """Nothing has a time limit, so nothing is foreseen before some have ended; then one estimate a minute is made."""
    for _ in range(5):
        stand.put("alice", inf, time_limit=inf)
    stand.go(10, 0.3)
    for _ in range(20):
        stand.put("alice", 3.0, time_limit=inf, qos="urgent")
        stand.go(10, 0.3)
    (score,) = stand.service.answers.score(ROOT, 0.0, "user")["scores"]
    assert score["jobs"] >= 2


def test_a_forgotten_user_is_in_the_audit_log(stand: LearningStand) -> None:
    for user in ("alice", "bob", "alice"):
        stand.put(user, 50)
    stand.go(200)
    assert "2 jobs of alice" in stand.service.answers.forget_user(ROOT, "alice")["done"]
    assert [end.features.user for end in stand.predictions.store.all()] == ["bob"]
    line = json.loads((stand.config.daemon.state_dir / "audit.jsonl").read_text().splitlines()[-1])
    assert line["user"] == "root"
    assert "alice" in line["changed"][0]
    stand.put("alice", 50)
    stand.go(100)
    users = [end.features.user for end in stand.predictions.store.all()]
    assert users == ["bob", "alice"], "of the jobs that Slurm still remembers only the new one is learned"


def test_without_predictions_requests_say_so(tmp_path: Path) -> None:
    stand = LearningStand(tmp_path, "enabled = false")
    number = stand.put("alice", 50)
    stand.go(5)
    with pytest.raises(ControlError, match=r"predict\.enabled is false"):
        stand.service.answers.when(ROOT, [str(number)], False)
    assert "start_estimate" not in stand.service.answers.plan(ROOT)
    assert not list(stand.config.daemon.state_dir.glob("ended_jobs*"))
    stand.service.close()


def test_slurm_that_does_not_answer_is_asked_again(stand: LearningStand) -> None:
    stand.put("alice", 20)
    stand.go(15)
    stand.gateway.faults.inject(Fault.DEAD, ["ended_jobs"], times=1)
    for _ in range(12):
        stand.service.once()
        stand.predictions.learner.step()
        stand.now += 5
    assert stand.predictions.store.count() == 1


BEAMLINE = """
[[class]]
name = "beamline"
qos = ["rt"]
realtime = true
slowdown_bound = 1.5
act_at = 1.2
"""


def shown_lines(lines: Any) -> str:
    console = Console(file=StringIO(), width=300)
    console.print(*lines)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def with_beamline(directory: Path) -> LearningStand:
    """With a real-time class."""
    stand = LearningStand(directory)
    stand.service.close()
    stand.path.write_text(stand.path.read_text().replace("[[class]]", f"{BEAMLINE}\n[[class]]", 1))
    stand.service = stand.serve()
    return stand


def test_the_chance_of_a_real_time_job_that_would_be_submitted_now(tmp_path: Path) -> None:
    stand = with_beamline(tmp_path)
    answers, slept = stand.service.answers, list[float]()
    answers._core = core = SharedCore(lambda: 0.0, slept.append)
    for number in range(8):
        stand.put("bob", 300 + number)
    stand.go(700)
    running = [stand.put("bob", 300, comment="") for _ in range(4)]
    stand.go(10)
    view = answers.bound_chance(ALICE, "beamline", 4, 6000.0)
    taken = stand.service.answers.when(ROOT, ["4711"], False)["taken"]
    assert (view["slowdown_bound"], view["victims"]) == (1.5, None)
    assert (view["acts_at"], view["start_by"]) == pytest.approx((taken + 1200.0, taken + 3000.0), abs=20)
    assert view["chance"] == 1.0, "the running ones end within five minutes or so"
    assert answers.bound_chance(ALICE, "beamline", 4, 60.0)["chance"] == 0.0
    for job in running:
        stand.slurm.set_comment(job, "omfs:method=requeue")
    stand.go(10)
    view = answers.bound_chance(ALICE, "beamline", 8, 60.0)
    assert view["victims"] == 2
    text = re.sub(r"\s+", " ", shown_lines(chance_lines(view)))
    assert "a job of class beamline with 8 CPUs and a time limit of 1 min, submitted now:" in text
    assert "within its bound of 1.5, with a chance of 0% if nobody is preempted for it" in text
    assert "on: 2 jobs would be, as things are now" in text
    with pytest.raises(ConfigError, match="no such real-time class; there are: beamline"):
        answers.bound_chance(ALICE, "regular", 4, 60.0)
    larger_than_the_machine = answers.bound_chance(ALICE, "beamline", 400, 6000.0)
    assert (larger_than_the_machine["chance"], larger_than_the_machine["victims"]) == (0.0, None)
    assert len(slept) == 5, "each in its turn"
    with core.request(ALICE.uid), pytest.raises(ControlError, match="another such request of yours"):
        answers.bound_chance(ALICE, "beamline", 4, 60.0)
    for name in stand.slurm.fake_nodes:
        stand.slurm.drain(name)
    stand.go(10)
    with pytest.raises(ConfigError, match="--realtime beamline: no node serves such a job"):
        answers.bound_chance(ALICE, "beamline", 4, 60.0)
    stand.service.close()


def test_when_says_by_when_its_bound_makes_a_real_time_job_start(tmp_path: Path) -> None:
    stand = with_beamline(tmp_path)
    for _ in range(4):
        stand.put("bob", 5000, comment="", time_limit=6000.0)
    stand.go(10)
    mine, wide = stand.put("alice", 20, qos="rt"), stand.put("alice", 20, qos="rt", cpus=400)
    endless, ordinary = stand.put("alice", 20, qos="rt", time_limit=inf), stand.put("alice", 20)
    submitted = stand.now
    stand.go(10)

    def asked() -> dict[str, Any]:
        view = stand.service.answers.when(ALICE, [str(job) for job in (mine, wide, endless, ordinary)], False)
        return {
            "text": shown_lines(when_table(view)),
            **{one["job"]: one["bound"] for one in (*view["jobs"], *view["none"])},
        }

    found = asked()
    promised = {"slowdown_bound": 1.5, "acts_at": submitted + 0.2 * LIMIT, "start_by": submitted + 0.5 * LIMIT}
    assert found[str(mine)] == found[str(wide)] == promised
    assert found[str(endless)] == {"slowdown_bound": 1.5, "acts_at": None, "start_by": None}
    assert found[str(ordinary)] is None
    acts, start = when(promised["acts_at"]), when(promised["start_by"])
    assert f"at the latest at {start} by its bound of 1.5: jobs are preempted for it from {acts} on" in found["text"]
    assert "real-time, but without a time limit: nothing is promised" in found["text"]
    stand.go(300)
    assert f"at the latest at {start} by its bound of 1.5: jobs are preempted for it since {acts}" in asked()["text"]
    stand.go(300)
    assert f"by its bound of 1.5 it should have started at {start}: it is late" in asked()["text"]
    stand.service.close()
