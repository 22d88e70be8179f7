"""Options of real-time jobs: which jobs are, where jobs can run, and how checkpoints are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor, isfinite
from pathlib import Path

import numpy as np

from omfs_daemon.accounting import bounds
from omfs_daemon.accounting.cells import NumberColumn, read_cells, understood
from omfs_daemon.errors import ConfigError
from omfs_daemon.policy.rules.checkpoint_laws import ACT_AT
from omfs_daemon.policy.rules.realtime_terms import CostWeights, RealtimeTerms
from omfs_daemon.policy.rules.slowdown_laws import CATEGORIES, VICTIM_MAX_SLOWDOWN
from omfs_daemon.simulate.engine.checkpoint_scheme import scheme_named
from omfs_daemon.simulate.engine.places import FLAT, layout_named, read_places
from omfs_daemon.simulate.engine.realtime_setting import RealtimeSetting
from omfs_daemon.simulate.engine.scenario import Machine
from omfs_daemon.simulate.workload.workload import Workload

_NAMED = 6
_WEIGHTS = ("slowdown", "checkpoint", "remaining")


@dataclass(frozen=True, slots=True)
class RealtimeOptions:
    """As typed; the names are those of the options.

    realtime_share  0 to 1, of all jobs, drawn by the seed; realtime: a file that names them; realtime_under: seconds;
                    those that run no longer, or with a share, those among which is drawn
    layout, places  where jobs can run; a file
    act_at, victim_max  ``CATEGORY=SLOWDOWN`` each; weight: ``slowdown|checkpoint|remaining=EXPONENT`` each
    """

    realtime_share: float | None = None
    realtime: Path | None = None
    realtime_under: float | None = None
    layout: str = FLAT
    places: Path | None = None
    scheme: str = "jit"
    file_system: str = "shared"
    memory_per_cpu: float = 0.0
    act_at: tuple[str, ...] = ()
    victim_max: tuple[str, ...] = ()
    weight: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Errors that depend neither on the workload nor on the machine."""
        scheme_named(self.scheme)
        _terms(self)
        if self.realtime_share is not None and not 0 <= self.realtime_share <= 1:
            raise ConfigError(f"--realtime-share = {self.realtime_share:g}: must be from 0 to 1")
        if self.realtime_under is not None and not 0 < self.realtime_under <= bounds.SECONDS:
            raise ConfigError(f"--realtime-under = {self.realtime_under:g}: must be seconds above 0")
        if self.realtime is not None and (self.realtime_share is not None or self.realtime_under is not None):
            raise ConfigError("--realtime: the file names all real-time jobs; not with --realtime-share or -under")
        if self.file_system not in ("shared", "each"):
            raise ConfigError(f"--file-system {self.file_system!r}: must be shared or each")
        if not 0 <= self.memory_per_cpu <= bounds.BYTES:
            raise ConfigError(f"--memory-per-cpu = {self.memory_per_cpu:g}: must be bytes from 0 to {bounds.BYTES:,}")
        if self.places is not None and self.layout != FLAT:
            raise ConfigError("--places: the file is the layout; not with --layout")


def realtime_setting(options: RealtimeOptions, machine: Machine) -> RealtimeSetting:
    """For this machine; ConfigError if the layout is none of it."""
    if options.places is not None:
        layout = read_places(options.places, machine.cpus)
    else:
        layout = layout_named(options.layout, machine.cpus)
    if layout.places and machine.nodes:
        raise ConfigError(f"--nodes: places take their part; not with --layout {layout.name}")
    return RealtimeSetting(
        layout=layout,
        scheme=scheme_named(options.scheme),
        shared_file_system=options.file_system == "shared",
        memory_per_cpu=options.memory_per_cpu,
        terms=_terms(options),
    )


def with_realtime_jobs(jobs: Workload, options: RealtimeOptions, seed: int) -> Workload:
    """The workload with its real-time jobs, which are never urgent; as it is if none are asked for. ConfigError for
    jobs that are not in it."""
    if options.realtime is not None:
        return replace(jobs, realtime=_named_in(options.realtime, jobs) & ~jobs.urgent)
    if options.realtime_share is None and options.realtime_under is None:
        return jobs
    among = ~jobs.urgent
    if options.realtime_under is not None:
        among &= jobs.run < options.realtime_under
    if options.realtime_share is None:
        return replace(jobs, realtime=among)
    return replace(jobs, realtime=drawn_realtime(np.flatnonzero(among), options.realtime_share, len(jobs), seed))


def drawn_realtime(among: np.ndarray, share: float, count: int, seed: int) -> np.ndarray:
    """A mask of ``count`` jobs with floor(share * count) of these set, or all if they are fewer; the same by seed."""
    wanted = min(floor(share * count + 1e-9), len(among))
    mask = np.zeros(count, dtype=np.bool_)
    mask[np.random.default_rng(seed).choice(among, wanted, replace=False)] = True
    return mask


def realtime_notes(jobs: Workload) -> tuple[str, ...]:
    """How many real-time jobs there are, in a sentence; none without any."""
    count = int(jobs.realtime.sum())
    if not count:
        return ()
    unlimited = int((jobs.realtime & ~np.isfinite(jobs.limit)).sum())
    without = f"; {unlimited:,} without a time limit, never due unless run times are predicted" if unlimited else ""
    return (f"real-time jobs: {count:,}{without}",)


def _named_in(path: Path, jobs: Workload) -> np.ndarray:
    columns, _ = understood(read_cells(path), (NumberColumn("job_id", bounds.NUMBER, whole=True),), strict=True)
    unknown = np.setdiff1d(columns["job_id"], jobs.job_id).tolist()
    if unknown:
        more = f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
        listed = ", ".join(map(str, unknown[:_NAMED]))
        raise ConfigError(f"--realtime {path}: jobs that are not in the workload: {listed}{more}")
    return np.isin(jobs.job_id, columns["job_id"])


def _terms(options: RealtimeOptions) -> RealtimeTerms:
    weights = _values("--weight", options.weight, _WEIGHTS, (1.0,) * len(_WEIGHTS), 0.0)
    return RealtimeTerms(
        act_at=_values("--act-at", options.act_at, CATEGORIES, ACT_AT, 1.0),
        victim_max=_values("--victim-max", options.victim_max, CATEGORIES, VICTIM_MAX_SLOWDOWN, 1.0),
        weights=CostWeights(*weights),
    )


def _values(
    option: str, texts: Sequence[str], names: Sequence[str], otherwise: Sequence[float], least: float
) -> tuple[float, ...]:
    """``NAME=X`` each, for some of the names; ConfigError for anything else."""
    values = list(otherwise)
    for text in texts:
        name, equals, number = text.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if not equals or name not in names or not isfinite(value) or value < least:
            raise ConfigError(f"{option} {text!r}: must be NAME=X, NAME one of {', '.join(names)}, X from {least:g} on")
        values[names.index(name)] = value
    return tuple(values)
