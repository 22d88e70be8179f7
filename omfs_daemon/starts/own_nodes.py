"""When jobs that are not there could start on the nodes that suit them alone, which are fewer than those of their pool.
Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from omfs_daemon.cluster.jobs import Job, JobRequest
from omfs_daemon.policy.arrays.node_arrays import NodeArrays
from omfs_daemon.predict.start_times import QueuedJob, RunningUse, StartProbe, start_times

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

Running = Sequence[tuple[Job, Floats]]
"""What runs, and how long still: seconds by draw."""
Waiting = Sequence[tuple[Job, QueuedJob]]
"""What waits, in the order in which it is placed."""
Probes = Sequence[tuple[Job, StartProbe]]


def starts_on_own_nodes(
    nodes: NodeArrays, part_of_node: NDArray[np.int64], running: Running, waiting: Waiting, probes: Probes, draws: int
) -> Floats:
    """Seconds from now, of each probe by draw; 0 where the nodes that suit it are a whole pool.

    ``part_of_node``: by node, a number that all nodes of a pool share. The queue is placed once for all probes that
    the same nodes suit.
    """
    found = np.zeros((len(probes), draws))
    masks = [_mask(nodes, job.request) for job, _ in probes]
    alike: dict[bytes, list[int]] = {}
    for at, mask in enumerate(masks):
        alike.setdefault(mask.tobytes(), []).append(at)
    for same in alike.values():
        mask = masks[same[0]]
        pool = nodes.up & (part_of_node == part_of_node[mask][0]) if mask.any() else mask
        if not mask[pool].all():
            found[same] = _starts_within(nodes, mask, running, waiting, [probes[at] for at in same])
    return found


def _starts_within(nodes: NodeArrays, mask: Bools, running: Running, waiting: Waiting, probes: Probes) -> Floats:
    """Beside what runs on these nodes, and what waits for no others."""
    names = {nodes.names[at] for at in np.flatnonzero(mask)}
    held = [(sum(one.cpus for one in job.allocations if one.node in names), left) for job, left in running]
    here = [RunningUse(((0, cpus),), left) for cpus, left in held if cpus]
    within, places = list[QueuedJob](), list[int]()
    is_narrow: dict[int, bool] = {}
    for at, (job, queued) in enumerate(waiting):  # tasks of an array are the same job
        if id(job) not in is_narrow:
            is_narrow[id(job)] = bool((mask | ~_mask(nodes, job.request)).all())
        if is_narrow[id(job)]:
            within.append(QueuedJob(((0, _cpus(nodes, job.request)),), queued.run, queued.ready))
            places.append(at)
    alone = [
        StartProbe(
            QueuedJob(((0, _cpus(nodes, job.request)),), probe.job.run),
            bisect_left(places, probe.after),
        )
        for job, probe in probes
    ]
    starts = start_times([int(nodes.cpus[mask].sum())], here, within, len(probes[0][1].job.run), alone)
    return np.asarray(starts[len(within) :], dtype=np.float64)


def _mask(nodes: NodeArrays, request: JobRequest) -> Bools:
    """The nodes that suit it: those that it names, if it gets no others beside them (sbatch(1), --nodelist)."""
    request = nodes.normalized(request)
    mask = np.asarray(np.logical_or.reduce([one.mask for one in nodes.suitable(request)]), dtype=np.bool_)
    if request.required_nodes and max(request.nodes, request.max_nodes) == len(request.required_nodes):
        mask &= nodes.mask_of(request.required_nodes)
    return mask


def _cpus(nodes: NodeArrays, request: JobRequest) -> int:
    """What it needs on the nodes that suit it. Where those that it names have too few CPUs, Slurm adds others."""
    cpus = nodes.cpus_of(request)
    return min(cpus, int(nodes.cpus[_mask(nodes, request)].sum())) if request.required_nodes else cpus
