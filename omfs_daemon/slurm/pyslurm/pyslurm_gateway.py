"""The gateway over PySlurm, with the command adapter for what PySlurm cannot show or do (table: docs/pyslurm.md).

Measured on 22.05.8 with 5,000 waiting jobs: docs/pyslurm.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.limits import SiteLimits
from omfs_daemon.cluster.nodes import Node, Partition
from omfs_daemon.cluster.units import Units
from omfs_daemon.errors import GatewayError, ParseError
from omfs_daemon.slurm.commands import values
from omfs_daemon.slurm.commands.arguments import comment_text
from omfs_daemon.slurm.commands.command_gateway import CommandGateway
from omfs_daemon.slurm.commands.squeue_fields import JobRow, job_state
from omfs_daemon.slurm.gateway import AccountRow, EndedJob, LicenseRow, Licenses, OrderRefusal, SlurmSettings
from omfs_daemon.slurm.pyslurm import rows as pyslurm_rows
from omfs_daemon.slurm.pyslurm.pyslurm_child import PySlurmJob
from omfs_daemon.slurm.pyslurm.pyslurm_process import PySlurmProcess

_CHUNK = 100  # jobs in one request, which has one timeout
_FEW = 200  # jobs that squeue is asked for by id
_PRINTED_KEPT = 60.0
_MOST_ID = 2**31
_SHOWN = 120

ByCommands = Callable[[Sequence[str]], list[OrderRefusal]]


@dataclass(slots=True)
class _Known:
    """A job as PySlurm shows it, as squeue printed it, what PySlurm showed then, and both combined."""

    seen: PySlurmJob
    printed: JobRow | None = None
    settled: list[Any] | None = None
    row: JobRow | None = None

    @property
    def needs_print(self) -> bool:
        return self.printed is None or self.settled is None


class PySlurmGateway:
    """A :class:`~omfs_daemon.slurm.gateway.Gateway`. Close it at the end: it has a process.

    What only squeue prints of a job is at most ``_PRINTED_KEPT`` seconds old by ``clock``, even where PySlurm cannot
    show that it has changed.
    """

    def __init__(
        self, process: PySlurmProcess, commands: CommandGateway, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._process = process
        self._commands = commands
        self._clock = clock
        self._needs_full_poll = True
        self._known: dict[int, _Known] = {}
        self._all_printed_at = float("-inf")
        self._groups: set[int] = set()
        self._tasks: dict[str, int] = {}

    @property
    def name(self) -> str:
        return "pyslurm"

    def close(self) -> None:
        """End PySlurm's process."""
        self._process.close()

    # -- queries -----------------------------------------------------------------------------------
    def jobs(self) -> list[Job]:
        ran = self._poll()
        live = {job_id: known for job_id, known in self._known.items() if _is_live(known.seen)}
        printed = self._print_rows(live)
        rows, excluded = [], {}
        for job_id, known in live.items():
            row = printed.get(job_id) or _combined(known, ran.get(job_id, 0))
            if row is not None:
                rows.append(row)
                if listed := pyslurm_rows.excluded_nodes(known.seen):
                    excluded[row.job_id] = listed
        return self._commands.jobs_of(rows, excluded)

    def settings(self) -> SlurmSettings:
        return self._commands.settings()

    def find(self, job: int | str) -> Job | None:
        return self._commands.find(job)

    def ended_jobs(self) -> list[EndedJob]:
        return self._commands.ended_jobs()

    def expected_starts(self, job_ids: Sequence[int] = ()) -> dict[int, float]:
        return self._commands.expected_starts(job_ids)

    def units(self, jobs: Sequence[Job]) -> dict[int, Units]:
        return self._commands.units(jobs)

    def nodes(self, names: Collection[str] = ()) -> list[Node]:
        return self._commands.nodes(names)

    def partitions(self) -> list[Partition]:
        return self._commands.partitions()

    def accounts(self) -> list[AccountRow] | None:
        return self._commands.accounts()

    def licenses(self) -> list[LicenseRow]:
        return self._commands.licenses()

    def limits(self) -> SiteLimits:
        return self._commands.limits()

    # -- orders ------------------------------------------------------------------------------------
    def hold(self, refs: Sequence[str], comment: str) -> list[OrderRefusal]:
        line = comment_text(comment)
        return self._send(refs, lambda some: self._commands.hold(some, comment), "hold", admin_comment=line)

    def release(self, refs: Sequence[str], comment: str) -> list[OrderRefusal]:
        line = comment_text(comment)
        return self._send(refs, lambda some: self._commands.release(some, comment), "release", admin_comment=line)

    def suspend(self, refs: Sequence[str]) -> list[OrderRefusal]:
        return self._send(refs, self._commands.suspend, "suspend")

    def resume(self, refs: Sequence[str]) -> list[OrderRefusal]:
        return self._send(refs, self._commands.resume, "resume")

    def set_nice(self, refs: Sequence[str], nice: int) -> list[OrderRefusal]:
        # As text: a number 0 would count as not given.
        return self._send(refs, lambda some: self._commands.set_nice(some, nice), "modify", nice=str(nice))

    def allow_requeue(self, refs: Sequence[str]) -> list[OrderRefusal]:
        return self._send(refs, self._commands.allow_requeue, "modify", is_requeueable=True)

    def set_admin_comment(self, refs: Sequence[str], text: str) -> list[OrderRefusal]:
        if not (line := comment_text(text)):
            return self._commands.set_admin_comment(refs, text)
        return self._send(refs, lambda some: self._commands.set_admin_comment(some, text), "modify", admin_comment=line)

    def set_licenses(self, refs: Sequence[str], licenses: Licenses) -> list[OrderRefusal]:
        if not licenses or values.not_licenses(licenses):
            return self._commands.set_licenses(refs, licenses)
        listed = values.licenses_text(licenses).split(",")
        return self._send(refs, lambda some: self._commands.set_licenses(some, licenses), "modify", licenses=listed)

    def pin(self, ref: str, nodes: Sequence[str], licenses: Licenses | None = None) -> list[OrderRefusal]:
        takes_away = not nodes or (licenses is not None and not licenses)
        if takes_away or not values.are_nodes(nodes) or values.not_licenses(licenses or ()):
            return self._commands.pin(ref, nodes, licenses)
        fields: dict[str, Any] = {"required_nodes": list(nodes)}
        if licenses:
            fields["licenses"] = values.licenses_text(licenses).split(",")
        return self._send([ref], lambda _: self._commands.pin(ref, nodes, licenses), "modify", **fields)

    def requeue(self, refs: Sequence[str]) -> list[OrderRefusal]:
        return self._commands.requeue(refs)

    def requeue_ended(self, refs: Sequence[str]) -> list[OrderRefusal]:
        return self._commands.requeue_ended(refs)

    def signal(self, ref: str, signal: str, batch_only: bool = False) -> list[OrderRefusal]:
        return self._commands.signal(ref, signal, batch_only)

    # -- polling -----------------------------------------------------------------------------------
    def _poll(self) -> dict[int, int]:
        """Update what PySlurm shows; returns how long each started job has run."""
        full, self._needs_full_poll = self._needs_full_poll, True
        answer = self._process.ask(do="poll", all=full)
        changed = [pyslurm_rows.seen(row) for row in answer["changed"]]
        known = {} if answer["all"] else self._known
        for job_id in answer["gone"]:
            known.pop(job_id, None)
        for seen in changed:
            before = self._known.get(seen.id)
            known[seen.id] = _renewed(before, seen) if before else _Known(seen)
        self._known = known
        self._groups = {group for job in known.values() if (group := _group(job.seen)) is not None}
        self._tasks = dict(_task(job.seen) for job in known.values() if _is_task(job.seen))
        self._needs_full_poll = False
        return {int(job_id): seconds for job_id, seconds in answer["ran"].items()}

    def _print_rows(self, live: dict[int, _Known]) -> dict[int, JobRow]:
        """Ask squeue for the jobs that need it; its rows are used as they are, because they are newer.

        A job that has ended since PySlurm showed it is not printed, and not listed.
        """
        wanted = [job_id for job_id, known in live.items() if known.needs_print]
        now = self._clock()
        everything = not 0 <= now - self._all_printed_at < _PRINTED_KEPT or len(wanted) > _FEW
        if not everything and not wanted:
            return {}
        printed = {int(row.job_id): row for row in self._commands.rows(() if everything else wanted)}
        for job_id in live if everything else wanted:
            known = live[job_id]
            known.printed, known.row = printed.get(job_id), None
            known.settled = pyslurm_rows.settled(known.seen) if pyslurm_rows.is_readable(known.seen) else None
        if everything:
            self._all_printed_at = now
        return printed

    # -- sending -----------------------------------------------------------------------------------
    def _send(self, refs: Sequence[str], by_commands: ByCommands, what: str, **fields: Any) -> list[OrderRefusal]:
        """Through PySlurm for single jobs, by commands for parts of arrays and of heterogeneous jobs."""
        mine = {job_id: ref for ref in refs if (job_id := self._id(ref)) is not None}
        others = [ref for ref in refs if self._id(ref) is None]
        refusals = by_commands(others) if others else []
        ids = list(mine)
        for first in range(0, len(ids), _CHUNK):
            answer = self._process.ask(do=what, ids=ids[first : first + _CHUNK], fields=fields)
            if "unreachable" in answer:
                raise GatewayError(
                    f"Slurm did not take the order for {', '.join(refs)[:_SHOWN]}: {answer['unreachable']}"
                )
            for job_id, message in answer["refused"].items():
                if not self._was_done(mine[int(job_id)], job_id, answer, fields):
                    refusals.append(OrderRefusal(mine[int(job_id)], message))
        return refusals

    def _id(self, ref: str) -> int | None:
        """The raw id of the one job that a reference names; None for what stands for several or is no reference."""
        if ref in self._tasks:
            return self._tasks[ref]
        job_id = int(ref) if ref.isdecimal() and ref.isascii() else _MOST_ID
        return job_id if job_id < _MOST_ID and job_id not in self._groups else None

    def _was_done(self, ref: str, job_id: str, answer: dict[str, Any], fields: dict[str, Any]) -> bool:
        """Whether an order for several fields took effect although Slurm refused it; a partial change is undone.

        Measured on 22.05: an error for one field may come after another one has been changed.
        """
        if job_id not in answer["after"]:
            return False
        before, after = answer["before"][job_id], answer["after"][job_id]
        moved = {name for name in fields if _meaning(name, before[name]) != _meaning(name, after[name])}
        if moved and all(_meaning(name, after[name]) == _meaning(name, fields[name]) for name in fields):
            return True
        if moved:
            old = _meaning("licenses", before["licenses"])
            left = self._commands.pin(ref, sorted(_meaning("required_nodes", before["required_nodes"])), tuple(old))
            if left:
                raise GatewayError(
                    f"an order for job {ref} was carried out in part and is not undone: {left[0].message}"
                )
        return False


