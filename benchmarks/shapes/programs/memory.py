"""Shapes by what is in memory, and by how they end. Python 3.6."""

import ctypes
import hashlib
import mmap
import os
import signal
import sys
import threading

from stepping import LIBC, main, must, opened, steps, write


def plain():
    """A loop."""
    for _ in steps():
        pass
    return 7


def ends_with(code):
    def run():
        for _ in steps():
            pass
        return code

    return run


def signaled():
    """Ends by a signal."""
    for _ in steps():
        pass
    os.kill(os.getpid(), signal.SIGKILL)
    return 1


def large():
    """200 MB that do not compress, added up block by block."""
    blocks = [os.urandom(1 << 20) for _ in range(200)]
    sums = [hashlib.md5(block).digest() for block in blocks]  # noqa: S324 - a checksum
    for number in steps():
        at = number % len(blocks)
        must(hashlib.md5(blocks[at]).digest() == sums[at], "memory has changed")  # noqa: S324
    must([hashlib.md5(block).digest() for block in blocks] == sums, "memory has changed")  # noqa: S324
    return 7


def growing():
    """Objects that grow and shrink the interpreter's heap."""
    kept = []
    for number in steps():
        kept.append([number] * 5000)
        if len(kept) > 200:
            del kept[::2]
        must(all(one[0] == one[-1] for one in kept), "an object has changed")
    return 7


def threads():
    """Two threads that take turns."""
    turn = threading.Semaphore(0)
    done = threading.Semaphore(0)
    total = [0]

    def other():
        while True:
            turn.acquire()
            if total[0] < 0:
                return
            total[0] += 1
            done.release()

    thread = threading.Thread(target=other)
    thread.start()
    for _ in steps():
        before = total[0]
        turn.release()
        done.acquire()
        must(total[0] == before + 1, "a thread's turn is missing")
    total[0] = -1
    turn.release()
    thread.join()
    return 7


def locked():
    """Memory that is locked with mlock."""
    size = 32 << 10
    memory = mmap.mmap(-1, size)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    must(LIBC.mlock(ctypes.c_void_p(address), ctypes.c_size_t(size)) == 0, "mlock fails")
    for number in steps():
        memory[number % size] = number % 251
        must(memory[number % size] == number % 251, "memory has changed")
    return 7


def standard_output():
    """Writes to its standard output, which the job appends to a file."""
    out = opened("printed")
    for number in steps():
        sys.stdout.write("step {}\n".format(number))
        sys.stdout.flush()
        write(out, number)
    return 7


def environment():
    """Looks at the environment, which it has changed."""
    os.environ["SHAPE_OWN"] = "own value"
    LIBC.setenv(b"SHAPE_C", b"1", 1)
    path = os.environ["PATH"]
    for _ in steps():
        must(os.environ["SHAPE_OWN"] == "own value" and os.environ["PATH"] == path, "the environment has changed")
        must(LIBC.getenv(b"SHAPE_C") != 0, "a variable is missing")
    return 7


def directory():
    """Works in a directory to which it has gone."""
    top = os.getcwd()
    for _ in steps():
        os.makedirs("deep/er", exist_ok=True)
        os.chdir("deep/er")
        must(os.getcwd() == os.path.join(top, "deep/er"), "the directory has changed")
        with open("here", "w") as file:
            file.write("x")
        must(os.path.exists(os.path.join(top, "deep/er/here")), "a file lies elsewhere")
        os.chdir(top)
    return 7


TABLE = {
    "plain": plain,
    "exit 0": ends_with(0),
    "exit 3": ends_with(3),
    "exit 99": ends_with(99),
    "exit 255": ends_with(255),
    "signaled": signaled,
    "large": large,
    "growing": growing,
    "threads": threads,
    "locked": locked,
    "standard output": standard_output,
    "environment": environment,
    "directory": directory,
}

if __name__ == "__main__":
    main(TABLE)
