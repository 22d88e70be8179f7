"""The workload of Mira's job log."""

from __future__ import annotations

import numpy as np

from omfs_daemon.accounting.cells import Cells, understood
from omfs_daemon.accounting.mira_columns import MIRA_COLUMNS, mira_facts
from omfs_daemon.errors import ConfigError
from omfs_daemon.simulate.workload.read_options import Loaded, ReadOptions, numbered, numbered_accounts
from omfs_daemon.simulate.workload.workload import workload

_OWNERS = {"group": "project", "user": "user", "none": "project"}


def mira_workload(cells: Cells, options: ReadOptions) -> Loaded:
    """The jobs; an account is a project (``accounts`` group) or a user. ConfigError if the file cannot be used."""
    if options.accounts not in _OWNERS:
        raise ConfigError(
            f"{cells.path}: accounts: {options.accounts!r} is not in this log: one of {', '.join(_OWNERS)}"
        )
    columns, report = understood(cells, MIRA_COLUMNS, options.strict)
    begin = float(columns["submit_time"].min())
    accounts, account = numbered_accounts(options.accounts, columns[_OWNERS[options.accounts]])
    users, user = numbered("user", columns["user"])
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
        users=users,
        user=user,
        mode=np.full(len(limit), options.mode),
    )
    return Loaded(jobs, report, mira_facts(cells))
