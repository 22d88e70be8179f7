"""What keeps an order back that comes too late: each call that changes something asks first whether it still may."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from omfs_daemon.daemon.leadership.leadership import LeaseLost
from omfs_daemon.daemon.node_client.node_answers import OmfsNodeAnswer, failed
from omfs_daemon.daemon.node_client.transport import Request, Transport
from omfs_daemon.slurm.gateway import Gateway

QUERIES = frozenset(
    (
        *("settings", "jobs", "rows", "jobs_of", "find", "ended_jobs", "expected_starts", "units"),
        *("nodes", "partitions", "accounts", "licenses", "limits"),
    )
)
"""The calls of a gateway that change nothing."""


def fenced_gateway(gateway: Gateway, require: Callable[[], None]) -> Gateway:
    """The same, but ``require`` is called before each order, and raises if it must not be sent."""
    return cast(Gateway, _FencedGateway(gateway, require))


class _FencedGateway:
    def __init__(self, gateway: Gateway, require: Callable[[], None]) -> None:
        self._gateway = gateway
        self._require = require

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._gateway, name)
        return partial(self._order, found) if callable(found) and name not in QUERIES else found

    def _order(self, order: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        self._require()
        return order(*arguments, **named)


class FencedTransport:
    """A transport to nodes that does the same."""

    def __init__(self, transport: Transport, require: Callable[[], None]) -> None:
        self._transport = transport
        self._require = require

    def run(self, nodes: Sequence[str], request: Request, timeout: float) -> dict[str, OmfsNodeAnswer]:
        try:
            self._require()
        except LeaseLost as error:
            return dict.fromkeys(nodes, failed("unreachable", str(error)))
        return self._transport.run(nodes, request, timeout)
