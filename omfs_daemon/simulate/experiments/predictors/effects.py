"""What predictions do where jobs are preempted: UJFB, OMFS, and a plan at each event, victims by limits or predictions.

One job in ten, drawn at random, is urgent (real-time under the last), all others write checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import exp, log

import numpy as np

from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.engine.places import layout_named
from omfs_daemon.simulate.engine.realtime_setting import RealtimeSetting
from omfs_daemon.simulate.engine.scenario import Machine, Scenario
from omfs_daemon.simulate.experiments.predictors.predictor_cases import EffectRow, conventions_of, predictor_of
from omfs_daemon.simulate.options import SimulationOptions, rules_for
from omfs_daemon.simulate.results.measure import per_job
from omfs_daemon.simulate.run_cases import Progress, SlurmArray, SweepCase, run_all
from omfs_daemon.simulate.workload.workload import PreemptMode, Workload

COUNTED, PLANNED = ("ujfb", "ujfb-easy", "omfs"), ("realtime-replan",)
"""Policies on a counter of CPUs, and on places."""
FIRST_JOBS, FIRST_PLANNED = 30_000, 1500
"""So many jobs of each workload are simulated under them: a plan at each event takes its time."""
PLACES = {"KTH-SP2": 4, "SDSC-DS": 8, "LANL-CM5": 32}
"""CPUs of the smallest place, where jobs are planned on places."""
DRAWS, SHARE = 3, 0.1
ALL, VICTIMS = "all", "victims"
USES = (("user", ALL), ("exact", ALL), *((name, use) for name in ("last2", "similar") for use in (VICTIMS, ALL)))


def simulate_effects(
    recorded: Sequence[tuple[Workload, Machine]],
    where: int | SlurmArray = 1,
    progress: Progress | None = None,
    draws: int = DRAWS,
) -> list[EffectRow]:
    """Each workload under each policy, with limits, exact run times, and predictions."""
    known = [
        (case, draw, use)
        for jobs, machine in recorded
        for draw in range(draws)
        for policy in (*COUNTED, *(PLANNED if jobs.name in PLACES else ()))
        for case, use in _cases(jobs, machine, policy, draw)
    ]
    rows = run_all([case for case, *_ in known], effect_row, where, progress)
    return [replace(row, draw=draw, used_for=use) for row, (_, draw, use) in zip(rows, known, strict=True)]


def _cases(jobs: Workload, machine: Machine, policy: str, draw: int) -> Iterator[tuple[SweepCase, str]]:
    is_planned = policy in PLANNED
    chosen = jobs.take(np.arange(len(jobs)) < (FIRST_PLANNED if is_planned else FIRST_JOBS))
    first = np.random.default_rng(draw).random(len(chosen)) < SHARE
    modes = np.where(first, PreemptMode.NEVER, PreemptMode.CHECKPOINT)
    work = replace(chosen, urgent=first & (not is_planned), realtime=first & is_planned, mode=modes)
    setting = RealtimeSetting()
    if is_planned:
        setting = RealtimeSetting(layout=layout_named(f"aligned:{PLACES[jobs.name]}", machine.cpus))
    rules, _ = rules_for(SimulationOptions(), work)
    for predictor, use in USES:
        if policy == "omfs" and use == VICTIMS:  # which uses predictions for nothing else
            continue
        conventions = replace(conventions_of(predictor), for_victims_only=use == VICTIMS)
        scenario = Scenario(work, machine, conventions, rules=rules, seed=draw, realtime=setting)
        yield SweepCase(f"{jobs.name} ({predictor} for {use}, draw {draw})", policy, scenario), use


def effect_row(outcome: Outcome) -> EffectRow:
    """The figures of one simulation."""
    work, (_, _, slowdown, bounded) = outcome.workload, per_job(outcome)
    done, first = ~np.isnan(outcome.finish), work.urgent | work.realtime
    others = bounded[done & ~first]
    return EffectRow(
        trace=work.name,
        policy=outcome.policy,
        draw=0,
        predictor=predictor_of(outcome.conventions),
        used_for=ALL,
        jobs=int(done.sum()),
        first_mean=float(bounded[done & first].mean()),
        U_L=float(slowdown[done & first].max()),
        other_mean=float(others.mean()),
        other_p95=float(np.percentile(others, 95)),
        preemptions=int(outcome.preemptions.sum()),
    )


def relative_effects(rows: Sequence[EffectRow]) -> Iterator[tuple[str, ...]]:
    """By policy and use of a predictor: mean bounded slowdown of the others and of the first, over those with limits
    (geometric means over traces and draws), in how many of all cases that of the others is less, and preemptions over
    those with limits."""
    by = {(row.policy, row.trace, row.draw, row.predictor, row.used_for): row for row in rows}
    pairs: dict[tuple[str, str, str], list[tuple[EffectRow, EffectRow]]] = {}
    for row in rows:
        if row.predictor != "user":
            limits = by[row.policy, row.trace, row.draw, "user", ALL]
            pairs.setdefault((row.policy, row.predictor, row.used_for), []).append((row, limits))
    for (policy, predictor, use), found in pairs.items():
        others, firsts = (
            exp(sum(log(getattr(row, name) / getattr(limits, name)) for row, limits in found) / len(found))
            for name in ("other_mean", "first_mean")
        )
        better = sum(row.other_mean < limits.other_mean for row, limits in found)
        stops = sum(row.preemptions for row, _ in found) / max(1, sum(limits.preemptions for _, limits in found))
        yield policy, predictor, use, f"{others:.3f}", f"{better} of {len(found)}", f"{firsts:.3f}", f"{stops:.2f}"
