"""What must be so on a random site: always, once all is calm, and at the end."""

from __future__ import annotations

from omfs_daemon.cluster.holds import is_held, is_held_by_us, is_held_for_owner
from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.units import Unit
from omfs_daemon.config.load import parse_config
from omfs_daemon.daemon.failsafe import rescue
from omfs_daemon.policy.rules.job_kinds import JobKinds
from omfs_daemon.preemption.desired import PLACEMENT, preemptions_name
from omfs_daemon.preemption.ownership import JobField
from omfs_daemon.testing.fake_slurm.fake_jobs import BAD_CONSTRAINTS, Record
from omfs_daemon.testing.fake_slurm.people import Actor
from tests.support.fake_omfs_node import FakeTransport
from tests.support.model_site import ModelSite, calm, happen
from tests.support.watched_slurm import PEOPLE

CALM = 90.0
"""Seconds until all is in order again after the last failure: an order that was refused is sent again after 60."""

STEP = 2.5
END = 7200.0

_CONFIG = """
[daemon]
state_dir = "{directory}"
run_dir = "{directory}/run"
failsafe_grace_seconds = 10
[nodes]
worker = "local"
command = ["/usr/libexec/omfs/omfs-node"]
"""


class Violation(AssertionError):
    """Something is not as it must be."""


def _require(site: ModelSite, wrongs: list[str]) -> None:
    if wrongs:
        raise Violation("\n".join([*wrongs, "", *described(site)]))


def described(site: ModelSite) -> list[str]:
    found = [f"now={site.now} {site.cluster}"]
    for record in site.live():
        job = record.view(site.slurm.now)
        found.append(
            f"{job.ref} ({job.id}) {job.account} {job.state} {job.hold} by {site.slurm.holders.get(job.id)} "
            f"{job.reason} eligible={job.eligible} "
            f"nice={job.nice} req={sorted(job.request.required_nodes)} on={job.on_nodes} {job.licenses} "
            f"prio={job.priority} [{job.admin_comment}] [{job.comment}]"
        )
    state = site.journal.state
    found += [f"preemption {one}" for one in state.preemptions.values()]
    found += [f"preempted {state.preempted}", f"owned {state.owned}", f"held {state.held} releasing {state.releasing}"]
    found.append(f"unsaved {state.unsaved}")
    return found


# -- always --------------------------------------------------------------------------------------------------------
def check_always(site: ModelSite) -> None:
    """After each cycle."""
    report = site.reports[-1] if site.reports else None
    wrongs = list(site.slurm.wrongs)
    if report is not None and report.summary.startswith("internal error"):
        wrongs.append(f"{report.summary}: {report.error}")
    _require(site, [*wrongs, *_unfair(site), *_twice(site)])


def _unfair(site: ModelSite) -> list[str]:
    """Accounts at or below their entitlement that were made to give."""
    report = site.reports[-1] if site.reports else None
    if report is None or report.verdict is None or report.snapshot is None:
        return []
    tree, jobs = site.settings.rules.tree, report.snapshot.jobs
    used = [0] * len(tree.entities)
    for job in jobs.values():
        cpus = sum(allocation.cpus for allocation in job.allocations) if job.holds_cpus else 0
        for index in tree.leaf(job.account).path:
            used[index] += cpus
    starting = [(one.preemptor.account, one.preemptor.allocations) for one in site.journal.state.preemptions.values()]
    if report.plan is not None:
        starting += [(start.account, start.allocations) for start in (*report.plan.starts, *report.plan.promises)]
    for account, allocations in starting:
        for index in tree.leaf(account).path:
            used[index] += sum(allocation.cpus for allocation in allocations)
    entitled = tree.entitled(sum(node.cpus for node in report.snapshot.nodes.values() if node.up))
    return [
        f"job {victim.ref} of {victim.account} gives to {planned.preemptor} of {planned.account}"
        for planned in report.verdict.preemptions
        if not planned.urgent
        for victim in planned.victims
        if not any(used[index] > entitled[index] for index in tree.leaf(victim.account).path)
    ]


def _twice(site: ModelSite) -> list[str]:
    """Jobs that were preempted twice and did not run between."""
    last: dict[str, float] = {}
    found = []
    for event in site.events:
        if event.event != "preempted":
            continue
        before = last.get(event.job)
        if before is not None and not any(before - 1 <= at <= event.time for at in _progress(site, event.job)):
            found.append(f"job {event.job} was preempted at {before} and at {event.time}, and did not run between")
        last[event.job] = event.time
    return found


