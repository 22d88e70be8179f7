"""The answer to ``omfs plan --config NEW``: what a daemon with another configuration would do now instead."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

from omfs_daemon.config.entitlement_text import differences
from omfs_daemon.daemon.api.controls import Tried
from omfs_daemon.daemon.api.plan_view import ActionView, PlanView
from omfs_daemon.policy.rules.classes import Rules


class PlanDifferenceView(TypedDict):
    """``only_now``, ``only_new``: what one of the two would do and the other would not.

    ``entitlements``: a line for each account, in force -> new. ``at_restart``: keys that a reload would refuse;
    ``summary_new`` also says whether it would refuse the entitlements.
    """

    time: float
    summary_now: str
    summary_new: str
    only_now: list[ActionView]
    only_new: list[ActionView]
    entitlements: list[str]
    at_restart: list[str]


def plan_difference_view(now: PlanView, new: PlanView, rules: tuple[Rules, Rules], tried: Tried) -> PlanDifferenceView:
    """``rules``: those in force, and the new ones."""
    refused = f"; a reload would be refused: {tried.conflict}" if tried.conflict else ""
    return PlanDifferenceView(
        time=now["time"],
        summary_now=now["summary"],
        summary_new=new["summary"] + refused,
        only_now=_without(now["actions"], new["actions"]),
        only_new=_without(new["actions"], now["actions"]),
        entitlements=differences(rules[0].tree.entitlements, rules[1].tree.entitlements),
        at_restart=tried.at_restart,
    )


def _without(actions: Iterable[ActionView], others: Iterable[ActionView]) -> list[ActionView]:
    known = {_key(action) for action in others}
    return [action for action in actions if _key(action) not in known]


def _key(action: ActionView) -> tuple[object, ...]:
    victims = tuple((victim["job"], victim["method"]) for victim in action.get("victims", ()))
    return (action["kind"], action["job"], victims)
