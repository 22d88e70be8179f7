"""Orders as commands: one culprit never stops the others, long lists fit into arguments, few processes are enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from omfs_daemon.cluster.job_refs import share_tasks, tasks_ref
from omfs_daemon.errors import GatewayError
from omfs_daemon.slurm.commands.command_gateway import CommandGateway
from omfs_daemon.slurm.commands.run_command import CommandOutput
from omfs_daemon.slurm.orders import MarkedOrder, Order, PinNodes, ReleaseJobs, send_orders

ARGUMENT_LIMIT = 128 * 1024  # execve(2), MAX_ARG_STRLEN


class Scontrol:
    """Refuses each command that has the ``culprit`` in a list, all of it and without naming anybody."""

    def __init__(self, culprit: str = "", message: str = "Unable to contact slurm controller", up: bool = True) -> None:
        self.culprit, self.message, self.up = culprit, message, up
        self.said: list[list[str]] = []
        self.pings = 0

    @property
    def lists(self) -> list[str]:
        return [words[-1] for words in self.said]

    def __call__(
        self,
        arguments: Sequence[str],
        *,
        timeout: float,
        conf: Path | None = None,
        check: bool = True,
        variables: Mapping[str, str] | None = None,
    ) -> CommandOutput:
        assert all(len(argument) < ARGUMENT_LIMIT for argument in arguments), "Argument list too long"
        if list(arguments) == ["scontrol", "ping"]:
            self.pings += 1
            return CommandOutput(f"Slurmctld(primary) at head is {'UP' if self.up else 'DOWN'}\n", "", int(not self.up))
        self.said.append([*arguments[1:]])
        refused = self.culprit and any(self.culprit in word.split(",") for word in arguments)
        return CommandOutput("", f"{self.message}\n" if refused else "", int(bool(refused)))


@pytest.mark.parametrize("message", ["a riddle", "Unable to contact slurm controller", "Invalid job id for job 1,2,3"])
def test_who_is_not_named_is_found_by_trying_each_once(message: str) -> None:
    scontrol = Scontrol("2", message)
    (refusal,) = CommandGateway(runner=scontrol).suspend(["1", "2", "3"])
    assert (refusal.ref, refusal.message) == ("2", message)
    assert scontrol.lists == ["1,2,3", "1", "2", "3"]


def test_only_a_slurm_that_does_not_answer_is_an_outage() -> None:
    scontrol = Scontrol("2", up=False)
    with pytest.raises(GatewayError, match="did not answer"):
        CommandGateway(runner=scontrol).suspend(["1", "2", "3"])
    assert scontrol.lists == ["1,2,3"]


def test_orders_that_are_taken_cost_no_questions() -> None:
    scontrol = Scontrol()
    assert CommandGateway(runner=scontrol).suspend(["1", "2", "3"]) == []
    assert (scontrol.lists, scontrol.pings) == (["1,2,3"], 0)


def test_long_lists_are_cut_by_bytes_and_by_number() -> None:
    irregular = {task for step in (1, 2) for task in range(step, 60_001, 3)}
    ref, scontrol = tasks_ref(7, irregular), Scontrol()
    assert len(ref) > ARGUMENT_LIMIT
    assert CommandGateway(runner=scontrol).suspend([*map(str, range(1000, 1250)), ref]) == []
    assert max(map(len, scontrol.lists)) <= 100 * 1024
    numbers = [listed.split(",") for listed in scontrol.lists if "_" not in listed]
    assert [len(listed) for listed in numbers] == [100, 100, 50]


def test_a_part_of_a_long_reference_that_is_refused_stands_for_it() -> None:
    ref = tasks_ref(7, range(1, 60_001, 2))

    class NamesAPart(Scontrol):
        def __call__(self, arguments: Sequence[str], **how: object) -> CommandOutput:  # type: ignore[override]
            refused = share_tasks(arguments[-1], "7_59999")
            return CommandOutput("", "7_59999: No\n", 1) if refused else CommandOutput("", "", 0)

    refusals = CommandGateway(runner=NamesAPart()).suspend(["3", ref])
    assert [(refusal.ref == ref, refusal.message) for refusal in refusals] == [(True, "No")]


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
    scontrol = Scontrol("nodelist=n1")
    assert [refusal.ref for refusal in send_orders(CommandGateway(runner=scontrol), PLACED)] == ["1"]
    assert ["release", "1"] not in scontrol.said


@pytest.mark.parametrize("ref", ["2", "1,2"])
def test_the_release_of_others_stays_an_order_of_its_own(ref: str) -> None:
    scontrol = Scontrol()
    others = MarkedOrder(ReleaseJobs(tuple(ref.split(","))), "omfs:rel:7")
    send_orders(CommandGateway(runner=scontrol), [PLACED[0], others])
    assert [words[-1] for words in scontrol.said] == ["nice=-5", "admincomment=omfs:rel:7", ref]
