"""Sends orders to Slurm through the gateway, and to nodes through the work queue."""

from __future__ import annotations

from collections.abc import Iterable

from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.daemon.node_client.work_queue import NodeWorkQueue
from omfs_daemon.preemption.methods.base import Action, NodeOrder
from omfs_daemon.preemption.methods.node_work import NodeWork, NodeWorkSettings
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.slurm.gateway import Gateway, OrderRefusal
from omfs_daemon.slurm.orders import Order, send_orders

_TIMEOUT = 60.0


class Executor:
    """Sends orders in the given sequence, whichever side they are for."""

    def __init__(self, gateway: Gateway, work_queue: NodeWorkQueue) -> None:
        self._gateway = gateway
        self.work_queue = work_queue

    def find(self, job_id: int) -> Job | None:
        """One job, also an ended one that Slurm still knows. Raises GatewayError."""
        return self._gateway.find(job_id)

    def give(
        self, actions: Iterable[Action], observation: Observation, settings: NodeWorkSettings
    ) -> list[OrderRefusal]:
        """Send them in turn; returns what Slurm refused. Raises GatewayError as ``send_orders`` does."""
        refusals: list[OrderRefusal] = []
        batch: list[Order] = []
        for action in actions:
            if isinstance(action, NodeOrder):
                refusals += send_orders(self._gateway, batch)
                batch = []
                self._queue(action, observation, settings)
            else:
                batch.append(action)
        return refusals + send_orders(self._gateway, batch)

    def _queue(self, action: NodeOrder, observation: Observation, settings: NodeWorkSettings) -> None:
        job = observation.job(action.ref)
        if job is None or not job.on_nodes:
            return
        self.work_queue.ask(
            NodeWork(
                ref=job.ref,
                job_id=job.id,
                uid=job.uid,
                nodes=job.on_nodes,
                do=action.do,
                method=action.method,
                resume=action.resume,
                suspended=job.state is JobState.SUSPENDED,
                options=settings.options.get(action.method, {}),
                slurm=settings.slurm,
                timeout=settings.timeout.get(action.method, _TIMEOUT),
            )
        )
