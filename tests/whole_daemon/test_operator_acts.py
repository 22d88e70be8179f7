"""What operators do to single jobs, on the fake: who let a job go, and how long a job stays exempted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omfs_daemon.cluster.holds import admin_comment_of
from omfs_daemon.cluster.jobs import Hold, JobRequest
from omfs_daemon.daemon.ended_exemptions import KNOWN_FOR
from omfs_daemon.daemon.store.exemption_store import stored_exemptions
from omfs_daemon.errors import ConfigError, ControlError
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission
from omfs_daemon.testing.fake_slurm.faults import Fault
from tests.whole_daemon.test_process import ROOT, Stand


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    found = Stand(tmp_path)
    yield found
    found.service.close()


def listed(stand: Stand) -> list[str]:
    """In the view, and in the file."""
    names = [one["name"] for one in stand.service.answers.exemptions(ROOT)["exemptions"]]
    assert names == [one.name for one in stored_exemptions(stand.config.daemon.state_dir / "exemptions.json")]
    return names


def after(stand: Stand, seconds: float) -> None:
    """Polls, and again so much later."""
    stand.run(1)
    stand.now += seconds
    stand.run(1)


def test_who_released_a_job_is_in_its_history_and_its_comment(stand: Stand) -> None:
    for account in ("bio", "bio", "physics", "physics"):
        stand.submit("alice", account, method="", run_time=1000)
    stand.run(1)
    waits = stand.submit("alice", "bio", method="")
    stand.run(2)
    stand.service.answers.release(ROOT, str(waits))
    stand.run(5)
    job, text = stand.gateway.find(waits), "released by root with omfs release"
    assert job is not None and (job.hold, admin_comment_of(job).sentence) == (Hold.NONE, text)
    events = stand.service.answers.why(ROOT, str(waits))["events"]
    assert [(one["event"], one["job"]) for one in events] == [("held", str(waits)), ("released", str(waits))]
    assert events[-1]["text"] == text


def waiting_array(stand: Stand) -> int:
    """Four tasks that are beyond the entitlement of bio: held."""
    for account in ("bio", "bio", "physics", "physics"):
        stand.submit("alice", account, method="", run_time=1000)
    stand.run(1)
    request = JobRequest(4, partitions=("main",), max_nodes=1)
    array = stand.slurm.submit(Submission(request, user="alice", account="bio", array=(1, 2, 3, 4)))
    stand.run(2)
    return array


def held_tasks(stand: Stand, array: int) -> set[int]:
    records = [job for job in stand.gateway.jobs() if job.array_id == array and job.hold is not Hold.NONE]
    return {task for job in records for task in job.task_ids}


def test_of_an_array_each_task_is_released_that_a_list_names(stand: Stand) -> None:
    array = waiting_array(stand)
    assert held_tasks(stand, array) == {1, 2, 3, 4}
    said = stand.service.answers.release(ROOT, f"{array}_[2-3,9%1]")["done"]
    assert said == f"job {array}_[2-3] is released, and not held again while it waits"
    stand.run(5)
    assert held_tasks(stand, array) == {1, 4}
    with pytest.raises(ControlError, match=r"_\[2-3\]: is not held$"):
        stand.service.answers.release(ROOT, f"{array}_[2-3]")


def test_a_list_of_tasks_that_is_cut_off_is_refused(stand: Stand) -> None:
    array = waiting_array(stand)
    for listed in ("1,3,...", "1-", "0-9999999"):
        with pytest.raises(ConfigError, match=rf"name the array, {array}, or one task$"):
            stand.service.answers.release(ROOT, f"{array}_[{listed}]")
    assert held_tasks(stand, array) == {1, 2, 3, 4}


def test_what_slurm_does_not_list_cannot_be_exempted(stand: Stand) -> None:
    stand.run(1)
    for ref in ("999999", "15_3"):
        with pytest.raises(ControlError, match=f"^job {ref}: Slurm does not list it$"):
            stand.service.answers.exempt(ROOT, ref, None)
    assert listed(stand) == []


def test_a_job_can_be_exempted_before_it_is_polled_but_not_after_its_end(stand: Stand) -> None:
    stand.run(1)
    job = stand.submit("alice", "bio", run_time=5)
    stand.service.answers.exempt(ROOT, str(job), None)
    assert listed(stand) == [str(job)]
    stand.service.answers.end_exemption(ROOT, str(job))
    stand.run(10)
    with pytest.raises(ControlError, match="Slurm does not list it"):
        stand.service.answers.exempt(ROOT, str(job), None)
    stand.gateway.faults.inject(Fault.DEAD)
    with pytest.raises(ControlError, match=f"^job {job}: Slurm does not answer: "):
        stand.service.answers.exempt(ROOT, str(job), None)


def test_the_exemption_of_a_job_that_has_ended_is_forgotten(stand: Stand) -> None:
    ended, runs = (stand.submit("alice", "bio", run_time=seconds) for seconds in (5, 5000))
    stand.run(1)
    for job in (ended, runs):
        stand.service.answers.exempt(ROOT, str(job), None)
    stand.run(10)
    assert listed(stand) == [str(ended), str(runs)], "it could be requeued still"
    after(stand, KNOWN_FOR)
    assert listed(stand) == [str(runs)]
    assert [one.name for one in stand.service._settings.rules.exemptions.all] == [str(runs)]
    audit = (stand.config.daemon.state_dir / "audit.jsonl").read_text()
    assert audit.count('"exempt"') == 2 and audit.count("\n") == 2, "nobody has ended it"


def test_one_that_is_requeued_stays_exempted(stand: Stand) -> None:
    job = stand.submit("alice", "bio", run_time=5000)
    stand.run(1)
    stand.service.answers.exempt(ROOT, str(job), None)
    for _ in range(3):
        assert stand.slurm.requeue_hold(job)
        after(stand, KNOWN_FOR)
        assert listed(stand) == [str(job)]
        stand.slurm.admin_release(job)
        stand.run(2)


def test_polls_that_fail_and_a_restart_forget_nothing(stand: Stand) -> None:
    job = stand.submit("alice", "bio", run_time=5000)
    stand.run(1)
    stand.service.answers.exempt(ROOT, str(job), None)
    stand.gateway.faults.inject(Fault.DEAD)
    after(stand, 10 * KNOWN_FOR)
    assert listed(stand) == [str(job)]
    stand.gateway.faults.clear()
    stand.service.close()
    stand.service = stand.serve()
    stand.run(1)
    assert listed(stand) == [str(job)]


def test_an_array_stays_exempted_until_its_last_task_has_ended(stand: Stand) -> None:
    whole = JobRequest(16, nodes=4, partitions=("main",))  # one task at a time
    comment = "omfs:method=requeue"
    array = stand.slurm.submit(Submission(whole, account="bio", run_time=400, comment=comment, array=(1, 2)))
    stand.run(1)
    names = [str(array), f"{array}_2"]
    for name in names:
        stand.service.answers.exempt(ROOT, name, None)
    for _ in range(2):
        after(stand, KNOWN_FOR)
        assert listed(stand) == names, "its second task waits or runs"
    after(stand, 2 * KNOWN_FOR)
    after(stand, KNOWN_FOR)
    assert listed(stand) == []
