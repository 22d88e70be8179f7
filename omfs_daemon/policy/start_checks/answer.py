"""Whether Slurm would start a waiting job on nodes that are freed for it: yes, no because of something, or unknown."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class AnswerKind(StrEnum):
    """YES: only the resources are lacking. NO: something else keeps it waiting. UNKNOWN: Slurm has to be asked."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Answer(NamedTuple):
    """``reason``: Slurm's word where it has one (``QOSGrpCpuLimit``), "" for a plain yes; ``text``: for people."""

    kind: AnswerKind
    reason: str = ""
    text: str = ""

    @property
    def why(self) -> str:
        """What follows "Slurm would not start it"."""
        return (f" ({self.reason})" if self.reason else "") + (f": {self.text}" if self.text else "")


YES = Answer(AnswerKind.YES)
