"""What scontrol and scancel say about orders that Slurm did not take. Pure.

With a list of jobs they go on after a refusal and end with exit code 1; who was refused stands in the messages,
as ``... for job 7``, ``3_4-5: ...`` (26.05: ``3_[4-5]: ...``) or ``... on job id 7: ...``. Slurm words the messages
otherwise from release to release, so nothing but the names is read in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from omfs_daemon.errors import GatewayError
from omfs_daemon.slurm.commands import values
from omfs_daemon.slurm.gateway import Refusal
from omfs_daemon.slurm.commands.run_command import Output

_FORMS = (
    re.compile(r"scancel: error: Kill job error on job id (?P<ref>\S+): (?P<message>.*)"),
    re.compile(r"(?P<ref>\d+_\S+): (?P<message>.*)"),
    re.compile(r"(?P<message>.*) for job (?P<ref>\S+)"),
)
# A second line about a refusal that the line before has named; 26.05 says no more than "slurm_suspend error".
_REPEATS = re.compile(r"slurm_\w+ error(?::|$)")
_NO_SLURM = re.compile(
    r"unable to contact slurm controller|socket timed out|connection refused|zero bytes were transmitted"
    r"|munge|authentication|could not establish a configuration source|communication",
    re.IGNORECASE,
)


def refusals(refs: Sequence[str], output: Output) -> list[Refusal]:
    """The refusals among ``refs``; a message that names none of them counts for all. GatewayError if Slurm is away."""
    if output.code == 0:
        return []
    lines = [line.strip() for line in (output.stderr + output.stdout).splitlines() if line.strip()]
    away = next((line for line in lines if _NO_SLURM.search(line)), None)
    if away:
        raise GatewayError(f"Slurm did not take the order for {', '.join(refs)[:120]}: {away}")
    found = [refusal for line in lines for refusal in _named(line, refs)]
    if not found:
        message = lines[-1] if lines else f"exit {output.code} without a message"
        found = [Refusal(ref, message) for ref in refs]
    return list(dict.fromkeys(found))


def _named(line: str, refs: Sequence[str]) -> Iterable[Refusal]:
    if _REPEATS.match(line):
        return ()
    for form in _FORMS:
        match = form.fullmatch(line)
        if match:
            meant = [ref for ref in refs if _covers(ref, match["ref"])]
            if meant:
                return [Refusal(ref, match["message"]) for ref in meant]
    return [Refusal(ref, line) for ref in refs]


def _covers(ref: str, named: str) -> bool:
    """Whether ``3_[4-9]`` is what Slurm calls ``3_4-9``, or has the task ``3_5``."""
    if _bare(ref) == _bare(named):
        return True
    array, _, listed = _bare(ref).partition("_")
    other, _, tasks = _bare(named).partition("_")
    if array != other or not listed or not re.fullmatch(r"[\d,:%-]+", tasks):
        return False
    return bool(set(values.tasks(tasks)) & set(values.tasks(listed)))


def _bare(ref: str) -> str:
    return ref.translate({ord("["): None, ord("]"): None})
