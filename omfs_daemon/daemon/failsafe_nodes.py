"""The failsafe's work on nodes: has omfs-node bring jobs in, one after the other."""

from __future__ import annotations

import structlog

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.node_client.service import options, slurm_on_nodes
from omfs_daemon.daemon.node_client.transport import Transport
from omfs_daemon.preemption.methods.node_work import NodeAction, NodeWork
from omfs_daemon.preemption.methods.registry import installed


class FailsafeNodes:
    """``transport``: None where none is configured."""

    def __init__(self, config: Config, transport: Transport | None) -> None:
        self._transport = transport
        self._slurm = slurm_on_nodes(config)
        self._options = options(config, installed())

    def bring_in(self, job: Job, method: str, resume: bool) -> bool:
        """Whether all of its nodes have moved the job's memory in, and (``resume``) continued its processes."""
        traits = installed()[method].traits if method in installed() else None
        if traits is None or not traits.on_nodes:
            return True
        named = self._options.get(method, {})
        work = NodeWork(
            job.ref,
            job.id,
            job.uid,
            job.on_nodes,
            NodeAction.IN,
            method,
            resume=resume,
            options=named,
            slurm=self._slurm,
        )
        answers = self._transport.run(work.nodes, work.request(), work.timeout) if self._transport is not None else {}
        bad = {node: answer.message for node, answer in answers.items() if not answer.ok}
        if bad or not answers:
            log = structlog.get_logger("failsafe")
            log.error("node_resume_failed", job=job.ref, method=method, nodes=bad)
        return bool(answers) and not bad
