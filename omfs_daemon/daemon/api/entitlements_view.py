"""The answer to ``omfs entitlements``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NotRequired, TypedDict

from omfs_daemon.config.entitlement_text import EntitlementRow, to_rows
from omfs_daemon.daemon.api.cycle_report import CycleReport
from omfs_daemon.daemon.store.entitlement_store import EntitlementStore


class EntitlementsView(TypedDict):
    """``source``: where the entitlements come from; ``changed``: after a change, a line for each account.

    ``cpus``: CPUs of the nodes that are up, of which ``entitled`` are the accounts', both as of the last poll.
    ``configuration_then``: a digest of those of the configuration at the last change, if there was one.
    ``conflict``: a line for each account where the configuration was edited after a change and says something else.
    """

    source: str
    cpus: NotRequired[int]
    entitled: NotRequired[dict[str, int]]
    conflict: NotRequired[list[str]]
    configuration_then: NotRequired[str]
    entitlements: list[EntitlementRow]
    changed: NotRequired[list[str]]


class EntitlementChange(TypedDict):
    """A change: ``set`` and ``replace`` need entitlements, ``remove`` an account.

    ``set`` without parent leaves an account where it is; parent "" puts it at the top. All are set, or none.
    """

    op: Literal["set", "remove", "replace"]
    account: NotRequired[str]
    entitlements: NotRequired[Sequence[EntitlementRow | RowWithoutParent]]


class RowWithoutParent(TypedDict):
    account: str
    percent: str


def entitlements_view(store: EntitlementStore, report: CycleReport) -> EntitlementsView:
    view = EntitlementsView(
        source=store.source,
        entitlements=to_rows(store.entitlements),
    )
    if report.plan is not None:
        view["cpus"] = report.plan.cpus
        view["entitled"] = {row.account: row.entitled for row in report.plan.accounts}
    if (then := store.configuration_then) is not None:
        view["configuration_then"] = then
    if conflict := store.conflict():
        view["conflict"] = conflict
    return view
