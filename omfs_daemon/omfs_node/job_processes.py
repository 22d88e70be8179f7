"""A job's processes on this node: found by asking Slurm, held by pidfds, stopped and continued through them."""

import contextlib
import errno
import os
import re
import stat
import subprocess
import time
from typing import Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from omfs_daemon.omfs_node.movers import system_calls as kernel
from omfs_daemon.omfs_node.movers.mover import CannotMove
from omfs_daemon.omfs_node.movers.mover import Process

_TRUSTED_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_SCONTROL_PLACES = ("/usr/bin/scontrol", "/usr/local/bin/scontrol", "/opt/slurm/bin/scontrol")
_SCONTROL_LIMIT = 15.0
_NO_STEPS = re.compile(
    r"(There are no steps for job \S+|JobId=\S+ does not exist) on node \S+$|No job steps exist on this node\.$"
)
# A step that ends while scontrol walks over the steps makes it fail; then it is asked again.
_TRIES = 4
_PAUSE = 0.01
_STOPPED_STATES = frozenset("TtXxZ")
# Any other error (no descriptors left, say) must not make a process that runs look like one that has ended.
_GONE = (FileNotFoundError, ProcessLookupError)


class Slurm(NamedTuple):
    """How Slurm is asked: ``scontrol`` ("" finds it) and ``conf``, its SLURM_CONF ("" leaves it to Slurm)."""

    scontrol: str = ""
    conf: str = ""


class Listed(NamedTuple):
    """A process of a job on the node, as Slurm lists it; ``step`` is a number, batch, extern or interactive."""

    pid: int
    job: int
    step: str


def ask_slurm(slurm: Slurm, node: str, job: Optional[int], deadline: float) -> List[Listed]:
    """The processes of one job on the node, or of all jobs: what Slurm started and what that started.

    Slurm's own daemons are not among them. Raises CannotMove: slurm_failed, timeout.
    """
    command = [_scontrol(slurm), "listpids", str(job) if job is not None else "*", node]
    message = ""
    for _ in range(_TRIES):
        code, output, errors = _run(command, slurm.conf, deadline)
        if code == 0 or (errors and all(_NO_STEPS.match(line) for line in errors.splitlines())):
            return _parse(output, job)
        message = (errors.strip().splitlines() or ["exit {}".format(code)])[-1]
        time.sleep(_PAUSE)
    raise CannotMove("slurm_failed", "scontrol listpids: {}".format(message))


def _scontrol(slurm: Slurm) -> str:
    places = [slurm.scontrol] if slurm.scontrol else list(_SCONTROL_PLACES)
    for place in places:
        try:
            found = os.stat(place)
        except OSError:
            continue
        if stat.S_ISREG(found.st_mode) and found.st_uid == 0 and not found.st_mode & 0o022 and found.st_mode & 0o100:
            return place
    raise CannotMove("slurm_failed", "no scontrol that only root can write: {}".format(", ".join(places)))


def _run(command: Sequence[str], conf: str, deadline: float) -> Tuple[int, str, str]:
    environment = {"PATH": _TRUSTED_PATH, "LC_ALL": "C"}
    conf = conf or os.environ.get("SLURM_CONF", "")
    if conf:
        environment["SLURM_CONF"] = conf
    limit = min(_SCONTROL_LIMIT, deadline - time.monotonic())
    if limit <= 0:
        raise CannotMove("timeout", "no time left to ask Slurm")
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd="/",
            close_fds=True,
        )
    except OSError as error:
        raise CannotMove("slurm_failed", "cannot run {}: {}".format(command[0], error.strerror)) from None
    try:
        output, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        raise CannotMove("timeout", "scontrol listpids: no answer within {:.1f} s".format(limit)) from None
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    return process.returncode, output.decode("utf-8", "replace"), errors.decode("utf-8", "replace")


def _parse(output: str, job: Optional[int]) -> List[Listed]:
    """The table of ``scontrol listpids``, by the names of its columns."""
    found: List[Listed] = []
    lines = output.splitlines()
    columns = lines[0].split() if lines else []
    if "PID" not in columns or "JOBID" not in columns:
        raise CannotMove("slurm_failed", "scontrol listpids printed no table: {!r}".format(output[:80]))
    for line in lines[1:]:
        row = dict(zip(columns, line.split()))  # noqa: B905
        pid, owner = row.get("PID", ""), row.get("JOBID", "")
        if not (pid.isdigit() and owner.isdigit()):
            continue  # a step whose processes Slurm cannot list has a row of -1
        if int(pid) > 1 and (job is None or int(owner) == job):
            found.append(Listed(int(pid), int(owner), row.get("STEPID", "")))
    return found


