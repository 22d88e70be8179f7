"""Polls for new jobs alone decide on the last full poll: whatever has happened since, no job that has changed is
preempted, and what is preempted is enough."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.daemon.poll_schedule import PollKind
from tests.support.fake_site import Site

NODES = 3
ENDS = ("cancel", "requeue", "suspend", "resume")
Change = tuple[str, int]

CHANGES = st.lists(
    st.one_of(
        st.tuples(st.sampled_from([*ENDS, "hold", "comment"]), st.integers(0, 5)),
        st.tuples(st.just("submit"), st.sampled_from([1, 2, 4])),
        st.tuples(st.just("wait"), st.integers(1, 12)),
    ),
    max_size=8,
)


def change(site: Site, what: str, number: int) -> None:
    """Something that the daemon does not see."""
    if what == "submit":
        site.submit("physics", cpus=number, run_time=90)
        return
    if what == "wait":
        site.now += number
        site.gateway.jobs()
        return
    jobs = [job for job in site.gateway.jobs() if job.account != "alarm"]
    if not jobs:
        return
    job = jobs[number % len(jobs)]
    if what == "cancel":
        site.slurm.cancel(job.id)
    elif what == "comment":
        site.slurm.set_comment(job.id, "omfs:method=requeue")
    elif what == "hold":
        site.gateway.hold([job.ref], "")
    elif what == "resume":
        site.gateway.resume([job.ref])
    else:
        {"requeue": site.gateway.requeue, "suspend": site.gateway.suspend}[what]([job.ref])


def has_changed(before: Job | None, now: Job | None) -> bool:
    """Whether it is not the same run."""
    return (
        before is None
        or now is None
        or (before.state, before.start, before.restarts, before.allocations)
        != (
            now.state,
            now.start,
            now.restarts,
            now.allocations,
        )
    )


@given(
    sizes=st.lists(st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([15.0, 500.0])), min_size=2, max_size=6),
    changes=CHANGES,
    urgent=st.lists(st.sampled_from([2, 4, 4]), min_size=1, max_size=2),
)
def test_no_job_that_has_changed_is_preempted(
    sizes: Sequence[tuple[int, float]], changes: Sequence[Change], urgent: Sequence[int]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        site = Site(Path(directory), hosts=NODES)
        try:
            for cpus, run_time in sizes:
                site.submit("bio", cpus=cpus, run_time=run_time)
            site.run(6)
            before = {job.id: job for job in site.gateway.jobs()}
            known = set(site.journal.state.preemptions)
            for what, number in changes:
                change(site, what, number)
            for cpus in urgent:
                site.submit("alarm", cpus=cpus, urgent=True, method="", run_time=20)
            now = {job.ref: job for job in site.gateway.jobs()}
            report = site.cycle.run(PollKind.URGENT)
            assert report.error is None
            for number, begun in site.journal.state.preemptions.items():
                if number in known:
                    continue
                freed: Counter[str] = Counter()
                for one in begun.victims:
                    victim = now.get(one.ref)
                    assert victim is not None and victim.state is JobState.RUNNING
                    if has_changed(before.get(victim.id), victim):  # then it must be known as it is now
                        assert victim.id in report.snapshot.asked if report.snapshot else False
                    for node, cpus, _ in victim.allocations:
                        freed[node] += cpus
                assert now[begun.preemptor.ref].state is JobState.PENDING
                assert all(freed[node] >= cpus for node, cpus, _ in begun.preemptor.allocations)
            site.run_until(lambda: not site.journal.state.preemptions, limit=600)
            assert not site.nodes.violations
        finally:
            site.die()
