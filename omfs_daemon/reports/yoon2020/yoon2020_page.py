"""The page: Figure 8 computed from what the paper prints, beside what it prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from omfs_daemon.reports.csv_files import csv_value
from omfs_daemon.reports.hole_tables import HOLE_JOB_COLUMNS, hole_job_rows
from omfs_daemon.reports.yoon2020.figure8 import PRINTED_SUM, Figure8
from omfs_daemon.simulate.results.markdown import bullets, markdown_table
from omfs_daemon.simulate.results.result_files import save

_SLIPS = {
    "2016-10-16T21:00:00": "the paper has the two 4096-core jobs booked 42 min before they came",
    "2016-10-16T21:52:00": "all of the paper's cells are 10 too small",
    "2016-10-17T06:00:00": "the paper has 7,144 for 7,244 in one cell",
    "2016-10-17T09:41:00": "the paper lets the two 4096-core jobs go 54 s early",
}


def write_yoon2020_page(out: Path, found: Figure8, latest: Figure8, more: Sequence[str]) -> Path:
    """index.md; its path. ConfigError if it cannot be written.

    latest  the same for the latest start of the large job that changes nothing
    more    what follows on the page
    """
    page = out / "index.md"
    save(page, lambda file: file.write(("\n\n".join((*_page(found, latest), *more)) + "\n").encode()))
    return page


def _page(found: Figure8, latest: Figure8) -> Iterator[str]:
    hole = found.hole
    yield "# The hole before a large job: Yoon et al. (2020)"
    yield (
        "J. Yoon, T. Hong, C. Park, S.-Y. Noh, H. Yu, *Log Analysis-Based Resource and Execution Time Improvement in "
        "HPC: A Case Study*. On Tachyon2 a job of 16,384 cores waited, cores were kept idle for it, and 13 jobs "
        "of 12 h stood behind it. All data of Figure 8 are printed, so it can be computed again."
    )
    yield "## Which jobs fit"
    rows = [[csv_value(value) for value in row] for row in hole_job_rows(hole, found.inputs.written)]
    yield markdown_table(HOLE_JOB_COLUMNS, rows)
    refused = [job for job in hole.queue.job_id if job not in found.accepted]
    at_once = int((hole.first_fit == hole.queue.submit)[hole.accepted].sum())
    same = "the same" if latest.accepted == found.accepted else "others"
    yield bullets(
        (
            f"accepted: {len(found.accepted)}, of them at their submission {at_once}; refused: {', '.join(refused)}; "
            f"{same} if the large job starts at {latest.inputs.written(latest.hole.start)}",
            "3029155: the paper says that it would end too late, and of 3029182 (2019182 in its text) that cores are "
            "lacking. Both are true of both: each lacks cores when it comes, and would end after the start of the "
            "large job at its first fit",
            f"core hours (Equation 4): {hole.core_hours:,.0f}; the paper prints {PRINTED_SUM:,} seconds, which is the "
            f"sum with one 4096-core job instead of two, in core hours ({found.sum_with_one_wide():,.0f})",
            f"of {hole.idle_core_hours:,.0f} idle core hours in the hole, {hole.filled_share:.0%} would have been used",
            "the start of the large job is not printed; the last stamp, 10:00, stands for it. From 07:00 on more cores "
            "are idle than it needs; why it did not start then is not said",
            'that its wait is "shortened by about 20 hours" cannot be derived from what is printed',
        )
    )
    yield "## The profile after each booking"
    differing = found.differing()
    stamps = {found.inputs.written(time) for time in found.inputs.profile.time.tolist()}
    yield f"{len(stamps - differing.keys())} of {len(stamps)} rows are equal to the paper's, cell by cell. The others:"
    yield markdown_table(
        ("stamp", "job", "free after it", "printed", "why"),
        [
            (cell.time, cell.job_id, f"{cell.free_after:,}", _number(cell.printed), _SLIPS.get(cell.time, ""))
            for cells in differing.values()
            for cell in cells
        ],
    )
    yield "All cells: [figure8-profile.csv](figure8-profile.csv); the jobs: [figure8.csv](figure8.csv)."


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
