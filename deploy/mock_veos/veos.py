#!/usr/bin/env python3
"""Mock VEOS: a service on a Unix socket that swaps the memory of real, stopped processes on simulated engines.

    veos.py --socket S --ves 2 --memory 48G --area 32G --bandwidth 6G
    veos.py --socket S --ask show

Needs only Python 3.6. `libveosinfo.so` and `veswap` beside it send requests as root or as the processes' owner;
`ve_program.py` is a program that has memory on an engine. Each connection has one request, a line of words; the first
line of the response starts with 0 or -errno. A program's connection stays open: when it closes, the program has ended.
"""

import argparse
import contextlib
import errno
import json
import os
import re
import socket
import socketserver
import struct
import sys
import time
from typing import Any, Dict, List

from vector_engine import Caller, Engine

_LONGEST = 16384  # characters of a request
_MOST_PIDS = 64  # in a batch
_DEAF = 0.05  # seconds between two checks whether it may respond
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_OF_PROCESS = ("partial", "eperm", "kill", "lie")
_OF_ENGINE = ("hang", "enotsup", "efault", "eio")
_OF_SERVICE = ("deaf", "abort")


class BadRequest(Exception):
    """The request is invalid; the negative errno is the response."""


class Service(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """The engines behind one socket."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, path: str, engines: List[Engine]) -> None:
        super().__init__(path, Conversation)
        self.engines = engines
        self.faults: Dict[str, int] = {}  # of the whole service
        self.orders: List[str] = []  # swap requests in order, for tests

    def engine(self, number: int) -> Engine:
        """An engine by its number."""
        if not 0 <= number < len(self.engines):
            raise BadRequest(-errno.ENODEV)
        return self.engines[number]

    def control(self, caller: Caller, words: List[str]) -> str:
        """Requests of tests and demos: show, fault, unfault, bandwidth."""
        if caller.uid not in (0, os.getuid()):
            raise BadRequest(-errno.EACCES)
        if words[0] == "show":
            return "0\n" + json.dumps(self.show()) + "\n"
        if words[0] == "bandwidth":
            for engine in self.engines:
                engine.bandwidth = float(size(words[1]))
        else:
            faults, value = self.faults_of(words[1:])
            if words[0] == "fault":
                faults[words[1]] = value
            else:
                faults.pop(words[1], None)
        return "0\n"

    def faults_of(self, words: List[str]) -> Any:
        """The faults to change, and the value: KIND [PID|VE [VALUE]]."""
        kind = words[0]
        value = size(words[2]) if len(words) > 2 else 1
        if kind in _OF_SERVICE:
            return self.faults, value
        if kind in _OF_ENGINE:
            return self.engine(int(words[1])).faults, value
        if kind in _OF_PROCESS:
            for engine in self.engines:
                process = engine.processes.get(int(words[1]))
                if process:
                    return process.faults, value
            raise BadRequest(-errno.ESRCH)
        raise BadRequest(-errno.EINVAL)

    def show(self) -> Dict[str, Any]:
        """The whole state, for tests."""
        engines = []
        for engine in self.engines:
            with engine.changed:
                processes = {
                    str(process.pid): {
                        "sub": "-aosi"[process.sub],
                        "resident": process.resident,
                        "swapped": process.swapped,
                        "fixed": process.fixed,
                        "uid": process.uid,
                    }
                    for process in engine.processes.values()
                }
                engines.append(
                    {
                        "ve": engine.number,
                        "memory": engine.memory,
                        "free": engine.free(),
                        "area": engine.area,
                        "area_used": engine.used_area(),
                        "processes": processes,
                        "violations": list(engine.violations),
                    }
                )
        return {"engines": engines, "orders": list(self.orders)}


class Conversation(socketserver.StreamRequestHandler):
    """One connection."""

    server: Service

    def handle(self) -> None:
        """Respond to one request; after ``register``, stay until the program ends."""
        credentials = self.request.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        caller = Caller(*struct.unpack("3i", credentials))
        words = self.rfile.readline(_LONGEST).decode("ascii", "replace").split()
        try:
            if words and words[0] == "register":
                self.stay(caller, [size(word) for word in words[1:]])
                return
            answer = self.answer(caller, words)
        except BadRequest as error:
            answer = "%d\n" % error.args[0]
        except (ValueError, IndexError, TypeError):
            answer = "%d\n" % -errno.EINVAL
        with contextlib.suppress(OSError):  # the client has disconnected
            self.wfile.write(answer.encode("ascii"))

    def answer(self, caller: Caller, words: List[str]) -> str:
        """The response to a request."""
        if words[0] in ("show", "bandwidth", "fault", "unfault"):
            return self.server.control(caller, words)
        while "deaf" in self.server.faults:
            time.sleep(_DEAF)
        if "abort" in self.server.faults:
            return "abort\n"
        engine = self.server.engine(int(words[1]))
        if words[0] == "memory":
            with engine.changed:
                return "0 %d %d\n" % (engine.memory, engine.free())
        if words[0] == "node":
            with engine.changed:
                if "enotsup" in engine.faults:
                    return "%d\n" % -errno.ENOTSUP
                return "0 %d\n" % engine.used_area()
        pids = _pids(words[2:])
        if words[0] in ("out", "in"):
            self.server.orders.append("%s %d %s" % (words[0], engine.number, ",".join(map(str, pids))))
            return "%d\n" % (engine.swap_out if words[0] == "out" else engine.swap_in)(caller, pids)
        if words[0] == "info":
            rows = [" ".join(map(str, engine.info(caller, pid))) for pid in pids]
        elif words[0] == "fixed":
            rows = ["%d %d" % (pid, engine.not_swappable(caller, pid)) for pid in pids]
        else:
            raise BadRequest(-errno.EINVAL)
        return "\n".join(["0 %d" % len(rows), *rows]) + "\n"

    def stay(self, caller: Caller, numbers: List[int]) -> None:
        """Serve a program: a line for each use of its memory, with a response when it may proceed."""
        number, memory, fixed = numbers
        engine = self.server.engine(number)
        code = engine.register(caller, memory, fixed)
        self.wfile.write(b"%d\n" % code)
        if code:
            return
        try:
            while self.rfile.readline(_LONGEST) and engine.compute(caller.pid):
                self.wfile.write(b"0\n")
        except OSError:
            pass
        finally:
            engine.remove(caller.pid)


def _pids(words: List[str]) -> List[int]:
    # process_num, the pids, and the end mark.
    count, values = int(words[0]), [int(word) for word in words[1:]]
    if not 0 <= count <= _MOST_PIDS or len(values) != count + 1 or values[count] != -1:
        raise BadRequest(-errno.ECANCELED)
    return values[:count]


def size(text: str) -> int:
    """Bytes, from a number with an optional suffix K, M, G or T."""
    match = re.match(r"(\d+(?:\.\d+)?)([KMGT]?)$", text)
    if not match:
        raise argparse.ArgumentTypeError("%r: a number of bytes, such as 512M" % text)
    return int(float(match.group(1)) * _UNITS[match.group(2)])


def ask(path: str, request: str) -> int:
    """Print the service's response to a request; exit code 1 if it is an error."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(path)
        connection.sendall((request + "\n").encode("ascii"))
        with connection.makefile("r", encoding="ascii") as stream:
            code, _, rest = stream.read().partition("\n")
    if code != "0":
        print("veos: %s: %s" % (request, os.strerror(abs(int(code or -errno.EIO)))), file=sys.stderr)
        return 1
    print(rest, end="")
    return 0


def main(arguments: List[str]) -> int:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description="Mock VEOS: simulated vector engines, for tests and demos.")
    parser.add_argument("--socket", required=True, help="path of the Unix socket; it is replaced")
    parser.add_argument("--ves", type=int, default=1, help="number of vector engines")
    parser.add_argument("--memory", type=size, default=size("48G"), help="device memory of each engine")
    parser.add_argument("--area", type=size, default=size("32G"), help="swap area of each engine")
    parser.add_argument("--bandwidth", type=size, default=size("6G"), help="bytes a second, each engine")
    parser.add_argument("--ask", metavar="REQUEST", help="send a request to the running service (show, fault ...)")
    options = parser.parse_args(arguments)
    if options.ask:
        return ask(options.socket, options.ask)
    if os.path.exists(options.socket):
        os.unlink(options.socket)
    engines = [Engine(ve, options.memory, options.area, float(options.bandwidth)) for ve in range(options.ves)]
    service = Service(options.socket, engines)
    os.chmod(options.socket, 0o666)  # anybody may connect; SO_PEERCRED decides who may do what
    with contextlib.suppress(KeyboardInterrupt):
        service.serve_forever(poll_interval=1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
