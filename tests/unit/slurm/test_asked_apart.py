"""When squeue is asked for what it does not print with the rest, such as the nodes that jobs exclude."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from omfs_daemon.slurm.commands.asked_apart import ALL_AGAIN, SINGLE_QUERIES, AskedApart
from omfs_daemon.slurm.commands.squeue_fields import JobRow

EMPTY = JobRow._make([""] * len(JobRow._fields))


class Slurm:
    """Waiting jobs by id, with what they exclude."""

    def __init__(self, **excluded: str) -> None:
        self.now = 0.0
        self.excluded = {name.removeprefix("job"): listed for name, listed in excluded.items()}
        self.asked: list[tuple[str, ...]] = []
        self.nodes = AskedApart(self._ask, lambda: self.now)

    def _ask(self, job_ids: Sequence[str]) -> dict[str, str]:
        self.asked.append(tuple(job_ids))
        return {job_id: listed for job_id, listed in self.excluded.items() if not job_ids or job_id in job_ids}

    def poll(self, *running: str) -> dict[str, str]:
        everything: Future[dict[str, str]] | None = None
        if self.nodes.is_due:
            everything = Future()
            everything.set_result(self._ask(()))
        rows = [EMPTY._replace(job_id=job_id, state="PENDING") for job_id in self.excluded]
        rows += [EMPTY._replace(job_id=job_id, state="RUNNING") for job_id in running]
        return dict(self.nodes.of(rows, everything))


def test_all_jobs_are_asked_for_now_and_then() -> None:
    slurm = Slurm(job1="n1", job2="")
    assert slurm.poll("9") == {"1": "n1", "2": ""}
    slurm.excluded["1"] = "n2"
    assert slurm.poll("9") == {"1": "n1", "2": ""}
    slurm.now = ALL_AGAIN
    assert slurm.poll("9") == {"1": "n2", "2": ""}
    assert slurm.asked == [(), ()]


def test_jobs_that_wait_newly_are_asked_for_at_once_and_once() -> None:
    slurm = Slurm(job1="n1")
    slurm.poll()
    slurm.excluded |= {"2": "n2", "3": ""}
    assert slurm.poll() == {"1": "n1", "2": "n2", "3": ""}
    slurm.poll()
    assert slurm.asked == [(), ("2",), ("3",)]


def test_one_of_which_nothing_was_said_is_asked_for_again() -> None:
    """It was listed as waiting before, and had left the queue for a moment."""
    slurm = Slurm(job1="n1")
    slurm.poll()
    slurm.excluded["2"] = "n2"
    rows = [EMPTY._replace(job_id=job_id, state="PENDING") for job_id in ("1", "2")]
    gone = slurm.excluded.pop("2")
    assert dict(slurm.nodes.of(rows, None)) == {"1": "n1"}
    slurm.excluded["2"] = gone
    assert slurm.poll() == {"1": "n1", "2": "n2"}


def test_many_are_asked_for_together() -> None:
    slurm = Slurm(job1="n1")
    slurm.poll()
    slurm.excluded |= {str(number): "n3" for number in range(10, 11 + SINGLE_QUERIES)}
    assert slurm.poll()["10"] == "n3"
    assert [len(listed) for listed in slurm.asked] == [0, SINGLE_QUERIES + 1]


def test_one_that_waits_again_is_asked_for_again() -> None:
    slurm = Slurm(job1="n1")
    slurm.poll()
    del slurm.excluded["1"]
    assert slurm.poll("1") == {}
    slurm.excluded["1"] = "n2"
    assert slurm.poll() == {"1": "n2"}


def test_what_is_asked_of_one_job_need_not_be_asked_again() -> None:
    slurm = Slurm()
    slurm.poll()
    slurm.excluded["1"] = "n1"
    assert slurm.nodes.of_one("1") == {"1": "n1"}
    assert slurm.poll() == {"1": "n1"}
    assert slurm.asked == [(), ("1",)]
