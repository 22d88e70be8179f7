"""When Slurm is polled: at once when something happened, and never beyond a fraction of the time or a rate."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest

from omfs_daemon.daemon.poll_schedule import (
    BURST,
    CALM,
    CALM_SHARE,
    FAILED,
    IDLE_SHARE,
    LATER,
    LOOK_FOR,
    POLL_AGAIN,
    QUICK_POLL,
    PollKind,
    PollSchedule,
)

POLL = 10.0


class Loop:
    """The daemon's loop in virtual time: a full look takes ``full`` seconds, one for urgent jobs ``urgent``."""

    def __init__(self, full: float = 0.02, urgent: float = 0.02, calls: int = 3, rate: float = 1000.0) -> None:
        self.poll_schedule = PollSchedule()
        self.takes = {PollKind.FULL: full, PollKind.URGENT: urgent}
        self.calls, self.rate = calls, rate
        self.now = 0.0
        self.looks: list[tuple[float, PollKind]] = []
        self.under_way = self.needs_full = self.preempts = self.failed = self.in_vain = self.blind = False
        self.search = 0.0
        self.has_urgent = True
        self.due_at = inf

    def run(
        self, seconds: float, touched: bool = False, changed: bool = False, touched_later_at: float | None = None
    ) -> list[tuple[float, PollKind]]:
        """Polls that begin within so many seconds, in all of which something happens in Slurm, or nothing."""
        end, first = self.now + seconds, len(self.looks)
        while True:
            following = self.poll_schedule.next(
                self.now, POLL, self.under_way, touched, changed, self.has_urgent, self.due_at, touched_later_at
            )
            begin = max(self.now, following.at)
            if begin > end:
                self.now = end
                return self.looks[first:]
            self.now = begin + self.takes[following.poll]
            self.poll_schedule.polled(
                following.poll,
                begin,
                self.now,
                self.calls,
                self.rate,
                self.search or (POLL_AGAIN if touched else 0.0),
                self.needs_full and following.poll is PollKind.URGENT,
                self.preempts,
                self.failed,
                self.in_vain,
                self.blind and following.poll is PollKind.URGENT,
            )
            self.looks.append((begin, following.poll))
            changed, touched_later_at = False, None

    def rest(self) -> None:
        """Looks and a poll lie behind us, and nothing happens."""
        self.run(3 * POLL + 1)


def test_nothing_happens_but_polls() -> None:
    loop = Loop()
    times = [at for at, _ in loop.run(100)]
    assert {round(later - former, 6) for former, later in pairwise(times)} == {POLL + 0.02}


def test_a_job_that_becomes_due_is_decided_upon_then_and_once() -> None:
    loop = Loop()
    loop.rest()
    loop.due_at = loop.now + 3.3
    times = [at for at, _ in loop.run(2 * POLL)]
    assert loop.due_at in times
    assert len(times) <= 4, "what is past wakes nobody"


def test_a_job_that_becomes_due_while_a_poll_still_goes_on_is_not_forgotten() -> None:
    """The poll decides before it ends, so what becomes due in between is for the next one, at once."""
    loop = Loop(full=0.4)
    loop.rest()
    began, _ = loop.looks[-1]
    loop.now = began + 0.4
    loop.due_at = began + 0.3
    times = [at for at, _ in loop.run(0.9 * POLL)]
    assert times == [loop.now - 0.9 * POLL], "once"


def test_an_event_is_observed_at_once_and_once_more() -> None:
    loop = Loop()
    loop.rest()
    began = loop.now
    ((at, poll),) = loop.run(0, touched=True)
    assert (at, poll) == (began, PollKind.FULL)
    (again, poll), (behind, last) = loop.run(2)
    assert (poll, last) == (PollKind.URGENT, PollKind.FULL), "it was no new job: what else was it?"
    assert abs(again - loop.takes[PollKind.FULL] - began - POLL_AGAIN) < 1e-6
    assert abs(behind - loop.takes[PollKind.FULL] - began - CALM) < 1e-6


def test_events_in_close_succession_make_urgent_polls_only() -> None:
    loop = Loop()
    loop.rest()
    first = loop.run(0.9 * CALM, touched=True)
    assert [poll for _, poll in first] == [PollKind.FULL, *[PollKind.URGENT] * (len(first) - 1)]
    assert len(first) > 2


def test_what_is_not_urgent_is_for_one_full_poll_soon() -> None:
    for full in (0.02, 0.4):
        loop = Loop(full=full)
        loop.rest()
        ended, began = loop.looks[-1][0] + full, loop.now
        soon = max(began + POLL_AGAIN, ended + LATER)
        assert loop.run(LATER, touched_later_at=began) == [(soon, PollKind.FULL)]


