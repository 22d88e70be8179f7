"""In which order and in how many writes to the journal orders are sent."""

from __future__ import annotations

from omfs_daemon.cluster.marks import MarkWord
from omfs_daemon.preemption.effects import Chain, order_batches
from omfs_daemon.slurm.orders import HoldJobs, MarkJobs, RequeueJobs, SetNice


def test_what_preemptions_want_comes_first_and_the_rest_in_parts() -> None:
    many = tuple(str(number) for number in range(10, 15))
    preemption = Chain((SetNice(("1",), -5),), (RequeueJobs(("2",)),), 7)
    batches = order_batches([Chain((HoldJobs(many),)), Chain((SetNice(("8", "9"), 3),)), preemption], 3)
    assert batches == [
        [preemption],
        [Chain((HoldJobs(("10", "11", "12")),))],
        [Chain((HoldJobs(("13", "14")),))],
        [Chain((SetNice(("8", "9"), 3),))],
    ]


def test_all_orders_for_a_job_keep_their_order() -> None:
    """A mark that is written after a hold would hide whose hold it is."""
    mark = Chain((MarkJobs(("1", "2"), MarkWord.RELEASED),))
    again = Chain((HoldJobs(("2",)),), (RequeueJobs(("2",)),))
    assert order_batches([mark, again], 500) == [[mark, again]]


def test_nothing_is_one_empty_batch() -> None:
    assert order_batches([], 500) == [[]]
