"""omfs-node: one JSON request on stdin, one JSON response on stdout; for root only.

request  {"version":1, "do":"out"|"in"|"look", "method":NAME, "node":NAME, "job":RAWID, "uid":UID,
          "timeout":SECONDS, "continue":bool (in), "suspended":bool (out), "options":{...the method's},
          "slurm":{"scontrol":PATH,"conf":PATH}}
         {"version":1, "do":"probe", "node":NAME, "timeout":SECONDS, "options":{METHOD:{...}}, "slurm":{...}}
response {"ok":true, "state":"running"|"out"|"mixed"|"none", "processes":N, "stopped":N, "bytes":B, "freed":B,
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

from omfs_daemon.omfs_node.job_lock import JobLock
from omfs_daemon.omfs_node.job_processes import JobProcesses, ask_slurm, is_stopped
from omfs_daemon.omfs_node.movers import system_calls
from omfs_daemon.omfs_node.movers.mover import NONE, OUT, CannotMove, HeldProcess, Moved, Mover
from omfs_daemon.omfs_node.request import NodeRequest, describe, read_request
from omfs_daemon.protocol import node_request

RUN_DIRECTORY = "/run/omfs-node"
# The class of each method; its module is loaded when needed.
_METHODS = {"pageout": ("movers.pageout", "Pageout"), "ve_swap": ("ve_swap.ve_mover", "VeSwap")}
_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
# Part of the timeout reserved for undoing what was not completed, and its maximum in seconds.
_RESERVED, _MAX_RESERVED = 0.2, 10.0
# How often to stop a job that somebody continues while its memory is moved.
_TRIES = 3
_DESCRIPTORS = 65536
_HANGS = 4.0  # seconds after the timeout when we are considered to hang; the daemon waits a little longer


class _Ended(Exception):
    """A signal asks us to end: what was begun is undone first."""


def main() -> int:
    """Read a request from stdin and write the response to stdout; exit code 0 if it was written."""
    for number in _ENDING:
        signal.signal(number, _on_end)
    try:
        _raise_limits()
        response = respond(sys.stdin.buffer.read(node_request.MAX_BYTES + 1), begun=_set_alarm)
    except BaseException as error:
        response = _fault(error)
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)
    try:
        sys.stdout.write(json.dumps(response, sort_keys=True) + "\n")
        sys.stdout.flush()
    except OSError:
        return 1  # nobody reads it any more
    return 0


def _raise_limits() -> None:
    """Each of a job's processes needs a descriptor, and there may be thousands."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (_DESCRIPTORS, hard):  # root may raise the hard limit, but not in every container
        if soft < wanted:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
                return


