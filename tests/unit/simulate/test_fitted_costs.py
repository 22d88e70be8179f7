"""The simulator takes what was fitted: so many seconds, and bytes over a rate for each job."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from omfs_daemon.errors import ConfigError
from omfs_daemon.simulate.options import Asked
from omfs_daemon.simulate.options import costs_for
from omfs_daemon.simulate.engine.preemption_costs import CostModel
from omfs_daemon.simulate.engine.preemption_costs import Link
from omfs_daemon.simulate.engine.preemption_costs import Spread
from omfs_daemon.simulate.engine.preemption_costs import by_size
from omfs_daemon.simulate.engine.preemption_costs import stop_costs
from omfs_daemon.simulate.engine.scenario import Machine
from omfs_daemon.simulate.policies.policy_table import policy_named
from omfs_daemon.simulate.engine.scenario import Setting
from omfs_daemon.simulate.assumptions import sentences
from omfs_daemon.simulate.workload.workload import Way
from omfs_daemon.simulate.workload.workload import Workload
from omfs_daemon.simulate.workload.workload import workload

GB = 1e9


def jobs(way: Way, *memory: float, cpus: int = 4) -> Workload:
    count = len(memory)
    return workload(
        "fitted", np.zeros(count), np.full(count, cpus), np.full(count, 10.0), way=np.full(count, way),
        memory=np.array(memory),
    )  # fmt: skip


@pytest.mark.parametrize("way", [Way.CHECKPOINT, Way.SWAP])
def test_fixed_seconds_and_bytes_over_the_rate_of_the_job(way: Way) -> None:
    out, back = Link(job=2 * GB, fixed=1.5), Link(job=1 * GB, fixed=0.5)
    model = CostModel(write=out, read=back, swap_out=out, swap_in=back)
    costs = stop_costs(jobs(way, 0.0, 4 * GB), model, seed=0)
    assert costs.stop.tolist() == [1.5, 3.5], "whatever the number of CPUs"
    assert costs.resume.tolist() == [0.5, 4.5]
    assert costs.queueing.tolist() == [0, 0], "jobs do not wait for each other"


def test_of_several_rates_the_slowest_counts() -> None:
    model = CostModel(write=Link(each=1 * GB, job=2 * GB, together=8 * GB, fixed=1.0))
    assert stop_costs(jobs(Way.CHECKPOINT, 4 * GB), model, seed=0).stop.tolist() == [3.0]
    assert stop_costs(jobs(Way.CHECKPOINT, 4 * GB, cpus=1), model, seed=0).stop.tolist() == [5.0]


def test_checkpoints_can_be_drawn_as_swaps_can() -> None:
    costs = stop_costs(jobs(Way.CHECKPOINT, 4 * GB), CostModel(write=Spread(2, 2), read=Spread(3, 3)), seed=0)
    assert (costs.stop.tolist(), costs.resume.tolist(), costs.queueing.tolist()) == ([2], [3], [0])


def test_the_options_take_what_is_printed() -> None:
    asked = Asked(
        swap_out=by_size(0.5, 2.5e9), swap_in="0.1:0.2", checkpoint_out=by_size(3.0, inf), checkpoint_in="7:7"
    )
    assert asked.swap_out == "0.5+bytes/2.5e+09"
    costs = costs_for(asked)
    assert costs.swap_out == Link(job=2.5e9, fixed=0.5)
    assert costs.swap_in == Spread(0.1, 0.2)
    assert costs.write == Link(fixed=3.0)
    assert costs.read == Spread(7, 7)


@pytest.mark.parametrize(
    "text",
    ["-1+bytes/1e9", "1+bytes/0", "1+bytes/-5", "1+bytes/", "+bytes/1e9", "nan+bytes/1", "1+bytes/nan", "1e99+bytes/1"],
)
@pytest.mark.parametrize("option", ["swap_out", "checkpoint_in"])
def test_what_makes_no_sense_is_refused_in_one_line(option: str, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Asked(**{option: text})  # type: ignore[arg-type]
    message = str(raised.value)
    assert message.startswith(f"--{option.replace('_', '-')} = {text!r}: must be LO:HI in seconds")
    assert message.endswith("or SECONDS+bytes/RATE, such as 0.5+bytes/4e8")
    assert "\n" not in message


def test_the_result_tells_what_was_assumed() -> None:
    asked = Asked(procs=4, checkpoint_out="1.5+bytes/2e9", checkpoint_in="0.5+bytes/1e9")
    setting = Setting(jobs(Way.CHECKPOINT, 0.0, GB), Machine(4), costs=costs_for(asked))
    told = " ".join(sentences(setting, policy_named("ujfb")))
    assert "written 1.5 s and at 2 GB/s for each job, read 0.5 s and at 1 GB/s for each job" in told
    assert "1 of unknown size, which count as empty" in told
