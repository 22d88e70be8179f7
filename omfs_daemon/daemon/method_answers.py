"""The methods that are installed, as it is answered on the socket and told by ``omfs methods``; pure."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import NamedTuple

from omfs_daemon.cluster import launched
from omfs_daemon.cluster.launched import RunState
from omfs_daemon.cluster.methods import BUILT_IN, Method, Pace
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.daemon.settings import Settings
from omfs_daemon.daemon.views import MethodNowView, MethodsView, MethodView, PaceView, WhyNotView
from omfs_daemon.nodes.answers import Answer
from omfs_daemon.nodes.probes import NodeFacts

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


class Probed(NamedTuple):
    """What is known of nodes. ``methods``: those that are looked for, None without a way to the nodes; ``facts`` of
    those that answered, ``unseen``: what went wrong with the others."""

    methods: frozenset[str] | None = None
    facts: Mapping[str, NodeFacts] = {}
    unseen: Mapping[str, Answer] = {}


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
