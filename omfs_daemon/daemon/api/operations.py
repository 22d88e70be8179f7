"""The operations of the control socket: who may request each, its arguments, and its method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Protocol, TypedDict

from omfs_daemon.daemon.api.callers import Caller, Role
from omfs_daemon.errors import ConfigError, DeniedError

if TYPE_CHECKING:
    from omfs_daemon.daemon.api.entitlements_view import EntitlementsView
    from omfs_daemon.daemon.api.history_view import CostsView, HistoryView
    from omfs_daemon.daemon.api.methods_view import MethodsView
    from omfs_daemon.daemon.api.plan_view import PlanView
    from omfs_daemon.daemon.api.shadow_view import ShadowView
    from omfs_daemon.daemon.api.status_view import StatusView
    from omfs_daemon.daemon.api.why_view import WhyView


class DoneView(TypedDict):
    """The answer to ``pause``, ``resume``, and ``reload``: one sentence on what is in force now."""

    done: str


LONGEST_HISTORY = 10_000


class Control(Protocol):
    """What the daemon does for requests. Called from several threads at once.

    Hides other users' jobs from callers who are not operators. Raises ControlError to refuse, ConfigError for wrong
    input; both reach the caller as one line.
    """

    def status(self, caller: Caller) -> StatusView: ...
    def plan(self, caller: Caller) -> PlanView: ...
    def why(self, caller: Caller, job: str) -> WhyView: ...

    def history(self, caller: Caller, limit: int, since: float) -> HistoryView:
        """The newest ``limit`` preemptions since a time (seconds since the epoch), newest first."""

    def costs(self, caller: Caller, limit: int, since: float) -> CostsView:
        """The costs of the newest ``limit`` preemptions and returns since a time, newest first."""

    def shadow(self, caller: Caller, since: float) -> ShadowView:
        """What a dry run would have done since a time."""

    def methods(self, caller: Caller) -> MethodsView: ...
    def entitlements(self, caller: Caller) -> EntitlementsView: ...

    def change_entitlements(self, caller: Caller, change: dict[str, object]) -> EntitlementsView:
        """``change`` is unchecked; ``store.entitlement_store.apply_change`` checks it."""

    def pause(self, caller: Caller, reason: str) -> DoneView: ...
    def resume(self, caller: Caller) -> DoneView: ...
    def reload(self, caller: Caller) -> DoneView: ...


Arguments = Mapping[str, object]
Answer = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Operation:
    """``names``: its arguments; ``call`` checks them and takes them from the request."""

    role: Role
    names: frozenset[str]
    call: Callable[[Control, Caller, Arguments], Answer]


def _operation(role: Role, call: Callable[[Control, Caller, Arguments], Answer], *names: str) -> Operation:
    return Operation(role, frozenset(names), call)


OPERATIONS: Mapping[str, Operation] = {
    "status": _operation(Role.USER, lambda control, who, _: control.status(who)),
    "plan": _operation(Role.USER, lambda control, who, _: control.plan(who)),
    "why": _operation(Role.USER, lambda control, who, given: control.why(who, _text(given, "job")), "job"),
    "history": _operation(
        Role.USER,
        lambda control, who, given: control.history(who, _limit(given), _seconds(given, "since")),
        "limit",
        "since",
    ),
    "costs": _operation(
        Role.USER,
        lambda control, who, given: control.costs(who, _limit(given), _seconds(given, "since")),
        "limit",
        "since",
    ),
    "shadow": _operation(
        Role.OPERATOR, lambda control, who, given: control.shadow(who, _seconds(given, "since")), "since"
    ),
    "methods": _operation(Role.USER, lambda control, who, _: control.methods(who)),
    "entitlements": _operation(Role.USER, lambda control, who, _: control.entitlements(who)),
    "change_entitlements": _operation(
        Role.OPERATOR,
        lambda control, who, given: control.change_entitlements(who, _table(given, "change")),
        "change",
    ),
    "pause": _operation(
        Role.OPERATOR, lambda control, who, given: control.pause(who, _text(given, "reason")), "reason"
    ),
    "resume": _operation(Role.OPERATOR, lambda control, who, _: control.resume(who)),
    "reload": _operation(Role.OPERATOR, lambda control, who, _: control.reload(who)),
}


def perform(control: Control, caller: Caller, request: object) -> Answer:
    """The answer to one request ``{"op": NAME, "args": {...}}``; ConfigError, DeniedError or ControlError."""
    if not isinstance(request, dict):
        raise ConfigError('request: must be an object {"op": NAME, "args": {...}}')
    name, given = request.get("op"), request.get("args", {})
    operation = OPERATIONS.get(name) if isinstance(name, str) else None
    if operation is None:
        close = get_close_matches(str(name), OPERATIONS, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"one of {', '.join(OPERATIONS)}"
        raise ConfigError(f"op = {str(name)[:40]!r}: unknown; {hint}")
    if operation.role is Role.OPERATOR and not caller.is_operator:
        raise DeniedError(f"{name}: only root, SlurmUser and operators may do this, not {caller.user}")
    if not isinstance(given, dict) or not given.keys() <= operation.names:
        raise ConfigError(f"args: {name} takes {', '.join(sorted(operation.names)) or 'no arguments'}")
    return operation.call(control, caller, given)


def _text(given: Arguments, name: str) -> str:
    value = given.get(name, "")
    if not isinstance(value, str) or len(value) > 1000:
        raise ConfigError(f"{name}: must be text of at most 1000 characters")
    return value


def _seconds(given: Arguments, name: str) -> float:
    value = given.get(name, 0.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise ConfigError(f"{name} = {str(value)[:40]}: must be seconds since the epoch")
    return float(value)


def _limit(given: Arguments) -> int:
    value = given.get("limit", 20)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LONGEST_HISTORY:
        raise ConfigError(f"limit = {str(value)[:40]}: must be a whole number from 1 to {LONGEST_HISTORY}")
    return value


def _table(given: Arguments, name: str) -> dict[str, object]:
    value = given.get(name)
    if not isinstance(value, dict):
        raise ConfigError(f"{name}: must be an object")
    return value
