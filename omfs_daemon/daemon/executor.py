"""Sends orders to Slurm through the gateway, and to nodes through the work queue."""

from __future__ import annotations

from collections.abc import Iterable

from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.daemon.node_client.work_queue import NodeWorkQueue
from omfs_daemon.daemon.store.journal import Journal
from omfs_daemon.preemption.methods.base import Action, NodeOrder
from omfs_daemon.preemption.methods.node_work import NodeWork, NodeWorkSettings
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.preemption.state import OrdersNumbered
from omfs_daemon.slurm.gateway import Gateway, OrderRefusal
from omfs_daemon.slurm.order_marks import StoredMarks, with_marks
from omfs_daemon.slurm.orders import MarkedOrder, Order, ReleaseJobs, send_orders

_TIMEOUT = 60.0


class Executor:
    """Sends orders in the given sequence, whichever side they are for; numbers each batch that writes marks."""

    def __init__(self, gateway: Gateway, work_queue: NodeWorkQueue, journal: Journal) -> None:
        self._gateway = gateway
        self.work_queue = work_queue
        self._journal = journal
        self._snapshot: Snapshot | None = None
        self._stored = StoredMarks(lambda _: None)

    def find(self, job_id: int) -> Job | None:
        """One job, also an ended one that Slurm still knows. Raises GatewayError."""
        return self._gateway.find(job_id)

    def give(
        self, actions: Iterable[Action], observation: Observation, settings: NodeWorkSettings
    ) -> list[OrderRefusal]:
        """Send them in turn; returns what Slurm refused. JournalError before anything is sent, GatewayError as
        ``send_orders`` raises it."""
        if observation.snapshot is not self._snapshot:
            self._snapshot, self._stored = observation.snapshot, StoredMarks(observation.job)
        marked = self._numbered(actions)
        refusals: list[OrderRefusal] = []
        batch: list[Order | MarkedOrder] = []
        for action in marked:
            if isinstance(action, NodeOrder):
                refusals += send_orders(self._gateway, batch)
                batch = []
                self._queue(action, observation, settings)
            else:
                batch.append(action)
        refusals += send_orders(self._gateway, batch)
        self._stored.forget(refusal.ref for refusal in refusals)
        return refusals

    def _numbered(self, actions: Iterable[Action]) -> list[Action | MarkedOrder]:
        """The number is on disk before a mark has it: no number is used twice."""
        number = self._journal.state.sequence + 1
        marked: list[Action | MarkedOrder] = with_marks(actions, self._stored, number)
        if any(isinstance(action, MarkedOrder) for action in marked):
            released = [
                ref
                for action in marked
                if isinstance(action, MarkedOrder) and isinstance(action.order, ReleaseJobs)
                for ref in action.order.refs
            ]
            self._journal.write(OrdersNumbered(number, tuple(released)))
        return marked

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
