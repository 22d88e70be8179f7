"""The job log of Mira, an IBM Blue Gene/Q, as the DIR-LAB lumos archive offers it: CSV, one row per job.

Jobs got whole nodes, so nodes are what ``cpus`` counts. Times of submission are seconds since the epoch.
"""

from __future__ import annotations

from omfs_daemon.accounting import bounds
from omfs_daemon.accounting.cells import Cells, NumberColumn
from omfs_daemon.accounting.read_report import TraceFacts

MIRA_COLUMNS = (
    NumberColumn("job", bounds.NUMBER, whole=True),
    NumberColumn("user", bounds.NUMBER, whole=True),
    NumberColumn("project", bounds.NUMBER, whole=True),
    NumberColumn("node_num", bounds.CPUS, 1, whole=True),
    NumberColumn("submit_time", bounds.SECONDS),
    NumberColumn("run_time", bounds.SECONDS),
    NumberColumn("wall_time", bounds.SECONDS),
)
# The archive's logs of other machines have the same columns, so this counts only where the name says Mira.
_MIRA = TraceFacts(
    cpus=49152,
    nodes=49152,
    computer="IBM Blue Gene/Q Mira",
    size_source="as Mira has, after which the file is named",
)


def is_mira(cells: Cells) -> bool:
    """Whether the header is that of this archive."""
    return {rule.name for rule in MIRA_COLUMNS} <= set(cells.names)


def mira_facts(cells: Cells) -> TraceFacts:
    """Of the machine, if the file's name says that it is Mira."""
    return _MIRA if "mira" in cells.path.name.lower() else TraceFacts()
