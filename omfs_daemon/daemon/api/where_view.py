"""The answer to ``omfs where``: when a job that would be submitted would start, by cluster and partition."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf, isfinite
from typing import NamedTuple, TypedDict

from omfs_daemon.cluster.jobs import Job, JobRequest, JobState
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.daemon.api.callers import Caller, Peer, membership
from omfs_daemon.daemon.api.shared_core import SharedCore, Turn
from omfs_daemon.daemon.learning.other_clusters import OtherClusters
from omfs_daemon.daemon.learning.possible_jobs import PossibleJob, Submitter, partitions_not_tried, possible_jobs
from omfs_daemon.daemon.learning.prediction_service import PredictionService
from omfs_daemon.errors import ConfigError, ControlError, GatewayError
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.slurm.batch_options import BatchOptions, batch_options
from omfs_daemon.slurm.batch_words import OptionWord
from omfs_daemon.starts.start_estimates import ProbedStart, at

_CLUSTERS_AT_ONCE = 8
_NEVER = "can never start as things are, or not within 35 days"


class WhereRowView(TypedDict):
    """A cluster, a partition, and a number of nodes. ``p10``, ``p50``, ``p90``: of the start, ``end_p50``: of the end,
    in seconds since the epoch, null: not within 35 days. ``run_p50``: seconds, null: not limited; ``key``,
    ``samples``: as in ``PredictionView``. ``options``: of sbatch, that send it there; ``conf``: the slurm.conf to send
    it with, "": the present one."""

    cluster: str
    partition: str
    nodes: int
    cpus: int
    p10: float | None
    p50: float | None
    p90: float | None
    end_p50: float | None
    run_p50: float | None
    key: str
    samples: int
    feasible: bool
    why_not: str
    options: list[str]
    conf: str


class WhereView(TypedDict):
    """``read``: when each cluster was, in seconds since the epoch; one that does not answer is not there. ``rows``: the
    earliest start first, then where it would never start. ``not_seen``: what the estimates leave out.
    ``p90_held``, ``scored``: as in ``BasisView``, of jobs on our own cluster."""

    read: dict[str, float]
    rows: list[WhereRowView]
    predictor: str
    p90_held: float | None
    scored: int
    not_seen: list[str]


class StartsElsewhere:
    """``where``: answers from the predictions and all clusters."""

    def __init__(self, clusters: OtherClusters, core: SharedCore) -> None:
        self._clusters, self._core = clusters, core

    def where(self, caller: Caller, service: PredictionService, words: Sequence[OptionWord]) -> WhereView:
        """ControlError where Slurm does not answer, or too much is asked at once."""
        with self._core.request(caller.uid) as turn:
            return self._where(caller, service, words, turn)

    def _where(self, caller: Caller, service: PredictionService, words: Sequence[OptionWord], turn: Turn) -> WhereView:
        with turn():  # the words are a user's, and there may be many of them
            options = batch_options(words)
        who = Submitter(caller.user, caller.uid, membership(Peer(caller.uid, caller.gid)))
        try:
            own, others = self._clusters.names()
        except GatewayError as error:
            raise ControlError(f"Slurm does not answer: {error}") from None
        asked = _asked_clusters(options, own, list(others))
        elsewhere = [name for name in asked if name != own]
        with ThreadPoolExecutor(_CLUSTERS_AT_ONCE) as workers:
            read = dict(zip(elsewhere, workers.map(self._clusters.snapshot, elsewhere), strict=True))
        found, taken, not_tried = list[_Found](), dict[str, float](), list[str]()
        are_known_by_name = None in others.values()
        with turn():
            for name in asked:
                target = _Target(name, name if are_known_by_name else "", str(others.get(name) or ""))
                if name == own:
                    here = _here(service, options, who, target)
                elif isinstance(snapshot := read[name], str):
                    found.append(_Found(_unfit(target, PossibleJob(_NOTHING, "", 0, snapshot))))
                    continue
                else:
                    here = _there(service, options, who, target, snapshot)
                found += here.rows
                taken[name] = here.taken
                not_tried += [f"{here.not_tried} more partitions of {name}"] if here.not_tried else []
        found.sort(key=lambda one: (not one.row["feasible"], one.start, one.run))
        held, scored = service.starts_held()
        return WhereView(
            read=taken,
            rows=[one.row for one in found],
            predictor=service.runs.name,
            p90_held=held,
            scored=scored,
            not_seen=[*_not_seen(options), *not_tried],
        )


_NOTHING = Job(0, "", "", 0, "", JobState.PENDING, JobRequest(0), 0.0)
"""Of a cluster of which nothing is known."""


class _Found(NamedTuple):
    """A row, and what it is ranked by: seconds from the snapshot of its cluster, which are of different times, to the
    start, and how long the job runs there."""

    row: WhereRowView
    start: float = inf
    run: float = inf


class _OfCluster(NamedTuple):
    """``taken``: when it was so; ``not_tried``: how many of its partitions were too many."""

    rows: list[_Found]
    taken: float
    not_tried: int


class _Target(NamedTuple):
    """A cluster; ``named``: what to give sbatch's --clusters, "": nothing; ``conf``: or its slurm.conf instead."""

    name: str
    named: str
    conf: str


