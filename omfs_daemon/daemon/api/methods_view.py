"""The shape behind --json beside what makes it."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict
from math import isfinite
from omfs_daemon.cluster import run_report as launched
from omfs_daemon.cluster.run_report import RunState
from omfs_daemon.cluster.preempt_methods import BUILT_IN
from omfs_daemon.cluster.preempt_methods import Method
from omfs_daemon.cluster.preempt_methods import Pace
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.daemon.node_client.probes import Probed


# -- methods -----------------------------------------------------------------------------------------


class PaceView(TypedDict):
    """Seconds whatever the size, and bytes per second of one node; None: the size does not matter."""

    stop_seconds: float
    stop_bytes_per_second: float | None
    back_seconds: float
    back_bytes_per_second: float | None


class WhyNotView(TypedDict):
    """Why a method cannot be used now on some nodes: how many, and the first few by name."""

    why: str
    count: int
    nodes: list[str]


class MethodNowView(TypedDict):
    """``usable``: on so many of ``nodes`` (those that are up); for methods of omfs-run ``ready``: so many jobs."""

    usable: NotRequired[int]
    nodes: NotRequired[int]
    ready: NotRequired[int]
    why_not: list[WhyNotView]


class MethodView(TypedDict):
    """A method that is installed.

    comes_back  "anywhere" or "same nodes"
    frees       of "cpus", "memory", "devices", what others may have of a job that it stopped
    done_by     "slurm", "omfs-run" (in the job) or "omfs-node" (on its nodes)
    built_in    whether it is one of ours, not of a site's package
    now         where it can be used now; left out where no daemon was asked
    """

    name: str
    built_in: bool
    keeps_work: bool
    comes_back: Literal["anywhere", "same nodes"]
    frees: list[str]
    done_by: Literal["slurm", "omfs-run", "omfs-node"]
    pace: PaceView
    stop_timeout_seconds: float
    now: NotRequired[MethodNowView]


class MethodsView(TypedDict):
    """``source``: whose configuration they are told by: "omfsd", or the name of a file."""

    source: str
    methods: list[MethodView]

NAMED = 5
"""So many nodes are named for each reason."""

WHY_TEXT = {
    "no_swap": "it has no swap",
    "not_usable": "omfs-node cannot do it there",
    "unreachable": "it cannot be reached",
    "timeout": "it did not answer in time",
    "bad_answer": "what it answered makes no sense",
}
_NO_WAY = "no way to the nodes is configured (nodes.worker)"
_NO_CLASS = "no class of jobs has it (class.methods)"
_NOT_YET = "it has not been looked at yet"


def methods_view(settings: Settings, source: str) -> MethodsView:
    """What holds whatever the nodes are like."""
    paces, limits = settings.rules.paces, settings.stop_by
    return MethodsView(
        source=source,
        methods=[
            _method_view(method.traits, paces.get(name, method.pace), limits.get(name, settings.stop_timeout))
            for name, method in settings.methods.items()
        ],
    )


def methods_now(settings: Settings, snapshot: Snapshot | None, probed: Probed) -> MethodsView:
    """And where each can be used; nothing of that is told before Slurm has been looked at."""
    view = methods_view(settings, "omfsd")
    if snapshot is not None:
        for method in view["methods"]:
            method["now"] = _now(settings.methods[method["name"]].traits, snapshot, probed)
    return view


def _method_view(traits: Method, pace: Pace, stop_timeout: float) -> MethodView:
    return MethodView(
        name=traits.name,
        built_in=traits.name in BUILT_IN,
        keeps_work=traits.keeps_work,
        comes_back="same nodes" if traits.same_nodes else "anywhere",
        frees=["cpus", "memory", "devices"] if traits.leaves else ["cpus", *sorted(traits.frees, reverse=True)],
        done_by="omfs-run" if traits.launched else "omfs-node" if traits.on_nodes else "slurm",
        pace=PaceView(
            stop_seconds=pace.stop_seconds,
            stop_bytes_per_second=_rate(pace.stop_rate),
            back_seconds=pace.back_seconds,
            back_bytes_per_second=_rate(pace.back_rate),
        ),
        stop_timeout_seconds=stop_timeout,
    )


def _rate(rate: float) -> float | None:
    return rate if isfinite(rate) else None


def _now(traits: Method, snapshot: Snapshot, probed: Probed) -> MethodNowView:
    if traits.launched:
        return MethodNowView(ready=_ready(traits.name, snapshot), why_not=[])
    up = sorted(node.name for node in snapshot.nodes.values() if node.up)
    if not traits.on_nodes:
        return MethodNowView(usable=len(up), nodes=len(up), why_not=[])
    reasons: dict[str, list[str]] = {}
    for node in up:
        why = _why_not(node, traits.name, probed)
        if why:
            reasons.setdefault(why, []).append(node)
    why_not = [WhyNotView(why=why, count=len(nodes), nodes=nodes[:NAMED]) for why, nodes in reasons.items()]
    return MethodNowView(usable=len(up) - sum(map(len, reasons.values())), nodes=len(up), why_not=why_not)


def _ready(name: str, snapshot: Snapshot) -> int:
    """Running jobs in which omfs-run has said that they can be stopped so."""
    said = (launched.of(job) for job in snapshot.jobs.values() if job.runs)
    return sum(run is not None and run.method == name and run.state is RunState.READY for run in said)


def _why_not(node: str, name: str, probed: Probed) -> str:
    """In words, "" if it can be used there; as the probes have it, which is what the policy goes by."""
    if probed.methods is None:
        return _NO_WAY
    if name not in probed.methods:
        return _NO_CLASS
    facts = probed.facts.get(node)
    if facts is None:
        answer = probed.unseen.get(node)
        return _text(answer.why) if answer is not None else _NOT_YET
    found = facts.methods.get(name)
    if found is None:
        return WHY_TEXT["not_usable"]
    return "" if found.usable else _text(found.why or "not_usable")


def _text(why: str) -> str:
    return WHY_TEXT.get(why, why.replace("_", " "))