class JobProcesses:
    """The processes of one job on one node. Close it when done; that closes the pidfds and nothing else.

    A pidfd is taken for the job's only if Slurm lists its pid *after* it was opened, it has not ended by then, and its
    real uid is the job's: so a pid that meanwhile is somebody else's is never touched.
    """

    def __init__(self, slurm: Slurm, node: str, job: int, uid: int) -> None:
        self._slurm = slurm
        self._node = node
        self._job = job
        self._uid = uid
        self._ours: Dict[int, Process] = {}
        self._candidates: Dict[int, Process] = {}
        self._stopped_by_us: Set[int] = set()
        self._foreign: Set[int] = set()

    def __enter__(self) -> "JobProcesses":
        return self

    def __exit__(self, *_: object) -> None:
        for process in list(self._ours.values()) + list(self._candidates.values()):
            os.close(process.fd)
        self._ours.clear()
        self._candidates.clear()

    @property
    def all(self) -> List[Process]:
        """Those that are left, the oldest pid first."""
        return [self._ours[pid] for pid in sorted(self._ours) if not kernel.has_ended(self._ours[pid].fd)]

    def find(self, deadline: float) -> List[Process]:
        """All that stand now, and most of those that run; raises CannotMove, also if all that Slurm lists is somebody
        else's.

        A process is in it if Slurm lists it twice. Whoever is born meanwhile is not waited for: a job that runs may go
        on starting programs for ever.
        """
        self._look(deadline)
        if self._candidates:
            self._look(deadline)
        self._require_ours()
        return self.all

    def stop(self, deadline: float) -> List[Process]:
        """Stop all of them, those born meanwhile too; returns when every thread of every one stands.

        Those that are known are stopped before the next look, so that ever fewer can start others. Raises
        CannotMove("timeout") if some do not stop in time.
        """
        while True:
            before = set(self._ours)
            # Whoever was born before its parent stood is in a list that Slurm makes after that.
            self._look(deadline)
            awake = [process for process in self.all if not is_stopped(process)]
            if not awake and not self._candidates and set(self._ours) <= before:
                self._require_ours()
                return self.all
            for process in awake:
                # Noted first: if we are interrupted in between, it is continued once too often rather than never.
                self._stopped_by_us.add(process.pid)
                _send(process, stop=True)
            self._wait_until_stopped(deadline)

    def let_run(self, all_of_them: bool) -> None:
        """Continue those that we stopped or, with ``all_of_them``, every one. The youngest first, so that a parent that
        waits for its children does not find them stopped."""
        for process in reversed(self.all):
            if all_of_them or process.pid in self._stopped_by_us:
                _send(process, stop=False)
        self._stopped_by_us.clear()

    def _require_ours(self) -> None:
        if self._foreign and not self._ours:
            message = "no process of job {} on {} is uid {}'s".format(self._job, self._node, self._uid)
            raise CannotMove("wrong_uid", message)

    def _look(self, deadline: float) -> None:
        rows = ask_slurm(self._slurm, self._node, self._job, deadline)
        listed = {row.pid for row in rows}
        for pid, process in list(self._candidates.items()):
            del self._candidates[pid]
            if pid in listed and not kernel.has_ended(process.fd):
                self._ours[pid] = process
            else:
                os.close(process.fd)
        self._foreign.clear()
        for row in rows:
            if row.pid in self._ours and kernel.has_ended(self._ours[row.pid].fd):
                os.close(self._ours.pop(row.pid).fd)
            if row.pid not in self._ours and row.pid not in self._candidates:
                self._open(row)

    def _open(self, row: Listed) -> None:
        try:
            descriptor = kernel.pidfd_open(row.pid)
        except ProcessLookupError:
            return
        except OSError as error:
            if error.errno != errno.ENOSYS:
                raise
            raise CannotMove("not_usable", "pidfd_open: {} (needs Linux 5.3)".format(error.strerror)) from None
        uid = _real_uid(row.pid)
        if uid is None or kernel.has_ended(descriptor):
            os.close(descriptor)
        elif uid == self._uid and row.pid not in _untouchable():
            self._candidates[row.pid] = Process(row.pid, descriptor)
        else:
            os.close(descriptor)
            if row.step != "extern":  # Slurm itself keeps a sleeping process of root's there
                self._foreign.add(row.pid)

    def _wait_until_stopped(self, deadline: float) -> None:
        waiting = self.all
        while True:
            waiting = [process for process in waiting if not is_stopped(process)]
            if not waiting:
                return
            if time.monotonic() > deadline:
                pids = " ".join(str(process.pid) for process in waiting[:8])
                raise CannotMove("timeout", "{} processes do not stop: {}".format(len(waiting), pids))
            time.sleep(_PAUSE / 5)


def is_stopped(process: Process) -> bool:
    """Whether every thread of the process stands (or it has ended)."""
    if kernel.has_ended(process.fd):
        return True
    try:
        threads = os.listdir("/proc/{}/task".format(process.pid))
        return all(_thread_state(process.pid, thread) in _STOPPED_STATES for thread in threads)
    except _GONE:
        return True


def _thread_state(pid: int, thread: str) -> str:
    try:
        with open("/proc/{}/task/{}/stat".format(pid, thread), "rb") as stream:
            # The name of the program is in parentheses and may hold any character, these too.
            return stream.read().rpartition(b")")[2].split()[0].decode("ascii")
    except (*_GONE, IndexError):
        return "X"


def _real_uid(pid: int) -> Optional[int]:
    """The real uid of a process; None if it is gone. Real, so that a setuid program counts as its caller's."""
    try:
        with open("/proc/{}/status".format(pid), "rb") as stream:
            uids = [line.split() for line in stream if line.startswith(b"Uid:")]
    except _GONE:
        return None
    return int(uids[0][1]) if uids else None


def _untouchable() -> Set[int]:
    """Ourselves and what we run under: stopping these would stop this very work."""
    found, pid = {1}, os.getpid()
    while pid > 1 and pid not in found:
        found.add(pid)
        try:
            with open("/proc/{}/stat".format(pid), "rb") as stream:
                pid = int(stream.read().rpartition(b")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            break
    return found


def _send(process: Process, stop: bool) -> None:
    with contextlib.suppress(ProcessLookupError):
        (kernel.stop if stop else kernel.let_run)(process.fd)
