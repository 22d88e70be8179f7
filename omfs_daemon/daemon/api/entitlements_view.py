"""The shape behind --json beside what makes it."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict
from omfs_daemon.config.entitlement_text import ShareView
from omfs_daemon.config.entitlement_text import to_rows
from omfs_daemon.daemon.store.entitlement_store import EntitlementStore


class EntitlementsView(TypedDict):
    """``source`` names the file in force; ``changed`` says what a change did, a line for each account."""

    source: str
    entitlements: list[ShareView]
    changed: NotRequired[list[str]]


class EntitlementChange(TypedDict):
    """A request: ``set`` needs account and percent, ``remove`` account, ``replace`` shares.

    ``set`` without parent leaves the account where it is; parent "" puts it at the top.
    """

    op: Literal["set", "remove", "replace"]
    account: NotRequired[str]
    percent: NotRequired[str]
    parent: NotRequired[str]
    shares: NotRequired[list[ShareView]]


def entitlements_view(store: EntitlementStore) -> EntitlementsView:
    return EntitlementsView(
        source=store.source,
        entitlements=to_rows(store.shares),
    )
