"""The page: what the paper claims beside what was measured, and the figures behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from omfs_daemon.policy.rules.laws import HOUR
from omfs_daemon.simulate.experiments.zvi2021.claims import bound, claims, late, mean
from omfs_daemon.simulate.experiments.zvi2021.figures import Sharing, SharingRow
from omfs_daemon.simulate.experiments.zvi2021.workloads import BUSY, LOAD, STRETCHES, TRACE, ZviStudy, owned_cpus
from omfs_daemon.simulate.experiments.zvi2021.zvi2021_cases import (
    COMPARED,
    CONVENTIONS,
    EASY,
    FCFS,
    LATE,
    METHODS,
    OF_TRACE,
    OMFS,
    QUANTUM,
    SLOW,
    SWEPT,
    Variant,
    ZviResults,
)
from omfs_daemon.simulate.experiments.zvi2021.zvi2021_plots import ZviPlots
from omfs_daemon.simulate.results.markdown import bullets, image, markdown_table
from omfs_daemon.simulate.results.result_files import save

DAY = 24 * HOUR

Column = tuple[str, Callable[[SharingRow], float], str]

_USE: tuple[Column, ...] = (
    ("utilisation, %", lambda row: 100 * row.utilisation, ".1f"),
    ("productive, %", lambda row: 100 * row.productive_utilisation, ".1f"),
    ("delivered, %", lambda row: 100 * row.delivered, ".1f"),
)
_WAITS: tuple[Column, ...] = (
    ("mean wait, h", lambda row: row.mean_wait / HOUR, ".1f"),
    ("95 % wait, h", lambda row: row.p95_wait / HOUR, ".1f"),
    ("mean bounded slowdown", lambda row: row.mean_bounded_slowdown, ",.0f"),
)
_PREEMPTIONS: tuple[Column, ...] = (
    ("preemptions", lambda row: row.preemptions, ",.0f"),
    ("lost, CPU-h", lambda row: row.lost_cpu_hours, ",.0f"),
    ("preempting, CPU-h", lambda row: row.preemption_cpu_hours, ",.0f"),
)
_OWN: tuple[Column, ...] = (
    ("waited for own share: jobs", lambda row: row.own_share_waits, ",.0f"),
    ("own share: mean, min", lambda row: row.own_share_mean / 60, ".1f"),
    ("own share: 95 %, min", lambda row: row.own_share_p95 / 60, ".1f"),
    ("own share: longest, min", lambda row: row.own_share_longest / 60, ",.1f"),
    ("below, h", lambda row: row.below_hours, ",.0f"),
    ("longest below, h", lambda row: row.longest_below_hours, ".1f"),
)


def write_zvi2021_page(out: Path, found: ZviResults, plots: ZviPlots) -> Path:
    """index.md; its path. ConfigError if it cannot be written."""
    page = out / "index.md"
    text = "\n\n".join(_page(found, plots)) + "\n"
    save(page, lambda file: file.write(text.encode()))
    return page


def _page(found: ZviResults, plots: ZviPlots) -> Iterator[str]:
    yield "# Memoryless fair share against walls and queues: Zvi & Oren (2021)"
    yield (
        "K. Zvi and G. Oren, *Optimized Memoryless Fair-Share HPC Resources Scheduling using Transparent "
        "Checkpoint-Restart Preemption*. The paper makes claims and publishes no measurements. Here OMFS is measured "
        "against what it is to replace (hard partition, capping) and against plain queues (FCFS, EASY)."
    )
    yield from _claims(found)
    yield from _conventions(found)
    yield from _policies(found, plots)
    yield from _accounts(found, plots)
    yield from _sweep(found, plots)
    if found.wide:
        yield from _wide(found)
    yield from _recorded(found, plots)
    yield "All rows: [results.csv](results.csv), account by account: [accounts.csv](accounts.csv)."


def _claims(found: ZviResults) -> Iterator[str]:
    yield "## What the paper claims, and what was measured"
    yield markdown_table(("section", "claim", "measured", "as stated"), claims(found))


def _conventions(found: ZviResults) -> Iterator[str]:
    yield "## How it was replayed"
    rows = [
        (study.name, f"{len(study.workload):,}", f"{study.workload.submit[-1] / DAY:.0f}",
         f"{study.load:.2f}", f"{study.left_out:,} ({study.left_out_work:.0%} of the work)",
         f"{study.machine.cpus:,}", ", ".join(f"{name} {owned}" for name, owned in owned_cpus(study).items()))
        for study in (*found.generated, *found.wide, *found.recorded)
    ]  # fmt: skip
    yield markdown_table(
        ("workload", "jobs", "days", "offered load", "left out as too wide", "CPUs", "CPUs owned"), rows
    )
    yield bullets(
        (
            "compared are the jobs that every policy can run: those wider than what their account owns, which "
            "partition and capping refuse, are left out",
            f"generated workloads: model of Lublin and Feitelson (2003), one a seed, offered load {LOAD:g} "
            "after jobs were left out; accounts are drawn by what they own, but in turn one of them submits "
            f"{BUSY:g} times its usual share, in {STRETCHES} stretches of equally many jobs",
            *CONVENTIONS.sentences(),
            f"if nothing else is said, OMFS's quantum is {QUANTUM / 60:g} min (the paper's example), all jobs "
            "can be preempted, and they are by checkpoint; the paper has no other limit on preemptions, so none is set",
            "checkpoints are written and read at 31.25 MB/s for each CPU and 216 GB/s in all; on the slow file system "
            f"at {SLOW.together / 1e9:g} GB/s for all that one decision preempts; swaps move 6 GB/s for each CPU; "
            "0.5 to 1.25 GB for each CPU; kills take no time",
            "utilisation counts all CPUs that are held up to the last finish; productive: without lost work, "
            "preempting and resuming; delivered: productive, and up to the last submission only",
            "a job waits for its own share while it waits and would fit into what its account is missing of its "
            "entitlement, without a break; this is the time that reclaiming takes",
            "below: an account holds less than both what it owns and its demand, even if nothing that waits "
            "fits; hours of all accounts are added up",
            "capping passes over a job that does not fit under its cap and starts the next one, so nobody waits there "
            "for their own share; under partition and EASY CPUs are kept for the first job of a queue, and under "
            "FCFS nobody passes it",
        )
    )


def _policies(found: ZviResults, plots: ZviPlots) -> Iterator[str]:
    count = len(found.generated)
    yield f"## Policies on generated workloads: mean of {count}, in brackets the least and the greatest"
    yield _compared(found, found.generated, COMPARED, (*_USE, *_WAITS))
    yield _compared(found, found.generated, COMPARED, (*_OWN, *_PREEMPTIONS))
    yield image("Utilisation and waits by policy", plots.policies)


def _accounts(found: ZviResults, plots: ZviPlots) -> Iterator[str]:
    yield "## Accounts on generated workloads"
    yield _by_account(found, found.generated)
    yield image("Mean waits of accounts", plots.accounts[0])
    for name, title in zip(plots.shares, ("hard partition", "OMFS"), strict=True):
        yield image(f"{found.generated[0].name}: who holds how much under {title}", name)


def _sweep(found: ZviResults, plots: ZviPlots) -> Iterator[str]:
    yield "## OMFS: quantum, method of preempting, decision latency"
    yield _swept(found, found.generated, (*SWEPT, *LATE))
    yield (
        "*Bound*: quantum, decision latency and longest preemption together; *late*: jobs that waited for their own "
        "share for longer than that, of all workloads."
    )
    yield image("What the quantum does", plots.quantum)


def _wide(found: ZviResults) -> Iterator[str]:
    yield "## With jobs wider than what their account owns"
    wide = ("wide jobs done", "their mean wait, h")
    rows = []
    for variant in (FCFS, EASY, OMFS):
        results = found.of(found.wide, variant)
        rows.append(
            (
                variant.name,
                *_cells(results, (*_USE, *_WAITS)),
                _spread([result.wide for result in results], ",.0f"),
                _spread([result.wide_wait / HOUR for result in results if result.wide], ".1f"),
            )
        )
    yield markdown_table(("policy", *(name for name, _, _ in (*_USE, *_WAITS)), *wide), rows)
    yield (
        "Partition and capping refuse these jobs. Under OMFS they run on idle CPUs only, and nothing is kept for them."
    )


def _recorded(found: ZviResults, plots: ZviPlots) -> Iterator[str]:
    yield "## A recorded workload"
    if not found.recorded:
        yield f"None was given; say with --traces DIR or OMFS_TRACES where {TRACE} lies."
        return
    yield (
        "SDSC DataStar, because most of its work stays when each large group gets a part of its own (five groups and "
        "all others: 84 % of it; LANL-CM5 30 %, KTH-SP2 65 %, SX-ACE 68 %, Curie 62 %). sdsc-ds: as recorded; "
        "sdsc-ds-dense: all times between submissions shortened."
    )
    yield bullets(note for study in found.recorded for note in study.notes)
    for study, plot in zip(found.recorded, plots.accounts[1:], strict=True):
        yield f"### {study.name}"
        yield _compared(found, [study], COMPARED, (*_USE, *_WAITS))
        yield _compared(found, [study], COMPARED, (*_OWN, *_PREEMPTIONS))
        yield _by_account(found, [study])
        yield image(f"{study.name}: mean waits of accounts", plot)
        yield _swept(found, [study], dict.fromkeys(OF_TRACE))


def _compared(
    found: ZviResults, studies: Sequence[ZviStudy], variants: Iterable[Variant], columns: Sequence[Column]
) -> str:
    rows = [(variant.name, *_cells(found.of(studies, variant), columns)) for variant in variants]
    return markdown_table(("policy", *(name for name, _, _ in columns)), rows)


def _swept(found: ZviResults, studies: Sequence[ZviStudy], variants: Iterable[Variant]) -> str:
    columns = (*_USE[1:], _WAITS[0], *_PREEMPTIONS, *_OWN[1:4])
    rows = []
    for variant in variants:
        results = found.of(studies, variant)
        rows.append(
            (
                METHODS[variant.method].title,
                f"{variant.quantum / 60:g}",
                f"{variant.latency:g}",
                *_cells(results, columns),
                f"{max(bound(variant, result.row) for result in results) / 60:.1f}",
                f"{sum(late(variant, result) for result in results):,}",
            )
        )
    header = ("method", "quantum, min", "latency, s", *(name for name, _, _ in columns), "bound, min", "late")
    return markdown_table(header, rows)


def _by_account(found: ZviResults, studies: Sequence[ZviStudy]) -> str:
    """Mean waits under each policy, and for OMFS how long the account waited for its own share."""
    first = found.of(studies, OMFS)[0].accounts
    rows = []
    for index, account in enumerate(first):
        ours = [result.accounts[index] for result in found.of(studies, OMFS)]
        waits = (
            _spread([result.accounts[index].mean_wait / HOUR for result in found.of(studies, variant)], ".1f")
            for variant in COMPARED
        )
        rows.append(
            (
                account.account,
                str(account.owned),
                *waits,
                _spread([row.preemptions for row in ours], ",.0f"),
                _spread([row.own_share_spells for row in ours], ",.0f"),
                _spread([row.own_share_hours for row in ours], ".1f"),
                _spread([row.own_share_longest / 60 for row in ours], ".1f"),
                _spread([row.below_hours for row in ours], ",.0f"),
            )
        )
    waits_of = [f"mean wait, h: {variant.name}" for variant in COMPARED]
    under = ("omfs: preemptions", "own share: spells", "own share: h", "own share: longest, min", "below, h")
    return markdown_table(("account", "CPUs owned", *waits_of, *under), rows)


def _cells(results: Sequence[Sharing], columns: Sequence[Column]) -> list[str]:
    return [_spread([figure(result.row) for result in results], style) for _, figure, style in columns]


def _spread(values: Sequence[float], style: str) -> str:
    """The mean, and the least and the greatest if they differ."""
    if not values:
        return "-"
    average, least, greatest = (format(value, style) for value in (mean(values), min(values), max(values)))
    return average if least == greatest else f"{average} ({least} to {greatest})"
