"""How what is decided is done: orders to Slurm at once, work on nodes by the desk, which tells later how it went."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

import structlog

from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.daemon.picture import Picture
from omfs_daemon.methods.base import Action, OnNodes
from omfs_daemon.nodes.work import Work, WorkSeen
from omfs_daemon.slurm.gateway import Gateway, Refusal
from omfs_daemon.slurm.orders import Order, give


class Desk(Protocol):
    """Work on nodes; see :mod:`omfs_daemon.nodes.desk`."""

    def ask(self, work: Work) -> None: ...

    def seen(self, ref: str) -> WorkSeen | None: ...

    def forget(self, ref: str) -> None: ...

    def close(self) -> None: ...


class NoDesk:
    """Where no way to the nodes is configured: nothing is done there."""

    def ask(self, work: Work) -> None:
        structlog.get_logger("nodes").error("no way to the nodes is configured", job=work.ref, method=work.method)

    def seen(self, ref: str) -> WorkSeen | None:
        return None

    def forget(self, ref: str) -> None:
        return None

    def close(self) -> None:
        return None


class NodeTerms(NamedTuple):
    """``timeout``: seconds for work on a node, by method; ``options`` of each method, as the site has written them;
    ``slurm``: where nodes find their Slurm."""

    timeout: Mapping[str, float] = {}
    options: Mapping[str, Mapping[str, object]] = {}
    slurm: Mapping[str, str] = {}


_TIMEOUT = 60.0


class Hands:
    """Both hands."""

    def __init__(self, gateway: Gateway, desk: Desk) -> None:
        self._gateway = gateway
        self.desk = desk

    def find(self, job_id: int) -> Job | None:
        """One job, ended ones too while Slurm still knows them. Raises GatewayError."""
        return self._gateway.find(job_id)

    def give(self, actions: Iterable[Action], picture: Picture, terms: NodeTerms) -> list[Refusal]:
        """Give them in turn; returns what Slurm refused. Raises GatewayError as ``orders.give`` does."""
        refusals: list[Refusal] = []
        run: list[Order] = []
        for action in actions:
            if isinstance(action, OnNodes):
                refusals += give(self._gateway, run)
                run = []
                self._ask(action, picture, terms)
            else:
                run.append(action)
        return refusals + give(self._gateway, run)

    def _ask(self, action: OnNodes, picture: Picture, terms: NodeTerms) -> None:
        job = picture.job(action.ref)
        if job is None or not job.on_nodes:
            return
        self.desk.ask(
            Work(
                ref=job.ref,
                job_id=job.id,
                uid=job.uid,
                nodes=job.on_nodes,
                do=action.do,
                method=action.method,
                resume=action.resume,
                suspended=job.state is JobState.SUSPENDED,
                options=terms.options.get(action.method, {}),
                slurm=terms.slurm,
                timeout=terms.timeout.get(action.method, _TIMEOUT),
            )
        )
