"""Reads Slurm's accounting a day at a time, and rests after each for as long as the answer took."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import structlog

from omfs_daemon.accounting.ended_days import AccountedEnd
from omfs_daemon.daemon.learning.learned_jobs import LearnedJobs
from omfs_daemon.daemon.rest import Rest
from omfs_daemon.errors import GatewayError

_DAY = 86400.0
_AWAY = 60.0
_LONGEST_AWAY = 3600.0
_LONGEST_REST = 60.0


class LearningState(NamedTuple):
    """What is to be learned from accounting still: days; ``error``: why it is not read now, "" if it is."""

    days_left: int
    error: str


class AccountingReader:
    """``ask_day``: the runs that ended within a day; None where no accounting runs. What is to be read is in the store,
    so that it goes on after a restart."""

    def __init__(
        self,
        learned: LearnedJobs,
        ask_day: Callable[[float, float], list[AccountedEnd] | None],
        clock: Callable[[], float],
        rest: Callable[[float], None] = time.sleep,
    ) -> None:
        self._learned, self._ask_day, self._clock, self._rest = learned, ask_day, clock, rest
        self._away, self._away_rest = 0.0, Rest()
        self._error = ""
        self._log = structlog.get_logger("predict")

    def learn_from(self, begin: float, until: float) -> None:
        """Read this period, too."""
        self._learned.store.ask_to_learn(begin, until)
        self._away, self._away_rest = 0.0, Rest()

    @property
    def state(self) -> LearningState:
        left = sum(-(-(until - begin) // _DAY) for begin, until in self._learned.store.days_to_learn())
        return LearningState(int(left), self._error)

    def read_day(self) -> bool:
        """One day; whether there is another."""
        days = self._learned.store.days_to_learn()
        if not days or not self._away_rest.is_over(self._clock()):
            return False
        begin, until = days[0]
        end = min(begin + _DAY, until)
        asked = time.monotonic()
        try:
            accounted = self._ask_day(begin, end)
        except GatewayError as error:
            self._try_later(error)
            return False
        self._error, self._away = "", 0.0
        if accounted is None:
            self._learned.store.learn_no_more()
            return False
        self._learned.store.add([one.end for one in accounted if one.end.how is None])
        whole = [self._learned.whole(one.end, one.goes_on) for one in accounted if one.end.how is not None]
        self._learned.learn(whole, (begin, end))
        if not self._learned.store.days_to_learn():
            self._learned.learn_anew()  # in the order in which jobs ended
            self._log.info("accounting_read", jobs=self._learned.store.count())
        self._rest(min(_LONGEST_REST, time.monotonic() - asked))
        return True

    def _try_later(self, error: GatewayError) -> None:
        self._away = min(_LONGEST_AWAY, max(_AWAY, 2 * self._away))
        self._away_rest.begin(self._clock(), self._away)
        if not self._error:
            text = "run times are learned from accounting once slurmdbd answers"
            self._log.warning("accounting_not_read", error=str(error), message=text)
        self._error = str(error)
