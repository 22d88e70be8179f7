"""House vocabulary: hands -> executor."""

from __future__ import annotations

from collections.abc import Iterable
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.preemption.observation import Picture
from omfs_daemon.preemption.methods.base import Action
from omfs_daemon.preemption.methods.base import OnNodes
from omfs_daemon.preemption.methods.node_work import Work
from omfs_daemon.slurm.gateway import Gateway
from omfs_daemon.slurm.gateway import Refusal
from omfs_daemon.slurm.orders import Order
from omfs_daemon.slurm.orders import give
from omfs_daemon.daemon.node_client.work_queue import NodeWorkQueue
from omfs_daemon.preemption.methods.node_work import NodeTerms


_TIMEOUT = 60.0


class Hands:
    """Both hands."""

    def __init__(self, gateway: Gateway, desk: NodeWorkQueue) -> None:
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
