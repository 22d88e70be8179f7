"""When Slurm is polled next, and for how much: regularly, or at once when something happened, within limits.

Polling takes at most a fraction of the time and a rate of calls. Pure: times of a monotonic clock go in and out.
"""

from __future__ import annotations

from enum import Enum
from math import inf
from typing import NamedTuple

QUICK_POLL = 0.2
"""Seconds between two polls while a preemption is under way. Slurm also has so long to carry out
its orders before all jobs are polled, which would keep slurmctld busy, the longer the more jobs there are."""

POLL_AGAIN = 0.05
"""Seconds from a poll after a wake-up to the next one, and to the first one if it is not urgent: the submit plug-in
runs before Slurm lists the job."""

LOOK_FOR = 6.0
"""Seconds after a wake-up for which urgent jobs are looked for, each time after twice as long: slurmctld may take
seconds from the submit plug-in until it lists the job, if there are many others."""

IDLE_SHARE = 4.0
"""Seconds without polling per second of polling, in the long run: a fifth of the time for each kind of poll."""

QUICK_ENOUGH = 0.1
"""Seconds; where a full poll takes less, it answers a wake-up as well as an urgent one."""

CALM_SHARE = 9.0
"""Seconds without full polls per second of the last one while nothing happens."""

CALM = 0.5
"""Seconds from a full poll to the next one that is made because something happened; urgent polls do not wait."""

LATER = 1.5
"""The same for what is not urgent: on a busy cluster a job is submitted or ends every second."""

BURST = 5.0
"""Seconds for which polls may come faster than in the long run, after as long a time with fewer. Full polls for
which an urgent job waits may do so for as long again."""


FAILED = 2.0
"""Seconds that a failed poll counts for at most, each further one in a row for twice as long. slurmctld may answer
again at any moment; where it never answers in time, polls are as rare as slow ones."""
_DOUBLED = 16  # times: then it is longer than any poll takes


class PollKind(Enum):
    """What is polled: everything, or only new jobs, for an urgent start (see ``NewJobs``)."""

    FULL = "full"
    URGENT = "urgent"


class NextPoll(NamedTuple):
    at: float
    poll: PollKind


