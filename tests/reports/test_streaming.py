"""Logs larger than memory: what is kept grows with the period that is asked for, not with the file."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from omfs_daemon.cli.main import app
from tests.support.amounts import is_soak

BEGIN, EVERY = 1_700_000_000, 10
DAY = 86400
NATIVE = (
    "all.q:n1:g:owner{0}:name:{1}:sge:0:{2}:{2}:{3}:0:0:60:1:0:0.0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:p:d:NONE:4:0:60:0.1:0:"
    "-l h_rt=90:0:NONE:1048576:0:0\n"
)
SACCT = (
    "{1}|{1}|user{0}|p|main|normal|{2}|{2}|{2}|{3}|60|90|4|4|1|cpu=4|cpu=4,mem=2G|COMPLETED|0:0|0|n1|None|1:00||name|\n"
)
READ = """
import sys
from pathlib import Path
from omfs_daemon.accounting.read_log import LogOptions, read_log
from omfs_daemon.accounting.record_period import RecordPeriod
since, until = map(float, sys.argv[3:])
records = read_log(Path(sys.argv[1]), LogOptions(sys.argv[2], period=RecordPeriod(since, until)))
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(records.report.records, len(records.frame), int(status["VmHWM"].split()[0]) / 1024)
"""


def read_from_pipe(pipe: Path, kind: str, line: str, count: int) -> tuple[int, int, float]:
    """Records, those of the first day, and the most memory in MB of a process that reads so many lines from a pipe."""
    os.mkfifo(pipe)

    def write() -> None:
        with pipe.open("w") as file:
            for job in range(1, count + 1):
                start = BEGIN + EVERY * job
                file.write(line.format(job % 500, job, start, start + 60))

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    words = [sys.executable, "-c", READ, str(pipe), kind, str(BEGIN), str(BEGIN + DAY)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=7000)
    writer.join()
    records, kept, megabytes = done.stdout.split()
    return int(records), int(kept), float(megabytes)


@pytest.mark.parametrize(("kind", "line"), [("sge", NATIVE), ("sacct", SACCT)], ids=["sge", "sacct"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, kind: str, line: str) -> None:
    """In a soak a file of 10 GB. Allocators need a million lines until they have what they keep."""
    few = 1_000_000 if is_soak() else 200_000
    many = 10_000_000_000 // len(line.format(500, 10**7, BEGIN, BEGIN)) if is_soak() else 3 * few
    short = read_from_pipe(tmp_path / "short", kind, line, few)
    long = read_from_pipe(tmp_path / "long", kind, line, many)
    assert (short[:2], long[:2]) == ((few, DAY // EVERY - 1), (many, DAY // EVERY - 1))
    assert long[2] - short[2] < 60, "MB; all records of the longer one would take at least 100 more"


def test_a_pipe_needs_a_format(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    result = CliRunner().invoke(app, ["report", "--log", str(tmp_path / "pipe")])
    assert (result.exit_code, result.stderr.strip()) == (
        2,
        f"omfs: {tmp_path}/pipe: a pipe, which can be read once only: --format must say what it holds",
    )
