"""The page: each predictor on each workload, and what the project's own gains on the published ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import exp, log
from pathlib import Path

from omfs_daemon.simulate.experiments.predictors.effects import (
    DRAWS,
    FIRST_JOBS,
    FIRST_PLANNED,
    PLACES,
    PLANNED,
    SHARE,
    relative_effects,
)
from omfs_daemon.simulate.experiments.predictors.predictor_cases import (
    POLICIES_COMPARED,
    PredictorResults,
    PredictorRow,
    StartRow,
    conventions_of,
)
from omfs_daemon.simulate.experiments.predictors.starts import EXACT, LIMITS, MOMENTS, PUBLISHED
from omfs_daemon.simulate.results.markdown import bullets, markdown_table
from omfs_daemon.simulate.results.result_files import save

_OWN, _ACCURATE, _RIVAL = "similar", "alike2", "last2"
_WHAT = (
    "user: the users' limits; exact: the run time as it will be",
    "mean: of all that have ended; murata: of those with the same command name, else of all, else 0 (Murata et al.)",
    "last2: mean of the user's last two (Tsafrir, Etsion & Feitelson 2007); under easy-sjbf that is their EASY++",
    "alike2, named2: the same of those with the same CPUs and limit, or the same name, else last2",
    "gbm: quantiles by boosted trees, trained at the end of each simulated day on jobs that had ended in it",
    "similar: the run time that would have been the most accurate for the user's latest jobs, alike ones weighing more",
    "a job has ended when it ends in the simulated schedule; a prediction is made when the job comes, is at least 1 s "
    "and at most the limit, and is put off when it has passed, up to the limit; limits still end jobs",
    "accuracy: mean of the lesser over the greater of predicted and real run time",
)
_EFFECTS = (
    f"one job in {round(1 / SHARE)}, drawn at random in {DRAWS} draws, is urgent (real-time under {PLANNED[0]}) and is "
    "never preempted; the others write checkpoints",
    f"the first {FIRST_JOBS:,} jobs of each workload; under {PLANNED[0]} the first {FIRST_PLANNED:,} of "
    f"{', '.join(PLACES)}, on places",
    "used for victims: the order of victims, and their cost under a plan, all else by limits; under omfs, all is that",
    "each figure is over that with the users' limits, by geometric means of all workloads and draws",
)


_STARTS = (
    f"{MOMENTS} moments of each, drawn from the submissions of jobs that wait and each hour of their waiting; in a "
    "schedule in which jobs are expected to run to their limits",
    f"what omfs when would say then; {LIMITS}: with limits for run times, as Slurm; {EXACT}: with those that "
    f"will be; {PUBLISHED}: with the means of "
    "Murata et al., where a sum over a queue becomes a list schedule; else by the daemon's predictors",
    "omfs: accounts have equal shares, and all jobs write checkpoints",
)


def write_predictors_page(out: Path, found: PredictorResults) -> Path:
    """index.md; its path. ConfigError if it cannot be written."""
    page = out / "index.md"
    save(page, lambda file: file.write(("\n\n".join(_page(found)) + "\n").encode()))
    return page


def _page(found: PredictorResults) -> Iterator[str]:
    yield "# Predictions of run times"
    yield bullets(_WHAT)
    rows = {(row.trace, row.policy, row.predictor): row for row in found.rows}
    traces = list(dict.fromkeys(row.trace for row in found.rows))
    predictors = list(dict.fromkeys(row.predictor for row in found.rows))
    for trace in traces:
        yield f"## {trace}"
        yield markdown_table(
            ("predictor", "accuracy", "median relative error", "under-predicted, %", *_slowdowns()),
            [_row([rows[trace, policy, name] for policy in POLICIES_COMPARED]) for name in predictors],
        )
    yield f"## What {_OWN} gains under {POLICIES_COMPARED[1]}"
    yield markdown_table(
        ("", f"accuracy above {_ACCURATE}", f"bounded slowdown over that of {_RIVAL}"),
        list(_gains(rows, traces)),
    )
    yield "## Where jobs are preempted"
    yield bullets(_EFFECTS)
    yield markdown_table(
        (
            "policy", "predictor", "used for", "others' bounded slowdown over that with limits", "less in",
            "the same of urgent or real-time jobs", "preemptions",
        ),
        list(relative_effects(found.effects)),
    )  # fmt: skip
    yield "## Estimates of starts"
    yield bullets(_STARTS)
    yield markdown_table(
        ("trace", "policy", "by", "estimates", "p90 held", "median error, s", "mean error, s", "within 10 min"),
        [_start(row) for row in found.starts],
    )
    yield "## Conventions"
    yield bullets((*conventions_of(_OWN).sentences(), *found.notes))


def _slowdowns() -> Sequence[str]:
    return [
        f"{what}, {policy}" for policy in POLICIES_COMPARED for what in ("bounded slowdown", "95 %", "mean wait, s")
    ]


def _row(under: Sequence[PredictorRow]) -> Sequence[str]:
    first = under[0]
    figures = [
        text
        for row in under
        for text in (
            f"{row.mean_bounded_slowdown:.2f}",
            f"{row.p95_bounded_slowdown:.1f}",
            f"{row.mean_wait:,.0f}",
        )
    ]
    known = f"{first.accuracy:.3f}", f"{first.median_relative_error:.2f}", f"{100 * first.under_predicted:.0f}"
    return first.predictor, *known, *figures


def _start(row: StartRow) -> Sequence[str]:
    held, soon = f"{100 * row.p90_held:.0f} %", f"{100 * row.within_10_min:.0f} %"
    errors = f"{row.median_error:,.0f}", f"{row.mean_error:,.0f}"
    return row.trace, row.policy, row.basis, str(row.jobs), held, *errors, soon


def _gains(rows: dict[tuple[str, str, str], PredictorRow], traces: Sequence[str]) -> Iterator[Sequence[str]]:
    policy, ratios = POLICIES_COMPARED[1], []
    for trace in traces:
        own, accurate, rival = (rows[trace, policy, name] for name in (_OWN, _ACCURATE, _RIVAL))
        ratios.append(own.mean_bounded_slowdown / rival.mean_bounded_slowdown)
        yield trace, f"{own.accuracy - accurate.accuracy:+.3f}", f"{ratios[-1]:.3f}"
    yield "geometric mean", "", f"{exp(sum(map(log, ratios)) / len(ratios)):.3f}"
