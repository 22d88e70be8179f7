"""What the tests of preemption methods have in common: sites, victims and preemptors for each method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from omfs_daemon.cluster.holds import admin_comment_of
from omfs_daemon.cluster.jobs import Hold, JobState
from omfs_daemon.cluster.marks import SUBMIT_MARK, MarkWord
from omfs_daemon.slurm.node_licenses import NodeLicense, NodeLicenses
from omfs_daemon.testing.fake_slurm.omfs_run_behavior import OmfsRunBehavior
from tests.support.fake_omfs_node import GB
from tests.support.fake_site import Killed, Site, site_rules

ALL = ("requeue", "suspend", "dmtcp", "application", "pageout", "ve_swap")
LAUNCHED = ("dmtcp", "application")
ON_NODES = ("pageout", "ve_swap")
CAREFUL = (*LAUNCHED, *ON_NODES)

VE_SIZE = 30 * GB  # of a VE's 48 GB: two of these never have room on one VE

Act = Callable[[Site], Any]


def methods_site(directory: Path, last_resort: str = "", hosts: int = 4, **more: Any) -> Site:
    """Each node has one VE, which licenses count; every method may be chosen."""
    licenses = {"ve": 9999, **{f"ve_n{number}": 1 for number in range(1, hosts + 1)}}
    node_licenses = NodeLicenses([NodeLicense("ve_{node}", "devices", any="ve")])
    rules = site_rules(methods=ALL, last_resort=last_resort)
    return Site(directory, rules, hosts, licenses, **{"memory": 48 * GB, "node_licenses": node_licenses, **more})


def victim(site: Site, method: str, node: str = "", account: str = "bio", **more: Any) -> int:
    """A job of one node that can be preempted by this method; under ve_swap it has the node's VE."""
    if method in LAUNCHED:
        more.setdefault("launched", OmfsRunBehavior(method))
    if method == "pageout":
        more.setdefault("size", 6 * GB)
    if method == "ve_swap":
        more = {"size": VE_SIZE, "on": node, "licenses": ((f"ve_{node}", 1),), **more}
    return site.submit(account, method=method, **more)


def victims(site: Site, method: str, count: int = 4, **more: Any) -> list[int]:
    """One on each node; all run, and report that they are ready."""
    jobs = [victim(site, method, f"n{number}", **more) for number in range(1, count + 1)]
    site.run_until(lambda: site.runs(*jobs), limit=20)
    site.run(2)
    return jobs


def preemptor(site: Site, method: str, run_time: float = 20.0, **more: Any) -> int:
    """Urgent. Where victims have VEs it needs one, on whichever node."""
    if method == "ve_swap":
        held_at_submit = {"hold": Hold.USER, "admin_comment": SUBMIT_MARK}
        more = {"size": VE_SIZE, "licenses": (("ve", 1),), **held_at_submit, **more}
    return site.submit("alarm", urgent=True, method="", run_time=run_time, **more)


# -- what must be so, whatever happened -------------------------------------------------------------------------
def used(site: Site) -> dict[str, int]:
    """Licenses that are held."""
    return {row.name: row.used for row in site.gateway.licenses() if row.used}


def check_peace(site: Site, may_be_crowded: bool = False) -> None:
    """Everything has come to rest: nothing is held, stopped, moved out, or missing licenses."""
    assert not site.nodes.violations, site.nodes.violations
    assert may_be_crowded or not site.nodes.crowded, site.nodes.crowded
    assert not site.held(), site.observation()
    assert not site.nodes.stopped(), site.nodes.stopped()
    assert not site.nodes.out(), site.nodes.out()
    assert not used(site), used(site)


def check_running_as_before(site: Site, *jobs: int) -> None:
    """These jobs run, compute, have their licenses, and no preemption is remembered."""
    assert not site.nodes.violations, site.nodes.violations
    assert not site.nodes.crowded, site.nodes.crowded
    assert site.runs(*jobs), site.observation()
    assert not set(site.nodes.stopped()) & set(jobs)
    assert not set(site.nodes.out()) & set(jobs)
    for job in jobs:
        assert site.job(job).licenses == site.slurm.records[job].what.licenses, job
        assert str(job) not in site.journal.state.preempted
        assert word_of(site, job) in (None, MarkWord.RELEASED)


def word_of(site: Site, job: int) -> MarkWord | None:
    return admin_comment_of(site.job(job)).word


def lost(site: Site, jobs: Sequence[int]) -> float:
    return sum(site.slurm.history[job].lost for job in jobs)


def play(site: Site, acts: Sequence[tuple[float, Act]], away: float = 1.0, limit: float = 3600.0) -> None:
    """Let users do these things, so many seconds after the beginning, until all jobs have ended; a daemon that dies on
    the way is started again after a while."""
    begun, left = site.now, list(acts)
    while left or site.gateway.jobs() or site.journal.state.preemptions:
        assert site.now < begun + limit, (site.observation(), site.journal.state.preemptions, site.reports[-1].summary)
        while left and site.now - begun >= left[0][0]:
            left.pop(0)[1](site)
        quiet = not site.journal.state.preemptions and not site.journal.state.preempted
        try:
            site.step(1.5 if quiet or site.now > begun + 120 else 0.5)
        except Killed:
            site.die()
            site.now += away
            site.start_daemon()


def is_pinned(site: Site, job_id: int) -> bool:
    job = site.job(job_id)
    return job.state is JobState.PENDING and bool(job.request.required_nodes)
