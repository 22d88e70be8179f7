"""A victim whose memory is out waits for a slower one; their preemption is undone just as another job needs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.preemption.methods.node_work import NodeAction
from omfs_daemon.testing.fake_slurm.omfs_run_behavior import OmfsRunBehavior
from tests.support.preemption_cases import ON_NODES, check_peace, lost, methods_site, preemptor, victim


@pytest.mark.parametrize("method", ON_NODES)
def test_it_is_not_continued_while_it_is_suspended(tmp_path: Path, method: str) -> None:
    site = methods_site(tmp_path, hosts=1)
    slow = victim(site, "dmtcp", cpus=2, on="n1", run_time=60, launched=OmfsRunBehavior(seconds=30))
    moved = victim(site, method, "n1", cpus=2, run_time=60, **({"on": "n1"} if method == "pageout" else {}))
    site.run(3)
    first = preemptor(site, "", cpus=4)
    site.run(1)
    second = preemptor(site, "", cpus=2)
    site.run_until(lambda: site.nodes.out() == [moved], limit=20)
    site.run(2)
    assert site.runs(slow, moved), "its memory is out, and it waits for the other one"
    site.slurm.cancel(first)
    asked = len(site.nodes.asked)
    site.run_until(lambda: site.runs(second), limit=10)
    assert site.state(moved) is JobState.SUSPENDED
    assert NodeAction.IN.value not in [do for _, do, *_ in site.nodes.asked[asked:]]
    site.rest()
    check_peace(site)
    assert lost(site, [slow, moved]) == 0
