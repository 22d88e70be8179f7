"""Nothing is ordered without a fresh lease, whichever call a gateway has, and what is asked goes through."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from omfs_daemon.daemon.leadership.fence import QUERIES, FencedTransport, fenced_gateway
from omfs_daemon.daemon.leadership.leadership import LeaseLost
from omfs_daemon.daemon.node_client.node_answers import OmfsNodeAnswer
from omfs_daemon.daemon.node_client.transport import Request
from omfs_daemon.slurm.commands.command_gateway import CommandGateway
from omfs_daemon.slurm.gateway import ByProcesses, Gateway, runs_processes
from omfs_daemon.slurm.orders import RequeueJobs, SetNice, send_orders
from omfs_daemon.testing.fake_slurm.controller import FakeSlurm
from omfs_daemon.testing.fake_slurm.fake_gateway import FakeGateway


def lost() -> None:
    raise LeaseLost("expired")


def test_every_call_of_the_gateway_is_a_query_or_fenced() -> None:
    calls = {name for kind in (Gateway, ByProcesses) for name in vars(kind) if not name.startswith("_")}
    orders = calls - QUERIES - {"name"}
    assert orders == {
        *("hold", "release", "set_nice", "pin", "pin_and_rank", "set_licenses", "allow_requeue", "requeue"),
        *("place_and_release", "requeue_ended", "suspend", "resume", "set_admin_comment", "signal"),
    }
    fenced = fenced_gateway(CommandGateway(), lost)
    for name in orders:
        with pytest.raises(LeaseLost):
            getattr(fenced, name)()
    assert fenced.name == "commands" and runs_processes(fenced)


def test_it_asks_before_each_order_of_a_batch() -> None:
    left = [None]

    def once() -> None:
        if not left:
            raise LeaseLost("expired")
        left.pop()

    slurm = FakeSlurm(lambda: 0.0, [], [])
    fenced = fenced_gateway(FakeGateway(slurm, []), once)
    assert fenced.jobs() == []
    with pytest.raises(LeaseLost):
        send_orders(fenced, [SetNice(("1",), 5), RequeueJobs(("1",))])
    assert not left


def test_work_on_nodes_is_not_begun() -> None:
    class Unwanted:
        def run(self, nodes: Sequence[str], request: Request, timeout: float) -> dict[str, OmfsNodeAnswer]:
            raise AssertionError

    answers = FencedTransport(Unwanted(), lost).run(["n1", "n2"], {}, 1.0)
    assert [(node, answer.ok, answer.message) for node, answer in answers.items()] == [
        ("n1", False, "expired"),
        ("n2", False, "expired"),
    ]
