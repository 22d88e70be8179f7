"""Shapes by pipes, sockets, timers, and events. Python 3.6."""

import ctypes
import os
import select
import signal
import socket
import struct
import sys
import threading
import time

from stepping import LIBC, main, must, must_permit, steps

NUMBER = struct.Struct("<q")
PATIENCE = 60.0  # seconds for a timer that is due


def _served(make):
    """A child that answers each number with its double, through what ``make`` gives to both (read, write)."""
    here, there = make()
    pid = os.fork()
    if pid == 0:
        for one in set(here):
            os.close(one)
        while True:
            asked = os.read(there[0], 8)
            if not asked:
                os._exit(5)
            os.write(there[1], NUMBER.pack(2 * NUMBER.unpack(asked)[0]))
    for one in set(there):
        os.close(one)
    for number in steps():
        os.write(here[1], NUMBER.pack(number))
        must(NUMBER.unpack(os.read(here[0], 8))[0] == 2 * number, "a wrong answer")
    for one in set(here):
        os.close(one)
    must(os.WEXITSTATUS(os.waitpid(pid, 0)[1]) == 5, "a child has lost its exit code")
    return 7


def pipes():
    """Two pipes to a child."""

    def make():
        (from_child, child_writes), (child_reads, to_child) = os.pipe(), os.pipe()
        return (from_child, to_child), (child_reads, child_writes)

    return _served(make)


def _ends(one, other):
    first, second = one.detach(), other.detach()
    return (first, first), (second, second)


def socket_pair():
    """A socket pair to a child."""
    return _served(lambda: _ends(*socket.socketpair()))


def duplicate():
    """The same, with a duplicate (dup) of the parent's end."""

    def make():
        here, there = _ends(*socket.socketpair())
        return (here[0], os.dup(here[0])), there

    return _served(make)


def duplicate_pipe():
    """Duplicates of the ends of a pipe."""
    read, write = os.pipe()
    again = os.dup(write)
    for number in steps():
        for end in (write, again):
            os.write(end, NUMBER.pack(number))
            must(os.read(read, 8) == NUMBER.pack(number), "a wrong answer")
    return 7


def duplicate_alone():
    """Duplicates of the ends of a socket pair, in one process."""
    one, other = socket.socketpair()
    again = os.dup(one.fileno())
    for number in steps():
        for end in (one.fileno(), again):
            os.write(end, NUMBER.pack(number))
            must(os.read(other.fileno(), 8) == NUMBER.pack(number), "a wrong answer")
    return 7


def unix_socket():
    """A Unix socket with a name, to a child."""

    def make():
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind("socket")
            listening.listen(1)
            client = socket.socket(socket.AF_UNIX)
            client.connect("socket")
            server = listening.accept()[0]
        os.unlink("socket")
        return _ends(client, server)

    return _served(make)


def tcp():
    """A TCP connection to a child."""

    def make():
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen(1)
            client = socket.create_connection(listening.getsockname())
            server = listening.accept()[0]
        return _ends(client, server)

    return _served(make)


def listening():
    """A listening TCP socket, connected to anew at each step."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(4)
        for number in steps():
            with socket.create_connection(server.getsockname()) as client:
                with server.accept()[0] as accepted:
                    accepted.sendall(NUMBER.pack(number))
                must(client.recv(8) == NUMBER.pack(number), "a connection fails")
    return 7


def udp():
    """A UDP socket that talks to itself."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        for number in steps():
            one.sendto(NUMBER.pack(number), one.getsockname())
            must(one.recv(8) == NUMBER.pack(number), "a datagram is lost")
    return 7


def full_pipe():
    """A pipe that always holds what is read only at the next step."""
    read, write = os.pipe()
    os.write(write, b"x" * 5000)
    for _ in steps():
        os.write(write, b"y" * 5000)
        must(len(os.read(read, 5000)) == 5000, "a pipe has lost what was in it")
    must(len(os.read(read, 9999)) == 5000, "a pipe has lost what was in it")
    return 7


def eventfd():
    """An event descriptor that holds a number."""
    event = LIBC.eventfd(5, 0)
    for _ in steps():
        must(NUMBER.unpack(os.read(event, 8))[0] == 5, "the number has changed")
        os.write(event, NUMBER.pack(5))
    return 7


def epoll():
    """Polls a pipe through epoll."""
    read, write = os.pipe()
    poll = select.epoll()
    poll.register(read, select.EPOLLIN)
    for number in steps():
        must(poll.poll(0) == [], "an event too many")
        os.write(write, NUMBER.pack(number))
        must([one[0] for one in poll.poll(PATIENCE)] == [read], "an event is missing")
        os.read(read, 8)
    return 7


