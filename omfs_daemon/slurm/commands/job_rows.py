"""Split what squeue prints into rows, and keep the rows whose text has not changed since the answer before.

Of most of 100,000 jobs nothing changes from one answer to the next, and of a running job only TimeUsed does. Whether a
text is that of the answer before is known without splitting it.
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

from omfs_daemon.cluster.job_refs import fold_tasks
from omfs_daemon.errors import ParseError
from omfs_daemon.slurm.commands import values
from omfs_daemon.slurm.commands.squeue_fields import JobRow
from omfs_daemon.slurm.releases import SlurmRelease

_SHOWN = 160
_WIDTH = len(JobRow._fields)
_TASK, _TIME = JobRow._fields.index("array_task_id"), JobRow._fields.index("time_used")


def new_secret() -> str:
    """A suffix for the fields of squeue that nobody can guess; longer ones take longer to find."""
    # A suffix that began with a digit would be taken for a size, a comma would end the field.
    return f"<{secrets.token_hex(8)}>"


class _Known(NamedTuple):
    """A row with its text; ``time_at``: where TimeUsed begins in it."""

    text: str
    time_at: int
    row: JobRow

    def again(self, text: str, secret: str) -> _Known | None:
        """The same with the TimeUsed of this text; itself if that is the same, None if anything else has changed."""
        known, begin, row = self
        if text == known:
            return self
        end = begin + len(row.time_used) - len(known)  # from the end
        if text[:begin] != known[:begin] or text[end:] != known[end:]:
            return None
        used = text[begin:end]
        return None if not used or secret in used else _Known(text, begin, with_time_used(row, used))


class _Array(NamedTuple):
    """The waiting rest of an array, of which squeue prints a line for each task: the first, all tasks, and the row."""

    first: JobRow
    listed: str
    row: JobRow


class JobRows:
    """Reads the answers of squeue to ``job_format``; remembers the rows of the last answer about all jobs.

    ``secret``: the suffix to ask for. It stays the same, so that texts can be compared, until an answer cannot be read:
    a message may quote that.
    """

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Forget everything, and take another secret."""
        self.secret = new_secret()
        self._known: dict[str, _Known] = {}
        self._arrays: dict[str, _Array] = {}

    def read(self, printed: str, release: SlurmRelease) -> list[JobRow]:
        """The rows that squeue printed with ``job_format(self.secret, release)``; the waiting rest of an array is one.

        ParseError quotes what could not be split.
        """
        try:
            return self._read(printed, release)
        except ParseError:
            self.renew()
            raise

    def _read(self, printed: str, release: SlurmRelease) -> list[JobRow]:
        secret, before, known = self.secret, self._known, dict[str, _Known]()
        more: dict[str, list[str]] = {}
        start, last = "", None
        *texts, end = printed.split(f"{secret}\n")
        for piece in texts:
            text = start + piece
            job_id = text[: text.find(secret)]
            if job_id == last and text.count(secret) == _WIDTH - 1:
                more.setdefault(job_id, []).append(text.split(secret, _TASK + 1)[_TASK])
                start = ""
                continue
            old = before.get(job_id)
            row = (old and old.again(text, secret)) or _new(text, secret, release)
            start = "" if row else f"{text}{secret}\n"  # a field may begin with a newline
            if row:
                known[job_id], last = row, job_id
        if start or end.strip():
            raise ParseError(f"squeue printed a part of a job: {printed[-_SHOWN:]!r}")
        arrays = {job_id: self._array(known[job_id].row, listed) for job_id, listed in more.items()}
        self._known, self._arrays = known, arrays
        return [arrays[job_id].row if job_id in arrays else one.row for job_id, one in known.items()]

    def _array(self, first: JobRow, listed: list[str]) -> _Array:
        text = ",".join([first.array_task_id, *listed])
        known = self._arrays.get(first.job_id)
        if known is not None and known.first is first and known.listed == text:
            return known
        return _Array(first, text, first._replace(array_task_id=fold_tasks(values.tasks(text))))


def _new(text: str, secret: str, release: SlurmRelease) -> _Known | None:
    """None if it is a part of a row only."""
    fields = text.split(secret)
    if len(fields) < _WIDTH:
        return None
    if len(fields) > _WIDTH:
        raise ParseError(f"squeue printed more than a job: {text[-_SHOWN:]!r}")
    row = JobRow._make(fields)
    shared = release.over_subscribe(row.over_subscribe)
    if shared != row.over_subscribe:
        row = row._replace(over_subscribe=shared)
    return _Known(text, len(secret.join(fields[:_TIME])) + len(secret), row)


def with_time_used(row: JobRow, time_used: str) -> JobRow:
    """As ``_replace``, at a third of its cost."""
    return JobRow._make((*row[:_TIME], time_used, *row[_TIME + 1 :]))


def is_same_but_for_time_used(one: JobRow, other: JobRow) -> bool:
    return one[:_TIME] == other[:_TIME] and one[_TIME + 1 :] == other[_TIME + 1 :]
