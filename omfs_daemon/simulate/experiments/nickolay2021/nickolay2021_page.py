"""The page of Nickolay et al. (2021): each published number beside ours, and whether it is reproduced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from omfs_daemon.policy.rules.slowdown_laws import NARROW_LONG, NARROW_SHORT, WIDE_LONG, WIDE_SHORT
from omfs_daemon.simulate.experiments.nickolay2021 import published_figures as numbers
from omfs_daemon.simulate.experiments.nickolay2021.against_optimum import ON_SMALL_LOGS, OptimumRow
from omfs_daemon.simulate.experiments.nickolay2021.mira_weeks import StudyWeek
from omfs_daemon.simulate.experiments.nickolay2021.nickolay2021_cases import (
    APP_5,
    APP_10,
    BASELINE,
    BEAMLINE,
    BESIDE,
    COMPARED,
    JIT,
    PERCENTAGES,
    REPLAN,
    REPLAN_PERCENT,
    SHORT,
    DrawResult,
    WeekVariant,
    pooled,
)
from omfs_daemon.simulate.experiments.nickolay2021.nickolay2021_plots import NickolayPlots
from omfs_daemon.simulate.experiments.nickolay2021.nickolay2021_rows import (
    Results,
    draws_of,
    mean_of_draws,
    part_of_draws,
    setting_rows,
)
from omfs_daemon.simulate.results.markdown import bullets, image, markdown_table
from omfs_daemon.simulate.results.result_files import save

_LIMIT = 1.2
"""Of the real-time jobs' mean slowdown, for the optimum."""


class Verdict2021(NamedTuple):
    """``reproduced``: None where it is reported only."""

    what: str
    published: str
    ours: str
    demanded: str
    reproduced: bool | None
    better: str = ""


def write_nickolay2021_page(
    out: Path,
    weeks: Sequence[StudyWeek],
    results: Results,
    optimum: Sequence[OptimumRow],
    plots: NickolayPlots,
    seconds: float,
) -> Path:
    """index.md; its path. ConfigError if it cannot be written."""
    page = out / "index.md"
    text = "\n\n".join(_page(weeks, results, optimum, plots, seconds)) + "\n"
    save(page, lambda file: file.write(text.encode()))
    return page


def _page(
    weeks: Sequence[StudyWeek],
    results: Results,
    optimum: Sequence[OptimumRow],
    plots: NickolayPlots,
    seconds: float,
) -> Iterator[str]:
    yield "# Real-time jobs on a batch machine: Nickolay et al. (2021), done again"
    yield (
        "S. Nickolay, E.-S. Jung, R. Kettimuthu, I. Foster, *Towards Accommodating Real-time Jobs on HPC Platforms*, "
        "arXiv 2103.13130. A real-time job waits like others until its slowdown is in danger, and then takes the place "
        "on which the running jobs cost least (WCJS). What the paper leaves out (factors, thresholds, order of the "
        "queue, trace) is from the authors' public simulator, which was read and not run."
    )
    yield from _conventions(weeks)
    for week in weeks:
        yield f"## {week.jobs.name}"
        yield week.note
        if week.curie:
            yield "What was published of this log is not known here, so none of it is judged."
        else:
            yield "Published and reproduced, with 10 % real-time jobs unless said; means over draws:"
            yield _verdict_table(list(week_verdicts(results, week.jobs.name)))
        yield from _tables(results, week.jobs.name)
        yield image(f"{week.jobs.name}: what a bound gives, and what it costs", plots.costs[week.jobs.name])
        yield "Figures 3 to 7 of the paper:"
        for (name, category), file in plots.boxes.items():
            if name == week.jobs.name:
                yield image(f"{name}, {category}", file)
        if week.jobs.name in plots.settings:
            yield from _settings(results, week.jobs.name, plots.settings[week.jobs.name])
    yield from _optimum(optimum, plots)
    yield from _differences()
    yield f"The simulations took {seconds:.0f} s on this machine, compiling apart."


