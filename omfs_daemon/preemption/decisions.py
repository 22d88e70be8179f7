"""What one cycle decides, from what it has observed: the daemon's cycle and the simulator's planner engine share it.

Pure. In between stand the planner and the validator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from omfs_daemon.policy.plan import Plan, PlannedPreemption
from omfs_daemon.policy.start_checks.answer import Answer, AnswerKind
from omfs_daemon.policy.validator import Verdict
from omfs_daemon.preemption.begin import Beginning, begin_preemption
from omfs_daemon.preemption.desired import desired_state
from omfs_daemon.preemption.effects import Chain, Effects, in_order
from omfs_daemon.preemption.follow_up import follow_up, resume_preempted, waited_for_nodes
from omfs_daemon.preemption.methods.base import NodeOrder
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.preemption.our_holds import with_refs_of_now
from omfs_daemon.preemption.preemption import Preemption, Step
from omfs_daemon.preemption.reconcile import reconcile
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.preemption.state import State
from omfs_daemon.preemption.state_fold import state_after
from omfs_daemon.preemption.step import step, transitions


def go_on(state: State, observation: Observation, now: float, settings: Settings, fresh: Collection[int]) -> Effects:
    """What has become of all that was begun. ``fresh``: the preemptions whose decision still holds."""
    effects, seen = Effects(), with_refs_of_now(state, observation) if state.preemptions else state
    for number, preemption in sorted(state.preemptions.items()):
        effects.add(step(preemption, seen, observation, now, settings, number in fresh))
    effects.add(follow_up(state_after(state, effects.records), observation, now, settings))
    return effects


def begin_preemptions(
    verdict: Verdict, state: State, observation: Observation, now: float, settings: Settings
) -> Effects:
    """Those that the validator accepted, numbered on from the last one.

    Slurm says nothing useful of a job if another one before it waits for the same nodes: what is to be proved there is
    left to a later cycle.
    """
    effects = Effects()
    waited_for = waited_for_nodes(state, observation)
    for planned in verdict.preemptions:
        number = state.next_preemption + len(effects.begun)
        nodes = {allocation.node for allocation in planned.allocations}
        first = _beginning(planned, verdict.answers.get(planned.preemptor), state, settings)
        if first is Beginning.RELEASE and not nodes.isdisjoint(waited_for):
            continue
        begun = begin_preemption(planned, number, first, state, observation, now, settings)
        if begun is not None:
            effects.add(begun)
            waited_for |= nodes
    return effects


def _beginning(planned: PlannedPreemption, answer: Answer | None, state: State, settings: Settings) -> Beginning:
    """Slurm resumes suspended jobs whatever they lack. For an urgent job that is not certain to start others are
    preempted once, if Slurm cannot be asked; for an entitled one never."""
    if planned.suspended:
        return Beginning.STOP
    unstarted = state.backoff.unstarted.get(planned.preemptor)
    if unstarted is not None and unstarted.in_vain:
        return Beginning.RELEASE
    if answer is None or answer.kind is not AnswerKind.UNKNOWN:
        return Beginning.STOP
    if not planned.urgent:
        return Beginning.RELEASE
    return Beginning.ASK if settings.may_ask else Beginning.STOP


def add_orders(
    effects: Effects,
    state: State,
    suggested: Plan,
    verdict: Verdict,
    observation: Observation,
    now: float,
    settings: Settings,
    is_full: bool,
) -> None:
    """All orders: fields by comparison with how jobs should be, and the transitions of preemptions. ``state``: with the
    records of ``effects``. Not ``is_full``: only those of the preemptions that begin, and of the jobs that start."""
    own = state if is_full else replace(state, preemptions={p.id: p for p in effects.begun}, preempted={}, owned={})
    desired = desired_state(own, observation, settings, now, suggested, effects.sentences)
    begun = {ref for preemption in effects.begun for ref in preemption.refs}
    scope = None if is_full else begun.union(start.ref for start in suggested.starts)
    fields = reconcile(desired, state, observation, now, scope)
    missing = {preemption: transitions(preemption, observation, settings) for preemption in own.preemptions.values()}
    is_due = is_full and state.pause is None
    resumes = resume_preempted(state, suggested, verdict, observation, settings) if is_due else []
    # What is repeated after a restart of slurmctld must have taken effect before anything else is done to the job.
    repeated = {ref for chain in effects.chains for ref in chain.refs}
    resumes = [chain for chain in resumes if repeated.isdisjoint(chain.refs)]
    returns = _without_victims_of_now(effects.chains, effects.begun)
    effects.chains = [*in_order(fields.chains, missing), *resumes, *returns]
    fields.chains = []
    effects.add(fields)


def _without_victims_of_now(chains: Iterable[Chain], begun: Iterable[Preemption]) -> list[Chain]:
    """Without work on nodes to let jobs run on that are preempted again now: a job whose memory is out is suspended at
    once, and must not be continued then."""
    victims = {victim.ref for one in begun if one.step is Step.STOPPING for victim in one.victims}
    return [
        chain
        for chain in chains
        if not any(isinstance(action, NodeOrder) and action.ref in victims for action in chain.transitions)
    ]
