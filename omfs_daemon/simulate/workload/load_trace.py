"""Read any workload file; its name gives the format."""

from __future__ import annotations

from pathlib import Path

from omfs_daemon.accounting.cells import read_cells
from omfs_daemon.accounting.mira_columns import is_mira
from omfs_daemon.accounting.read_report import Progress
from omfs_daemon.errors import ConfigError
from omfs_daemon.simulate.workload import mira, sacct, swf, table
from omfs_daemon.simulate.workload.read_options import Loaded, ReadOptions


def load_trace(path: Path, options: ReadOptions | None = None, progress: Progress | None = None) -> Loaded:
    """The workload in the file; ConfigError if it is missing, of an unknown kind, or wrong.

    .swf: Standard Workload Format; .csv: Mira's log, if its header is that, else our own table (both also .gz);
    .parquet: our own table; .sacct: what Slurm's sacct printed.
    """
    options = options or ReadOptions()
    kind = Path(path.name.lower().removesuffix(".gz")).suffix
    if kind == ".swf":
        return swf.read_swf(path, options, progress)
    if options.urgent_queues is not None:
        raise ConfigError(f"{path}: --urgent-queue: only a trace in Standard Workload Format has queues")
    if sacct.is_accounting(path):
        return sacct.read_sacct(path, options, progress)
    if kind in (".csv", ".parquet"):
        cells = read_cells(path, progress)
        return mira.mira_workload(cells, options) if is_mira(cells) else table.table_workload(cells, options)
    raise ConfigError(f"{path}: the name must end in .swf, .swf.gz, .csv, .csv.gz, .parquet or .sacct")
