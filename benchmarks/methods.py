"""How fast the preemption methods are, each beside the bare tool on the same data, in turn, in the same run.

Sizes are of touched memory that does not compress, in one process. Prints a table and writes
``build/bench/methods.json``: a list with, for each method and size, ``method``, ``tool`` and its ``rival``, ``bytes``,
``rounds`` (fewer on a slow machine), and for ``out`` and ``back`` each ``seconds``, ``gb_per_s``, the same of the
rival (``bare_seconds``, ``bare_gb_per_s``), ``overhead_s``, ``allowed_s`` (a tenth of the rival's and 0.2 s) and
``within``. All are medians.
Page-out has ``device_gb_per_s``, what the disk of its swap file writes past the page cache, and both's part of it,
``device_share`` and ``bare_device_share``. A row with ``fault`` instead of figures could not be measured.
``out`` ends when all is verified and on disk (page-out: taken by the kernel to be written), ``back`` when the program
can run. Between the two, images are dropped from the page cache, as they are by the time when a job comes back.
Exit code 0 whatever the figures are: other work on the machine changes them. Needs root.

    python -m benchmarks.methods [--sizes MB,MB...] [--rounds N] [--methods NAME,...] [--warm] [OUTPUT]

The environment's OMFS_DMTCP is the prefix of an installed DMTCP, if dmtcp_launch is not on the PATH.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.methods_common import MB, Place, Rig, Times
from benchmarks.methods_nodes import Pageout, VeSwap
from benchmarks.methods_omfs_run import Application, Criu, Dmtcp
from benchmarks.termination import exits_on_sigterm
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from omfs_daemon.testing.local_slurm.slurm_conf import Shape

METHODS = ("criu", "dmtcp", "application", "pageout", "ve_swap")
SIZES = (100, 500, 2000)
ROUNDS = 3
ENOUGH = 20.0  # seconds for one method and size, after which no further round is begun
OUTPUT = Path("build/bench/methods.json")
TENTH, CONSTANT = 0.1, 0.2


def measured(rig: Rig, size: int, rounds: int) -> dict[str, Any]:
    """One row: ours and the bare tool in turn, each first as often as the other (or once more)."""
    ours: list[Times] = []
    bare: list[Times] = []
    row: dict[str, Any] = {"method": rig.method, "tool": rig.tool, "rival": rig.rival, "bytes": size, "rounds": rounds}
    begun = time.monotonic()
    try:
        for turn in range(rounds):
            if turn and time.monotonic() - begun > ENOUGH:
                row["rounds"] = turn
                break
            for kind in ("ours", "bare") if turn % 2 == 0 else ("bare", "ours"):
                (ours if kind == "ours" else bare).append(getattr(rig, kind)(size))
    except (RuntimeError, OSError) as error:
        return row | {"fault": str(error)}
    row |= {"out": compared([one.out for one in ours], [one.out for one in bare], size)}
    row |= {"back": compared([one.back for one in ours], [one.back for one in bare], size)}
    if "device" in ours[0].more:
        device = median(one.more["device"] for one in ours)
        row |= {"device_gb_per_s": round(size / device / 1e9, 3)}
        row |= {"device_share": round(device / median(one.out for one in ours), 6)}
        row |= {"bare_device_share": round(device / median(one.out for one in bare), 6)}
    return row


def compared(ours: Sequence[float], bare: Sequence[float], size: int) -> dict[str, Any]:
    """Medians, and whether ours is as near to the bare tool's as it has to be."""
    mine, its = median(ours), median(bare)
    allowed = TENTH * its + CONSTANT
    return {
        "seconds": round(mine, 3),
        "gb_per_s": round(size / mine / 1e9, 3),
        "bare_seconds": round(its, 3),
        "bare_gb_per_s": round(size / its / 1e9, 3),
        "overhead_s": round(mine - its, 3),
        "allowed_s": round(allowed, 3),
        "within": mine - its <= allowed,
    }


@contextlib.contextmanager
def rigs(methods: Sequence[str], largest: int, warm: bool) -> Iterator[Iterator[Rig]]:
    """The methods, each started when it is its turn; all are ended at the end."""
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(Place(warm))

        def made() -> Iterator[Rig]:
            if "criu" in methods:
                yield Criu(place)
            if "dmtcp" in methods:
                yield Dmtcp(place, os.environ.get("OMFS_DMTCP", ""))
            if "application" in methods:
                yield Application(place)
            if "pageout" in methods or "ve_swap" in methods:
                slurm = stack.enter_context(_slurm())
                if "pageout" in methods:
                    with contextlib.closing(Pageout(place, slurm, largest)) as pageout:
                        yield pageout
                if "ve_swap" in methods:
                    with contextlib.closing(VeSwap(place, slurm, largest)) as ve_swap:
                        yield ve_swap

        with contextlib.closing(made()) as each:
            yield each


@contextlib.contextmanager
def _slurm() -> Iterator[LocalSlurm]:
    directory = Path(tempfile.mkdtemp(prefix="omfs-bench-slurm-"))
    try:
        with LocalSlurm(directory, Shape(nodes=1)) as slurm:
            yield slurm
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def shown(row: dict[str, Any]) -> str:
    """A line of the table."""
    parts = [f"{row['method']:<12}{row['bytes'] / 1e9:>5.1f} GB"]
    if "fault" in row:
        return f"{parts[0]}  not measured: {row['fault']}"
    for mode in ("out", "back"):
        one = row[mode]
        verdict = "ok  " if one["within"] else "OVER"
        parts.append(
            f"{mode:>5} {one['seconds']:6.2f} s {one['gb_per_s']:5.2f} GB/s  bare {one['bare_seconds']:6.2f} s"
            f" {one['overhead_s']:+6.2f} s {verdict}"
        )
    if "device_share" in row:
        disk_shares = f"{row['device_share']:.0%} (bare {row['bare_device_share']:.0%})"
        parts.append(f"  {disk_shares} of the disk's {row['device_gb_per_s']:.2f} GB/s")
    return "".join(parts)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.methods")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="MB of memory")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--warm", action="store_true", help="leave images in the page cache before they are read")
    parser.add_argument("output", nargs="?", type=Path, default=OUTPUT)
    options = parser.parse_args(arguments)
    sizes, methods = [int(word) * MB for word in options.sizes.split(",")], options.methods.split(",")
    if unknown := sorted(set(methods) - set(METHODS)):
        parser.error(f"no such method: {unknown[0]}; there are {', '.join(METHODS)}")
    rows = []
    with exits_on_sigterm(), rigs(methods, max(sizes), options.warm) as every:
        for rig in every:
            print(f"{rig.method}: {rig.tool}; bare: {rig.rival}", flush=True)
            for size in sizes:
                rows.append(measured(rig, size, options.rounds))
                print(shown(rows[-1]), flush=True)
    print(f"ok: at most {TENTH:.0%} and {CONSTANT:g} s more than the bare tool beside it")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"written to {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
