"""Which victims the rules in force still let be preempted, whatever their owners write meanwhile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from omfs_daemon.cluster.jobs import Allocation
from omfs_daemon.policy.rules.classes import JobClassRule
from omfs_daemon.preemption.lapse import lapsed
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.preemption.preemption import Preemption, PreemptionOutcome, Preemptor, Step, VictimState
from omfs_daemon.preemption.realtime_memory import RealtimeMemory
from tests.support.fake_site import Site
from tests.support.policy_builders import NOW, nodes, running, snapshot

PREEMPTOR = Preemptor("8", "physics", "eve", False, False, 0.0, (Allocation("n0", 4, 0),), nice=-5)
CHECKPOINTS = JobClassRule("regular", methods=("dmtcp",), default=(), last_resort="requeue")
REQUEUE = JobClassRule("regular", methods=("requeue",), default=())
NONE = JobClassRule("regular", methods=(), default=(), last_resort="requeue")
CHANGED = PreemptionOutcome.RULES_CHANGED


@pytest.mark.parametrize(
    ("rule", "method", "comment", "ended_part", "expected"),
    [
        (CHECKPOINTS, "requeue", "omfs:method=dmtcp", "", None),
        (CHECKPOINTS, "requeue", "omfs:method=dmtcp omfs:exclude=requeue", "", None),
        (CHECKPOINTS, "suspend", "omfs:method=dmtcp", "", CHANGED),
        (NONE, "requeue", "omfs:method=dmtcp", "", CHANGED),
        (REQUEUE, "requeue", "omfs:method=suspend", "", None),
        (REQUEUE, "suspend", "omfs:method=requeue", "", CHANGED),
        (REQUEUE, "suspend", "omfs:method=requeue", "169+1", None),  # all that is left for a job with an ended part
    ],
)
def test_what_the_rules_in_force_allow(
    tmp_path: Path, rule: JobClassRule, method: str, comment: str, ended_part: str, expected: PreemptionOutcome | None
) -> None:
    job = replace(running(1, cpus=4), comment=comment, ended_part=bool(ended_part))
    site = Site(tmp_path)
    settings = replace(site.settings, rules=replace(site.settings.rules, classes=(rule,), unmatched=rule))
    one = VictimState(job.ref, job.account, job.user, method, 4, job.start or 0.0)
    preemption = Preemption(1, Step.STOPPING, NOW, NOW, "entitled", PREEMPTOR, (one,))
    seen = Observation(snapshot(nodes(1), [job]))
    assert lapsed(preemption, seen, RealtimeMemory(), settings, NOW) is expected
