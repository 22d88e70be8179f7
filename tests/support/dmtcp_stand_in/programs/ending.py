"""Counts until a time of day: ``ending.py FILE TIME CODE [CHILDREN]``, then writes ``end`` and ends with CODE.

TIME: a file with microseconds since 1970; it counts on while there is none. With CHILDREN, that many children end at
about that time, each with 3, and are waited for.
"""

import os
import sys
import time

import cooperate


def child(state):
    while goes_on():
        cooperate.pause(0.005)
    return 3


def main():
    state = cooperate.begin({"pids": None, "next": 0, "parent": True})
    if not state["parent"]:
        return child(state)
    if state["pids"] is None:
        count = int(sys.argv[4]) if len(sys.argv) > 4 else 0
        state["pids"] = [cooperate.fork({"parent": False}, child) for _ in range(count)]
    while goes_on():
        write(str(state["next"]))
        state["next"] += 1
        cooperate.pause(0.01)
    codes = [cooperate.wait(pid) for pid in state["pids"]]
    if codes != [3] * len(codes):
        return 90
    write("end")
    return int(sys.argv[3])


def goes_on():
    if not os.path.exists(sys.argv[2]):
        return True
    with open(sys.argv[2]) as file:
        return time.time() * 1e6 < int(file.read())


def write(line):
    with open(sys.argv[1], "a") as file:
        file.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
