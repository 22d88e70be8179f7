"""One preemption in one cycle: what has become of it, and which transitions are missing. Pure.

Transitions are requeue, suspend, resume, signals, and work on nodes. How its jobs' fields should be is
``preemption/desired.py``'s part.
"""

from __future__ import annotations

from dataclasses import replace

from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.preempt_methods import OUT
from omfs_daemon.cluster.run_report import RunState, run_report
from omfs_daemon.cluster.scope import is_out_of_scope
from omfs_daemon.policy.plan import WHY_FIRST, Reason
from omfs_daemon.preemption.back_off import preemptor_backoff, retry_seconds, shapes_to_clear
from omfs_daemon.preemption.begin import started_event
from omfs_daemon.preemption.effects import Effects, PreemptionEnd, preempted_record
from omfs_daemon.preemption.lapse import lapsed, with_last_resorts_in_force
from omfs_daemon.preemption.methods.base import Action, ObservedJob, PreemptionProgress
from omfs_daemon.preemption.methods.node_work import NodeWorkState
from omfs_daemon.preemption.methods.not_installed import method_named
from omfs_daemon.preemption.next_step import Circumstances, next_state, taken_by_others
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.preemption.our_holds import is_held_by_others
from omfs_daemon.preemption.preemption import Preemption, PreemptionOutcome, Step, VictimState
from omfs_daemon.preemption.progress import (
    SAFE,
    MethodSettings,
    due_victims,
    moving_in,
    progress_of,
    runs_still,
    seen_of,
)
from omfs_daemon.preemption.records import JobEvent, PaidCost
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.preemption.state import (
    BackoffOver,
    PreemptionChanged,
    Record,
    State,
    TransitionsOrdered,
    VictimBackoff,
)
from omfs_daemon.preemption.unsaved_order import ANY_BOOT, UnsavedOrder, Verb
from omfs_daemon.slurm import orders


def step(
    preemption: Preemption, state: State, observation: Observation, now: float, settings: Settings, is_fresh: bool
) -> Effects:
    """Go as far as the observation allows; each victim is recorded as preempted once it is observed so. ``state``: with
    the references that the jobs have now."""
    effects = Effects()
    if preemption.step is Step.PROVING:
        preemption = _prove(preemption, effects, state, observation, now, settings, is_fresh)
        if preemption.step in (Step.PROVING, Step.DONE, Step.UNDONE):
            return effects
    effects.records += _left_by_themselves(preemption, state, observation, now, settings)
    # What an earlier preemption has left behind says nothing about this one.
    known = {ref for ref, preempted in state.preempted.items() if preempted.at > preemption.begun}
    while not preemption.step.is_over:
        for victim in preemption.victims:
            job = observation.job(victim.ref)
            is_out = job is not None and job.state in (JobState.PENDING, JobState.SUSPENDED)
            is_out = is_out and not victim.ends_by_itself
            if job is not None and is_out and victim.ref not in known:
                known.add(victim.ref)
                effects.records.append(preempted_record(preemption, victim, job, now))
                _tell_preempted(effects, preemption, victim, job, observation, now, settings)
        following = _following(preemption, state, observation, now, settings, is_fresh)
        if following is preemption:
            return effects
        preemption = following
        if preemption.step is Step.UNDONE:
            effects.records += _touched(preemption, known, observation, now, settings)
            effects.records += _let_finish(preemption, state, observation, now, settings.method_settings)
            effects.records += _back_offs(preemption, state, known, observation, now, settings.retry_after)
        effects.records.append(PreemptionChanged(preemption))
    _end(effects, preemption, known, state, observation, now)
    return effects


def _following(
    preemption: Preemption, state: State, observation: Observation, now: float, settings: Settings, is_fresh: bool
) -> Preemption:
    outcome = lapsed(preemption, observation, state.backoff.realtime, settings, now)
    if outcome is not None:
        return replace(preemption, step=Step.UNDONE, since=now, outcome=outcome)
    allowed = with_last_resorts_in_force(preemption, observation, settings.rules)
    if allowed is not preemption:
        return allowed
    job = observation.job(preemption.preemptor.ref)
    is_held = job is not None and is_held_by_others(job, state)
    return next_state(preemption, Circumstances(observation, now, settings.method_settings, is_fresh, is_held))


