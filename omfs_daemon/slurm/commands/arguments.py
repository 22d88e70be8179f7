"""How jobs and comments are written in the arguments of Slurm's commands, of which Linux takes 128 KiB (execve(2))."""

from __future__ import annotations

from collections.abc import Iterable

# Of references. Not less, because Slurm makes a job of its own of each task where an order names not all tasks of an
# array.
MOST_BYTES = 96 * 1024
_ADMIN_COMMENT_KEPT = 60_000  # characters


def naming(job_ids: Iterable[str]) -> list[str]:
    """The option for these jobs alone; none, which is for all jobs, if they do not fit into one argument."""
    listed = ",".join(job_ids)
    return [f"--jobs={listed}"] if 0 < len(listed) <= MOST_BYTES else []


def comment_text(text: str) -> str:
    """An AdminComment as it can be sent: printable."""
    return "".join(character if character.isprintable() else " " for character in text)[:_ADMIN_COMMENT_KEPT]


def admin_comment(text: str) -> str:
    return f"admincomment={comment_text(text)}"
