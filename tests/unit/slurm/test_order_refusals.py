"""Which jobs of a command refuse an order: one culprit never stops the others, and long lists fit into arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from omfs_daemon.cluster.job_refs import share_tasks, tasks_ref
from omfs_daemon.errors import GatewayError
from omfs_daemon.slurm.commands.command_gateway import CommandGateway
from omfs_daemon.slurm.commands.run_command import CommandOutput

ARGUMENT_LIMIT = 128 * 1024  # execve(2), MAX_ARG_STRLEN


class Scontrol:
    """Refuses each command that names the ``culprit``, all of it and without naming anybody."""

    def __init__(self, culprit: str = "", message: str = "Unable to contact slurm controller", up: bool = True) -> None:
        self.culprit, self.message, self.up = culprit, message, up
        self.lists: list[str] = []
        self.pings = 0

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
        self.lists.append(arguments[-1])
        refused = self.culprit and self.culprit in arguments[-1].split(",")
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
