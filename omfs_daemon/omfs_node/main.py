"""omfs-node: one JSON request on stdin, one JSON answer on stdout. Root's, and for root only.

request  {"version":1, "do":"out"|"in"|"look", "method":NAME, "node":NAME, "job":RAWID, "uid":UID,
          "timeout":SECONDS, "continue":bool (in), "suspended":bool (out), "options":{...the method's},
          "slurm":{"scontrol":PATH,"conf":PATH}}
         {"version":1, "do":"probe", "node":NAME, "timeout":SECONDS, "options":{METHOD:{...}}, "slurm":{...}}
answer   {"ok":true, "state":"running"|"out"|"mixed"|"none", "processes":N, "stopped":N, "bytes":B, "freed":B,
          "seconds":S, "slowest":S}
         {"ok":true, "methods":{METHOD:{"usable":bool,"why":CODE,...}}, "jobs":{JOB:{"resident":B,...}}}
         {"ok":false, "why":CODE, "message":LINE, "state":...}
"""

import contextlib
import importlib
import json
import os
import resource
import signal
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

from omfs_daemon.omfs_node.movers import system_calls as kernel
from omfs_daemon.protocol.node_request import LIMIT as requests_LIMIT
from omfs_daemon.omfs_node.request import describe as requests_describe
from omfs_daemon.omfs_node.request import read as requests_read
from omfs_daemon.omfs_node.job_lock import JobLock
from omfs_daemon.omfs_node.movers.mover import NONE
from omfs_daemon.omfs_node.movers.mover import OUT
from omfs_daemon.omfs_node.movers.mover import CannotMove
from omfs_daemon.omfs_node.movers.mover import Moved
from omfs_daemon.omfs_node.movers.mover import Mover
from omfs_daemon.omfs_node.movers.mover import Process
from omfs_daemon.omfs_node.job_processes import JobProcesses
from omfs_daemon.omfs_node.job_processes import ask_slurm
from omfs_daemon.omfs_node.job_processes import is_stopped
from omfs_daemon.omfs_node.request import Request

RUN_DIRECTORY = "/run/omfs-node"
# Where each method is: a module is loaded only when it is asked for.
_METHODS = {"pageout": ("movers.pageout", "Pageout"), "ve_swap": ("ve_swap.ve_mover", "VeSwap")}
_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
# Part of the time that is kept for putting things back if the rest was not enough; at most so many seconds.
_KEPT, _KEPT_MOST = 0.2, 10.0
# How often a job is stopped that somebody continues while its memory is moved.
_TRIES = 3
_DESCRIPTORS = 65536
_HANGS = 4.0  # seconds over its time after which we are taken to hang; the daemon waits a little longer


class _Ended(Exception):
    """A signal asks us to end: what was begun is put back first."""


def main() -> int:
    """Read one request from stdin, write its answer to stdout. Exit code 0 if an answer was written."""
    for number in _ENDING:
        signal.signal(number, _on_end)
    try:
        _raise_limits()
        answer = answer_to(sys.stdin.buffer.read(requests_LIMIT + 1), begun=_end_by)
    except BaseException as error:
        answer = _fault(error)
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)
    try:
        sys.stdout.write(json.dumps(answer, sort_keys=True) + "\n")
        sys.stdout.flush()
    except OSError:
        return 1  # nobody listens any more
    return 0


def _raise_limits() -> None:
    """A job may have thousands of processes, and each costs us a descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (_DESCRIPTORS, hard):  # root may raise the hard limit, but not in every container
        if soft < wanted:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
                return


def _end_by(asked: Request) -> None:
    """Be killed if we hang: a user can make the kernel hold whoever reads of his processes in /proc, and only the
    reader's end helps. Such readers of root's would pile up on the node. What is stopped then is let run by the next
    request."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, asked.timeout + _HANGS)


def run() -> None:
    """The entry of the single-file program; the exit code is main()'s."""
    sys.exit(main())


def answer_to(
    text: bytes, run_directory: str = RUN_DIRECTORY, begun: Callable[[Request], None] = lambda _: None
) -> Dict[str, Any]:
    """Do what the request says; never raises for anything but the end of this program.

    ``begun`` is called when the request is understood, before anything is done.
    """
    try:
        if os.geteuid() != 0:
            raise CannotMove("not_root", "omfs-node must be run by root, not by uid {}".format(os.geteuid()))
        asked = requests_read(text, sorted(_METHODS))
        begun(asked)
        return _probe(asked) if asked.do == "probe" else _Work(asked, run_directory).do()
    except CannotMove as error:
        return requests_describe(error, None)
    except Exception as error:
        return _fault(error)


