"""Standard Workload Format: 18 numbers per line, facts in comments (Chapin et al. 1999; Parallel Workloads Archive).

The rule for what is replayed: a record whose submission, run time or processors are unknown is dropped; run time 0 is
kept. Parts of a job that is recorded whole as well (status 2 to 4) are dropped. This gives the job counts of Agung et
al. (2021): SDSC-DS 85,045, LANL-CM5 122,057, DWD 5,493 and 8,313 urgent. Of SX-ACE it keeps all 54,124 records, they
say 54,123: no unknown sets one apart, but their loader stops at a configured number of jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from omfs_daemon.accounting.arrays import Bools, Floats
from omfs_daemon.accounting.read_report import Progress, ReadReport, require_usable
from omfs_daemon.accounting.swf_rows import PARTS, Field, kilobytes, read_swf_rows, swf_facts
from omfs_daemon.simulate.workload.read_options import Loaded, ReadOptions, numbered, numbered_accounts
from omfs_daemon.simulate.workload.workload import PreemptMode, workload

_OWNERS = {"group": Field.GROUP, "user": Field.USER, "queue": Field.QUEUE, "none": Field.GROUP}


def read_swf(path: Path, options: ReadOptions, progress: Progress | None = None) -> Loaded:
    """The jobs of a trace; ConfigError if the file cannot be used."""
    records = read_swf_rows(path, progress)
    rows, facts = records.rows, swf_facts(records.comments)
    procs, spare = rows[:, Field.ALLOCATED], rows[:, Field.REQUESTED]
    if options.processors == "requested":
        procs, spare = spare, procs
    cpus = np.where(procs > 0, procs, spare)
    dropped, kept = _dropped(rows, cpus)
    notes = _empty_queues(options.urgent_queues or (), rows[kept, Field.QUEUE])
    report = ReadReport(path, records.total, dropped, records.malformed, notes)
    require_usable(report, options.strict)

    rows, cpus = rows[kept], cpus[kept]
    begin = rows[:, Field.SUBMIT].min()
    accounts, account = numbered_accounts(options.accounts, rows[:, _OWNERS[options.accounts]].astype(np.int64))
    queues = facts.urgent_queues if options.urgent_queues is None else options.urgent_queues
    users, user = numbered("user", rows[:, Field.USER].astype(np.int64))
    job_names, job_name = numbered("executable", rows[:, Field.EXECUTABLE].astype(np.int64))
    urgent = np.isin(rows[:, Field.QUEUE], queues)
    jobs = workload(
        path.name,
        rows[:, Field.SUBMIT] - begin,
        cpus.astype(np.int64),
        rows[:, Field.RUN],
        origin=0.0 if facts.start is None else facts.start + float(begin),
        accounts=accounts,
        job_id=rows[:, Field.JOB].astype(np.int64),
        limit=np.where(rows[:, Field.LIMIT] > 0, rows[:, Field.LIMIT], np.inf),
        account=account,
        urgent=urgent,
        mode=np.where(urgent, PreemptMode.NEVER, options.mode),
        memory=kilobytes(rows) * 1024 * cpus,
        users=users,
        user=user,
        job_names=job_names,
        job_name=job_name,
    )
    return Loaded(jobs, report, facts)


def _dropped(rows: Floats, cpus: Floats) -> tuple[tuple[tuple[str, int], ...], Bools]:
    """Reasons and counts, and which rows are kept; a row counts for the first reason that holds."""
    kept = np.ones(len(rows), dtype=np.bool_)
    counts = []
    for reason, holds in (
        ("a status of 2 to 4 (a part of a job)", np.isin(rows[:, Field.STATUS], PARTS)),
        ("unknown submission", rows[:, Field.SUBMIT] < 0),
        ("unknown run time", rows[:, Field.RUN] < 0),
        ("unknown processors", cpus <= 0),
    ):
        if count := int((kept & holds).sum()):
            counts.append((reason, count))
        kept &= ~holds
    return tuple(counts), kept


def _empty_queues(requested: Sequence[int], queues: Floats) -> tuple[str, ...]:
    """What was requested and may be a mistake."""
    empty = sorted(set(requested) - set(queues.tolist()))
    return (f"no job is in the urgent queue {', '.join(map(str, empty))}",) if empty else ()