def _is_live(seen: PySlurmJob) -> bool:
    try:
        return job_state(str(seen.state)) is not JobState.ENDED
    except ParseError:
        return True  # squeue is asked


def _renewed(known: _Known, seen: PySlurmJob) -> _Known:
    known.seen, known.row = seen, None
    if known.settled != pyslurm_rows.settled(seen) or not pyslurm_rows.is_readable(seen):
        known.settled = None
    return known


def _combined(known: _Known, run_time: int) -> JobRow | None:
    """The row of now; the same object as before if nothing has changed."""
    if known.printed is None:
        return None
    if known.row is None or run_time:
        known.row = pyslurm_rows.row_now(known.printed, known.seen, run_time)
    return known.row


def _group(seen: PySlurmJob) -> int | None:
    """The id that commands take for this job and others, and PySlurm for this job only."""
    return seen.id if seen.heterogeneous_id else seen.array_id


def _is_task(seen: PySlurmJob) -> bool:
    return seen.array_id is not None and not seen.array_tasks_waiting


def _task(seen: PySlurmJob) -> tuple[str, int]:
    return f"{seen.array_id}_{pyslurm_rows.array_task(seen)}", seen.id


def _meaning(name: str, value: Any) -> Any:
    """A field as it can be compared: Slurm writes lists of nodes and licenses in more than one way."""
    listed = value if isinstance(value, str) else ",".join(value or ())
    return set(values.node_names(listed)) if name == "required_nodes" else list(values.license_counts(listed))
