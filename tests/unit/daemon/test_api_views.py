"""What the daemon answers of costs and of methods: who sees what, and which rows belong to which preemption."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from omfs_daemon.cluster.jobs import Allocation, Hold, Job, JobRequest, JobState
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.daemon.api.callers import Caller, Role
from omfs_daemon.daemon.api.history_view import Costs, costs_from_views, costs_view, victim_views
from omfs_daemon.daemon.api.methods_view import MethodNowView, methods_now
from omfs_daemon.daemon.node_client.node_answers import MethodFacts, failed
from omfs_daemon.daemon.node_client.probes import Probed, ProbedNode
from omfs_daemon.daemon.store.history_database import PastPreemption
from omfs_daemon.errors import ControlError
from omfs_daemon.preemption.records import PaidCost
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission
from tests.whole_daemon.test_process import ALICE, BOB, ROOT, Stand, reclaimed

EVE = Caller(9, 9, "eve", Role.USER)


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    found = Stand(tmp_path)
    yield found
    found.service.close()


# -- costs -------------------------------------------------------------------------------------------


def row(time: float, direction: str, seconds: float, job: str = "7", method: str = "dmtcp") -> PaidCost:
    return PaidCost(time, job, "ann", "bio", method, direction, seconds, 0.0, 100 if direction == "out" else 0, 3.0)


def preemption(time: float, *jobs: str) -> PastPreemption:
    victims: list[dict[str, object]] = [{"job": job, "account": "bio", "method": "dmtcp"} for job in jobs]
    return PastPreemption(time, "9", "bob", "physics", False, "entitled", 1.0, "started", victims)


def test_each_preemption_has_its_own_rows() -> None:
    costs = Costs([row(10, "out", 1), row(20, "in", 2), row(30, "out", 4), row(40, "out", 8), row(50, "in", 16)])
    first, second, third = (victim_views(preemption(begun, "7"), costs)[0] for begun in (9, 29, 39))
    assert (first["preempt_seconds"], first["resume_seconds"], first["lost_seconds"]) == (1, 2, 6)
    assert second["preempt_seconds"] == 4 and "resume_seconds" not in second, (
        "it was preempted again before it ran again"
    )
    assert (third["preempt_seconds"], third["resume_seconds"], third["bytes"]) == (8, 16, 100)


def test_a_job_without_rows_has_no_costs() -> None:
    costs = Costs([row(10, "out", 1), row(20, "in", 2)])
    assert victim_views(preemption(30, "7", "8"), costs) == [
        {"job": "7", "account": "bio", "method": "dmtcp", "preempted": True},
        {"job": "8", "account": "bio", "method": "dmtcp", "preempted": True},
    ]


def test_rows_go_through_the_socket_and_back() -> None:
    rows = [row(10, "out", 1), row(20, "in", 2), row(30, "out", 4)._replace(nodes=3)]
    assert costs_from_views(costs_view(rows)["costs"]) == rows


def test_costs_are_reported_to_the_owner_and_to_operators_only(stand: Stand) -> None:
    reclaimed(stand)
    (cost,) = stand.service.answers.costs(ROOT, 10, 0)["costs"]
    assert (cost["method"], cost["direction"], cost["user"]) == ("requeue", "out", "alice")
    assert cost["lost_seconds"] > 0
    assert stand.service.answers.costs(ALICE, 10, 0)["costs"] == [cost]
    assert stand.service.answers.costs(BOB, 10, 0)["costs"] == stand.service.answers.costs(EVE, 10, 0)["costs"] == []

    (victim,) = stand.service.answers.history(ALICE, 10, 0)["preemptions"][0]["victims"]
    assert victim["preempt_seconds"] == cost["seconds"]
    assert victim["lost_seconds"] == cost["lost_seconds"]
    (victim,) = stand.service.answers.history(BOB, 10, 0)["preemptions"][0]["victims"]
    assert "preempt_seconds" not in victim, "their job was the preemptor"


# -- where methods can be used -----------------------------------------------------------------------


def job(number: int, comment: str, state: JobState = JobState.RUNNING) -> Job:
    return Job(
        number,
        str(number),
        "ann",
        1000,
        "bio",
        state,
        JobRequest(1),
        0.0,
        comment=comment,
        allocations=(Allocation("n1", 1, 0),),
    )


def snapshot(*jobs: Job) -> Snapshot:
    nodes = {name: Node(name, 4, 8 << 30) for name in ("n1", "n2", "n3", "n4")}
    nodes["n4"] = replace(nodes["n4"], up=False)
    return Snapshot(1000.0, {one.id: one for one in jobs}, nodes, {})


def now(name: str, probed: Probed, seen: Snapshot | None = None) -> MethodNowView:
    view = methods_now(Settings(), seen or snapshot(), probed)
    (method,) = (method for method in view["methods"] if method["name"] == name)
    return method["now"]


def found(usable: bool, why: str = "") -> ProbedNode:
    return ProbedNode(1.0, {"pageout": MethodFacts(usable, why)}, {})


def test_nodes_are_counted_with_the_reasons_of_the_others() -> None:
    facts = {"n1": found(True), "n2": found(False, "no_swap"), "n4": found(True)}
    probed = Probed(frozenset({"pageout"}), facts, {"n3": failed("timeout", "no answer in 20 s")})
    assert now("pageout", probed) == {
        "usable": 1,
        "nodes": 3,
        "why_not": [
            {"why": "it has no swap", "count": 1, "nodes": ["n2"]},
            {"why": "it did not answer in time", "count": 1, "nodes": ["n3"]},
        ],
    }


@pytest.mark.parametrize(
    ("probed", "why"),
    [
        (Probed(), "no worker for the nodes is configured (nodes.worker)"),
        (Probed(frozenset()), "no class of jobs has it (class.methods)"),
        (Probed(frozenset({"pageout"})), "it has not been probed yet"),
    ],
)
def test_where_nothing_is_probed_it_reports_why(probed: Probed, why: str) -> None:
    assert now("pageout", probed)["why_not"] == [{"why": why, "count": 3, "nodes": ["n1", "n2", "n3"]}]


def test_jobs_that_are_ready_count_for_methods_of_omfs_run() -> None:
    seen = snapshot(
        job(1, "omfs:run=0:ready:method=dmtcp"),
        job(2, "omfs:run=0:ready:method=criu"),
        job(3, "omfs:run=0:stopping:method=dmtcp"),
        job(4, "omfs:run=0:ready:method=dmtcp", JobState.COMPLETING),
        job(5, "omfs:run=3:ready:method=dmtcp"),
    )
    assert now("dmtcp", Probed(), seen) == {"ready": 1, "why_not": []}


def test_what_slurm_does_works_on_all_nodes_that_are_up() -> None:
    assert now("suspend", Probed()) == {"usable": 3, "nodes": 3, "why_not": []}


def test_before_slurm_was_observed_nothing_is_reported_of_nodes() -> None:
    assert all("now" not in method for method in methods_now(Settings(), None, Probed())["methods"])


def test_the_service_answers_with_what_is_in_force(stand: Stand) -> None:
    stand.run(1)
    rows = {row["name"]: row for row in stand.service.answers.methods(EVE)["methods"]}
    assert rows["requeue"]["preempt_timeout_seconds"] == 60.0
    assert rows["dmtcp"]["preempt_timeout_seconds"] == 600.0
    assert rows["suspend"]["now"]["usable"] == 4
    assert rows["pageout"]["now"]["why_not"][0]["why"].startswith("no worker for the nodes is configured")


# -- why: array tasks --------------------------------------------------------------------------------


def test_a_task_of_an_array_is_explained_by_any_of_its_names(stand: Stand) -> None:
    request = JobRequest(4, partitions=("main",), max_nodes=1)
    what = Submission(request, user="alice", account="bio", comment="omfs:method=suspend", array=tuple(range(0, 13, 2)))
    array = stand.slurm.submit(what)
    stand.run(2)
    running = {job.ref: job.id for job in stand.gateway.jobs() if job.state is JobState.RUNNING}
    assert len(running) == 4
    for ref, raw in running.items():
        for asked in (ref, str(raw)):
            why = stand.service.answers.why(ALICE, asked)
            assert (why["job"], why["state"], why["now"]) == (ref, "RUNNING", "runs")
    for asked in (str(array), f"{array}_12"):
        why = stand.service.answers.why(ALICE, asked)
        assert why["state"] == "PENDING"
        assert "beyond its account's entitlement" in why["now"]
    with pytest.raises(ControlError, match="does not list it"):
        stand.service.answers.why(ALICE, f"{array}_11")

    stand.submit("bob", "physics")
    stand.run(4)
    (victim,) = [job for job in stand.gateway.jobs() if job.state is JobState.SUSPENDED]
    assert victim.id != array
    for asked in (victim.ref, str(victim.id)):
        why = stand.service.answers.why(ALICE, asked)
        assert why["now"] == "suspended; it runs on when its CPUs are free"
        assert "preempted" in [event["event"] for event in why["events"]]


def test_what_happened_to_an_array_is_known_of_its_tasks(stand: Stand) -> None:
    for _ in range(4):
        stand.submit("alice", "bio", "")
    stand.run(1)
    tasks = tuple(task for step in (1, 2) for task in range(step, 3000, 3))
    request = JobRequest(4, partitions=("main",), max_nodes=1)
    array = stand.slurm.submit(Submission(request, user="bob", account="physics", array=tasks))
    stand.run(3)
    held = {job.ref for job in stand.gateway.jobs() if job.hold is Hold.ADMIN}
    assert {f"{array}_2999", f"{array}_7"} <= held
    for asked in (f"{array}_2999", f"{array}_7"):
        (event,) = stand.service.answers.why(BOB, asked)["events"]
        assert event["event"] == "held"
    history = (stand.config.daemon.state_dir / "history.sqlite").read_bytes()
    assert b",...]" in history + (stand.config.daemon.state_dir / "history.sqlite-wal").read_bytes()
    stand.slurm.cancel(array)
    stand.run(400)
    assert [event["event"] for event in stand.service.answers.why(BOB, str(array))["events"]] == ["held"]


def test_ended_tasks_and_their_array_are_explained_by_any_of_their_names(stand: Stand) -> None:
    request = JobRequest(4, partitions=("main",), max_nodes=1)
    what = Submission(
        request, user="alice", account="bio", comment="omfs:method=requeue", array=(1, 2, 3, 4, 5), run_time=60
    )
    array = stand.slurm.submit(what)
    stand.run(2)
    urgent = stand.submit("bob", "physics", "", run_time=5)
    stand.run(5)
    preempted = [job for job in stand.gateway.jobs() if job.array_id == array and job.restarts]
    assert preempted and urgent
    waiting = stand.service.answers.why(ALICE, str(array))
    assert {event["job"] for event in waiting["events"]} >= {job.ref for job in preempted}
    stand.run(500)
    assert not stand.gateway.jobs() and not stand.slurm.records
    for job in preempted:
        for asked in {job.ref, str(job.id)}:
            why = stand.service.answers.why(ALICE, asked)
            assert (why["job"], why["state"]) == (job.ref if job.id != array else asked, "ENDED")
            assert {"preempted", "runs_again"} <= {event["event"] for event in why["events"]}
    whole = stand.service.answers.why(ALICE, str(array))
    assert {event["job"] for event in whole["events"]} >= {job.ref for job in preempted}
    with pytest.raises(ControlError, match="is not yours"):
        stand.service.answers.why(BOB, str(preempted[0].id))
    with pytest.raises(ControlError, match="never acted on it"):
        stand.service.answers.why(ALICE, "4711")
