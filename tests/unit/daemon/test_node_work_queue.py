"""The desk and the probes, with a stand-in for the way to the nodes that answers when it is told to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from omfs_daemon.daemon.node_client.node_answers import Answer
from omfs_daemon.daemon.node_client.node_answers import Held
from omfs_daemon.daemon.node_client.node_answers import MethodFacts
from omfs_daemon.daemon.node_client.node_answers import failed
from omfs_daemon.daemon.node_client.work_queue import Desk
from omfs_daemon.daemon.node_client.work_queue import Do
from omfs_daemon.daemon.node_client.work_queue import Work
from omfs_daemon.daemon.node_client.work_queue import WorkState
from omfs_daemon.daemon.node_client.probes import Probes
from omfs_daemon.daemon.node_client.transport import Request
from tests.helpers import wait_until

OUT = Work("7", 7, 1000, ("n1", "n2"), Do.OUT, "pageout", timeout=5)
IN = replace(OUT, do=Do.IN, resume=True)
GONE_OUT = Answer(True, state="out", processes=2, stopped=2, moved=100, freed=90, seconds=2.0, slowest=1.0)
RUNS = Answer(True, state="running", processes=2)


class Way:
    """Records what is asked; answers by ``answer``, and not before ``gate`` is open."""

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[str, ...], dict[str, Any]]] = []
        self.gates: dict[int, threading.Event] = {}
        self.answer: Callable[[str, Mapping[str, Any]], Answer] = lambda _, request: (
            GONE_OUT if request["do"] == "out" else RUNS
        )

    def run(self, nodes: Sequence[str], request: Request, timeout: float) -> dict[str, Answer]:
        asked: dict[str, Any] = dict(request)
        self.calls.append((tuple(nodes), asked))
        gate = self.gates.get(asked.get("job", 0))
        if gate is not None:
            assert gate.wait(20)
        return {node: self.answer(node, asked) for node in nodes}

    def done(self) -> list[tuple[int, str]]:
        return [(request["job"], request["do"]) for _, request in self.calls]


@pytest.fixture
def way() -> Way:
    return Way()


@pytest.fixture
def woken() -> list[int]:
    return []


@pytest.fixture
def desk(way: Way, woken: list[int]) -> Iterator[Desk]:
    desk = Desk(way, lambda: 5.0, lambda: woken.append(1), workers=3)
    yield desk
    for gate in way.gates.values():
        gate.set()
    desk.close()


def over(desk: Desk, ref: str = "7") -> Any:
    def seen() -> Any:
        found = desk.seen(ref)
        return found if found is not None and found.state is not WorkState.UNDER_WAY else None

    return wait_until(seen, 10, "the work to be over")


def test_done_when_all_nodes_have_done_it(desk: Desk, way: Way, woken: list[int]) -> None:
    desk.ask(OUT)
    seen = over(desk)
    assert (seen.do, seen.state, seen.memory, seen.processes) == (Do.OUT, WorkState.DONE, "out", 4)
    assert (seen.moved, seen.freed, seen.seconds, seen.slowest, seen.at) == (200, 180, 2.0, 1.0, 5.0)
    assert way.calls[0][0] == ("n1", "n2")
    assert way.calls[0][1]["suspended"] is False and "continue" not in way.calls[0][1]
    wait_until(lambda: woken == [1], 5, "the wake-up")


def test_one_node_fails_so_all_are_brought_back(desk: Desk, way: Way) -> None:
    way.answer = lambda node, request: (
        failed("no_swap_space", "4 MiB free") if (node, request["do"]) == ("n2", "out") else way_default(request)
    )
    desk.ask(OUT)
    seen = over(desk)
    assert (seen.state, seen.why, seen.message) == (WorkState.FAILED, "no_swap_space", "n2: 4 MiB free")
    assert way.done() == [(7, "out"), (7, "in")]
    assert way.calls[1][1]["continue"] is True


def way_default(request: Mapping[str, Any]) -> Answer:
    return GONE_OUT if request["do"] == "out" else RUNS


def test_a_suspended_job_is_brought_back_but_not_continued(desk: Desk, way: Way) -> None:
    way.answer = lambda node, request: failed("timeout", "x") if request["do"] == "out" else RUNS
    desk.ask(replace(OUT, suspended=True))
    assert over(desk).why == "timeout"
    assert way.calls[1][1]["continue"] is False


def test_a_node_that_cannot_be_brought_back_is_named(desk: Desk, way: Way) -> None:
    way.answer = lambda node, request: failed("unreachable", "gone") if node == "n2" else way_default(request)
    desk.ask(OUT)
    assert over(desk).message == "n2: gone; may still be stopped on n2: gone"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer(True, state="none"), "no_process"),
        (Answer(True, state="mixed", processes=3), "not_verified"),
        (Answer(True, state="", processes=3), "not_verified"),
    ],
)
def test_an_ok_that_proves_nothing_is_a_failure(desk: Desk, way: Way, answer: Answer, why: str) -> None:
    way.answer = lambda _, request: answer if request["do"] == "out" else RUNS
    desk.ask(OUT)
    assert (over(desk).state, over(desk).why) == (WorkState.FAILED, why)


def test_the_same_work_is_begun_once_while_it_is_under_way(desk: Desk, way: Way) -> None:
    way.gates[7] = threading.Event()
    for _ in range(5):
        desk.ask(OUT)
    wait_until(lambda: way.calls, 5, "the call")
    for _ in range(5):
        desk.ask(OUT)
    way.gates[7].set()
    over(desk)
    assert way.done() == [(7, "out")]
    desk.ask(OUT)  # once it is over it may be asked again
    wait_until(lambda: len(way.calls) == 2, 5, "the second call")


def test_the_newest_wish_waits_and_wins(desk: Desk, way: Way) -> None:
    way.gates[7] = threading.Event()
    desk.ask(OUT)
    wait_until(lambda: way.calls, 5, "the call")
    desk.ask(replace(IN, resume=False))
    desk.ask(IN)
    seen = desk.seen("7")
    assert seen is not None and (seen.do, seen.resume, seen.state) == (Do.IN, True, WorkState.UNDER_WAY)
    assert way.done() == [(7, "out")]
    way.gates[7].set()
    assert over(desk).do is Do.IN
    assert way.done() == [(7, "out"), (7, "in")]
    assert way.calls[1][1]["continue"] is True


def test_a_wish_taken_back_is_not_done(desk: Desk, way: Way) -> None:
    way.gates[7] = threading.Event()
    desk.ask(OUT)
    wait_until(lambda: way.calls, 5, "the call")
    desk.ask(IN)
    desk.ask(OUT)
    way.gates[7].set()
    assert over(desk).do is Do.OUT
    assert way.done() == [(7, "out")]


def test_a_hung_node_does_not_hold_up_other_jobs(desk: Desk, way: Way) -> None:
    way.gates[7] = threading.Event()
    desk.ask(OUT)
    for number in range(8, 20):
        desk.ask(replace(OUT, ref=str(number), job_id=number))
    for number in range(8, 20):
        assert over(desk, str(number)).state is WorkState.DONE
    seen = desk.seen("7")
    assert seen is not None and seen.state is WorkState.UNDER_WAY


def test_forgotten_is_forgotten(desk: Desk, way: Way, woken: list[int]) -> None:
    way.gates[7] = threading.Event()
    desk.ask(OUT)
    wait_until(lambda: way.calls, 5, "the call")
    desk.forget("7")
    way.gates[7].set()
    wait_until(lambda: woken, 5, "the end")
    assert desk.seen("7") is None
    desk.ask(OUT)
    assert over(desk).state is WorkState.DONE


def test_forgotten_while_it_waits_and_asked_again(desk: Desk, way: Way) -> None:
    way.gates[7] = threading.Event()
    desk.ask(OUT)
    wait_until(lambda: way.calls, 5, "the call")
    desk.ask(IN)
    desk.forget("7")
    desk.ask(IN)
    way.gates[7].set()
    assert over(desk).do is Do.IN


def test_one_at_a_time_for_a_job_also_when_it_was_forgotten_and_asked_again(desk: Desk, way: Way) -> None:
    blocked = [replace(OUT, ref=str(number), job_id=number) for number in (1, 2, 3)]
    for work in blocked:
        way.gates[work.job_id] = threading.Event()
        desk.ask(work)
    wait_until(lambda: len(way.calls) == 3, 5, "all workers to be busy")
    way.gates[7] = threading.Event()
    desk.ask(OUT)
    desk.forget("7")
    desk.ask(OUT)
    way.gates[1].set()
    wait_until(lambda: (7, "out") in way.done(), 5, "the job's turn")
    desk.ask(IN)
    way.gates[2].set()
    way.gates[3].set()
    assert [over(desk, ref).state for ref in ("1", "2", "3")] == [WorkState.DONE] * 3
    desk.ask(replace(OUT, ref="9", job_id=9))
    over(desk, "9")
    assert (7, "in") not in way.done()
    way.gates[7].set()
    assert over(desk).do is Do.IN


def test_a_broken_way_is_a_failure(desk: Desk, way: Way) -> None:
    def broken(*_: object) -> Answer:
        raise RuntimeError("no\nmore sockets")

    way.answer = broken
    desk.ask(OUT)
    seen = over(desk)
    assert (seen.state, seen.why) == (WorkState.FAILED, "unreachable")
    assert "RuntimeError: no more sockets" in seen.message


def test_closed_begins_nothing(desk: Desk, way: Way) -> None:
    desk.close()
    desk.ask(OUT)
    assert desk.seen("7") is None and way.calls == []


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


FACTS = Answer(True, methods={"pageout": MethodFacts(True, "", 9)}, jobs={7: Held(5)})


def test_probes_keep_the_last_facts_for_three_intervals(way: Way) -> None:
    clock, nodes = Clock(), ["n1", "n2"]
    way.answer = lambda node, request: FACTS
    probes = Probes(way, clock, 1000.0, lambda: nodes, {"pageout": {}})
    wait_until(lambda: len(probes.facts()) == 2, 5, "the first facts")
    probes.close()
    assert probes.facts()["n1"].methods["pageout"].free == 9
    assert way.calls[0][1] == {"do": "probe", "options": {"pageout": {}}, "slurm": {}}
    way.answer = lambda node, request: FACTS if node == "n1" else failed("unreachable", "gone")
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


def test_without_methods_nothing_is_asked(way: Way) -> None:
    before = threading.active_count()
    probes = Probes(way, Clock(), 1.0, lambda: ["n1"], {})
    assert (threading.active_count(), dict(probes.facts()), way.calls) == (before, {}, [])


def test_probes_go_on_after_a_fault(way: Way) -> None:
    rounds: list[int] = []

    def nodes() -> list[str]:
        rounds.append(1)
        if len(rounds) == 1:
            raise RuntimeError("not yet")
        return ["n1"]

    way.answer = lambda node, request: FACTS
    probes = Probes(way, Clock(), 0.05, nodes, {"pageout": {}})
    wait_until(lambda: probes.facts(), 10, "facts after a fault")
    probes.close()
