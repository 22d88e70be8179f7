"""Parse the messages of scontrol and scancel about refused orders. Pure.

With a list of jobs they continue after a refusal and end with exit code 1; the messages name the refused jobs,
as ``... for job 7``, ``3_4-5: ...`` (26.05: ``3_[4-5]: ...``) or ``... on job id 7: ...``. The rest of
the messages differs from release to release, so only the names are parsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from omfs_daemon.cluster.job_refs import share_tasks
from omfs_daemon.errors import GatewayError
from omfs_daemon.slurm.commands.run_command import CommandOutput
from omfs_daemon.slurm.gateway import OrderRefusal

_FORMS = (
    re.compile(r"scancel: error: Kill job error on job id (?P<ref>\S+): (?P<message>.*)"),
    re.compile(r"(?P<ref>\d+_\S+): (?P<message>.*)"),
    re.compile(r"(?P<message>.*) for job (?P<ref>\S+)"),
)
# A second line about the refusal in the line before; 26.05 prints only "slurm_suspend error".
_REPEATS = re.compile(r"slurm_\w+ error(?::|$)")
_NO_SLURM = re.compile(
    r"unable to contact slurm controller|socket timed out|connection refused|zero bytes were transmitted"
    r"|munge|authentication|could not establish a configuration source|communication",
    re.IGNORECASE,
)


def parse_refusals(refs: Sequence[str], output: CommandOutput) -> list[OrderRefusal]:
    """The refusals among ``refs``; a message that names none of them counts for all.

    GatewayError if Slurm does not answer.
    """
    if output.code == 0:
        return []
    lines = [line.strip() for line in (output.stderr + output.stdout).splitlines() if line.strip()]
    down = next((line for line in lines if _NO_SLURM.search(line)), None)
    if down:
        raise GatewayError(f"Slurm did not take the order for {', '.join(refs)[:120]}: {down}")
    found = [refusal for line in lines for refusal in _named(line, refs)]
    if not found:
        message = lines[-1] if lines else f"exit {output.code} without a message"
        found = [OrderRefusal(ref, message) for ref in refs]
    return list(dict.fromkeys(found))


def _named(line: str, refs: Sequence[str]) -> Iterable[OrderRefusal]:
    if _REPEATS.match(line):
        return ()
    for form in _FORMS:
        match = form.fullmatch(line)
        if match:
            meant = [ref for ref in refs if share_tasks(ref, match["ref"])]
            if meant:
                return [OrderRefusal(ref, match["message"]) for ref in meant]
    return [OrderRefusal(ref, line) for ref in refs]