def _set_alarm(request: NodeRequest) -> None:
    """Have the kernel kill us if we hang.

    A user can make the kernel block all readers of their processes in /proc; only killing the reader helps, and such
    processes of root would pile up on the node. The next request continues what was left stopped.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, request.timeout + _HANGS)


def run() -> None:
    """Entry point of the zipapp."""
    sys.exit(main())


def respond(
    text: bytes, run_directory: str = RUN_DIRECTORY, begun: Callable[[NodeRequest], None] = lambda _: None
) -> Dict[str, Any]:
    """Carry out a request; raises only when this program is being ended.

    ``begun`` is called when the request is valid, before anything is done.
    """
    try:
        if os.geteuid() != 0:
            raise CannotMove("not_root", "omfs-node must be run by root, not by uid {}".format(os.geteuid()))
        request = read_request(text, sorted(_METHODS))
        begun(request)
        return _probe(request) if request.do == node_request.PROBE else _JobRequest(request, run_directory).do()
    except CannotMove as error:
        return describe(error, None)
    except Exception as error:
        return _fault(error)


class _JobRequest:
    """One request about one job."""

    def __init__(self, request: NodeRequest, run_directory: str) -> None:
        self._request = request
        self._begun = time.monotonic()
        self._end = self._begun + request.timeout
        self._mover = _mover(request.method, request.options)
        self._run_directory = run_directory

    def do(self) -> Dict[str, Any]:
        request = self._request
        if request.do == node_request.LOOK:
            return self._with_processes(self._look)
        with JobLock(self._run_directory, "{}@{}".format(request.job, request.node), self._end):
            return self._with_processes(self._out if request.do == node_request.OUT else self._in)

    def _with_processes(self, work: Any) -> Dict[str, Any]:
        request = self._request
        with JobProcesses(request.slurm, request.node, request.job, request.uid) as job:
            response: Dict[str, Any] = work(job)
            return response

    def _look(self, job: JobProcesses) -> Dict[str, Any]:
        return self._response(job.find(self._end), Moved(0, 0, 0.0))

    def _out(self, job: JobProcesses) -> Dict[str, Any]:
        deadline = self._end - min(_RESERVED * self._request.timeout, _MAX_RESERVED)
        try:
            return self._stop_and_move(job, deadline)
        except BaseException as error:
            failure = error if isinstance(error, CannotMove) else CannotMove("fault", _text(error))
        _ignore_signals()
        return self._undo(job, failure)

    def _stop_and_move(self, job: JobProcesses, deadline: float) -> Dict[str, Any]:
        """Slurm's own SIGCONT may come seconds after ``scontrol resume`` has ended: then try again."""
        moved = Moved(0, 0, 0.0)
        for _ in range(_TRIES):
            processes = job.stop(deadline)
            if processes:
                moved = _sum(moved, self._mover.out(processes, deadline))
            response = self._response(processes, moved)
            if response["state"] in (node_request.MOVED_OUT, node_request.NO_PROCESS):
                return response
        raise CannotMove("continued", "somebody continues the processes as soon as they are stopped")

    def _undo(self, job: JobProcesses, failure: CannotMove) -> Dict[str, Any]:
        """After a failed "out", restore the job: in memory, and running unless Slurm had suspended it."""
        try:
            processes = job.all
            if processes:
                self._mover.bring_in(processes, self._end)
        except BaseException as error:
            message = "{}; memory was not brought back in: {}".format(failure.message, _text(error))
            return describe(CannotMove(failure.why, message), _state_or_none(self._mover, job.all))
        job.resume(all_of_them=not self._request.suspended)
        return describe(failure, _state_or_none(self._mover, job.all))

    def _in(self, job: JobProcesses) -> Dict[str, Any]:
        """Repeated for processes that a step's end kept out of Slurm's list; a running job always has new ones."""
        moved = Moved(0, 0, 0.0)
        seen: List[int] = []
        for _ in range(_TRIES):
            processes = job.find(self._end)
            fresh = [process for process in processes if process.pid not in seen]
            if not fresh:
                break
            seen += [process.pid for process in fresh]
            moved = _sum(moved, self._mover.bring_in(fresh, self._end))
            if self._request.resume:
                job.resume(all_of_them=True)
        # The memory is in: that its state cannot be read in time is no reason to fail.
        return self._response(job.all, moved, _state_or_none(self._mover, job.all) or node_request.MIXED)

    def _response(self, processes: Sequence[HeldProcess], moved: Moved, state: str = "") -> Dict[str, Any]:
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


def _probe(request: NodeRequest) -> Dict[str, Any]:
    end = time.monotonic() + request.timeout
    methods: Dict[str, Any] = {}
    movers: List[Mover] = []
    for name in sorted(_METHODS):
        try:
            mover = _mover(name, request.options.get(name, {}))
            methods[name] = mover.probe()
            movers.append(mover)
        except CannotMove as error:
            methods[name] = {"usable": False, "why": error.why, "message": describe(error, None)["message"]}
    listed: Dict[int, List[int]] = {}
    for row in ask_slurm(request.slurm, request.node, None, end):
        listed.setdefault(row.job, []).append(row.pid)
    jobs = {}
    for job, pids in listed.items():
        if time.monotonic() > end:
            break  # a user has very many processes: respond without the sizes of the remaining jobs
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


def _state(mover: Mover, processes: Sequence[HeldProcess]) -> str:
    """running: none is stopped; out: all are stopped and their memory is out; mixed: anything else."""
    seen = [(process, is_stopped(process)) for process in processes]
    # Checked afterwards: what has ended meanwhile is neither stopped nor running.
    stopped = [is_stopped_now for process, is_stopped_now in seen if not system_calls.has_ended(process.fd)]
    if not stopped:
        return node_request.NO_PROCESS
    if not any(stopped):
        return node_request.RUNNING
    where = mover.state(processes)
    if where == NONE:
        return node_request.NO_PROCESS
    return node_request.MOVED_OUT if all(stopped) and where == OUT else node_request.MIXED


def _state_or_none(mover: Mover, processes: Sequence[HeldProcess]) -> Optional[str]:
    try:
        return _state(mover, processes)
    except Exception:
        return None


def _sum(first: Moved, second: Moved) -> Moved:
    return Moved(first.bytes + second.bytes, first.freed + second.freed, max(first.slowest, second.slowest))


def _fault(error: BaseException) -> Dict[str, Any]:
    return describe(CannotMove("fault", _text(error)), None)


def _text(error: BaseException) -> str:
    if isinstance(error, CannotMove):
        return error.message
    return "{}: {}".format(type(error).__name__, error)


def _ignore_signals() -> None:
    for number in _ENDING:
        try:
            signal.signal(number, signal.SIG_IGN)
        except ValueError:
            return  # not in the main thread (tests)


def _on_end(number: int, _frame: Any) -> None:
    raise _Ended("ended by signal {}".format(number))
