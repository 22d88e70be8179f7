"""The answer to ``omfs shadow``: what a dry run would have done, by account and class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

from omfs_daemon.daemon.store.shadow_rows import ShadowKind, ShadowRow


class ShadowPreemptionsView(TypedDict):
    """``lost_cpu_seconds``: of work that the method does not keep, as of the decision."""

    method: str
    times: int
    jobs: int
    lost_cpu_seconds: float


class ShadowAccountView(TypedDict):
    """One account and class. Seconds are sums over the jobs; each decision is judged alone.

    earlier      jobs that would have started earlier, and have started since
    waiting      likewise, of those that still wait
    gone         likewise, of those that left the queue without a start: nothing is gained
    least_seconds, most_seconds   by how much earlier, at least and at most
    preempted    by method
    held         jobs that would have been held for some time
    """

    account: str
    job_class: str
    earlier: int
    waiting: int
    gone: int
    least_seconds: float
    most_seconds: float
    preempted: list[ShadowPreemptionsView]
    held: int


class ShadowView(TypedDict):
    """``watched_seconds``: in which the daemon decided in a dry run."""

    since: float
    now: float
    watched_seconds: float
    accounts: list[ShadowAccountView]


def shadow_view(rows: Iterable[ShadowRow], since: float, now: float) -> ShadowView:
    """``rows``: decisions since then, and times watched that reach into it."""
    watched, by_key = 0.0, dict[tuple[str, str], list[ShadowRow]]()
    for row in rows:
        if row.kind == ShadowKind.WATCHED:
            watched += max(0.0, min(now, row.ended or row.begun) - max(since, row.begun))
        else:
            by_key.setdefault((row.account, row.job_class), []).append(row)
    accounts = [_account(account, name, found, now) for (account, name), found in sorted(by_key.items())]
    return ShadowView(since=since, now=now, watched_seconds=watched, accounts=accounts)


def _account(account: str, name: str, rows: list[ShadowRow], now: float) -> ShadowAccountView:
    starts = [row for row in rows if row.kind == ShadowKind.START]
    preempted = [row for row in rows if row.kind == ShadowKind.PREEMPTION]
    gains = [row.gain(now) for row in starts]
    return ShadowAccountView(
        account=account,
        job_class=name,
        earlier=sum(row.started for row in starts),
        waiting=sum(row.ended is None for row in starts),
        gone=sum(row.ended is not None and not row.started for row in starts),
        least_seconds=round(sum(least for least, _ in gains), 3),
        most_seconds=round(sum(most for _, most in gains), 3),
        preempted=[_preemptions(method, preempted) for method in sorted({row.method for row in preempted})],
        held=sum(row.kind == ShadowKind.HOLD for row in rows),
    )


def _preemptions(method: str, rows: list[ShadowRow]) -> ShadowPreemptionsView:
    found = [row for row in rows if row.method == method]
    return ShadowPreemptionsView(
        method=method,
        times=len(found),
        jobs=len({row.job for row in found}),
        lost_cpu_seconds=round(sum(row.lost for row in found), 3),
    )
