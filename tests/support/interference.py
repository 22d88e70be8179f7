"""Jobs in every state that the daemon brings them into, what people do to them by hand, and what must be so then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from omfs_daemon.cluster.holds import is_held, is_held_by_us
from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.cluster.marks import SUBMIT_MARK, MarkWord
from omfs_daemon.preemption.desired import PLACEMENT, preemptions_name
from omfs_daemon.preemption.ownership import JobField
from omfs_daemon.preemption.state import State
from omfs_daemon.testing.fake_slurm.fake_gateway import Fault
from omfs_daemon.testing.fake_slurm.omfs_run_behavior import OmfsRunBehavior
from omfs_daemon.testing.fake_slurm.people import Actor, People
from tests.support.fake_site import Site, site_rules
from tests.support.preemption_cases import word_of


@dataclass
class Scene:
    """A site with one job, ``job``, to which somebody does something, and what people have done so far, by job. Where
    the site is a real one, ``tests/support/real_interference.py`` has the scene."""

    site: Site
    job: int
    held: dict[int, Actor] = field(default_factory=dict)
    starts: int = 0
    released: set[int] = field(default_factory=set)
    changed: set[int] = field(default_factory=set)
    suspended: set[int] = field(default_factory=set)
    canceled: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.people = People(self.site.slurm)

    def is_held_by(self, actor: Actor) -> None:
        """From now on: it must not start."""
        self.held[self.job], self.starts = actor, self.times_started

    @property
    def times_started(self) -> int:
        return len(self.site.slurm.history[self.job].starts)

    @property
    def state(self) -> JobState:
        return self.site.state(self.job)

    @property
    def hold(self) -> Hold:
        """Also of a running job, of which Slurm shows none."""
        return self.site.slurm.records[self.job].hold

    def wanted_holds(self, _jobs: Sequence[Job]) -> set[str]:
        """Of these jobs, those that the daemon wants to hold."""
        plan = self.site.reports[-1].plan
        assert plan is not None
        return refs_of_victims(self.site.journal.state).union(plan.kept, (change.ref for change in plan.holds))


# -- states ------------------------------------------------------------------------------------------------------
def _site(directory: Path, plugin: bool) -> Site:
    """Two nodes of four CPUs: bio and physics own one each."""
    rules = site_rules(methods=("requeue", "suspend", "dmtcp"))
    return Site(directory, rules, 2, {"fluent": 4}, plugin=plugin, partitions=("main", "urgent", "night"))


def _beyond(directory: Path, plugin: bool, **held: object) -> Scene:
    """A job that must be admitted waits for others of its account that may not be preempted either."""
    site = _site(directory, plugin)
    [site.submit("physics", method="", run_time=15) for _ in range(2)]
    site.run(1)
    job = site.submit("physics", method="", run_time=5, **held)  # type: ignore[arg-type]
    return Scene(site, job)


def held_at_submit(directory: Path, plugin: bool) -> Scene:
    """By the gate; the daemon has not seen it."""
    return _beyond(directory, plugin, hold=Hold.USER, admin_comment=SUBMIT_MARK)


def held_by_us(directory: Path, plugin: bool) -> Scene:
    scene = _beyond(directory, plugin)
    scene.site.run(1)
    assert word_of(scene.site, scene.job) is MarkWord.HELD
    return scene


def _preempted(directory: Path, plugin: bool, **quick: object) -> tuple[Scene, int]:
    """An urgent job waits for two nodes; the victim of one of them is slow to leave. The scene of the other one, and
    the urgent job."""
    site = _site(directory, plugin)
    is_launched = "launched" in quick
    slow = {"launched": OmfsRunBehavior(seconds=6.0), "method": "dmtcp"} if is_launched else {"ignores_term": True}
    first, second = (site.submit("bio", run_time=20, **more) for more in (quick, slow))  # type: ignore[arg-type]
    site.run_until(lambda: site.runs(first, second), limit=10)
    site.run(1)
    # Until the slow one has left, backfill would give a smaller job the node that is free already.
    waiting = site.submit("bio", cpus=8, hosts=2, run_time=5)
    urgent = site.submit("alarm", urgent=True, method="", cpus=8, hosts=2, run_time=5)
    site.run_until(lambda: not site.runs(first), limit=10)
    assert not site.runs(urgent) and not site.runs(waiting)
    return Scene(site, first), urgent


def preempted_by_requeue(directory: Path, plugin: bool) -> Scene:
    """It waits, held, for the preemptor to start."""
    scene, _ = _preempted(directory, plugin)
    scene.site.run_until(lambda: scene.state is JobState.PENDING and scene.hold is Hold.ADMIN, limit=3)
    assert scene.site.journal.state.preemptions
    return scene


def exited(directory: Path, plugin: bool) -> Scene:
    """omfs-run has written the checkpoint and ended with 101; the daemon has not seen that."""
    scene, _ = _preempted(directory, plugin, method="dmtcp", launched=OmfsRunBehavior())
    scene.site.run_until(lambda: scene.state is JobState.PENDING, limit=3)
    assert scene.hold is Hold.USER and word_of(scene.site, scene.job) is MarkWord.STOPPING
    return scene


def exited_and_held(directory: Path, plugin: bool) -> Scene:
    """As ``exited``; the daemon has held it."""
    scene = exited(directory, plugin)
    scene.site.step()
    assert scene.hold is Hold.ADMIN
    return scene


def about_to_be_requeued(directory: Path, plugin: bool) -> Scene:
    """Held while it runs; the requeue was lost."""
    site = _site(directory, plugin)
    jobs = [site.submit("bio", run_time=20) for _ in range(2)]
    site.run(2)
    site.submit("physics", method="", run_time=5)
    site.gateway.faults.inject(Fault.IGNORE, ("requeue",), times=1)
    site.step()
    (job,) = [job for job in jobs if is_held(site.job(job))]
    assert site.runs(job)
    return Scene(site, job)


def checkpointing(directory: Path, plugin: bool) -> Scene:
    """omfs-run has been sent the signal."""
    site = _site(directory, plugin)
    jobs = [site.submit("bio", method="dmtcp", run_time=20, launched=OmfsRunBehavior(seconds=3.0)) for _ in range(2)]
    site.run(2)
    site.submit("physics", method="", run_time=5)
    site.run(1)
    (job,) = [job for job in jobs if word_of(site, job) is MarkWord.STOPPING]
    assert site.runs(job)
    return Scene(site, job)


def suspended_by_us(directory: Path, plugin: bool) -> Scene:
    """Its preemptor runs."""
    site = _site(directory, plugin)
    jobs = [site.submit("bio", method="suspend", run_time=20) for _ in range(2)]
    site.run(2)
    physics = site.submit("physics", method="", run_time=10)
    site.run_until(lambda: site.runs(physics) and not site.journal.state.preemptions, limit=10)
    (job,) = [job for job in jobs if not site.runs(job)]
    return Scene(site, job)


def pinned(directory: Path, plugin: bool) -> Scene:
    """An urgent job waits until its victims have left their nodes."""
    scene, urgent = _preempted(directory, plugin)
    assert scene.site.job(urgent).request.required_nodes
    scene.job = urgent
    return scene


def entitled_and_pinned(directory: Path, plugin: bool) -> Scene:
    """A job that may not be preempted waits for a node that its account owns."""
    site = _site(directory, plugin)
    for _ in range(2):
        site.submit("bio", run_time=20, ignores_term=True)
    site.run(2)
    scene = Scene(site, site.submit("physics", method="", run_time=5))
    site.run_until(lambda: bool(site.job(scene.job).request.required_nodes), limit=5)
    return scene


def running(directory: Path, plugin: bool) -> Scene:
    """No rule concerns it."""
    site = _site(directory, plugin)
    scene = Scene(site, site.submit("bio", run_time=10))
    site.submit("physics", run_time=15)
    site.run(2)
    assert site.runs(scene.job)
    return scene


STATES: dict[str, Callable[[Path, bool], Scene]] = {
    made.__name__: made
    for made in (
        held_at_submit,
        held_by_us,
        about_to_be_requeued,
        preempted_by_requeue,
        checkpointing,
        exited,
        exited_and_held,
        suspended_by_us,
        pinned,
        entitled_and_pinned,
        running,
    )
}


# -- acts ----------------------------------------------------------------------------------------------------------
Act = Callable[[Scene, Actor], bool]
"""Returns whether Slurm has taken it."""


def _hold(scene: Scene, actor: Actor, by_user: bool = False) -> bool:
    before, state = scene.hold, scene.state
    if not scene.people.hold(scene.job, actor, by_user):
        return False
    # Slurm forgets the hold of a suspended job when that is resumed, and ignores an owner's on a held job.
    if state is not JobState.SUSPENDED and (actor is not Actor.OWNER or before is Hold.NONE):
        scene.is_held_by(actor)
    return True


def _release(scene: Scene, actor: Actor) -> bool:
    was_held = is_held(scene.site.job(scene.job))
    if not scene.people.release(scene.job, actor):
        return False
    if was_held and actor is not Actor.OWNER:
        scene.released.add(scene.job)
    return True


def _requeue_hold(scene: Scene, actor: Actor) -> bool:
    if not scene.people.requeue_hold(scene.job, actor):
        return False
    scene.is_held_by(actor)
    return True


def _suspend(scene: Scene, actor: Actor) -> bool:
    was_suspended = scene.state is JobState.SUSPENDED
    if not scene.people.suspend(scene.job, actor):
        return False
    if not was_suspended:  # else it remains ours for Slurm
        scene.suspended.add(scene.job)
    return True


def _cancel(scene: Scene, actor: Actor) -> bool:
    scene.canceled.add(scene.job)
    return scene.people.cancel(scene.job, actor)


def _other(scene: Scene) -> int:
    """Another job that ends by itself."""
    return next(job for job in scene.site.submitted if job != scene.job)


def _other_account(scene: Scene) -> str:
    return "bio" if scene.site.job(scene.job).account == "physics" else "physics"


def _changing(act: Act) -> Act:
    """An act after which nice and nodes are other people's."""

    def changing(scene: Scene, actor: Actor) -> bool:
        if not act(scene, actor):
            return False
        scene.changed.update(scene.site.submitted)
        return True

    return changing