def _conventions(weeks: Sequence[StudyWeek]) -> Iterator[str]:
    yield "## How it was replayed"
    rows = [(week.jobs.name, f"{len(week.jobs):,}", f"{(week.end - week.begin) / 86400:.0f} days") for week in weeks]
    yield markdown_table(("workload", "jobs", "of which submissions count in"), rows)
    yield bullets(
        (
            "a machine of 49,152 nodes in aligned places of 512 to 49,152; a job holds the smallest that holds it",
            "run times as recorded, also past the limit; policies believe the limits",
            "low queue: by wait² / limit³ · nodes; the first that does not fit has a place reserved, others fit in",
            "bounded slowdown counts run times below 10 minutes as 10 minutes",
            "a checkpoint takes 512 s up to 6,912 nodes, then longer (Eq. 34), each as if alone",
            "real-time jobs are drawn anew for each draw, from seed 1000 on; the published draws are unknown",
            "baseline: everybody a batch job, no checkpoints",
        )
    )
    yield (
        "All rows: [results.csv](results.csv), by category: [categories.csv](categories.csv), the optimum: "
        "[optimum.csv](optimum.csv), settings: [settings.csv](settings.csv)."
    )


def week_verdicts(results: Results, week: str) -> Iterator[Verdict2021]:
    """Section 7.2's figures beside ours, and whether they are reproduced."""

    def mean(variant: WeekVariant, realtime: bool, category: int | None = None, percent: int = 10) -> float:
        return mean_of_draws(draws_of(results, week, variant, percent), realtime, category)

    def both(realtime: bool, category: int | None = None) -> tuple[float, float]:
        return mean(BASELINE, realtime, category), mean(JIT, realtime, category)

    def change(figures: tuple[float, float]) -> float:
        return figures[1] / figures[0] - 1

    realtime, batch = both(True), both(False)
    yield Verdict2021(
        "real-time mean, baseline → JIT",
        _change(*numbers.REALTIME),
        _change(*realtime),
        "-25 % or better",
        change(realtime) <= -0.25,
        _better(results, week, True),
    )
    yield Verdict2021(
        "batch mean, baseline → JIT",
        _change(*numbers.BATCH),
        _change(*batch),
        "0 to +20 %",
        0 <= round(change(batch), 2) <= 0.2,
        _better(results, week, False),
    )
    for is_realtime, who in ((False, "batch"), (True, "real-time")):
        means = [mean(variant, is_realtime) for variant in (JIT, APP_5, APP_10)]
        yield Verdict2021(
            f"order by {who} mean",
            "JIT < APP-5 < APP-10",
            ", ".join(f"{one:.2f}" for one in means),
            "the same order",
            means == sorted(means),
        )
    draws = draws_of(results, week, JIT, 10)
    median = float(np.mean([np.median(pooled([one], True, NARROW_LONG)[0]) for one in draws]))
    yield Verdict2021(
        "narrow-long real-time median, JIT",
        f"{numbers.NARROW_LONG_REALTIME_MEDIAN:g}",
        f"{median:.2f}",
        "1.10 at most",
        median <= 1.1,
    )
    narrow_long, narrow_short = both(False, NARROW_LONG), both(False, NARROW_SHORT)
    yield Verdict2021(
        "narrow-long batch mean, baseline → JIT",
        f"about {numbers.NARROW_LONG_BATCH:g}, as baseline",
        _change(*narrow_long),
        "within 15 % of the baseline",
        abs(change(narrow_long)) <= 0.15,
    )
    yield Verdict2021(
        "narrow-short batch mean, baseline → JIT",
        _change(*numbers.NARROW_SHORT_BATCH),
        _change(*narrow_short),
        "+20 % at most",
        change(narrow_short) <= 0.2,
    )
    wide_long, wide_short = both(True, WIDE_LONG), both(True, WIDE_SHORT)
    yield Verdict2021(
        "wide-long real-time mean, baseline → JIT",
        _change(*numbers.WIDE_LONG_REALTIME),
        _change(*wide_long) + _jobs(results, week, WIDE_LONG),
        "halved at least",
        wide_long[1] <= wide_long[0] / 2,
    )
    yield Verdict2021(
        "wide-short real-time mean, baseline → JIT",
        _change(*numbers.WIDE_SHORT_REALTIME),
        _change(*wide_short) + _jobs(results, week, WIDE_SHORT),
        "",
        None,
    )
    by_percent = [mean(JIT, True, percent=percent) for percent in PERCENTAGES]
    yield Verdict2021(
        "real-time mean from 5 to 20 %, JIT",
        "about constant",
        ", ".join(f"{one:.2f}" for one in by_percent),
        "within 0.3",
        max(by_percent) - min(by_percent) <= 0.3,
    )
    p95 = [part_of_draws(draws_of(results, week, variant, 10), True, 0.95) for variant in (JIT, APP_5)]
    yield Verdict2021(
        "real-time 95 %, JIT and APP-5", "JIT above in places", ", ".join(f"{one:.2f}" for one in p95), "", None
    )


