"""The job log of Mira, an IBM Blue Gene/Q, as the DIR-LAB lumos archive offers it: CSV, one row per job.

Jobs got whole nodes, so nodes are what ``cpus`` counts. Times of submission are seconds since the epoch.
"""

from __future__ import annotations

import numpy as np

from omfs_daemon.errors import ConfigError
from omfs_daemon.simulate.workload import bounds
from omfs_daemon.simulate.workload.cells import Cells, NumberColumn, understood
from omfs_daemon.simulate.workload.read_report import Loaded, ReadOptions, TraceFacts, numbered_accounts
from omfs_daemon.simulate.workload.workload import workload

_RULES = (
    NumberColumn("job", bounds.NUMBER, whole=True),
    NumberColumn("user", bounds.NUMBER, whole=True),
    NumberColumn("project", bounds.NUMBER, whole=True),
    NumberColumn("node_num", bounds.CPUS, 1, whole=True),
    NumberColumn("submit_time", bounds.SECONDS),
    NumberColumn("run_time", bounds.SECONDS),
    NumberColumn("wall_time", bounds.SECONDS),
)
_OWNERS = {"group": "project", "user": "user", "none": "project"}
# The archive's logs of other machines have the same columns, so this counts only where the name says Mira.
_MIRA = TraceFacts(cpus=49152, nodes=49152, computer="IBM Blue Gene/Q Mira")


def is_mira(cells: Cells) -> bool:
    """Whether the header is that of this archive."""
    return {rule.name for rule in _RULES} <= set(cells.names)


def mira_workload(cells: Cells, options: ReadOptions) -> Loaded:
    """The jobs; an account is a project (``accounts`` group) or a user. ConfigError if the file cannot be used."""
    if options.accounts not in _OWNERS:
        raise ConfigError(
            f"{cells.path}: accounts: {options.accounts!r} is not in this log: one of {', '.join(_OWNERS)}"
        )
    columns, report = understood(cells, _RULES, options.strict)
    begin = float(columns["submit_time"].min())
    accounts, account = numbered_accounts(options.accounts, columns[_OWNERS[options.accounts]])
    limit = columns["wall_time"]
    jobs = workload(
        cells.path.name,
        columns["submit_time"] - begin,
        columns["node_num"],
        columns["run_time"],
        origin=begin,
        accounts=accounts,
        job_id=columns["job"],
        limit=np.where(limit > 0, limit, np.inf),
        account=account,
        mode=np.full(len(limit), options.mode),
    )
    return Loaded(jobs, report, _MIRA if "mira" in cells.path.name.lower() else TraceFacts())