def _prove(
    preemption: Preemption,
    effects: Effects,
    state: State,
    observation: Observation,
    now: float,
    settings: Settings,
    is_fresh: bool,
) -> Preemption:
    """Ask whether Slurm would start the preemptor. What its victims do meanwhile is no concern of ours."""
    following = _following(preemption, state, observation, now, settings, is_fresh)
    if following is preemption:
        return preemption
    if following.step is Step.STOPPING:
        effects.events.append(started_event(following, now))
    if following.step is Step.UNDONE:
        effects.records += _back_offs(following, state, set(), observation, now, settings.retry_after)
    effects.records.append(PreemptionChanged(following))
    if following.step.is_over:
        _end(effects, following, set(), state, observation, now, is_tried=False)
    return following


def cut_short(preemption: Preemption, state: State, observation: Observation, now: float) -> Effects:
    """End a proof for an urgent job: no victim was touched yet."""
    over = replace(preemption, step=Step.UNDONE, since=now, outcome=PreemptionOutcome.GAVE_WAY)
    effects = Effects(records=[PreemptionChanged(over)])
    _end(effects, over, set(), state, observation, now, is_tried=False)
    return effects


def _left_by_themselves(
    preemption: Preemption, state: State, observation: Observation, now: float, settings: Settings
) -> list[Record]:
    """Victims that are requeued after their own exit: the present slurmctld may forget that as it may an order."""
    found = {}
    for victim in preemption.victims:
        job, known = observation.job(victim.ref), state.unsaved.get(victim.ref)
        launched = settings.method_settings.method(victim).traits.launched
        if job is None or not (launched or victim.warning):
            continue
        is_known = known is not None and known.start == victim.start
        run = run_report(job) if launched else None  # one that was warned may be ending for good
        is_leaving = job.state is JobState.COMPLETING and run is not None and run.state is RunState.STOPPED
        is_out = job.state is JobState.PENDING and victim.ref not in state.preempted
        if (is_leaving or is_out) and not is_known:
            found[victim.ref] = UnsavedOrder(Verb.REQUEUE, job.id, victim.start, ANY_BOOT, now)
    return [TransitionsOrdered(found)] if found else []


def transitions(preemption: Preemption, observation: Observation, settings: Settings) -> list[Action]:
    """What is missing in the present step; safe to send twice."""
    if preemption.step is Step.PROVING:
        return []
    if preemption.step is Step.STARTING:
        return [
            *_keep_preempted(preemption, observation, settings),
            *_resume_preemptor(preemption, observation, settings),
        ]
    due = due_victims(preemption, observation, settings.method_settings)
    if due.waits:
        return _resume_preemptor(preemption, observation, settings)
    return [
        *_preempt(due.preempt, due.finish, observation, settings),
        *_keep_preempted(preemption, observation, settings),
        *_resume_at_once(preemption, observation, settings),
    ]


def _preempt(
    untouched: tuple[VictimState, ...], secured: tuple[VictimState, ...], observation: Observation, settings: Settings
) -> list[Action]:
    """Careful victims first, then all of each method together."""
    chosen = settings.method_settings
    seen = {
        victim.ref: seen_of(victim, job, observation)
        for victim in (*untouched, *secured)
        if (job := observation.job(victim.ref)) is not None
    }
    wanted: list[Action] = []
    careful_first = sorted((*untouched, *secured), key=lambda victim: not chosen.is_careful(victim))
    for kind in dict.fromkeys(victim.kind for victim in careful_first):
        now, safe = [[v for v in listed if v.kind == kind] for listed in (untouched, secured)]
        method = chosen.method((*now, *safe)[0])
        wanted += [action for victim in now for action in method.prepare(seen[victim.ref])]
        wanted += method.finish([seen[victim.ref] for victim in safe])
        wanted += method.preempt([seen[victim.ref] for victim in now])
    return wanted


def _keep_preempted(preemption: Preemption, observation: Observation, settings: Settings) -> list[Action]:
    found = ((victim, observation.job(victim.ref)) for victim in preemption.victims)
    return [
        action
        for victim, job in found
        if job is not None
        for action in settings.method_settings.method(victim).keep_preempted(seen_of(victim, job, observation))
    ]


def _resume_at_once(preemption: Preemption, observation: Observation, settings: Settings) -> list[Action]:
    """A suspended preemptor is resumed right behind the orders that preempt the victims, before Slurm can give the CPUs
    to another job: Slurm counts a victim's CPUs as free once it has taken the order, and starts no job on a node until
    the victim has left it."""
    chosen, preemptor = settings.method_settings, preemption.preemptor
    careful = [victim for victim in preemption.victims if chosen.is_careful(victim)]
    is_safe = all(progress_of(victim, observation, chosen) in SAFE for victim in careful)
    is_in = not chosen.is_moved_in(preemptor) or moving_in(preemption, observation) is NodeWorkState.DONE
    may_resume = preemptor.suspended and is_safe and is_in and not taken_by_others(preemption, observation)
    return [orders.ResumeJobs((preemptor.ref,))] if may_resume else []


