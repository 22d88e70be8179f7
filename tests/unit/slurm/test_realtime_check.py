"""What real-time classes promise, against time limits and the time that a preemption takes."""

from __future__ import annotations

from dataclasses import replace

from omfs_daemon.cluster.nodes import Partition
from omfs_daemon.slurm.realtime_check import Promise, SlowestMethod, realtime_findings
from omfs_daemon.slurm.settings_check import Finding, Level

PROMISE = Promise("beamline", ("beam",), 1.5, 1.25)
BEAM = Partition("beam", max_time=3600.0)
OTHER = Partition("main")
DMTCP = SlowestMethod("dmtcp", 145.0)


def found(*partitions: Partition, promise: Promise = PROMISE, slowest: SlowestMethod | None = DMTCP) -> Finding:
    (one,) = realtime_findings([promise], partitions or (BEAM, OTHER), slowest)
    assert one.subject == "real-time class beamline"
    return one


def test_it_says_from_which_time_limit_on_the_bound_is_safe() -> None:
    one = found()
    assert (one.level, one.fix) == (Level.OK, "")
    assert one.what == (
        "a bound of 1.5 is safe for time limits from 10 min on: dmtcp may take 145 s, and 25% of the limit are left "
        "for it"
    )


def test_a_partition_without_any_time_limit_is_named() -> None:
    one = found(OTHER, BEAM, promise=PROMISE._replace(partitions=()))
    assert one.level is Level.WARN
    assert one.what.endswith("for it; jobs without a time limit are never due in main")
    assert one.fix == "DefaultTime for main"
    assert found(replace(BEAM, max_time=float("inf"), default_time=600.0)).level is Level.OK


def test_a_partition_whose_limit_is_too_short_is_named() -> None:
    one = found(replace(BEAM, max_time=599.0))
    assert (one.level, one.fix) == (Level.WARN, "a lower act_at, or a faster method")
    assert one.what.endswith("; no job may have so long a limit in beam")
    assert found(replace(BEAM, max_time=600.0)).level is Level.OK


def test_a_class_that_acts_at_its_bound_keeps_nothing() -> None:
    one = found(promise=PROMISE._replace(act_at=1.5))
    assert (one.level, one.fix) == (Level.WARN, "an act_at below slowdown_bound")
    assert one.what == "acts at its bound of 1.5: a job that starts by a preemption is too late"


def test_without_methods_nobody_is_preempted() -> None:
    one = found(slowest=None)
    assert (one.level, one.fix) == (Level.WARN, "methods or default in the classes of regular jobs")
    assert one.what.startswith("no class has methods: ")


def test_there_is_nothing_to_say_without_real_time_classes() -> None:
    assert realtime_findings([], [BEAM], DMTCP) == []
