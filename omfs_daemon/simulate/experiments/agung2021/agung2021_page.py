"""The page of Agung et al. (2021): each published number beside ours, and why they differ."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan
from pathlib import Path

from omfs_daemon.simulate.engine.conventions import Conventions
from omfs_daemon.simulate.experiments.agung2021 import agung2021_cases as cases
from omfs_daemon.simulate.experiments.agung2021 import published as numbers
from omfs_daemon.simulate.experiments.agung2021.agung2021_cases import AgungResults, AgungStudy, Key, ReplayKind
from omfs_daemon.simulate.experiments.agung2021.agung2021_plots import AgungPlots
from omfs_daemon.simulate.results.markdown import bullets, image, markdown_table
from omfs_daemon.simulate.results.result_files import save
from omfs_daemon.simulate.results.result_rows import SLOWDOWNS, ResultRow

_BACKFILLING = ("conservative", "easy")

# Figures as near as this to the published ones need no explanation.
_AGREES = 0.02


def write_agung2021_page(out: Path, found: AgungResults, plots: AgungPlots, seconds: float) -> Path:
    """index.md; its path. ConfigError if it cannot be written."""
    page = out / "index.md"
    text = "\n\n".join(_page(found, plots, seconds)) + "\n"
    save(page, lambda file: file.write(text.encode()))
    return page


def _page(found: AgungResults, plots: AgungPlots, seconds: float) -> Iterator[str]:
    yield "# Urgent jobs first with backfilling: Agung et al. (2021), done again"
    yield (
        "M. Agung et al., *Preemptive Parallel Job Scheduling for Heterogeneous Systems Supporting Urgent Computing*, "
        "IEEE Access 9, doi 10.1109/ACCESS.2021.3053162, section V. Most of its results are bars without numbers; "
        "every number that it prints is on this page. *Their code* is the authors' public simulator, alea-urgent-sim, "
        "run on the same traces and the same urgent jobs."
    )
    yield from _conventions(found)
    yield from _lateness(found, plots)
    yield from _regular(found)
    yield from _their_conventions(found)
    yield from _swaps(found, plots)
    yield from _urgent_for_urgent(found, plots)
    yield from _differences(found)
    yield "## Traces"
    for study in found.studies:
        yield f"{study.name}:\n\n" + bullets(study.notes)
    yield f"The whole experiment took {seconds:.0f} s on this machine, compiling apart."


def _conventions(found: AgungResults) -> Iterator[str]:
    yield "## How it was replayed"
    rows = [
        (study.name, f"{len(study.workload):,}", f"{int(study.workload.urgent.sum()):,}", f"{study.machine.cpus:,}")
        for study in found.studies
    ]
    yield markdown_table(("workload", "jobs", "of them urgent", "processors"), rows)
    yield bullets(
        (
            *Conventions().sentences(),
            "means of response and slowdown are over regular jobs, `U_L` is the greatest slowdown of an urgent job",
            f"swaps take {cases.SWAP_OUT.low:g} to {cases.SWAP_OUT.high:g} s out and "
            f"{cases.SWAP_IN.low:g} to {cases.SWAP_IN.high:g} s in, "
            "drawn for each job, the same under all policies (the authors' configuration); all that are preempted for "
            "one urgent job are swapped out together, so it waits for the longest (Equation 3)",
            "urgent jobs of SDSC-DS, LANL-CM5 and SX-ACE are those that the authors injected; DWD's are its queue 1",
            f"all that is drawn has seed {cases.SEED}",
        )
    )
    yield (
        "All rows: [results.csv](results.csv); with the conventions of their code: [their-conventions.csv]"
        "(their-conventions.csv)."
    )


def _lateness(found: AgungResults, plots: AgungPlots) -> Iterator[str]:
    yield "## Urgent jobs: `U_L`, section V-B"
    rows = []
    for study in found.studies:
        for policy in cases.ALL:
            row = _row(found, study, policy)
            printed, preempted = numbers.U_L.get((study.name, policy)), numbers.PREEMPTIONS.get((study.name, policy))
            theirs = numbers.THEIR_CODE.get((study.name, policy))
            rows.append(
                (
                    study.name,
                    policy,
                    "-" if printed is None else f"{printed.value:,} ({printed.where})",
                    _number(theirs and theirs.u_l),
                    f"**{_number(row.U_L)}**",
                    _number(row.urgent_mean_slowdown),
                    _number(preempted and preempted.value) if theirs is None else f"{theirs.preemptions} (their code)",
                    f"{row.preemptions:,}",
                )
            )
    yield markdown_table(
        ("workload", "policy", "paper", "their code", "ours", "ours: mean slowdown", "preemptions: paper", "ours"), rows
    )
    yield _verdicts(found)
    for study in found.studies:
        yield image(f"{study.name}: response, slowdown and U_L by policy", plots.policies[study.name])


def _verdicts(found: AgungResults) -> str:
    """Whether UJFB keeps urgent jobs at least as close to their deadlines as the paper says."""
    sentences = []
    for study in found.studies:
        ours, printed = _row(found, study, "ujfb").U_L, numbers.U_L.get((study.name, "ujfb"))
        if printed is not None:
            relation = "at or below" if ours <= printed.value else "**above**"
            sentences.append(f"{study.name}: UJFB's `U_L` is {_number(ours)}, {relation} the paper's {printed.value:,}")
    return bullets(sentences)


def _regular(found: AgungResults) -> Iterator[str]:
    yield "## Regular jobs under UJFB against the best backfilling policy"
    rows = []
    for study in found.studies:
        for what in ("mean_response", "mean_slowdown"):
            values = {policy: getattr(_row(found, study, policy), what) for policy in cases.ALL}
            best = min(_BACKFILLING, key=values.__getitem__)
            rows.append(
                (
                    study.name,
                    what.replace("_", " "),
                    f"{_number(values[best])} ({best})",
                    _number(values["ujfb"]),
                    f"{values['ujfb'] / values[best]:.3f}",
                    f"{values['ujfb'] / values['conservative']:.3f}",
                    _number(values[cases.WITH_EASY]),
                    f"{values[cases.WITH_EASY] / values[best]:.3f}",
                )
            )
    header = (
        "workload",
        "figure",
        "best backfilling",
        "ujfb",
        "to the best",
        "to conservative",
        cases.WITH_EASY,
        "to the best",
    )
    yield markdown_table(header, rows)
    yield (
        "UJFB backfills regular jobs conservatively, as its text says, so conservative backfilling is its measure: "
        "above 1 in that column is what urgent jobs cost. EASY often has the lower means whether there are urgent jobs "
        "or not, because it promises a start to one job only; the ratio to it is that difference, not the price of "
        f"preemption. `{cases.WITH_EASY}` is UJFB with EASY backfilling of regular jobs: to be compared with EASY, for "
        "sites that want its means. With thousands of urgent jobs (DWD) the price is real: preempted jobs wait until "
        "the urgent ones are through. Where a queue never empties (SX-ACE), means hang on how jobs happen to line up."
    )


def _their_conventions(found: AgungResults) -> Iterator[str]:
    yield "## With the conventions of their code"
    yield (
        "In their simulator a run takes the next whole second: `floor(max(run, 1 s)) + 1 s`. So jobs of 0 s and of 1 s "
        "take 2 s: this alone is most of the difference in mean slowdown, which short jobs decide. "
        "Their UJFB swaps victims out one after the other. Replayed with both:"
    )
    rows = []
    for study in found.studies:
        for policy in cases.COMPARED:
            row, theirs = (
                found.results[Key(ReplayKind.THEIRS, study.name, policy)].row,
                numbers.THEIR_CODE.get((study.name, policy)),
            )
            printed = numbers.U_L.get((study.name, policy))
            if theirs is not None:
                pairs = (
                    (row.mean_response, theirs.response),
                    (row.mean_slowdown, theirs.slowdown),
                    (row.urgent_mean_slowdown, theirs.urgent_slowdown),
                    (row.U_L, theirs.u_l),
                )
                rows.append((study.name, policy, *(_beside(*pair) for pair in pairs)))
            else:
                known = _number(row.U_L) if printed is None else _beside(row.U_L, printed.value)
                means = (row.mean_response, row.mean_slowdown, row.urgent_mean_slowdown)
                rows.append((study.name, policy, *(_number(mean) for mean in means), known))
    yield markdown_table(("workload", "policy", "response, s", "slowdown", "urgent mean slowdown", "`U_L`"), rows)
    yield ("Each cell: ours, then theirs (their code; for SX-ACE the paper's Table 2) and how far ours is from it.")


def _swaps(found: AgungResults, plots: AgungPlots) -> Iterator[str]:
    yield "## Longer swaps, section V-C"
    rows = []
    for study in found.studies:
        for kind, label in ((ReplayKind.TEXT, "together (text)"), (ReplayKind.THEIRS, "one by one (their code)")):
            plain = found.results[Key(kind, study.name, "ujfb")].row
            for factor in (1.0, *cases.FACTORS):
                row = found.results[Key(kind, study.name, "ujfb", factor)].row
                rows.append(
                    (
                        study.name,
                        label,
                        f"{factor:g}x",
                        f"{_number(row.U_L)}",
                        f"{row.U_L / plain.U_L:.3f}",
                        f"{row.mean_response / plain.mean_response:.3f}",
                        f"{row.mean_slowdown / plain.mean_slowdown:.3f}",
                    )
                )
    yield markdown_table(
        ("workload", "swap-outs", "times", "`U_L`", "`U_L` to 1x", "response to 1x", "slowdown to 1x"), rows
    )
    for workload, plot in plots.swaps.items():
        printed = numbers.SLOWER_SWAPS[workload]
        text, theirs = (
            found.results[Key(kind, workload, "ujfb", cases.FACTORS[-1])].row.U_L
            / found.results[Key(kind, workload, "ujfb")].row.U_L
            for kind in (ReplayKind.TEXT, ReplayKind.THEIRS)
        )
        yield (
            f"{workload}: the paper's `U_L` grows up to {printed.value:g}-fold ({printed.where}). Ours grows "
            f"{text:.2f}-fold as the text says, because an urgent job waits for the longest swap-out only, and "
            f"{theirs:.2f}-fold with swap-outs one after the other. Theirs has more victims besides, and counts the "
            "last swap-out twice. Regular jobs do not notice, as in the paper."
        )
        yield image(f"{workload}: longer swaps", plot)
    yield _small_swaps(found)


def _small_swaps(found: AgungResults) -> str:
    values = []
    for study in found.studies:
        ours, theirs = (
            found.results[Key(ReplayKind.SMALL, study.name, "ujfb")].row,
            numbers.SMALL_SWAP.get((study.name, "ujfb")),
        )
        known = "" if theirs is None else f" (their code {_number(theirs.u_l)})"
        values.append(f"{study.name} {_number(ours.U_L)}{known}")
    return (
        f"With the swap times of 0.5 to 1.25 GB by Figure 9, {cases.SMALL_SWAP.low:g} to {cases.SMALL_SWAP.high:g} s, "
        f"UJFB's `U_L` is: {', '.join(values)}. The paper's 1.01 for SDSC-DS is of this kind."
    )


def _urgent_for_urgent(found: AgungResults, plots: AgungPlots) -> Iterator[str]:
    yield "## What bounds `U_L` where many are urgent (DWD), section V-D"
    rows = []
    waiting = [study for study in found.studies if study.name in plots.slowdowns]
    for study in waiting:
        urgent_share = float(study.workload.urgent.mean())
        for kind, policies in ((ReplayKind.TEXT, cases.ALL), (ReplayKind.ALONE, ("ujf", "ujfb", cases.BY_SLOWDOWN))):
            for policy in policies:
                figures = found.results[Key(kind, study.name, policy)]
                late = figures.late * (urgent_share if kind is ReplayKind.ALONE else 1.0)
                printed = numbers.LATE.get((study.name, policy)) if kind is ReplayKind.TEXT else None
                rows.append(
                    (
                        study.name,
                        "all jobs" if kind is ReplayKind.TEXT else "urgent jobs alone",
                        policy,
                        _number(figures.row.U_L),
                        _number(figures.row.urgent_mean_slowdown),
                        f"{late:.2%}",
                        "-" if printed is None else f"{printed.value:.1%} ({printed.where})",
                    )
                )
    if not waiting:
        yield "Nobody urgent has a slowdown above 2 under UJFB in these workloads."
        return
    yield markdown_table(
        ("workload", "replayed", "policy", "`U_L`", "urgent mean slowdown", "urgent above 2, of all jobs", "paper"),
        rows,
    )
    for study in waiting:
        of_paper = {policy: _row(found, study, policy).U_L for policy in cases.COMPARED}
        lowest = min(of_paper, key=of_paper.__getitem__)
        alone, ours = found.results[Key(ReplayKind.ALONE, study.name, "ujfb")].row, _row(found, study, "ujfb")
        better = _row(found, study, cases.BY_SLOWDOWN)
        alone_better = found.results[Key(ReplayKind.ALONE, study.name, cases.BY_SLOWDOWN)].row
        yield (
            f"{study.name}: with every regular job taken away, `U_L` is still {_number(alone.U_L)} "
            f"({_number(ours.U_L)} with them). So urgent jobs wait for urgent jobs, which are never preempted: more "
            "come at once than the machine holds, and a short job that waits behind them decides `U_L`. No preemption "
            "helps against that; the order of the urgent queue does. Serving who is worst off first "
            f"(`{cases.BY_SLOWDOWN}`) gives {_number(better.U_L)} ({_number(alone_better.U_L)} alone), at a mean "
            f"slowdown of regular jobs of {_number(better.mean_slowdown)} instead of {_number(ours.mean_slowdown)} and "
            f"a mean response of {_number(better.mean_response)} instead of {_number(ours.mean_response)} s, with "
            f"{better.preemptions:,} preemptions instead of {ours.preemptions:,}."
        )
        yield (
            f"Of the paper's five policies `{lowest}` has the lowest `U_L`, {_number(of_paper[lowest])}; the paper's "
            "Figure 16 shows UJFB's lowest, without numbers. Strictly in order of arrival, as its text says, UJFB can "
            "be behind by what a swap takes, or by a longer urgent job that backfilling would let pass."
        )
        if printed := numbers.LATE.get((study.name, "ujfb")):
            yield _late(found, study, printed)
        yield image(f"{study.name}: how many jobs have which slowdown", plots.slowdowns[study.name])


def _late(found: AgungResults, study: AgungStudy, printed: numbers.Printed) -> str:
    """The share of late urgent jobs, and what does not explain the paper's."""
    ours, theirs = (found.results[Key(kind, study.name, "ujfb")] for kind in (ReplayKind.TEXT, ReplayKind.THEIRS))
    slowest = found.results[Key(ReplayKind.THEIRS, study.name, "ujfb", cases.FACTORS[-1])]
    above = SLOWDOWNS.index(2.0) + 1
    either = sum(ours.regular[above:] + ours.urgent[above:]) / ours.row.jobs
    return (
        f"Urgent jobs with a slowdown above 2 are {ours.late:.1%} of all jobs with us, {printed.value:.1%} in the "
        "paper. Urgent jobs alone give the same share, so preemption leaves nothing to gain. What the paper has beyond "
        f"it we did not find: with the conventions of their code it is {theirs.late:.1%}, with swaps also "
        f"{cases.FACTORS[-1]:g} times as long {slowest.late:.1%}. Jobs of both kinds above 2 are {either:.1%} of all."
    )


