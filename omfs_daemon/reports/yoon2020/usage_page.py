"""The part of the page on the use of the whole machine: the substitute for Tachyon2's log, and recorded logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from omfs_daemon.reports.yoon2020.real_logs import RecordedLog
from omfs_daemon.reports.yoon2020.substitute_rows import SubstituteCase
from omfs_daemon.simulate.results.markdown import bullets, markdown_table

HOUR = 3600.0

PUBLISHED_WAIT, PUBLISHED_TURNAROUND, PUBLISHED_USE = 9.3, 15.3, 0.8569
_WAIT_WITHIN, _CORRELATION, _CUT = 0.5, 0.5, 0.3


def usage_parts(cases: Sequence[SubstituteCase], logs: Sequence[RecordedLog], missing: Sequence[str]) -> Iterator[str]:
    """Paragraphs, tables, and headings; ``missing``: logs that were left out."""
    yield "## The use of the whole machine"
    yield (
        f"Published of Tachyon2 (25,600 cores, 2016 and 2017, no backfilling, priority by size): mean wait "
        f"{PUBLISHED_WAIT} h, mean turnaround {PUBLISHED_TURNAROUND} h, node usage {PUBLISHED_USE:.2%}, and idle cores "
        "that rise with large jobs from November 2016 to March 2017. The log is not published."
    )
    if cases:
        yield from _substitute(cases)
    else:
        yield "A substitute is computed with `--generate`."
    yield "### Recorded logs beside it"
    if missing:
        yield f"Left out, for they do not lie where OMFS_TRACES says: {', '.join(missing)}."
    elif not logs:
        yield "None was given; say with --traces DIR or OMFS_TRACES where they lie."
    if not logs:
        return
    yield (
        "As recorded, nothing simulated; waits are from submission. *Fit*: of the jobs that waited behind the ten "
        "large jobs with most idle core hours before them, those that would have ended before those started, by their "
        "limits. The first column leads to the whole report: months, waits, heaps of idle cores, each hole."
    )
    yield markdown_table(
        ("log", "mean wait", "mean turnaround", "use", "correlation of large jobs and idle cores by month",
         "idle: nobody waited", "nobody fits, or not known why", "kept for a large job", "holes", "jobs behind them",
         "fit", "their core hours", "of idle ones"),
        [
            (f"[{log.file}]({log.directory}/index.md)", _hours(log.result.mean_wait),
             _hours(log.result.mean_turnaround), _share(log.result.utilisation),
             _number(log.result.large_idle_correlation), *(_share(log.heaps[name]) for name in
             ("nobody_waits", "does_not_fit", "kept_for_large")), f"{log.holes}", f"{log.waited:,}", f"{log.fit:,}",
             f"{log.result.accepted_core_hours or 0:,.0f}", f"{log.idle_core_hours:,.0f}")
            for log in logs
        ],
    )  # fmt: skip


def _substitute(cases: Sequence[SubstituteCase]) -> Iterator[str]:
    yield "### A substitute: generated jobs"
    yield (
        "3,200 whole nodes, 24 months; sizes, run times, and the course of a day of the model of Lublin and Feitelson, "
        "run times scaled to a mean of 6.0 h. Every month asks for equally many node hours; jobs of more than 2,000 "
        "cores are 0.14 to 0.26 % of all, and the given share in months 11 to 15 (Figure 3 has no numbers). The load "
        "is sought by bisection so that a queue without backfilling, in which a job of the whole machine counts as "
        "having waited a day longer, uses 85.7 % ± 0.5 %."
    )
    yield markdown_table(
        ("large in months 11 to 15", "draw", "load", "use", "mean wait", "mean turnaround", "correlation",
         "most undone", "with conservative backfilling: mean wait", "use"),
        [
            (f"{case.model.wide:.0%}", str(case.seed), f"{case.load:.3f}", _share(case.queue.utilisation),
             _hours(case.queue.mean_wait), _hours(case.queue.mean_turnaround),
             _number(case.queue.large_idle_correlation), _hours(case.undone), _hours(case.backfilling.mean_wait),
             _share(case.backfilling.utilisation))
            for case in cases
        ],
    )  # fmt: skip
    yield bullets(_verdicts(cases[:-1], cases[-1]))


def _verdicts(cases: Sequence[SubstituteCase], full: SubstituteCase) -> Iterator[str]:
    waits = [(case.queue.mean_wait or 0.0) / HOUR for case in cases]
    near = [abs(wait - PUBLISHED_WAIT) <= _WAIT_WITHIN * PUBLISHED_WAIT for wait in waits]
    related = [(case.queue.large_idle_correlation or 0.0) > _CORRELATION for case in cases]
    cuts = [1 - (case.backfilling.mean_wait or 0.0) / (case.queue.mean_wait or 1.0) for case in cases]
    both = sum(one and other for one, other in zip(near, related, strict=True))
    yield (
        f"mean wait within {_WAIT_WITHIN:.0%} of {PUBLISHED_WAIT} h: {sum(near)} of {len(cases)}; from "
        f"{min(waits):.1f} to {max(waits):.1f} h"
    )
    yield (
        f"correlation of monthly large jobs and idle cores above {_CORRELATION}: {sum(related)} of {len(cases)}; both: "
        f"{both}. Every month asks for as much, and what a month leaves idle is one less what it asks for plus what it "
        "adds to the queue: idle cores follow large jobs only as far as the queue grows with them, and jobs wait in a "
        "queue that has grown. *Most undone* is what it has grown to: the hours that the whole machine needs for it. "
        "That less is asked for in months of large jobs is not published, and not modeled"
    )
    yield (
        f"conservative backfilling on the same jobs cuts the mean wait by {min(cuts):.0%} to {max(cuts):.0%} "
        f"(at least {_CUT:.0%} expected): {sum(cut >= _CUT for cut in cuts)} of {len(cases)}"
    )
    yield (
        "it does not raise the use at this load, for all that was asked for has run in both; where as much is asked "
        f"for as there is (load {full.load:.2f}), it raises it from {_share(full.queue.utilisation)} to "
        f"{_share(full.backfilling.utilisation)}, and the correlation is {_number(full.queue.large_idle_correlation)}"
    )


def _hours(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds / HOUR:.2f} h"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
