"""What has become of jobs that we preempted, or that wait for us: recorded, and told to their owners. Pure.

Not of jobs of preemptions under way (``preemption/step.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from omfs_daemon.cluster.holds import (
    admin_comment_of,
    highest_number,
    is_held_after_checkpoint,
    is_held_by_us,
    is_held_for_owner,
    is_let_go,
    is_release_unfinished,
)
from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.cluster.marks import MarkWord
from omfs_daemon.cluster.preempt_methods import IN
from omfs_daemon.cluster.run_report import RunState, run_report
from omfs_daemon.cluster.snapshot import PreemptedJob
from omfs_daemon.policy.plan import Plan, Reason
from omfs_daemon.policy.rules.job_kinds import JobKinds
from omfs_daemon.policy.validator import Verdict
from omfs_daemon.preemption.back_off import back_offs_over, users_back_off
from omfs_daemon.preemption.effects import Chain, Effects
from omfs_daemon.preemption.methods.base import Action, ObservedJob, PreemptMethod
from omfs_daemon.preemption.methods.checkpoint import WHY_TEXT
from omfs_daemon.preemption.methods.not_installed import method_named
from omfs_daemon.preemption.methods.suspend import SuspendMethod
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.preemption.ownership import JobField, licenses_value
from omfs_daemon.preemption.realtime_memory import realtime_news
from omfs_daemon.preemption.records import JobEvent, PaidCost
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.preemption.state import (
    JobPreempted,
    JobRunsAgain,
    JobsGone,
    OrdersNumbered,
    PreemptionChanged,
    Record,
    State,
    VictimBackoff,
)
from omfs_daemon.preemption.state_fold import state_after
from omfs_daemon.protocol import job_comment
from omfs_daemon.slurm import orders

RESUMED_LATELY = 60.0
"""Seconds in which a resumed job is checked for CPUs that Slurm had just given to another."""

REPORTS_WITHIN = 60.0
"""Seconds of running after which an omfs-run that has not reported its restart is no longer waited for."""

_NOT_RESTARTED = "[omfs] could not be restarted"
_NOT_READY = "[omfs] cannot be preempted"


def follow_up(state: State, observation: Observation, now: float, settings: Settings) -> Effects:
    """Jobs that run again, are gone, are held for their owners, or were resumed over busy CPUs."""
    under_way = {ref for preemption in state.preemptions.values() for ref in preemption.refs}
    effects = Effects()
    doubtful = under_way.union(state.unsaved)
    effects.records += back_offs_over(state, observation, now)
    effects.records += users_back_off(state, observation, now, settings.retry_after, settings.rules)
    seen, events = realtime_news(state.backoff.realtime, observation.snapshot.jobs, settings.rules, now)
    effects.records += [seen] if seen is not None else []
    effects.events += events
    gone = sorted(ref for ref in state.known_refs() - doubtful if observation.job(ref) is None)
    if gone:
        effects.records.append(JobsGone(tuple(gone)))
    crowded = _resumed_over_busy_cpus(state.running_since, observation, now)
    for ref, preempted in state.preempted.items():
        job = observation.job(ref)
        if job is not None and job.runs and ref not in under_way and ref not in crowded:
            _runs_again(effects, job, preempted, state, observation, now, settings)
    crowded |= _resumed_over_busy_cpus(_just_resumed(effects.records), observation, now)
    marked = [job for job in observation.snapshot.jobs.values() if _is_marked(job)]
    _tell_released(effects, marked, now, under_way.union(state.preempted), state)
    _tell_owners(effects, state, marked, now)
    _tell_unready(effects, marked, now, settings)
    _suspend_again(effects, state_after(state, effects.records), crowded, now)
    return effects


def resumed_lately(state: State, now: float) -> set[str]:
    """Jobs that may share CPUs with others because they were resumed."""
    return {ref for ref, at in state.running_since.items() if now - at < RESUMED_LATELY}.union(state.preempted)


def found_in_slurm(
    state: State, observation: Observation, now: float, methods: Mapping[str, PreemptMethod]
) -> list[Record]:
    """Suspended jobs with our mark that the journal does not know (it was lost, or slurmctld has forgotten that it had
    resumed them), and marks with higher numbers than it knows (it was lost, or the failsafe has written them). With
    such a mark, the nodes may have stopped a job that runs as far as Slurm knows; and a job that the failsafe has let
    go, and that is suspended, is suspended by somebody else."""
    jobs = observation.snapshot.jobs.values()
    known = {ref for preemption in state.preemptions.values() for ref in preemption.refs}.union(state.preempted)
    marked = [job for job in jobs if job.admin_comment and not job.set_aside]
    found: list[Record] = []
    for job in marked:
        if job.ref in known or admin_comment_of(job).word is not MarkWord.STOPPING:
            continue
        method = _method_on_nodes(job, methods)
        may_be_stopped = bool(method) and job.runs and admin_comment_of(job).number > state.sequence
        if job.state is JobState.SUSPENDED or may_be_stopped:
            found.append(JobPreempted(job.ref, now, method or SuspendMethod.traits.name, ""))
    found += _suspended_by_others(state, jobs, now)
    highest = highest_number(marked)
    if highest > state.sequence:
        unfinished = tuple(job.ref for job in marked if is_release_unfinished(job, highest))
        found.append(OrdersNumbered(highest, releases=unfinished))
    return found


def _suspended_by_others(state: State, jobs: Iterable[Job], now: float) -> list[Record]:
    suspended = (job for job in jobs if job.state is JobState.SUSPENDED and job.admin_comment)
    let_go = {job.ref for job in suspended if is_let_go(job, state.sequence)}
    found: list[Record] = [JobRunsAgain(ref, now, resumed=True) for ref in sorted(let_go.intersection(state.preempted))]
    for preemption in state.preemptions.values():
        victims = tuple(victim for victim in preemption.victims if victim.ref not in let_go)
        if len(victims) < len(preemption.victims):
            found.append(PreemptionChanged(replace(preemption, victims=victims)))
    return found


def _method_on_nodes(job: Job, methods: Mapping[str, PreemptMethod]) -> str:
    """The method that its owner has chosen and that the nodes carry out; "" if there is none."""
    chosen = job_comment.methods_in_comment(job.comment)
    return next((name for name in chosen if name in methods and methods[name].traits.on_nodes), "")


def resume_preempted(
    state: State, plan: Plan, verdict: Verdict, observation: Observation, settings: Settings
) -> list[Chain]:
    """Resume suspended jobs whose turn it is, once their memory is in; that they run is observed in the next cycle.
    Memory moved in for a turn that is over is moved out again.

    Nobody is resumed in a cycle that puts preemptors off to the next one: they might preempt the same jobs again.
    """
    turns = {resume.ref for resume in verdict.resumes}
    if turns and any(wait.reason is Reason.ENOUGH_PREEMPTIONS for wait in plan.waits):
        turns.clear()
    under_way = {ref for preemption in state.preemptions.values() for ref in preemption.refs}
    starts = waited_for_nodes(state, observation)
    others: list[Action] = []
    resumed: list[str] = []
    for ref, preempted in state.preempted.items():
        job = observation.job(ref)
        if job is None or job.state is not JobState.SUSPENDED:
            continue
        method, seen = method_named(settings.methods, preempted.method), ObservedJob(job, observation.work(ref))
        wanted: list[Action] = []
        if ref in turns:
            is_free = starts.isdisjoint(job.on_nodes) and bool(observation.fit_together([job]))
            wanted = method.resume(seen, cpus_free=is_free)
        elif ref not in under_way:
            wanted = method.keep_preempted(seen)
        for action in wanted:
            if isinstance(action, orders.ResumeJobs):
                resumed += action.refs
            else:
                others.append(action)
    chains = [Chain(transitions=(action,)) for action in others]
    return [*chains, *([Chain(transitions=(orders.ResumeJobs(tuple(resumed)),))] if resumed else [])]


def waited_for_nodes(state: State, observation: Observation) -> set[str]:
    """Nodes where a preemptor is to start: Slurm has not chosen its CPUs yet."""
    waiting = (
        preemption.preemptor
        for preemption in state.preemptions.values()
        if (job := observation.job(preemption.preemptor.ref)) is None or job.state is JobState.PENDING
    )
    return {allocation.node for preemptor in waiting for allocation in preemptor.allocations}


def _is_marked(job: Job) -> bool:
    """Whether it has a comment for us or of ours, or exited as omfs-run does: few jobs among many."""
    return not job.set_aside and (job.special_exit or bool(job.admin_comment) or job_comment.PREFIX in job.comment)


def _runs_again(
    effects: Effects,
    job: Job,
    preempted: PreemptedJob,
    state: State,
    observation: Observation,
    now: float,
    settings: Settings,
) -> None:
    method = method_named(settings.methods, preempted.method)
    missing = method.resume(ObservedJob(job, observation.work(job.ref)), True)
    if missing:
        effects.chains.append(Chain(transitions=tuple(missing)))
    licenses = state.owned.get(job.ref, {}).get(JobField.KEPT_LICENSES)
    if missing or (licenses is not None and licenses_value(job.licenses) != licenses.baseline):
        return
    run = run_report(job)
    if method.traits.launched and job.run_time < REPORTS_WITHIN:
        has_reported = run is not None and run.state not in (RunState.STOPPED, RunState.STOPPING)
        if not has_reported:
            return
    effects.records.append(JobRunsAgain(job.ref, now, method.traits.keeps_work))
    effects.records += _spared_no_longer(job, state, now)
    since = job.start if method.traits.leaves and job.start is not None else now  # Slurm says nothing of resumes
    away = max(0.0, since - preempted.at)
    text = f"[omfs] was preempted ({preempted.method}) for job {preempted.preemptor} and runs again after {away:.0f} s"
    effects.sentences[job.ref] = text
    effects.events.append(JobEvent(now, job.ref, job.user, job.account, "runs_again", text, {"away_seconds": away}))
    effects.costs.append(_paid(job, method, observation, now))


def _spared_no_longer(job: Job, state: State, now: float) -> list[Record]:
    """The end of a back-off in which it was left to end its checkpoint (``preemption/step.py``). One for its own fault
    lasts."""
    is_left = state.spared.get(job.ref, now) > now and not state.failures.get(job.ref)
    return [VictimBackoff(job.ref, now, 0)] if is_left else []


def _paid(job: Job, method: PreemptMethod, observation: Observation, now: float) -> PaidCost:
    """What its return has cost, as omfs-run or the nodes report."""
    run, work = run_report(job), observation.work(job.ref)
    seconds, lost, size = 0.0, 0.0, 0
    if method.traits.launched and run is not None:
        seconds, lost = min(run.seconds, job.run_time), run.lost  # capped: the job's owner can write the job comment
    elif method.traits.on_nodes and work is not None:
        seconds, size = work.seconds, work.moved
    name, nodes = method.traits.name, max(1, len(job.on_nodes))
    return PaidCost(now, job.ref, job.user, job.account, name, IN, seconds, seconds, size, lost, nodes)


def _tell_released(effects: Effects, marked: Sequence[Job], now: float, known: Collection[str], state: State) -> None:
    """Jobs that omfs-run has checkpointed without a preemption that we know: another user sent the signal, or ours was
    undone meanwhile. Nobody else would release them."""
    for job in marked:
        if job.ref not in known and waits_after_checkpoint(job):
            effects.chains.append(Chain((orders.ReleaseJobs((job.ref,)),)))
            effects.records += _spared_no_longer(job, state, now)
            text = "its checkpoint is written, but no preemption of it is known: released"
            effects.events_if_taken.append(JobEvent(now, job.ref, job.user, job.account, "released", text))


def waits_after_checkpoint(job: Job) -> bool:
    """Whether it is held by Slurm after omfs-run's exit code, or by omfs-run itself; a hold of ours on top of that is
    released anyway. What omfs-run holds itself looks like its owner's hold to job_submit.lua, which lets us end it only
    if we have preempted the job before."""
    word = admin_comment_of(job).word
    by_omfs_run = job.special_exit or (word is MarkWord.RELEASED and is_held_after_checkpoint(job))
    if not by_omfs_run or job.state is not JobState.PENDING or is_held_by_us(job):
        return False
    run = run_report(job)
    by_its_exit = job.hold is Hold.USER and word is not MarkWord.ADMIN_HELD
    return run is not None and run.state is RunState.STOPPED and by_its_exit


def _tell_owners(effects: Effects, state: State, marked: Sequence[Job], now: float) -> None:
    """Jobs that omfs-run could not restart belong to their owners again, who alone can fix and release them."""
    for job in marked:
        if not job.special_exit or not is_held_for_owner(job):
            continue
        if admin_comment_of(job).sentence.startswith(_NOT_RESTARTED):
            continue
        run = run_report(job)
        why = WHY_TEXT.get(run.why, run.why) if run is not None and run.why else "see the job's output"
        text = f"{_NOT_RESTARTED} from a checkpoint: {why}. Its owner may release it to try again"
        if job.ref in state.preempted:
            effects.records.append(JobsGone((job.ref,)))
        effects.sentences[job.ref] = text
        effects.events_if_taken.append(JobEvent(now, job.ref, job.user, job.account, "held_for_owner", text))


def _tell_unready(effects: Effects, marked: Sequence[Job], now: float, settings: Settings) -> None:
    """Jobs that name a method in their comment without being ready for it: most owners have forgotten omfs-run."""
    kinds = JobKinds(settings.rules)
    for job in marked:
        if not job.runs or job.run_time < REPORTS_WITHIN or job_comment.METHOD_KEY not in job.comment:
            continue
        written = admin_comment_of(job)
        if written.sentence.startswith(_NOT_READY) or written.word in (MarkWord.HELD, MarkWord.STOPPING):
            continue
        job_class = kinds.of(job).job_class
        if job_class.methods and kinds.is_only_declared(job, job_class):
            text = f"{_NOT_READY} as its comment says: put `exec omfs-run` before the program in its batch script"
            effects.sentences[job.ref] = text
            effects.events_if_taken.append(JobEvent(now, job.ref, job.user, job.account, "not_ready", text))


def _just_resumed(records: Iterable[Record]) -> dict[str, float]:
    return {record.ref: record.at for record in records if isinstance(record, JobRunsAgain) and record.resumed}


def _resumed_over_busy_cpus(running_since: Mapping[str, float], observation: Observation, now: float) -> dict[str, Job]:
    """Slurm resumes a job even over busy CPUs, and may have given them to another just before. Of two that were
    resumed, the last one gives way."""
    crowded: dict[str, Job] = {}
    full = observation.overcommitted() if running_since else set()
    for ref, at in sorted(running_since.items(), key=lambda resumed: (-resumed[1], resumed[0])):
        job = observation.job(ref)
        if job is None or not job.runs:
            continue
        is_known = job.id in (observation.snapshot.units or {})
        sharing = observation.sharing(job).difference(crowded)
        is_on_full = not full.isdisjoint(job.on_nodes) and not is_known and now - at < RESUMED_LATELY
        if sharing or is_on_full:
            crowded[ref] = job
    return crowded


def _suspend_again(effects: Effects, state: State, crowded: Mapping[str, Job], now: float) -> None:
    """The job that came last; it is recorded once, even if Slurm refuses for a while."""
    for ref, job in crowded.items():
        effects.chains.append(Chain(transitions=(orders.SuspendJobs((ref,)),)))
        if ref not in state.preempted:
            effects.records.append(JobPreempted(ref, now, SuspendMethod.traits.name, ""))
            text = "its CPUs had just been taken when it was resumed: suspended again"
            effects.events.append(JobEvent(now, ref, job.user, job.account, "suspended_again", text))
