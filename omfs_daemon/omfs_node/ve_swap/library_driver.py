"""VEOS through libveosinfo's public interface.

Each engine has a child process that makes the calls: the library has no timeouts, and it calls abort() when it and VEOS
are of different versions. Requests and responses are lines of JSON.
"""

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

from omfs_daemon.omfs_node.movers.mover import CannotMove
from omfs_daemon.omfs_node.ve_swap.ve_driver import VeDriver, VeProcess, batches, check_trusted, veos_refusal

_MOST = 256  # pids in the library's structures
_END = -1  # must follow the last pid, or the call is refused (ECANCELED)
_PR_SET_PDEATHSIG = 1


class _Pids(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_int * (_MOST + 1)), ("process_num", ctypes.c_int)]


class _Swap(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_int),
        ("proc_state", ctypes.c_int),
        ("proc_substate", ctypes.c_int),
        ("swapped_sz", ctypes.c_ulonglong),
        ("swappable_sz", ctypes.c_ulonglong),
    ]


class _SwapInfo(ctypes.Structure):
    _fields_ = [("len", ctypes.c_int), ("ve_swap", _Swap * _MOST)]


class _NodeInfo(ctypes.Structure):
    _fields_ = [("node_num", ctypes.c_int), ("node_swapped_sz", ctypes.c_ulonglong)]


class _MemInfo(ctypes.Structure):
    # Kilobytes. We ignore the rest of the structure, but the library writes it: leave ample room.
    _fields_ = [
        ("kb_main_total", ctypes.c_ulong),
        ("kb_main_used", ctypes.c_ulong),
        ("kb_main_free", ctypes.c_ulong),
        ("others", ctypes.c_ulong * 61),
    ]


class LibraryDriver(VeDriver):
    """``path``: the library; ``limit``: seconds that one call may take."""

    def __init__(self, path: str, limit: float) -> None:
        self._path = path
        self._limit = limit
        self._children: Dict[int, _Child] = {}

    def open(self, ves: Sequence[int]) -> None:
        """Start missing children; call it before any thread is started, as they are forked."""
        check_trusted(self._path)
        for ve in ves:
            child = self._children.get(ve)
            if child is None or child.dead:
                self._children[ve] = _Child(self._path, ve)

    def close(self) -> None:
        """End the children."""
        for child in self._children.values():
            child.end()
        self._children = {}

    def processes(self, ve: int, pids: Sequence[int]) -> List[VeProcess]:
        """See VeDriver."""
        rows: List[VeProcess] = []
        for batch in batches(pids):
            code, found = self._ask(ve, "info", batch)
            if code:
                raise veos_refusal(ve, "ve_swap_info", code)
            rows.extend(VeProcess(*row) for row in found)
        return rows

    def swap_out(self, ve: int, pids: Sequence[int]) -> int:
        """See VeDriver."""
        return int(self._ask(ve, "out", pids)[0])

    def swap_in(self, ve: int, pids: Sequence[int]) -> int:
        """See VeDriver."""
        return int(self._ask(ve, "in", pids)[0])

    def memory(self, ve: int) -> Optional[Tuple[int, int]]:
        """See VeDriver."""
        code, found = self._ask(ve, "memory")
        if code:
            raise veos_refusal(ve, "ve_mem_info", code)
        return found[0], found[1]

    def area_used(self, ve: int) -> Optional[int]:
        """See VeDriver."""
        code, found = self._ask(ve, "node")
        if code:
            raise veos_refusal(ve, "ve_swap_nodeinfo", code)
        return int(found[0])

    def _ask(self, ve: int, what: str, pids: Sequence[int] = ()) -> Any:
        child = self._children.get(ve)
        if child is None or child.dead:
            raise CannotMove("not_usable", "VE %d: %s: an earlier call failed" % (ve, self._path))
        return child.ask([what, list(pids)], self._limit)


class _Child:
    """The process that calls the library for one engine."""

    def __init__(self, path: str, ve: int) -> None:
        self.dead = False
        self._what = "VE %d: %s" % (ve, path)
        self._socket, other = socket.socketpair()
        self._rest = b""
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid == 0:
            code = 1
            try:
                _serve(other, path, ve)
                code = 0
            finally:
                os._exit(code)  # never return to the caller's code
        other.close()

    def ask(self, request: Any, limit: float) -> Any:
        """Send a request; raises CannotMove if there is no response within ``limit`` seconds or the child dies."""
        end = time.monotonic() + limit
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            while b"\n" not in self._rest:
                left = end - time.monotonic()
                if left <= 0 or not _can_be_read(self._socket, left):
                    self.end()
                    raise CannotMove("tool_hung", "%s: %s: no response within %g s" % (self._what, request[0], limit))
                part = self._socket.recv(1 << 16)
                if not part:
                    raise OSError
                self._rest += part
        except OSError:
            self.end()
            raise CannotMove(
                "tool_failed", "%s: %s: the library ended its process" % (self._what, request[0])
            ) from None
        line, self._rest = self._rest.split(b"\n", 1)
        response = json.loads(line.decode())
        if isinstance(response, str):
            raise CannotMove("not_usable", "%s: %s" % (self._what, response))
        return response

    def end(self) -> None:
        """Kill it; nothing is lost, as requests that VEOS accepted are in VEOS."""
        if not self.dead:
            self.dead = True
            self._socket.close()
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)


def _can_be_read(connection: socket.socket, seconds: float) -> bool:
    # Not select(): with a job of a thousand processes, descriptors exceed its limit.
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _serve(connection: socket.socket, path: str, ve: int) -> None:
    # In the child. Standard output is for omfs-node's response, so the library must not write there.
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    for descriptor in [int(name) for name in os.listdir("/proc/self/fd")]:
        if descriptor > 2 and descriptor != connection.fileno():
            with contextlib.suppress(OSError):  # that of this listing is already closed
                os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    problem = ""
    library: Any = None
    try:
        library = ctypes.CDLL(path)
        for name in ("ve_swap_out", "ve_swap_in", "ve_swap_info", "ve_swap_nodeinfo", "ve_mem_info"):
            getattr(library, name)
    except (OSError, AttributeError) as error:
        problem = " ".join(str(error).split())
    with connection.makefile("rwb") as stream:
        for line in stream:
            what, pids = json.loads(line.decode())
            response = problem or _call(library, ve, what, pids)
            stream.write(json.dumps(response).encode() + b"\n")
            stream.flush()


def _call(library: Any, ve: int, what: str, pids: List[int]) -> Tuple[int, List[Any]]:
    if what == "memory":
        memory = _MemInfo()
        code = library.ve_mem_info(ve, ctypes.byref(memory))
        return code, [memory.kb_main_total * 1024, memory.kb_main_free * 1024]
    if what == "node":
        node = _NodeInfo()
        code = library.ve_swap_nodeinfo(ve, ctypes.byref(node))
        return code, [node.node_swapped_sz]
    given = _Pids()
    for place, pid in enumerate([*pids, _END]):
        given.pid[place] = pid
    given.process_num = len(pids)
    if what == "out":
        return library.ve_swap_out(ve, ctypes.byref(given)), []
    if what == "in":
        return library.ve_swap_in(ve, ctypes.byref(given)), []
    info = _SwapInfo()
    code = library.ve_swap_info(ve, ctypes.byref(given), ctypes.byref(info))
    rows = [
        # The pid of the request: VEOS returns that of its own namespace.
        [pid, row.proc_state, row.proc_substate, row.swapped_sz, row.swappable_sz]
        for pid, row in ((pid, info.ve_swap[place]) for place, pid in enumerate(pids))
    ]
    return code, rows
