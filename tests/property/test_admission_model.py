"""The submit plug-in and the daemon together, on the fake: whatever is submitted when, no entitlement is exceeded, and
the daemon holds nothing that the plug-in has let in."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.cluster.accounts import AccountTree, Entitlement
from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.daemon.admission_file import admission_text
from omfs_daemon.testing.fake_slurm.fake_admission import FakeAdmission
from tests.support.fake_site import Site, site_rules

SETTINGS = {"SelectTypeParameters": "CR_CORE", "AllowSpecResourcesUsage": "No", "JobSubmitPlugins": "lua"}
TREE = AccountTree(
    [
        Entitlement("bio", 50),  # type: ignore[arg-type]
        Entitlement("genes", 75, "bio"),  # type: ignore[arg-type]
        Entitlement("cells", 25, "bio"),  # type: ignore[arg-type]
        Entitlement("physics", 40),  # type: ignore[arg-type]
    ]
)

submits = st.tuples(
    st.just("submit"),
    st.sampled_from(["genes", "cells", "physics", "chem"]),
    st.integers(1, 4),
    st.sampled_from(["", "", "", "requeue"]),
    st.sampled_from([0.3, 5.0, 60.0]),
)
ACTS = st.lists(
    st.one_of(submits, submits, st.sampled_from([("poll",), ("write",), ("poll+write",), ("wait",)])),
    max_size=60,
)


class GatedSite(Site):
    """A site whose plug-in reads what the daemon has written."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, replace(site_rules(), tree=TREE))
        self.text = self.coming = ""
        self.slurm.admission = FakeAdmission(lambda: self.text, self.now - 10)

    def poll(self) -> None:
        """Without the file, which is written a moment later."""
        report = self.step(0)
        assert report.plan is not None
        assert report.snapshot is not None
        self.coming = admission_text(report.snapshot, report.rules, report.plan.room, SETTINGS)

    def write(self) -> None:
        self.text = self.coming


def usage(jobs: list[Job]) -> Counter[int]:
    found: Counter[int] = Counter()
    for job in jobs:
        for index in TREE.leaf(job.account).path:
            found[index] += job.request.cpus
    return found


@given(acts=ACTS)
def test_the_plug_in_and_the_daemon_keep_every_entitlement(acts: list[tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        site = GatedSite(Path(directory))
        entitled = TREE.entitled(16)
        let_in: list[int] = []
        site.poll()
        site.write()
        for act in acts:
            if act[0] != "submit":
                site.now += 3.0 if act[0] == "wait" else 0.1
                if "poll" in str(act[0]):
                    site.poll()
                if "write" in str(act[0]):
                    site.write()
                continue
            _, account, cpus, method, run_time = act
            number = site.submit(str(account), int(str(cpus)), str(method), float(str(run_time)))
            if not method and site.job(number).hold is Hold.NONE:
                let_in.append(number)
            live = [job for job in site.gateway.jobs() if not job.comment and job.hold is Hold.NONE]
            used = usage([job for job in live if job.state in (JobState.PENDING, JobState.RUNNING)])
            assert all(used[index] <= entitled[index] for index in used), (used, entitled)
        held = [number for number in let_in if "omfs:held" in site.job(number).admin_comment]
        assert held == []


def test_a_job_that_was_held_keeps_the_room_until_its_release_is_written(tmp_path: Path) -> None:
    site = GatedSite(tmp_path)
    site.poll()
    site.write()
    uncertain = site.submit("physics", 4, "", open_tasks=True)
    assert site.job(uncertain).hold is Hold.USER
    site.poll()
    assert site.job(uncertain).hold is Hold.NONE, "it fits into six CPUs"
    assert site.job(site.submit("physics", 4, "")).hold is Hold.USER, "the file does not say so yet"
    site.write()
    assert site.job(site.submit("physics", 2, "")).hold is Hold.USER, "nor has the daemon seen them all"
