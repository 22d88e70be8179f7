"""The operations of the control socket: who may request each, its arguments, and its method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Protocol, TypedDict

from omfs_daemon.cluster.exemptions import END_OF_TIME
from omfs_daemon.daemon.api.callers import Caller, Role
from omfs_daemon.errors import ConfigError, DeniedError

if TYPE_CHECKING:
    from omfs_daemon.daemon.api.bound_chance_view import BoundChanceView
    from omfs_daemon.daemon.api.entitlements_view import EntitlementsView
    from omfs_daemon.daemon.api.exempt_view import ExemptView
    from omfs_daemon.daemon.api.history_view import CostsView, HistoryView
    from omfs_daemon.daemon.api.idle_hours_view import IdleHoursView
    from omfs_daemon.daemon.api.methods_view import MethodsView
    from omfs_daemon.daemon.api.plan_difference_view import PlanDifferenceView
    from omfs_daemon.daemon.api.plan_view import PlanView
    from omfs_daemon.daemon.api.predict_view import LearningView, PredictView, ScoresView
    from omfs_daemon.daemon.api.shadow_view import ShadowView
    from omfs_daemon.daemon.api.status_view import StatusView
    from omfs_daemon.daemon.api.wait_hours_view import WaitHoursView
    from omfs_daemon.daemon.api.when_view import WhenView
    from omfs_daemon.daemon.api.where_view import WhereView
    from omfs_daemon.daemon.api.why_view import WhyView


class DoneView(TypedDict):
    """The answer to ``pause``, ``resume``, and ``reload``: one sentence on what is in force now."""

    done: str


LONGEST_HISTORY = 10_000
LONGEST_WORD, MOST_WORDS = 10_000, 1000
"""Of the options of a job: characters, and how many."""
LONGEST_CONFIGURATION = 100_000
"""Characters of a configuration that is tried."""
_MOST_TEXTS = 1000
_MOST_CPUS = 100_000_000
_LONGEST = 365 * 86400
"""Slurm takes a job without a time limit to run a year."""


class Control(Protocol):
    """What the daemon does for requests. Called from several threads at once.

    Hides other users' jobs from callers who are not operators. Raises ControlError to refuse, ConfigError for wrong
    input; both reach the caller as one line.
    """

    def status(self, caller: Caller) -> StatusView: ...
    def plan(self, caller: Caller) -> PlanView: ...
    def plan_with(self, caller: Caller, text: str, source: str) -> PlanDifferenceView:
        """What a daemon with the configuration ``text`` would do now instead; ``source`` names it in messages."""

    def why(self, caller: Caller, job: str) -> WhyView: ...

    def when(self, caller: Caller, jobs: list[str], at_limit: bool) -> WhenView:
        """When these jobs will start; ``at_limit``: if every job ran to its limit."""

    def where(self, caller: Caller, words: list[tuple[str, str]]) -> WhereView:
        """Where a job with these options of sbatch would start first; each word with where it stands."""

    def bound_chance(self, caller: Caller, job_class: str, cpus: int, limit: float) -> BoundChanceView:
        """Whether a job of a real-time class would keep its bound if it were submitted now; ``limit``: seconds."""

    def predict(self, caller: Caller, job: str, user: str, name: str) -> PredictView:
        """How long a job will run, or one of this user and name would."""

    def score(self, caller: Caller, since: float, by: str) -> ScoresView:
        """How good predictions for jobs were that have ended since a time."""

    def learn(self, caller: Caller, since: float) -> LearningView:
        """Learn run times from accounting since a time."""

    def forget_user(self, caller: Caller, user: str) -> DoneView:
        """Delete what was learned from a user's jobs."""

    def history(self, caller: Caller, limit: int, since: float) -> HistoryView:
        """The newest ``limit`` preemptions since a time (seconds since the epoch), newest first."""

    def costs(self, caller: Caller, limit: int, since: float) -> CostsView:
        """The costs of the newest ``limit`` preemptions and returns since a time, newest first."""

    def shadow(self, caller: Caller, since: float) -> ShadowView:
        """What a dry run would have done since a time."""

    def idle_hours(self, caller: Caller, since: float) -> IdleHoursView:
        """Why CPUs were idle since a time, hour by hour."""

    def wait_hours(self, caller: Caller, since: float) -> WaitHoursView:
        """How long jobs had waited that started since a time, hour by hour."""

    def methods(self, caller: Caller) -> MethodsView: ...
    def entitlements(self, caller: Caller) -> EntitlementsView: ...

    def change_entitlements(self, caller: Caller, change: dict[str, object]) -> EntitlementsView:
        """``change`` is unchecked; ``store.entitlement_store.apply_change`` checks it."""

    def release(self, caller: Caller, job: str) -> DoneView:
        """End any hold of a job; it is not held again while it waits."""

    def exempt(self, caller: Caller, name: str, until: float | None) -> DoneView:
        """Never preempt a job, or jobs of a user or account, until a time (seconds since the epoch; None: for good)."""

    def end_exemption(self, caller: Caller, name: str) -> DoneView: ...
    def exemptions(self, caller: Caller) -> ExemptView: ...

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
    "plan_with": _operation(
        Role.OPERATOR,
        lambda control, who, given: control.plan_with(
            who, _long_text(given, "text", LONGEST_CONFIGURATION), _text(given, "source")
        ),
        "text",
        "source",
    ),
    "why": _operation(Role.USER, lambda control, who, given: control.why(who, _text(given, "job")), "job"),
    "when": _operation(
        Role.USER,
        lambda control, who, given: control.when(who, _texts(given, "jobs"), _switch(given, "at_limit")),
        "jobs",
        "at_limit",
    ),
    "where": _operation(Role.USER, lambda control, who, given: control.where(who, _words(given, "words")), "words"),
    "bound_chance": _operation(
        Role.USER,
        lambda control, who, given: control.bound_chance(
            who, _text(given, "job_class"), _whole(given, "cpus", _MOST_CPUS), float(_whole(given, "limit", _LONGEST))
        ),
        "job_class",
        "cpus",
        "limit",
    ),
    "predict": _operation(
        Role.USER,
        lambda control, who, given: control.predict(who, *(_text(given, name) for name in ("job", "user", "name"))),
        "job",
        "user",
        "name",
    ),
    "score": _operation(
        Role.USER,
        lambda control, who, given: control.score(who, _seconds(given, "since"), _text(given, "by")),
        "since",
        "by",
    ),
    "learn": _operation(
        Role.OPERATOR, lambda control, who, given: control.learn(who, _seconds(given, "since")), "since"
    ),
    "forget_user": _operation(
        Role.OPERATOR, lambda control, who, given: control.forget_user(who, _text(given, "user")), "user"
    ),
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
    "idle_hours": _operation(
        Role.USER, lambda control, who, given: control.idle_hours(who, _seconds(given, "since")), "since"
    ),
    "wait_hours": _operation(
        Role.OPERATOR, lambda control, who, given: control.wait_hours(who, _seconds(given, "since")), "since"
    ),
    "methods": _operation(Role.USER, lambda control, who, _: control.methods(who)),
    "entitlements": _operation(Role.USER, lambda control, who, _: control.entitlements(who)),
    "change_entitlements": _operation(
        Role.OPERATOR,
        lambda control, who, given: control.change_entitlements(who, _table(given, "change")),
        "change",
    ),
    "release": _operation(Role.OPERATOR, lambda control, who, given: control.release(who, _text(given, "job")), "job"),
    "exempt": _operation(
        Role.OPERATOR,
        lambda control, who, given: control.exempt(
            who, _text(given, "name"), None if given.get("until") is None else _seconds(given, "until")
        ),
        "name",
        "until",
    ),
    "end_exemption": _operation(
        Role.OPERATOR, lambda control, who, given: control.end_exemption(who, _text(given, "name")), "name"
    ),
    "exemptions": _operation(Role.OPERATOR, lambda control, who, _: control.exemptions(who)),
    "pause": _operation(
        Role.OPERATOR, lambda control, who, given: control.pause(who, _text(given, "reason")), "reason"
    ),
    "resume": _operation(Role.OPERATOR, lambda control, who, _: control.resume(who)),
    "reload": _operation(Role.OPERATOR, lambda control, who, _: control.reload(who)),
}


