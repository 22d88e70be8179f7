"""Calls of Slurm are counted, and only that."""

from __future__ import annotations

import pytest

from omfs_daemon.cluster.jobs import JobRequest
from omfs_daemon.cluster.nodes import Node, Partition
from omfs_daemon.slurm.call_counter import CallCounter
from omfs_daemon.slurm.commands.command_gateway import CommandGateway
from omfs_daemon.slurm.gateway import runs_processes
from omfs_daemon.testing.fake_slurm.controller import FakeSlurm
from omfs_daemon.testing.fake_slurm.fake_gateway import FakeGateway
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission


def test_an_order_for_several_jobs_counts_once_for_each() -> None:
    calls = CallCounter()
    slurm = FakeSlurm(lambda: 0.0, [Node("n1", 4, 1 << 30)], [Partition("main", frozenset(["n1"]))])
    gateway = calls.of(FakeGateway(slurm))
    gateway.jobs()
    assert calls.number == 1
    assert [refusal.ref for refusal in gateway.hold(("7", "8", "9"), "")] == ["7", "8", "9"]
    assert calls.number == 4
    gateway.pin("7", ("n1",))
    assert (calls.number, gateway.name) == (5, FakeGateway(slurm).name)


def test_one_question_about_many_jobs_is_one_call() -> None:
    calls = CallCounter()
    slurm = FakeSlurm(lambda: 0.0, [Node("n1", 16, 1 << 30)], [Partition("main", frozenset(["n1"]))])
    gateway = calls.of(FakeGateway(slurm))
    jobs = [slurm.submit(Submission(JobRequest(1))) for _ in range(9)]
    listed = gateway.jobs()
    assert set(gateway.units(listed)) <= set(jobs)
    assert calls.number == 2
    gateway.units(listed[:3])
    assert calls.number == 5


def test_a_question_about_many_nodes_is_one_call() -> None:
    calls = CallCounter()
    slurm = FakeSlurm(lambda: 0.0, [Node(f"n{number}", 4, 1 << 30) for number in range(9)], [])
    gateway = calls.of(FakeGateway(slurm))
    assert len(gateway.nodes([f"n{number}" for number in range(8)])) == 8
    assert (len(gateway.nodes()), calls.number) == (9, 2)


def test_a_release_by_commands_takes_two_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = CallCounter()
    commands = CommandGateway()
    monkeypatch.setattr(commands, "release", lambda refs, comment: [])
    calls.of(commands).release(("7", "8"), "")
    assert calls.number == 4


def test_what_the_adapter_can_do_besides_stays_visible() -> None:
    fake = FakeGateway(FakeSlurm(lambda: 0.0, [], []))
    assert runs_processes(CallCounter().of(CommandGateway()))
    assert not runs_processes(CallCounter().of(fake))