def _differences(found: AgungResults) -> Iterator[str]:
    yield "## Why numbers differ"
    easy = [found.results[Key(ReplayKind.TEXT, study.name, "easy")] for study in found.studies]
    promised, broken = sum(figures.promised for figures in easy), sum(figures.broken for figures in easy)
    yield bullets(
        (
            "**Their clock.** Every run ends on the next whole second, up to 1 s late (above). Ours ends when it ends.",
            "**Sum instead of maximum.** In their code an urgent job waits for the sum of its victims' swap-outs, and "
            "for the last one again; Equation 3 says the maximum. Shown above as *one by one*; that the last one "
            "counts twice is not replayed, for no link behaves so.",
            "**Oldest first.** Their comparator for the longest remaining run compares a job with itself, so victims "
            "go in order of start, and every second one is skipped. The text says longest remaining first; so do we, "
            "and we preempt nobody who is not needed: hence fewer preemptions on SDSC-DS and LANL-CM5. Their order "
            "would need a policy of its own that nobody wants, and is not replayed.",
            "**EASY.** Theirs can delay the head of the queue beyond its reservation. Ours made "
            f"{promised:,} promises in these workloads and broke {broken:,}, so its figures are not theirs.",
            "**FCFS and conservative backfilling** are sound in their code: with their clock, response and slowdown "
            "of regular jobs and `U_L` on SDSC-DS and LANL-CM5 agree to about 1 % (above). The rest may be their clock "
            "too: a run ends on time there if something else happens on the machine in that second.",
            *_sensitivities(found),
        )
    )


