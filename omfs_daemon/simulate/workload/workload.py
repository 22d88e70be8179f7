"""A workload: jobs in order of submission, one array per property."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omfs_daemon.accounting.arrays import Bools, Floats, Ints
from omfs_daemon.cluster.preempt_methods import MethodTraits


class PreemptMode(IntEnum):
    """How a job can be preempted.

    NEVER: non-preemptible; KILL: its work is lost and it starts over; CHECKPOINT: written to disk, resumes anywhere;
    SWAP: moved to the host's memory, resumes on the same nodes (UJFB, section IV-A).
    """

    NEVER = 0
    KILL = 1
    CHECKPOINT = 2
    SWAP = 3

    @classmethod
    def of(cls, method: MethodTraits) -> PreemptMode:
        """That of a job preempted by this method."""
        if not method.keeps_work:
            return cls.KILL
        return cls.CHECKPOINT if method.leaves else cls.SWAP


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """All arrays have one entry per job, in order of submission (jobs of one instant: in the order of the trace).

    name      for people, e.g. the trace's file name
    origin    seconds since the epoch at time 0; 0 if the trace does not say
    accounts  the names that ``account`` numbers
    job_id    as in the trace; unique
    submit    seconds after time 0, which is the first kept record's submission
    cpus      processors it runs on
    run       seconds that it runs if nobody ends it
    limit     seconds that it asked for; inf: not known or none
    account   index into ``accounts``
    urgent    whether it is an urgent job
    realtime  whether it is a real-time job
    mode      ``PreemptMode``, how it can be preempted
    memory    bytes of the whole job; 0: not known
    user      index into ``users``
    job_name  index into ``job_names``; jobs of one name are runs of one program
    swap      bytes that a swap moves for each of its processes' engines together; 0: as ``memory``
    """

    name: str
    origin: float
    accounts: tuple[str, ...]
    job_id: Ints
    submit: Floats
    cpus: Ints
    run: Floats
    limit: Floats
    account: Ints
    urgent: Bools
    mode: Ints
    memory: Floats
    swap: Floats
    realtime: Bools
    users: tuple[str, ...]
    user: Ints
    job_names: tuple[str, ...]
    job_name: Ints

    def __len__(self) -> int:
        return len(self.job_id)

    def take(self, chosen: Ints | Bools) -> Workload:
        """The workload of these jobs only (indices in order, or a mask); time 0 stays where it is."""
        return replace(self, **{name: getattr(self, name)[chosen] for name in COLUMNS})


NAMES = {"account": "accounts", "user": "users", "job_name": "job_names"}
"""Columns of indices, and the fields with the names that they number."""

COLUMNS = tuple(field.name for field in fields(Workload) if field.name not in ("name", "origin", *NAMES.values()))


def workload(
    name: str,
    submit: Floats,
    cpus: Ints,
    run: Floats,
    *,
    origin: float = 0.0,
    accounts: tuple[str, ...] = ("all",),
    job_id: Ints | None = None,
    limit: Floats | None = None,
    account: Ints | None = None,
    urgent: Bools | None = None,
    mode: Ints | None = None,
    memory: Floats | None = None,
    swap: Floats | None = None,
    realtime: Bools | None = None,
    users: tuple[str, ...] = ("",),
    user: Ints | None = None,
    job_names: tuple[str, ...] = ("",),
    job_name: Ints | None = None,
) -> Workload:
    """A workload from what is known, put in order of submission; what is not known: no limit, one account, one user,
    one name, regular, preempted by swapping, sizes unknown."""
    count = len(submit)
    order = np.argsort(submit, kind="stable")

    def column(values: NDArray[Any] | None, default: float, kind: type) -> Any:
        full = np.full(count, default) if values is None else np.asarray(values)
        return np.ascontiguousarray(full[order], dtype=kind)

    return Workload(
        name=name.encode(errors="replace").decode(),  # a file's name may be no text, which plots cannot show
        origin=origin,
        accounts=accounts,
        job_id=column(np.arange(1, count + 1) if job_id is None else job_id, 0, np.int64),
        submit=column(submit, 0.0, np.float64),
        cpus=column(cpus, 1, np.int64),
        run=column(run, 0.0, np.float64),
        limit=column(limit, np.inf, np.float64),
        account=column(account, 0, np.int64),
        urgent=column(urgent, False, np.bool_),
        mode=column(mode, PreemptMode.SWAP, np.int64),
        memory=column(memory, 0.0, np.float64),
        swap=column(swap, 0.0, np.float64),
        realtime=column(realtime, False, np.bool_),
        users=users,
        user=column(user, 0, np.int64),
        job_names=job_names,
        job_name=column(job_name, 0, np.int64),
    )


def merged(first: Workload, second: Workload) -> Workload:
    """Both workloads on one clock (time 0 of the first); accounts, users, and names that are equal are one."""
    columns: dict[str, Any] = {name: np.concatenate((getattr(first, name), getattr(second, name))) for name in COLUMNS}
    for index, field in NAMES.items():
        columns[field] = tuple(dict.fromkeys((*getattr(first, field), *getattr(second, field))))
        place = {name: number for number, name in enumerate(columns[field])}
        renumbered = np.array([place[name] for name in getattr(second, field)], dtype=np.int64)
        columns[index] = np.concatenate((getattr(first, index), renumbered[getattr(second, index)]))
    submit, cpus, run = columns.pop("submit"), columns.pop("cpus"), columns.pop("run")
    return workload(first.name, submit, cpus, run, origin=first.origin, **columns)
