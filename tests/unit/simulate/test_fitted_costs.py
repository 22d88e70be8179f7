"""The simulator takes what was fitted: so many seconds, and bytes over a rate for each job."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from omfs_daemon.errors import ConfigError
from omfs_daemon.simulate.assumptions import assumption_sentences
from omfs_daemon.simulate.engine.preemption_costs import CostModel, Link, Spread, by_size, simulated_costs
from omfs_daemon.simulate.engine.scenario import Machine, Scenario
from omfs_daemon.simulate.options import SimulationOptions, costs_for
from omfs_daemon.simulate.policies.policy_table import policy_named
from omfs_daemon.simulate.workload.workload import PreemptMode, Workload, workload

GB = 1e9


def jobs(mode: PreemptMode, *memory: float, cpus: int = 4) -> Workload:
    count = len(memory)
    return workload(
        "fitted", np.zeros(count), np.full(count, cpus), np.full(count, 10.0), mode=np.full(count, mode),
        memory=np.array(memory),
    )  # fmt: skip


@pytest.mark.parametrize("mode", [PreemptMode.CHECKPOINT, PreemptMode.SWAP])
def test_fixed_seconds_and_bytes_over_the_rate_of_the_job(mode: PreemptMode) -> None:
    out, back = Link(job=2 * GB, fixed=1.5), Link(job=1 * GB, fixed=0.5)
    model = CostModel(write=out, read=back, swap_out=out, swap_in=back)
    costs = simulated_costs(jobs(mode, 0.0, 4 * GB), model, seed=0)
    assert costs.preemption.tolist() == [1.5, 3.5], "whatever the number of CPUs"
    assert costs.resume.tolist() == [0.5, 4.5]
    assert costs.queueing.tolist() == [0, 0], "jobs do not wait for each other"


def test_of_several_rates_the_slowest_counts() -> None:
    model = CostModel(write=Link(each=1 * GB, job=2 * GB, together=8 * GB, fixed=1.0))
    assert simulated_costs(jobs(PreemptMode.CHECKPOINT, 4 * GB), model, seed=0).preemption.tolist() == [3.0]
    assert simulated_costs(jobs(PreemptMode.CHECKPOINT, 4 * GB, cpus=1), model, seed=0).preemption.tolist() == [5.0]


def test_checkpoints_can_be_drawn_as_swaps_can() -> None:
    costs = simulated_costs(
        jobs(PreemptMode.CHECKPOINT, 4 * GB), CostModel(write=Spread(2, 2), read=Spread(3, 3)), seed=0
    )
    assert (costs.preemption.tolist(), costs.resume.tolist(), costs.queueing.tolist()) == ([2], [3], [0])


def test_the_options_take_what_is_printed() -> None:
    asked = SimulationOptions(
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
        SimulationOptions(**{option: text})  # type: ignore[arg-type]
    message = str(raised.value)
    assert message.startswith(f"--{option.replace('_', '-')} = {text!r}: must be LO:HI in seconds")
    assert message.endswith("or SECONDS+bytes/RATE, such as 0.5+bytes/4e8")
    assert "\n" not in message


def test_the_result_reports_what_was_assumed() -> None:
    asked = SimulationOptions(procs=4, checkpoint_out="1.5+bytes/2e9", checkpoint_in="0.5+bytes/1e9")
    scenario = Scenario(jobs(PreemptMode.CHECKPOINT, 0.0, GB), Machine(4), costs=costs_for(asked))
    sentences = " ".join(assumption_sentences(scenario, policy_named("ujfb")))
    assert "written 1.5 s and at 2 GB/s for each job, read 0.5 s and at 1 GB/s for each job" in sentences
    assert "1 of unknown size, which count as empty" in sentences
