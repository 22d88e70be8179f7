"""Ask Slurm's accounting."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from omfs_daemon.accounting.sacct_rows import SHORT_FIELDS, SacctRows, sacct_rows_of_answer
from omfs_daemon.slurm.commands.run_command import Runner, run_command

_LONGEST = 300.0
"""Seconds that slurmdbd may take for the answer; a year of a large site takes it a minute or two."""


def asked_sacct(
    since: float,
    until: float,
    conf: Path | None,
    fields: Sequence[str] = SHORT_FIELDS,
    runner: Runner = run_command,
) -> SacctRows:
    """Records of jobs in this period (seconds since the epoch), with places from 1.

    ``conf``: the slurm.conf of the cluster. GatewayError if Slurm does not answer.
    """
    secret = f"<{secrets.token_hex(16)}>"
    printed = runner(sacct_arguments(since, until, secret, fields), timeout=_LONGEST, conf=conf).stdout
    return sacct_rows_of_answer(printed, secret, fields)


def sacct_arguments(since: float, until: float, separator: str, fields: Sequence[str] = SHORT_FIELDS) -> list[str]:
    """The command; sacct takes no seconds since the epoch, only local times."""
    begin, end = (datetime.fromtimestamp(time).strftime("%Y-%m-%dT%H:%M:%S") for time in (since, until))
    span = ["--starttime", begin, "--endtime", end]
    return ["sacct", "-a", "-X", "-P", "-n", "-D", *span, f"--delimiter={separator}", f"--format={','.join(fields)}"]