class _Work:
    """One request about one job."""

    def __init__(self, asked: Request, run_directory: str) -> None:
        self._asked = asked
        self._begun = time.monotonic()
        self._end = self._begun + asked.timeout
        self._mover = _mover(asked.method, asked.options)
        self._run_directory = run_directory

    def do(self) -> Dict[str, Any]:
        asked = self._asked
        if asked.do == "look":
            return self._with_processes(self._look)
        with JobLock(self._run_directory, "{}@{}".format(asked.job, asked.node), self._end):
            return self._with_processes(self._out if asked.do == "out" else self._in)

    def _with_processes(self, work: Any) -> Dict[str, Any]:
        asked = self._asked
        with JobProcesses(asked.slurm, asked.node, asked.job, asked.uid) as job:
            answer: Dict[str, Any] = work(job)
            return answer

    def _look(self, job: JobProcesses) -> Dict[str, Any]:
        return self._done(job.find(self._end), Moved(0, 0, 0.0))

    def _out(self, job: JobProcesses) -> Dict[str, Any]:
        deadline = self._end - min(_KEPT * self._asked.timeout, _KEPT_MOST)
        try:
            return self._stop_and_move(job, deadline)
        except BaseException as error:
            failure = error if isinstance(error, CannotMove) else CannotMove("fault", _text(error))
        _ignore_signals()
        return self._put_back(job, failure)

    def _stop_and_move(self, job: JobProcesses, deadline: float) -> Dict[str, Any]:
        """Slurm's own SIGCONT of a resume may come seconds after ``scontrol resume`` has ended: then once more."""
        moved = Moved(0, 0, 0.0)
        for _ in range(_TRIES):
            processes = job.stop(deadline)
            if processes:
                moved = _sum(moved, self._mover.out(processes, deadline))
            answer = self._done(processes, moved)
            if answer["state"] in ("out", "none"):
                return answer
        raise CannotMove("continued", "somebody lets the processes run again as soon as they are stopped")

    def _put_back(self, job: JobProcesses, failure: CannotMove) -> Dict[str, Any]:
        """After a failed "out" the job is as it was: in memory, and running unless Slurm had suspended it."""
        try:
            processes = job.all
            if processes:
                self._mover.bring_in(processes, self._end)
        except BaseException as error:
            message = "{}; and not brought back: {}".format(failure.message, _text(error))
            return requests_describe(CannotMove(failure.why, message), _state_or_none(self._mover, job.all))
        job.let_run(all_of_them=not self._asked.suspended)
        return requests_describe(failure, _state_or_none(self._mover, job.all))

    def _in(self, job: JobProcesses) -> Dict[str, Any]:
        """Once more for those that a step's end kept out of Slurm's list; a job that runs has new ones all the time."""
        moved = Moved(0, 0, 0.0)
        seen: List[int] = []
        for _ in range(_TRIES):
            processes = job.find(self._end)
            fresh = [process for process in processes if process.pid not in seen]
            if not fresh:
                break
            seen += [process.pid for process in fresh]
            moved = _sum(moved, self._mover.bring_in(fresh, self._end))
            if self._asked.let_run:
                job.let_run(all_of_them=True)
        # It is in; that where it is cannot be told any more, for all the time that it takes, is no reason to fail.
        return self._done(job.all, moved, _state_or_none(self._mover, job.all) or "mixed")

    def _done(self, processes: Sequence[Process], moved: Moved, state: str = "") -> Dict[str, Any]:
        return {
            "ok": True,
            "state": state or _state(self._mover, processes),
            "processes": len(processes),
            "stopped": sum(1 for process in processes if is_stopped(process)),
            "bytes": moved.bytes,
            "freed": moved.freed,
            "seconds": round(time.monotonic() - self._begun, 4),
            "slowest": round(moved.slowest, 4),
        }


def _probe(asked: Request) -> Dict[str, Any]:
    end = time.monotonic() + asked.timeout
    methods: Dict[str, Any] = {}
    movers: List[Mover] = []
    for name in sorted(_METHODS):
        try:
            mover = _mover(name, asked.options.get(name, {}))
            methods[name] = mover.probe()
            movers.append(mover)
        except CannotMove as error:
            methods[name] = {"usable": False, "why": error.why, "message": requests_describe(error, None)["message"]}
    listed: Dict[int, List[int]] = {}
    for row in ask_slurm(asked.slurm, asked.node, None, end):
        listed.setdefault(row.job, []).append(row.pid)
    jobs = {}
    for job, pids in listed.items():
        if time.monotonic() > end:
            break  # a user's many processes: what is known of the node is worth more than the sizes of the last jobs
        jobs[str(job)] = {mover.held_name: mover.held(pids) for mover in movers}
    return {"ok": True, "methods": methods, "jobs": jobs}


def _mover(name: str, options: Dict[str, Any]) -> Mover:
    module, kind = _METHODS[name]
    try:
        found = getattr(importlib.import_module("." + module, __package__), kind)
    except ImportError as error:
        raise CannotMove("not_usable", "{} is not in this omfs-node: {}".format(name, error)) from None
    made: Mover = found(options)
    return made


def _state(mover: Mover, processes: Sequence[Process]) -> str:
    """running: none is stopped; out: all are stopped and their memory is out; mixed: anything between."""
    seen = [(process, is_stopped(process)) for process in processes]
    # Looked at afterwards: what ends meanwhile neither stands nor runs.
    stopped = [stands for process, stands in seen if not kernel.has_ended(process.fd)]
    if not stopped:
        return "none"
    if not any(stopped):
        return "running"
    where = mover.state(processes)
    if where == NONE:
        return "none"
    return "out" if all(stopped) and where == OUT else "mixed"


def _state_or_none(mover: Mover, processes: Sequence[Process]) -> Optional[str]:
    try:
        return _state(mover, processes)
    except Exception:
        return None


def _sum(first: Moved, second: Moved) -> Moved:
    return Moved(first.bytes + second.bytes, first.freed + second.freed, max(first.slowest, second.slowest))


def _fault(error: BaseException) -> Dict[str, Any]:
    return requests_describe(CannotMove("fault", _text(error)), None)


def _text(error: BaseException) -> str:
    if isinstance(error, CannotMove):
        return error.message
    return "{}: {}".format(type(error).__name__, error)


def _ignore_signals() -> None:
    for number in _ENDING:
        try:
            signal.signal(number, signal.SIG_IGN)
        except ValueError:
            return  # not in the main thread: a test


def _on_end(number: int, _frame: Any) -> None:
    raise _Ended("ended by signal {}".format(number))