def _asked_clusters(options: BatchOptions, own: str, others: list[str]) -> list[str]:
    """Our own first; ConfigError if the options name one that there is not."""
    known = [own, *others]
    if not options.clusters or options.clusters == ("all",):
        return known
    if unknown := [name for name in options.clusters if name not in known]:
        raise ConfigError(f"--clusters = {unknown[0][:40]!r}: must be among {', '.join(known)}")
    return [name for name in known if name in options.clusters]


def _here(service: PredictionService, options: BatchOptions, who: Submitter, target: _Target) -> _OfCluster:
    possible, not_tried = list[PossibleJob](), list[int]()

    def make(snapshot: Snapshot, rules: Rules) -> list[Job]:
        possible.extend(possible_jobs(options, who, snapshot, rules, is_ours=True))
        not_tried.append(partitions_not_tried(options, snapshot))
        return [one.job for one in possible if not one.why_not]

    taken, starts = service.probed(make)
    return _OfCluster(_rows(target, possible, starts, taken, options), taken, sum(not_tried))


def _there(
    service: PredictionService, options: BatchOptions, who: Submitter, target: _Target, snapshot: Snapshot
) -> _OfCluster:
    possible = possible_jobs(options, who, snapshot, service.rules, is_ours=False)
    starts = service.probed_elsewhere(snapshot, [one.job for one in possible if not one.why_not])
    rows = _rows(target, possible, starts, snapshot.taken, options)
    return _OfCluster(rows, snapshot.taken, partitions_not_tried(options, snapshot))


def _rows(
    target: _Target, possible: Sequence[PossibleJob], starts: Sequence[ProbedStart], taken: float, options: BatchOptions
) -> list[_Found]:
    left = iter(starts)
    found = [
        _Found(_unfit(target, one)) if one.why_not else _row(target, one, next(left), taken, options)
        for one in possible
    ]
    return found or [_Found(_unfit(target, PossibleJob(_NOTHING, "", 0, "it has no partition for such jobs")))]


def _row(target: _Target, one: PossibleJob, start: ProbedStart, taken: float, options: BatchOptions) -> _Found:
    row = _unfit(target, one)
    row["p10"], row["p50"], row["p90"] = (at(taken, seconds) for seconds in start.start)
    row["end_p50"] = at(taken, start.end.p50)
    row["run_p50"] = round(start.run.p50, 1) if isfinite(start.run.p50) else None
    row["key"], row["samples"] = start.run.key, start.run.samples
    row["feasible"] = isfinite(start.start.p10)
    row["why_not"] = "" if row["feasible"] else _NEVER
    row["conf"] = target.conf
    row["options"] = [
        *(["-M", target.named] if target.named else []),
        *(["-p", one.partition] if options.partitions != (one.partition,) else []),
        *(["-N", str(one.nodes)] if options.differs_by_nodes else []),
    ]
    return _Found(row, start.start.p50, start.run.p50)


def _unfit(target: _Target, one: PossibleJob) -> WhereRowView:
    return WhereRowView(
        cluster=target.name,
        partition=one.partition,
        nodes=one.nodes,
        cpus=one.job.request.cpus,
        p10=None,
        p50=None,
        p90=None,
        end_p50=None,
        run_p50=None,
        key="",
        samples=0,
        feasible=False,
        why_not=one.why_not,
        options=[],
        conf="",
    )


def _not_seen(options: BatchOptions) -> list[str]:
    seen = {
        "memory": bool(options.memory_per_cpu or options.memory_per_node),
        "licenses": bool(options.licenses),
        "its reservation": bool(options.reservation),
        "--nodelist": 0 < len(options.required_nodes) < max(options.nodes, options.most_nodes),
    }
    return [*(name for name, is_asked in seen.items() if is_asked), *(f"--{name}"[:40] for name in options.others)]
