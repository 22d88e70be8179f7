"""Plots of one outcome. Time is put into bins and distributions into quantiles, so that the number of jobs is free."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from omfs_daemon.accounting.arrays import Bools, Floats
from omfs_daemon.cluster.accounts import AccountTree
from omfs_daemon.simulate.engine.outcome import Outcome, Use
from omfs_daemon.simulate.engine.scenario import owners
from omfs_daemon.simulate.results import plot_style
from omfs_daemon.simulate.results.gantt import gantt, preemptions_of
from omfs_daemon.simulate.results.measure import per_job
from omfs_daemon.simulate.results.timeline import held_units, means, steps

# Accounts take turns quickly: fewer bins are calmer.
_BINS, _ACCOUNT_BINS = 400, 150
_QUANTILES = 1000
_ACCOUNTS = len(plot_style.COLORS)


def draw_outcome(directory: Path, outcome: Outcome, tree: AccountTree) -> list[Path]:
    """Write all plots that the outcome has something for, as PNG and SVG; the paths. ConfigError if it cannot be."""
    written: list[Path] = []
    if not len(outcome.segments):
        return written
    with matplotlib.rc_context(plot_style.style()):
        written += plot_style.write_figure(utilisation(outcome), directory, "utilisation")
        written += plot_style.write_figure(slowdowns(outcome), directory, "slowdown")
        written += plot_style.write_figure(shares(outcome, tree), directory, "accounts")
        preemptions = preemptions_of(outcome)
        if len(preemptions.job):
            written += plot_style.write_figure(gantt(outcome, preemptions), directory, "preemptions")
    return written


def utilisation(outcome: Outcome) -> Figure:
    """Percent of the machine that is held, by use."""
    figure = plot_style.figure()
    axes = figure.add_subplot()
    edges = _edges(outcome, _BINS)
    chosen = outcome.segments.use
    preempting = (chosen == Use.PREEMPTION) | (chosen == Use.RESUME)
    layers = {
        "work": (chosen == Use.WORK, plot_style.BLUE),
        "work that was lost": (chosen == Use.LOST, plot_style.PURPLE),
        "preempting and resuming": (preempting, plot_style.ORANGE),
        "periodic checkpoints": (chosen == Use.CHECKPOINT, plot_style.GREEN),
    }
    there = {label: layer for label, layer in layers.items() if layer[0].any()}
    unit = _time_axis(axes, outcome, edges)
    values = [_percent_held(outcome, mask, edges) for mask, _ in there.values()]
    plot_style.stacked(axes, edges / unit, values, [color for _, color in there.values()], list(there))
    mean = sum(float(np.average(value)) for value in values)
    axes.axhline(mean, color=plot_style.DARK, linewidth=1, linestyle="--", label=f"mean {mean:.1f} %")
    _percent_axis(axes, "CPUs held, % of the machine")
    axes.set_title(f"Utilisation: {outcome.workload.name} under {outcome.policy}")
    figure.legend(loc="outside lower center", ncols=4)
    return figure


def slowdowns(outcome: Outcome) -> Figure:
    """Cumulative distribution of the slowdown, for regular and for urgent jobs."""
    figure = plot_style.figure(7.0)
    axes = figure.add_subplot()
    done, urgent, realtime = ~np.isnan(outcome.finish), outcome.workload.urgent, outcome.workload.realtime
    slowdown = per_job(outcome)[2]
    for label, mask, color in (
        ("regular", ~urgent & ~realtime, plot_style.BLUE),
        ("urgent", urgent, plot_style.RED),
        ("real-time", realtime, plot_style.ORANGE),
    ):
        values = slowdown[done & mask]
        if len(values):
            # As many quantiles as there are jobs, up to a thousand: enough for the eye.
            levels = np.linspace(0.0, 1.0, min(len(values), _QUANTILES) + 1)
            at_most = np.quantile(values, levels, method="inverted_cdf")
            name = f"{label}: {len(values):,} jobs, mean {values.mean():,.2f}, greatest {values.max():,.2f}"
            axes.step(np.maximum(at_most, 1.0), levels * 100, where="post", color=color, linewidth=2, label=name)
    axes.set_xscale("log")
    axes.set_xlim(left=0.9)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("slowdown = response / run, run times below 1 s as 1 s")
    axes.set_ylabel("jobs with at most that, %")
    axes.set_ylim(0, 101)
    axes.grid(alpha=0.3)
    axes.set_title(f"Slowdown: {outcome.workload.name} under {outcome.policy}")
    figure.legend(loc="outside lower center")
    return figure


def shares(outcome: Outcome, tree: AccountTree) -> Figure:
    """Percent of the machine that each account holds, and beside it what each owns; the greatest holders by name."""
    figure = plot_style.figure(10.0)
    axes, owned = figure.subplots(1, 2, sharey=True, width_ratios=(22, 1))
    edges = _edges(outcome, _ACCOUNT_BINS)
    owner = owners(outcome.workload, tree)[outcome.segments.job]
    seconds = (outcome.segments.end - outcome.segments.begin) * held_units(outcome)[outcome.segments.job]
    held = np.bincount(owner, weights=seconds, minlength=len(tree.entities))
    greatest = [int(index) for index in np.argsort(-held, kind="stable")[:_ACCOUNTS] if held[index] > 0]
    rest = ~np.isin(owner, greatest)
    layers = [
        (tree.entities[index].name, owner == index, float(tree.entities[index].entitlement)) for index in greatest
    ]
    left = 1.0 - sum(share for _, _, share in layers)
    if rest.any() or left > 1e-9:
        layers.append(("all others", rest, left))
    colors = [*plot_style.COLORS[: len(greatest)], plot_style.GRAY]
    unit = _time_axis(axes, outcome, edges)
    values = [_percent_held(outcome, mask, edges) for _, mask, _ in layers]
    # The share comes first: a label that begins with an underscore would be left out.
    labels = [f"owns {share:.1%}: {name}" for name, _, share in layers]
    plot_style.stacked(axes, edges / unit, values, colors[: len(layers)], labels)
    below = 0.0
    for (_, _, share), color in zip(layers, colors, strict=False):
        owned.bar(0, share * 100, bottom=below, color=color, width=1.0)
        below += share * 100
        axes.axhline(below, color=plot_style.DARK, linewidth=0.8, linestyle=":")
    owned.set_xticks([])
    owned.set_xlabel("owned", fontsize=9)
    owned.spines[:].set_visible(False)
    owned.tick_params(left=False)
    _percent_axis(axes, "CPUs held, % of the machine")
    axes.set_title(f"Accounts: {outcome.workload.name} under {outcome.policy}; dotted: what they own, added up")
    figure.legend(loc="outside lower center", ncols=4, fontsize=9)
    return figure


def _edges(outcome: Outcome, count: int) -> Floats:
    """From the first submission to the last finish, as the makespan."""
    return plot_style.bins(float(outcome.workload.submit[0]), float(outcome.segments.end.max()), count)


def _percent_held(outcome: Outcome, mask: Bools, edges: Floats) -> Floats:
    segments, machine = outcome.segments, outcome.machine
    amount = held_units(outcome)[segments.job[mask]]
    held = means(steps(segments.begin[mask], segments.end[mask], amount), edges)
    return held * (100.0 / (machine.nodes or machine.cpus))


def _time_axis(axes: Axes, outcome: Outcome, edges: Floats) -> float:
    """Label it; the seconds of its unit."""
    unit = plot_style.time_unit(float(edges[-1] - edges[0]))
    axes.set_xlabel(f"{unit.name} since the workload's first submission")
    axes.set_xlim(edges[0] / unit.seconds, edges[-1] / unit.seconds)
    return unit.seconds


def _percent_axis(axes: Axes, label: str) -> None:
    axes.set_ylabel(label)
    axes.set_ylim(0, 101)
