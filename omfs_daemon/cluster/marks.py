"""The text of an AdminComment: our mark, a sentence for the job's owner, and what others have written there.

    WORD[ SENTENCE][ | FOREIGN]

WORD is the mark. A comment without a mark is wholly foreign; sites keep job statistics there. Users cannot write it
(scontrol(1), AdminComment). We send ``WORD?EXPECTED``: job_submit.lua compares EXPECTED with the stored mark, under
slurmctld's lock, and stores the text without it, or refuses. Without the plug-in the text is stored as it was sent.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple


class MarkWord(StrEnum):
    """What a mark says; ours are followed by the number of the batch of orders that has set it.

    HELD and RELEASED: we have held or released the job. STOPPING: we preempt it by a method other than a requeue, or
    have suspended it. ADMIN_HELD and ADMIN_RELEASED: written by job_submit.lua when an administrator holds or releases
    a job that carries a mark; without it we write the latter once we see that a job is held no longer.
    """

    HELD = "omfs:held"
    RELEASED = "omfs:rel"
    STOPPING = "omfs:stopping"
    ADMIN_HELD = "adm:held"
    ADMIN_RELEASED = "adm:rel"


class AdminComment(NamedTuple):
    """The parts of an AdminComment; ``mark`` is the whole word ("omfs:held:12"), "" if there is none."""

    mark: str = ""
    sentence: str = ""
    foreign: str = ""

    @property
    def word(self) -> MarkWord | None:
        """What the mark says; None without a mark, or for one that this version does not know."""
        return _read_mark(self.mark)[0]

    @property
    def number(self) -> int:
        """The number of the batch of orders; 0 without one, and for the plug-in's own hold at submit."""
        return _read_mark(self.mark)[1]


_MARK = re.compile(r"(?P<mark>(?:omfs|adm):[^\s?]*)(?:\?\S*)?", re.ASCII)
_NUMBERED = re.compile(r"(?P<word>omfs:[a-z]+):(?P<number>[0-9]{1,15})", re.ASCII)
_BORDER = " | "
_WORDS = {word.value: word for word in MarkWord}


@lru_cache(maxsize=65536)
def parse_admin_comment(text: str) -> AdminComment:
    """The parts of any text: never an error."""
    found = _MARK.match(text)
    if found is None:
        return AdminComment(foreign=text.strip())
    sentence, _, foreign = text[found.end() :].partition(_BORDER)
    return AdminComment(found["mark"], sentence.strip(), foreign.strip())


def numbered_mark(word: MarkWord, number: int) -> str:
    """A mark of ours, as in "omfs:held:12"; one about an administrator has no number."""
    return word.value if word in (MarkWord.ADMIN_HELD, MarkWord.ADMIN_RELEASED) else f"{word}:{number}"


_PER_EPOCH = 10**9


def first_number_of(epoch: int) -> int:
    """Where the numbers of an epoch begin: those of two daemons that act in turn never meet, and an order of an earlier
    epoch is known by its mark alone. One daemon alone is in epoch 0."""
    return epoch * _PER_EPOCH


def epoch_of(number: int) -> int:
    return number // _PER_EPOCH


SUBMIT_MARK = numbered_mark(MarkWord.HELD, 0)
"""The mark of a job that job_submit.lua has held at submit."""


def compose_admin_comment(mark: str, expected: str, sentence: str, foreign: str) -> str:
    """The text to send. ``expected``: the mark that is believed to be stored, "" for none. A sentence has no border in
    it, so that what was there before us can be told from it."""
    said = " ".join(sentence.replace("|", "/").split())
    kept = foreign.strip()
    return f"{mark}?{expected}" + (f" {said}" if said else "") + (f"{_BORDER}{kept}" if kept else "")


@lru_cache(maxsize=65536)
def _read_mark(mark: str) -> tuple[MarkWord | None, int]:
    numbered = _NUMBERED.fullmatch(mark)
    if numbered is not None:
        return _WORDS.get(numbered["word"]), int(numbered["number"])
    word = _WORDS.get(mark)
    return (word, 0) if word in (MarkWord.ADMIN_HELD, MarkWord.ADMIN_RELEASED) else (None, 0)
