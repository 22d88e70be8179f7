"""Questions to Slurm, in threads of their own: whether it would start a job (``slurm/question.py``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import structlog

from omfs_daemon.errors import OmfsError

UNANSWERED = ""

_AT_ONCE = 4
"""Each is a few requests to slurmctld."""


class Question(NamedTuple):
    """About a waiting job, by its raw id, on these nodes."""

    job: int
    nodes: tuple[str, ...]


class Questions:
    """``ask`` is as ``RootClient.put_question``; ``wake`` is called, from a thread, when there is an answer."""

    def __init__(self, ask: Callable[[int, Sequence[str]], str], wake: Callable[[], None]) -> None:
        self._ask = ask
        self._wake = wake
        self._asked: dict[int, Future[str]] = {}
        self._workers = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="omfs-question")

    def keep(self, wanted: Mapping[int, Question]) -> None:
        """Ask these, by preemption, each once; forget all others."""
        self._asked = {
            number: self._asked.get(number) or self._workers.submit(self._put, question)
            for number, question in wanted.items()
        }

    def answers(self) -> dict[int, str]:
        """Slurm's, by preemption; UNANSWERED where it could not be asked."""
        return {number: asked.result() for number, asked in self._asked.items() if asked.done()}

    def close(self) -> None:
        """Questions under way end by themselves."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _put(self, question: Question) -> str:
        try:
            return self._ask(*question)
        except (OmfsError, OSError) as error:
            structlog.get_logger("questions").warning("question_failed", job=question.job, error=str(error))
            return UNANSWERED
        finally:
            self._wake()