def _sensitivities(found: AgungResults) -> Iterator[str]:
    """Figures that hang on single jobs, where they differ from the published ones."""
    for (workload, policy, column), (jobs, least, greatest) in found.sensitivity.items():
        printed, theirs = numbers.U_L.get((workload, policy)), numbers.THEIR_CODE.get((workload, policy))
        if column == "U_L":
            published, what = printed and printed.value, "`U_L`"
        else:
            published, what = theirs and theirs.urgent_slowdown, "the mean slowdown of urgent jobs"
        ours = getattr(found.results[Key(ReplayKind.THEIRS, workload, policy)].row, column)
        if published is None or abs(ours / published - 1.0) < _AGREES:
            continue
        difference = f"**{workload}, {policy}:** {what} is {_number(ours)} with their clock, {published:,} with them."
        if greatest > (1.0 + _AGREES) * least:
            yield (
                f"{difference} It hangs on single jobs: leaving out any one of the {jobs} widest regular ones gives "
                f"{_number(least)} to {_number(greatest)}. Whoever needs much of the machine waits until enough has "
                "drained, so one second may decide what runs beside what from there on. Which second it is we did not "
                "find; processors allocated or requested makes no difference."
            )
        else:
            yield (
                f"{difference} We did not find why: processors allocated or requested makes no difference, nor does "
                f"any one of the {jobs} widest regular jobs."
            )


def _row(found: AgungResults, study: AgungStudy, policy: str) -> ResultRow:
    return found.results[Key(ReplayKind.TEXT, study.name, policy)].row


def _beside(ours: float, theirs: float) -> str:
    return f"{_number(ours)} / {_number(theirs)} ({ours / theirs - 1:+.1%})"


def _number(value: float | None) -> str:
    """With the significant digits only."""
    if value is None or isnan(value):
        return "-"
    if value == int(value) and abs(value) < 1e6:
        return f"{value:,.0f}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.2f}" if abs(value) >= 10 else f"{value:,.4f}"
