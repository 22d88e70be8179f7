"""The work queue and the probes, with a stand-in for the transport that answers when the test lets it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from omfs_daemon.daemon.node_client.node_answers import Held, MethodFacts, OmfsNodeAnswer, failed
from omfs_daemon.daemon.node_client.probes import Probes
from omfs_daemon.daemon.node_client.transport import Request
from omfs_daemon.daemon.node_client.work_queue import NodeAction, NodeWork, NodeWorkState, ThreadedWorkQueue
from tests.support.waiting import LIMIT, wait_until

OUT = NodeWork("7", 7, 1000, ("n1", "n2"), NodeAction.OUT, "pageout", timeout=5)
IN = replace(OUT, do=NodeAction.IN, resume=True)
GONE_OUT = OmfsNodeAnswer(True, state="out", processes=2, stopped=2, moved=100, freed=90, seconds=2.0, slowest=1.0)
RUNS = OmfsNodeAnswer(True, state="running", processes=2)


class FakeTransport:
    """Records what is asked; answers by ``answer``, and not before ``gate`` is open."""

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[str, ...], dict[str, Any]]] = []
        self.gates: dict[int, threading.Event] = {}
        self.answer: Callable[[str, Mapping[str, Any]], OmfsNodeAnswer] = lambda _, request: (
            GONE_OUT if request["do"] == "out" else RUNS
        )

    def run(self, nodes: Sequence[str], request: Request, timeout: float) -> dict[str, OmfsNodeAnswer]:
        asked: dict[str, Any] = dict(request)
        self.calls.append((tuple(nodes), asked))
        gate = self.gates.get(asked.get("job", 0))
        if gate is not None:
            assert gate.wait(LIMIT)
        return {node: self.answer(node, asked) for node in nodes}

    def done(self) -> list[tuple[int, str]]:
        return [(request["job"], request["do"]) for _, request in self.calls]


@pytest.fixture
def transport() -> FakeTransport:
    return FakeTransport()


@pytest.fixture
def woken() -> list[int]:
    return []


@pytest.fixture
def work_queue(transport: FakeTransport, woken: list[int]) -> Iterator[ThreadedWorkQueue]:
    work_queue = ThreadedWorkQueue(transport, lambda: 5.0, lambda: woken.append(1), workers=3)
    yield work_queue
    for gate in transport.gates.values():
        gate.set()
    work_queue.close()


def over(work_queue: ThreadedWorkQueue, ref: str = "7") -> Any:
    def seen() -> Any:
        found = work_queue.seen(ref)
        return found if found is not None and found.state is not NodeWorkState.UNDER_WAY else None

    return wait_until(seen, "the work to be over")


def test_done_when_all_nodes_have_done_it(
    work_queue: ThreadedWorkQueue, transport: FakeTransport, woken: list[int]
) -> None:
    work_queue.ask(OUT)
    seen = over(work_queue)
    assert (seen.do, seen.state, seen.memory, seen.processes) == (NodeAction.OUT, NodeWorkState.DONE, "out", 4)
    assert (seen.moved, seen.freed, seen.seconds, seen.slowest, seen.at) == (200, 180, 2.0, 1.0, 5.0)
    assert transport.calls[0][0] == ("n1", "n2")
    assert transport.calls[0][1]["suspended"] is False and "continue" not in transport.calls[0][1]
    wait_until(lambda: woken == [1], "the wake-up")


def test_one_node_fails_so_all_are_brought_back(work_queue: ThreadedWorkQueue, transport: FakeTransport) -> None:
    transport.answer = lambda node, request: (
        failed("no_swap_space", "4 MiB free") if (node, request["do"]) == ("n2", "out") else default_answer(request)
    )
    work_queue.ask(OUT)
    seen = over(work_queue)
    assert (seen.state, seen.why, seen.message) == (NodeWorkState.FAILED, "no_swap_space", "n2: 4 MiB free")
    assert transport.done() == [(7, "out"), (7, "in")]
    assert transport.calls[1][1]["continue"] is True


def default_answer(request: Mapping[str, Any]) -> OmfsNodeAnswer:
    return GONE_OUT if request["do"] == "out" else RUNS


def test_a_suspended_job_is_brought_back_but_not_continued(
    work_queue: ThreadedWorkQueue, transport: FakeTransport
) -> None:
    transport.answer = lambda node, request: failed("timeout", "x") if request["do"] == "out" else RUNS
    work_queue.ask(replace(OUT, suspended=True))
    assert over(work_queue).why == "timeout"
    assert transport.calls[1][1]["continue"] is False


def test_a_node_that_cannot_be_brought_back_is_named(work_queue: ThreadedWorkQueue, transport: FakeTransport) -> None:
    transport.answer = lambda node, request: failed("unreachable", "gone") if node == "n2" else default_answer(request)
    work_queue.ask(OUT)
    assert over(work_queue).message == "n2: gone; may still be stopped on n2: gone"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (OmfsNodeAnswer(True, state="none"), "no_process"),
        (OmfsNodeAnswer(True, state="mixed", processes=3), "not_verified"),
        (OmfsNodeAnswer(True, state="", processes=3), "not_verified"),
    ],
)
def test_an_ok_that_proves_nothing_is_a_failure(
    work_queue: ThreadedWorkQueue, transport: FakeTransport, answer: OmfsNodeAnswer, why: str
) -> None:
    transport.answer = lambda _, request: answer if request["do"] == "out" else RUNS
    work_queue.ask(OUT)
    assert (over(work_queue).state, over(work_queue).why) == (NodeWorkState.FAILED, why)


def test_the_same_work_is_begun_once_while_it_is_under_way(
    work_queue: ThreadedWorkQueue, transport: FakeTransport
) -> None:
    transport.gates[7] = threading.Event()
    for _ in range(5):
        work_queue.ask(OUT)
    wait_until(lambda: transport.calls, "the call")
    for _ in range(5):
        work_queue.ask(OUT)
    transport.gates[7].set()
    over(work_queue)
    assert transport.done() == [(7, "out")]
    work_queue.ask(OUT)  # once it is over it may be asked again
    wait_until(lambda: len(transport.calls) == 2, "the second call")


def test_the_newest_wish_waits_and_wins(work_queue: ThreadedWorkQueue, transport: FakeTransport) -> None:
    transport.gates[7] = threading.Event()
    work_queue.ask(OUT)
    wait_until(lambda: transport.calls, "the call")
    work_queue.ask(replace(IN, resume=False))
    work_queue.ask(IN)
    seen = work_queue.seen("7")
    assert seen is not None and (seen.do, seen.resume, seen.state) == (NodeAction.IN, True, NodeWorkState.UNDER_WAY)
    assert transport.done() == [(7, "out")]
    transport.gates[7].set()
    assert over(work_queue).do is NodeAction.IN
    assert transport.done() == [(7, "out"), (7, "in")]
    assert transport.calls[1][1]["continue"] is True


def test_a_wish_taken_back_is_not_done(work_queue: ThreadedWorkQueue, transport: FakeTransport) -> None:
    transport.gates[7] = threading.Event()
    work_queue.ask(OUT)
    wait_until(lambda: transport.calls, "the call")
    work_queue.ask(IN)
    work_queue.ask(OUT)
    transport.gates[7].set()
    assert over(work_queue).do is NodeAction.OUT
    assert transport.done() == [(7, "out")]


def test_a_hung_node_does_not_hold_up_other_jobs(work_queue: ThreadedWorkQueue, transport: FakeTransport) -> None:
    transport.gates[7] = threading.Event()
    work_queue.ask(OUT)
    for number in range(8, 20):
        work_queue.ask(replace(OUT, ref=str(number), job_id=number))
    for number in range(8, 20):
        assert over(work_queue, str(number)).state is NodeWorkState.DONE
    seen = work_queue.seen("7")
    assert seen is not None and seen.state is NodeWorkState.UNDER_WAY


def test_forgotten_is_forgotten(work_queue: ThreadedWorkQueue, transport: FakeTransport, woken: list[int]) -> None:
    transport.gates[7] = threading.Event()
    work_queue.ask(OUT)
    wait_until(lambda: transport.calls, "the call")
    work_queue.forget("7")
    transport.gates[7].set()
    wait_until(lambda: woken, "the end")
    assert work_queue.seen("7") is None
    work_queue.ask(OUT)
    assert over(work_queue).state is NodeWorkState.DONE


def test_forgotten_while_it_waits_and_asked_again(work_queue: ThreadedWorkQueue, transport: FakeTransport) -> None:
    transport.gates[7] = threading.Event()
    work_queue.ask(OUT)
    wait_until(lambda: transport.calls, "the call")
    work_queue.ask(IN)
    work_queue.forget("7")
    work_queue.ask(IN)
    transport.gates[7].set()
    assert over(work_queue).do is NodeAction.IN


def test_one_at_a_time_for_a_job_also_when_it_was_forgotten_and_asked_again(
    work_queue: ThreadedWorkQueue, transport: FakeTransport
) -> None:
    blocked = [replace(OUT, ref=str(number), job_id=number) for number in (1, 2, 3)]
    for work in blocked:
        transport.gates[work.job_id] = threading.Event()
        work_queue.ask(work)
    wait_until(lambda: len(transport.calls) == 3, "all workers to be busy")
    transport.gates[7] = threading.Event()
    work_queue.ask(OUT)
    work_queue.forget("7")
    work_queue.ask(OUT)
    transport.gates[1].set()
    wait_until(lambda: (7, "out") in transport.done(), "the job's turn")
    work_queue.ask(IN)
    transport.gates[2].set()
    transport.gates[3].set()
    assert [over(work_queue, ref).state for ref in ("1", "2", "3")] == [NodeWorkState.DONE] * 3
    work_queue.ask(replace(OUT, ref="9", job_id=9))
    over(work_queue, "9")
    assert (7, "in") not in transport.done()
    transport.gates[7].set()
    assert over(work_queue).do is NodeAction.IN


def test_a_broken_transport_is_a_failure(work_queue: ThreadedWorkQueue, transport: FakeTransport) -> None:
    def broken(*_: object) -> OmfsNodeAnswer:
        raise RuntimeError("no\nmore sockets")

    transport.answer = broken
    work_queue.ask(OUT)
    seen = over(work_queue)
    assert (seen.state, seen.why) == (NodeWorkState.FAILED, "unreachable")
    assert "RuntimeError: no more sockets" in seen.message


def test_closed_begins_nothing(work_queue: ThreadedWorkQueue, transport: FakeTransport) -> None:
    work_queue.close()
    work_queue.ask(OUT)
    assert work_queue.seen("7") is None and transport.calls == []


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


FACTS = OmfsNodeAnswer(True, methods={"pageout": MethodFacts(True, "", 9)}, jobs={7: Held(5)})


def test_probes_keep_the_last_facts_for_three_intervals(transport: FakeTransport) -> None:
    clock, nodes = Clock(), ["n1", "n2"]
    transport.answer = lambda node, request: FACTS
    probes = Probes(transport, clock, 1000.0, lambda: nodes, {"pageout": {}})
    wait_until(lambda: len(probes.facts()) == 2, "the first facts")
    probes.close()
    assert probes.facts()["n1"].methods["pageout"].free == 9
    assert transport.calls[0][1] == {"do": "probe", "options": {"pageout": {}}, "slurm": {}}
    transport.answer = lambda node, request: FACTS if node == "n1" else failed("unreachable", "gone")
    clock.now += 2900
    probes.refresh()
    assert set(probes.facts()) == {"n1", "n2"} and set(probes.unseen()) == {"n2"}
    clock.now += 200
    assert set(probes.facts()) == {"n1"}
    nodes.remove("n1")
    probes.refresh()
    assert set(probes.facts()) == set()
    with pytest.raises(TypeError):
        probes.facts()["n1"] = None  # type: ignore[index]


def test_without_methods_nothing_is_asked(transport: FakeTransport) -> None:
    before = threading.active_count()
    probes = Probes(transport, Clock(), 1.0, lambda: ["n1"], {})
    assert (threading.active_count(), dict(probes.facts()), transport.calls) == (before, {}, [])


def test_probes_go_on_after_a_fault(transport: FakeTransport) -> None:
    rounds: list[int] = []

    def nodes() -> list[str]:
        rounds.append(1)
        if len(rounds) == 1:
            raise RuntimeError("not yet")
        return ["n1"]

    transport.answer = lambda node, request: FACTS
    probes = Probes(transport, Clock(), 0.05, nodes, {"pageout": {}})
    wait_until(lambda: probes.facts(), "facts after a fault")
    probes.close()
