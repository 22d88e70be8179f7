"""Stops programs of many shapes at random moments by each method, without Slurm, as an ordinary user.

    python -m benchmarks.shapes [--stops N] [--seed N] [--methods NAME,...] [--shapes TEXT] [--workers N] [OUTPUT]
    python -m benchmarks.shapes --publish [OUTPUT...]

Each program checks itself, counts its steps, and ends with a known exit code. omfs-run is what users have; commands
that keep the job's comment in a file stand for Slurm's. DMTCP: the prefixes in the environment's OMFS_DMTCP, with
colons between them, or dmtcp_launch on the PATH; ``stand-in``: the tests' stand-in, for those programs that cooperate.
Page-out needs root, and swap of its own is added. Prints a line for each shape and method, and writes
``build/bench/shapes.json``. Exit code 1 if there was a fault. ``--publish`` makes the package's table
(omfs_daemon/shapes/shape_table.json) and that of docs/methods.md from it; of several files the last one counts that
has a shape and a method.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.shapes.publish import publish
from benchmarks.shapes.shape_list import SHAPES, Shape
from benchmarks.shapes.shape_place import ShapePlace
from benchmarks.shapes.shape_trial import Method, Outcome, try_shape
from benchmarks.termination import exits_on_sigterm
from tests.support.dmtcp_stand_in import install
from tests.support.omfs_node_jobs import swap

METHODS = ("dmtcp", "criu", "application", "pageout")
STAND_IN = "stand-in"
USER = 65534
STOPS = 10
OUTPUT = Path("build/bench/shapes.json")
SWAP_MB = 900


def methods(names: Sequence[str], place: ShapePlace, dmtcp: Sequence[str]) -> Iterator[Method]:
    """Those to be tried, DMTCP once for each prefix."""
    for name in names:
        if name != "dmtcp":
            yield Method(name, name)
            continue
        for prefix in dmtcp:
            yield _stand_in(place) if prefix == STAND_IN else _dmtcp(prefix)


def _stand_in(place: ShapePlace) -> Method:
    commands = install(place.path / STAND_IN)
    variables = {"OMFS_LIB": str(commands.parent / "lib"), "PYTHONPATH": str(commands.parent / "programs")}
    return Method("dmtcp", STAND_IN, str(commands), variables)


def _dmtcp(prefix: str) -> Method:
    commands = Path(prefix) / "bin"
    if not (commands / "dmtcp_launch").exists():
        raise SystemExit(f"no dmtcp_launch in {commands}")
    said = subprocess.run([commands / "dmtcp_launch", "--version"], check=True, capture_output=True, text=True)
    words = said.stdout.split("(DMTCP)")[1].split() if "(DMTCP)" in said.stdout else ["?"]
    return Method("dmtcp", f"dmtcp {words[0]}", str(commands))


def suits(shape: Shape, method: Method) -> bool:
    """The stand-in carries only programs that cooperate."""
    return method.tool != STAND_IN or shape.again


def shown(outcome: Outcome) -> str:
    """A line of the table that is printed."""
    reasons = "; ".join(f"{count} refused ({reason})" for reason, count in outcome.refused.items())
    parts = [f"{outcome.survived} survived" if outcome.survived else "", reasons]
    parts += [f"not supported: {outcome.unsupported}" if outcome.unsupported else ""]
    parts += [f"FAULT: {fault}" for fault in outcome.faults]
    return f"{outcome.tool:<14}{outcome.shape:<40}{'; '.join(part for part in parts if part)}"


def summed_up(outcomes: Sequence[Outcome]) -> str:
    """The last line, for each tool."""
    lines = []
    for tool in dict.fromkeys(outcome.tool for outcome in outcomes):
        of_tool = [outcome for outcome in outcomes if outcome.tool == tool]
        survived = sum(outcome.survived for outcome in of_tool)
        refused = sum(sum(outcome.refused.values()) for outcome in of_tool)
        faults = sum(len(outcome.faults) for outcome in of_tool)
        unsupported = sum(bool(outcome.unsupported) for outcome in of_tool)
        lines.append(
            f"{tool}: {len(of_tool)} shapes, {survived} stops survived, {refused} refused, {faults} faults;"
            f" {unsupported} shapes not supported"
        )
    return "\n".join(lines)


def _found_dmtcp() -> list[str]:
    given = os.environ.get("OMFS_DMTCP")
    if given:
        return given.split(":")
    found = shutil.which("dmtcp_launch")
    return [str(Path(found).parents[1])] if found else [STAND_IN]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shapes")
    parser.add_argument("--stops", type=int, default=STOPS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--methods", default=",".join(METHODS if os.geteuid() == 0 else METHODS[:-1]))
    parser.add_argument("--shapes", default="", help="only those whose titles have this text")
    parser.add_argument("--workers", type=int, default=4, help="programs at a time; they mostly wait")
    parser.add_argument("--publish", action="store_true", help="make the tables of the package and docs/methods.md")
    parser.add_argument("output", nargs="*", type=Path, default=[OUTPUT])
    options = parser.parse_args(arguments)
    if options.publish:
        publish([json.loads(output.read_text()) for output in options.output])
        return 0
    if len(options.output) != 1:
        parser.error("one OUTPUT, unless --publish is given")
    output = options.output[0]
    names = options.methods.split(",")
    if unknown := sorted(set(names) - set(METHODS)):
        parser.error(f"no such method: {unknown[0]}; there are {', '.join(METHODS)}")
    if "pageout" in names and os.geteuid() != 0:
        parser.error("pageout needs root")
    with exits_on_sigterm(), contextlib.ExitStack() as stack:
        place = stack.enter_context(ShapePlace(USER if os.geteuid() == 0 else os.getuid()))
        if "pageout" in names:
            stack.enter_context(swap(SWAP_MB))
        pairs = [
            (method, shape)
            for method in methods(names, place, _found_dmtcp())
            for shape in SHAPES
            if options.shapes in shape.title and suits(shape, method)
        ]

        def tried(pair: tuple[Method, Shape]) -> Outcome:
            outcome = try_shape(place, pair[1], pair[0], options.stops, options.seed)
            print(shown(outcome), flush=True)
            return outcome

        with ThreadPoolExecutor(options.workers) as workers:
            try:
                outcomes = list(workers.map(tried, pairs))
            except BaseException:
                workers.shutdown(cancel_futures=True)
                raise
    rows = {"stops": options.stops, "seed": options.seed, "rows": [outcome.as_row() for outcome in outcomes]}
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(rows, indent=1) + "\n")
    print(summed_up(outcomes))
    print(f"written to {output}")
    return 1 if any(outcome.faults for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
