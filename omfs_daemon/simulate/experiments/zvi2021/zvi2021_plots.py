"""Plots of the experiment: policies beside each other, waits of accounts, and what the quantum does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from omfs_daemon.simulate.experiments.zvi2021.figures import SharingRow
from omfs_daemon.simulate.experiments.zvi2021.workloads import ZviStudy
from omfs_daemon.simulate.experiments.zvi2021.zvi2021_cases import (
    COMPARED,
    METHODS,
    OMFS,
    PARTITION,
    QUANTA,
    Variant,
    ZviResults,
    zvi2021_scenario,
)
from omfs_daemon.simulate.policies.policy_table import policy_named
from omfs_daemon.simulate.results import plot_style, plots


class ZviPlots(NamedTuple):
    """File names without their ending. ``accounts``: of the generated workloads, then of each recorded one;
    ``shares``: under partition and under OMFS, of the first generated workload."""

    policies: str
    accounts: tuple[str, ...]
    quantum: str
    shares: tuple[str, ...]


def draw_zvi2021(out: Path, found: ZviResults) -> ZviPlots:
    """Write them all, as PNG and SVG; ConfigError if that fails."""
    with matplotlib.rc_context(plot_style.style()):
        plot_style.write_figure(_policies(found), out, "policies")
        plot_style.write_figure(_quantum(found), out, "quantum")
        plot_style.write_figure(_accounts(found, found.generated, "generated workloads"), out, "accounts")
        accounts = ["accounts"]
        for study in found.recorded:
            accounts.append(f"accounts-{study.name}")
            plot_style.write_figure(_accounts(found, [study], study.name), out, accounts[-1])
        shares = []
        for variant in (PARTITION, OMFS):
            shares.append(f"shares-{variant.name}")
            plot_style.write_figure(_shares(found.generated[0], variant), out, shares[-1])
    return ZviPlots("policies", tuple(accounts), "quantum", tuple(shares))


def _policies(found: ZviResults) -> Figure:
    """Mean over the generated workloads, and from the least to the greatest."""
    made = plot_style.figure(11.0)
    panels: tuple[tuple[str, Callable[[SharingRow], float]], ...] = (
        ("productive utilisation, %", lambda row: 100 * row.productive_utilisation),
        ("mean wait, hours", lambda row: row.mean_wait / 3600),
        ("longest wait for one's own share, hours", lambda row: row.own_share_longest / 3600),
    )
    for axes, (title, figure) in zip(made.subplots(1, len(panels)), panels, strict=True):
        values = [[figure(result.row) for result in found.of(found.generated, variant)] for variant in COMPARED]
        _bars(axes, np.arange(len(COMPARED)), values, plot_style.SKY, 0.7)
        axes.set_xticks(range(len(COMPARED)), [variant.name for variant in COMPARED], rotation=30)
        axes.set_title(title)
    made.suptitle(f"{len(found.generated)} generated workloads: mean, least and greatest", x=0.01, ha="left")
    return made


def _accounts(found: ZviResults, studies: Sequence[ZviStudy], title: str) -> Figure:
    """Mean waits, account by account."""
    made = plot_style.figure(9.0)
    axes = made.subplots()
    first = found.of(studies, OMFS)[0].accounts
    width = 0.8 / len(COMPARED)
    for place, (variant, color) in enumerate(zip(COMPARED, plot_style.COLORS, strict=False)):
        results = found.of(studies, variant)
        values = [[result.accounts[index].mean_wait / 3600 for result in results] for index in range(len(first))]
        at = np.arange(len(first)) + (place - (len(COMPARED) - 1) / 2) * width
        _bars(axes, at, values, color, width, variant.name)
    axes.set_xticks(range(len(first)), [f"{row.account}\nowns {row.owned}" for row in first])
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylabel("mean wait, hours")
    axes.set_title(f"Waits of accounts: {title}")
    made.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=len(COMPARED))
    return made


def _quantum(found: ZviResults) -> Figure:
    """Each figure against the quantum, a line a method: mean over the generated workloads, and their range."""
    made = plot_style.figure(11.0, 7.0)
    minutes = [quantum / 60 for quantum in QUANTA]
    panels: tuple[tuple[str, Callable[[SharingRow], float]], ...] = (
        ("preemptions", lambda row: row.preemptions),
        ("longest wait for one's own share, minutes", lambda row: row.own_share_longest / 60),
        ("work lost, preempting and resuming: CPU-hours", lambda row: row.lost_cpu_hours + row.preemption_cpu_hours),
        ("mean wait, hours", lambda row: row.mean_wait / 3600),
    )
    for axes, (title, figure) in zip(made.subplots(2, 2).flat, panels, strict=True):
        for (method, meaning), color in zip(METHODS.items(), plot_style.COLORS, strict=False):
            results = [found.of(found.generated, Variant("omfs", method, quantum)) for quantum in QUANTA]
            values = np.array([[figure(result.row) for result in of_quantum] for of_quantum in results])
            axes.plot(minutes, values.mean(axis=1), "o-", color=color, markersize=4, label=meaning.title)
            axes.fill_between(minutes, values.min(axis=1), values.max(axis=1), color=color, alpha=0.15, linewidth=0)
        axes.set_title(title)
        axes.set_xlabel("quantum, minutes")
        axes.set_ylim(bottom=0)
    made.legend(*made.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(METHODS))
    return made


def _shares(study: ZviStudy, variant: Variant) -> Figure:
    return plots.shares(policy_named(variant.policy).simulate(zvi2021_scenario(study, variant)), study.tree)


def _bars(
    axes: Axes, at: np.ndarray, values: Sequence[Sequence[float]], color: str, width: float, label: str | None = None
) -> None:
    """Means, and lines from the least to the greatest."""
    array = np.array(values)
    means = array.mean(axis=1)
    ranges = np.stack((means - array.min(axis=1), array.max(axis=1) - means))
    axes.bar(at, means, width=width, color=color, label=label)
    axes.errorbar(at, means, yerr=ranges, fmt="none", ecolor=plot_style.DARK, capsize=3, linewidth=1)
