"""A job's processes on this node: listed by Slurm, held by pidfds, stopped and continued through them."""

import contextlib
import errno
import os
import re
import stat
import subprocess
import time
from typing import Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from omfs_daemon.omfs_node.movers import system_calls
from omfs_daemon.omfs_node.movers.mover import CannotMove, HeldProcess

_TRUSTED_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_SCONTROL_PLACES = ("/usr/bin/scontrol", "/usr/local/bin/scontrol", "/opt/slurm/bin/scontrol")
_SCONTROL_LIMIT = 15.0
_NO_STEPS = re.compile(
    r"(There are no steps for job \S+|JobId=\S+ does not exist) on node \S+$|No job steps exist on this node\.$"
)
# scontrol fails if a step ends while it lists the steps; then it is run again.
_TRIES = 4
_PAUSE = 0.01
_STOPPED_STATES = frozenset("TtXxZ")
# Any other error (such as no descriptors left) must not make a running process look like one that has ended.
_GONE = (FileNotFoundError, ProcessLookupError)


class SlurmCommand(NamedTuple):
    """How to run ``scontrol`` ("": search for it), and ``conf``, its SLURM_CONF ("": Slurm's default)."""

    scontrol: str = ""
    conf: str = ""


class ListedProcess(NamedTuple):
    """A process of a job on the node, as Slurm lists it; ``step`` is a number, batch, extern or interactive."""

    pid: int
    job: int
    step: str


def ask_slurm(slurm: SlurmCommand, node: str, job: Optional[int], deadline: float) -> List[ListedProcess]:
    """The processes of one job on the node, or of all jobs, with their descendants.

    Slurm's own daemons are excluded. Raises CannotMove: slurm_failed, timeout.
    """
    command = [_scontrol(slurm), "listpids", str(job) if job is not None else "*", node]
    message = ""
    for _ in range(_TRIES):
        code, output, errors = _run(command, slurm.conf, deadline)
        has_no_steps = bool(errors) and all(_NO_STEPS.match(line) for line in errors.splitlines())
        if has_no_steps and not output.strip():
            return []  # Slurm 24.11; 22.05 prints the table's head all the same
        if code == 0 or has_no_steps:
            return _parse(output, job)
        message = (errors.strip().splitlines() or ["exit code {}".format(code)])[-1]
        time.sleep(_PAUSE)
    raise CannotMove("slurm_failed", "scontrol listpids: {}".format(message))


def _scontrol(slurm: SlurmCommand) -> str:
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
        raise CannotMove("slurm_failed", "cannot execute {}: {}".format(command[0], error.strerror)) from None
    try:
        output, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        raise CannotMove("timeout", "scontrol listpids: no response within {:.1f} s".format(limit)) from None
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    return process.returncode, output.decode("utf-8", "replace"), errors.decode("utf-8", "replace")


_STUCK = 10.0
"""Seconds within which one more process stops, or none will: a signal waits while a system call cannot be interrupted,
which is for long on a file server that is away, and for ever after vfork(2) if the child wants it so."""

_NUMBER = re.compile(r"[0-9]{1,10}\Z")


def _parse(output: str, job: Optional[int]) -> List[ListedProcess]:
    """Parse the table of ``scontrol listpids`` by the names of its columns."""
    found: List[ListedProcess] = []
    lines = output.splitlines()
    columns = lines[0].split() if lines else []
    if "PID" not in columns or "JOBID" not in columns:
        raise CannotMove("slurm_failed", "scontrol listpids printed no table: {!r}".format(output[:80]))
    for line in lines[1:]:
        row = dict(zip(columns, line.split()))  # noqa: B905
        pid, owner = row.get("PID", ""), row.get("JOBID", "")
        if not (_NUMBER.match(pid) and _NUMBER.match(owner)):
            continue  # a step whose processes Slurm cannot list has a row of -1
        if int(pid) > 1 and (job is None or int(owner) == job):
            found.append(ListedProcess(int(pid), int(owner), row.get("STEPID", "")))
    return found


