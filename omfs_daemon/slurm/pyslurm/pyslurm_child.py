"""The program that talks to Slurm through PySlurm: ``python -m omfs_daemon.slurm.pyslurm.pyslurm_child``.

It is a process of its own because PySlurm's calls hold the interpreter's lock until slurmctld has answered, and
because ``import pyslurm`` without a slurm.conf ends the interpreter. It answers each JSON object (one per line) with
one, and ends with its input. Needs nothing but Python's standard library and pyslurm, of which it uses only what
releases 22.5.3, 24.11.0 and 25.11.2 have in common (docs/pyslurm.md).
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

UNREADABLE = "\0unreadable"
"""Stands for a value that PySlurm cannot read; text from Slurm never contains a NUL."""

NEEDED = ("Job", "Jobs", "JobSubmitDescription", "RPCError", "__version__")

# slurm/slurm_errno.h: 2000 to 4999 are answers of slurmctld and slurmd, all others mean that there was none, and two of
# these that nobody listens.
_ANSWERS = range(2000, 5000)
_NOBODY_LISTENS = (1001, 1800)
_RELEASED = 2**32 - 1  # slurm.h, INFINITE: the priority with which a release arrives; 0 holds


class PySlurmJob(NamedTuple):
    """A job as PySlurm shows it, by attribute; without ``run_time``, which always changes."""

    id: int
    array_id: Any
    array_task_id: Any
    array_tasks_waiting: Any
    heterogeneous_id: Any
    user_id: Any
    account: Any
    qos: Any
    partition: Any
    cpus: Any
    ntasks: Any
    min_cpus_per_node: Any
    num_nodes: Any
    max_nodes: Any
    memory_per_cpu: Any
    memory_per_node: Any
    gres_per_node: Any
    resource_sharing: Any
    constraints: Any
    allocated_nodes: Any
    excluded_nodes: Any
    submit_time: Any
    time_limit: Any
    dependencies: Any
    requeue_count: Any
    is_requeueable: Any
    name: Any
    state: Any
    state_reason: Any
    priority: Any
    nice: Any
    eligible_time: Any
    start_time: Any
    comment: Any
    admin_comment: Any
    licenses: Any
    required_nodes: Any


class RequestServer:
    """Answers requests with a ``pyslurm`` module. Remembers the last poll, to report only changes in the next."""

    def __init__(self, pyslurm: Any) -> None:
        self._pyslurm = pyslurm
        self._reported: dict[int, list[Any]] = {}

        def modify(job: Any, **fields: Any) -> None:
            job.modify(pyslurm.JobSubmitDescription(**fields))

        self._orders: dict[str, Callable[[Any, dict[str, Any]], None]] = {
            "hold": lambda job, fields: modify(job, priority=0, **fields),
            "release": lambda job, fields: modify(job, priority=_RELEASED, **fields),
            "suspend": lambda job, _fields: job.suspend(),
            "resume": lambda job, _fields: job.unsuspend(),
            "modify": lambda job, fields: modify(job, **fields),
        }

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request; ``{"error": text}`` if Slurm did not answer."""
        try:
            if request["do"] == "poll":
                return self._poll(request["all"])
            return self._order(request["do"], request["ids"], request.get("fields", {}))
        except Exception as error:
            return {"error": _line(error)}

    def _poll(self, everything: bool) -> dict[str, Any]:
        known = {} if everything else self._reported
        present: dict[int, list[Any]] = {}
        ran: dict[int, int] = {}
        for job in self._pyslurm.Jobs.load().values():
            row = [_value(job, name) for name in PySlurmJob._fields]
            present[row[0]] = row
            if (seconds := _value(job, "run_time")) and seconds != UNREADABLE:
                ran[row[0]] = seconds
        changed = [row for job_id, row in present.items() if known.get(job_id) != row]
        gone = [job_id for job_id in known if job_id not in present]
        self._reported = present
        return {"all": not known, "changed": changed, "gone": gone, "ran": ran}

    def _order(self, what: str, ids: list[int], fields: dict[str, Any]) -> dict[str, Any]:
        """``refused``: Slurm's messages by job; ``unreachable``: why the rest was not sent.

        A refused order for several fields may have been carried out in part: ``before`` and ``after`` then hold these
        fields, by job.
        """
        refused: dict[int, str] = {}
        before: dict[int, dict[str, Any]] = {}
        after: dict[int, dict[str, Any]] = {}
        for job_id in ids:
            try:
                if len(fields) > 1:
                    before[job_id] = self._fields(job_id, fields)
                self._orders[what](self._pyslurm.Job(job_id), fields)
            except self._pyslurm.RPCError as error:
                message = _line(error) if _is_answer(error) else self._unknown(job_id, error)
                if message is None:
                    return {"refused": refused, "unreachable": _line(error)}
                refused[job_id] = message
                if job_id in before:
                    after[job_id] = self._fields(job_id, fields)
        return {"refused": refused, "before": before, "after": after}

    def _unknown(self, job_id: int, error: Any) -> str | None:
        """The message if Slurm answers when it is asked for the job (it hangs up instead of refusing to suspend an
        unknown one), so that the order concerns that job alone; None if it does not answer."""
        if error.errno in _NOBODY_LISTENS:
            return None
        try:
            self._pyslurm.Job.load(job_id)
        except self._pyslurm.RPCError as answer:
            return _line(answer) if _is_answer(answer) else None
        return _line(error)

    def _fields(self, job_id: int, fields: dict[str, Any]) -> dict[str, Any]:
        job = self._pyslurm.Job.load(job_id)
        return {name: getattr(job, name) for name in fields}


def _is_answer(error: Any) -> bool:
    return error.errno in _ANSWERS


def _value(job: Any, name: str) -> Any:
    try:
        return getattr(job, name)
    except Exception:  # of any kind: IndexError for "--gres=gpu" in 22.5.3, UnicodeDecodeError for a user's bytes
        return UNREADABLE


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _imported() -> tuple[Any, dict[str, Any]]:
    """The module, and this program's first line."""
    try:
        pyslurm = importlib.import_module("pyslurm")
    except Exception as error:
        return None, {"error": f"cannot import pyslurm: {_line(error)}"}
    missing = [name for name in NEEDED if not hasattr(pyslurm, name)]
    if missing:
        return None, {"error": f"this pyslurm is too old or too new: it has no {', '.join(missing)}"}
    return pyslurm, {"pyslurm": str(pyslurm.__version__)}


def main() -> int:
    """Print the version of PySlurm, then answer until the input ends; exit code 1 without a usable pyslurm."""
    # What libraries print on standard output must not get between the answers.
    with os.fdopen(os.dup(1), "w", encoding="ascii") as answers:
        os.dup2(2, 1)
        pyslurm, first_line = _imported()
        print(json.dumps(first_line), file=answers, flush=True)
        if pyslurm is None:
            return 1
        server = RequestServer(pyslurm)
        for line in sys.stdin.buffer:
            print(json.dumps(server.answer(json.loads(line)), default=str), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
