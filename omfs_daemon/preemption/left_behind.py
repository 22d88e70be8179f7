"""Which jobs may stand still because of a daemon that has died, as its journal says. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from omfs_daemon.cluster.preempt_methods import ENDS
from omfs_daemon.cluster.snapshot import PreemptedJob
from omfs_daemon.preemption.methods.registry import installed
from omfs_daemon.preemption.preemption import Step
from omfs_daemon.preemption.state import State


def with_touched_alone(state: State) -> State:
    """Without victims that nobody has touched yet, or that are requeued: who has suspended one of these is not us."""
    preemptions = {
        number: replace(one, victims=tuple(victim for victim in one.victims if _stays(victim.method)))
        for number, one in state.preemptions.items()
        if one.step is not Step.PROVING
    }
    return replace(state, preemptions=preemptions)


def may_stand_still(state: State) -> Mapping[str, PreemptedJob]:
    """Preempted jobs that stay on their nodes, and such victims of preemptions under way, which may be preempted too,
    wholly or in part."""
    under_way = {
        victim.ref: PreemptedJob(preemption.since, victim.method, preemption.preemptor.ref)
        for preemption in state.preemptions.values()
        for victim in preemption.victims
    }
    return under_way | {ref: preempted for ref, preempted in state.preempted.items() if _stays(preempted.method)}


def is_on_nodes(method: str) -> bool:
    return method in installed() and installed()[method].traits.on_nodes


def _stays(method: str) -> bool:
    """Of a method that is not installed nobody knows."""
    return method != ENDS.name and not (method in installed() and installed()[method].traits.leaves)