def _resume_preemptor(preemption: Preemption, observation: Observation, settings: Settings) -> list[Action]:
    """Memory that is out is moved in first, also while other jobs are on its CPUs."""
    job = observation.job(preemption.preemptor.ref)
    if not preemption.preemptor.suspended or job is None or job.state is not JobState.SUSPENDED:
        return []
    is_free = preemption.step is Step.STOPPING or bool(observation.fit_together([job]))
    method = method_named(settings.methods, preemption.preemptor.method)
    return method.resume(ObservedJob(job, observation.work(job.ref)), is_free)


# -- the end --------------------------------------------------------------------------------------------------
def _touched(
    preemption: Preemption, known: set[str], observation: Observation, now: float, settings: Settings
) -> list[Record]:
    """Victims that run as far as Slurm knows, but whose processes a node may have stopped: ``preemption/follow_up.py``
    lets them run on."""
    found: list[Record] = []
    for victim in preemption.victims:
        job = observation.job(victim.ref)
        if job is None or victim.ref in known or not runs_still(victim, observation):
            continue
        seen = seen_of(victim, job, observation)
        if settings.method_settings.method(victim).resume(seen, True):
            found.append(preempted_record(preemption, victim, job, now))
    return found


def _back_offs(
    preemption: Preemption, state: State, known: set[str], observation: Observation, now: float, retry_after: float
) -> list[Record]:
    """After a preemption that failed the same is not tried again at once. Each back-off is doubled each time, so that a
    preemptor does not wait again and again for the same job, and nobody is preempted again and again for jobs of a
    shape that Slurm does not start. Of the other outcomes none is the fault of a job."""
    failed = (
        PreemptionOutcome.NOT_STARTED,
        PreemptionOutcome.VICTIM_STAYED,
        PreemptionOutcome.REFUSED,
        PreemptionOutcome.CPUS_TAKEN,
        PreemptionOutcome.NOT_STARTABLE,
        PreemptionOutcome.NOT_PROVEN,
    )
    if preemption.outcome not in failed:
        return []
    match preemption.outcome:
        case PreemptionOutcome.VICTIM_STAYED | PreemptionOutcome.REFUSED:
            victims = {victim.ref for victim in preemption.victims}
            refused = dict(preemption.refused)
            stubborn = sorted(victims & set(refused))
            if not stubborn and preemption.preemptor.ref not in refused:
                stubborn = sorted(victims - known)
        case _:
            stubborn = []
    spared: list[Record] = []
    for ref in stubborn:
        times = state.failures.get(ref, 0) + 1
        spared.append(VictimBackoff(ref, now + retry_seconds(False, retry_after, times), times))
    return spared or [preemptor_backoff(preemption, state, observation, now, retry_after)]


def _let_finish(
    preemption: Preemption, state: State, observation: Observation, now: float, method_settings: MethodSettings
) -> list[Record]:
    """Who is writing a checkpoint is left to end it: for another preemption it is not ready for its method, and would
    be preempted as a last resort at once. A back-off for its own fault comes after this one, and counts."""
    careful = filter(method_settings.is_careful, preemption.victims)
    going = [one for one in careful if progress_of(one, observation, method_settings) is PreemptionProgress.GOING]
    return [
        VictimBackoff(victim.ref, now + method_settings.preempt_limit(victim), state.failures.get(victim.ref, 0))
        for victim in going
    ]