def takes_turns_itself(request: object) -> bool:
    """Whether the method of this request shares the processor with others by itself: it also waits for Slurm."""
    return isinstance(request, dict) and request.get("op") in ("where", "bound_chance")


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
    if operation.role is Role.OPERATOR and caller.is_remote:
        raise DeniedError(f"{name}: only on omfsd's own host; from others everybody may only ask, about their own jobs")
    if operation.role is Role.OPERATOR and not caller.is_operator:
        raise DeniedError(f"{name}: only root, SlurmUser and operators may do this, not {caller.user}")
    if not isinstance(given, dict) or not given.keys() <= operation.names:
        raise ConfigError(f"args: {name} takes {', '.join(sorted(operation.names)) or 'no arguments'}")
    return operation.call(control, caller, given)


def _text(given: Arguments, name: str) -> str:
    return _long_text(given, name, 1000)


def _long_text(given: Arguments, name: str, most: int) -> str:
    value = given.get(name, "")
    if not isinstance(value, str) or len(value) > most:
        raise ConfigError(f"{name}: must be text of at most {most} characters")
    return value


def _texts(given: Arguments, name: str) -> list[str]:
    value = given.get(name)
    texts = [one for one in value if isinstance(one, str) and len(one) <= 1000] if isinstance(value, list) else []
    if not isinstance(value, list) or not 1 <= len(value) <= _MOST_TEXTS or len(texts) < len(value):
        raise ConfigError(f"{name}: must be a list of 1 to {_MOST_TEXTS} texts")
    return texts


def _words(given: Arguments, name: str) -> list[tuple[str, str]]:
    value = given.get(name)
    pairs = value if isinstance(value, list) and len(value) <= MOST_WORDS else None
    if pairs is None or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise ConfigError(f"{name}: must be a list of at most {MOST_WORDS} words, each with where it stands")
    if not all(isinstance(text, str) and len(text) <= LONGEST_WORD for pair in pairs for text in pair):
        raise ConfigError(f"{name}: must be texts of at most {LONGEST_WORD} characters")
    return [(pair[0], pair[1]) for pair in pairs]


def _switch(given: Arguments, name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise ConfigError(f"{name}: must be true or false")
    return value


def _seconds(given: Arguments, name: str) -> float:
    value = given.get(name, 0.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < END_OF_TIME:
        raise ConfigError(f"{name} = {str(value)[:40]}: must be seconds since the epoch, before the year 9999")
    return float(value)


def _limit(given: Arguments) -> int:
    return _whole({"limit": 20, **given}, "limit", LONGEST_HISTORY)


def _whole(given: Arguments, name: str, most: int) -> int:
    value = given.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ConfigError(f"{name} = {str(value)[:40]}: must be a whole number from 1 to {most}")
    return value


def _table(given: Arguments, name: str) -> dict[str, object]:
    value = given.get(name)
    if not isinstance(value, dict):
        raise ConfigError(f"{name}: must be an object")
    return value
