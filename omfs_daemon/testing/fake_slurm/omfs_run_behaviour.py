"""How omfs-run behaves inside a job of the fake, as far as a test wants to choose, and the word it keeps."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

_WORD = re.compile(r"(?<!\S)omfs:run=\S*")


class OnUsr1(Enum):
    """What the launcher does when it is asked to stop."""

    CHECKPOINT = auto()
    """It writes a checkpoint and exits 101: Slurm requeues the job, held."""
    FAIL = auto()
    """The checkpoint fails and the program runs on; the word says so."""
    IGNORE = auto()
    """Nothing at all: a launcher that hangs."""
    DIE = auto()
    """The program dies of it and the job ends."""


class OnRestart(Enum):
    """What it does when the job runs again."""

    CONTINUE = auto()
    """From the newest checkpoint."""
    FRESH = auto()
    """From the beginning, and the word says so."""
    HELD = auto()
    """No checkpoint can be restarted: exit 102, Slurm requeues the job, held."""


@dataclass(frozen=True, slots=True)
class Launched:
    """A job whose batch script is ``exec omfs-run``, and how it behaves.

    ``ready_after``: seconds from each start until the launcher says ready; USR1 before that kills the job, as the
    default action does. ``seconds``: from USR1 until the checkpoint is verified (or has failed).
    """

    method: str = "dmtcp"
    on_usr1: OnUsr1 = OnUsr1.CHECKPOINT
    on_restart: OnRestart = OnRestart.CONTINUE
    ready_after: float = 0.0
    seconds: float = 0.5
    size: int = 1 << 20
    why: str = "no_space"


def with_word(comment: str, run: int, state: str, **said: object) -> str:
    """The comment with the launcher's one word in its place."""
    word = ":".join((f"omfs:run={run}", state, *(f"{key}={value}" for key, value in said.items())))
    if _WORD.search(comment):
        return _WORD.sub(word, comment, count=1)
    return f"{comment} {word}".strip()
