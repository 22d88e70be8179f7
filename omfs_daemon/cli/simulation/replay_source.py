"""What commands replay: a recorded period, and the size of the machine that it is replayed on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from omfs_daemon.config.schema import Config
from omfs_daemon.errors import ConfigError, GatewayError, UnreachableError
from omfs_daemon.terminal.times import seconds_since_epoch

# What needs the extra, or loads slowly, is imported where it is used: the other commands must stay quick.
if TYPE_CHECKING:
    from rich.progress import Progress

    from omfs_daemon.simulate.workload.read_options import Loaded, ReadOptions

Trace = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The period: what sacct printed (.sacct), or any trace of omfs simulate."),
]
Until = Annotated[str | None, typer.Option(help="With --since: up to then; else up to now.")]
Procs = Annotated[int | None, typer.Option(min=1, help="CPUs of the machine; else from the trace, else from Slurm.")]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse a trace with malformed lines.")]

_BY_CLASSES = (
    "who is urgent and how jobs are preempted: by the classes of the configuration; accounting does not say which jobs "
    "may not be requeued: all may"
)
_BY_TRACE = "who is urgent and how jobs are preempted: as the trace says; where it does not, nobody and by suspending"


class ReplayPeriod(NamedTuple):
    """``load`` takes the read options and a callback for the fraction that has been read."""

    load: Callable[[ReadOptions, Callable[[float], None]], Loaded]
    source: str


def replay_period(trace: Path | None, since: str | None, until: str | None, config: Config) -> ReplayPeriod:
    """How to read the requested period; ConfigError if that is not one period."""
    from omfs_daemon.simulate.workload import sacct
    from omfs_daemon.simulate.workload.load_trace import load_trace

    if (trace is None) == (since is None):
        raise ConfigError("either --trace FILE or --since TIME is needed, and not both")
    if trace is not None:
        if until is not None:
            raise ConfigError("--until goes with --since: a trace is replayed whole")
        by_classes = sacct.is_accounting(trace)
        return ReplayPeriod(lambda *how: load_trace(trace, *how), _BY_CLASSES if by_classes else _BY_TRACE)
    now = time.time()
    begin = seconds_since_epoch(since or "", now)
    end = now if until is None else seconds_since_epoch(until, now, "--until")
    if begin >= end:
        raise ConfigError(f"--since = {since!r}: must be before {'now' if until is None else f'--until = {until!r}'}")
    return ReplayPeriod(lambda options, _: _asked(begin, end, config, options), _BY_CLASSES)


def _asked(begin: float, end: float, config: Config, options: ReadOptions) -> Loaded:
    from omfs_daemon.simulate.workload import sacct

    try:
        return sacct.ask(begin, end, config.slurm.conf, options)
    except GatewayError as error:
        raise UnreachableError(f"accounting cannot be read ({error})") from None


def load_period(period: ReplayPeriod, options: ReadOptions, bars: Progress) -> Loaded:
    """With a bar for how far it is."""
    loading = bars.add_task("loading", total=1.0)
    loaded = period.load(options, lambda part: bars.update(loading, completed=part))
    bars.remove_task(loading)
    return loaded


class ReplayMachine(NamedTuple):
    cpus: int
    source: str


def replay_machine(procs: int | None, loaded: Loaded, config: Config) -> ReplayMachine:
    """Its CPUs, and their source; ConfigError if there is none."""
    if procs is not None:
        return ReplayMachine(procs, f"CPUs of the machine: {procs:,}, as asked for")
    if loaded.facts.cpus is not None:
        return ReplayMachine(
            loaded.facts.cpus, f"CPUs of the machine: {loaded.facts.cpus:,}, as the trace's header says"
        )
    from omfs_daemon.slurm.commands.command_gateway import CommandGateway

    try:
        nodes = CommandGateway(config.slurm.conf, config.slurm.timeout_seconds).nodes()
    except GatewayError as error:
        raise ConfigError(f"--procs is needed: neither the trace nor Slurm says it ({error})") from None
    cpus = sum(node.cpus for node in nodes)
    if not cpus:
        raise ConfigError("--procs is needed: neither the trace nor Slurm says it (no nodes)")
    return ReplayMachine(cpus, f"CPUs of the machine: {cpus:,} on {len(nodes):,} nodes, as Slurm has them now")
