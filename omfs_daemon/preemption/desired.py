"""How every job that concerns us should be: one record per job and field, and who wants it. Pure.

Of several wishes for a field, the first in this list counts:

1. preemptions under way: the preemptor is ranked first, pinned, and free; victims are marked or held
2. preempted jobs: those that are suspended keep their mark, and give up licenses until they run again
3. jobs for which the daemon has chosen nodes: pinned until they start, or for ``start_timeout``; then held until it
   chooses others
4. admission: non-preemptible jobs beyond their account's entitlement are held
5. ranks

Nobody wants what is not here: ``preemption/reconcile.py`` takes it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from omfs_daemon.cluster.holds import is_held, may_hold
from omfs_daemon.cluster.job_refs import without_task
from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.marks import MarkWord
from omfs_daemon.cluster.scope import is_out_of_scope
from omfs_daemon.policy.plan import TEXT, WHY_FIRST, Plan, Reason
from omfs_daemon.policy.rules.queue_order import Band, band_of, own_nice
from omfs_daemon.preemption.methods.base import ObservedJob, PreemptionProgress
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.preemption.ownership import JobField, Value, licenses_of, licenses_value, nodes_of
from omfs_daemon.preemption.preemption import Preemption, Step, VictimState
from omfs_daemon.preemption.progress import due_victims, is_in_later_run
from omfs_daemon.preemption.records import JobEvent
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.preemption.state import State

RANK = "rank"
PLACEMENT = "placement"
PREEMPTED = "preempted"


class WantedHold(NamedTuple):
    """``word``: HELD, or STOPPING for a job that we preempt, or have suspended. ``sentence``: for its owner.
    ``as_is``: the job is neither released nor held more firmly."""

    word: MarkWord
    sentence: str
    preemption: int = 0
    as_is: bool = False


class WantedField(NamedTuple):
    value: Value
    wanted_by: str
    preemption: int = 0


@dataclass(frozen=True, slots=True)
class Desired:
    """
    holds      by raw id of the job or array record, then by reference: all of it, or some of its tasks
    preemptors of preemptions under way, likewise, each with its preemption: not held
    fields     by job and field
    sentences  for the owners of other jobs
    releases   references that admission releases, with the event of each
    holding    the events of jobs that admission holds now
    """

    holds: dict[int, dict[str, WantedHold]] = field(default_factory=dict)
    preemptors: dict[int, dict[str, int]] = field(default_factory=dict)
    fields: dict[tuple[str, JobField], WantedField] = field(default_factory=dict)
    sentences: Mapping[str, str] = field(default_factory=dict)
    releases: dict[str, JobEvent] = field(default_factory=dict)
    holding: dict[str, JobEvent] = field(default_factory=dict)

    def hold(self, job: Job, ref: str, wanted: WantedHold) -> None:
        self.holds.setdefault(job.id, {})[ref] = wanted

    def free(self, job: Job, ref: str, preemption: int) -> None:
        """No hold of this job or task is wanted; other tasks of its array stay held."""
        self.preemptors.setdefault(job.id, {})[ref] = preemption
        holds = self.holds.pop(job.id, {})
        for held, wanted in holds.items():
            left = without_task(held, ref)
            if left:
                self.hold(job, left, wanted)


def preemptions_name(preemption: Preemption) -> str:
    """As ``wanted_by`` names it."""
    return f"preemption {preemption.id}"


def desired_state(
    state: State,
    observation: Observation,
    settings: Settings,
    now: float,
    plan: Plan,
    sentences: Mapping[str, str],
) -> Desired:
    """During a pause nothing more is held or ranked."""
    desired = Desired(sentences=sentences)
    if state.pause is None:
        _rank(desired, plan, state, observation)
    _admit(desired, plan, observation, now, is_paused=state.pause is not None)
    _place(desired, plan, state, observation, settings, now)
    for ref in state.preempted:
        _keep_suspended(desired, state, observation, ref)
    for preemption in sorted(state.preemptions.values(), key=_counts_last):
        _want_preemptor(desired, preemption, observation)
    for _, preemption in sorted(state.preemptions.items()):
        _want_victims(desired, preemption, observation, settings)
    _take_back_nodes(desired, state, observation, settings, now)
    return desired


def _counts_last(preemption: Preemption) -> tuple[bool, float]:
    """Of two preemptions for the same job, its nodes are those that have been free for longest, or else those of the
    later one, whose victims are expected to let go sooner."""
    is_free = preemption.step is Step.STARTING
    return is_free, -preemption.since if is_free else preemption.id


def _rank(desired: Desired, plan: Plan, state: State, observation: Observation) -> None:
    """What the plan ranks; a job that is no longer in scope, which no plan names, loses its rank."""
    for rank in plan.ranks:
        desired.fields[rank.ref, JobField.NICE] = WantedField(rank.nice, RANK)
    for ref, owned in state.owned.items():
        job = observation.job(ref) if JobField.NICE in owned else None
        if job is not None and is_out_of_scope(job) and band_of(job) is not Band.NONE:
            desired.fields[ref, JobField.NICE] = WantedField(own_nice(job), RANK)


def _admit(desired: Desired, plan: Plan, observation: Observation, now: float, is_paused: bool) -> None:
    """What the plan holds, and keeps held; paused: what it keeps held."""
    for ref in plan.kept:
        job = observation.job(ref)
        if job is not None:
            desired.hold(job, ref, WantedHold(MarkWord.HELD, "", as_is=is_paused))
    for change in () if is_paused else plan.holds:
        job = observation.job(change.ref)
        if job is not None:
            desired.hold(job, change.ref, WantedHold(MarkWord.HELD, f"[omfs] {change.text}"))
            desired.holding[change.ref] = JobEvent(now, change.ref, job.user, change.account, "held", change.text)
    for change in plan.releases:
        job = observation.job(change.ref)
        if job is not None:
            text = TEXT[change.reason]
            desired.releases[change.ref] = JobEvent(now, change.ref, job.user, change.account, "released", text)


def _place(
    desired: Desired, plan: Plan, state: State, observation: Observation, settings: Settings, now: float
) -> None:
    """Jobs that left the choice of their nodes to us get nodes and licenses together, before they are released. One
    that does not start is chosen other nodes for after a while, or as soon as Slurm starts no jobs on these."""
    for ref, owned in state.owned.items():
        job, nodes_field = observation.job(ref), owned.get(JobField.NODES)
        chosen = nodes_of(nodes_field.value) if nodes_field is not None else ()
        are_up = all((node := observation.node(name)) is not None and node.up for name in chosen)
        waits = are_up and job is not None and not job.holds_cpus and not is_out_of_scope(job)
        for name, value in owned.items():
            if value.wanted_by == PLACEMENT and waits and now - value.since < settings.start_timeout:
                desired.fields[ref, name] = WantedField(value.value, PLACEMENT)
    released = {change.ref for change in plan.releases}
    for start in plan.starts:
        job = observation.job(start.ref)
        if job is None or not job.request.unplaced or start.ref not in released:
            continue
        nodes = tuple(sorted(allocation.node for allocation in start.allocations))
        licenses = settings.node_licenses.placed(job.licenses, nodes)
        desired.fields[start.ref, JobField.NODES] = WantedField(nodes, PLACEMENT)
        desired.fields[start.ref, JobField.LICENSES] = WantedField(licenses_value(licenses), PLACEMENT)


def _take_back_nodes(desired: Desired, state: State, observation: Observation, settings: Settings, now: float) -> None:
    """A job for which we had chosen nodes that it waits for no longer is held, before it gets the licenses of any node
    back: with these Slurm could start it on a node whose device is taken."""
    for ref, owned in state.owned.items():
        licenses, job = owned.get(JobField.LICENSES), observation.job(ref)
        if licenses is None or (ref, JobField.LICENSES) in desired.fields or job is None or is_out_of_scope(job):
            continue
        if job.state is not JobState.PENDING or not settings.node_licenses.are_of_any(licenses_of(licenses.baseline)):
            continue
        text = TEXT[Reason.UNPLACED]
        desired.hold(job, ref, WantedHold(MarkWord.HELD, f"[omfs] {text}"))
        desired.releases.pop(ref, None)
        if may_hold(job) and not is_held(job):
            desired.holding[ref] = JobEvent(now, ref, job.user, job.account, "held", text)
            for name in (JobField.NODES, JobField.LICENSES):
                if name in owned:
                    desired.fields[ref, name] = WantedField(owned[name].value, owned[name].wanted_by)


def _keep_suspended(desired: Desired, state: State, observation: Observation, ref: str) -> None:
    job = observation.job(ref)
    if job is None or job.state is JobState.PENDING:
        return
    desired.hold(job, ref, WantedHold(MarkWord.STOPPING, ""))
    licenses = state.owned.get(ref, {}).get(JobField.KEPT_LICENSES)
    if licenses is not None and job.state is JobState.SUSPENDED:
        desired.fields[ref, JobField.KEPT_LICENSES] = WantedField(licenses.value, PREEMPTED)


def _want_preemptor(desired: Desired, preemption: Preemption, observation: Observation) -> None:
    preemptor = preemption.preemptor
    job = observation.job(preemptor.ref)
    if job is None or preemptor.suspended or job.state is not JobState.PENDING or preemption.asks:
        return
    values: list[tuple[JobField, Value]] = [(JobField.NICE, preemptor.nice)]
    if nodes := preemptor.nodes_to_pin(job):
        values.append((JobField.NODES, nodes))
    if preemptor.licenses is not None:
        values.append((JobField.LICENSES, licenses_value(preemptor.licenses)))
    for name, value in values:
        desired.fields[preemptor.ref, name] = WantedField(value, preemptions_name(preemption), preemption.id)
    desired.free(job, preemptor.ref, preemption.id)


def _want_victims(desired: Desired, preemption: Preemption, observation: Observation, settings: Settings) -> None:
    if preemption.step is Step.PROVING:
        return
    due = due_victims(preemption, observation, settings.method_settings)
    secured = {victim.ref for victim in due.finish}
    for victim, job in _present(preemption, observation):
        word = _word_of(victim, job, settings, is_due=victim in due.preempt)
        if word is not None:
            desired.hold(job, victim.ref, WantedHold(word, sentence_of(preemption), preemption.id))
        if victim.keeps is not None and victim.ref in secured:
            value = licenses_value(victim.keeps)
            wanted = WantedField(value, preemptions_name(preemption), preemption.id)
            desired.fields[victim.ref, JobField.KEPT_LICENSES] = wanted


def _word_of(victim: VictimState, job: Job, settings: Settings, is_due: bool) -> MarkWord | None:
    """A job that its method requeues is held right before, so that it returns held, and stays so if it was warned; any
    other is marked while it is preempted. Then it is held for as long as it waits for the preemptor to start."""
    chosen = settings.method_settings
    if job.runs and chosen.is_held_first(victim):
        is_warned = chosen.method(victim).progress(ObservedJob(job)) is PreemptionProgress.GOING
        return MarkWord.HELD if is_due or is_warned else None
    return MarkWord.STOPPING if job.runs or job.state is JobState.SUSPENDED else MarkWord.HELD


def _present(preemption: Preemption, observation: Observation) -> Iterable[tuple[VictimState, Job]]:
    for victim in preemption.victims:
        job = observation.job(victim.ref)
        if job is not None and not is_in_later_run(victim, job):
            yield victim, job


def sentence_of(preemption: Preemption) -> str:
    """What the owner of a victim reads."""
    preemptor, why = preemption.preemptor, WHY_FIRST[Reason(preemption.reason)]
    return f"[omfs] preempted for job {preemptor.ref} ({why}, account {preemptor.account})"
