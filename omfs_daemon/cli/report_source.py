"""Where ``omfs report`` reads: a log, or Slurm's accounting."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from omfs_daemon.errors import ConfigError, GatewayError, OmfsError, UnreachableError
from omfs_daemon.terminal.times import seconds_since_epoch

# What needs the extra, or loads slowly, is imported where it is used: the other commands must stay quick.
if TYPE_CHECKING:
    from omfs_daemon.accounting.accounting_store import AccountingStore
    from omfs_daemon.accounting.asked_events import SlurmUtilization
    from omfs_daemon.accounting.job_records import JobRecords
    from omfs_daemon.accounting.record_period import RecordPeriod
    from omfs_daemon.config.schema import Config
    from omfs_daemon.daemon.api.client import Client
    from omfs_daemon.daemon.store.idle_hours import IdleHour
    from omfs_daemon.reports.backfill_settings import BackfillSettings
    from omfs_daemon.reports.log_report import LogReport
    from omfs_daemon.reports.machine_use import Down, MachineSize


class ReportPeriod(NamedTuple):
    since: float | None
    until: float | None

    def of_records(self) -> RecordPeriod:
        from omfs_daemon.accounting.record_period import ALWAYS, RecordPeriod

        return RecordPeriod(
            ALWAYS.since if self.since is None else self.since, ALWAYS.until if self.until is None else self.until
        )


class ReportSource(NamedTuple):
    records: JobRecords
    down: list[Down]
    size: MachineSize | None
    by_slurm: SlurmUtilization | None = None
    recorded: Sequence[IdleHour] = ()


class MachineOptions(NamedTuple):
    procs: int | None
    nodes: int | None
    exclusive: bool
    large: str | None


def report_period(since: str | None, until: str | None) -> ReportPeriod:
    now = time.time()
    begin = None if since is None else seconds_since_epoch(since, now)
    end = None if until is None else seconds_since_epoch(until, now, "--until")
    if begin is not None and begin >= (now if end is None else end):
        raise ConfigError(f"--since = {since!r}: must be before {'now' if until is None else f'--until = {until!r}'}")
    return ReportPeriod(begin, end)


def report_source(
    log: Path | None, options: Any, period: ReportPeriod, config: Config, client: Client, needs_steps: bool
) -> ReportSource:
    """``client``: of the daemon, which needs not run; a log may be another machine's, and is read without it.
    ``needs_steps``: slurmdbd is asked for what steps used, which is much more than it has of jobs.
    """
    from omfs_daemon.accounting.asked_events import asked_down, asked_utilization
    from omfs_daemon.accounting.asked_sacct import asked_records, asking_slurm
    from omfs_daemon.accounting.asked_steps import asked_steps, with_step_use
    from omfs_daemon.accounting.job_records import require_good
    from omfs_daemon.accounting.read_log import read_log
    from omfs_daemon.reports.machine_use import Down
    from omfs_daemon.terminal.progress_bar import progress

    if log is not None:
        with progress() as bars:
            bar = bars.add_task(f"reading {log.name}", total=1.0)
            records = read_log(log, options, lambda part: bars.update(bar, completed=part))
        return ReportSource(records, [], None)
    if period.since is None:
        raise ConfigError("--log FILE or --since TIME is needed")
    now = time.time()
    until = now if period.until is None else min(period.until, now)
    conf = config.slurm.conf
    records = asked_records(period.since, until, asking_slurm(conf), now, _store(config))
    require_good(records, options.strict, options.lenient)
    try:
        if needs_steps:
            records = with_step_use(records, asked_steps(period.since, until, conf))
        down = [Down(begin, min(end, until), cores) for begin, end, cores in asked_down(period.since, until, conf)]
        by_slurm = asked_utilization(period.since, until, conf)
    except GatewayError as error:
        raise UnreachableError(f"accounting cannot be read ({error})") from None
    return ReportSource(records, down, _size_of_slurm(config), by_slurm, recorded_idle(client, period.since))


def recorded_idle(client: Client, since: float) -> list[IdleHour]:
    """Why cores were idle since then, as the daemon kept it; nothing if none answers that knows."""
    from omfs_daemon.daemon.store.idle_hours import IdleHour

    try:
        found = client.idle_hours(since)
    except OmfsError:
        return []
    return [IdleHour(hour["begin"], hour["watched_seconds"], hour["cpu_seconds"]) for hour in found["hours"]]


def _store(config: Config) -> AccountingStore | None:
    """None for a user who may not write there."""
    from omfs_daemon.accounting.accounting_store import AccountingStore

    state_dir = config.daemon.state_dir
    return AccountingStore(state_dir / "accounting") if os.access(state_dir, os.W_OK | os.X_OK) else None


def _size_of_slurm(config: Config) -> MachineSize | None:
    from omfs_daemon.reports.machine_use import MachineSize
    from omfs_daemon.slurm.commands.command_gateway import CommandGateway

    try:
        found = CommandGateway(config.slurm.conf, config.slurm.timeout_seconds).nodes()
    except GatewayError:
        return None
    cores = sum(node.cpus for node in found)
    return MachineSize(cores, f"on {len(found):,} nodes, as Slurm has them now") if cores else None


def backfill_of(scheduler: str | None, is_asked: bool, config: Config) -> BackfillSettings:
    """As the user says, as Slurm is set, or as it is by itself; UnreachableError if Slurm does not say."""
    from omfs_daemon.reports.backfill_settings import BackfillSettings, backfill_settings
    from omfs_daemon.slurm.commands.run_command import run_command

    if scheduler is not None:
        return backfill_settings(scheduler, "--scheduler")
    if not is_asked:
        return BackfillSettings()
    asked = ["scontrol", "show", "config"]
    try:
        shown = run_command(asked, timeout=config.slurm.timeout_seconds, conf=config.slurm.conf)
    except GatewayError as error:
        raise UnreachableError(f"Slurm does not say its SchedulerParameters; --scheduler does ({error})") from None
    for line in shown.stdout.splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "SchedulerParameters":
            return backfill_settings(value.strip(), "Slurm's SchedulerParameters")
    return BackfillSettings()


def made_report(
    source: ReportSource, period: ReportPeriod, zone: tzinfo | None, machine: MachineOptions, only_user: str | None
) -> LogReport:
    """``only_user``: who appears by name, see ``named_user``."""
    from omfs_daemon.reports.log_report import log_report
    from omfs_daemon.reports.machine_use import MachineSize, recorded_size
    from omfs_daemon.reports.whole_nodes import as_whole_nodes

    records, size = source.records, source.size or recorded_size(source.records.facts)
    if machine.procs is not None:
        size = MachineSize(machine.procs, "as asked for", is_asked=True)
    if machine.exclusive:
        records = as_whole_nodes(records, size.cores, machine.nodes or records.facts.nodes)
    large = _large(machine.large)
    until = time.time() if period.since is not None and period.until is None and source.down else period.until
    return log_report(
        records, size, large, zone, period.since, until, source.down, source.by_slurm, only_user, source.recorded
    )


def _large(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text.removesuffix("%")) / 100 if text.endswith("%") else float(int(text))
    except ValueError:
        value = -1.0
    if not value > 0 or (text.endswith("%") and value >= 1):
        raise ConfigError(f"--large = {text!r}: must be a number of cores, or such as 7.8%")
    return value
