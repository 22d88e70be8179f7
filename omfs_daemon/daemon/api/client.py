"""The client of the daemon's control socket (on login nodes: :mod:`~omfs_daemon.daemon.api.login_client`)."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from omfs_daemon.errors import (
    ConfigError,
    ControlError,
    DeniedError,
    NotRunningError,
    UnansweredError,
    UnreachableError,
)

if TYPE_CHECKING:
    from omfs_daemon.daemon.api.bound_chance_view import BoundChanceView
    from omfs_daemon.daemon.api.entitlements_view import EntitlementChange, EntitlementsView
    from omfs_daemon.daemon.api.exempt_view import ExemptView
    from omfs_daemon.daemon.api.history_view import CostsView, HistoryView
    from omfs_daemon.daemon.api.idle_hours_view import IdleHoursView
    from omfs_daemon.daemon.api.methods_view import MethodsView
    from omfs_daemon.daemon.api.operations import DoneView
    from omfs_daemon.daemon.api.plan_difference_view import PlanDifferenceView
    from omfs_daemon.daemon.api.plan_view import PlanView
    from omfs_daemon.daemon.api.predict_view import LearningView, PredictView, ScoresView
    from omfs_daemon.daemon.api.shadow_view import ShadowView
    from omfs_daemon.daemon.api.status_view import StatusView
    from omfs_daemon.daemon.api.wait_hours_view import WaitHoursView
    from omfs_daemon.daemon.api.when_view import WhenView
    from omfs_daemon.daemon.api.where_view import WhereView
    from omfs_daemon.daemon.api.why_view import WhyView

LONGEST_ANSWER = 64 << 20
TIMEOUT_SECONDS = 30.0
_CONNECT_AGAIN = 0.02


class Client:
    """Sends requests to the daemon, each over its own connection.

    UnreachableError when there is no answer within ``timeout`` seconds, DeniedError when the caller lacks permission,
    ConfigError when the input is wrong, ControlError when the daemon refuses.
    """

    def __init__(self, path: Path | str, timeout: float = TIMEOUT_SECONDS) -> None:
        self._path = str(path)
        self._timeout = timeout

    def status(self) -> StatusView:
        return cast("StatusView", self._request("status"))

    def plan(self) -> PlanView:
        return cast("PlanView", self._request("plan"))

    def plan_with(self, text: str, source: str) -> PlanDifferenceView:
        return cast("PlanDifferenceView", self._request("plan_with", text=text, source=source))

    def why(self, job: str) -> WhyView:
        return cast("WhyView", self._request("why", job=job))

    def when(self, jobs: Sequence[str], at_limit: bool) -> WhenView:
        return cast("WhenView", self._request("when", jobs=list(jobs), at_limit=at_limit))

    def where(self, words: Sequence[tuple[str, str]]) -> WhereView:
        return cast("WhereView", self._request("where", words=list(words)))

    def bound_chance(self, job_class: str, cpus: int, limit: int) -> BoundChanceView:
        return cast("BoundChanceView", self._request("bound_chance", job_class=job_class, cpus=cpus, limit=limit))

    def predict(self, job: str, user: str, name: str) -> PredictView:
        return cast("PredictView", self._request("predict", job=job, user=user, name=name))

    def score(self, since: float, by: str) -> ScoresView:
        return cast("ScoresView", self._request("score", since=since, by=by))

    def learn(self, since: float) -> LearningView:
        return cast("LearningView", self._request("learn", since=since))

    def forget_user(self, user: str) -> DoneView:
        return cast("DoneView", self._request("forget_user", user=user))

    def history(self, limit: int, since: float) -> HistoryView:
        return cast("HistoryView", self._request("history", limit=limit, since=since))

    def costs(self, limit: int, since: float) -> CostsView:
        return cast("CostsView", self._request("costs", limit=limit, since=since))

    def shadow(self, since: float) -> ShadowView:
        return cast("ShadowView", self._request("shadow", since=since))

    def idle_hours(self, since: float) -> IdleHoursView:
        return cast("IdleHoursView", self._request("idle_hours", since=since))

    def wait_hours(self, since: float) -> WaitHoursView:
        return cast("WaitHoursView", self._request("wait_hours", since=since))

    def methods(self) -> MethodsView:
        return cast("MethodsView", self._request("methods"))

    def entitlements(self) -> EntitlementsView:
        return cast("EntitlementsView", self._request("entitlements"))

    def change_entitlements(self, change: EntitlementChange) -> EntitlementsView:
        return cast("EntitlementsView", self._request("change_entitlements", change=change))

    def release(self, job: str) -> DoneView:
        return cast("DoneView", self._request("release", job=job))

    def exempt(self, name: str, until: float | None) -> DoneView:
        return cast("DoneView", self._request("exempt", name=name, until=until))

    def end_exemption(self, name: str) -> DoneView:
        return cast("DoneView", self._request("end_exemption", name=name))

    def exemptions(self) -> ExemptView:
        return cast("ExemptView", self._request("exemptions"))

    def pause(self, reason: str) -> DoneView:
        return cast("DoneView", self._request("pause", reason=reason))

    def resume(self) -> DoneView:
        return cast("DoneView", self._request("resume"))

    def _request(self, operation: str, **arguments: object) -> Any:
        request = json.dumps({"op": operation, "args": arguments}).encode() + b"\n"
        try:
            line = self._exchange(request)
        except (FileNotFoundError, ConnectionRefusedError):
            raise NotRunningError(f"{self._path}: no omfsd listens here; is it running?") from None
        except TimeoutError:
            raise UnreachableError(f"{self._path}: no answer within {self._timeout:g} s") from None
        except OSError as error:
            raise UnreachableError(f"{self._path}: {error.strerror or error}") from None
        return _result(line, self._path)

    def _exchange(self, request: bytes) -> bytes:
        deadline = time.monotonic() + self._timeout
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(self._timeout)
            self._connect(connection, deadline)
            with suppress(BrokenPipeError, ConnectionResetError):  # it may have been refused already
                connection.sendall(request)
            return received_line(connection, deadline, LONGEST_ANSWER)

    def _connect(self, connection: socket.socket, deadline: float) -> None:
        """Again while too many others wait to be accepted."""
        while True:
            try:
                connection.connect(self._path)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError from None
                time.sleep(_CONNECT_AGAIN)


def received_line(connection: socket.socket, deadline: float, longest: int) -> bytes:
    """Until its end, the end of the connection, or about ``longest`` bytes; TimeoutError at the deadline."""
    received = bytearray()
    while not received.endswith(b"\n") and len(received) <= longest:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        part = connection.recv(1 << 16)
        if not part:
            break
        received += part
    return bytes(received)


def _result(line: bytes, path: str) -> object:
    try:
        answer = json.loads(line)
    except ValueError:
        raise UnreachableError(f"{path}: the answer is truncated or not omfsd's") from None
    if "ok" in answer:
        return answer["ok"]
    text = str(answer.get("error", "no answer"))
    match answer.get("kind"):
        case "denied":
            raise DeniedError(text)
        case "input":
            raise ConfigError(text)
        case "unanswered":
            raise UnansweredError(text)
    raise ControlError(text)
