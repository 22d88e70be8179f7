"""The answer to ``omfs entitlements``."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from omfs_daemon.config.entitlement_text import EntitlementRow, to_rows
from omfs_daemon.daemon.store.entitlement_store import EntitlementStore


class EntitlementsView(TypedDict):
    """``source``: where the entitlements come from; ``changed``: after a change, a line for each account."""

    source: str
    entitlements: list[EntitlementRow]
    changed: NotRequired[list[str]]


class EntitlementChange(TypedDict):
    """A change: ``set`` needs account and percent, ``remove`` account, ``replace`` entitlements.

    ``set`` without parent leaves the account where it is; parent "" puts it at the top.
    """

    op: Literal["set", "remove", "replace"]
    account: NotRequired[str]
    percent: NotRequired[str]
    parent: NotRequired[str]
    entitlements: NotRequired[list[EntitlementRow]]


def entitlements_view(store: EntitlementStore) -> EntitlementsView:
    return EntitlementsView(
        source=store.source,
        entitlements=to_rows(store.entitlements),
    )
