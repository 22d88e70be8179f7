"""How long ``omfs report`` takes, and how much memory, on a million records of each format and on Curie.

Prints a table and writes ``build/bench/report.json``: a list of ``name``, ``records``, ``seconds`` (processor time of a
process of its own, everything compiled before, so that other work on the machine counts little), ``peak_rss_mb``, and
``limit_seconds``. Logs are written into ``build/bench/report/`` and kept there. ``a hole`` is one hole of 10,000 times
of change with 5,000 jobs behind it, in this process. Traces: in the directory OMFS_TRACES, else ``../shared/traces``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from omfs_daemon.accounting.trace_files import VARIABLE
from omfs_daemon.reports.hole_filling import HoleQueue, IdleProfile, filled_hole

RECORDS = 1_000_000
CORES = 25_600
OUTPUT = Path("build/bench/report.json")
LOGS = Path("build/bench/report")
BEGIN = 1_700_000_000


class Case(NamedTuple):
    name: str
    words: tuple[str, ...]
    records: int
    limit: float


def jobs(count: int) -> pl.DataFrame:
    """A job every thirty seconds, of some hours, on a part of the machine."""
    chance = np.random.default_rng(1)
    submit = BEGIN + np.arange(count) * 30
    start = submit + chance.integers(0, 9_000, count)
    run = chance.integers(60, 9_000, count)
    return pl.DataFrame(
        {
            "job": np.arange(1, count + 1),
            "user": chance.integers(0, 500, count),
            "account": chance.integers(0, 60, count),
            "cpus": 2 ** chance.integers(0, 7, count),
            "submit": submit,
            "start": start,
            "end": start + run,
            "run": run,
            "cpu": run * 2,
        }
    )


NATIVE = (
    "all.q:n1:users:user{}:run:{}:sge:0:{}:{}:{}:0:0:{}:1:0:0.0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:account{}:d:mpi:{}:0:{}:0.1:0:"
    "-l h_rt=9000:0:NONE:1048576:0:0"
)
SACCT = (
    "{}|{}|user{}|account{}|main|normal|{}|{}|{}|{}|{}|150|{}|{}|1|cpu=1|cpu=1,mem=2G|COMPLETED|0:0|00:00:00|n1|None|"
    "00:10:00||run|"
)


def as_native(made: pl.DataFrame) -> pl.Series:
    columns = ("user", "job", "submit", "start", "end", "run", "account", "cpus", "cpu")
    # qmaster writes a job when it ends.
    return made.sort("end").select(pl.format(NATIVE, *columns)).to_series()


def as_sacct(made: pl.DataFrame) -> pl.Series:
    columns = ("job", "job", "user", "account", "submit", "submit", "start", "end", "run", "cpus", "cpus")
    return made.select(pl.format(SACCT, *columns)).to_series()


def written(name: str, lines: Callable[[pl.DataFrame], pl.Series]) -> Path:
    path = LOGS / name
    if not path.exists():
        path.write_text("\n".join(lines(jobs(RECORDS)).to_list()) + "\n")
    return path


def simulated() -> Path:
    path = LOGS / "jobs.parquet"
    if not path.exists():
        names = {"job": "job_id", "submit": "submission_time", "cpus": "requested_number_of_resources"}
        names |= {"start": "starting_time", "end": "finish_time", "run": "execution_time"}
        jobs(RECORDS).select(*names).rename(names).write_parquet(path)
    return path


def cases() -> Iterator[Case]:
    LOGS.mkdir(parents=True, exist_ok=True)
    procs = ("--procs", str(CORES))
    for name, path in (
        ("summary, sge", written("accounting", as_native)),
        ("summary, sacct", written("jobs.sacct", as_sacct)),
        ("summary, Parquet", simulated()),
    ):
        yield Case(name, ("--log", str(path), *procs), RECORDS, 10.0)
    curie = Path(os.environ.get(VARIABLE) or "../shared/traces") / "CEA-Curie-2011-2.1-cln.swf.gz"
    if curie.exists():
        yield Case("summary, CEA-Curie", ("--log", str(curie)), 312_826, 4.0)
        yield Case("holes --all, CEA-Curie", ("holes", "--all", "--log", str(curie)), 312_826, 60.0)


# ru_maxrss also counts what the process that started this one had in memory; VmHWM does not.
MEASURE = """
import resource, sys
from pathlib import Path
from omfs_daemon.cli.main import app
try:
    app(["report", *sys.argv[1:]])
except SystemExit as done:
    if done.code:
        raise
used = resource.getrusage(resource.RUSAGE_SELF)
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(used.ru_utime + used.ru_stime, int(status["VmHWM"].split()[0]) / 1024, file=sys.stderr)
"""


def measured(case: Case) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *case.words], capture_output=True, text=True, check=True, timeout=1800
    )
    seconds, megabytes = map(float, done.stderr.splitlines()[-1].split())
    return {
        "name": case.name,
        "records": case.records,
        "seconds": round(seconds, 2),
        "peak_rss_mb": round(megabytes),
        "limit_seconds": case.limit,
    }


def one_hole(stamps: int = 10_000, count: int = 5_000) -> dict[str, Any]:
    chance = np.random.default_rng(2)
    profile = IdleProfile(np.arange(stamps) * 10.0, chance.integers(0, 5_000, stamps))
    submit = np.sort(chance.uniform(0, stamps * 9.0, count))
    cores, length = 2 ** chance.integers(0, 9, count), chance.uniform(60, 9_000, count)
    queue = HoleQueue([str(number) for number in range(count)], submit, cores, length)
    filled_hole(profile, queue, stamps * 10.0)  # compiled before
    begin = time.process_time()
    filled_hole(profile, queue, stamps * 10.0)
    seconds = round(time.process_time() - begin, 4)
    return {"name": "a hole", "records": count, "seconds": seconds, "peak_rss_mb": None, "limit_seconds": 0.2}


def main() -> None:
    found = [one_hole()]
    for number, case in enumerate(cases()):
        if number == 0 or case.name.startswith("holes"):
            measured(case)  # compiled before
        found.append(measured(case))
    for row in found:
        print(f"{row['name']:<26} {row['seconds']:>8} s of {row['limit_seconds']:>4}  {row['peak_rss_mb'] or '':>6} MB")
    OUTPUT.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
