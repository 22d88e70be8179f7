"""Stops a shape at random moments, by one method, and says what became of it."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.shapes.shape_job import NUMBER, ShapeFault, ShapeJob
from benchmarks.shapes.shape_list import PYTHON, Shape
from benchmarks.shapes.shape_place import LIMIT, ShapePlace
from omfs_daemon.protocol.exit_codes import STOPPED
from omfs_daemon.protocol.job_comment import FAILED, READY, find_run_comment

MOST_FAULTS = 2
"""After so many no more stops are tried."""
OWN_MATTER = "the program writes no checkpoints"
_LONGEST_WAIT = 0.8  # seconds from where a program counts to the order
_REASON = re.compile(r"^omfs-run: no checkpoint \((\w+)\): (.*)$", re.MULTILINE)
_NOT_USED = re.compile(r"^omfs-run: (method \w+ cannot be used here: .*)$", re.MULTILINE)


@dataclass
class Outcome:
    """What became of one shape by one method.

    survived     stops after which the program ran again and counted on
    refused      how often a stop was refused and the program ran on, by reason
    unsupported  why the method was not used at all, or ""
    faults       what must not happen, each with the end of the job's output
    """

    shape: str
    method: str
    tool: str
    survived: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    unsupported: str = ""
    faults: list[str] = field(default_factory=list)

    @property
    def stops(self) -> int:
        return self.survived + sum(self.refused.values()) + len(self.faults)

    def as_row(self) -> dict[str, Any]:
        """For the file of results."""
        return asdict(self) | {"refused": dict(self.refused)}


class Unsupported(Exception):
    """The method is not used for this program."""


@dataclass
class Method:
    """A method under trial; ``path`` and ``variables`` are for the jobs' environment."""

    name: str
    tool: str
    path: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)


def try_shape(place: ShapePlace, shape: Shape, method: Method, stops: int, seed: int) -> Outcome:
    """Stop programs of this shape so many times, ten in a row where it survives."""
    outcome = Outcome(shape.title, method.name, method.tool)
    chance = random.Random(f"{seed} {shape.title} {method.name} {method.tool}")  # noqa: S311
    if method.name == "application" and not shape.again:
        outcome.unsupported = OWN_MATTER
        return outcome
    one_stop: Callable[[ShapeJob, Method, Outcome], None] = _page_out if method.name == "pageout" else _stop
    while outcome.stops < stops and len(outcome.faults) < MOST_FAULTS:
        job = ShapeJob(place, shape, method.path, method.variables)
        try:
            job.start("" if method.name == "pageout" else method.name)
            while outcome.stops < stops:
                _until_counting(job)
                time.sleep(chance.uniform(0.0, _LONGEST_WAIT))
                one_stop(job, method, outcome)
            job.finish()
        except ShapeFault as fault:
            outcome.faults.append(f"{fault} (run {job.restarts + 1}): {_end_of(job.said())}")
        except Unsupported as reason:
            outcome.unsupported = str(reason)
            try:
                if not job.refused():
                    job.finish()
            except ShapeFault as fault:
                outcome.faults.append(f"{fault}: {_end_of(job.said())}")
            return outcome
        finally:
            job.kill()
    return outcome


def _until_counting(job: ShapeJob) -> None:
    before = job.counted()
    job.until(lambda: job.counted() >= before + 2 or job.ended() is not None, "does not count on")
    if job.ended() is not None:
        job.require_whole()
        if job.refused() and job.restarts == 0:
            raise Unsupported(f"the program is not permitted {job.refused()}")
        raise ShapeFault(f"ended early with exit code {job.ended()}")


def _stop(job: ShapeJob, method: Method, outcome: Outcome) -> None:
    """Order a checkpoint as the daemon does, and let the job run again."""

    def ready() -> bool:
        if job.ended() is not None:
            return True
        report = find_run_comment(job.comment())
        if report is None or report.restarts != job.restarts:
            return False
        if report.state == FAILED and "times" not in report.fields:
            found = _NOT_USED.search(job.said())
            raise Unsupported(found.group(1) if found else report.fields.get("why", ""))
        return report.state in (READY, FAILED)

    try:
        job.until(ready, "is not ready")
    except ShapeFault:
        job.require_whole()
        raise Unsupported("never ready") from None
    failures = _failures(job)
    if job.ended() is None:
        job.signal(signal.SIGUSR1)
    job.until(lambda: job.ended() is not None or _failures(job) > failures, "does not stop")
    if job.ended() is None:
        outcome.refused[_reason(job)] += 1
        return
    job.require_whole()
    if job.ended() != STOPPED:
        raise ShapeFault(f"exit code {job.ended()} at the stop")
    job.start(method.name)
    _until_counting(job)
    outcome.survived += 1


def _failures(job: ShapeJob) -> int:
    report = find_run_comment(job.comment())
    if report is None or report.restarts != job.restarts or report.state != FAILED:
        return 0
    return int(report.fields.get("times", "0"))


def _reason(job: ShapeJob) -> str:
    """Without the names and process IDs of one run."""
    found = _REASON.findall(job.said())
    why, text = found[-1] if found else ("?", "no reason was given")
    text = re.sub(r" by [^ ]+ \(pid \d+\)| of [^ ]+ \(pid \d+\)|[^ ]+ \(pid \d+\) |no dump: ", "", text)
    return f"{why}: {re.sub(r'[0-9]{2,}', 'N', text)}"


def _page_out(job: ShapeJob, method: Method, outcome: Outcome) -> None:
    """Have omfs-node move the job's memory out, and in again."""
    answer = _order(job, "out")
    if not answer["ok"]:
        outcome.refused["{why}: {message}".format(**answer).split(";")[0]] += 1
        return
    before = job.counted()
    time.sleep(0.3)
    if job.counted() != before:
        raise ShapeFault("ran while its memory was out")
    answer = _order(job, "in", **{"continue": True})
    if not answer["ok"]:
        raise ShapeFault("not continued: {why}: {message}".format(**answer))
    _until_counting(job)
    outcome.survived += 1


def _order(job: ShapeJob, do: str, **more: object) -> dict[str, Any]:
    slurm = {"conf": str(job.directory / "slurm.conf"), "scontrol": str(job.place.commands / "scontrol")}
    request = {"version": 1, "do": do, "method": "pageout", "node": "n1", "job": NUMBER, "uid": job.place.user}
    request |= {"timeout": LIMIT / 2, "options": {"margin": 1 << 20}, "slurm": slurm, **more}
    said = subprocess.run(
        [PYTHON, job.place.omfs_node],
        input=json.dumps(request),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=LIMIT,
    )
    answer: dict[str, Any] = json.loads(said.stdout)
    return answer


def _end_of(said: str) -> str:
    lines = [line for line in said.splitlines() if not line.startswith("step ")]
    return " | ".join(lines[-4:])[-600:]
