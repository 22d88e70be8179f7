"""Calls to a file system that may hang."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import TypeVar

Answer = TypeVar("Answer")


class TimedCalls:
    """One call at a time, each in a thread of its own: nothing ends a call to a file server that does not answer.

    Until a call that was given up has ended, the next ones fail at once.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._thread: Thread | None = None

    def run(self, call: Callable[[], Answer]) -> Answer:
        """TimeoutError if there is no answer in time: the call may or may not take effect, also later."""
        if self._thread is not None and self._thread.is_alive():
            raise TimeoutError(f"does not answer for more than {self._seconds:g} s")
        answers: list[Answer] = []
        errors: list[Exception] = []

        def work() -> None:
            try:
                answers.append(call())
            except Exception as error:
                errors.append(error)

        self._thread = Thread(target=work, name="shared-directory", daemon=True)
        self._thread.start()
        self._thread.join(self._seconds)
        if errors:
            raise errors[0]
        if not answers:
            raise TimeoutError(f"does not answer for more than {self._seconds:g} s")
        return answers[0]