def _jobs(results: Results, week: str, category: int) -> str:
    counts = [len(pooled([one], True, category)[0]) for one in draws_of(results, week, JIT, 10)]
    return f" ({min(counts)} to {max(counts)} jobs a draw)"


def _better(results: Results, week: str, realtime: bool) -> str:
    """What the search makes of it, where it is done."""
    found = draws_of(results, week, REPLAN, REPLAN_PERCENT)
    return f"{mean_of_draws(found, realtime):.2f}" if found else ""


def _verdict_table(verdicts: Sequence[Verdict2021]) -> str:
    header = ("figure", "published", "ours", "counts as reproduced", "reproduced", "better: replan")
    rows = [(one.what, one.published, one.ours, one.demanded, _word(one.reproduced), one.better) for one in verdicts]
    return markdown_table(header, rows)


def _word(reproduced: bool | None) -> str:
    return {True: "yes", False: "**no**", None: "reported"}[reproduced]


def _tables(results: Results, week: str) -> Iterator[str]:
    rows: list[tuple[str, ...]] = []
    for variant in (*COMPARED, *BESIDE):
        for percent in PERCENTAGES:
            found = draws_of(results, week, variant, percent)
            rows += [_row(variant.title, f"{percent} %", found)] if found else []
    yield "Mean bounded slowdowns; means over draws:"
    yield markdown_table(_HEADER, rows)
    yield (
        "Which jobs may be real-time (section 7.1.3), with 10 %: only run times below 90 minutes; or jobs of a "
        "beamline on top of the log, which are made up here because the paper's log is not published (one "
        "512-node block, 1 to 15 minutes)."
    )
    among = [
        _row(variant.title, {SHORT: "below 90 min", BEAMLINE: "beamline"}[kind], found)
        for kind in (SHORT, BEAMLINE)
        for variant in COMPARED
        if (found := draws_of(results, week, variant, 10, kind))
    ]
    yield markdown_table(_HEADER, among)


_HEADER = (
    "", "real-time", "real-time mean", "real-time 95 %", "batch mean", "batch 95 %", "stops", "CPU-hours lost",
    "utilisation", "productive",
)  # fmt: skip


def _row(title: str, kind: str, found: Sequence[DrawResult]) -> tuple[str, ...]:
    def of(get: Callable[[DrawResult], float]) -> float:
        return float(np.mean([get(one) for one in found]))

    return (
        title,
        kind,
        f"{mean_of_draws(found, True):.2f}",
        f"{part_of_draws(found, True, 0.95):.2f}",
        f"{mean_of_draws(found, False):.2f}",
        f"{part_of_draws(found, False, 0.95):.2f}",
        f"{of(lambda one: one.preemptions):.0f}",
        f"{of(lambda one: one.lost_cpu_hours):,.0f}",
        f"{of(lambda one: one.utilisation):.3f}",
        f"{of(lambda one: one.productive_utilisation):.3f}",
    )