def test_it_does_not_make_full_polls_frequent() -> None:
    loop = Loop()
    loop.rest()
    times: list[float] = []
    for _ in range(100):
        times += [at for at, _ in loop.run(0.1, touched_later_at=loop.now)]
    assert min(later - former for former, later in pairwise(times)) >= LATER
    assert len(times) >= 10 / (LATER + 0.3)


def test_where_nothing_is_urgent_events_in_close_succession_wait() -> None:
    loop = Loop()
    loop.has_urgent = False
    loop.rest()
    times = [at for at, _ in loop.run(10, touched=True)]
    assert min(later - former for former, later in pairwise(times)) >= CALM


def test_what_an_urgent_poll_leaves_open_is_for_a_full_one_at_once() -> None:
    loop = Loop(full=0.4)
    loop.rest()
    loop.needs_full = True
    began = loop.now
    ((_, first),) = loop.run(0, touched=True)
    loop.needs_full = False
    (at, second), *_ = loop.run(1)
    assert (first, second) == (PollKind.URGENT, PollKind.FULL)
    assert at <= began + loop.takes[PollKind.URGENT]


def test_what_an_urgent_poll_leaves_open_is_not_forgotten_at_the_next_one() -> None:
    loop = Loop(full=0.4)
    loop.rest()
    loop.run(0, changed=True)
    loop.now += loop.takes[PollKind.FULL]
    loop.needs_full = True
    loop.run(0, touched=True)
    loop.needs_full = False
    following = loop.poll_schedule
    following.polled(PollKind.URGENT, loop.now + 0.1, loop.now + 0.12, 3, loop.rate)
    at, poll = following.next(loop.now + 0.12, POLL, under_way=False, touched=False, changed=False, has_urgent=True)
    assert (at <= loop.now + 0.12, poll) == (True, PollKind.FULL)


def test_a_full_poll_that_had_begun_before_does_not_answer_for_the_one_that_is_needed() -> None:
    loop = Loop(full=2.2)
    began, schedule = loop.now, loop.poll_schedule
    schedule.polled(PollKind.URGENT, began + 1.0, began + 1.1, 3, loop.rate, needs_full=True)
    schedule.polled(PollKind.FULL, began, began + 2.2, 3, loop.rate)
    loop.now = began + 2.2
    ((at, poll),) = loop.run(4)
    allowed = began + 2.2 - BURST + (1 + IDLE_SHARE) * 2.2
    assert (round(at, 6), poll) == (round(allowed - BURST, 6), PollKind.FULL)
    assert at + 2.2 < loop.now and loop.run(CALM_SHARE * 2.2 - 4) == [], "and once"


def needing(loop: Loop) -> None:
    """An urgent poll has left something open."""
    loop.rest()
    loop.needs_full = True
    loop.run(0, touched=True)
    loop.needs_full = False


def test_a_full_poll_that_fails_is_made_again_at_once_for_what_an_urgent_one_has_left_open() -> None:
    loop = Loop(full=0.4)
    needing(loop)
    loop.failed, loop.takes[PollKind.FULL] = True, 10.0  # slurm.timeout_seconds
    ((began, first),) = loop.run(0.1)
    loop.failed, loop.takes[PollKind.FULL] = False, 0.4
    loop.now = began + 10.0
    ((again, second),) = loop.run(CALM)
    assert (first, second) == (PollKind.FULL, PollKind.FULL)
    assert round(again - began - 10.0, 6) == CALM
    assert not loop.run(0.9 * POLL), "and once"


def test_a_full_poll_that_was_in_vain_does_not_answer_for_the_one_that_is_needed() -> None:
    loop = Loop(full=0.4)
    needing(loop)
    loop.in_vain = True
    ((began, _),) = loop.run(0.1)
    loop.in_vain = False
    ((at, poll),) = loop.run(0.4)
    assert (round(at - began, 6), poll) == (0.4, PollKind.FULL)


def test_what_a_failed_poll_took_does_not_make_the_next_regular_ones_rare() -> None:
    loop = Loop()
    loop.rest()
    loop.failed, loop.takes[PollKind.FULL] = True, 10.0
    ((began, _),) = loop.run(POLL)
    loop.failed, loop.takes[PollKind.FULL] = False, 0.02
    loop.now = began + 10.0
    times = [at for at, _ in loop.run(2 * POLL + 1)]
    assert [round(at - began - 10.0, 6) for at in times] == [POLL, 2 * POLL + 0.02]


