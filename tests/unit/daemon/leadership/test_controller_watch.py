"""Where slurmctld is, as last answered."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from omfs_daemon.daemon.leadership.controller_watch import ControllerWatch
from omfs_daemon.daemon.leadership.lease import CONTROLLER_AWAY, Controller
from omfs_daemon.errors import GatewayTimeout
from tests.support.waiting import wait_until


def seen(ask: Callable[[], str], expected: Controller) -> float:
    with closing(ControllerWatch(ask, "ctl1", lambda: 7.0)) as watch:
        wait_until(lambda: watch.controller == expected, lambda: f"{expected}, not {watch.controller}")
        return watch.seen_here


def test_it_is_on_this_host() -> None:
    assert seen(lambda: "Slurmctld(primary) at ctl1 is UP\n", Controller("ctl1", True)) == 7.0


def test_it_is_elsewhere() -> None:
    printed = "Slurmctld(primary) at ctl1 is DOWN\nSlurmctld(backup) at ctl2 is UP\n"
    assert seen(lambda: printed, Controller("ctl2", False)) < 0


def test_an_answer_from_before_a_pause_is_none() -> None:
    now, answers = [7.0], ["Slurmctld(primary) at ctl1 is UP\n"]
    with closing(ControllerWatch(lambda: answers.pop() if answers else "", "ctl1", lambda: now[0])) as watch:
        wait_until(lambda: watch.controller.is_here, "an answer")
        now[0] += CONTROLLER_AWAY
        assert watch.controller == Controller() and watch.seen_here == 7.0


def test_nobody_answers() -> None:
    asked = []

    def ask() -> str:
        asked.append(1)
        raise GatewayTimeout("no answer")

    with closing(ControllerWatch(ask, "ctl1")) as watch:
        wait_until(lambda: asked, "a question")
        assert watch.controller == Controller() and watch.seen_here < 0
