"""Count the calls to Slurm. An order for several jobs counts once for each job, as it does in slurmctld; a question
about many jobs or nodes is one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import Any, cast

from omfs_daemon.slurm.commands.job_details import SINGLE_QUERIES
from omfs_daemon.slurm.gateway import Gateway

_TWICE = ("release", "place_and_release")
"""The mark, and the release."""


class CallCounter:
    """Counts the calls of one gateway, from any thread."""

    def __init__(self) -> None:
        self.number = 0
        self._lock = Lock()

    def of(self, gateway: Gateway) -> Gateway:
        """A gateway that counts its calls and passes them on."""
        return cast(Gateway, _Counted(gateway, self))

    def add(self, number: int) -> None:
        with self._lock:
            self.number += number


class _Counted:
    def __init__(self, gateway: Gateway, calls: CallCounter) -> None:
        self._gateway = gateway
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._gateway, name)
        each = 2 if name in _TWICE and self._gateway.name == "commands" else 1
        if name == "units":
            return partial(self._units, found)
        if name == "nodes":
            return partial(self._nodes, found)
        return partial(self._call, found, each) if callable(found) else found

    def _units(self, ask: Callable[..., Any], jobs: Sequence[Any]) -> Any:
        self._calls.add(len(jobs) if len(jobs) <= SINGLE_QUERIES else 1)
        return ask(jobs)

    def _nodes(self, ask: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        self._calls.add(1)
        return ask(*arguments, **named)

    def _call(self, call: Callable[..., Any], each: int, *arguments: Any, **named: Any) -> Any:
        first = arguments[0] if arguments else None
        self._calls.add(each * len(first) if isinstance(first, tuple | list) and first else each)
        return call(*arguments, **named)