ACTS: dict[str, Act] = {
    "hold": _hold,
    "release": _release,
    "uhold": lambda scene, actor: _hold(scene, actor, by_user=True),
    "requeue": lambda scene, actor: scene.people.requeue(scene.job, actor),
    "requeuehold": _requeue_hold,
    "suspend": _suspend,
    "resume": lambda scene, actor: scene.people.resume(scene.job, actor),
    "cancel": _cancel,
    "top": _changing(lambda scene, actor: scene.people.top(scene.job, actor)),
    "nice": _changing(lambda scene, actor: scene.people.set_nice(scene.job, actor, 50)),
    "negative nice": _changing(lambda scene, actor: scene.people.set_nice(scene.job, actor, -50)),
    "priority": _changing(lambda scene, actor: scene.people.set_priority(scene.job, actor, 5)),
    "partition": lambda scene, actor: scene.people.set_partition(scene.job, actor, "night"),
    "urgent partition": lambda scene, actor: (
        actor is not Actor.OWNER and scene.people.set_partition(scene.job, actor, "urgent")
    ),
    "QOS": lambda scene, actor: scene.people.set_qos(scene.job, actor, "low"),
    "account": lambda scene, actor: scene.people.set_account(scene.job, actor, _other_account(scene)),
    "nodes": _changing(lambda scene, actor: scene.people.set_nodes(scene.job, actor, "n2")),
    "time limit": lambda scene, actor: scene.people.set_time_limit(scene.job, actor, 900.0),
    "comment": lambda scene, actor: scene.people.set_comment(scene.job, actor, "words"),
    "method": lambda scene, actor: scene.people.set_comment(scene.job, actor, "omfs:method=suspend"),
    "AdminComment": lambda scene, actor: scene.people.set_admin_comment(scene.job, actor, "words"),
    "dependency": lambda scene, actor: scene.people.set_dependency(scene.job, actor, _other(scene)),
    "begin": lambda scene, actor: scene.people.set_begin(scene.job, actor, scene.site.now + 15),
    "licenses": lambda scene, actor: scene.people.set_licenses(scene.job, actor, ("fluent", 1)),
}