def test_an_urgent_poll_that_fails_does_not_keep_others_waiting_for_long() -> None:
    loop = Loop(full=0.4)
    loop.rest()
    loop.failed, loop.takes[PollKind.URGENT] = True, 10.0
    ((began, _),) = loop.run(0, touched=True)
    loop.failed, loop.takes[PollKind.URGENT] = False, 0.02
    loop.now = began + 10.0
    kinds = [poll for _, poll in loop.run((1 + IDLE_SHARE) * FAILED - BURST, touched=True)]
    assert PollKind.URGENT in kinds


def test_where_slurm_never_answers_in_time_polls_get_a_fifth_of_the_time_in_the_long_run() -> None:
    loop = Loop(full=10.0)
    needing(loop)
    loop.failed = True
    times = [at for at, _ in loop.run(1000)]
    assert min(later - former for former, later in pairwise(times[4:])) >= 10.0 * (1 + IDLE_SHARE) - 1e-6


def test_slurm_may_be_away_for_any_time() -> None:
    loop = Loop(full=0.3)
    loop.failed = True
    assert len(loop.run(20_000)) > 1100


def test_an_urgent_job_does_not_wait_because_there_were_many_full_polls() -> None:
    loop = Loop(full=0.4)
    loop.under_way = True
    loop.run(100)  # as many as may be
    loop.needs_full = True
    ((_, urgent),) = loop.run(0, touched=True)
    ended, loop.needs_full = loop.now + loop.takes[PollKind.URGENT], False
    (at, full), *_ = loop.run(1)
    assert (urgent, full) == (PollKind.URGENT, PollKind.FULL)
    assert at <= ended + 1e-6


def test_urgent_jobs_that_ask_for_full_polls_again_and_again_get_a_fifth_of_the_time_in_the_long_run() -> None:
    loop = Loop(full=0.4)
    loop.needs_full = True
    loop.run(1000, touched=True)
    spent = sum(loop.takes[kind] for _, kind in loop.looks if kind is PollKind.FULL)
    assert spent <= (1000 + 2 * BURST) / (1 + IDLE_SHARE) + 0.4


def test_a_slow_poll_is_followed_by_a_long_rest_while_nothing_happens() -> None:
    loop = Loop(full=2.0)
    times = [at for at, _ in loop.run(100)]
    assert {round(later - former, 6) for former, later in pairwise(times)} == {2.0 * (1 + CALM_SHARE)}


def test_where_a_full_poll_takes_long_only_urgent_jobs_are_polled_at_once() -> None:
    loop = Loop(full=0.4)
    loop.rest()
    began = loop.now
    ((at, poll),) = loop.run(0, touched=True)
    assert (at, poll) == (began, PollKind.URGENT)
    assert PollKind.FULL in [poll for _, poll in loop.run(POLL)], (
        "all the others are looked at when they would have been"
    )


@pytest.mark.parametrize("full", [0.2, 0.4, 2.5])
def test_an_urgent_job_that_slurm_lists_late_is_looked_for_again_and_again(full: float) -> None:
    loop = Loop(full=full)
    loop.rest()
    began, loop.search = loop.now, LOOK_FOR
    loop.run(0, touched=True)
    loop.search = 0.0
    looks = [at - began for at, poll in loop.run(9 * full) if poll is PollKind.URGENT]
    assert 3 <= len(looks) <= 8 and looks[-1] <= LOOK_FOR + full, "and not for ever"
    within = [at for at, _ in loop.looks if began <= at <= began + LOOK_FOR]
    assert all(later - former <= max(LOOK_FOR / 2, full) + 0.2 for former, later in pairwise(within))


def test_where_all_polls_are_full_ones_what_is_not_listed_is_looked_for_once() -> None:
    loop = Loop()
    loop.has_urgent = False
    loop.rest()
    loop.run(0, touched=True)
    assert len(loop.run(0.9 * POLL)) == 1


@pytest.mark.parametrize("full", [0.02, 0.1, 0.4, 2.5])
def test_a_search_makes_few_polls(full: float) -> None:
    """It follows each wake-up, whatever was found."""
    loop = Loop(full=full)
    loop.rest()
    loop.search = LOOK_FOR
    loop.run(0, touched=True)
    loop.search = 0.0
    assert len(loop.run(LOOK_FOR)) <= 10


