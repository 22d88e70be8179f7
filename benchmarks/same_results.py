"""Whether two checkouts of the project compute the same: both experiments and twelve simulations, file by file.

    python -m benchmarks.same_results BEFORE [--out DIR] [--only NAME,...]

BEFORE is the other checkout; both have a virtual environment in .venv. Everything that omfs writes, and what it prints,
goes below DIR (default: build/same_results), to ``before/`` and ``after/``. What BEFORE has made is kept, and made
again only if that checkout, what is run or its inputs have changed. Prints a line for each run; the exit code is 1 if
anything differs, and then the file and the first line that does are named. Files must be equal byte by byte, apart
from what differs whenever it is run, which the table below names. Traces: in the directory OMFS_TRACES, else in
``../shared/traces``. Takes about five minutes for each side, and a minute more for one that was not compiled before.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import polars as pl

HERE = Path(__file__).parents[1]
OUTPUT = HERE / "build/same_results"

EVER_DIFFERENT: Mapping[str, re.Pattern[str]] = {
    "seconds on the page of agung2021": re.compile(r"(?<=The whole experiment took )\d+(?= s on this machine)"),
    "seconds that omfs experiment prints": re.compile(r"(?<=: done in )[\d.]+ \w+(?=, compiling apart)"),
    "the version of the project": re.compile(r'(?<="version": )"[^"]*"'),
}
"""What differs from run to run or from version to version. No path does: omfs runs in the directory it writes to."""

# -- what is run -----------------------------------------------------------------------------------------------------
CONFIGURATION = """\
[policy]
quantum_seconds = 600
max_preemptions_per_hour = 2
max_preemptions_per_cycle = 16
[entitlements.account1]
percent = 40
[entitlements.account2]
percent = 30
[entitlements.deep]
percent = 50
parent = "account2"
[[class]]
name = "urgent"
qos = ["urgent"]
urgent = true
[[class]]
name = "regular"
methods = ["requeue", "suspend"]
default = ["requeue"]
"""

RUNS: Mapping[str, str] = {
    "agung2021": "experiment agung2021",
    "zvi2021": "experiment zvi2021",
    "fcfs": "simulate --policy fcfs --trace {traces}/hpc2n-excerpt.swf.gz --procs 240 --estimates exact --plots",
    "ujf": "simulate --policy ujf --trace {traces}/dwd-2020-09-17.swf.gz --procs 1024 --urgent-queue 1 "
    "--accounts-from user",
    "easy": "simulate --policy easy --trace {traces}/KTH-SP2-1996-2.1-cln.swf.gz --no-kill --bound 60 --json",
    "conservative": "simulate --policy conservative --trace {traces}/sx-ace-2019.swf.gz --procs 1024 "
    "--processors requested",
    "conservative-fixed": "simulate --policy conservative-fixed --trace {traces}/mira-2018.csv.gz",
    "ujfb": "simulate --policy ujfb --trace {traces}/LANL-CM5-1994-4.1-cln.swf.gz --urgent {inputs}/urgent.csv "
    "--swap-out 0.2:20 --swap-in 0.1:20 --latency 5 --seed 3 --plots",
    "ujfb-easy": "simulate --policy ujfb-easy --trace {traces}/SDSC-DS-2004-2.1-cln.swf.gz --procs 1664 "
    "--urgent {inputs}/urgent.csv --swap-out 0.5+bytes/4e8 --accounts-from queue",
    "ujfb-slowdown": "simulate --policy ujfb-slowdown --trace {traces}/dwd-2020-09-17.swf.gz --procs 1024 "
    "--urgent-queue 1 --method checkpoint --checkpoint-out 2:200 --checkpoint-in 1:100",
    "omfs": "simulate --policy omfs --generate 20000 --procs 512 --load 0.9 --accounts 3 --urgent-share 0.02 "
    "--method checkpoint --checkpoint-out 1+bytes/1e9 --latency 10 --config site.toml --seed 7 --plots",
    "omfs-nodes": "simulate --policy omfs --trace {inputs}/jobs.sacct --procs 64 --nodes 16 --config site.toml",
    "partition": "simulate --policy partition --trace {inputs}/table.csv --procs 128 --entitlement account1=50 "
    "--entitlement account2=25",
    "capping": "simulate --policy capping --trace {inputs}/table.parquet --procs 128 --entitlement account1=50 "
    "--entitlement account2=25 --json",
}
"""Arguments of omfs; each writes into a directory of its own."""

PRINTED = "printed.txt"


class Side(NamedTuple):
    """A checkout, and the directory below which it writes."""

    name: str
    checkout: Path
    out: Path

    def write(self, run: str, traces: Path) -> None:
        """Do it; RuntimeError if omfs fails."""
        shutil.rmtree(self.out / run, ignore_errors=True)
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "site.toml").write_text(CONFIGURATION)
        command = [str(self.checkout / ".venv/bin/omfs"), *self.arguments(run, traces), "--out", run]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMFS_", "PYTHON"))}
        # Tables of a pipe are as wide as this says, if it says anything.
        environment.pop("COLUMNS", None)
        environment["OMFS_TRACES"] = str(traces)
        done = subprocess.run(command, check=False, cwd=self.out, env=environment, capture_output=True)
        if done.returncode:
            last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise RuntimeError(f"omfs failed {self.name}, exit code {done.returncode}: {last}")
        (self.out / run / PRINTED).write_bytes(done.stdout)

    def arguments(self, run: str, traces: Path) -> list[str]:
        return [word.format(traces=traces, inputs="../inputs") for word in RUNS[run].split()]

    def write_once(self, run: str, traces: Path) -> None:
        """Do it, if it was not done before by the same sources."""
        mark = self.out / f"{run}.done"
        inputs = digest_of(self.out.parent / "inputs") if "{inputs}" in RUNS[run] else ""
        what = json.dumps([state_of(self.checkout), self.arguments(run, traces), CONFIGURATION, inputs])
        if not mark.exists() or mark.read_text() != what:
            mark.unlink(missing_ok=True)
            self.write(run, traces)
            mark.write_text(what)


def digest_of(directory: Path) -> str:
    """Of all its files."""
    contents = (path.read_bytes() for path in sorted(directory.iterdir()))
    return hashlib.sha256(b"".join(contents)).hexdigest()


def state_of(checkout: Path) -> str:
    """Which sources a checkout has: its commit, and what was changed since."""
    asked = (("rev-parse", "HEAD"), ("diff", "HEAD", "--", "omfs_daemon"))
    return "".join(
        subprocess.run(("git", *words), check=True, cwd=checkout, stdout=subprocess.PIPE, text=True).stdout
        for words in asked
    )


# -- inputs ----------------------------------------------------------------------------------------------------------
def write_inputs(directory: Path) -> None:
    """The workloads that no archive offers; the same each time."""
    directory.mkdir(parents=True, exist_ok=True)
    draw = random.Random(1)  # noqa: S311 - no secret
    jobs = [_job(draw, number) for number in range(1, 3001)]
    with (directory / "table.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(jobs[0]))
        writer.writeheader()
        writer.writerows(jobs)
    pl.DataFrame(jobs).write_parquet(directory / "table.parquet")
    with (directory / "urgent.csv").open("w") as file:
        file.write("job_id,submit,procs,runtime\n")
        for number in range(400):
            seconds, cpus = draw.randrange(1, 4000), 32 * draw.randint(1, 20)
            file.write(f"{10_000_000 + number},{number * 86_400 + draw.randrange(80_000)},{cpus},{seconds}\n")
    with (directory / "jobs.sacct").open("w") as file:
        begin = 1_700_000_000
        for job in jobs[:1500]:
            submit, qos = begin + int(job["submit"]), "urgent" if job["class"] == "urgent" else "normal"
            start, end = submit + draw.randrange(1000), submit + 1000 + int(job["run"])
            method = draw.choice(("", "omfs:method=requeue", "omfs:method=suspend", "omfs:method=suspend,requeue"))
            file.write(
                f"{job['job_id']}|{job['job_id']}|{submit}|{start}|{end}|{job['run']}|{int(job['limit']) // 60}|"
                f"{min(int(job['cpus']), 64)}|{job['account']}|main|{qos}|COMPLETED|{method}\n"
            )


def _job(draw: random.Random, number: int) -> dict[str, int | str]:
    run, is_urgent = int(draw.lognormvariate(6, 2)), draw.random() < 0.03
    return {
        "job_id": number,
        "submit": number * 300 + draw.randrange(300),
        "cpus": draw.choice((1, 1, 2, 4, 8, 16, 32)),
        "run": run,
        "limit": 60 * (1 + run * draw.choice((1, 1, 2, 5)) // 60),
        "account": draw.choice(("account1", "account1", "account2", "deep", "stranger")),
        "class": "urgent" if is_urgent else "regular",
        "method": "never" if is_urgent else draw.choice(("never", "kill", "checkpoint", "swap")),
        "memory": draw.randrange(1 << 34),
        "swap": draw.randrange(1 << 32),
    }


# -- comparing -------------------------------------------------------------------------------------------------------
def differences(before: Path, after: Path) -> Iterator[str]:
    """What differs between two directories, a few lines for each file."""
    theirs, ours = files_of(before), files_of(after)
    for name in sorted(theirs | ours):
        if name not in ours or name not in theirs:
            yield f"{name}: only {'before' if name in theirs else 'after'}"
        elif (before / name).read_bytes() != (after / name).read_bytes():
            place = first_difference(lines_of(before / name), lines_of(after / name))
            if place is not None:
                yield f"{name}, {place}"


def files_of(directory: Path) -> set[str]:
    """All files."""
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def first_difference(before: Iterable[str], after: Iterable[str]) -> str | None:
    """Which line is the first that is not the same, and what stands there on either side; None if all are."""
    for number, (theirs, ours) in enumerate(zip_longest(before, after, fillvalue=""), start=1):
        if theirs != ours:
            at = next((i for i, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a != b), 0)
            told = (f"{line[:40]} ... {line[at - 30 : at + 60]}" if at > 70 else line[:130] for line in (theirs, ours))
            return "line {}:\n    before: {}\n    after:  {}".format(number, *told)
    return None


def lines_of(path: Path) -> list[str]:
    """A file as lines that are to be equal: without what is ever different."""
    if path.suffix == ".parquet":
        table = pl.read_parquet(path)
        return [str(table.schema), *table.write_csv().splitlines()]
    if path.suffix == ".png":
        return [f"picture {hashlib.sha256(path.read_bytes()).hexdigest()}"]
    text = path.read_bytes().decode()
    for pattern in EVER_DIFFERENT.values():
        text = pattern.sub("...", text)
    return text.split("\n")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.same_results")
    parser.add_argument("before", type=Path, help="the other checkout")
    parser.add_argument("--out", type=Path, default=OUTPUT)
    parser.add_argument("--only", default=",".join(RUNS), help="some of the runs")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.only.split(",")) - set(RUNS)):
        parser.error(f"no such run: {unknown[0]}; there are {', '.join(RUNS)}")
    traces = Path(os.environ.get("OMFS_TRACES") or HERE / "../shared/traces").resolve()
    out = options.out.resolve()
    write_inputs(out / "inputs")
    before = Side("before", options.before.resolve(), out / "before")
    after = Side("after", HERE, out / "after")
    found = 0
    for run in options.only.split(","):
        begin = time.monotonic()
        try:
            before.write_once(run, traces)
            after.write(run, traces)
            different = list(differences(before.out / run, after.out / run))
        except RuntimeError as failure:
            different = [str(failure)]
        told = f"{len(files_of(after.out / run))} files, " + ("DIFFERENT" if different else "the same")
        print(f"{run:<20}{told} ({time.monotonic() - begin:.0f} s)", *different, sep="\n  ", flush=True)
        found += len(different)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
