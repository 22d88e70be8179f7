"""Whatever users, nodes, and Slurm do, and however often the daemon dies: no job is lost, and all comes to rest."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from omfs_daemon.cluster.jobs import Hold, JobState
from omfs_daemon.cluster.marks import SUBMIT_MARK
from omfs_daemon.testing.fake_slurm.fake_gateway import Fault
from tests.support.fake_site import FAULTY, Killed, Site, site_rules

submit = st.tuples(
    st.just("submit"),
    st.sampled_from(["bio", "physics", "chem"]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from(["requeue", "suspend", "", "held", "urgent"]),
    st.integers(1, 60),
)
cancel = st.tuples(st.just("cancel"), st.integers(0, 30))
NODE_EVENTS = ("node_down", "node_up", "drain", "reboot", "hang")
node = st.tuples(st.sampled_from(NODE_EVENTS), st.sampled_from(["n1", "n2", "n3", "n4"]))
fault = st.tuples(
    st.just("fault"),
    st.sampled_from([Fault.DEAD, Fault.HANG, Fault.LATE, Fault.IGNORE, Fault.REFUSE]),
    st.sampled_from([*FAULTY, "jobs", "nodes"]),
    st.integers(1, 3),
)
kill = st.tuples(st.just("kill"), st.integers(1, 12))
wait = st.tuples(st.just("wait"), st.sampled_from([0.5, 2.0, 10.0, 30.0]))
release = st.tuples(st.just("release"), st.integers(0, 30))
events = st.lists(st.one_of(submit, submit, submit, wait, wait, cancel, node, fault, kill, release), max_size=40)


def step(site: Site, seconds: float) -> None:
    """Let time pass; a daemon that dies meanwhile is restarted."""
    end = site.now + seconds
    while site.now < end:
        try:
            site.step(0.5)
        except Killed:
            site.die()
            site.fuse.kill_at = None
            site.start_daemon()
            site.now += 0.5


def do(site: Site, event: tuple[object, ...], canceled: set[int]) -> None:
    match event:
        case ("submit", account, cpus, kind, run_time):
            is_held = kind == "held"
            site.submit(
                account,
                cpus,
                method=kind if kind in ("requeue", "suspend") else "",
                urgent=kind == "urgent",
                run_time=float(run_time),
                hold=Hold.USER if is_held else Hold.NONE,
                admin_comment=SUBMIT_MARK if is_held else "",
            )
        case ("cancel", index) if site.submitted:
            job_id = site.submitted[index % len(site.submitted)]
            site.slurm.cancel(job_id)
            canceled.add(job_id)
        case ("release", index) if site.submitted:
            site.slurm.user_release(site.submitted[index % len(site.submitted)])
        case (happens, name) if happens in NODE_EVENTS:
            getattr(site.slurm, happens)(name)
        case ("fault", kind, method, times):
            site.gateway.faults.inject(kind, (method,), times=times)
        case ("kill", acts):
            site.fuse.kill_at = site.fuse.acts + acts
        case ("wait", seconds):
            step(site, seconds)


@given(events, st.booleans())
@example(  # the order is refused once: the hold comes a cycle later
    [
        *[("submit", "bio", 1, "requeue", 1)] * 2,
        ("submit", "chem", 1, "held", 1),
        ("fault", Fault.REFUSE, "hold", 1),
        ("wait", 0.5),
    ],
    True,
)
def test_no_job_is_lost_and_all_comes_to_rest(sequence: list[tuple[object, ...]], plugin: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        site = Site(
            Path(directory),
            site_rules(quantum=2.0),
            plugin=plugin,
            retry_after=20,
            start_timeout=20,
            preempt_timeout=20,
        )
        canceled: set[int] = set()
        for event in sequence:
            do(site, event, canceled)
        site.gateway.faults.clear()
        for name in ("n1", "n2", "n3", "n4"):
            site.slurm.node_up(name)
        site.fuse.kill_at = None
        step(site, 5.0)
        site.run_until(
            lambda: not site.journal.state.preemptions and all(is_settled(site, job_id) for job_id in site.submitted),
            limit=7200,
            step=1.0,
        )
        for job_id in site.submitted:
            outcome = site.slurm.history[job_id].outcome
            if outcome:
                assert outcome == "COMPLETED" or job_id in canceled, (job_id, outcome)
            else:
                assert site.job(job_id).hold is Hold.ADMIN, "it waits in a hold of ours"
        site.die()


def is_settled(site: Site, job_id: int) -> bool:
    """Whether it ended, or waits forever by rule: it is non-preemptible, and its account has no entitlement."""
    job = site.job(job_id) if not site.slurm.history[job_id].outcome else None
    if job is None:
        return True
    owns_nothing = job.account == "chem" and not job.comment and "urgent" not in job.request.partitions
    return owns_nothing and job.state is JobState.PENDING and job.hold is Hold.ADMIN
