"""Probes the nodes in the background: usable methods, free space, and sizes of jobs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import structlog

from omfs_daemon.daemon.node_client.node_answers import Held, MethodFacts, OmfsNodeAnswer
from omfs_daemon.daemon.node_client.transport import Transport
from omfs_daemon.protocol.node_request import PROBE

_TIMEOUT = 20.0
_STALE_AFTER = 3  # intervals
_SOON = 0.5


@dataclass(frozen=True, slots=True)
class ProbedNode:
    """One node as of its last answer; ``jobs`` by raw id."""

    at: float
    methods: Mapping[str, MethodFacts]
    jobs: Mapping[int, Held]


class Probes:
    """Probes all nodes every ``every`` seconds; without ``options`` (no node-level method is configured), never.

    ``nodes`` is called in the background thread for their names. ``options``: by method, as for its work. ``clock``
    must be monotonic. The facts of a node that has not answered for three intervals are dropped.
    """

    def __init__(
        self,
        transport: Transport,
        clock: Callable[[], float],
        every: float,
        nodes: Callable[[], Sequence[str]],
        options: Mapping[str, Mapping[str, object]],
        slurm: Mapping[str, str] | None = None,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._every = every
        self._nodes = nodes
        self._request: dict[str, object] = {
            "do": PROBE,
            "options": {name: dict(value) for name, value in options.items()},
            "slurm": dict(slurm or {}),
        }
        self._facts: Mapping[str, ProbedNode] = MappingProxyType({})
        self._unseen: Mapping[str, OmfsNodeAnswer] = MappingProxyType({})
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        if options:
            self._thread = threading.Thread(target=self._serve, name="omfs-probes", daemon=True)
            self._thread.start()

    def facts(self) -> Mapping[str, ProbedNode]:
        """The facts that are not too old, by node."""
        oldest = self._clock() - _STALE_AFTER * self._every
        facts = self._facts
        return MappingProxyType({node: found for node, found in facts.items() if found.at >= oldest})

    def unseen(self) -> Mapping[str, OmfsNodeAnswer]:
        """The nodes that did not answer the last time, and why."""
        return self._unseen

    def close(self) -> None:
        """Probe no more; does not wait for a probe under way."""
        self._closed.set()

    def refresh(self) -> None:
        """Probe all nodes now, in this thread."""
        nodes = list(self._nodes())
        started_at = self._clock()
        answers = self._transport.run(nodes, self._request, _TIMEOUT) if nodes else {}
        good = {node: ProbedNode(started_at, a.methods, a.jobs) for node, a in answers.items() if a.ok}
        kept = {node: found for node, found in self._facts.items() if node in nodes}
        self._facts = MappingProxyType(kept | good)
        self._unseen = MappingProxyType({node: answer for node, answer in answers.items() if not answer.ok})

    def _serve(self) -> None:
        while not self._closed.is_set():
            try:
                if not self._nodes():  # before the daemon's first poll
                    self._closed.wait(min(_SOON, self._every))
                    continue
                self.refresh()
            except Exception:  # the daemon goes on without facts, which become stale; the next round tries again
                structlog.get_logger("nodes").exception("node_probe_failed")
                self._closed.wait(self._every)
                continue
            self._closed.wait(self._every)


class Probed(NamedTuple):
    """The latest probes. ``methods``: those that are probed, None without a transport; ``facts``: of nodes that
    answered; ``unseen``: the failures of the others."""

    methods: frozenset[str] | None = None
    facts: Mapping[str, ProbedNode] = {}
    unseen: Mapping[str, OmfsNodeAnswer] = {}
