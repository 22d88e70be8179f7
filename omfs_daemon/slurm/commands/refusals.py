"""Parse the messages of scontrol and scancel about refused orders. Pure.

With a list of jobs they continue after a refusal and end with exit code 1; the messages name the refused jobs,
as ``... for job 7``, ``3_4-5: ...`` (26.05: ``3_[4-5]: ...``) or ``... on job id 7: ...``. The rest of
the messages differs from release to release, so only the names are parsed. Of an array of which some tasks are refused,
slurmctld also names the others (``3_6: No error``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from omfs_daemon.cluster.job_refs import share_tasks
from omfs_daemon.slurm.commands.run_command import CommandOutput
from omfs_daemon.slurm.gateway import OrderRefusal

_FORMS = (
    re.compile(r"scancel: error: Kill job error on job id (?P<ref>\S+): (?P<message>.*)"),
    re.compile(r"(?P<ref>\d+_\S+): (?P<message>.*)"),
    re.compile(r"(?P<message>.*) for job (?P<ref>\S+)"),
)
# A second line about the refusal in the line before; 26.05 prints only "slurm_suspend error".
_REPEATS = re.compile(r"slurm_\w+ error(?::|$)")
_DONE = re.compile(r"\d+_\S+: No error")
# "Unexpected message received": also for an unknown job that it should suspend.
_NO_SLURM = re.compile(
    r"unable to contact slurm controller|socket timed out|connection refused|zero bytes were transmitted"
    r"|munge|authentication|could not establish a configuration source|communication|unexpected message received",
    re.IGNORECASE,
)
_KEPT = 200


class Refusals(NamedTuple):
    """What Slurm said to an order for several jobs.

    named     the refusals of single jobs
    unnamed   a message that names none of the jobs, "" if there is none: any of them may have been refused
    is_doubt  whether a message may mean that Slurm does not answer
    """

    named: tuple[OrderRefusal, ...] = ()
    unnamed: str = ""
    is_doubt: bool = False


def parse_refusals(refs: Sequence[str], output: CommandOutput) -> Refusals:
    """The refusals among ``refs``, the references in the command."""
    if output.code == 0:
        return Refusals()
    lines = [line.strip() for line in (output.stderr + output.stdout).splitlines()]
    lines = [line for line in lines if line and not _DONE.fullmatch(line)]
    named: dict[str, OrderRefusal] = {}
    unnamed = [line for line in lines if not _REPEATS.match(line)]
    for line in tuple(unnamed):
        for refusal in _named(line, refs):
            named.setdefault(refusal.ref, refusal)
            unnamed = [other for other in unnamed if other != line]
    if not named and not unnamed:
        unnamed = lines[-1:] or [f"exit {output.code} without a message"]
    is_doubt = any(_NO_SLURM.search(line) for line in lines)
    return Refusals(tuple(named.values()), unnamed[0][:_KEPT] if unnamed else "", is_doubt)


def _named(line: str, refs: Sequence[str]) -> Iterable[OrderRefusal]:
    for form in _FORMS:
        match = form.fullmatch(line)
        if match:
            meant = [ref for ref in refs if share_tasks(ref, match["ref"])]
            if meant:
                return [OrderRefusal(ref, match["message"][:_KEPT]) for ref in meant]
    return ()
