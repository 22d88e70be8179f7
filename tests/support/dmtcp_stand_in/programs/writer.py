"""Writes without a pause, in threads and in a child: ``writer.py FILE``, into FILE.0 and FILE.1, a byte at a time.

Whatever it executes shows as bytes. Ends with 5 when there is FILE.finish. The stand-in can checkpoint it only between
bytes, and without threads.
"""

import os
import sys
import threading

import cooperate


def write(path, is_done):
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    while not is_done():
        os.write(descriptor, b".")


def is_done():
    cooperate.pause(0)
    return os.path.exists(sys.argv[1] + ".finish")


def child(state):
    write(sys.argv[1] + ".1", is_done)
    return 5


def main():
    state = cooperate.begin({"pid": None})
    if state["pid"] == 0:
        return child(state)
    if state["pid"] is None:
        state["pid"] = cooperate.fork({"pid": 0}, child)
    others = [threading.Thread(target=write, args=(sys.argv[1] + ".0", is_done)) for _ in range(2)]
    if "STAND_IN_PORT" not in os.environ:
        for other in others:
            other.start()
    write(sys.argv[1] + ".0", is_done)
    return cooperate.wait(state["pid"])


if __name__ == "__main__":
    sys.exit(main())
