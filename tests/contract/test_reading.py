"""What a gateway shows: jobs, nodes, partitions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from omfs_daemon.cluster.jobs import Hold, JobRequest, JobState
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission
from tests.support.clusters import MB, World
from tests.support.comments import HELD


def test_a_job_starts_on_idle_nodes_at_once(world: World) -> None:
    job_id = world.submit(Submission(JobRequest(4)))
    world.soon(lambda: world.runs(job_id), 2)
    job = world.job(job_id)
    assert sum(allocation.cpus for allocation in job.allocations) == 4
    assert job.start is not None and job.start >= job.submit - 1


def test_what_was_asked_for_is_shown(world: World) -> None:
    request = JobRequest(
        6, nodes=2, max_nodes=3, memory_per_cpu=200 * MB, gres=(("ve", 1),), features="fast", partitions=("main",)
    )
    hostile = "a=b c'd\"e"
    job_id = world.submit(
        Submission(request, time_limit=600, comment=hostile, name="x y", nice=7, hold=Hold.USER, uid=65534)
    )
    job = world.listed(job_id)
    assert job is not None
    assert (job.request.cpus, job.request.nodes, job.request.max_nodes) == (6, 2, 3)
    assert job.request.memory_per_cpu == 200 * MB
    assert (job.request.gres, job.request.features) == (request.gres, request.features)
    assert job.request.partitions == ("main",)
    assert (job.time_limit, job.comment, job.name, job.nice) == (600, hostile, "x y", 7)
    assert (job.hold, job.reason, job.priority, job.restarts) == (Hold.USER, "JobHeldUser", 0, 0)
    assert job.ref == str(job_id) and job.array_id is None and job.allocations == ()


def test_a_multi_node_job_has_a_share_on_every_node(world: World) -> None:
    job_id = world.running(Submission(JobRequest(6, nodes=2, max_nodes=2, memory_per_cpu=100 * MB)))
    allocations = world.job(job_id).allocations
    assert len(allocations) == 2 and sum(allocation.cpus for allocation in allocations) == 6
    assert all(allocation.memory == allocation.cpus * 100 * MB for allocation in allocations)


def test_memory_per_node_is_taken_on_every_node(world: World) -> None:
    job_id = world.running(Submission(JobRequest(2, nodes=2, max_nodes=2, memory_per_node=1000 * MB)))
    assert [(allocation.cpus, allocation.memory) for allocation in world.job(job_id).allocations] == [
        (1, 1000 * MB)
    ] * 2


def test_nodes_show_what_there_is_and_what_is_taken(world: World) -> None:
    node = world.node("n1")
    assert (node.cpus, node.memory, node.up) == (4, 8000 * MB, True)
    assert node.features == {"fast"} and ("ve", 2) in node.gres and "main" in node.partitions
    world.running(Submission(JobRequest(3, memory_per_node=900 * MB, required_nodes=frozenset({"n1"}))))
    world.until(lambda: (world.node("n1").cpus_taken, world.node("n1").memory_taken) == (3, 900 * MB))


def test_a_drained_node_is_not_up(world: World) -> None:
    world.drain("n2")
    world.until(lambda: not world.node("n2").up)
    world.undrain("n2")
    world.until(lambda: world.node("n2").up)


def test_partitions_and_their_nodes(world: World) -> None:
    partitions = {partition.name: partition for partition in world.gateway.partitions()}
    assert partitions["main"].nodes == {"n1", "n2", "n3", "n4"}
    assert partitions["small"].nodes == {"n3", "n4"}
    assert partitions["main"].up and not partitions["main"].exclusive


def test_settings_are_named_as_in_slurm_conf(world: World) -> None:
    settings = world.gateway.settings()
    assert settings.version.count(".") == 2
    assert settings.values["PriorityType"] == "priority/multifactor"


def test_without_slurmdbd_there_are_no_accounts(world: World) -> None:
    assert world.gateway.accounts() is None


def test_a_job_that_cannot_be_read_is_set_aside_and_all_others_are_seen(world: World) -> None:
    """For one EiB squeue prints "1?"."""
    first = world.submit(Submission(JobRequest(1), hold=Hold.USER))
    odd = world.submit(Submission(JobRequest(5, nodes=5, memory_per_node=2**60), hold=Hold.USER))
    last = world.submit(Submission(JobRequest(2), hold=Hold.USER))
    seen = {job.id: job for job in world.gateway.jobs()}
    assert set(seen) == {first, odd, last}
    assert {job_id for job_id, job in seen.items() if job.set_aside} == {odd}
    assert (seen[odd].ref, seen[odd].state, seen[odd].hold) == (str(odd), JobState.PENDING, Hold.USER)
    assert world.job(odd).set_aside
    assert seen[last].request.cpus == 2


def test_run_time_grows(world: World) -> None:
    job_id = world.running(Submission(JobRequest(1)))
    world.until(lambda: world.job(job_id).run_time >= 2)


def test_an_ended_job_is_found_but_not_listed(world: World) -> None:
    job_id = world.submit(Submission(JobRequest(1), run_time=1))
    world.until(lambda: world.is_in(job_id, JobState.ENDED))
    assert world.listed(job_id) is None


def test_a_canceled_job_ends(world: World) -> None:
    job_id = world.running(Submission(JobRequest(1)))
    world.cancel(job_id)
    world.until(lambda: world.is_in(job_id, JobState.ENDED))


def test_a_job_that_was_canceled_while_it_waited_has_never_started(world: World) -> None:
    """Slurm shows when it was canceled as its start time, as if it had run for no time at all."""
    world.running(Submission(JobRequest(16, nodes=4, max_nodes=4)))
    waiting = world.submit(Submission(JobRequest(4)))
    world.cancel(waiting)
    world.until(lambda: world.is_in(waiting, JobState.ENDED))
    assert (world.job(waiting).start, world.job(waiting).restarts) == (None, 0)


def test_a_job_that_was_requeued_and_canceled_while_it_waited_shows_that_it_has_run(world: World) -> None:
    job = world.running(Submission(JobRequest(4)))
    assert world.gateway.hold([str(job)], HELD) == []
    assert world.gateway.requeue([str(job)]) == []
    world.until(lambda: world.waits(job))
    world.cancel(job)
    world.until(lambda: world.is_in(job, JobState.ENDED))
    assert (world.job(job).start, world.job(job).restarts) == (None, 1)


@pytest.mark.parametrize("may", [True, False])
def test_a_found_job_shows_whether_it_may_be_requeued(world: World, may: bool) -> None:
    assert world.job(world.running(Submission(JobRequest(1), requeue=may))).requeue is may


def test_an_unknown_job_is_not_found(world: World) -> None:
    assert world.gateway.find(999_999) is None


@pytest.mark.parametrize(
    "text",
    ["plain", "it's quoted a=b, %s $HOME `id` \\n", "käse 猫", 'omfs:rel:3? | {"jobs": ["a", 1]}', "x | " + "1" * 4000],
)
def test_an_admin_comment_comes_back_as_it_was(world: World, text: str) -> None:
    job_id = world.submit(Submission(JobRequest(1), hold=Hold.USER))
    assert world.gateway.set_admin_comment([str(job_id)], text) == []
    assert world.job(job_id).admin_comment == text


def test_control_characters_in_an_admin_comment_do_no_harm(world: World) -> None:
    job_id = world.submit(Submission(JobRequest(1), hold=Hold.USER))
    assert world.gateway.set_admin_comment([str(job_id)], "one\ntwo\tthree\x1b[1m") == []
    shown = world.job(job_id).admin_comment
    assert shown.startswith("one") and "two" in shown and shown.isprintable()


def test_lists_show_admin_comments(world: World) -> None:
    held = world.submit(Submission(JobRequest(1), hold=Hold.USER))
    running = world.running(Submission(JobRequest(1)))
    for job_id in (held, running):
        assert world.gateway.set_admin_comment([str(job_id)], "why") == []
    listed = world.listed(held)
    assert listed is not None and listed.admin_comment == "why"
    listed = world.listed(running)
    assert listed is not None and listed.admin_comment == "why"


def test_an_unknown_job_is_refused_an_admin_comment(world: World) -> None:
    assert [refusal.ref for refusal in world.gateway.set_admin_comment(["999999"], "x")] == ["999999"]


@pytest.mark.parametrize(
    ("what", "held", "started"),
    [
        (Submission(JobRequest(2, nodes=2, max_nodes=3), open_tasks=True), 2, 3),
        (Submission(JobRequest(1, max_nodes=1, min_cpus_per_node=2)), 2, 2),
        (Submission(JobRequest(2, nodes=2, max_nodes=2, min_cpus_per_node=2)), 4, 4),
    ],
)
def test_a_held_job_counts_with_the_cpus_that_its_nodes_imply(
    world: World, what: Submission, held: int, started: int
) -> None:
    """Slurm shows NumCPUs=1 or 2 of these until they start."""
    job_id = world.submit(replace(what, hold=Hold.USER))
    assert world.job(job_id).request.cpus == held
    assert world.user_release(job_id)
    world.until(lambda: world.runs(job_id))
    assert sum(allocation.cpus for allocation in world.job(job_id).allocations) == started


def test_jobs_that_have_ended_are_listed_with_how_they_ended(world: World) -> None:
    done, canceled = world.running(Submission(JobRequest(1), run_time=1)), world.running(Submission(JobRequest(1)))
    world.cancel(canceled)
    world.soon(lambda: {done, canceled} <= {ended.job.id for ended in world.gateway.ended_jobs()}, 60)
    states = {ended.job.id: ended for ended in world.gateway.ended_jobs()}
    assert (states[done].state, states[canceled].state) == ("COMPLETED", "CANCELLED")
    job = states[done].job
    assert job.state is JobState.ENDED
    assert job.start is not None
    assert (job.request.cpus, job.run_time >= 1) == (1, True)


def test_only_waiting_jobs_have_an_expected_start(world: World) -> None:
    job_id = world.running(Submission(JobRequest(1)))
    assert job_id not in world.gateway.expected_starts()
    assert job_id not in world.gateway.expected_starts([job_id])


def test_new_jobs_have_the_next_ids_and_each_is_found_by_its_id_as_it_is_listed(world: World) -> None:
    request = JobRequest(2, excluded_nodes=frozenset({"n2", "n3"}))
    first, second = (world.submit(Submission(request, hold=Hold.USER, name=name)) for name in ("a", "b"))
    running = world.running(Submission(JobRequest(6, nodes=2, max_nodes=2)))
    assert (second, running) == (first + 1, first + 2)
    listed = {job.id: job for job in world.gateway.jobs()}
    with ThreadPoolExecutor(3) as aside:
        found = list(aside.map(world.gateway.find, (first, second, running)))
    for job in found:
        assert job is not None
        assert replace(job, run_time=0.0, reason="") == replace(listed[job.id], run_time=0.0, reason="")
    assert world.gateway.find(running + 1) is None
    assert world.gateway.settings().values["NEXT_JOB_ID"] == str(running + 1)