def _progress(site: ModelSite, ref: str) -> list[float]:
    array, _, task = ref.partition("_")
    ids = [one.id for one in site.slurm.records.values() if str(one.array_id) == array] if task else [int(ref)]
    return [at for number in ids for at in (*site.slurm.history[number].starts, *site.slurm.progress.get(number, ()))]


# -- once all is calm ------------------------------------------------------------------------------------------------
def settle(site: ModelSite) -> None:
    """Nothing goes wrong from now on: within ``CALM`` seconds every job must be as somebody wants it."""
    calm(site)
    end, wrongs = site.now + CALM, ["not looked yet"]
    for _ in range(2):
        site.cycle_once(STEP)
        check_always(site)
    while wrongs and site.now < end:
        site.cycle_once(STEP)
        check_always(site)
        wrongs = unsettled(site)
    _require(site, wrongs)


def unsettled(site: ModelSite) -> list[str]:
    """Jobs that are not as anybody wants them to be."""
    report = site.reports[-1]
    if report.plan is None:
        return [f"no plan: {report.summary}"]
    found = _vanished(site) + _shared(site)
    for record in site.live():
        job = record.view(site.slurm.now)
        texts = [*_about_hold(site, record, job), *_about_fields(site, job), *_about_suspension(site, job)]
        found += [f"job {job.ref}: {text}" for text in texts]
    return found


def _about_hold(site: ModelSite, record: Record, job: Job) -> list[str]:
    holder, found = site.slurm.holders.get(job.id), []
    if not is_held(job):
        return []
    if holder in PEOPLE:
        return [f"the hold of {holder} looks like ours"] if is_held_by_us(job) and site.cluster.plugin else []
    if record.held_text == BAD_CONSTRAINTS or (is_held_for_owner(job) and record.special_exit):
        return []
    if not is_held_by_us(job):
        found.append(f"nobody knows its hold, by {holder}")
    elif not _wants_hold(site, job):
        found.append("nobody wants our hold")
    return found


def _wants_hold(site: ModelSite, job: Job) -> bool:
    plan = site.reports[-1].plan
    assert plan is not None
    victims = {victim.ref for preemption in site.journal.state.preemptions.values() for victim in preemption.victims}
    refs = victims.union(plan.kept, (change.ref for change in plan.holds))
    if job.ref in refs:
        return True
    return job.array_id is not None and any(ref.partition("_")[0] == str(job.array_id) for ref in refs)


def _about_fields(site: ModelSite, job: Job) -> list[str]:
    state, found = site.journal.state, []
    if job.state is not JobState.PENDING or job.id in site.slurm.changed:
        return []
    owned = state.owned.get(job.ref, {})
    reasons = {PLACEMENT, *map(preemptions_name, state.preemptions.values())}
    nodes = owned.get(JobField.NODES)
    if job.request.required_nodes and (nodes is None or nodes.wanted_by not in reasons):
        found.append("nobody wants its nodes")
    if job.nice and JobField.NICE not in owned:
        found.append(f"nobody knows its nice: {job.nice}")
    return found


def _about_suspension(site: ModelSite, job: Job) -> list[str]:
    if job.state is not JobState.SUSPENDED or site.slurm.suspenders.get(job.id) in PEOPLE:
        return []
    state = site.journal.state
    victims = {victim.ref for preemption in state.preemptions.values() for victim in preemption.victims}
    return [] if job.ref in victims.union(state.preempted) else ["nobody knows its suspension"]


def _shared(site: ModelSite) -> list[str]:
    """CPUs and devices that two running jobs have; not those of a job that people have resumed."""
    owners: dict[Unit, str] = {}
    found = []
    for record in site.live():
        if record.state is not JobState.RUNNING or record.id in site.slurm.resumed:
            continue
        for unit in (unit for taken in record.taken for unit in taken.units):
            other = owners.setdefault(unit, record.ref)
            if other != record.ref:
                found.append(f"jobs {other} and {record.ref} both have {unit}")
    return found


