"""The picture of a cluster at one instant, and what the daemon remembers besides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.jobs import Share
from omfs_daemon.cluster.preempt_methods import Method
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.cluster.nodes import Partition
from collections.abc import Mapping
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What omfs-node found on a node: by method that can be used there, the bytes that can still be moved out."""

    room: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An immutable picture with the time at which Slurm was *asked* for it.

    Unchanged ``Job`` and ``Node`` objects are shared between one snapshot and the next. ``facts``: by name of the node;
    ``sizes``: by raw job id and method, the most bytes that it would move out of one of its nodes, as far as looked at.
    """

    taken: float
    jobs: Mapping[int, Job]
    nodes: Mapping[str, Node]
    partitions: Mapping[str, Partition]
    facts: Mapping[str, NodeFacts] = field(default_factory=dict)
    sizes: Mapping[tuple[int, str], int] = field(default_factory=dict)

    def with_jobs(self, taken: float, changed: Iterable[Job], removed: Iterable[int] = ()) -> Snapshot:
        """This picture with some jobs replaced or added, and others gone."""
        jobs = dict(self.jobs)
        for job in changed:
            jobs[job.id] = job
        for job_id in removed:
            jobs.pop(job_id, None)
        return replace(self, taken=taken, jobs=jobs)


@dataclass(frozen=True, slots=True)
class Commitment:
    """A stop under way: nodes are being freed for a beneficiary, which counts as running there already.

    Jobs are named by ``Job.ref``, which is stable for single jobs and single array tasks. ``ways``: how each victim is
    stopped; one without a way leaves its nodes.
    """

    beneficiary: str
    account: str
    shares: tuple[Share, ...]
    victims: frozenset[str]
    urgent: bool = False
    ways: Mapping[str, Method] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stopped:
    """A job that we stopped and that does not run again yet.

    ``licenses``: what it had before they were taken off it (empty: they were left alone); ``gres``: what it must get
    back on each of its nodes.
    """

    at: float
    method: str
    beneficiary: str
    licenses: tuple[tuple[str, int], ...] = ()
    gres: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Ledger:
    """What only the daemon knows, by ``Job.ref``; everything else is read off Slurm anew in every cycle.

    stopped        jobs that we stopped and that have not run again yet
    running_since  when a job was last resumed by us (else its start counts)
    stop_times     when each job was stopped, for the limit on stops per job and hour
    backoff        beneficiaries for which stopping others did not help, and until when not to try again
    spared         victims that could not be stopped, and until when not to try again
    failures       how often in a row a job could not be stopped
    commitments    stops under way
    """

    stopped: Mapping[str, Stopped] = field(default_factory=dict)
    running_since: Mapping[str, float] = field(default_factory=dict)
    stop_times: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    backoff: Mapping[str, float] = field(default_factory=dict)
    spared: Mapping[str, float] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)
    commitments: tuple[Commitment, ...] = ()


class Facts(NamedTuple):
    """What is known of nodes and jobs besides what Slurm tells, as in ``Snapshot``."""

    nodes: Mapping[str, NodeFacts] = {}
    sizes: Mapping[tuple[int, str], int] = {}
