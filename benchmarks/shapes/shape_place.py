"""Where shapes run: programs for every user, omfs-run and omfs-node, and commands that stand for Slurm's."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.shapes.shape_list import PROGRAMS
from deploy.zipapps import build

PLUGINS = Path(__file__).parents[2] / "plugins"
WHERE = "/var/tmp"  # noqa: S108 - on a disk, unlike /tmp on many machines; the directory in it is ours
LIMIT = 120.0
"""Seconds that anything may take on a busy machine."""

# In place of Slurm's: a job's comment is a file in its directory.
SQUEUE = """#!/bin/sh
printf '%s %s\\n' "$SLURM_JOB_ID" "$(cat "$SHAPE_JOB/comment" 2>/dev/null)"
"""
# omfs-node, which clears the environment, finds a job's directory in SLURM_CONF.
SCONTROL = """#!/bin/sh
case "$1 $2" in
"show config") echo 'RequeueExitHold         = 101-109' ;;
"--oneliner show") echo "JobId=$SLURM_JOB_ID Requeue=1 Restarts=$SLURM_RESTART_COUNT " ;;
"update "*)
    printf '%s' "${3#comment=}" >"$SHAPE_JOB/comment.new"
    mv "$SHAPE_JOB/comment.new" "$SHAPE_JOB/comment" ;;
"listpids "*)
    echo 'PID JOBID STEPID LOCALID GLOBALID'
    for environment in $(grep -lzx "SHAPE_JOB=${SLURM_CONF%/slurm.conf}" /proc/[0-9]*/environ 2>/dev/null); do
        pid=${environment#/proc/}
        echo "${pid%/environ} $2 batch - -"
    done ;;
*) echo "scontrol: $*" >&2; exit 1 ;;
esac
"""


class ShapePlace:
    """A directory on disk that every user may enter; gone at the end. ``user``: whose the jobs are."""

    def __init__(self, user: int) -> None:
        self.user = user
        self.path = Path(tempfile.mkdtemp(prefix="omfs-shapes-", dir=WHERE))
        self.path.chmod(0o711)
        self.programs = _open(self.path / "programs")
        self.commands = _open(self.path / "commands")
        self.library = _open(self.path / "lib")
        self.omfs_run = build("omfs-run", self.path)
        self.omfs_node = build("omfs-node", self.path)
        for source in PROGRAMS.iterdir():
            if source.is_file():
                (self.programs / source.name).write_bytes(source.read_bytes())
                (self.programs / source.name).chmod(0o644)
        for name, text in (("squeue", SQUEUE), ("scontrol", SCONTROL)):
            (self.commands / name).write_text(text)
            (self.commands / name).chmod(0o755)
        for name, more in (("shapes", ["-fopenmp"]), ("static", ["-static", "-Wno-unknown-pragmas"])):
            _compile(PROGRAMS / "shapes.c", self.programs / name, "-O1", "-D_FILE_OFFSET_BITS=64", *more)
        made = [self.library / f"{name}.so" for name in ("omfs_children", "omfs_coordinator")]
        command = ["make", "--silent", "-C", PLUGINS, f"BUILD={self.library}", *made]
        subprocess.run(command, check=True, timeout=LIMIT, stdout=subprocess.DEVNULL)

    def __enter__(self) -> ShapePlace:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def new(self) -> Path:
        """A new directory of the user's."""
        path = Path(tempfile.mkdtemp(prefix="job-", dir=self.path))
        os.chown(path, self.user, -1)
        return path


def _open(path: Path) -> Path:
    path.mkdir()
    path.chmod(0o755)
    return path


def _compile(source: Path, target: Path, *options: str) -> None:
    subprocess.run(["gcc", *options, "-o", target, source], check=True, timeout=LIMIT)
    target.chmod(0o755)
