"""What a daemon answers that stands by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from omfs_daemon import __version__
from omfs_daemon.daemon.api.callers import Caller
from omfs_daemon.daemon.api.operations import OPERATIONS
from omfs_daemon.daemon.api.status_view import PairView, StatusView
from omfs_daemon.errors import UnansweredError


class StandbyAnswers:
    """``pair``: what there is to say about both; ``host``: this one. Every operation but ``status`` is refused, with
    where to ask."""

    def __init__(self, gateway: str, host: str, pair: Callable[[], PairView], clock: Callable[[], float]) -> None:
        self._gateway = gateway
        self._host = host
        self._pair = pair
        self._clock = clock

    def status(self, caller: Caller) -> StatusView:
        pair = self._pair()
        return StatusView(
            version=__version__,
            time=self._clock(),
            gateway=self._gateway,
            slurm_version="",
            paused=None,
            dry_run=False,
            last_poll=None,
            last_error=None,
            summary=pair["text"],
            cluster={"nodes": 0, "nodes_up": 0, "cpus": 0, "cpus_shared": 0, "cpus_used": 0, "cpus_idle": 0},
            accounts=[],
            preemptions_under_way=[],
            preempted=[],
            held=0,
            held_jobs=[],
            set_aside=0,
            set_aside_jobs=[],
            scope="",
            not_in_scope=0,
            bounds=None,
            entitlements_source="",
            pair=pair,
        )

    def __getattr__(self, name: str) -> Any:
        if name not in OPERATIONS:
            raise AttributeError(name)
        where = self._pair()["host"]
        hint = f"ask on {where}" if where else "no omfsd is known to be active"
        raise UnansweredError(f"omfsd on {self._host} stands by: {hint}")
