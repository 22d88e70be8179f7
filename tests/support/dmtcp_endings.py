"""Programs under DMTCP that end at about the time at which their checkpoint is requested.

Whichever comes first, all must be as if nothing had happened: the output whole, the exit code the program's own, and
one that has finished must be known to have finished, and soon.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from omfs_daemon.omfs_run.drivers.driver import CannotStop, Ended
from tests.support.dmtcp_bench import PYTHON, Bench, lines, until
from tests.support.dmtcp_stand_in import PROGRAMS
from tests.support.waiting import LIMIT

SPREAD = 0.2  # seconds between the order and the program's end, at most, either way
LONGEST = 0.5  # seconds after which it should be known, on a quiet machine, that a program has finished
_BEFORE = 0.3  # seconds that the program runs before

_TIME = "${EPOCHREALTIME/[.,]/}"  # microseconds
_GOES_ON = f"""
goes_on() {{ [ ! -e "$1" ] || [ {_TIME} -lt "$(< "$1")" ]; }}
"""
_SHELL = """
n=0
while goes_on "$2"; do
    sleep 0.02
    (exit 3); [ $? = 3 ] || exit 90
    echo $n >>"$1"; n=$((n + 1))
done
echo end >>"$1"; exit "$3"
"""
_PIPELINE = """
n=0
while goes_on "$2"; do
    echo $n; n=$((n + 1))
    sleep 0.01
done | cat | cat >"$1"
[ "${PIPESTATUS[*]}" = "0 0 0" ] || exit 91
echo end >>"$1"; exit "$3"
"""

SHAPES = ("single", "shell", "pipeline")


class Ending(NamedTuple):
    """One round. ``offset``: seconds from the program's time to end until the order (negative: ordered before).

    outcome  finished or checkpointed; anything else is a fault
    waited   seconds from the order, or from the end of the output if that came later, until the outcome was known
    """

    shape: str
    offset: float
    outcome: str
    waited: float


def ending_command(shape: str, out: Path, at: Path, code: int, python: str, real: bool, programs: Path) -> list[str]:
    """A program that ends at the time in the file ``at`` (see ``set_end``), with ``code``.

    Real shells only under the real DMTCP: the stand-in needs programs that cooperate.
    """
    if shape == "single" or not real:
        children = {"single": 0, "shell": 1, "pipeline": 3}[shape]
        return [python, str(programs / "ending.py"), str(out), str(at), str(code), str(children)]
    script = _GOES_ON + (_SHELL if shape == "shell" else _PIPELINE)
    return ["bash", "-c", script, shape, str(out), str(at), str(code)]


def set_end(at: Path, end: float) -> None:
    new = at.with_suffix(".new")
    new.write_text(str(int(end * 1e6)))
    new.rename(at)


def is_whole(written: list[str]) -> bool:
    """Whether the output has all numbers once, and the end."""
    return written == [*map(str, range(len(written) - 1)), "end"]


def ending(bench: Bench, shape: str, offset: float, code: int) -> Ending:
    """One round; the program ends with ``code``."""
    out = bench.new("round") / "out"
    at = out.with_name("at")
    program = bench.command(*ending_command(shape, out, at, code, PYTHON, bench.is_real, PROGRAMS))
    until(lambda: program.wait(0) is None and program.ready() and len(lines(out)) > 1)
    end = time.time() + _BEFORE
    set_end(at, end)
    time.sleep(max(0.0, end + offset - time.time()))
    ordered = time.time()
    generation = bench.new("generation")
    try:
        image = program.checkpoint(str(generation), LIMIT)
    except Ended as ended:
        outcome, found = "finished", ended.code
    except CannotStop as fault:
        return Ending(shape, offset, f"{fault.why}: {fault}", 0.0)
    else:
        outcome, found = "checkpointed", -1
    known = time.time()
    written = lines(out)
    if outcome == "finished":
        waited = known - max(ordered, out.stat().st_mtime)
    else:
        waited = known - ordered
        program = bench.restart(generation, image)
        found = program.wait(LIMIT) or 0
        if lines(out)[: len(written)] != written:
            outcome = f"what was written has changed: {lines(out)}"
        written = lines(out)
    program.kill()
    bench.started.remove(program)
    for path in (generation, out.parent):
        shutil.rmtree(path)
    if found != code:
        outcome = f"{outcome}, but exit code {found} instead of {code}"
    elif not is_whole(written):
        outcome = f"{outcome}, but the output is {written}"
    return Ending(shape, ordered - end, outcome, waited)


def rounds(bench: Bench, shape: str, count: int, random: Random) -> Iterator[Ending]:
    """Orders at even distances over the spread, in random order; every second program ends with 0."""
    offsets = [SPREAD * (2 * (place + random.random()) / count - 1) for place in range(count)]
    random.shuffle(offsets)
    for place, offset in enumerate(offsets):
        yield ending(bench, shape, offset, 5 * (place % 2))


def summary(found: Iterable[Ending]) -> str:
    """How many ended how, and how long was waited for those that had finished."""
    every = list(found)
    waits = sorted(one.waited for one in every if one.outcome == "finished")
    counts = {name: sum(one.outcome == name for one in every) for name in ("finished", "checkpointed")}
    over = sum(wait > LONGEST for wait in waits)
    longest = f"; waited {waits[len(waits) // 2]:.3f} s, at most {waits[-1]:.3f} s, {over} over {LONGEST} s"
    return f"{len(every)} rounds: {counts}{longest if waits else ''}"
