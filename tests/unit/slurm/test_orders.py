"""Orders as data: merged, and divided by job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from omfs_daemon.slurm.commands.command_gateway import CommandGateway
from omfs_daemon.slurm.commands.run_command import CommandOutput
from omfs_daemon.slurm.orders import (
    HoldJobs,
    MarkedOrder,
    Order,
    PinNodes,
    ReleaseJobs,
    SendSignal,
    SetNice,
    by_job,
    for_jobs,
    merge_orders,
    send_orders,
)

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


class Scontrol:
    """Refuses each command with the ``culprit`` in it."""

    def __init__(self, culprit: str = "") -> None:
        self.culprit = culprit
        self.said: list[list[str]] = []

    def __call__(
        self,
        arguments: Sequence[str],
        *,
        timeout: float,
        conf: Path | None = None,
        check: bool = True,
        variables: Mapping[str, str] | None = None,
    ) -> CommandOutput:
        self.said.append([*arguments[1:]])
        refused = self.culprit and self.culprit in " ".join(arguments)
        return CommandOutput("", "Access/permission denied for job 1\n" if refused else "", int(bool(refused)))


PLACED: list[Order | MarkedOrder] = [
    PinNodes("1", ("n1",), nice=-5),
    MarkedOrder(ReleaseJobs(("1",)), "omfs:rel:7?omfs:held:0"),
]
IN_ONE = ["update", "jobid=1", "nodelist=n1", "nice=-5", "admincomment=omfs:rel:7?omfs:held:0"]


def test_a_job_is_ranked_pinned_and_marked_in_one_command_and_released_by_the_next() -> None:
    scontrol = Scontrol()
    assert send_orders(CommandGateway(runner=scontrol), PLACED) == []
    assert scontrol.said == [IN_ONE, ["release", "1"]]


def test_one_whose_mark_or_nodes_are_refused_is_not_released() -> None:
    scontrol = Scontrol("nodelist=")
    assert [refusal.ref for refusal in send_orders(CommandGateway(runner=scontrol), PLACED)] == ["1"]
    assert ["release", "1"] not in scontrol.said


@pytest.mark.parametrize("ref", ["2", "1,2"])
def test_the_release_of_others_stays_an_order_of_its_own(ref: str) -> None:
    scontrol = Scontrol()
    others = MarkedOrder(ReleaseJobs(tuple(ref.split(","))), "omfs:rel:7")
    send_orders(CommandGateway(runner=scontrol), [PLACED[0], others])
    assert [words[-1] for words in scontrol.said] == ["nice=-5", "admincomment=omfs:rel:7", ref]