class JobProcesses:
    """The processes of one job on one node; leaving the context closes the pidfds.

    A process belongs to the job only if Slurm lists its pid *after* the pidfd was opened, it has not ended by then, and
    its real uid is the job's: so a pid that was reused by somebody else is never touched.
    """

    def __init__(self, slurm: SlurmCommand, node: str, job: int, uid: int) -> None:
        self._slurm = slurm
        self._node = node
        self._job = job
        self._uid = uid
        self._ours: Dict[int, HeldProcess] = {}
        self._candidates: Dict[int, HeldProcess] = {}
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
    def all(self) -> List[HeldProcess]:
        """Those that still exist, lowest pid first."""
        return [self._ours[pid] for pid in sorted(self._ours) if not system_calls.has_ended(self._ours[pid].fd)]

    def find(self, deadline: float) -> List[HeldProcess]:
        """All stopped processes and most of the running ones; raises CannotMove, also if all of them are others'.

        A process counts if Slurm lists it twice. New ones are not waited for: a running job may start programs forever.
        """
        self._update(deadline)
        if self._candidates:
            self._update(deadline)
        self._require_ours()
        return self.all

    def stop(self, deadline: float) -> List[HeldProcess]:
        """Stop all of them, including new ones; returns when every thread is stopped.

        Known processes are stopped before Slurm is asked again, so that ever fewer can start others. Raises
        CannotMove("timeout") if some do not stop in time.
        """
        while True:
            before = set(self._ours)
            # A process created before its parent was stopped is in the list that Slurm makes after that.
            self._update(deadline)
            running = [process for process in self.all if not is_stopped(process)]
            if not running and not self._candidates and set(self._ours) <= before:
                self._require_ours()
                return self.all
            for process in running:
                # Recorded first: if interrupted, it is continued once too often rather than never.
                self._stopped_by_us.add(process.pid)
                _send(process, stop=True)
            self._wait_until_stopped(deadline)

    def resume(self, all_of_them: bool) -> None:
        """Continue those that we stopped or, with ``all_of_them``, every one.

        Highest pid first, so that a parent that waits for its children does not find them stopped.
        """
        for process in reversed(self.all):
            if all_of_them or process.pid in self._stopped_by_us:
                _send(process, stop=False)
        self._stopped_by_us.clear()

    def _require_ours(self) -> None:
        if self._foreign and not self._ours:
            message = "no process of job {} on {} belongs to uid {}".format(self._job, self._node, self._uid)
            raise CannotMove("wrong_uid", message)

    def _update(self, deadline: float) -> None:
        rows = ask_slurm(self._slurm, self._node, self._job, deadline)
        listed = {row.pid for row in rows}
        for pid, process in list(self._candidates.items()):
            del self._candidates[pid]
            if pid in listed and not system_calls.has_ended(process.fd):
                self._ours[pid] = process
            else:
                os.close(process.fd)
        self._foreign.clear()
        for row in rows:
            if row.pid in self._ours and system_calls.has_ended(self._ours[row.pid].fd):
                os.close(self._ours.pop(row.pid).fd)
            if row.pid not in self._ours and row.pid not in self._candidates:
                self._open(row)

    def _open(self, row: ListedProcess) -> None:
        try:
            descriptor = system_calls.pidfd_open(row.pid)
        except ProcessLookupError:
            return
        except OSError as error:
            if error.errno != errno.ENOSYS:
                raise
            raise CannotMove("not_usable", "pidfd_open: {} (needs Linux 5.3)".format(error.strerror)) from None
        uid = _real_uid(row.pid)
        if uid is None or system_calls.has_ended(descriptor):
            os.close(descriptor)
        elif uid == self._uid and row.pid not in _untouchable():
            self._candidates[row.pid] = HeldProcess(row.pid, descriptor)
        else:
            os.close(descriptor)
            if row.step != "extern":  # Slurm itself keeps a sleeping process of root there
                self._foreign.add(row.pid)

    def _wait_until_stopped(self, deadline: float) -> None:
        waiting, stuck_at = self.all, time.monotonic() + _STUCK
        while True:
            before = len(waiting)
            waiting = [process for process in waiting if not is_stopped(process)]
            if not waiting:
                return
            if len(waiting) < before:
                stuck_at = time.monotonic() + _STUCK
            if time.monotonic() > min(deadline, stuck_at):
                pids = " ".join(str(process.pid) for process in waiting[:8])
                raise CannotMove("timeout", "{} processes do not stop: {}".format(len(waiting), pids))
            time.sleep(_PAUSE / 5)


def is_stopped(process: HeldProcess) -> bool:
    """Whether every thread of the process is stopped (or it has ended)."""
    if system_calls.has_ended(process.fd):
        return True
    try:
        threads = os.listdir("/proc/{}/task".format(process.pid))
        return all(_thread_state(process.pid, thread) in _STOPPED_STATES for thread in threads)
    except _GONE:
        return True


def _thread_state(pid: int, thread: str) -> str:
    try:
        with open("/proc/{}/task/{}/stat".format(pid, thread), "rb") as stream:
            # The program's name is in parentheses and may itself hold parentheses.
            return stream.read().rpartition(b")")[2].split()[0].decode("ascii")
    except (*_GONE, IndexError):
        return "X"


def _real_uid(pid: int) -> Optional[int]:
    """The real uid of a process; None if it has ended. Real, so that a setuid program counts as its caller's."""
    try:
        with open("/proc/{}/status".format(pid), "rb") as stream:
            uids = [line.split() for line in stream if line.startswith(b"Uid:")]
    except _GONE:
        return None
    return int(uids[0][1]) if uids else None


def _untouchable() -> Set[int]:
    """Ourselves and our ancestors: stopping these would stop us."""
    found, pid = {1}, os.getpid()
    while pid > 1 and pid not in found:
        found.add(pid)
        try:
            with open("/proc/{}/stat".format(pid), "rb") as stream:
                pid = int(stream.read().rpartition(b")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            break
    return found


def _send(process: HeldProcess, stop: bool) -> None:
    with contextlib.suppress(ProcessLookupError):
        (system_calls.send_stop if stop else system_calls.send_cont)(process.fd)
