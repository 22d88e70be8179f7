"""Requests that share a part of a core: in turn, in proportion, and none for longer than a client waits."""

from __future__ import annotations

import threading

import pytest

from omfs_daemon.daemon.api.client import TIMEOUT_SECONDS
from omfs_daemon.daemon.api.shared_core import SHARE_OF_VIEWS, SharedCore, UsersTurns
from omfs_daemon.errors import ControlError
from tests.support.waiting import LIMIT


class Core:
    """On a clock that only sleeping, and work that says so, moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self.core = SharedCore(lambda: self.now, self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def work(self, seconds: float, uid: int = 1) -> None:
        with self.core.request(uid) as turn, turn():
            self.now += seconds


def test_all_requests_together_take_a_share_of_a_core() -> None:
    core = Core()
    for uid in range(3):
        core.work(1.0, uid)
    assert core.slept == [0.0, 4.0, 4.0]


def test_turns_of_one_request_are_shared_out_alike() -> None:
    core = Core()
    with core.core.request(1) as turn:
        with turn():
            core.now += 1.0
        core.now += 3.0
        with turn():
            pass
    assert core.slept == [0.0, 1.0]


def test_nobody_waits_longer_than_a_client_does() -> None:
    core = Core()
    core.work(8.0)
    with pytest.raises(ControlError, match="too many such requests at once: try again in 32 s"):
        core.work(1.0)
    assert core.slept == [0.0], "it is refused at once"
    core.now += 13.0
    core.work(1.0)
    assert core.slept == [0.0, 19.0]
    assert core.slept[-1] < TIMEOUT_SECONDS


def test_the_wait_for_others_and_that_for_the_turn_are_one() -> None:
    core = Core()
    core.work(3.0)
    with core.core.request(1) as turn:
        core.now += 9.0  # as if another one had been answered
        with turn():
            pass
    assert core.slept == [0.0, 3.0]
    with core.core.request(1) as turn:
        with turn():
            core.now += 6.0
        with pytest.raises(ControlError, match="try again in 24 s"), turn():
            pass


def test_a_turn_that_others_have_is_not_waited_for_beyond_the_deadline() -> None:
    core = Core()
    with core.core.request(1) as one, core.core.request(2) as other, one():
        core.now += TIMEOUT_SECONDS
        with pytest.raises(ControlError, match="too many such requests at once"), other():
            pass


def test_a_user_has_one_request_at_a_time() -> None:
    core = Core()
    with core.core.request(1), pytest.raises(ControlError, match="another such request of yours"):
        core.work(1.0)
    with core.core.request(1):
        core.work(1.0, uid=2)
    core.work(1.0)
    with pytest.raises(ZeroDivisionError), core.core.request(1) as turn, turn():
        core.now += 1.0
        raise ZeroDivisionError
    core.work(1.0)
    assert core.slept[-1] == 4.0, "what fails has taken time, too, and leaves the way free"


def test_a12_users_who_ask_without_pause_take_a_share_of_a_core() -> None:
    """However many they are, and however often: a cycle meanwhile has the rest."""
    core = Core()
    turns = UsersTurns(lambda: core.now, core._sleep)
    for request in range(80):
        with turns.turn(request % 8):
            core.now += 0.05
    assert sum(core.slept) == pytest.approx(79 * 0.05 * (1 / SHARE_OF_VIEWS - 1))
    assert SHARE_OF_VIEWS < 1 / 3, "a cycle takes at most half as long again: while a view is made it has half a core"


def test_a12_requests_of_one_user_wait_for_each_other_not_in_the_line_of_all() -> None:
    turns, inside = UsersTurns(), threading.Event()
    go, order = threading.Event(), []

    def ask(uid: int) -> None:
        with turns.turn(uid):
            inside.set()
            go.wait(LIMIT)
            order.append(uid)

    first = threading.Thread(target=ask, args=(1,))
    first.start()
    assert inside.wait(LIMIT)
    others = [threading.Thread(target=ask, args=(uid,)) for uid in (1, 1, 1, 2)]
    for other in others:
        other.start()
    go.set()
    for thread in (first, *others):
        thread.join(LIMIT)
    assert sorted(order) == [1, 1, 1, 1, 2]
    assert not turns._users