# -- what must be so -----------------------------------------------------------------------------------------------
def wrongs(scene: Scene) -> list[str]:
    """Jobs that are not as somebody wants them to be, after two observations."""
    found = [f"job {job} is lost" for job in _lost(scene)]
    if scene.held and scene.times_started > scene.starts:
        found.append(f"job {scene.job} has started, although {scene.held[scene.job]} holds it")
    jobs = scene.site.gateway.jobs()
    wanted = scene.wanted_holds(jobs)
    for job in jobs:
        wrong = [*_about_hold(scene, job, wanted), *_about_fields(scene, job)]
        found += [f"job {job.ref}: {text} [{job.state} {job.hold} {job.reason} {job.admin_comment}]" for text in wrong]
    return found


def _lost(scene: Scene) -> list[int]:
    listed = {job.id for job in scene.site.gateway.jobs()} | scene.canceled
    outcomes = scene.site.outcomes()
    return [job for job in scene.site.submitted if job not in listed and outcomes[job] != "COMPLETED"]


def _about_hold(scene: Scene, job: Job, wanted: set[str]) -> list[str]:
    found = []
    by_person = scene.held.get(job.id)
    if by_person is not None and not is_held(job) and job.state in (JobState.PENDING, JobState.RUNNING):
        found.append(f"the hold of {by_person} is over")
    if job.id in scene.released and job.state is JobState.PENDING and is_held(job):
        found.append("is held again after an administrator released it")
    if by_person is None and is_held(job):
        if not is_held_by_us(job):
            found.append("nobody knows its hold")
        elif job.ref not in wanted:
            found.append("nobody wants our hold")
    if by_person is not None and is_held_by_us(job):
        found.append(f"the hold of {by_person} looks like ours")
    return found