def signalfd():
    """Reads signals from a descriptor."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
    mask = (ctypes.c_uint64 * 16)(1 << (signal.SIGHUP - 1))
    descriptor = LIBC.signalfd(-1, ctypes.byref(mask), 0)
    must_permit(descriptor >= 0, "signalfd")
    for _ in steps():
        os.kill(os.getpid(), signal.SIGHUP)
        must(struct.unpack("<I", os.read(descriptor, 128)[:4])[0] == signal.SIGHUP, "another signal")
    return 7


def blocked():
    """A signal that is blocked and pending until the next step."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
    os.kill(os.getpid(), signal.SIGHUP)
    for _ in steps():
        must(signal.SIGHUP in signal.sigpending(), "a pending signal is lost")
        must(signal.sigwait([signal.SIGHUP]) == signal.SIGHUP, "another signal")
        os.kill(os.getpid(), signal.SIGHUP)
    return 7


def timerfd():
    """A repeating timer read from a descriptor."""
    descriptor = LIBC.timerfd_create(1, 0)
    every = struct.pack("<qqqq", 0, 20000000, 0, 20000000)
    must_permit(descriptor >= 0 and LIBC.timerfd_settime(descriptor, 0, every, None) == 0, "timerfd")
    for _ in steps():
        must(select.select([descriptor], [], [], PATIENCE)[0], "the timer has stopped")
        os.read(descriptor, 8)
    return 7


def _until_told(told, what):
    end = time.monotonic() + PATIENCE
    while not told:
        must(time.monotonic() < end, what)
        time.sleep(0.01)
    del told[:]


def repeating():
    """A repeating interval timer."""
    told = []
    signal.signal(signal.SIGALRM, lambda *_: told.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    for _ in steps():
        _until_told(told, "the timer has stopped")
    signal.setitimer(signal.ITIMER_REAL, 0)
    return 7


def once():
    """Interval timers that fire once: long ones, and short ones, of which a checkpoint often finds one fired."""
    told = []
    signal.signal(signal.SIGALRM, lambda *_: told.append(1))
    for _ in steps():
        for seconds in (0.2, *[0.01] * 10):
            signal.setitimer(signal.ITIMER_REAL, seconds)
            _until_told(told, "the timer did not fire")
            must(signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0), "the timer repeats")
    return 7


def alarm():
    """alarm(2), of which it always waits for one."""
    told = []
    signal.signal(signal.SIGALRM, lambda *_: told.append(1))
    for _ in steps():
        signal.alarm(1)
        _until_told(told, "the alarm did not come")
    return 7


def posix_timer():
    """A repeating timer of timer_create(2)."""
    told = []
    signal.signal(signal.SIGALRM, lambda *_: told.append(1))
    timer = ctypes.c_void_p()
    every = struct.pack("<qqqq", 0, 20000000, 0, 20000000)
    must_permit(LIBC.timer_create(1, None, ctypes.byref(timer)) == 0, "timer_create(2)")
    must(LIBC.timer_settime(timer, 0, every, None) == 0, "timer_settime fails")
    for _ in steps():
        _until_told(told, "the timer has stopped")
    LIBC.timer_delete(timer)
    return 7


def pidfd():
    """A descriptor of a child, polled for its end."""
    for number in steps(0.0):
        pid = os.fork()
        if pid == 0:
            time.sleep(0.05)
            os._exit(number % 200)
        descriptor = LIBC.syscall(434, pid, 0)
        must_permit(descriptor >= 0, "pidfd")
        must(select.select([descriptor], [], [], PATIENCE)[0], "the end of a child was not told")
        os.close(descriptor)
        must(os.WEXITSTATUS(os.waitpid(pid, 0)[1]) == number % 200, "an exit code is lost")
    return 7


def terminal():
    """A pseudoterminal of its own."""
    master, slave = os.openpty()
    for number in steps():
        os.write(slave, b"%d\n" % number)
        line = b""
        while not line.endswith(b"\n"):
            line += os.read(master, 100)
        must(line == b"%d\r\n" % number, "the terminal has changed")
    return 7


def thread_pipe():
    """A thread that blocks in a read of a pipe."""
    read, write = os.pipe()
    back_read, back_write = os.pipe()

    def other():
        while True:
            got = os.read(read, 8)
            if not got:
                return
            os.write(back_write, got)

    thread = threading.Thread(target=other)
    thread.start()
    for number in steps():
        os.write(write, NUMBER.pack(number))
        must(os.read(back_read, 8) == NUMBER.pack(number), "a wrong answer")
    os.close(write)
    thread.join()
    return 7


TABLE = {
    "pipes": pipes,
    "socket pair": socket_pair,
    "duplicate": duplicate,
    "duplicate pipe": duplicate_pipe,
    "duplicate alone": duplicate_alone,
    "unix socket": unix_socket,
    "tcp": tcp,
    "listening": listening,
    "udp": udp,
    "full pipe": full_pipe,
    "eventfd": eventfd,
    "epoll": epoll,
    "signalfd": signalfd,
    "blocked": blocked,
    "timerfd": timerfd,
    "repeating": repeating,
    "once": once,
    "alarm": alarm,
    "posix timer": posix_timer,
    "pidfd": pidfd,
    "terminal": terminal,
    "thread pipe": thread_pipe,
}

if __name__ == "__main__":
    sys.setswitchinterval(0.001)
    main(TABLE)