@pytest.mark.parametrize("is_blind", [True, False])
def test_a_search_waits_for_a_full_poll_only_if_nothing_is_shown_before_it(is_blind: bool) -> None:
    loop = Loop(full=0.4)
    loop.rest()
    loop.search, loop.needs_full, loop.blind = LOOK_FOR, True, is_blind
    loop.run(0, touched=True)
    assert (loop.poll_schedule.again_at > loop.now + 2 * POLL_AGAIN) == is_blind
    loop.search, loop.needs_full, loop.blind = 0.0, False, False
    kinds = [poll for _, poll in loop.run(1)]
    assert kinds[0] is PollKind.FULL and PollKind.URGENT in kinds[1:]


def test_after_an_urgent_job_was_found_others_are_looked_for_once() -> None:
    loop = Loop(full=0.4)
    loop.rest()
    loop.run(0, touched=True)
    assert [poll for _, poll in loop.run(20)].count(PollKind.URGENT) <= 1, "or a full poll does it"


def test_what_was_changed_by_people_is_for_a_full_poll() -> None:
    loop = Loop(full=0.4)
    loop.rest()
    began = loop.now
    ((at, poll),) = loop.run(0.1, changed=True)
    assert (at, poll) == (began, PollKind.FULL)


def test_preemptions_under_way_are_observed() -> None:
    loop = Loop()
    loop.rest()
    loop.under_way = True
    times = [at for at, _ in loop.run(5)]
    assert {round(later - former, 6) for former, later in pairwise(times)} == {QUICK_POLL + 0.02}


def test_slurm_has_time_for_the_orders_of_an_urgent_poll_before_a_full_one() -> None:
    loop = Loop(full=0.4)
    loop.run(POLL / 2)
    loop.under_way = loop.preempts = True
    ((_, urgent),) = loop.run(0, touched=True)
    ordered, loop.preempts = loop.now + loop.takes[PollKind.URGENT], False
    times = [at for at, poll in loop.run(2) if poll is PollKind.FULL]
    assert urgent is PollKind.URGENT
    assert [round(at - former, 6) for former, at in zip((ordered, times[0] + 0.4), times[:2], strict=True)] == [
        QUICK_POLL,
        QUICK_POLL,
    ]


def test_preemptions_that_follow_each_other_do_not_put_full_polls_off_for_longer_than_when_nothing_happens() -> None:
    loop = Loop()
    loop.under_way = loop.preempts = True
    times = [at for at, poll in loop.run(100, touched=True) if poll is PollKind.FULL]
    assert max(later - former for former, later in pairwise(times)) <= POLL + 0.02 + 1e-6


def test_a_full_poll_that_was_in_vain_is_made_once_more_soon() -> None:
    loop = Loop()
    loop.rest()
    loop.in_vain = True
    loop.run(0, changed=True)
    loop.in_vain = False
    ended = loop.now + loop.takes[PollKind.FULL]
    (at, poll), *_ = loop.run(1)
    assert (round(at - ended, 6), poll) == (QUICK_POLL, PollKind.FULL)


def test_a_storm_of_events_gets_no_more_than_a_fifth_of_the_time_in_the_long_run() -> None:
    for full in (0.02, 0.4, 5.0):
        for under_way in (False, True):
            loop = Loop(full=full, urgent=full / 2)
            loop.under_way = under_way
            loop.run(1000, touched=True)
            for poll in PollKind:
                spent = sum(loop.takes[kind] for _, kind in loop.looks if kind is poll)
                assert spent <= (1000 + BURST) / (1 + IDLE_SHARE) + loop.takes[poll]


def test_a_slow_slurm_is_left_alone_for_longer() -> None:
    loop = Loop(full=20.0, urgent=20.0)
    loop.under_way = True
    times = [at for at, poll in loop.run(2000, touched=True) if poll is PollKind.FULL]
    assert min(later - former for former, later in pairwise(times[1:])) >= 20.0 * (1 + IDLE_SHARE) - 1e-6


def test_a_storm_of_events_makes_no_more_calls_than_the_rate_in_the_long_run() -> None:
    loop = Loop(full=0.001, calls=4, rate=5.0)
    loop.run(1000, touched=True)
    calls = 4 * len(loop.looks)
    assert 4000 <= calls <= 5.0 * (1000 + BURST) + 4


def test_orders_go_out_at_once_and_polls_wait_for_them() -> None:
    loop = Loop(rate=10.0)
    loop.rest()
    loop.poll_schedule.polled(PollKind.FULL, loop.now, loop.now, 500, 10.0, False)
    ((at, _),) = loop.run(60, touched=True)[:1]
    assert at - (loop.now - 60) >= 500 / 10.0 - BURST - 1e-6