def refs_of_victims(state: State) -> set[str]:
    """Of preemptions under way."""
    return {victim.ref for preemption in state.preemptions.values() for victim in preemption.victims}


def _about_fields(scene: Scene, job: Job) -> list[str]:
    state, found = scene.site.journal.state, []
    owned = state.owned.get(job.ref, {})
    reasons = {PLACEMENT, *map(preemptions_name, state.preemptions.values())}
    if job.state is JobState.PENDING and job.id not in scene.changed:
        nodes = owned.get(JobField.NODES)
        if job.request.required_nodes and (nodes is None or nodes.wanted_by not in reasons):
            found.append("nobody wants its nodes")
        if job.nice and JobField.NICE not in owned:
            found.append("nobody knows its nice")
    known = job.id in scene.suspended or job.ref in refs_of_victims(state) or job.ref in state.preempted
    if job.state is JobState.SUSPENDED and not known:
        found.append("nobody knows its suspension")
    if job.id in scene.suspended and job.runs:
        found.append("the suspension by an administrator is over")
    return found


def settle(scene: Scene) -> list[str]:
    """All must end but what people keep waiting; then they take that back, and that must complete, too."""
    kept = set(scene.held) | scene.suspended
    try:
        _rest(scene, kept)
        found = wrongs(scene)
        for job, actor in scene.held.items():
            scene.people.release(job, actor)
        for job in scene.suspended:
            scene.people.resume(job, Actor.ROOT)
        _rest(scene, set())
    except AssertionError as error:
        return [f"does not come to rest: {error}"]
    wanted = {job: "CANCELLED" if job in scene.canceled else "COMPLETED" for job in scene.site.submitted}
    return found + [f"job {job}: {outcome}" for job, outcome in scene.site.outcomes().items() if outcome != wanted[job]]


def _rest(scene: Scene, kept: set[int]) -> None:
    site = scene.site

    def is_over() -> bool:
        return {job.id for job in site.gateway.jobs()} <= kept and not site.journal.state.preemptions

    site.run_until(is_over, limit=300, step=2)