def _vanished(site: ModelSite) -> list[str]:
    found = []
    for number, history in site.slurm.history.items():
        if number in site.slurm.forgotten and number not in site.slurm.records:
            continue
        is_listed = number in site.slurm.records and site.slurm.records[number].state is not JobState.ENDED
        allowed = {"COMPLETED"}
        allowed |= {"CANCELLED"} if number in site.canceled or _is_task_of(site, number, site.canceled) else set()
        allowed |= {"TIMEOUT"} if number in site.shortened or _is_task_of(site, number, site.shortened) else set()
        record = site.slurm.records.get(number)
        allowed |= {"NODE_FAIL"} if record is None or not record.requeue else set()
        if not is_listed and history.outcome not in allowed:
            found.append(f"job {number} is lost: {history.outcome or 'not listed'}")
    return found


def _is_task_of(site: ModelSite, number: int, ids: set[int]) -> bool:
    record = site.slurm.records.get(number)
    return record is not None and record.array_id in ids


# -- the end ---------------------------------------------------------------------------------------------------------
def end_all(site: ModelSite) -> None:
    """People take back what they have done; then all jobs end but those that wait by rule, and nothing is left."""
    settle(site)
    _let_people_go(site)
    end = site.now + END
    while left := [record for record in site.live() if not _waits_for_good(site, record)]:
        if site.now > end:
            _require(site, [f"job {record.ref} does not end" for record in left])
        for _ in range(2):
            site.cycle_once(STEP)
            check_always(site)
        _let_people_go(site)
    settle(site)
    for record in site.live():
        happen(site, ("by hand", Actor.ROOT, "cancel", 0))
        site.canceled.add(record.id)
    for _ in range(8):
        site.cycle_once(STEP)
    state = site.journal.state
    left_over = {"preemptions": state.preemptions, "preempted": state.preempted, "owned": state.owned}
    left_over |= {"held": state.held, "releasing": state.releasing, "unsaved": state.unsaved}
    _require(site, [f"the journal still has {name}: {what}" for name, what in left_over.items() if what])
    check_always(site)


def _let_people_go(site: ModelSite) -> None:
    slurm = site.slurm
    for name in slurm.fake_nodes:
        slurm.node_up(name)
    for record in site.live():
        if record.state is JobState.SUSPENDED and slurm.suspenders.get(record.id) in PEOPLE:
            with slurm.acting(Actor.ROOT):
                site.people.resume(record.id, Actor.ROOT)
        elif record.priority == 0 and slurm.holders.get(record.id) in PEOPLE:
            with slurm.acting(Actor.ROOT):
                site.people.release(record.id, Actor.ROOT)


def _waits_for_good(site: ModelSite, record: Record) -> bool:
    """By rule: it may not be preempted and is beyond its account's entitlement, or no node could ever have it."""
    if record.state is not JobState.PENDING:
        return False
    job = record.view(site.slurm.now)
    if record.held_text == BAD_CONSTRAINTS or (not is_held(job) and not site.slurm.fits_ever(record)):
        return True
    if any(one.state is not JobState.PENDING for one in site.live()):
        return False
    if not is_held(job):
        return record.depends
    rules = site.settings.rules
    kind = JobKinds(rules).of(job)
    total = sum(node.node.cpus for node in site.slurm.fake_nodes.values())
    entitled = rules.tree.entitled(total)
    cpus = (
        max(node.node.cpus for node in site.slurm.fake_nodes.values()) * 2
        if job.request.exclusive
        else job.request.cpus
    )
    too_large = any(cpus > entitled[index] for index in kind.leaf.path)
    return is_held_by_us(job) and ((kind.non_preemptible and too_large) or not site.slurm.fits_ever(record))


def let_go(site: ModelSite) -> None:
    """The daemon is dead for good: the failsafe ends all that it held."""
    calm(site)
    site.die()
    site.now += 20
    config = parse_config(_CONFIG.format(directory=site.directory), "omfs.toml")

    def wait(seconds: float) -> None:
        site.now += seconds

    code = 1
    for _ in range(200):
        code = rescue(config, site.gateway, lambda: site.now, FakeTransport(site.nodes, wait))
        if code == 0:
            break
        site.now += 10
    wrongs = list(site.slurm.wrongs) + ([] if code == 0 else ["the failsafe does not come to an end"])
    for record in site.live():
        job = record.view(site.slurm.now)
        if is_held_by_us(job):
            wrongs.append(f"job {job.ref}: our hold is left")
        if job.state is JobState.SUSPENDED and site.slurm.suspenders.get(job.id) not in PEOPLE:
            wrongs.append(f"job {job.ref}: our suspension is left")
        if job.state is JobState.PENDING and job.request.required_nodes and job.id not in site.slurm.changed:
            wrongs.append(f"job {job.ref}: our nodes are left")
    _require(site, wrongs)
