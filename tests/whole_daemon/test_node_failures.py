"""Nodes die, are drained, rebooted, powered down, or reserved, or hang, under every job of a preemption, at each step.

Afterwards nobody waits for a belief: the preemptor runs elsewhere, no pin or license of ours is left, and preempted
jobs run, or wait without a hold. Once the node is back, all comes to rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from omfs_daemon.cluster.holds import is_held_by_us
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.preemption.preemption import Step
from omfs_daemon.testing.fake_slurm.fake_gateway import Fault
from omfs_daemon.testing.fake_slurm.node_failures import NodeFailures
from tests.support.amounts import sample
from tests.support.fake_omfs_node import GB
from tests.support.fake_site import Site
from tests.support.preemption_cases import LAUNCHED, ON_NODES, check_peace, methods_site, preemptor, victim, victims

SETTLED_AFTER = 200.0
"""Seconds from an event until all of its consequences must be over: the victims work longer than that."""

CELLS_IN_CI = 60

EVENTS: dict[str, Callable[[NodeFailures, str], None]] = {
    "down": NodeFailures.node_down,
    "drained": NodeFailures.drain,
    "reserved": NodeFailures.reserve,
    "rebooted": NodeFailures.reboot,
    "powered down": NodeFailures.power_down,
    "slurmd hangs": NodeFailures.hang,
    "epilog hangs": NodeFailures.stick,
}
METHODS = ("requeue", "suspend", "dmtcp", "pageout", "ve_swap")
STEPS = ("before", Step.STOPPING, Step.STARTING, Step.DONE, "preemptor ended")
SHAPES = ("one node", "two nodes", "victim elsewhere, too")
KINDS = ("batch", "no requeue", "interactive")


@dataclass(frozen=True)
class Cell:
    event: str
    method: str
    step: str
    shape: str
    kind: str

    def __str__(self) -> str:
        return "-".join((self.event, self.method, self.step, self.shape, self.kind)).replace(" ", "_")


def cells() -> list[Cell]:
    """Without those that cannot be: a job that may not be requeued is no victim of that method."""
    found = [Cell(*cell) for cell in product(EVENTS, METHODS, STEPS, SHAPES, KINDS)]
    return [
        cell
        for cell in found
        if not (cell.method == "requeue" and cell.kind != "batch")
        and not (cell.method in LAUNCHED and (cell.kind == "interactive" or "elsewhere" in cell.shape))
    ]


def of_kind(kind: str) -> dict[str, Any]:
    return {"no requeue": {"requeue": False}, "interactive": {"interactive": True}}.get(kind, {})


def site_of(directory: Path, cell: Cell) -> tuple[Site, list[int], int]:
    site = methods_site(directory, preempt_timeout=30.0, start_timeout=30.0)
    site.slurm.timing = replace(site.slurm.timing, slurmd_timeout=100.0)
    more: dict[str, Any] = {"run_time": 600.0, **of_kind(cell.kind)}
    if "elsewhere" in cell.shape:
        jobs = [wide_victim(site, cell.method, nodes, **more) for nodes in (("n1", "n2"), ("n3", "n4"))]
        site.run_until(lambda: site.runs(*jobs), limit=20)
        site.run(2)
    else:
        jobs = victims(site, cell.method, **more)
    hosts = 2 if cell.shape == "two nodes" else 1
    devices = {"licenses": (("ve", hosts),)} if cell.method == "ve_swap" else {}
    return site, jobs, preemptor(site, cell.method, hosts=hosts, cpus=4 * hosts, **devices)


def wide_victim(site: Site, method: str, nodes: tuple[str, ...], **more: Any) -> int:
    if method == "ve_swap":
        more = {"licenses": tuple((f"ve_{node}", 1) for node in nodes), "on": "", "size": 6 * GB, **more}
    # The lowest free nodes are taken, in this order.
    return victim(site, method, nodes[0], hosts=2, cpus=8, **more)


def reach(site: Site, cell: Cell, urgent: int) -> None:
    """Until the step of the cell; a step that an observation skips is over already."""
    order = list(Step)

    def is_reached() -> bool:
        under_way = list(site.journal.state.preemptions.values())
        if cell.step == "before":
            return True
        if cell.step == "preemptor ended":
            return bool(site.slurm.history[urgent].outcome)
        if not under_way:
            return bool(site.slurm.history[urgent].starts)
        return order.index(under_way[0].step) >= order.index(Step(cell.step))

    site.run_until(is_reached, limit=120, step=0.1)


def node_of(site: Site, cell: Cell, jobs: list[int], urgent: int) -> str:
    """The node that is hit: one that is freed, or where the victim is besides that."""
    under_way = list(site.journal.state.preemptions.values())
    if under_way:
        freed = [allocation.node for allocation in under_way[0].preemptor.allocations]
        victim_nodes = [node for each in under_way[0].victims for node in site.job(int(each.ref)).on_nodes]
    else:
        freed = list(site.job(urgent).on_nodes) or ["n1"]
        suspended = [job for job in jobs if site.state(job) is JobState.SUSPENDED]
        victim_nodes = [node for job in suspended for node in site.job(job).on_nodes]
    others = [node for node in victim_nodes if node not in freed]
    return others[0] if "elsewhere" in cell.shape and others else freed[-1]


# -- what must be so -----------------------------------------------------------------------------------------------
def wrongs(site: Site, jobs: list[int], urgent: int) -> list[str]:
    state, nodes = site.journal.state, {each.name: each for each in site.slurm.node_views()}
    limit = site.settings.preempt_timeout + site.settings.start_timeout
    late = [preemption for preemption in state.preemptions.values() if site.now - preemption.begun > 2 * limit]
    found = [f"preemption {preemption.id} has no deadline: {preemption}" for preemption in late]
    wanted = {ref for preemption in state.preemptions.values() for ref in preemption.refs}
    for job in site.gateway.jobs():
        asked = site.slurm.records[job.id].what
        down = [name for name in job.request.required_nodes - asked.request.required_nodes if not nodes[name].up]
        if job.state is JobState.PENDING and down:
            found.append(f"job {job.ref} is pinned to {down}")
        if job.state is JobState.PENDING and job.ref not in wanted and job.licenses != asked.licenses:
            found.append(f"job {job.ref} waits with licenses {job.licenses} instead of {asked.licenses}")
        if is_held_by_us(job) and job.state is JobState.PENDING and job.ref not in wanted:
            found.append(f"job {job.ref} is held: {job.admin_comment}")
        if job.state is JobState.SUSPENDED and not all(nodes[name].works for name in job.on_nodes):
            found.append(f"job {job.ref} is suspended on a node that does not work")
        if job.id in jobs and job.runs and job.ref not in wanted and job.licenses != asked.licenses:
            found.append(f"job {job.ref} runs without its licenses")
    stopped = [job for job in site.nodes.stopped() if str(job) not in wanted]
    if stopped:
        found.append(f"jobs {stopped} run as far as Slurm knows, and stand still")
    if not site.slurm.history[urgent].outcome:
        found.append(f"the preemptor has not run: {site.reports[-1].summary}")
    if suspended_in_vain(site):
        found.append(f"suspended on idle CPUs: {suspended_in_vain(site)}")
    return found


def suspended_in_vain(site: Site) -> list[str]:
    """Jobs that wait on nodes where nobody uses their CPUs."""
    in_use = {name for job in site.gateway.jobs() if job.holds_cpus for name in job.on_nodes}
    suspended = [job for job in site.gateway.jobs() if job.state is JobState.SUSPENDED]
    return [job.ref for job in suspended if not in_use.intersection(job.on_nodes)]


@pytest.mark.parametrize("cell", sample(cells(), CELLS_IN_CI), ids=str)
def test_a_node_fails(cell: Cell, tmp_path: Path) -> None:
    site, jobs, urgent = site_of(tmp_path, cell)
    reach(site, cell, urgent)
    node = node_of(site, cell, jobs, urgent)
    EVENTS[cell.event](site.slurm, node)
    if cell.event == "down":
        site.nodes.cut(node)
    site.run(30, step=0.5)
    site.run(SETTLED_AFTER - 30, step=2)
    found = wrongs(site, jobs, urgent)
    assert not found, [*found, *site.observation()]
    site.slurm.node_up(node)
    site.nodes.join(node)
    site.run_until(lambda: not site.gateway.jobs() and not site.journal.state.preemptions, limit=3600, step=5)
    # A job that is about to be resumed on a node that the preemptor gets then is moved out again, but too late.
    check_peace(site, may_be_crowded=cell.method in ON_NODES)
    ended = {job: outcome for job, outcome in site.outcomes().items() if outcome != "COMPLETED"}
    can_fail = cell.kind != "batch" and cell.event in ("down", "slurmd hangs", "epilog hangs")
    assert not ended or (can_fail and set(ended.values()) == {"NODE_FAIL"}), ended
    if cell.kind != "batch" and cell.method not in LAUNCHED:
        assert [len(site.slurm.history[job].starts) for job in jobs] == [1] * len(jobs), "requeued against their word"


def placed(site: Site) -> int:
    """An urgent job that waits on idle nodes for the start on the one that was chosen for it."""
    site.run(2)
    job = preemptor(site, "ve_swap", run_time=60)
    site.step(0.0)
    assert site.job(job).request.required_nodes == {"n1"}
    return job


@pytest.mark.parametrize("event", [event for event in EVENTS if "hangs" not in event])
def test_a_node_fails_under_a_job_that_was_placed_there(event: str, tmp_path: Path) -> None:
    """``start_timeout`` is much longer: the job does not wait for that."""
    site = methods_site(tmp_path, start_timeout=600.0)
    job = placed(site)
    EVENTS[event](site.slurm, "n1")
    site.run_until(lambda: site.runs(job), limit=20)
    assert site.job(job).on_nodes == ("n2",) and site.job(job).licenses == (("ve_n2", 1),)
    site.rest()
    check_peace(site)


@pytest.mark.parametrize("event", ["down", "requeued"])
def test_a_job_that_was_placed_and_has_started_is_placed_anew(event: str, tmp_path: Path) -> None:
    site = methods_site(tmp_path, start_timeout=600.0)
    job = placed(site)
    site.run_until(lambda: site.runs(job), limit=20)
    site.run(2)
    if event == "down":
        site.slurm.node_down("n1")
    else:
        site.gateway.requeue([str(job)])
    site.run_until(lambda: not site.job(job).request.required_nodes, limit=5)
    assert site.job(job).licenses == (("ve", 1),)
    site.run_until(lambda: site.runs(job), limit=20)
    assert site.job(job).on_nodes == (("n2",) if event == "down" else ("n1",))
    site.rest()
    check_peace(site)


def test_licenses_that_slurm_never_takes_back_are_given_up(tmp_path: Path) -> None:
    site = methods_site(tmp_path, hosts=1)
    (job,) = victims(site, "ve_swap", count=1, run_time=2000)
    urgent = preemptor(site, "ve_swap", run_time=5)
    site.run_until(lambda: site.runs(urgent), limit=60)
    site.gateway.faults.inject(Fault.REFUSE, ["set_licenses"])
    site.run_until(lambda: site.runs(job), limit=60)
    site.run(300, step=5)
    assert site.journal.state.preempted, "it is tried for a while"
    site.run(400, step=5)
    assert not site.journal.state.preempted and not site.journal.state.owned
    events = [event.event for event in site.history_database.of_job(str(job))]
    assert events == ["preempted", "licenses_not_returned", "runs_again"]
    site.rest()
    check_peace(site)


def test_nobody_waits_for_a_job_that_does_not_leave_its_node(tmp_path: Path) -> None:
    """It was not preempted: it has ended, and its epilog hangs."""
    site = methods_site(tmp_path, hosts=2)
    ended = site.submit("bio", on="n1", run_time=10)
    kept = site.submit("bio", on="n2", run_time=1000)
    site.slurm.stick("n1")
    site.run_until(lambda: site.state(ended) is JobState.COMPLETING, limit=30)
    urgent = preemptor(site, "suspend", run_time=5)
    site.run(60)
    assert site.runs(kept) and site.state(urgent) is JobState.PENDING, "n1 may be free at any moment"
    site.run_until(lambda: site.runs(urgent), limit=90)
    assert site.job(urgent).on_nodes == ("n2",)
    site.slurm.node_up("n1")
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}


def test_nobody_is_preempted_for_a_node_that_the_last_victim_did_not_leave(tmp_path: Path) -> None:
    """The nodes count as closed only later. The job starts on others; its preemption ends with its timeout."""
    site = methods_site(tmp_path, preempt_timeout=30.0)
    victims(site, "requeue", run_time=600)
    for node in ("n3", "n4"):
        site.slurm.stick(node)
    urgent = preemptor(site, "requeue", hosts=2, cpus=8, run_time=5)
    site.run_until(lambda: site.runs(urgent), limit=60)
    assert site.job(urgent).on_nodes == ("n1", "n2")
    site.run(40)  # longer than the timeout
    outcomes = [preemption.outcome for preemption in site.history_database.preemptions(10, 0.0)]
    assert outcomes == ["started", "victim_not_preempted"]


def test_a_preemptor_whose_node_dies_before_its_start_is_observed_starts_elsewhere(tmp_path: Path) -> None:
    site = methods_site(tmp_path)
    victims(site, "suspend", run_time=600)
    urgent = preemptor(site, "suspend")
    site.step(2.0)
    assert site.slurm.history[urgent].starts
    site.slurm.node_down(site.job(urgent).on_nodes[0])
    site.run_until(lambda: site.runs(urgent), limit=15)
    site.rest()
    check_peace(site)


# -- the owner's word ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", KINDS[1:])
def test_what_slurm_may_not_requeue_is_no_victim_of_a_requeue(kind: str, tmp_path: Path) -> None:
    """Slurm shows Requeue=1 of a job of salloc or srun, and refuses to requeue it."""
    site = methods_site(tmp_path)
    kept = [site.submit("bio", on=f"n{number}", run_time=300, **of_kind(kind)) for number in (1, 2, 3)]
    batch = site.submit("bio", on="n4", run_time=300)
    site.run(3)
    assert site.runs(*kept, batch)
    urgent = preemptor(site, "requeue", run_time=5)
    site.run_until(lambda: bool(site.slurm.history[urgent].outcome), limit=30)
    wide = preemptor(site, "requeue", hosts=4, cpus=16)
    site.run(20)
    assert site.state(wide) is JobState.PENDING and site.runs(*kept)
    assert [preemption.preemptor for preemption in site.history_database.preemptions(10, 0.0)] == [str(urgent)]
    assert all(site.job(job).priority for job in kept), "they are not held, either"
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}


@pytest.mark.parametrize("method", LAUNCHED)
def test_omfs_run_in_an_interactive_job_is_not_asked_to_exit(method: str, tmp_path: Path) -> None:
    site = methods_site(tmp_path, hosts=1)
    (job,) = victims(site, method, count=1, run_time=60, interactive=True)
    preemptor(site, method)
    site.run(20)
    assert site.runs(job) and not site.slurm.history[job].signals
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}
