"""The AdminComments of orders: which jobs share one, and what is expected to be stored."""

from __future__ import annotations

from dataclasses import replace

from omfs_daemon.cluster.jobs import Hold, Job, JobPart, JobRequest, JobState
from omfs_daemon.cluster.marks import MarkWord, first_number_of
from omfs_daemon.slurm.order_marks import StoredMarks, with_marks
from omfs_daemon.slurm.orders import HoldJobs, MarkedOrder, MarkJobs, ReleaseJobs, RequeueJobs


def job(ref: str, admin_comment: str = "", hold: Hold = Hold.NONE) -> Job:
    return Job(1, ref, "alice", 1, "bio", JobState.PENDING, JobRequest(1), 0.0, hold=hold, admin_comment=admin_comment)


def stored(*jobs: Job) -> StoredMarks:
    return StoredMarks({job.ref: job for job in jobs}.get)


def test_many_plain_holds_stay_one_order() -> None:
    refs = tuple(str(number) for number in range(5000))
    (order,) = with_marks([HoldJobs(refs, "why")], stored(*(job(ref) for ref in refs)), 3)
    assert order == MarkedOrder(HoldJobs(refs, "why"), "omfs:held:3? why")


def test_jobs_are_divided_by_their_mark_and_what_others_have_written() -> None:
    seen = stored(job("1"), job("2", "JS1:x"), job("3", "omfs:rel:2 old | JS1:x"), job("4"), job("5", "JS1:x"))
    found = with_marks([HoldJobs(("1", "2", "3", "4", "5"), "why")], seen, 3)
    assert [(order.order.refs, order.comment) for order in found] == [
        (("1", "4"), "omfs:held:3? why"),
        (("2", "5"), "omfs:held:3? why | JS1:x"),
        (("3",), "omfs:held:3?omfs:rel:2 why | JS1:x"),
    ]


def test_what_was_ordered_before_is_expected_next() -> None:
    seen = stored(job("1", "JS1:x"))
    orders = [MarkJobs(("1",), MarkWord.STOPPING, "first"), HoldJobs(("1",)), RequeueJobs(("1",))]
    assert [order.comment for order in with_marks(orders, seen, 3) if isinstance(order, MarkedOrder)] == [
        "omfs:stopping:3? first | JS1:x",
        "omfs:held:3?omfs:stopping:3 first | JS1:x",
    ]
    (release,) = with_marks([ReleaseJobs(("1",), "over")], seen, 4)
    assert release.comment == "omfs:rel:4?omfs:held:3 over | JS1:x"
    assert with_marks([ReleaseJobs(("1",))], seen, 5) == [], "it is released already"
    seen.forget(["1"])
    (mark,) = with_marks([MarkJobs(("1",), MarkWord.RELEASED)], seen, 6)
    assert mark.comment == "omfs:rel:6? | JS1:x", "refused orders do not count"


def test_a_new_sentence_keeps_a_mark_that_says_the_same() -> None:
    seen = stored(job("1", "omfs:rel:2 old"), job("2", "omfs:stopping:2"))
    found = with_marks([MarkJobs(("1", "2"), MarkWord.RELEASED, "[omfs] runs again")], seen, 3)
    assert [order.comment for order in found] == [
        "omfs:rel:2?omfs:rel:2 [omfs] runs again",
        "omfs:rel:3?omfs:stopping:2 [omfs] runs again",
    ]


def test_a_mark_of_an_earlier_time_is_not_kept_where_it_must_be_newer() -> None:
    seen = stored(job("1", "omfs:rel:2"), job("2", "omfs:rel:3"))
    found = with_marks([MarkJobs(("1", "2"), MarkWord.RELEASED)], seen, 4, newer_than=2)
    assert [order.comment for order in found] == ["omfs:rel:4?omfs:rel:2", "omfs:rel:3?omfs:rel:3"]


def test_a_mark_of_an_earlier_epoch_is_not_kept() -> None:
    """The submit gate would refuse the order as a late one."""
    seen = stored(job("1", "omfs:rel:2000000005"), job("2", "omfs:rel:7"), job("3", "omfs:rel:3000000001"))
    number = first_number_of(3) + 2
    found = with_marks([MarkJobs(("1", "2", "3"), MarkWord.RELEASED)], seen, number)
    assert [order.comment for order in found] == [
        "omfs:rel:3000000002?omfs:rel:2000000005",
        "omfs:rel:3000000002?omfs:rel:7",
        "omfs:rel:3000000001?omfs:rel:3000000001",
    ]


def test_a_job_that_nobody_holds_is_not_released() -> None:
    """Slurm would reset its nice."""
    seen = stored(job("1"), job("2", "omfs:held:1", Hold.ADMIN), job("3", "omfs:held:1"))
    (release,) = with_marks([ReleaseJobs(("1", "2", "3", "4"))], seen, 2)
    assert release.order.refs == ("2",)


def test_a_running_job_can_be_held_and_released() -> None:
    runs = replace(job("1", "omfs:held:1"), state=JobState.RUNNING, priority=0)
    assert len(with_marks([ReleaseJobs(("1",))], stored(runs), 2)) == 1
    assert with_marks([ReleaseJobs(("1",))], stored(replace(runs, priority=1)), 2) == []


def test_parts_of_an_array_have_the_mark_of_its_record() -> None:
    record = replace(job("3_[1-5]", "omfs:held:1 | x", Hold.ADMIN), array_id=3, task_ids=(1, 2, 3, 4, 5))
    tasks = {f"3_{task}": record for task in record.task_ids} | {record.ref: record}
    seen = StoredMarks(tasks.get)
    (release,) = with_marks([ReleaseJobs(("3_[4-5]",))], seen, 2)
    assert release == MarkedOrder(ReleaseJobs(("3_[4-5]",)), "omfs:rel:2?omfs:held:1 | x")
    again = with_marks([ReleaseJobs(("3_4", "3_2"))], seen, 3)
    assert [order.order.refs for order in again] == [("3_2",)]


def test_of_each_part_its_own_mark_is_expected() -> None:
    marks = ("omfs:held:2 why", "adm:rel")
    parts = tuple(JobPart(1 + at, JobRequest(1), admin_comment=mark) for at, mark in enumerate(marks))
    seen = stored(replace(job("1", marks[0], Hold.ADMIN), parts=parts))
    orders = [MarkJobs(("1",), MarkWord.HELD), ReleaseJobs(("1",))]
    assert [order.comment for order in with_marks(orders, seen, 3) if isinstance(order, MarkedOrder)] == [
        "omfs:held:2?omfs:held:2,adm:rel",
        "omfs:rel:3?omfs:held:2",
    ]