def _settings(results: Results, week: str, plot: str) -> Iterator[str]:
    yield "### Which settings matter"
    rows = [
        (
            row.setting,
            f"{row.realtime_mean_bsd:.2f}",
            f"{row.realtime_p95_bsd:.2f}",
            f"{row.batch_mean_bsd:.2f}",
            f"{row.batch_p95_bsd:.2f}",
            f"{row.preemptions:.0f}",
        )
        for row in setting_rows(results)
        if row.workload == week
    ]
    yield markdown_table(("setting", "real-time mean", "real-time 95 %", "batch mean", "batch 95 %", "stops"), rows)
    yield image(f"{week}: one setting changed at a time", plot)


def _optimum(optimum: Sequence[OptimumRow], plots: NickolayPlots) -> Iterator[str]:
    yield "## Beside the optimum (section 7.3, Table 3)"
    if not optimum:
        yield "Left out: the solver is not installed (`pip install 'omfs-daemon[optimum]'`)."
        return
    feasible = [row for row in optimum if row.status in ("optimal", "feasible")]
    proven = sum(row.status == "optimal" for row in feasible)
    yield (
        "Logs of five batch and two real-time jobs on 8,192 nodes; the paper's twenty are not published, so "
        f"{len(optimum)} were made up. {len(optimum) - len(feasible)} cannot hold a real-time mean of 1.2 and are left "
        f"out; of the others {proven} optima are proven. Means over logs:"
    )
    published = f"{numbers.OPTIMUM.batch:.2f} / {numbers.OPTIMUM.realtime:.2f}"
    rows: list[tuple[str, ...]] = [("published", published, *_excess(numbers.OPTIMUM, numbers.WCJS), "", "")]
    groups = [("seeds 0 to 19", range(20)), ("seeds from 20 on", range(20, 10**6))]
    for title, seeds in groups:
        if some := [row for row in feasible if row.seed in seeds]:
            best = numbers.PublishedMeans(_mean(some, "optimum_batch"), _mean(some, "optimum_realtime"))
            cells = [f"{best.batch:.3f} / {best.realtime:.3f}"]
            for prefix in ON_SMALL_LOGS:
                under = numbers.PublishedMeans(_mean(some, f"{prefix}_batch"), _mean(some, f"{prefix}_realtime"))
                cells += _excess(best, under)
            rows.append((f"{title} ({len(some)})", *cells))
    header = ("mean slowdown batch / real-time", "optimum", "wcjs", "excess", "replan", "excess")
    yield markdown_table(header, rows)
    holds = [row for row in feasible if row.wcjs_realtime <= _LIMIT + 1e-9]
    above = [row for row in holds if row.optimum_batch > row.wcjs_batch + 1e-9]
    yield f"WCJS itself holds 1.2 on {len(holds)} of {len(feasible)} logs; there the optimum is at or below it" + (
        "." if not above else f", except on {', '.join(f'{row.seed} ({row.status})' for row in above)}."
    )
    if plots.optimum:
        yield image("Policies beside the optimum", plots.optimum)


def _mean(rows: Sequence[OptimumRow], name: str) -> float:
    return float(np.mean([getattr(row, name) for row in rows]))


def _excess(best: numbers.PublishedMeans, under: numbers.PublishedMeans) -> tuple[str, str]:
    batch, realtime = under.batch / best.batch - 1, under.realtime / best.realtime - 1
    return f"{under.batch:.2f} / {under.realtime:.2f}", f"{batch:+.0%} / {realtime:+.0%}"


def _differences() -> Iterator[str]:
    yield "## Where it differs, and why"
    run = numbers.SURVIVING_RUN
    yield bullets(
        (
            "the published draws of the real-time jobs are unknown; wide classes have 0 to 17 real-time jobs a draw, "
            "so of their means only the direction compares",
            "the batch baseline differs: how Cobalt drains partitions and passes wiring through is not modeled; places "
            "conflict only where they share nodes",
            "by the text the low queue waits while the high one is not empty, by the authors' code not; both are above",
            f"one published run of the authors' code survives, one draw at 10 % with an earlier setting of the "
            f"thresholds: real-time {run.realtime:g} ({run.realtime_jobs} jobs), batch {run.batch:g} "
            f"({run.batch_jobs:,} jobs)",
        )
    )


def _change(before: float, after: float) -> str:
    return f"{before:.2f} → {after:.2f} ({after / before - 1:+.0%})"
