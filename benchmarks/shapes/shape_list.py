"""The shapes of programs: what each has, how it is started, and how it ends."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

PYTHON = "/usr/bin/python3"  # one that every user may run
PROGRAMS = Path(__file__).parent / "programs"


class Shape(NamedTuple):
    """One kind of program.

    title   what it is, in the table
    source  a file of ``programs/`` (``shapes``: the compiled one, ``static``: the same without shared libraries)
    name    the shape in that file
    code    the exit code that it must end with
    again   whether it can begin again at a number: such a program keeps checkpoints of its own, and cooperates with
            the stand-in for DMTCP
    """

    title: str
    source: str
    name: str
    code: int = 7
    again: bool = False

    def command(self, programs: Path) -> list[str]:
        """How it is started, from a copy of the programs."""
        path = str(programs / self.source)
        if self.source.endswith(".py"):
            return [PYTHON, path, self.name]
        if self.source.endswith(".mk"):
            return ["make", "--silent", "--file", path]
        return ["bash", path, self.name] if self.source.endswith(".sh") else [path, self.name]


def _shapes(source: str, *rows: tuple[str, str], again: bool = False) -> tuple[Shape, ...]:
    return tuple(Shape(title, source, name, again=again) for title, name in rows)


SHAPES: tuple[Shape, ...] = (
    Shape("a loop, in C", "shapes", "plain"),
    *_shapes("memory.py", ("a loop, in Python", "plain"), again=True),
    *(Shape(f"exit code {code}", "memory.py", f"exit {code}", code, again=True) for code in (0, 3, 99, 255)),
    Shape("end by a signal", "memory.py", "signaled", 137, again=True),
    *_shapes(
        "memory.py",
        ("200 MB of memory", "large"),
        ("growing heap, in Python", "growing"),
        ("threads, in Python", "threads"),
        ("locked memory (mlock)", "locked"),
        ("standard output", "standard output"),
        ("changed environment", "environment"),
        ("changed directory", "directory"),
        again=True,
    ),
    *_shapes(
        "shapes",
        ("growing heap (brk), in C", "heap"),
        ("mappings made and given back", "mappings"),
        ("threads, in C", "threads"),
        ("OpenMP", "openmp"),
        ("shared memory with a child", "semaphores"),
        ("System V shared memory", "system v"),
        ("buffered output (stdio)", "buffered"),
        ("mkstemp(3) and tmpfile(3)", "temporary"),
    ),
    Shape("statically linked program", "static", "plain"),
    *_shapes(
        "processes.py",
        ("fork and wait", "fork wait"),
        ("Popen", "popen"),
        ("Popen with its output", "popen output"),
        ("posix_spawn", "posix_spawn"),
        ("system(3)", "system"),
        ("ended child, waited for later", "zombie"),
        ("ended child with exit code 200", "zombie 200"),
        ("process groups and waitpid(0)", "groups"),
        ("SIGCHLD", "sigchld"),
        ("grandchildren", "grandchildren"),
        ("children ended by a signal", "killed"),
        ("children inherited (subreaper)", "reaper"),
        ("children that nobody waits for", "ignored"),
        again=True,
    ),
    *_shapes(
        "processes.py",
        ("a child that lives as long", "fork long"),
        ("multiprocessing pool", "pool"),
        ("exec of another program", "exec"),
        ("process that left (daemon)", "daemon"),
    ),
    *_shapes(
        "shell_shapes.sh",
        ("shell: builtins only", "loop"),
        ("shell: short programs", "children"),
        ("shell: command substitution", "substitution"),
        ("shell: pipeline", "pipeline"),
        ("shell: one job in the background", "one job"),
        ("shell: several jobs in the background", "jobs"),
        ("shell: here-document", "here document"),
        ("shell: trap", "trap"),
    ),
    Shape("make", "shape.mk", "all", 2),
    *_shapes(
        "events.py",
        ("pipes to a child", "pipes"),
        ("socket pair to a child", "socket pair"),
        ("socket pair, one end duplicated", "duplicate"),
        ("Unix socket to a child", "unix socket"),
        ("TCP connection to a child", "tcp"),
    ),
    *_shapes(
        "events.py",
        ("duplicated socket", "duplicate alone"),
        ("duplicated pipe", "duplicate pipe"),
        ("TCP socket that listens", "listening"),
        ("UDP socket", "udp"),
        ("pipe with something in it", "full pipe"),
        ("thread that reads a pipe", "thread pipe"),
        ("eventfd", "eventfd"),
        ("epoll", "epoll"),
        ("signalfd", "signalfd"),
        ("blocked signal that is pending", "blocked"),
        ("timerfd", "timerfd"),
        ("interval timer that repeats", "repeating"),
        ("interval timer that fires once", "once"),
        ("alarm(2)", "alarm"),
        ("timer of timer_create(2)", "posix timer"),
        ("pidfd", "pidfd"),
        ("pseudoterminal of its own", "terminal"),
        again=True,
    ),
    *_shapes(
        "files.py",
        ("file written and read", "written"),
        ("file written on at its position", "position"),
        ("duplicated file", "duplicate"),
        ("directory open", "directory"),
        ("path open (O_PATH)", "path only"),
        ("mapping of a file", "mapped"),
        ("FIFO", "fifo"),
        ("inotify", "inotify"),
        ("file locked with flock", "flock"),
        ("file locked with lockf", "lockf"),
        again=True,
    ),
    *_shapes(
        "files.py",
        ("unlinked file", "unlinked"),
        ("O_TMPFILE", "tmpfile"),
        ("memfd", "memfd"),
        ("mapping in /dev/shm", "shm"),
        ("shared memory without a file", "anonymous"),
        again=True,
    ),
)
