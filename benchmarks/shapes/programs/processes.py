"""Shapes by processes. Python 3.6."""

import contextlib
import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import time

from stepping import LIBC, is_finished, main, must, opened, steps, write

SHELL = "/bin/sh"


def fork_wait():
    """A child for each step, waited for."""
    for number in steps():
        _require(os.waitpid(_child(number % 200), 0)[1], number % 200)
    return 7


def _child(code, seconds=0.0):
    pid = os.fork()
    if pid == 0:
        if seconds:
            time.sleep(seconds)
        os._exit(code)
    return pid


def _require(status, code):
    must(os.WIFEXITED(status) and os.WEXITSTATUS(status) == code, "wait status {} and not {}".format(status, code))


def fork_long():
    """A child that lives as long as it, and counts too."""
    pid = os.fork()
    if pid == 0:
        out, number = opened("out-child"), 0
        while not is_finished():
            number += 1
            write(out, number)
            time.sleep(0.02)
        os._exit(5)
    for _ in steps():
        pass
    _require(os.waitpid(pid, 0)[1], 5)
    return 7


def popen():
    """A shell for each step."""
    for number in steps():
        code = subprocess.Popen([SHELL, "-c", "exit {}".format(number % 200)]).wait()
        must(code == number % 200, "exit code {} and not {}".format(code, number % 200))
    return 7


def popen_output():
    """A shell for each step, its output read."""
    for number in steps():
        said = subprocess.run([SHELL, "-c", "echo {}".format(number)], stdout=subprocess.PIPE, check=True).stdout
        must(said == b"%d\n" % number, "a child said {!r}".format(said))
    return 7


def posix_spawn():
    """The same with posix_spawn."""
    for number in steps():
        pid = os.posix_spawn(SHELL, [SHELL, "-c", "exit {}".format(number % 200)], os.environ)
        _require(os.waitpid(pid, 0)[1], number % 200)
    return 7


def system():
    """The same with system(3)."""
    for number in steps():
        _require(LIBC.system(b"exit %d" % (number % 200)), number % 200)
    return 7


def pool():
    """A pool of two workers."""
    with multiprocessing.Pool(2) as workers:
        for number in steps():
            must(workers.map(abs, range(-number, -number + 8)) == [abs(number - one) for one in range(8)], "wrong")
    return 7


def zombie():
    """A child that has ended and is waited for only at the next step."""
    pid, code = _child(1), 1
    for number in steps(0.05):
        _require(os.waitpid(pid, 0)[1], code)
        code = number % 200
        pid = _child(code)
    _require(os.waitpid(pid, 0)[1], code)
    return 7


def zombie_200():
    """The same, always with an exit code above 127."""
    pid = _child(200)
    for _ in steps(0.05):
        _require(os.waitpid(pid, 0)[1], 200)
        pid = _child(200)
    _require(os.waitpid(pid, 0)[1], 200)
    return 7


def groups():
    """Children in a process group of their own, waited for by the group."""
    for number in steps():
        first = os.fork()
        if first == 0:
            os.setpgid(0, 0)
            time.sleep(0.02)
            os._exit(number % 200)
        with contextlib.suppress(PermissionError):  # it was faster
            os.setpgid(first, first)
        _require(os.waitpid(-first, 0)[1], number % 200)
        _child(number % 100)
        _require(os.waitpid(0, 0)[1], number % 100)
    return 7


def sigchld():
    """Told by SIGCHLD of children that end, which it then waits for."""
    told = []
    signal.signal(signal.SIGCHLD, lambda *_: told.append(1))
    for number in steps():
        del told[:]
        pid = _child(number % 200, 0.01)
        end = time.monotonic() + 60
        while not told and time.monotonic() < end:
            time.sleep(0.005)
        must(told, "SIGCHLD is missing")
        _require(os.waitpid(pid, 0)[1], number % 200)
    return 7


def ignored():
    """Children that nobody waits for (SIGCHLD is ignored)."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for number in steps(0.05):
        _child(number % 200)
    return 7


def grandchildren():
    """Children with children, each step."""
    for number in steps():
        pid = os.fork()
        if pid == 0:
            status = os.waitpid(_child(number % 100), 0)[1]
            os._exit(os.WEXITSTATUS(status) + 100)
        _require(os.waitpid(pid, 0)[1], number % 100 + 100)
    return 7


def daemon():
    """A process in a session of its own that has lost its parent, and counts into a file."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        if os.fork() == 0:
            out, number = opened("out-daemon"), 0
            while not is_finished():
                number += 1
                write(out, number)
                time.sleep(0.02)
        os._exit(0)
    _require(os.waitpid(pid, 0)[1], 0)
    for _ in steps():
        pass
    return 7


def own_exec():
    """Becomes another program every few steps; the number is an argument."""
    number = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    out = opened()
    for _ in range(25):
        number += 1
        write(out, number)
        time.sleep(0.02)
        if is_finished():
            return 7
    os.execv(sys.executable, [sys.executable, sys.argv[0], sys.argv[1], str(number)])  # noqa: S606
    return 1


def killed():
    """Children that it ends with a signal."""
    for _ in steps():
        pid = _child(0, 3600)
        os.kill(pid, signal.SIGTERM)
        status = os.waitpid(pid, 0)[1]
        must(os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM, "wait status {}".format(status))
    return 7


def reaper():
    """The parent of what its descendants leave behind (PR_SET_CHILD_SUBREAPER)."""
    must(LIBC.prctl(36, ctypes.c_ulong(1), 0, 0, 0) == 0, "not permitted")
    for number in steps():
        pid = os.fork()
        if pid == 0:
            _child(number % 200, 0.01)
            os._exit(3)
        left = {pid: 3}
        status = os.waitpid(pid, 0)[1]
        _require(status, left[pid])
        _require(os.waitpid(-1, 0)[1], number % 200)
    return 7


TABLE = {
    "fork wait": fork_wait,
    "fork long": fork_long,
    "popen": popen,
    "popen output": popen_output,
    "posix_spawn": posix_spawn,
    "system": system,
    "pool": pool,
    "zombie": zombie,
    "zombie 200": zombie_200,
    "groups": groups,
    "sigchld": sigchld,
    "ignored": ignored,
    "grandchildren": grandchildren,
    "daemon": daemon,
    "exec": own_exec,
    "killed": killed,
    "reaper": reaper,
}

if __name__ == "__main__":
    main(TABLE)
