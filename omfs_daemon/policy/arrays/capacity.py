"""What is free now, and what will be when everything is gone that is about to go.

Two books over the same nodes:

- ``now``: idle at this instant. Slurm may start jobs here, and suspended jobs may be resumed here.
- ``then``: what is left when completing jobs and the victims of stops are gone and all for whom that is done are
  there. Never less than nothing is promised twice: a beneficiary is written off ``then`` once.

``now`` never exceeds ``then``, so nothing is lent that somebody is promised.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.jobs import Request
from omfs_daemon.cluster.jobs import Share
from omfs_daemon.cluster.preempt_methods import Method
from omfs_daemon.cluster.snapshot import Commitment
from omfs_daemon.cluster.snapshot import Ledger
from omfs_daemon.policy.arrays.job_arrays import Crowd
from omfs_daemon.policy.arrays.free_resources import Free
from omfs_daemon.policy.arrays.free_resources import Parcel
from omfs_daemon.policy.arrays.free_resources import parcel
from omfs_daemon.policy.arrays.free_resources import parcel_of
from omfs_daemon.policy.arrays.node_arrays import Ints
from omfs_daemon.policy.arrays.node_arrays import Machine
from omfs_daemon.policy.arrays.snapshot_arrays import Scene


class Capacity:
    """The two books of one snapshot. Errors: none; nodes and jobs that do not fit together are left out."""

    def __init__(self, scene: Scene, ledger: Ledger) -> None:
        self.machine, crowd = scene.machine, scene.crowd
        self._stopped = ledger.stopped
        leaving = {ref for commitment in ledger.commitments for ref in commitment.victims}
        ways = {ref: way for commitment in ledger.commitments for ref, way in commitment.ways.items()}
        self.now, soon = self._count(crowd, leaving, ways)
        self._trust_lower_books(_unsettled(crowd, ledger, leaving))
        self.then = self.now.copy()
        for coming in soon:
            self.then.give(coming)
        beneficiaries = crowd.find(commitment.beneficiary for commitment in ledger.commitments)
        for commitment in ledger.commitments:
            self._promise_again(commitment, beneficiaries.get(commitment.beneficiary))

    # -- the books of the snapshot --------------------------------------------------------------------------
    def _count(self, crowd: Crowd, leaving: set[str], ways: Mapping[str, Method]) -> tuple[Free, list[Parcel]]:
        """What is idle now, and what is about to be."""
        machine = self.machine
        places = crowd.places(machine)
        used_cpus: Ints = np.zeros(len(machine.names), dtype=np.int64)
        used_memory: Ints = np.zeros(len(machine.names), dtype=np.int64)
        np.add.at(used_cpus, places.nodes, places.cpus)
        np.add.at(used_memory, places.nodes, places.memory)
        for job in crowd.others:  # suspended jobs "free their CPUs, not their memory" (scontrol(1), suspend)
            for node, cpus, memory in job.shares:
                i = machine.index.get(node)
                if i is not None:
                    used_cpus[i] += cpus if job.holds_cpus else 0
                    used_memory[i] += memory
        running = crowd.running.jobs.tolist()
        soon = crowd.completing + ([job for job in running if job.ref in leaving] if leaving else [])
        now = Free(
            machine,
            np.where(machine.up, machine.cpus - used_cpus, 0),
            machine.memory - used_memory,
            {name: total.copy() for name, total in machine.gres.items()},
        )
        for job in (*running, *crowd.others):
            if job.request.gres:
                now.take(parcel(machine, [Share(node, 0, 0) for node, _, _ in job.shares], job.request.gres))
        return now, [parcel_of(machine, job, ways.get(job.ref) if job.runs else None) for job in soon]

    def _trust_lower_books(self, unsettled: set[str]) -> None:
        """Where Slurm's own books say that less is free than the jobs tell, believe the books."""
        machine = self.machine
        settled = machine.up & (machine.cpus_taken > 0) & ~machine.mask_of(unsettled)
        by_books = machine.cpus - machine.cpus_taken
        for i in np.flatnonzero(settled & (by_books < self.now.cpus)):
            self.now.take(Parcel(((int(i), int(self.now.cpus[i] - by_books[i]), 0),), ()))

    def _promise_again(self, commitment: Commitment, beneficiary: Job | None) -> None:
        """The beneficiary of a stop under way, unless it is there already."""
        if beneficiary is None:
            self.take_later(parcel(self.machine, commitment.shares, ()))
        elif beneficiary.state is JobState.SUSPENDED:
            stopped = self._stopped.get(beneficiary.ref)
            here = [share._replace(memory=0) for share in beneficiary.shares]
            self.take_later(parcel(self.machine, here, stopped.gres if stopped else ()))
        elif beneficiary.state is JobState.PENDING:
            self.take_later(parcel(self.machine, commitment.shares, beneficiary.request.gres))

    # -- going on from there ------------------------------------------------------------------------------------
    def take_now(self, taken: Parcel) -> None:
        """A job starts on what is idle."""
        self.now.take(taken)
        self.then.take(taken)

    def take_later(self, taken: Parcel) -> None:
        """A job will start on what is being freed."""
        self.then.take(taken)
        self.now.cap(self.then, [i for i, _, _ in taken.shares])

    def give_later(self, given: Parcel) -> None:
        """A job is being stopped."""
        self.then.give(given)

    # -- questions ------------------------------------------------------------------------------------------------
    def cpus_of(self, request: Request) -> int:
        """CPUs that the request will count for: whole nodes if it is exclusive."""
        return self.machine.cpus_of(request)


def size_of(machine: Machine, crowd: Crowd) -> int:
    """CPUs that are shared out: those of nodes that are up, and those of others on which jobs still run."""
    total = int(machine.cpus[machine.up].sum())
    if bool(machine.up.all()):
        return total
    places = crowd.places(machine)
    used: Ints = np.zeros(len(machine.names), dtype=np.int64)
    np.add.at(used, places.nodes, places.cpus)
    return total + int(np.minimum(used, machine.cpus)[~machine.up].sum())


def _unsettled(crowd: Crowd, ledger: Ledger, leaving: set[str]) -> set[str]:
    """Nodes on which stops are under way: there the books are about to change."""
    nodes = {share.node for commitment in ledger.commitments for share in commitment.shares}
    if leaving:
        for job in (*crowd.running.jobs.tolist(), *crowd.others):
            if job.ref in leaving:
                nodes.update(job.on_nodes)
    return nodes