class PollSchedule:
    """The latest polls, and what they allow next."""

    def __init__(self) -> None:
        self._ended = {poll: float("-inf") for poll in PollKind}
        self._began = float("-inf")
        self._took = dict.fromkeys(PollKind, 0.0)
        self._again, self._look_until = POLL_AGAIN, float("-inf")
        self._preempted = float("-inf")
        self._full_needed_at = float("-inf")
        """When an urgent poll last did not show enough; minus infinity once a full one has."""
        self._failures = dict.fromkeys(PollKind, 0)
        self._is_behind = self._is_blind = False
        self.was_in_vain = False
        """Whether nothing was concluded from the last full poll, since orders were given meanwhile."""
        self._may_poll = {poll: float("-inf") for poll in PollKind}
        self._may_call = float("-inf")

    def polled(
        self,
        poll: PollKind,
        began: float,
        ended: float,
        calls: int,
        rate: float,
        search: float = 0.0,
        needs_full: bool = False,
        preempts: bool = False,
        failed: bool = False,
        in_vain: bool = False,
        blind: bool = False,
    ) -> None:
        """Call after a poll and its orders. ``calls``: of Slurm in all, at most ``rate`` per second in the long run;
        ``search``: seconds for which an urgent job is to be looked for again; ``needs_full``: an urgent poll did not
        show enough; ``preempts``: a preemption was begun; ``failed``: Slurm did not answer; ``in_vain``: a full poll
        from which nothing was concluded, since orders were given meanwhile; ``blind``: an urgent poll showed nothing at
        all, nor will the next one before a full poll has."""
        if preempts:
            self._preempted = ended
        self._ended[poll] = ended
        if poll is PollKind.FULL:
            self._began, self.was_in_vain = began, in_vain
            if not (failed or in_vain) and self._full_needed_at <= began:
                self._full_needed_at = float("-inf")
        if search > 0:
            self._again, self._look_until = POLL_AGAIN, max(self._look_until, ended + search)
        elif ended < self._look_until:
            self._again *= 2
        if needs_full:
            self._full_needed_at = ended
        self._is_behind, self._is_blind = poll is PollKind.URGENT, blind
        # What a time with fewer polls has left over is kept for one burst.
        spent = self._spent(poll, ended - began, failed)
        self._may_poll[poll] = max(self._may_poll[poll], ended - BURST) + (1 + IDLE_SHARE) * spent
        self._may_call = max(self._may_call, ended - BURST) + calls / rate

    def _spent(self, poll: PollKind, took: float, failed: bool) -> float:
        """The seconds that a poll counts for. What a failed one took says nothing about the next one."""
        if not failed:
            self._failures[poll], self._took[poll] = 0, took
            return took
        self._failures[poll] += 1
        return min(took, FAILED * 2.0 ** min(self._failures[poll] - 1, _DOUBLED))

    @property
    def _needs_full(self) -> bool:
        """Whether no full poll that has begun since one was needed has succeeded."""
        return self._full_needed_at > float("-inf")

    @property
    def urgent_at(self) -> float:
        """From when on an urgent poll may be made, also while a full one goes on."""
        return max(self._may_poll[PollKind.URGENT], self._may_call)

    @property
    def again_at(self) -> float:
        """When what a wake-up was for is looked for again; infinite if it is not, or would not be found."""
        at = max(self._ended.values()) + self._again
        return at if at <= self._look_until and not self._is_blind else inf

    def next(
        self,
        now: float,
        poll: float,
        under_way: bool,
        touched: bool,
        changed: bool,
        has_urgent: bool,
        due_at: float = inf,
        touched_later_at: float | None = None,
    ) -> NextPoll:
        """The next poll.

        now, poll   the time, and seconds between two polls while nothing happens
        under_way   whether preemptions are under way
        touched     whether something that may be urgent has happened in Slurm since the last poll
        changed     whether something has happened elsewhere
        has_urgent  whether urgent polls are possible
        due_at      when something is to be decided although nothing happens, as the last full poll that succeeded knows
        touched_later_at  since when something has happened in Slurm that is not urgent
        """
        allowed = self._may_poll
        calm = max(poll, CALM_SHARE * self._took[PollKind.FULL])
        is_wanted = changed or self._needs_full
        at_once = CALM if self._failures[PollKind.FULL] else 0.0
        pause = at_once if is_wanted else QUICK_POLL if under_way or self.was_in_vain else calm
        if self._is_behind:
            pause = min(pause, CALM)
        ended, overdraft = self._ended[PollKind.FULL], BURST if self._needs_full else 0.0
        due = NextPoll(max(allowed[PollKind.FULL] - overdraft, ended + pause), PollKind.FULL)
        if under_way and not is_wanted:
            due = due._replace(at=max(due.at, min(self._preempted + QUICK_POLL, ended + calm)))
        if due_at > self._began:  # it decides before it ends; one that began later has decided, or has failed
            due = min(due, NextPoll(max(allowed[PollKind.FULL], due_at), PollKind.FULL), key=_at)
        full = NextPoll(max(allowed[PollKind.FULL], ended + CALM), PollKind.FULL)
        urgent = NextPoll(allowed[PollKind.URGENT], PollKind.URGENT)
        is_full_quick = self._took[PollKind.FULL] <= QUICK_ENOUGH and full.at <= now
        quick = urgent if has_urgent and not is_full_quick else full
        if touched:
            due = min(due, quick, key=_at)
        else:
            due = min(due, quick._replace(at=max(quick.at, self.again_at)), key=_at)
        if touched_later_at is not None:
            at = max(allowed[PollKind.FULL], ended + LATER, touched_later_at + POLL_AGAIN)
            due = min(due, NextPoll(at, PollKind.FULL), key=_at)
        return due._replace(at=max(due.at, self._may_call))


def _at(one: NextPoll) -> float:
    return one.at
