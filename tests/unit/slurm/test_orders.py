"""Orders as data: merged, and divided by job."""

from __future__ import annotations

from omfs_daemon.slurm.orders import HoldJobs, Order, PinNodes, SendSignal, SetNice, by_job, for_jobs, merge_orders

LISTED: list[Order] = [
    HoldJobs(("1",), "why"),
    SetNice(("1",), 5),
    HoldJobs(("2",), "another reason"),
    PinNodes("1", ("n1",)),
    HoldJobs(("3", "4_[1-2]"), "why"),
    SetNice(("3",), 5),
]


def test_orders_that_say_the_same_become_one() -> None:
    assert merge_orders(LISTED) == [
        HoldJobs(("1", "3", "4_[1-2]"), "why"),
        SetNice(("1", "3"), 5),
        HoldJobs(("2",), "another reason"),
        PinNodes("1", ("n1",)),
    ]


def test_an_order_can_be_divided_and_put_together_again() -> None:
    for order in (*LISTED, SendSignal("7", "USR1")):
        parts = by_job(order)
        assert for_jobs(parts[0][0], [ref for _, ref in parts]) == order
    assert [ref for _, ref in by_job(LISTED[4])] == ["3", "4_[1-2]"]
