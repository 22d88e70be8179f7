"""The answer to ``omfs methods``."""

from __future__ import annotations

from math import isfinite
from typing import Literal, NotRequired, TypedDict

from omfs_daemon.cluster.clients import clients_without
from omfs_daemon.cluster.preempt_methods import MethodSpeed, MethodTraits
from omfs_daemon.cluster.run_report import RunState, run_report
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.daemon.node_client.probes import Probed
from omfs_daemon.preemption.methods.registry import BUILT_IN_TRAITS
from omfs_daemon.preemption.settings import Settings

# -- methods -----------------------------------------------------------------------------------------


class SpeedView(TypedDict):
    """Seconds whatever the size, and bytes per second of one node; None: the size does not matter."""

    preempt_seconds: float
    preempt_bytes_per_second: float | None
    resume_seconds: float
    resume_bytes_per_second: float | None


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
    frees       of "cpus", "memory", "devices", which of a preempted job's resources others may use
    done_by     "slurm", "omfs-run" (in the job) or "omfs-node" (on its nodes)
    built_in    whether it is one of ours, not of a site's package
    whole       whether it preempts heterogeneous jobs
    not_for     clients for whose jobs the submit plug-in excludes it, unless their owner names methods
    now         where it can be used now; left out where no daemon answered
    """

    name: str
    built_in: bool
    not_for: list[str]
    keeps_work: bool
    whole: bool
    comes_back: Literal["anywhere", "same nodes"]
    frees: list[str]
    done_by: Literal["slurm", "omfs-run", "omfs-node"]
    speed: SpeedView
    preempt_timeout_seconds: float
    now: NotRequired[MethodNowView]


class MethodsView(TypedDict):
    """``source``: whose configuration is shown: "omfsd", or the name of a file."""

    source: str
    methods: list[MethodView]


NAMED = 5
"""How many nodes are named for each reason at most."""

WHY_TEXT = {
    "no_swap": "it has no swap",
    "not_usable": "omfs-node cannot do it there",
    "unreachable": "it cannot be reached",
    "timeout": "it did not answer in time",
    "bad_answer": "its answer is not understood",
}
_NO_WORKER = "no worker for the nodes is configured (nodes.worker)"
_NO_CLASS = "no class of jobs has it (class.methods)"
_NOT_YET = "it has not been probed yet"


def methods_view(settings: Settings, source: str) -> MethodsView:
    """The part that does not depend on the nodes."""
    speeds, limits = settings.rules.speeds, settings.preempt_timeouts
    return MethodsView(
        source=source,
        methods=[
            _method_view(method.traits, speeds.get(name, method.speed), limits.get(name, settings.preempt_timeout))
            for name, method in settings.methods.items()
        ],
    )


def methods_now(settings: Settings, snapshot: Snapshot | None, probed: Probed) -> MethodsView:
    """Also where each can be used; left out before the first poll of Slurm."""
    view = methods_view(settings, "omfsd")
    if snapshot is not None:
        for method in view["methods"]:
            method["now"] = _now(settings.methods[method["name"]].traits, snapshot, probed)
    return view


def _method_view(traits: MethodTraits, speed: MethodSpeed, preempt_timeout: float) -> MethodView:
    return MethodView(
        name=traits.name,
        built_in=traits.name in BUILT_IN_TRAITS,
        not_for=clients_without(traits.name),
        keeps_work=traits.keeps_work,
        whole=traits.whole,
        comes_back="same nodes" if traits.same_nodes else "anywhere",
        frees=["cpus", "memory", "devices"] if traits.leaves else ["cpus", *sorted(traits.frees, reverse=True)],
        done_by="omfs-run" if traits.launched else "omfs-node" if traits.on_nodes else "slurm",
        speed=SpeedView(
            preempt_seconds=speed.preempt_seconds,
            preempt_bytes_per_second=_rate(speed.preempt_rate),
            resume_seconds=speed.resume_seconds,
            resume_bytes_per_second=_rate(speed.resume_rate),
        ),
        preempt_timeout_seconds=preempt_timeout,
    )


def _rate(rate: float) -> float | None:
    return rate if isfinite(rate) else None


def _now(traits: MethodTraits, snapshot: Snapshot, probed: Probed) -> MethodNowView:
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
    """Running jobs whose omfs-run has reported that they can be preempted by this method."""
    reports = (run_report(job) for job in snapshot.jobs.values() if job.runs)
    return sum(run is not None and run.method == name and run.state is RunState.READY for run in reports)


def _why_not(node: str, name: str, probed: Probed) -> str:
    """Why the method cannot be used there by the latest probes, which the policy goes by; "" if it can."""
    if probed.methods is None:
        return _NO_WORKER
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