def _end(
    effects: Effects,
    preemption: Preemption,
    known: set[str],
    state: State,
    observation: Observation,
    now: float,
    is_tried: bool = True,
) -> None:
    """``is_tried``: whether victims were to be preempted already, and may have noticed it."""
    preemptor, outcome = preemption.preemptor, preemption.outcome or PreemptionOutcome.NOT_STARTED
    if outcome is PreemptionOutcome.STARTED:
        shapes = shapes_to_clear(preemptor.shape, preemptor.user)
        if not state.backoff.shapes.keys().isdisjoint(shapes):
            effects.records.append(BackoffOver((), shapes))
    preempted = known.intersection(preemption.refs)
    effects.ended.append(PreemptionEnd(preemption, frozenset(preempted)))
    waited = preemption.waited
    messages = [message for _, message in preemption.refused[:3]]
    job = observation.job(preemptor.ref)
    reason = job.reason if job is not None else ""
    text = {
        PreemptionOutcome.STARTED: "has run" if waited is None else f"started {waited:.1f} s after it was submitted",
        PreemptionOutcome.PREEMPTOR_GONE: "was gone before it started; the jobs preempted for it are put back",
        PreemptionOutcome.NOT_STARTED: f"did not start in time on the nodes that were freed ({reason}); undone",
        PreemptionOutcome.PREEMPTOR_HELD: "is held now, by somebody else or by Slurm; undone",
        PreemptionOutcome.PREEMPTOR_REQUEUED: "had started, and was requeued before that was observed; undone",
        PreemptionOutcome.VICTIM_STAYED: "; ".join(["a job could not be preempted; undone", *messages]),
        PreemptionOutcome.REFUSED: "Slurm refused: " + "; ".join(messages),
        PreemptionOutcome.NODE_LOST: "; ".join(["lost a node that was freed for it; planned again", *messages]),
        PreemptionOutcome.CPUS_TAKEN: "; ".join(["others have CPUs that were freed for it; planned again", *messages]),
        PreemptionOutcome.NOT_DUE: "is not due any more: its time limit, bound, or class was changed; undone",
        PreemptionOutcome.EXEMPTED: "an operator has exempted a job that was to be preempted; planned again",
        PreemptionOutcome.RULES_CHANGED: "its class, or that of a job to be preempted, no longer allows it; undone",
        PreemptionOutcome.TOO_OLD: "the decision was too old when it could be executed; undone, and planned again",
        PreemptionOutcome.NOT_STARTABLE: f"Slurm would not start it ({'; '.join(messages)}); nobody was preempted",
        PreemptionOutcome.NOT_PROVEN: "Slurm did not say in time that it lacks nothing but resources "
        f"({'; '.join(messages) or 'it was not released'}); nobody was preempted",
        PreemptionOutcome.STARTED_ELSEWHERE: "started where other jobs were preempted for it beside, and let go sooner",
        PreemptionOutcome.OUT_OF_SCOPE: "it, or a job preempted for it, is no longer in scope; undone",
        PreemptionOutcome.GAVE_WAY: "an urgent job needs its nodes; nobody was preempted, and it is planned again",
    }[outcome]
    data: dict[str, object] = {"preemption": preemption.id}
    if preemption.started_at is not None:
        data["start"] = preemption.started_at
    effects.events.append(JobEvent(now, preemptor.ref, preemptor.user, preemptor.account, outcome.value, text, data))
    for victim in preemption.victims:
        job = observation.job(victim.ref)
        is_spared = is_tried and victim.ref not in known and not victim.ends_by_itself
        if is_spared and job is not None and not is_out_of_scope(job):
            effects.sentences[victim.ref] = f"[omfs] was to be preempted for job {preemptor.ref}"
    if outcome is PreemptionOutcome.STARTED and preempted:
        text = f"[omfs] started by preempting {len(preempted)} jobs ({preemption.reason})"
        effects.sentences[preemptor.ref] = text


# -- costs ----------------------------------------------------------------------------------------------------
def _tell_preempted(
    effects: Effects,
    preemption: Preemption,
    victim: VictimState,
    job: Job,
    observation: Observation,
    now: float,
    settings: Settings,
) -> None:
    preemptor = preemption.preemptor
    why = WHY_FIRST[Reason(preemption.reason)]
    text = f"preempted ({victim.method}) for job {preemptor.ref} of account {preemptor.account}, which is {why}"
    paid = _paid(preemption, victim, job, observation, now, settings)
    data: dict[str, object] = {
        "preemptor": preemptor.ref,
        "method": victim.method,
        "seconds": round(paid.seconds, 3),
        "bytes": paid.size,
        "lost_seconds": paid.lost,
    }
    effects.events.append(JobEvent(now, victim.ref, victim.user, victim.account, "preempted", text, data))
    effects.costs.append(paid)


def _paid(
    preemption: Preemption, victim: VictimState, job: Job, observation: Observation, now: float, settings: Settings
) -> PaidCost:
    """What it has cost, by our own clock and as omfs-run or the nodes report."""
    traits = settings.method_settings.method(victim).traits
    seconds = max(0.0, now - (preemption.since if preemption.step is Step.STOPPING else preemption.begun))
    moving, size, slowest = 0.0, 0, 0.0
    run, work = run_report(job), observation.work(job.ref)
    if traits.launched and run is not None:
        moving, size = min(run.seconds, seconds), run.size  # capped: the job's owner can write the job comment
    elif traits.on_nodes and work is not None:
        moving, size, slowest = work.seconds, work.moved, work.slowest
    lost = 0.0 if traits.keeps_work else max(0.0, now - victim.start)
    name, nodes = victim.method, max(1, len(job.on_nodes))
    return PaidCost(
        now, victim.ref, victim.user, victim.account, name, OUT, seconds, moving, size, lost, nodes, slowest
    )
