"""CPUs by account, and how long accounts wait for what they own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry

from omfs_daemon.daemon.metric_groups.label_values import OTHER, GaugeByLabel
from omfs_daemon.policy.arrays.usage import AccountUsage

MOST_ACCOUNTS = 500
"""Accounts with series of their own, those with the largest entitlements; the sum of the others is ``other``."""


class AccountMetrics:
    """An account that vanishes loses its series."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str) -> GaugeByLabel:
            return GaugeByLabel(name, text, "account", registry)

        self._cpus = {
            "entitled": gauge("entitled_cpus", "CPUs that the account is entitled to"),
            "used": gauge("used_cpus", "CPUs allocated to the account's running jobs"),
            "borrowed": gauge("borrowed_cpus", "CPUs that the account uses above its entitlement"),
            "lent": gauge("lent_cpus", "CPUs of the account's entitlement that others use"),
            "pending": gauge("pending_cpus", "CPUs that the account's pending jobs request"),
        }
        self._waits = gauge(
            "entitled_wait_seconds",
            "How long a job that Slurm would start has waited while its account was below its entitlement, at most",
        )
        self._since: dict[tuple[str, str], float] = {}

    def observe(self, rows: Iterable[AccountUsage], waiting: Mapping[str, Iterable[str]], now: float) -> None:
        """``waiting``: by account, the jobs that wait for its entitlement now."""
        jobs = {(account, ref) for account, refs in waiting.items() for ref in refs}
        self._since = {key: self._since.get(key, now) for key in jobs}
        oldest: dict[str, float] = {}
        for (account, _), since in self._since.items():
            oldest[account] = min(since, oldest.get(account, now))
        found = _bounded(rows)
        waits = {row.account: 0.0 for row in found}
        for account, since in oldest.items():
            name = account if account in waits else OTHER
            waits[name] = max(waits.get(name, 0.0), now - since)
        for field, gauge in self._cpus.items():
            gauge.replace({row.account: getattr(row, field) for row in found})
        self._waits.replace(waits)


def _bounded(rows: Iterable[AccountUsage]) -> list[AccountUsage]:
    """The accounts with series of their own, and one row for the others."""
    ordered = sorted(rows, key=lambda row: (row.account == OTHER, -row.entitled, row.account))
    kept = [row for row in ordered[:MOST_ACCOUNTS] if row.account != OTHER]
    rest = ordered[len(kept) :]
    if not rest:
        return kept
    sums = [sum(getattr(row, field) for row in rest) for field in ("entitled", "used", "borrowed", "lent", "pending")]
    return [*kept, AccountUsage(OTHER, "", *sums)]
